//! What an effect's value says to readers of the record (spec: harness-api, section 11.4).

use serde_json::json;

use super::effect::{AgentRef, EffectKind};
use super::event::EventKind;
use super::json::{Json, JsonMap};

/// Failure codes of a model call (spec: engine, section 9.1).
pub const MODEL_FAILURES: &[&str] = &[
    "context_overflow",
    "rate_limited",
    "overloaded",
    "timeout",
    "transient",
    "content_policy",
    "auth",
    "invalid_request",
    "invalid_output",
    "budget_exhausted",
];

/// What an event needs to know of its effect beside the value.
#[derive(Clone, Debug)]
pub struct EffectFacts {
    /// What the effect does.
    pub kind: EffectKind,
    /// Its context.
    pub context: JsonMap,
    /// Capability of a tool.
    pub capability_id: Option<String>,
    /// Tool name.
    pub tool_name: Option<String>,
    /// The sub-agent.
    pub agent: Option<AgentRef>,
}

/// Tokens and costs that a model's answer reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Provider of the answer.
    pub provider: Option<String>,
    /// Model of the answer.
    pub model: Option<String>,
    /// input, output, total, cached, cache write, reasoning.
    pub tokens: [i64; 6],
    /// US dollars.
    pub cost_usd: f64,
    /// Whether the answer reported anything.
    pub reported: bool,
}

/// Whether a model's value is a failure outcome: a known code, a string message, a boolean `retryable`.
#[must_use]
pub fn is_model_failure(value: &Json) -> bool {
    value.get("kind").and_then(Json::as_str) == Some("failed")
        && value.get("code").and_then(Json::as_str).is_some_and(|c| MODEL_FAILURES.contains(&c))
        && value.get("message").is_some_and(Json::is_string)
        && value.get("retryable").is_some_and(Json::is_boolean)
}

/// The event that recording a value writes, if any.
#[must_use]
pub fn event_of(facts: &EffectFacts, value: &Json) -> Option<(EventKind, JsonMap)> {
    let mut payload = match facts.kind {
        EffectKind::Model => model_event(facts, value)?,
        EffectKind::Tool => (EventKind::ToolCompleted, tool_payload(facts, value)?),
        _ => return None,
    };
    if let Some(agent) = &facts.agent {
        payload.1.insert("agent".into(), json!(agent));
    }
    Some(payload)
}

fn model_event(facts: &EffectFacts, value: &Json) -> Option<(EventKind, JsonMap)> {
    let invocation = facts.context.get("invocationId").filter(|v| v.is_string());
    let mut payload = JsonMap::new();
    if let Some(id) = invocation {
        payload.insert("invocationId".into(), id.clone());
    }
    if is_model_failure(value) {
        for key in ["code", "message", "retryable"] {
            payload.insert(key.into(), value[key].clone());
        }
        return Some((EventKind::ModelFailed, payload));
    }
    if let Some(compaction) = facts.context.get("compaction") {
        if compaction.get("partial").is_some() {
            return None;
        }
        let summary = text_of(value);
        let kept = compaction.get("keptTokens").and_then(Json::as_i64).unwrap_or(0);
        // Four characters a token, as everywhere in the engine.
        let units = i64::try_from(summary.encode_utf16().count()).unwrap_or(i64::MAX);
        payload.insert("trigger".into(), compaction.get("trigger").cloned().unwrap_or(Json::Null));
        payload.insert("tokensBefore".into(), compaction.get("tokensBefore").cloned().unwrap_or(json!(0)));
        payload.insert("tokensAfter".into(), json!(kept + (units + 3) / 4));
        return Some((EventKind::ContextCompacted, payload));
    }
    invocation?;
    let text = text_of(value);
    let calls = tool_calls(value);
    if text.is_empty() && calls.is_empty() {
        return None;
    }
    payload.insert("text".into(), Json::String(text));
    if let Some(producer) = value.pointer("/evidence/extras/producer")
        && let (Some(Json::String(provider)), Some(Json::String(model))) =
            (producer.get("provider"), producer.get("model"))
    {
        payload.insert("model".into(), json!({ "provider": provider, "model": model }));
    }
    for key in ["finishReason", "usage"] {
        if let Some(given) = value.get(key) {
            payload.insert(key.into(), given.clone());
        }
    }
    payload.insert("toolCalls".into(), Json::Array(calls));
    Some((EventKind::MessageAssistant, payload))
}

fn tool_payload(facts: &EffectFacts, value: &Json) -> Option<JsonMap> {
    let call = facts.context.get("callId").filter(|v| v.is_string())?;
    let invocation = facts.context.get("invocationId").filter(|v| v.is_string())?;
    let mut payload = JsonMap::new();
    payload.insert("callId".into(), call.clone());
    payload.insert("invocationId".into(), invocation.clone());
    payload.insert("capabilityId".into(), json!(facts.capability_id.as_deref().unwrap_or_default()));
    payload.insert("toolName".into(), json!(facts.tool_name.as_deref().unwrap_or_default()));
    match value.get("kind").and_then(Json::as_str) {
        Some("failed") => {
            let code = value.get("code").and_then(Json::as_str).unwrap_or("tool.failed");
            let message = value.get("message").and_then(Json::as_str).unwrap_or_default();
            payload.insert("error".into(), json!({ "code": code, "message": message }));
        }
        Some("completed") => {
            payload.insert("output".into(), value.get("output").cloned().unwrap_or(Json::Null));
        }
        _ => {
            payload.insert("output".into(), value.clone());
        }
    }
    Some(payload)
}

