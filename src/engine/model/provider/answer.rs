//! From the end of a stream to a candidate (spec: engine, sections 3.7 and 9.2).

use genai::chat::{ContentPart, MessageContent, StopReason, StreamEnd, Usage};
use nylorun_actors::model::Json;
use nylorun_actors::model::json::{JsonMap, parse};
use rand::Rng;
use serde_json::json;

use super::tap::{FrameTap, PartialCall};
use super::target::{Protocol, Target};
use crate::engine::model::call::{Failure, FailureCode};

/// The candidate of a finished stream.
///
/// # Errors
/// `content_policy` when the provider withheld the answer, `context_overflow` when it took more than the window holds,
/// `transient` when the stream ended unfinished, `invalid_output` when JSON was asked for and none came.
pub(super) fn candidate(
    end: StreamEnd,
    tap: &FrameTap,
    target: &Target,
    wants_json: bool,
) -> Result<Json, Failure> {
    let StreamEnd {
        captured_usage, captured_stop_reason, captured_content, captured_reasoning_content, ..
    } = end;
    let reason = stopped(captured_stop_reason.as_ref(), target)?;
    if let Some(tokens) = captured_usage.as_ref().and_then(|usage| usage.prompt_tokens)
        && u64::try_from(tokens).is_ok_and(|tokens| tokens > target.context_window)
    {
        let window = target.context_window;
        let message = format!("the prompt is {tokens} tokens long and the model's window holds {window}");
        return Err(Failure::new(FailureCode::ContextOverflow, message));
    }
    let mut output = blocks(captured_content.unwrap_or_default(), captured_reasoning_content, target);
    output.extend(tap.calls().into_iter().map(openai_call));
    unique_ids(&mut output, target);
    let calls = output.iter().any(|block| block["type"] == "tool-call");
    if wants_json && !calls {
        output = vec![json!({"type": "json", "value": json_answer(&output)?})];
    }
    let mut candidate = JsonMap::new();
    candidate.insert("output".into(), Json::Array(output));
    candidate.insert("finishReason".into(), json!(if calls { "tool-calls" } else { reason }));
    if let Some(usage) = captured_usage.as_ref().and_then(usage_json) {
        candidate.insert("usage".into(), usage);
    }
    let extras = json!({
        "producer": target.producer(), "contextWindow": target.context_window, "maxOutputTokens": target.max_output,
    });
    let resolved = tap.model().unwrap_or_else(|| target.model.clone());
    candidate.insert("evidence".into(), json!({"resolvedModel": resolved, "extras": extras}));
    Ok(Json::Object(candidate))
}

fn stopped(reason: Option<&StopReason>, target: &Target) -> Result<&'static str, Failure> {
    match reason {
        Some(StopReason::MaxTokens(_)) => Ok("length"),
        Some(StopReason::ContentFilter(raw)) => {
            let message = format!("provider {} withheld the answer ({raw})", target.provider);
            Err(Failure::new(FailureCode::ContentPolicy, message))
        }
        Some(StopReason::Other(raw))
            if ["error", "network_error", "MALFORMED_FUNCTION_CALL"].contains(&raw.as_str()) =>
        {
            let message = format!("provider {} broke off its answer ({raw})", target.provider);
            Err(Failure::new(FailureCode::Transient, message))
        }
        // Google's stream has no closing frame: without a reason it was cut.
        None if target.protocol == Protocol::Google => Err(cut(target)),
        _ => Ok("stop"),
    }
}

/// The failure of a stream that ended before the answer did.
pub(super) fn cut(target: &Target) -> Failure {
    let message = format!("the answer of provider {} ended before it was complete", target.provider);
    Failure::new(FailureCode::Transient, message)
}

