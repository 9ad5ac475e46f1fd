//! What went wrong at a provider, in our ten codes (spec: engine, section 9.2; security, section 12.2).
//!
//! Facts go before words: first the typed codes of the provider's error body, then the HTTP status, and only then the
//! text, for providers that say everything with 400 or in the middle of a stream.

use std::error::Error as _;
use std::time::SystemTime;

use genai::webc::StreamTimeout;
use nylorun_actors::model::Json;
use nylorun_actors::model::json::parse;
use reqwest::header::HeaderMap;

use super::target::Target;
use crate::engine::model::call::{Failure, FailureCode};

/// The most characters of a provider's message that are passed on.
pub(crate) const MESSAGE_CHARS: usize = 1000;

/// No provider, or no key for it.
pub(crate) fn not_configured(what: &str) -> Failure {
    auth(what.to_owned())
}

fn auth(message: String) -> Failure {
    let fix = "set the provider's key with `nylorun model set` or PUT /v1/tenant/model";
    Failure::new(FailureCode::Auth, format!("{message}; {fix}"))
}

/// The failure of a library error.
pub(super) fn of_error(error: &genai::Error, target: &Target) -> Failure {
    use genai::Error;
    let provider = &target.provider;
    match error {
        Error::HttpError { status, body, headers, .. } => of_status(status.as_u16(), headers, body, provider),
        Error::ChatResponse { body, .. } => of_stream_error(body, provider),
        Error::WebStream { error, .. } => {
            if let Some(error) = error.downcast_ref::<Error>() {
                return of_error(error, target);
            }
            if error.downcast_ref::<StreamTimeout>().is_some() {
                return Failure::new(FailureCode::Timeout, format!("provider {provider} went silent"));
            }
            match error.downcast_ref::<reqwest::Error>() {
                Some(error) => of_connection(error, provider),
                None => unreadable(provider),
            }
        }
        Error::WebModelCall { webc_error: genai::webc::Error::Reqwest(error), .. } => {
            of_connection(error, provider)
        }
        Error::StreamParse { .. } | Error::JsonValueExt(_) | Error::SerdeJson(_) => unreadable(provider),
        Error::MessageContentTypeNotSupported { cause, .. } => Failure::new(
            FailureCode::InvalidRequest,
            format!("provider {provider} cannot take this: {cause}"),
        ),
        // Others come before anything is sent. Their text may hold the request, so it is not passed on.
        _ => Failure::new(
            FailureCode::InvalidRequest,
            format!("the request to provider {provider} cannot be made"),
        ),
    }
}

fn unreadable(provider: &str) -> Failure {
    Failure::new(FailureCode::Transient, format!("provider {provider} sent something that does not read"))
}

/// A connection that failed. The error's own text names the URL, so only its cause is told.
fn of_connection(error: &reqwest::Error, provider: &str) -> Failure {
    if error.is_timeout() && !error.is_connect() {
        return Failure::new(FailureCode::Timeout, format!("provider {provider} did not answer in time"));
    }
    if error.is_builder() {
        return Failure::new(
            FailureCode::InvalidRequest,
            format!("the address of provider {provider} is no URL"),
        );
    }
    let mut cause = error.source();
    let mut text = "connection lost".to_owned();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    let what = if error.is_connect() { "cannot be reached" } else { "broke off" };
    Failure::new(FailureCode::Transient, format!("provider {provider} {what}: {}", short(&text)))
}

/// An error that a provider sent instead of more answer.
fn of_stream_error(body: &Json, provider: &str) -> Failure {
    let seen = Seen::read(body);
    let message = format!("provider {provider} broke off its answer: {}", short(&seen.message));
    classify(None, &seen, message, None)
}

