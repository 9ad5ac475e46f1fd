//! Bytes of artifacts as answers: headers that keep a browser from doing anything with them, and ranges
//! (spec: http-api, section 12).

use actix_web::HttpResponse;
use actix_web::body::SizedStream;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    ETAG, HeaderMap, HeaderName, HeaderValue, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use futures_util::StreamExt as _;
use nylorun_actors::artifacts::Artifacts;
use nylorun_actors::model::artifact::{ArtifactKind, OCTETS};
use nylorun_actors::ports::store::ArtifactVersionRow;

use super::super::answer::Answer;
use super::super::call::Call;
use super::super::headers::only;
use super::super::rejection::{Code, Rejection};
use super::{must_be, version};

/// `GET …/versions/{v}/content`.
pub(in crate::api) async fn get(call: Call) -> Answer {
    let (artifact, version) = version(&call).await?;
    must_be(&artifact, ArtifactKind::File)?;
    let file = File::of_version(&artifact.name, &version);
    file.answer(call.tenant().artifacts(), call.request.headers()).await
}

/// Bytes with what is said of them.
pub(super) struct File<'a> {
    /// What it is called.
    pub name: &'a str,
    /// What it is.
    pub content_type: &'a str,
    /// Where it is.
    pub blob_key: &'a str,
    /// How many.
    pub size: i64,
    /// Lowercase hexadecimal.
    pub sha256: &'a str,
}

impl<'a> File<'a> {
    /// A version of a file artifact.
    pub fn of_version(name: &'a str, version: &'a ArtifactVersionRow) -> Self {
        let ArtifactVersionRow { content_type, blob_key, size, sha256, .. } = version;
        Self { name, content_type, blob_key, size: *size, sha256 }
    }

    /// The answer to a request with these headers.
    pub async fn answer(self, artifacts: &Artifacts, headers: &HeaderMap) -> Answer {
        let size = u64::try_from(self.size).unwrap_or(0);
        let range = match wanted(headers, size) {
            Wanted::Whole => None,
            Wanted::Part { first, last } => Some((first, last)),
            Wanted::Nothing => return Ok(unsatisfiable(size)),
        };
        let (from, len) = range.map_or((0, size), |(first, last)| (first, last - first + 1));
        let stream = artifacts.open(self.blob_key, from, len).await?;
        let status = if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
        let mut response = HttpResponse::build(status);
        response.insert_header((CONTENT_TYPE, header(self.content_type, OCTETS)));
        response.insert_header((ACCEPT_RANGES, "bytes"));
        response.insert_header((ETAG, format!("\"{}\"", self.sha256)));
        response.insert_header((CONTENT_DISPOSITION, disposition("inline", self.name)));
        harmless(&mut response);
        if let Some((first, last)) = range {
            response.insert_header((CONTENT_RANGE, format!("bytes {first}-{last}/{size}")));
        }
        Ok(response.body(SizedStream::new(len, stream.map(|piece| piece.map_err(Box::new)))))
    }
}

/// Headers of all bytes that others have written: nobody keeps them, nobody runs them.
pub(super) fn harmless(response: &mut actix_web::HttpResponseBuilder) {
    response.insert_header((CACHE_CONTROL, "private, max-age=0"));
    response.insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"));
    response.insert_header((CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox"));
}

fn header(value: &str, otherwise: &'static str) -> HeaderValue {
    HeaderValue::from_str(value).unwrap_or(HeaderValue::from_static(otherwise))
}

/// `Content-Disposition` with a name for old readers and the whole name in UTF-8.
pub(super) fn disposition(kind: &str, name: &str) -> HeaderValue {
    let plain = |c: char| (' '..='~').contains(&c) && !matches!(c, '"' | '\\' | '%');
    let ascii: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    header(&format!("{kind}; filename=\"{ascii}\"; filename*=UTF-8''{encoded}"), "inline")
}

fn unsatisfiable(size: u64) -> HttpResponse {
    let refusal = Rejection::new(
        StatusCode::RANGE_NOT_SATISFIABLE,
        Code::RequestRejected,
        "The range is outside of the content",
    );
    let mut response = refusal.into_response();
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    };
    set(CONTENT_RANGE, format!("bytes */{size}"));
    set(ACCEPT_RANGES, "bytes".to_owned());
    response
}

/// What a `Range` header asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Whole,
    Part { first: u64, last: u64 },
    Nothing,
}