fn blocks(content: MessageContent, reasoning: Option<String>, target: &Target) -> Vec<Json> {
    let signed = |signature: &str| json!({"pi": {"provider": target.provider, "model": target.model, "signature": signature}});
    let of_calls: Vec<String> = content
        .tool_calls()
        .into_iter()
        .filter_map(|call| call.thought_signatures.clone())
        .flatten()
        .collect();
    let google = target.protocol == Protocol::Google;
    let mut output = Vec::new();
    let mut pending: Option<String> = None;
    let mut reasoned = false;
    for part in content {
        match part {
            // A call of Google's carries its own signature.
            ContentPart::ThoughtSignature(signature) if google && of_calls.contains(&signature) => {}
            ContentPart::ThoughtSignature(signature) if google => {
                let metadata = signed(&signature);
                output.push(json!({"type": "reasoning", "text": "", "providerMetadata": metadata}));
            }
            ContentPart::ThoughtSignature(signature) => pending = Some(signature),
            ContentPart::ReasoningContent(text) => {
                reasoned = true;
                let mut block = json!({"type": "reasoning", "text": text});
                if let Some(signature) = pending.take() {
                    block["providerMetadata"] = signed(&signature);
                }
                output.push(block);
            }
            ContentPart::Custom(part) if part.data["type"] == "redacted_thinking" => {
                let mut metadata = signed(part.data["data"].as_str().unwrap_or_default());
                metadata["pi"]["redacted"] = json!(true);
                output.push(json!({"type": "reasoning", "text": "", "providerMetadata": metadata}));
            }
            ContentPart::Text(text) => output.push(json!({"type": "text", "text": text})),
            ContentPart::ToolCall(call) => {
                let mut block = match call.fn_arguments {
                    Json::String(text) => call_block(call.call_id, call.fn_name, &text),
                    Json::Object(args) => {
                        json!({"type": "tool-call", "id": call.call_id, "name": call.fn_name, "args": args})
                    }
                    _ => call_block(call.call_id, call.fn_name, ""),
                };
                let signature = call.thought_signatures.and_then(|list| list.into_iter().next());
                if let Some(signature) = signature.filter(|_| google) {
                    block["providerMetadata"] = signed(&signature);
                }
                output.push(block);
            }
            _ => {}
        }
    }
    if let Some(text) = reasoning.filter(|text| !reasoned && !text.is_empty()) {
        let mut block = json!({"type": "reasoning", "text": text});
        if target.protocol == Protocol::OpenAi {
            // Unsigned: such providers want it back while the turn lasts, and not later.
            let pi = json!({"provider": target.provider, "model": target.model, "replay": "turn"});
            block["providerMetadata"] = json!({ "pi": pi });
        }
        output.insert(0, block);
    }
    output
}

fn openai_call(call: PartialCall) -> Json {
    call_block(call.id, call.name, &call.args)
}

/// A call whose arguments came as text. Text that is no object stays beside empty arguments, so that the tool's schema
/// refuses the call and the model can try again.
fn call_block(id: String, name: String, args: &str) -> Json {
    let mut block = json!({"type": "tool-call", "id": id, "name": name});
    match parse(args.as_bytes()) {
        Ok(args @ Json::Object(_)) => block["args"] = args,
        _ => {
            block["args"] = json!({});
            if !args.trim().is_empty() {
                block["raw"] = json!(args);
            }
        }
    }
    block
}

/// Gives calls an id of their own where the provider gave none. Google's come numbered by the library (`call#name#1`),
/// which is not unique beyond the answer; the form is kept because the library leaves such ids out when it sends them.
fn unique_ids(output: &mut [Json], target: &Target) {
    for block in output.iter_mut().filter(|block| block["type"] == "tool-call") {
        let id = block["id"].as_str().unwrap_or_default();
        if target.protocol == Protocol::Google && (id.is_empty() || id.starts_with("call#")) {
            let number: u32 = rand::rng().random();
            let name = block["name"].as_str().unwrap_or_default();
            block["id"] = json!(format!("call#{name}#{number}"));
        } else if id.is_empty() {
            block["id"] = json!(format!("call_{}", uuid::Uuid::new_v4().simple()));
        }
    }
}