fn of_status(status: u16, headers: &HeaderMap, body: &str, provider: &str) -> Failure {
    let seen = match parse(body.as_bytes()) {
        Ok(body) => Seen::read(&body),
        Err(_) => Seen { message: body.to_owned(), ..Seen::default() },
    };
    let text = short(&seen.message);
    let message = match text.is_empty() || text.starts_with('<') {
        true => format!("provider {provider} answered {status}"),
        false => format!("provider {provider} answered {status}: {text}"),
    };
    let wait = retry_after(headers, SystemTime::now()).or(seen.retry_after_ms);
    classify(Some(status), &seen, message, wait)
}

/// The typed parts of an error body: OpenAI's `{error: {message, type, code}}`, Anthropic's
/// `{type: "error", error: {type, message}}`, Google's `{error: {status, message, details}}`, and what others made of them.
#[derive(Debug, Default)]
struct Seen {
    codes: Vec<String>,
    message: String,
    retry_after_ms: Option<u64>,
}

impl Seen {
    fn read(body: &Json) -> Self {
        let body = body.get(0).unwrap_or(body);
        let error = body.get("error").filter(|error| error.is_object()).unwrap_or(body);
        let mut seen = Self::default();
        let mut code = |value: Option<&Json>| match value {
            Some(Json::String(text)) => seen.codes.push(text.to_ascii_lowercase()),
            Some(Json::Number(number)) => seen.codes.push(number.to_string()),
            _ => {}
        };
        for key in ["code", "type", "status", "reason"] {
            code(error.get(key));
        }
        code(error.pointer("/innererror/code"));
        for detail in error.get("details").and_then(Json::as_array).into_iter().flatten() {
            code(detail.get("reason"));
            let delay =
                detail.get("retryDelay").and_then(Json::as_str).and_then(|text| text.strip_suffix('s'));
            if let Some(seconds) = delay.and_then(|seconds| seconds.parse().ok()) {
                seen.retry_after_ms = millis(seconds);
            }
        }
        let words =
            [error.get("message"), body.get("message"), body.get("detail"), body.get("error"), Some(body)];
        seen.message = words.into_iter().flatten().find_map(Json::as_str).unwrap_or_default().to_owned();
        seen
    }

    fn has(&self, codes: &[&str]) -> bool {
        self.codes.iter().any(|code| codes.contains(&code.as_str()))
    }

    fn says(&self, words: &[&str]) -> bool {
        let text = self.message.to_ascii_lowercase();
        words.iter().any(|word| text.contains(word))
    }
}

const OVERFLOW_WORDS: &[&str] = &[
    "context length",
    "context_length",
    "context window",
    "maximum context",
    "prompt is too long",
    "input is too long",
    "input token count",
    "too many tokens",
    "exceeds the maximum number of tokens",
    "reduce the length of the messages",
    "maximum prompt length",
    "token limit exceeded",
];
const QUOTA_WORDS: &[&str] = &[
    "insufficient_quota",
    "insufficient quota",
    "quota exceeded",
    "exceeded your current quota",
    "out of budget",
    "billing",
    "usage limit",
    "credit balance",
    "insufficient balance",
];
const POLICY_WORDS: &[&str] = &[
    "content policy",
    "content_policy",
    "content filter",
    "content management",
    "safety",
    "flagged",
    "moderation",
    "usage policies",
];

