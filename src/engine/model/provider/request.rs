//! From a model call to what the provider library sends (spec: engine, section 9.2).

use std::sync::Arc;

use genai::adapter::AdapterKind;
use genai::chat::{
    CacheControl, ChatMessage, ChatOptions, ChatRequest, ContentPart, JsonSpec, ReasoningEffort, Tool,
    ToolCall, ToolResponse,
};
use nylorun_actors::model::Json;
use nylorun_actors::model::json::{JsonMap, encode, well_formed};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::config::ProviderLimits;
use super::tap::FrameTap;
use super::target::{Protocol, Target};
use crate::engine::model::call::{Failure, FailureCode, ModelCall};
use crate::engine::model::item::{ItemView, PartView};

/// Members of `model.config` that would change more than sampling.
const NOT_SAMPLING: &[&str] = &[
    "model",
    "messages",
    "contents",
    "input",
    "system",
    "systemInstruction",
    "instructions",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "toolConfig",
    "response_format",
    "output_config",
];

/// The conversation of a call.
///
/// # Errors
/// `invalid_request` for what cannot be sent: media, an item that is none.
pub(super) fn conversation(call: &ModelCall, target: &Target) -> Result<ChatRequest, Failure> {
    let mut system: Vec<String> = Vec::new();
    let mut messages: Vec<ChatMessage> = Vec::new();
    let mut results: Vec<ContentPart> = Vec::new();
    for item in call.prompt.iter() {
        let Some(view) = ItemView::read(item) else {
            return Err(Failure::new(
                FailureCode::InvalidRequest,
                "the prompt holds an item of an unknown kind",
            ));
        };
        if !matches!(view, ItemView::ToolResult { .. }) && !results.is_empty() {
            messages.push(ChatMessage::tool(std::mem::take(&mut results)));
        }
        match view {
            ItemView::Instructions { content } => system.extend(content.iter().map(|p| plain(&p.to_text()))),
            ItemView::User { content } | ItemView::Context { content } => {
                let parts = content.iter().map(user_part).collect::<Result<Vec<_>, _>>()?;
                if !parts.is_empty() {
                    messages.push(ChatMessage::user(parts));
                }
            }
            ItemView::Assistant { content, producer } => {
                let own = producer.is_none_or(|producer| target.wrote(producer));
                let parts = assistant_parts(&content, own, target);
                if !parts.is_empty() {
                    messages.push(ChatMessage::assistant(parts));
                }
            }
            ItemView::ToolResult { call_id, tool_name, completed, content } => {
                let text = plain(&content.iter().map(PartView::to_text).collect::<Vec<_>>().join("\n"));
                results.push(tool_result(&wire_id(call_id, target), tool_name, completed, text, target));
            }
        }
    }
    if !results.is_empty() {
        messages.push(ChatMessage::tool(results));
    }
    if let Some(schema) = &call.output_schema {
        system.push(format!(
            "Give your final answer as one JSON value that fits this JSON Schema, without anything around it: {}",
            plain(&encode(schema.as_ref()))
        ));
    }
    let mut request = ChatRequest::from_messages(messages);
    if !system.is_empty() {
        request = request.with_system(system.join("\n"));
    }
    if !call.tools.is_empty() {
        request = request.with_tools(call.tools.iter().map(|tool| offered(tool)));
    }
    Ok(request)
}

fn user_part(part: &PartView<'_>) -> Result<ContentPart, Failure> {
    match part {
        PartView::Media { media_type, .. } => {
            let message = format!("the model cannot be shown a file of type {media_type}");
            Err(Failure::new(FailureCode::InvalidRequest, message))
        }
        other => Ok(ContentPart::from_text(plain(&other.to_text()))),
    }
}

