//! Reads request bodies: bounded before memory is taken, parsed once, checked with all problems at once
//! (spec: http-api, sections 1.2 step 17 and 2.2).

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING};
use actix_web::web::{Bytes, BytesMut, Payload};
use futures_util::StreamExt as _;
use nylorun_actors::model::json::{Json, JsonMap, parse};
use nylorun_actors::model::shape::{OBJECT, Shape};

use super::limits::{BODY_BYTES, BODY_IDLE};
use super::rejection::{Code, Rejection};

/// Whether a body comes with the request, judged by its headers.
pub(super) fn is_announced(headers: &HeaderMap) -> bool {
    let coded = headers.get_all(TRANSFER_ENCODING).any(|v| !v.as_bytes().eq_ignore_ascii_case(b"identity"));
    coded || headers.get_all(CONTENT_LENGTH).any(|v| v.as_bytes() != b"0")
}

/// Whether the body is said to be JSON. Parameters are ignored.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE);
    let (Some(kind), None) = (types.next(), types.next()) else { return false };
    let kind = kind.as_bytes().split(|b| *b == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// The body's bytes.
async fn read(request: &HttpRequest, mut payload: Payload) -> Result<Bytes, Rejection> {
    let declared = request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > BODY_BYTES as u64) {
        return Err(too_large());
    }
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    loop {
        let chunk = match tokio::time::timeout(BODY_IDLE, payload.next()).await {
            Err(_) => return Err(Rejection::bad("The body did not arrive in time")),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(Rejection::bad("The body could not be read")),
            Ok(Some(Ok(chunk))) => chunk,
        };
        let held = first.as_ref().map_or(0, Bytes::len).max(rest.len());
        if held + chunk.len() > BODY_BYTES {
            return Err(too_large());
        }
        match &first {
            // Most bodies come in one piece, which is then never copied.
            None => first = Some(chunk),
            Some(one) => {
                if rest.is_empty() {
                    rest.extend_from_slice(one);
                }
                rest.extend_from_slice(&chunk);
            }
        }
    }
    Ok(if rest.is_empty() { first.unwrap_or_default() } else { rest.freeze() })
}

fn too_large() -> Rejection {
    Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, Code::RequestRejected, "The body is larger than 1 MiB")
}

/// The body as JSON.
///
/// # Errors
/// 413, or 400 when it is missing or not JSON.
pub(super) async fn json(request: &HttpRequest, payload: Payload) -> Result<Json, Rejection> {
    parsed(&read(request, payload).await?)
}

fn parsed(bytes: &[u8]) -> Result<Json, Rejection> {
    // The parser's own words could repeat a part of the body.
    parse(bytes).map_err(|error| {
        Rejection::bad(format!("The body is not JSON (line {}, column {})", error.line(), error.column()))
    })
}

/// The body as an object of a shape.
///
/// # Errors
/// As [`json`], and 400 with every problem.
pub(super) async fn object(
    request: &HttpRequest,
    payload: Payload,
    shape: &Shape,
) -> Result<JsonMap, Rejection> {
    let body = json(request, payload).await?;
    let issues = shape.check(&body);
    match body {
        Json::Object(map) if issues.is_empty() => Ok(map),
        _ => Err(Rejection::issues(&issues)),
    }
}

/// The body as an object of any shape; an absent one is empty.
///
/// # Errors
/// 413; 400 when it is not JSON or no object.
pub(super) async fn object_or_nothing(request: &HttpRequest, payload: Payload) -> Result<JsonMap, Rejection> {
    let bytes = read(request, payload).await?;
    if bytes.is_empty() {
        return Ok(JsonMap::new());
    }
    match parsed(&bytes)? {
        Json::Object(map) => Ok(map),
        other => Err(Rejection::issues(&OBJECT.check(&other))),
    }
}

/// A string member of a checked body, empty when it is absent.
pub(super) fn text<'a>(map: &'a JsonMap, name: &str) -> &'a str {
    map.get(name).and_then(Json::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(
                actix_web::http::header::HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                HeaderValue::from_str(value).expect("a value"),
            );
        }
        map
    }

    #[test]
    fn a_body_is_announced_by_its_length_or_its_coding() {
        assert!(is_announced(&headers(&[("content-length", "5")])));
        assert!(is_announced(&headers(&[("transfer-encoding", "chunked")])));
        for none in [&[][..], &[("content-length", "0")], &[("transfer-encoding", "Identity")]] {
            assert!(!is_announced(&headers(none)), "{none:?}");
        }
    }

    #[test]
    fn only_application_json_is_json_whatever_its_case_and_parameters() {
        for good in ["application/json", "Application/JSON; charset=utf-8", " application/json ;x"] {
            assert!(is_json(&headers(&[("content-type", good)])), "{good}");
        }
        for bad in ["", "text/json", "application/jsonx", "application/problem+json"] {
            assert!(!is_json(&headers(&[("content-type", bad)])), "{bad}");
        }
        assert!(!is_json(&headers(&[])));
        let twice = [("content-type", "application/json"), ("content-type", "text/plain")];
        assert!(!is_json(&headers(&twice)));
    }
}