fn classify(status: Option<u16>, seen: &Seen, message: String, wait: Option<u64>) -> Failure {
    use FailureCode::{
        ContentPolicy, ContextOverflow, InvalidRequest, Overloaded, RateLimited, Timeout, Transient,
    };
    let fail = |code| Failure { retry_after_ms: wait, ..Failure::new(code, message.clone()) };
    let quota = || Failure { retry_after_ms: None, ..fail(RateLimited).fatal() };

    // What the provider names.
    if seen.has(&[
        "context_length_exceeded",
        "request_too_large",
        "model_context_window_exceeded",
        "context_window_exceeded",
    ]) {
        return fail(ContextOverflow);
    }
    if seen.has(&[
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "quota_exceeded",
        "billing_error",
        "insufficient_balance",
    ]) {
        return quota();
    }
    if seen.has(&[
        "content_filter",
        "content_policy_violation",
        "moderation_blocked",
        "responsibleaipolicyviolation",
        "prohibited_content",
        "safety",
    ]) {
        return fail(ContentPolicy);
    }
    if seen.has(&[
        "invalid_api_key",
        "authentication_error",
        "permission_error",
        "unauthenticated",
        "permission_denied",
        "api_key_invalid",
        "account_deactivated",
        "invalid_authentication",
    ]) {
        return auth(message);
    }
    if seen.has(&[
        "rate_limit_exceeded",
        "rate_limit_error",
        "resource_exhausted",
        "too_many_requests",
        "rate_limited",
    ]) {
        // A limit per minute may be called a quota too; one that says when to come back is none that is used up.
        return if wait.is_none() && seen.says(QUOTA_WORDS) { quota() } else { fail(RateLimited) };
    }
    if seen.has(&[
        "overloaded_error",
        "overloaded",
        "unavailable",
        "slow_down",
        "engine_overloaded",
        "server_overloaded",
    ]) {
        return fail(Overloaded);
    }
    if seen.has(&["timeout_error", "timeout", "request_timeout", "deadline_exceeded"]) {
        return fail(Timeout);
    }
    if seen.has(&["model_not_found", "not_found_error", "not_found"]) {
        return fail(InvalidRequest);
    }

    // What the status says.
    match status {
        Some(401 | 403) => return auth(message),
        Some(402) => return quota(),
        Some(408 | 504) => return fail(Timeout),
        Some(413) => return fail(ContextOverflow),
        Some(429) => return if seen.says(QUOTA_WORDS) { quota() } else { fail(RateLimited) },
        Some(503 | 529) => return fail(Overloaded),
        Some(409 | 425 | 500..=599) => return fail(Transient),
        _ => {}
    }
    if seen.has(&["api_error", "server_error", "internal_server_error", "internal_error", "internal"]) {
        return fail(Transient);
    }

    // What the text says.
    if seen.says(OVERFLOW_WORDS) {
        return fail(ContextOverflow);
    }
    if status.is_none() {
        if seen.says(QUOTA_WORDS) {
            return quota();
        }
        if seen.says(&["rate limit", "too many requests"]) || seen.has(&["429"]) {
            return fail(RateLimited);
        }
        if seen.says(&["overloaded", "service unavailable", "high demand"]) || seen.has(&["503", "529"]) {
            return fail(Overloaded);
        }
        if seen.says(&["timeout", "timed out"]) {
            return fail(Timeout);
        }
    }
    if seen.says(POLICY_WORDS) {
        return fail(ContentPolicy);
    }
    if seen.says(&["api key", "unauthorized", "authentication"]) {
        return auth(message);
    }
    match status {
        Some(_) => fail(InvalidRequest),
        // An answer that had begun was a request that was fine.
        None => fail(Transient),
    }
}

/// How long the headers ask to wait, ms: `retry-after-ms`, or `retry-after` in seconds or as a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(ms) = text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()) {
        return millis(ms / 1000.0);
    }
    let after = text("retry-after")?;
    if let Ok(seconds) = after.parse::<f64>() {
        return millis(seconds);
    }
    let at = httpdate::parse_http_date(after).ok()?;
    u64::try_from(at.duration_since(now).unwrap_or_default().as_millis()).ok()
}

fn millis(seconds: f64) -> Option<u64> {
    // A cast saturates; nonsense was refused before.
    (seconds.is_finite() && seconds >= 0.0).then_some((seconds * 1000.0).ceil() as u64)
}