/// Blocks of an assistant message; texts that follow each other become one. What a provider signed goes back only to
/// the model that signed it.
fn assistant_parts(content: &[PartView<'_>], own: bool, target: &Target) -> Vec<ContentPart> {
    let mut parts: Vec<ContentPart> = Vec::new();
    for part in content {
        match part {
            PartView::Reasoning { text, metadata } => {
                if let Some(pi) = metadata.and_then(|m| m.get("pi")).filter(|pi| own && target.wrote(pi)) {
                    parts.extend(reasoning_parts(text, pi, target));
                }
            }
            PartView::ToolCall { id, name, args, metadata } => {
                let pi = metadata.and_then(|m| m.get("pi")).filter(|pi| own && target.wrote(pi));
                let signature = pi.and_then(|pi| pi["signature"].as_str());
                parts.push(ContentPart::ToolCall(ToolCall {
                    call_id: wire_id(id, target),
                    fn_name: (*name).to_owned(),
                    fn_arguments: plain_json(args),
                    thought_signatures: signature.map(|signature| vec![signature.to_owned()]),
                }));
            }
            other => {
                let text = plain(&other.to_text());
                match parts.last_mut() {
                    Some(ContentPart::Text(before)) => before.push_str(&text),
                    _ if text.is_empty() => {}
                    _ => parts.push(ContentPart::Text(text)),
                }
            }
        }
    }
    parts
}

fn reasoning_parts(text: &str, pi: &Json, target: &Target) -> Vec<ContentPart> {
    let reasoning = || ContentPart::ReasoningContent(plain(text));
    let signature = pi["signature"].as_str();
    match (target.protocol, signature) {
        (Protocol::Anthropic, Some(data)) if pi["redacted"] == true => {
            vec![ContentPart::from_custom(json!({"type": "redacted_thinking", "data": data}), None)]
        }
        (Protocol::Anthropic, Some(signature)) => {
            vec![ContentPart::ThoughtSignature(signature.to_owned()), reasoning()]
        }
        (Protocol::Google, Some(signature)) => vec![ContentPart::ThoughtSignature(signature.to_owned())],
        (Protocol::OpenAi, _) => vec![reasoning()],
        _ => Vec::new(),
    }
}

fn tool_result(id: &str, name: &str, completed: bool, text: String, target: &Target) -> ContentPart {
    if target.protocol == Protocol::Anthropic && !completed {
        // The library has no error flag; a part of the provider's own form has.
        let data = json!({"type": "tool_result", "tool_use_id": id, "content": text, "is_error": true});
        return ContentPart::from_custom(data, None);
    }
    let mut response = ToolResponse::new(id, text);
    response.fn_name = Some(name.to_owned());
    ContentPart::ToolResponse(response)
}

fn offered(tool: &Json) -> Tool {
    let text = |key| tool.get(key).and_then(Json::as_str).map(plain);
    let mut out = Tool::new(text("name").unwrap_or_default());
    out.description = text("description");
    out.schema = tool.get("inputSchema").map(plain_json);
    out
}

/// Options of a call.
pub(super) fn options(
    call: &ModelCall,
    target: &Target,
    limits: &ProviderLimits,
    session_id: &str,
    schema: bool,
    tap: Arc<FrameTap>,
) -> ChatOptions {
    let mut options = ChatOptions::default()
        .with_capture_usage(target.settings.compat_bool("supportsUsageInStreaming").unwrap_or(true))
        .with_capture_content(true)
        .with_capture_reasoning_content(true)
        .with_capture_tool_calls(target.protocol != Protocol::OpenAi)
        .with_stream_header_timeout(limits.idle_timeout)
        .with_stream_read_timeout(limits.idle_timeout)
        .with_raw_frame_sink_arc(tap);
    let mut extra = JsonMap::new();
    if let Some(config) = call.model.as_ref().and_then(|choice| choice.config.as_ref()) {
        extra = sampling(config, &mut options);
    }
    let controls = call.controls.clone().unwrap_or_default();
    options.temperature = controls.temperature.or(options.temperature);
    let asked = controls.max_output_tokens.or(options.max_tokens).or(target.settings.max_tokens);
    let most = u32::try_from(target.max_output).unwrap_or(u32::MAX);
    // Anthropic wants a number; elsewhere a model's own limit is the better default.
    let needed = (target.protocol == Protocol::Anthropic).then_some(most);
    options.max_tokens = asked.map(|asked| asked.min(most)).or(needed);
    if let Some(schema) = call.output_schema.as_ref().filter(|_| schema) {
        options.response_format = Some(JsonSpec::new("answer", plain_json(schema)).into());
    }
    match target.protocol {
        Protocol::OpenAi => {
            if target.kind == AdapterKind::OpenAI && target.provider == "openai" {
                let key = hex::encode(&Sha256::digest(session_id.as_bytes())[..16]);
                options.prompt_cache_key = Some(key);
            }
            // The library reads an effort from names that end like one (`x-max`) and cuts it off. A budget keeps the
            // name and is not sent by this protocol.
            if options.reasoning_effort.is_none()
                && ReasoningEffort::from_model_name(&target.model).0.is_some()
            {
                options.reasoning_effort = Some(ReasoningEffort::Budget(0));
            }
            let field = target.settings.compat.as_ref().and_then(|c| c.get("maxTokensField")?.as_str());
            if let Some(field @ ("max_tokens" | "max_completion_tokens")) = field
                && let Some(tokens) = options.max_tokens.take()
            {
                extra.insert(field.to_owned(), json!(tokens));
            }
            extra.insert("model".to_owned(), json!(target.model));
        }
        Protocol::Anthropic => options.cache_control = Some(CacheControl::Ephemeral),
        Protocol::Google => {}
    }
    if !extra.is_empty() {
        options.extra_body = Some(Json::Object(extra));
    }
    options
}

/// Takes known sampling parameters into the options and gives back the others, for the provider to judge.
fn sampling(config: &JsonMap, options: &mut ChatOptions) -> JsonMap {
    let mut extra = JsonMap::new();
    for (key, value) in config {
        match (key.as_str(), value) {
            ("temperature", Json::Number(n)) => options.temperature = n.as_f64(),
            ("topP" | "top_p", Json::Number(n)) => options.top_p = n.as_f64(),
            ("seed", Json::Number(n)) if n.is_u64() => options.seed = n.as_u64(),
            ("maxOutputTokens" | "max_tokens", Json::Number(n)) => {
                options.max_tokens = n.as_u64().and_then(|n| u32::try_from(n).ok());
            }
            ("stop" | "stopSequences", Json::String(stop)) => options.stop_sequences = vec![stop.clone()],
            ("stop" | "stopSequences", Json::Array(stops)) => {
                options.stop_sequences = stops.iter().filter_map(|s| s.as_str().map(str::to_owned)).collect();
            }
            ("reasoningEffort" | "reasoning_effort", Json::String(effort)) => {
                options.reasoning_effort = ReasoningEffort::from_keyword(effort);
            }
            (key, _) if NOT_SAMPLING.contains(&key) => {}
            _ => {
                extra.insert(key.clone(), plain_json(value));
            }
        }
    }
    extra
}

/// A tool call id as the provider accepts it. Ids of other providers may be longer or have other characters; the same
/// id always gives the same one, so that results find their calls.
fn wire_id(id: &str, target: &Target) -> String {
    let word = |extra: &str| id.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c));
    let fits = match (target.protocol, target.kind) {
        (_, AdapterKind::Mistral) => id.len() == 9 && word(""),
        (Protocol::Anthropic, _) => !id.is_empty() && id.len() <= 64 && word("_-"),
        (Protocol::OpenAi, _) => !id.is_empty() && id.len() <= 40,
        (Protocol::Google, _) => true,
    };
    if fits {
        return id.to_owned();
    }
    let hash = hex::encode(Sha256::digest(id.as_bytes()));
    if target.kind == AdapterKind::Mistral { hash[..9].to_owned() } else { format!("call_{}", &hash[..32]) }
}