fn blocks(value: &Json) -> &[Json] {
    value.get("output").and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

fn text_of(value: &Json) -> String {
    if let Json::String(text) = value {
        return text.clone();
    }
    blocks(value)
        .iter()
        .filter(|b| b.get("type").and_then(Json::as_str) == Some("text"))
        .filter_map(|b| b.get("text").and_then(Json::as_str))
        .collect()
}

fn tool_calls(value: &Json) -> Vec<Json> {
    blocks(value)
        .iter()
        .filter(|b| b.get("type").and_then(Json::as_str) == Some("tool-call"))
        .map(|b| {
            json!({
                "callId": b.get("id").cloned().unwrap_or(Json::Null),
                "name": b.get("name").cloned().unwrap_or(Json::Null),
                "input": b.get("args").cloned().unwrap_or(Json::Null),
            })
        })
        .collect()
}

/// What a model's answer reports of its cost. Negative and odd figures count as zero.
#[must_use]
pub fn usage_of(value: &Json) -> Usage {
    let mut usage = Usage::default();
    if let Some(producer) = value.pointer("/evidence/extras/producer") {
        usage.provider = producer.get("provider").and_then(Json::as_str).map(str::to_owned);
        usage.model = producer.get("model").and_then(Json::as_str).map(str::to_owned);
    }
    let Some(given) = value.get("usage").and_then(Json::as_object) else { return usage };
    let count = |key: &str| given.get(key).and_then(Json::as_i64).unwrap_or(0).max(0);
    usage.reported = true;
    usage.tokens = [
        count("inputTokens"),
        count("outputTokens"),
        count("totalTokens"),
        count("cachedTokens"),
        count("cacheWriteTokens"),
        count("reasoningTokens"),
    ];
    if usage.tokens[2] == 0 {
        usage.tokens[2] = usage.tokens[0] + usage.tokens[1];
    }
    let cost = given.get("costUsd").and_then(Json::as_f64).unwrap_or(0.0);
    usage.cost_usd = if cost.is_finite() { cost.max(0.0) } else { 0.0 };
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(context: Json) -> EffectFacts {
        EffectFacts {
            kind: EffectKind::Model,
            context: context.as_object().unwrap().clone(),
            capability_id: None,
            tool_name: None,
            agent: None,
        }
    }

    #[test]
    fn a_models_text_and_calls_make_one_message() {
        let value = json!({"output": [{"type": "text", "text": "a"}, {"type": "reasoning", "text": "r"},
            {"type": "text", "text": "b"}, {"type": "tool-call", "id": "c1", "name": "t", "args": {"x": 1}}],
            "finishReason": "tool-calls", "evidence": {"extras": {"producer": {"provider": "p", "model": "m"}}}});
        let (kind, payload) = event_of(&model(json!({"invocationId": "i"})), &value).unwrap();
        assert_eq!(kind, EventKind::MessageAssistant);
        assert_eq!(
            Json::Object(payload),
            json!({"invocationId": "i", "text": "ab", "finishReason": "tool-calls", "model": {"provider": "p", "model": "m"},
                "toolCalls": [{"callId": "c1", "name": "t", "input": {"x": 1}}]})
        );
    }

    #[test]
    fn nothing_said_or_no_invocation_makes_no_message() {
        assert!(event_of(&model(json!({"invocationId": "i"})), &json!({"output": []})).is_none());
        assert!(event_of(&model(json!({})), &json!("text")).is_none());
        assert!(event_of(&model(json!({"invocationId": "i"})), &json!("text")).is_some());
    }

    #[test]
    fn a_failure_needs_a_known_code_a_message_and_retryable() {
        let good = json!({"kind": "failed", "code": "overloaded", "message": "m", "retryable": true});
        assert!(is_model_failure(&good));
        for (key, bad) in [("code", json!("odd")), ("message", json!(1)), ("retryable", json!("no"))] {
            let mut value = good.clone();
            value[key] = bad;
            assert!(!is_model_failure(&value), "{key}");
        }
        let (kind, payload) = event_of(&model(json!({"invocationId": "i"})), &good).unwrap();
        assert_eq!(kind, EventKind::ModelFailed);
        assert_eq!(payload["retryable"], true);
    }

    #[test]
    fn only_the_last_summary_call_is_a_compaction_and_its_size_rounds_up() {
        let facts = model(
            json!({"invocationId": "i", "compaction": {"trigger": "overflow", "tokensBefore": 9, "keptTokens": 2}}),
        );
        let (kind, payload) = event_of(&facts, &json!("12345")).unwrap();
        assert_eq!(kind, EventKind::ContextCompacted);
        assert_eq!(payload["tokensAfter"], 4);
        let partial = model(json!({"invocationId": "i", "compaction": {"partial": true}}));
        assert!(event_of(&partial, &json!("12345")).is_none());
    }

    #[test]
    fn a_tools_value_is_an_output_or_an_error() {
        let facts = EffectFacts {
            kind: EffectKind::Tool,
            context: json!({"callId": "c", "invocationId": "i"}).as_object().unwrap().clone(),
            capability_id: Some("cap".into()),
            tool_name: Some("t".into()),
            agent: None,
        };
        let get = |value: Json| Json::Object(event_of(&facts, &value).unwrap().1);
        assert_eq!(get(json!({"kind": "failed"}))["error"], json!({"code": "tool.failed", "message": ""}));
        assert_eq!(get(json!({"kind": "completed", "output": 1}))["output"], 1);
        assert_eq!(get(json!({"kind": "denied", "reason": "r"}))["output"]["reason"], "r");
    }

    #[test]
    fn odd_usage_counts_as_zero() {
        let usage = usage_of(&json!({"usage": {"inputTokens": -3, "outputTokens": 4, "costUsd": -1.0}}));
        assert_eq!(usage.tokens, [0, 4, 4, 0, 0, 0]);
        assert!(usage.reported && usage.cost_usd == 0.0);
    }
}
