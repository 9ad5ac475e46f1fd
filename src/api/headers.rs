//! Headers of our own, and reading those that may come once (spec: http-api, sections 2.1 and 3.1).

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName};

use super::rejection::{Code, Rejection};

/// The protocol that the client speaks.
pub static PROTOCOL: HeaderName = HeaderName::from_static("nylorun-protocol");
/// The Tenant that the client means.
pub static TENANT: HeaderName = HeaderName::from_static("nylorun-tenant");
/// Whom an application acts for.
pub static SUBJECT: HeaderName = HeaderName::from_static("nylorun-subject");
/// What they may do.
pub static SCOPES: HeaderName = HeaderName::from_static("nylorun-scopes");
/// Where a stream resumes.
pub static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Names one request in answers and logs.
pub static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The value of a header that may come once. One that is not text counts as an empty one.
///
/// # Errors
/// 400 `subject_invalid` when it comes twice.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Rejection> {
    let mut values = headers.get_all(name);
    let first = values.next();
    if values.next().is_some() {
        return Err(Rejection::new(
            StatusCode::BAD_REQUEST,
            Code::SubjectInvalid,
            format!("The header {name} was sent twice"),
        ));
    }
    Ok(first.map(|value| value.to_str().unwrap_or_default()))
}

/// The value of a header that came exactly once as text.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name);
    let first = values.next()?;
    if values.next().is_some() { None } else { first.to_str().ok() }
}