/// Text for a provider: a kept lone surrogate has no place in UTF-8 and becomes U+FFFD.
fn plain(text: &str) -> String {
    well_formed(text).into_owned()
}

fn plain_json(value: &Json) -> Json {
    match value {
        Json::String(text) => Json::String(plain(text)),
        Json::Array(list) => Json::Array(list.iter().map(plain_json).collect()),
        Json::Object(map) => Json::Object(map.iter().map(|(k, v)| (plain(k), plain_json(v))).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::model::item;
    use crate::engine::model::provider::ProviderConfig;

    fn target(provider: &str, model: &str) -> Target {
        let config = ProviderConfig {
            provider: provider.into(),
            model: model.into(),
            base_url: Some("http://127.0.0.1:1".into()),
            settings: super::super::ProviderSettings::default(),
            key: "k".into(),
            other_secrets: vec![],
        };
        Target::of(&config, &call(vec![])).unwrap()
    }

    fn call(prompt: Vec<Arc<Json>>) -> ModelCall {
        ModelCall {
            prompt: prompt.into(),
            tools: vec![],
            model: None,
            output_schema: None,
            execution_id: "s".into(),
            controls: None,
        }
    }

    #[test]
    fn kept_surrogates_become_replacement_characters() {
        let text = nylorun_actors::model::json::parse(br#"["a\ud800b", "\udbff\udffe"]"#).unwrap();
        assert_eq!(plain_json(&text), json!(["a\u{FFFD}b", "\u{10FFFE}"]));
    }

    #[test]
    fn results_that_follow_each_other_are_one_message_and_failed_ones_are_flagged() {
        let blocks = ["a", "b"].map(|id| json!({"type": "tool-call", "id": id, "name": "t", "args": {}}));
        let prompt = vec![
            item::user_text("hi"),
            item::assistant(blocks.to_vec(), None),
            item::tool_result("a", "t", "completed", "1"),
            item::tool_result("b", "t", "failed", "2"),
            item::user_text("next"),
        ];
        let request = conversation(&call(prompt), &target("anthropic", "claude-sonnet-4-5")).unwrap();
        assert_eq!(request.messages.len(), 4);
        let results = request.messages[2].content.parts();
        assert!(matches!(&results[0], ContentPart::ToolResponse(r) if r.content == "1"));
        assert!(matches!(&results[1], ContentPart::Custom(part) if part.data["is_error"] == true));
    }

    #[test]
    fn signed_reasoning_goes_back_only_to_the_model_that_signed_it() {
        let block = |model: &str| {
            let pi = json!({"provider": "anthropic", "model": model, "signature": "s"});
            json!({"type": "reasoning", "text": "r", "providerMetadata": {"pi": pi}})
        };
        let parts = |model: &str, producer: Option<&Json>| {
            let prompt = vec![item::assistant(vec![block(model), item::text_part("t")], producer)];
            let request = conversation(&call(prompt), &target("anthropic", "claude-sonnet-4-5")).unwrap();
            request.messages[0].content.parts().len()
        };
        assert_eq!(parts("claude-sonnet-4-5", None), 3);
        assert_eq!(parts("claude-opus-4-1", None), 1);
        assert_eq!(parts("claude-sonnet-4-5", Some(&json!({"provider": "openai", "model": "gpt-5"}))), 1);
    }

    #[test]
    fn ids_that_a_provider_would_refuse_are_replaced_alike_in_call_and_result() {
        let claude = target("anthropic", "claude-sonnet-4-5");
        assert_eq!(wire_id("toolu_1", &claude), "toolu_1");
        let odd = wire_id("call#x#1", &claude);
        assert_eq!(odd, wire_id("call#x#1", &claude));
        assert_ne!(odd, wire_id("call#x#2", &claude));
        assert!(odd.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
        assert_eq!(wire_id("abcdefghi", &target("mistral", "mistral-large-latest")), "abcdefghi");
        assert_eq!(wire_id("call_1", &target("mistral", "mistral-large-latest")).len(), 9);
        assert_eq!(wire_id(&"x".repeat(41), &target("openai", "gpt-4.1")).len(), 37);
    }

    #[test]
    fn media_is_refused_before_anything_is_sent() {
        let media = json!({"type": "media", "mediaType": "image/png", "reference": {}});
        let failure = conversation(&call(vec![item::user_parts(vec![media])]), &target("openai", "gpt-4.1"));
        assert_eq!(failure.unwrap_err().code, FailureCode::InvalidRequest);
    }

    #[test]
    fn a_config_sets_sampling_and_never_the_conversation() {
        let config = json!({"top_p": 0.5, "reasoningEffort": "low", "messages": [], "model": "x", "logit_bias": {"1": 2}});
        let mut call = call(vec![]);
        let model = crate::engine::model::call::ModelChoice {
            id: "openai/gpt-4.1".into(),
            config: config.as_object().cloned(),
        };
        call.model = Some(model);
        let tap = Arc::new(FrameTap::new(true));
        let options =
            options(&call, &target("openai", "gpt-4.1"), &ProviderLimits::default(), "s", false, tap);
        assert_eq!(options.top_p, Some(0.5));
        assert!(matches!(options.reasoning_effort, Some(ReasoningEffort::Low)));
        assert_eq!(options.extra_body, Some(json!({"logit_bias": {"1": 2}, "model": "gpt-4.1"})));
    }
}
