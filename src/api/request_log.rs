//! One line of log for each request, and the id that ties a request to its lines (spec: http-api, section 1.3;
//! security, section 14). Never a bearer, never a query, never a session id.

use std::time::Instant;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderMap, HeaderValue};
use actix_web::{Error, HttpMessage as _, HttpRequest, HttpResponse};
use nylorun_actors::model::ids::TenantId;
use tracing::Span;
use tracing_actix_web::{RequestId, RootSpanBuilder};

use super::headers::{REQUEST_ID, only};
use super::limits;
use super::path::for_log;

/// The root span of a request, for `tracing_actix_web::TracingLogger`.
pub struct RequestSpan;

#[derive(Clone)]
struct Named(HeaderValue);

impl RootSpanBuilder for RequestSpan {
    fn on_request_start(request: &ServiceRequest) -> Span {
        let fresh = request.extensions().get::<RequestId>().copied();
        let id = taken_over(request.headers())
            .or_else(|| HeaderValue::from_str(&fresh?.to_string()).ok())
            .unwrap_or_else(made);
        let span = if is_quiet(request.path()) {
            Span::none()
        } else {
            tracing::info_span!("request", request_id = id.to_str().unwrap_or_default())
        };
        request.extensions_mut().insert(Named(id));
        span
    }

    fn on_request_end<B: MessageBody>(_: Span, _: &Result<ServiceResponse<B>, Error>) {}
}

/// What the pipeline has found out about a request on its way.
#[derive(Default)]
pub(super) struct Seen {
    pub tenant: Option<TenantId>,
    pub route: Option<&'static str>,
    pub code: Option<&'static str>,
}

/// Names the answer and writes the line.
pub(super) fn finish(request: &HttpRequest, response: &mut HttpResponse, seen: &Seen, started: Instant) {
    let named = request.extensions().get::<Named>().map(|named| named.0.clone());
    let id = named.unwrap_or_else(|| taken_over(request.headers()).unwrap_or_else(made));
    let path = request.uri().path();
    if !is_quiet(path) {
        tracing::info!(
            method = request.method().as_str(),
            path = &*for_log(path),
            route = seen.route,
            status = response.status().as_u16(),
            code = seen.code,
            tenant_id = seen.tenant.as_ref().map(TenantId::as_str),
            duration_ms = started.elapsed().as_secs_f64() * 1000.0,
            request_id = id.to_str().unwrap_or_default(),
            "request"
        );
    }
    response.headers_mut().insert(REQUEST_ID.clone(), id);
}

fn is_quiet(path: &str) -> bool {
    matches!(path, "/health" | "/ready")
}

/// The client's own id, when it is short and plain.
fn taken_over(headers: &HeaderMap) -> Option<HeaderValue> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&b);
    let text = only(headers, &REQUEST_ID)?;
    let sane = (1..=limits::REQUEST_ID).contains(&text.len()) && text.bytes().all(plain);
    if sane { headers.get(&REQUEST_ID).cloned() } else { None }
}

fn made() -> HeaderValue {
    HeaderValue::from_str(&uuid::Uuid::new_v4().to_string())
        .unwrap_or_else(|_| HeaderValue::from_static("unnamed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sane_request_id_is_taken_over_and_any_other_is_not() {
        let with = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers
                    .append(REQUEST_ID.clone(), HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
            }
            taken_over(&headers).map(|v| v.to_str().expect("text").to_owned())
        };
        assert_eq!(with(&["req-1"]).as_deref(), Some("req-1"));
        for bad in [&[][..], &[""], &["a b"], &["a\"b"], &["é"], &["a", "b"], &[&"x".repeat(129)]] {
            assert_eq!(with(bad), None, "{bad:?}");
        }
    }
}
