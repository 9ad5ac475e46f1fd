//! Successful answers: JSON with an exact length (spec: http-api, section 1.3).

use actix_web::HttpResponse;
use actix_web::body::MessageBody;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::web::Bytes;
use nylorun_actors::model::json::encode;
use serde::Serialize;

use super::rejection::Rejection;

/// What a handler answers.
pub(super) type Answer = Result<HttpResponse, Rejection>;

/// 200 with JSON text.
pub(super) fn text(json: impl MessageBody + 'static) -> HttpResponse {
    HttpResponse::Ok().insert_header((CONTENT_TYPE, "application/json")).body(json)
}

/// 200 with a value.
pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> HttpResponse {
    text(encode(value))
}

/// 200 with a document that clients may keep but must ask about.
pub(super) fn document(json: Bytes) -> HttpResponse {
    let mut response = text(json);
    response
        .headers_mut()
        .insert(CACHE_CONTROL, actix_web::http::header::HeaderValue::from_static("no-cache"));
    response
}
