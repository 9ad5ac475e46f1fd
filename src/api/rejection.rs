//! Refusals on the wire: one shape, a closed list of codes (spec: http-api, section 2.2).

use std::borrow::Cow;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::web::Bytes;
use nylorun_actors::model::json::{Json, JsonMap, encode};
use nylorun_actors::model::shape::{Issue, issue_json};
use nylorun_actors::ports::StoreError;
use nylorun_actors::rules::{Refusal, SandboxRefusal};
use serde_json::json;

use super::protocol;

macro_rules! codes {
    ($($variant:ident = $name:literal,)*) => {
        /// Every code that a refusal may carry. Clients know these and no others.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Code {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The wire name.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

codes! {
    NotFound = "not_found",
    ProtocolUnsupported = "protocol_unsupported",
    HostRejected = "host_rejected",
    OriginRejected = "origin_rejected",
    UnsupportedMediaType = "unsupported_media_type",
    SubjectInvalid = "subject_invalid",
    ScopeRequired = "scope_required",
    TokenExpired = "token_expired",
    LimitExceeded = "limit_exceeded",
    RequestRejected = "request_rejected",
    InvalidRequest = "invalid_request",
    SubjectRequired = "subject_required",
    SandboxNotGranted = "sandbox_not_granted",
    SandboxBusy = "sandbox_busy",
    SandboxUnavailable = "sandbox_unavailable",
    PlacementRefused = "placement_refused",
    SandboxLost = "sandbox_lost",
    SandboxExpired = "sandbox_expired",
    IssuerUnavailable = "issuer_unavailable",
    OauthClientRequired = "oauth_client_required",
    OauthStateInvalid = "oauth_state_invalid",
    OauthFailed = "oauth_failed",
    InternalError = "internal_error",
}

/// The body of every refusal that must not say why.
const OPAQUE: &str = r#"{"status":"rejected","code":"not_found","message":"Not found"}"#;

/// A refusal.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection(Box<Parts>);

#[derive(Clone, Debug, PartialEq)]
struct Parts {
    status: StatusCode,
    code: Code,
    message: Cow<'static, str>,
    details: Option<Json>,
    active_turn: Option<String>,
    retry_after: Option<u32>,
    challenge: Option<&'static str>,
    opaque: bool,
}

impl Rejection {
    /// A refusal with a status, a code and words.
    pub fn new(status: StatusCode, code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Parts {
            status,
            code,
            message: message.into(),
            details: None,
            active_turn: None,
            retry_after: None,
            challenge: None,
            opaque: false,
        }))
    }

    /// The 404 that is the same to the byte whatever its cause.
    #[must_use]
    pub fn opaque() -> Self {
        let mut rejection = Self::new(StatusCode::NOT_FOUND, Code::NotFound, "Not found");
        rejection.0.opaque = true;
        rejection
    }

    /// 401 `token_expired` with its challenge: a token that was good once.
    #[must_use]
    pub fn token_expired() -> Self {
        let mut rejection = Self::new(
            StatusCode::UNAUTHORIZED,
            Code::TokenExpired,
            "The token has expired or its key was revoked",
        );
        rejection.0.challenge = Some(r#"Bearer error="invalid_token""#);
        rejection
    }

    /// 426.
    #[must_use]
    pub fn protocol() -> Self {
        Self::new(StatusCode::UPGRADE_REQUIRED, Code::ProtocolUnsupported, "")
    }

    /// 400 `request_rejected`.
    pub fn bad(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Code::RequestRejected, message)
    }

    /// 400 `request_rejected` with every problem of a body.
    #[must_use]
    pub fn issues(issues: &[Issue]) -> Self {
        Self::bad("").with_issues(issues.iter().map(issue_json).collect())
    }

    /// 403 `scope_required`; the scopes are those that would do.
    pub fn scope(message: impl Into<Cow<'static, str>>, scopes: &[&str]) -> Self {
        let mut details = JsonMap::new();
        details.insert("scopes".to_owned(), scopes.iter().map(|s| Json::from(*s)).collect());
        Self::new(StatusCode::FORBIDDEN, Code::ScopeRequired, message).with_details(Json::Object(details))
    }

    /// 403: a delivery token where it has no business.
    #[must_use]
    pub fn not_for_deliveries() -> Self {
        Self::new(StatusCode::FORBIDDEN, Code::RequestRejected, "Not available to delivery tokens")
    }

    /// 500, without a word of why; the cause goes to the log alone.
    #[must_use]
    pub fn internal(cause: &dyn std::fmt::Display) -> Self {
        tracing::error!(%cause, "a request failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, Code::InternalError, "Internal error")
    }

    /// The message becomes the serialized list of issues, `details.issues` the list.
    fn with_issues(self, issues: Vec<Json>) -> Self {
        let issues = Json::Array(issues);
        let message = encode(&issues);
        let mut rejection =
            self.with_details(Json::Object(JsonMap::from_iter([("issues".to_owned(), issues)])));
        rejection.0.message = message.into();
        rejection
    }

    /// Adds details.
    #[must_use]
    pub fn with_details(mut self, details: Json) -> Self {
        self.0.details = Some(details);
        self
    }

    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.0.status
    }

    /// Its code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// As the operator's API says it: faults of the request are `invalid_request`, what is missing is `not_found`.
    #[must_use]
    pub fn for_operator(mut self) -> Self {
        if self.0.code == Code::RequestRejected {
            match self.0.status {
                StatusCode::BAD_REQUEST => self.0.code = Code::InvalidRequest,
                StatusCode::NOT_FOUND => self.0.code = Code::NotFound,
                _ => {}
            }
        }
        self
    }

    /// The answer.
    #[must_use]
    pub fn into_response(self) -> HttpResponse {
        let parts = *self.0;
        let mut response = HttpResponse::build(parts.status);
        response.insert_header((CONTENT_TYPE, "application/json"));
        if parts.opaque {
            return response.body(Bytes::from_static(OPAQUE.as_bytes()));
        }
        if parts.code == Code::ProtocolUnsupported {
            return response.body(protocol::REFUSED.clone());
        }
        if let Some(challenge) = parts.challenge {
            response.insert_header((WWW_AUTHENTICATE, challenge));
        }
        if let Some(seconds) = parts.retry_after {
            response.insert_header((RETRY_AFTER, seconds));
        }
        let mut body = JsonMap::new();
        body.insert("status".to_owned(), Json::from("rejected"));
        body.insert("code".to_owned(), Json::from(parts.code.as_str()));
        body.insert("message".to_owned(), Json::from(parts.message));
        if let Some(details) = parts.details {
            body.insert("details".to_owned(), details);
        }
        if let Some(turn) = parts.active_turn {
            body.insert("activeTurnId".to_owned(), Json::from(turn));
        }
        response.body(encode(&body))
    }
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound(message) => Self::new(StatusCode::NOT_FOUND, Code::RequestRejected, message),
            Refusal::Conflict { message, active_turn, details } => {
                let mut rejection = Self::new(StatusCode::CONFLICT, Code::RequestRejected, message);
                rejection.0.active_turn = active_turn.map(|turn| turn.to_string());
                rejection.0.details = details;
                rejection
            }
            Refusal::Invalid { message, issues } if issues.is_empty() => Self::bad(message),
            Refusal::Invalid { issues, .. } => Self::bad("").with_issues(issues),
            Refusal::Forbidden(message) => Self::new(StatusCode::FORBIDDEN, Code::RequestRejected, message),
            Refusal::Placement { message, details } => {
                Self::new(StatusCode::CONFLICT, Code::PlacementRefused, message).with_details(details)
            }
            Refusal::Sandbox { why, message, retry_after_s } => {
                let (status, code) = match why {
                    SandboxRefusal::Busy => (StatusCode::CONFLICT, Code::SandboxBusy),
                    SandboxRefusal::Unavailable => (StatusCode::CONFLICT, Code::SandboxUnavailable),
                    SandboxRefusal::NotGranted => (StatusCode::FORBIDDEN, Code::SandboxNotGranted),
                };
                let mut rejection = Self::new(status, code, message);
                rejection.0.retry_after = retry_after_s;
                rejection.0.details = retry_after_s.map(|s| json!({"retryAfterSeconds": s}));
                rejection
            }
            Refusal::Limit { limit, max, message } => {
                Self::new(StatusCode::CONFLICT, Code::LimitExceeded, message)
                    .with_details(json!({"limit": limit, "max": max}))
            }
            Refusal::TooLarge { message, limit } => {
                let mut details = JsonMap::new();
                details.insert("limitBytes".to_owned(), Json::from(limit));
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, Code::LimitExceeded, message)
                    .with_details(Json::Object(details))
            }
            Refusal::Busy(message) => unavailable(message),
            Refusal::Closing => unavailable("The Tenant does not take this at the moment"),
            Refusal::Store(error) => Self::from(error),
        }
    }
}

