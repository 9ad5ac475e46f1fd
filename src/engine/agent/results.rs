//! Tool results: `{callId, toolName, kind: completed | denied | failed, ...}` (spec: engine, section 3.7).

use nylorun_actors::model::Json;
use nylorun_actors::model::json::encode;
use serde_json::json;

use super::input::closed;

/// A completed call.
#[must_use]
pub fn completed(call_id: &str, tool_name: &str, output: Json) -> Json {
    json!({"callId": call_id, "toolName": tool_name, "kind": "completed", "output": output})
}

/// A call that somebody did not allow.
#[must_use]
pub fn denied(call_id: &str, tool_name: &str, reason: &str) -> Json {
    json!({"callId": call_id, "toolName": tool_name, "kind": "denied", "reason": reason})
}

/// A call that failed. `details` is `{phase, issues}` of a schema check.
#[must_use]
pub fn failed(call_id: &str, tool_name: &str, code: &str, message: &str, details: Option<Json>) -> Json {
    let mut result =
        json!({"callId": call_id, "toolName": tool_name, "kind": "failed", "code": code, "message": message});
    if let Some(details) = details {
        result["details"] = details;
    }
    result
}

/// Call id and tool name of a result; empty when it has none.
#[must_use]
pub fn key(result: &Json) -> (&str, &str) {
    let text = |key| result.get(key).and_then(Json::as_str).unwrap_or("");
    (text("callId"), text("toolName"))
}

/// Whether a value is a tool result.
#[must_use]
pub fn is_result(value: &Json) -> bool {
    let Some(map) = value.as_object() else { return false };
    let text = |key: &str| map.get(key).is_some_and(Json::is_string);
    let shape = match map.get("kind").and_then(Json::as_str) {
        Some("completed") => {
            map.contains_key("output")
                && closed(map, &["callId", "toolName", "kind", "output", "files"]).is_ok()
        }
        Some("denied") => text("reason") && closed(map, &["callId", "toolName", "kind", "reason"]).is_ok(),
        Some("failed") => {
            text("code")
                && text("message")
                && closed(map, &["callId", "toolName", "kind", "code", "message", "details", "retryable"])
                    .is_ok()
        }
        _ => false,
    };
    shape && text("callId") && text("toolName")
}

/// Status of a result, and the text that the model reads of it: the JSON of an output, of `{kind, reason}`, or of
/// `{kind, code, message, retryable?, details?}`, members in this order.
#[must_use]
pub fn for_model(result: &Json) -> (&str, String) {
    let kind = result.get("kind").and_then(Json::as_str).unwrap_or("failed");
    let members: &[&str] = match kind {
        "completed" => return (kind, result.get("output").map_or_else(|| "null".to_owned(), encode)),
        "denied" => &["kind", "reason"],
        _ => &["kind", "code", "message", "retryable", "details"],
    };
    let members: Vec<_> = members
        .iter()
        .filter_map(|name| result.get(*name).map(|value| format!("\"{name}\":{}", encode(value))))
        .collect();
    (kind, format!("{{{}}}", members.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_reads_a_string_output_quoted_and_failures_in_a_fixed_order() {
        assert_eq!(for_model(&completed("c", "t", json!("ok"))), ("completed", "\"ok\"".to_owned()));
        assert_eq!(
            for_model(&denied("c", "t", "no")),
            ("denied", r#"{"kind":"denied","reason":"no"}"#.to_owned())
        );
        let mut failure = failed("c", "t", "x.y", "bad", Some(json!({"phase": "input", "issues": []})));
        failure["retryable"] = json!(true);
        assert_eq!(
            for_model(&failure).1,
            r#"{"kind":"failed","code":"x.y","message":"bad","retryable":true,"details":{"phase":"input","issues":[]}}"#
        );
    }

    #[test]
    fn results_are_closed_and_need_their_members() {
        for good in [completed("c", "t", Json::Null), denied("c", "t", ""), failed("c", "t", "a", "b", None)]
        {
            assert!(is_result(&good), "{good}");
            let mut more = good.clone();
            more["x"] = json!(1);
            assert!(!is_result(&more), "{more}");
        }
        assert!(!is_result(&json!({"callId": "c", "toolName": "t", "kind": "completed"})));
        assert!(!is_result(&json!({"callId": "c", "toolName": "t", "kind": "failed", "code": "a"})));
    }
}