fn short(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(MESSAGE_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn of(status: u16, body: Json) -> Failure {
        of_status(status, &HeaderMap::new(), &body.to_string(), "p")
    }

    #[test]
    fn typed_codes_and_status_decide_before_words() {
        use FailureCode::*;
        let openai =
            |code: &str, message: &str| json!({"error": {"message": message, "type": "x", "code": code}});
        let anthropic =
            |kind: &str, message: &str| json!({"type": "error", "error": {"type": kind, "message": message}});
        let google = |status: &str, message: &str| json!([{"error": {"code": 400, "status": status, "message": message}}]);
        for (status, body, code, retryable) in [
            (429, openai("insufficient_quota", "please wait"), RateLimited, false),
            (429, openai("rate_limit_exceeded", "slow down"), RateLimited, true),
            (429, json!({"error": "You exceeded your current quota"}), RateLimited, false),
            (429, json!({}), RateLimited, true),
            // The word "timeout" in a text does not make a time-out of a bad request.
            (400, openai("invalid_value", "unknown field timeout"), InvalidRequest, false),
            (400, openai("context_length_exceeded", "too long"), ContextOverflow, false),
            (
                400,
                anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
                ContextOverflow,
                false,
            ),
            (
                400,
                google("INVALID_ARGUMENT", "The input token count (2) exceeds the maximum"),
                ContextOverflow,
                false,
            ),
            (400, google("INVALID_ARGUMENT", "bad field"), InvalidRequest, false),
            (
                400,
                json!({"error": {"status": "INVALID_ARGUMENT", "message": "m", "details": [{"reason": "API_KEY_INVALID"}]}}),
                Auth,
                false,
            ),
            (400, openai("content_filter", "m"), ContentPolicy, false),
            (401, json!("no"), Auth, false),
            (403, json!({}), Auth, false),
            (404, openai("model_not_found", "m"), InvalidRequest, false),
            (413, json!({}), ContextOverflow, false),
            (402, json!({}), RateLimited, false),
            (500, json!({}), Transient, true),
            (502, json!("<html>"), Transient, true),
            (503, json!({}), Overloaded, true),
            (504, json!({}), Timeout, true),
            (529, anthropic("overloaded_error", "Overloaded"), Overloaded, true),
            (302, json!({}), InvalidRequest, false),
        ] {
            let failure = of(status, body.clone());
            assert_eq!((failure.code, failure.retryable), (code, retryable), "{status} {body}");
        }
    }

    #[test]
    fn an_error_inside_a_stream_is_read_like_any_other() {
        let of = |body: Json| of_stream_error(&body, "p").code;
        assert_eq!(
            of(json!({"type": "error", "error": {"type": "overloaded_error", "message": "m"}})),
            FailureCode::Overloaded
        );
        assert_eq!(of(json!({"message": "m", "type": "server_error"})), FailureCode::Transient);
        assert_eq!(of(json!({"message": "Rate limit reached", "code": 429})), FailureCode::RateLimited);
        assert_eq!(of(json!("something else")), FailureCode::Transient);
    }

    #[test]
    fn the_provider_may_say_how_long_to_wait_in_four_ways() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let header = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            retry_after(&headers, now)
        };
        assert_eq!(header("retry-after", "7"), Some(7000));
        assert_eq!(header("retry-after", "0.5"), Some(500));
        assert_eq!(header("retry-after-ms", "120"), Some(120));
        assert_eq!(header("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT"), Some(3000));
        assert_eq!(header("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        assert_eq!(header("retry-after", "soon"), None);
        assert_eq!(header("retry-after", "-3"), None);
        let google = of(
            429,
            json!({"error": {"status": "RESOURCE_EXHAUSTED", "message": "You exceeded your current quota",
            "details": [{"@type": "RetryInfo", "retryDelay": "34.07s"}]}}),
        );
        assert_eq!((google.retry_after_ms, google.retryable), (Some(34_070), true));
    }

    #[test]
    fn a_long_or_markup_body_does_not_become_a_long_message() {
        let failure = of_status(500, &HeaderMap::new(), &"x".repeat(5000), "p");
        assert!(failure.message.chars().count() < 1100);
        assert_eq!(
            of_status(502, &HeaderMap::new(), "<html><body>bad</body></html>", "p").message,
            "provider p answered 502"
        );
    }
}