impl From<StoreError> for Rejection {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => unavailable("The Runtime is stopping"),
            error if error.is_passing() => {
                tracing::warn!(%error, "the store refused a request");
                unavailable("The store is not available at the moment")
            }
            // An operator makes room or remounts the disk; until then nothing is accepted and nothing is lost.
            error @ (StoreError::Full | StoreError::ReadOnly(_)) => {
                tracing::error!(%error, "the store cannot be written");
                unavailable("The store cannot be written: its disk is full or read-only")
            }
            error => Self::internal(&error),
        }
    }
}

/// 503 `request_rejected`, to be tried again soon.
pub(super) fn unavailable(message: impl Into<Cow<'static, str>>) -> Rejection {
    let mut rejection = Rejection::new(StatusCode::SERVICE_UNAVAILABLE, Code::RequestRejected, message);
    rejection.0.retry_after = Some(1);
    rejection
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::body::to_bytes;
    use nylorun_actors::model::json::parse;
    use nylorun_actors::model::shape::issue;
    use serde_json::json;

    async fn body(rejection: Rejection) -> (u16, String) {
        let response = rejection.into_response();
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body()).await.expect("a body");
        (status, String::from_utf8(bytes.to_vec()).expect("text"))
    }

    #[actix_web::test]
    async fn the_opaque_404_is_the_same_to_the_byte() {
        assert_eq!(body(Rejection::opaque()).await, (404, OPAQUE.to_owned()));
    }

    #[actix_web::test]
    async fn validation_keeps_its_message_and_adds_a_structured_list() {
        let (status, text) = body(Rejection::issues(&[issue(&["a"], "no")])).await;
        let value = parse(text.as_bytes()).expect("json");
        let list = json!([{"path": ["a"], "code": "custom", "message": "no"}]);
        assert_eq!((status, &value["code"]), (400, &json!("request_rejected")));
        assert_eq!(value["details"]["issues"], list);
        assert_eq!(value["message"], list.to_string());
    }

    #[actix_web::test]
    async fn each_refusal_has_its_status_and_a_code_of_the_closed_list() {
        let conflict =
            Refusal::Conflict { message: "m".into(), active_turn: Some("t".into()), details: None };
        let (status, text) = body(conflict.into()).await;
        assert_eq!(status, 409);
        assert_eq!(
            text,
            r#"{"status":"rejected","code":"request_rejected","message":"m","activeTurnId":"t"}"#
        );
        let placement = Refusal::Placement { message: "m".into(), details: json!({}) };
        let limit = Refusal::Limit { limit: "sandboxes", max: 3, message: "m".into() };
        let (status, text) = body(limit.into()).await;
        assert_eq!(status, 409);
        assert_eq!(
            text,
            r#"{"status":"rejected","code":"limit_exceeded","message":"m","details":{"limit":"sandboxes","max":3}}"#
        );
        let busy = Rejection::from(Refusal::sandbox_for_now(SandboxRefusal::Busy, "m"));
        assert_eq!(busy.clone().into_response().headers().get("retry-after").expect("it"), "5");
        assert!(body(busy).await.1.contains(r#""details":{"retryAfterSeconds":5}"#));
        for (refusal, status, code) in [
            (Refusal::not_found("session"), 404, "request_rejected"),
            (Refusal::invalid("x"), 400, "request_rejected"),
            (Refusal::Forbidden("x".into()), 403, "request_rejected"),
            (placement, 409, "placement_refused"),
            (Refusal::sandbox(SandboxRefusal::Busy, "x"), 409, "sandbox_busy"),
            (Refusal::sandbox(SandboxRefusal::Unavailable, "x"), 409, "sandbox_unavailable"),
            (Refusal::sandbox(SandboxRefusal::NotGranted, "x"), 403, "sandbox_not_granted"),
            (Refusal::TooLarge { message: "x".into(), limit: 7 }, 413, "limit_exceeded"),
            (Refusal::Closing, 503, "request_rejected"),
            (Refusal::Busy("x".into()), 503, "request_rejected"),
            (StoreError::Unavailable("x".into()).into(), 503, "request_rejected"),
            (StoreError::Closed.into(), 503, "request_rejected"),
            (StoreError::Corrupt("secret".into()).into(), 500, "internal_error"),
            (StoreError::Full.into(), 503, "request_rejected"),
            (StoreError::ReadOnly("x".into()).into(), 503, "request_rejected"),
        ] {
            let (found, text) = body(Rejection::from(refusal)).await;
            let value = parse(text.as_bytes()).expect("json");
            assert_eq!((found, value["code"].as_str()), (status, Some(code)), "{text}");
            assert!(!text.contains("secret"));
        }
    }
}
