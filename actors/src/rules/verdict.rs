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

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, tagged: bool, body: &[u8]) -> Answered {
        Answered::Response { status, tagged, retry_after: None, body: body.to_vec() }
    }

    fn outcome_of(kind: EffectKind, answered: Answered) -> Json {
        match verdict(kind, answered) {
            Verdict::Outcome(outcome) => outcome.value.as_ref().clone(),
            other => panic!("{other:?}"),
        }
    }

    fn code_of(kind: EffectKind, answered: Answered) -> String {
        let value = outcome_of(kind, answered);
        assert_eq!(value["kind"], "failed");
        value["code"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_200_with_the_outcome_header_is_recorded_as_it_is() {
        let body = br#"{"value":{"kind":"denied","reason":"no"},"statePatch":{"a":1}}"#;
        let Verdict::Outcome(outcome) = verdict(EffectKind::Tool, response(200, true, body)) else {
            panic!()
        };
        assert_eq!(*outcome.value, json!({"kind": "denied", "reason": "no"}));
        assert_eq!(outcome.state_patch.unwrap()["a"], 1);
        let nothing = outcome_of(EffectKind::Fn, response(200, true, b"{}"));
        assert_eq!(nothing, Json::Null, "a function that returns nothing sends no value");
    }

    #[test]
    fn a_200_without_the_header_is_a_tools_output_or_a_functions_value_and_no_answer_of_a_hook() {
        let plain = || response(200, false, br#"{"n":1}"#);
        assert_eq!(outcome_of(EffectKind::Tool, plain()), json!({"kind": "completed", "output": {"n": 1}}));
        assert_eq!(outcome_of(EffectKind::Fn, plain()), json!({"n": 1}));
        assert_eq!(outcome_of(EffectKind::Verify, plain()), json!({"n": 1}));
        assert_eq!(code_of(EffectKind::Hook, plain()), "endpoint.invalid-answer");
    }

    #[test]
    fn a_200_that_is_no_json_or_no_outcome_is_a_failed_outcome() {
        for (tagged, body) in [
            (false, &b"<html>"[..]),
            (false, b""),
            (true, b"[]"),
            (true, b"{\"value\":1,\"more\":1}"),
            (true, b"{\"value\":1,\"statePatch\":[]}"),
            (true, b"null"),
        ] {
            assert_eq!(code_of(EffectKind::Tool, response(200, tagged, body)), "endpoint.invalid-answer");
        }
    }

    #[test]
    fn statuses_mean_what_the_table_says() {
        assert_eq!(verdict(EffectKind::Tool, response(202, false, b"")), Verdict::Accepted);
        for (status, reason) in
            [(409, "endpoint.version-mismatch"), (429, "endpoint.busy"), (503, "endpoint.unavailable")]
        {
            let Verdict::Retry { reason: said, after: None, .. } =
                verdict(EffectKind::Tool, response(status, false, b"{}"))
            else {
                panic!("{status}")
            };
            assert_eq!(said, reason);
        }
        for status in [500, 501, 502, 504, 599] {
            let Verdict::Lost { reason, .. } = verdict(EffectKind::Tool, response(status, false, b"")) else {
                panic!("{status}")
            };
            assert_eq!(reason, "endpoint.failed");
        }
        for status in [201, 204, 206, 301, 302, 304, 400, 401, 403, 404, 405, 422, 499] {
            assert_eq!(
                code_of(EffectKind::Tool, response(status, true, b"")),
                "endpoint.rejected",
                "{status}"
            );
        }
    }

    #[test]
    fn retry_after_counts_for_429_and_503_alone() {
        let asks = |status| {
            let after = Some(Duration::from_secs(7));
            verdict(
                EffectKind::Tool,
                Answered::Response { status, tagged: false, retry_after: after, body: vec![] },
            )
        };
        for (status, expected) in [(429, Some(7)), (503, Some(7)), (409, None)] {
            let Verdict::Retry { after, .. } = asks(status) else { panic!("{status}") };
            assert_eq!(after.map(|a| a.as_secs()), expected, "{status}");
        }
    }

    #[test]
    fn what_was_not_sent_is_tried_again_and_what_was_sent_without_an_answer_is_lost() {
        let words = || "words".to_owned();
        let not_sent = verdict(EffectKind::Tool, Answered::NotSent { code: "CONNECT", message: words() });
        assert!(matches!(not_sent, Verdict::Retry { reason: "endpoint.unreachable", after: None, .. }));
        let lost = verdict(EffectKind::Hook, Answered::Lost { code: "ABORTED", message: words() });
        assert!(matches!(lost, Verdict::Lost { reason: "endpoint.no-answer", .. }));
        let large = Answered::TooLarge { status: 200 };
        assert_eq!(code_of(EffectKind::Tool, large), "endpoint.answer-too-large");
    }

    #[test]
    fn a_rejection_says_the_message_of_its_json_or_the_first_500_characters_of_anything_else() {
        let message = |body: &[u8]| {
            outcome_of(EffectKind::Tool, response(404, false, body))["message"].as_str().unwrap().to_owned()
        };
        assert_eq!(message(br#"{"code":"x","message":"no such agent"}"#), "no such agent");
        assert_eq!(message(br#"{"code":"x"}"#), "The endpoint answered HTTP 404");
        assert_eq!(message(b""), "The endpoint answered HTTP 404");
        assert_eq!(message("é".repeat(600).as_bytes()), "é".repeat(500));
    }

    #[test]
    fn only_a_result_is_held_against_the_output_schema() {
        let members = json!({"outputSchema": {"type": "number"}}).as_object().unwrap().clone();
        let check =
            |_: &Json, value: &Json| if value.is_number() { Ok(()) } else { Err("no number".to_owned()) };
        let with = |value: Json| Outcome { value: Arc::new(value), state_patch: None };
        for passes in [
            json!({"kind": "completed", "output": 1}),
            json!(2),
            json!({"kind": "failed", "code": "x", "message": "y"}),
            json!({"kind": "denied", "reason": "x"}),
            json!({"kind": "interaction-required", "interaction": {}}),
            json!({"kind": "deferred", "token": "t"}),
        ] {
            assert_eq!(accepted(with(passes.clone()), &members, check), with(passes));
        }
        for fails in
            [json!({"kind": "completed", "output": "1"}), json!({"kind": "completed"}), json!("x"), json!({})]
        {
            assert_eq!(accepted(with(fails), &members, check).value["code"], "tool.invalid-output");
        }
        let free = JsonMap::new();
        assert_eq!(accepted(with(json!("x")), &free, check), with(json!("x")), "no schema, no check");
    }
}