/// Usage as candidates have it: `inputTokens` without what was read from or written to a cache, which is counted apart.
fn usage_json(usage: &Usage) -> Option<Json> {
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok());
    let details = usage.prompt_tokens_details.as_ref();
    let cached = count(details.and_then(|d| d.cached_tokens)).unwrap_or(0);
    let written = count(details.and_then(|d| d.cache_creation_tokens)).unwrap_or(0);
    let thought =
        count(usage.completion_tokens_details.as_ref().and_then(|d| d.reasoning_tokens)).unwrap_or(0);
    let prompt = count(usage.prompt_tokens)?;
    let written_out = count(usage.completion_tokens).unwrap_or(0);
    let mut out = json!({
        "inputTokens": prompt.saturating_sub(cached).saturating_sub(written),
        "outputTokens": written_out,
        "totalTokens": count(usage.total_tokens).unwrap_or(prompt.saturating_add(written_out)),
    });
    for (key, tokens) in
        [("cachedTokens", cached), ("cacheWriteTokens", written), ("reasoningTokens", thought)]
    {
        if tokens > 0 {
            out[key] = json!(tokens);
        }
    }
    Some(out)
}

/// The JSON of an answer: the whole text, what is inside a code fence, or from the first bracket to the last.
fn json_answer(output: &[Json]) -> Result<Json, Failure> {
    let text: String = output
        .iter()
        .filter(|block| block["type"] == "text")
        .filter_map(|block| block["text"].as_str())
        .collect();
    let text = text.trim();
    let fenced = text.split_once("```").and_then(|(_, rest)| {
        let (language, body) = rest.split_once('\n')?;
        let plain_fence = language.trim().chars().all(|c| c.is_ascii_alphanumeric());
        plain_fence.then(|| body.rsplit_once("```").map_or(body, |(body, _)| body))
    });
    let bracketed =
        text.find(['{', '[']).zip(text.rfind(['}', ']'])).and_then(|(from, to)| text.get(from..=to));
    [Some(text), fenced, bracketed]
        .into_iter()
        .flatten()
        .find_map(|text| parse(text.trim().as_bytes()).ok())
        .ok_or_else(|| Failure::new(FailureCode::InvalidOutput, "the model's final answer is not JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Option<Json> {
        json_answer(&[json!({"type": "text", "text": text})]).ok()
    }

    #[test]
    fn json_is_found_bare_fenced_or_between_words() {
        let value = Some(json!({"a": 1}));
        for text in [
            "{\"a\":1}",
            "  {\"a\":1}\n",
            "```json\n{\"a\":1}\n```",
            "```\n{\"a\":1}\n```",
            "Here it is:\n```json\n{\"a\":1}\n```\nDone.",
            "The answer is {\"a\":1}.",
            "```json\n{\"a\":1}",
        ] {
            assert_eq!(answer(text), value, "{text}");
        }
        assert_eq!(answer("\"just a string\""), Some(json!("just a string")));
        assert_eq!(answer("no json here"), None);
        assert_eq!(answer(""), None);
        assert_eq!(answer("} {"), None);
    }

    #[test]
    fn arguments_that_are_no_object_stay_readable_beside_empty_ones() {
        let block = |args: &str| call_block("i".into(), "n".into(), args);
        assert_eq!(block("{\"a\":1}")["args"], json!({"a": 1}));
        assert_eq!(block(""), json!({"type": "tool-call", "id": "i", "name": "n", "args": {}}));
        assert_eq!(block("{\"a\":")["raw"], "{\"a\":");
        assert_eq!(block("[1]")["args"], json!({}));
    }

    #[test]
    fn input_tokens_leave_out_what_a_cache_held() {
        let usage: Usage = serde_json::from_value(json!({
            "prompt_tokens": 100, "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_creation_tokens": 10},
            "completion_tokens_details": {"reasoning_tokens": 3},
        }))
        .unwrap();
        assert_eq!(
            usage_json(&usage),
            Some(json!({"inputTokens": 30, "outputTokens": 7, "totalTokens": 107, "cachedTokens": 60,
                "cacheWriteTokens": 10, "reasoningTokens": 3}))
        );
        assert_eq!(usage_json(&Usage::default()), None);
    }
}
