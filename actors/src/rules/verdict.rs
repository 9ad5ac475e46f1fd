//! What an endpoint's answer means for its Action (spec: http-api, section 10.3; durability, section 7). Pure.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::model::effect::{EffectKind, Outcome};
use crate::model::json::{Json, JsonMap, parse};
use crate::ports::action::Answered;

/// Characters of a refusing answer's text that are kept.
const MESSAGE_CHARS: usize = 500;

/// What an answer means.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// An outcome to record (a failed one too): the endpoint answered.
    Outcome(Outcome),
    /// 202: it works on in the background and will call back.
    Accepted,
    /// Nothing was done: deliver again later.
    Retry {
        /// `endpoint.busy`, …
        reason: &'static str,
        /// In words.
        message: String,
        /// As the endpoint asked; at most five minutes.
        after: Option<Duration>,
    },
    /// What it did is unknown.
    Lost {
        /// `endpoint.no-answer` or `endpoint.failed`.
        reason: &'static str,
        /// In words.
        message: String,
    },
}

/// Judges an answer to an Action of this kind.
#[must_use]
pub fn verdict(kind: EffectKind, answered: Answered) -> Verdict {
    match answered {
        Answered::Response { status, tagged, retry_after, body } => {
            response(kind, status, tagged, retry_after, &body)
        }
        Answered::TooLarge { .. } => {
            failed("endpoint.answer-too-large", "The endpoint's answer is larger than 8 MiB".to_owned())
        }
        Answered::NotSent { code, message } => Verdict::Retry {
            reason: "endpoint.unreachable",
            message: format!("{code}: {message}"),
            after: None,
        },
        Answered::Lost { code, message } => {
            Verdict::Lost { reason: "endpoint.no-answer", message: format!("{code}: {message}") }
        }
    }
}

fn response(kind: EffectKind, status: u16, tagged: bool, after: Option<Duration>, body: &[u8]) -> Verdict {
    let retry = |reason| Verdict::Retry { reason, message: format!("HTTP {status}"), after };
    match status {
        200 => Verdict::Outcome(
            answer(kind, tagged, body)
                .unwrap_or_else(|message| failed_outcome("endpoint.invalid-answer", message)),
        ),
        202 => Verdict::Accepted,
        409 => {
            Verdict::Retry { reason: "endpoint.version-mismatch", message: "HTTP 409".into(), after: None }
        }
        429 => retry("endpoint.busy"),
        503 => retry("endpoint.unavailable"),
        500.. => Verdict::Lost { reason: "endpoint.failed", message: format!("HTTP {status}") },
        _ => failed("endpoint.rejected", rejection(status, body)),
    }
}

/// The outcome in a 200.
fn answer(kind: EffectKind, tagged: bool, body: &[u8]) -> Result<Outcome, String> {
    let value = parse(body).map_err(|_| "The endpoint's answer is not JSON".to_owned())?;
    if tagged {
        return outcome(value);
    }
    let value = match kind {
        EffectKind::Tool => json!({ "kind": "completed", "output": value }),
        EffectKind::Hook => return Err("A hook's answer must carry Nylorun-Outcome".to_owned()),
        _ => value,
    };
    Ok(Outcome { value: Arc::new(value), state_patch: None })
}

/// Reads `{value, statePatch?}`.
///
/// # Errors
/// In words, when it is not an outcome.
pub fn outcome(sent: Json) -> Result<Outcome, String> {
    let Json::Object(mut map) = sent else { return Err("An outcome is an object".to_owned()) };
    // A JavaScript endpoint whose function returns nothing sends no value.
    let value = map.shift_remove("value").unwrap_or(Json::Null);
    let state_patch = match map.shift_remove("statePatch") {
        None => None,
        Some(Json::Object(patch)) => Some(Arc::new(patch)),
        Some(_) => return Err("statePatch must be an object".to_owned()),
    };
    if let Some(key) = map.keys().next() {
        return Err(format!("An outcome has no member {key:?}"));
    }
    Ok(Outcome { value: Arc::new(value), state_patch })
}

fn failed(code: &str, message: String) -> Verdict {
    Verdict::Outcome(failed_outcome(code, message))
}

/// A failed outcome of an Action.
#[must_use]
pub fn failed_outcome(code: &str, message: String) -> Outcome {
    Outcome {
        value: Arc::new(json!({ "kind": "failed", "code": code, "message": message })),
        state_patch: None,
    }
}

fn rejection(status: u16, body: &[u8]) -> String {
    let text = match parse(body) {
        Ok(value) => value.get("message").and_then(Json::as_str).map(str::to_owned),
        Err(_) => Some(String::from_utf8_lossy(body).chars().take(MESSAGE_CHARS).collect()),
    };
    match text.filter(|text| !text.trim().is_empty()) {
        Some(text) => text,
        None => format!("The endpoint answered HTTP {status}"),
    }
}

/// Applies the acceptance rule to a tool's outcome: only a result is checked against the stored output schema, its
/// `output` when it is wrapped, else the value itself.
#[must_use]
pub fn accepted(
    outcome: Outcome,
    members: &JsonMap,
    check: impl Fn(&Json, &Json) -> Result<(), String>,
) -> Outcome {
    let Some(schema) = members.get("outputSchema") else { return outcome };
    let checked = match outcome.value.get("kind").and_then(Json::as_str) {
        Some("completed") => outcome.value.get("output").cloned().unwrap_or(Json::Null),
        Some("failed" | "denied" | "interaction-required" | "deferred") => return outcome,
        _ => outcome.value.as_ref().clone(),
    };
    match check(schema, &checked) {
        Ok(()) => outcome,
        Err(message) => failed_outcome("tool.invalid-output", message),
    }
}