/// Reads `Range`. What is not one range of bytes is no range at all.
fn wanted(headers: &HeaderMap, size: u64) -> Wanted {
    only(headers, &RANGE).map_or(Wanted::Whole, |text| range(text, size))
}

fn range(text: &str, size: u64) -> Wanted {
    let parse = |digits: &str| -> Option<u64> {
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        // More digits than any size has: past every end.
        plain.then(|| digits.parse().unwrap_or(u64::MAX))
    };
    let Some((unit, spec)) = text.split_once('=') else { return Wanted::Whole };
    let Some((first, last)) = spec.trim().split_once('-') else { return Wanted::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Wanted::Whole;
    }
    match (parse(first), parse(last)) {
        (Some(first), Some(last)) if last < first => Wanted::Whole,
        (Some(first), Some(_)) if first >= size => Wanted::Nothing,
        (Some(first), Some(last)) => Wanted::Part { first, last: last.min(size - 1) },
        (Some(_), None) if !last.is_empty() => Wanted::Whole,
        (Some(first), None) if first >= size => Wanted::Nothing,
        (Some(first), None) => Wanted::Part { first, last: size - 1 },
        (None, Some(0)) if first.is_empty() => Wanted::Nothing,
        (None, Some(_)) if first.is_empty() && size == 0 => Wanted::Nothing,
        (None, Some(count)) if first.is_empty() => {
            Wanted::Part { first: size.saturating_sub(count), last: size - 1 }
        }
        _ => Wanted::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_served_and_every_other_header_is_no_range() {
        let part = |first, last| Wanted::Part { first, last };
        for (text, expected) in [
            ("bytes=0-0", part(0, 0)),
            ("bytes=2-5", part(2, 5)),
            ("bytes=2-99999999999999999999999", part(2, 9)),
            ("bytes=9-", part(9, 9)),
            ("bytes=-3", part(7, 9)),
            ("bytes=-30", part(0, 9)),
            ("Bytes = 1-2", part(1, 2)),
            ("bytes=10-", Wanted::Nothing),
            ("bytes=10-12", Wanted::Nothing),
            ("bytes=99999999999999999999999-", Wanted::Nothing),
            ("bytes=-0", Wanted::Nothing),
            ("bytes=5-2", Wanted::Whole),
            ("bytes=0-1,3-4", Wanted::Whole),
            ("bytes=0-1, 3-4", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("bytes=1-b", Wanted::Whole),
            ("bytes=+1-2", Wanted::Whole),
            ("items=0-1", Wanted::Whole),
            ("bytes", Wanted::Whole),
        ] {
            assert_eq!(range(text, 10), expected, "{text}");
        }
        for text in ["bytes=-1", "bytes=-0", "bytes=0-", "bytes=0-0"] {
            assert_eq!(range(text, 0), Wanted::Nothing, "{text}");
        }
    }

    #[test]
    fn a_name_is_given_in_ascii_and_whole_in_utf8() {
        let of = |name| disposition("inline", name).to_str().expect("ascii").to_owned();
        assert_eq!(of("a b.txt"), r#"inline; filename="a b.txt"; filename*=UTF-8''a%20b.txt"#);
        assert_eq!(
            of("é\"\\%;'.md"),
            r#"inline; filename="____;'.md"; filename*=UTF-8''%C3%A9%22%5C%25%3B%27.md"#
        );
    }
}
