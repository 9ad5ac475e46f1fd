//! A model's answer, checked member by member (spec: engine, sections 3.7 and 4.2 point 7).

use nylorun_actors::model::Json;
use nylorun_actors::model::json::JsonMap;
use serde_json::json;

use super::errors::TurnFailure;
use super::input::closed;

const FINISH_REASONS: [&str; 5] = ["stop", "length", "tool-calls", "content-filter", "other"];
const TOKENS: [&str; 6] =
    ["inputTokens", "outputTokens", "totalTokens", "cachedTokens", "cacheWriteTokens", "reasoningTokens"];

/// The candidate of a model effect's value: `{output: [block], finishReason?, usage?, evidence?}`. A text stands for
/// one text block.
///
/// # Errors
/// `model.candidate-missing` when there is no value, `model.invalid-candidate` when it breaks the shape.
pub fn normalize(value: &Json) -> Result<JsonMap, TurnFailure> {
    let invalid = |message: String| TurnFailure::of_step("model.invalid-candidate", message);
    match value {
        Json::Null => Err(TurnFailure::of_step("model.candidate-missing", "the model gave no answer")),
        Json::String(text) => {
            let mut map = JsonMap::new();
            map.insert("output".to_owned(), json!([{"type": "text", "text": text}]));
            Ok(map)
        }
        Json::Object(map) => check(map).map(|()| map.clone()).map_err(invalid),
        _ => Err(invalid("the answer is neither a text nor an object".to_owned())),
    }
}

fn check(map: &JsonMap) -> Result<(), String> {
    closed(map, &["output", "finishReason", "usage", "evidence"])?;
    let blocks = map.get("output").and_then(Json::as_array).ok_or("`output` is not a list")?;
    blocks.iter().try_for_each(block)?;
    if let Some(reason) = map.get("finishReason")
        && !reason.as_str().is_some_and(|reason| FINISH_REASONS.contains(&reason))
    {
        return Err("unknown `finishReason`".to_owned());
    }
    map.get("usage").map_or(Ok(()), usage)?;
    map.get("evidence").map_or(Ok(()), evidence)
}

fn block(block: &Json) -> Result<(), String> {
    let map = block.as_object().ok_or("a block is not an object")?;
    let text = |key: &str| match map.get(key) {
        Some(Json::String(_)) => Ok(()),
        _ => Err(format!("`{key}` of a block is not a text")),
    };
    if map.get("providerMetadata").is_some_and(|metadata| !metadata.is_object()) {
        return Err("`providerMetadata` is not an object".to_owned());
    }
    match map.get("type").and_then(Json::as_str) {
        Some("text" | "reasoning") => {
            closed(map, &["type", "text", "providerMetadata"])?;
            text("text")
        }
        Some("json") => {
            closed(map, &["type", "value"])?;
            if map.contains_key("value") { Ok(()) } else { Err("a json block has no `value`".to_owned()) }
        }
        Some("tool-call") => {
            closed(map, &["type", "id", "name", "args", "raw", "providerMetadata"])?;
            // A missing id or name is repaired when the calls are sealed; one of another type is not.
            for key in ["id", "name"] {
                if map.contains_key(key) {
                    text(key)?;
                }
            }
            match map.get("args") {
                Some(Json::Object(_)) => Ok(()),
                _ => Err("`args` of a tool call is not an object".to_owned()),
            }
        }
        _ => Err("unknown type of block".to_owned()),
    }
}

fn usage(usage: &Json) -> Result<(), String> {
    let map = usage.as_object().ok_or("`usage` is not an object")?;
    for (key, value) in map {
        let good =
            if key == "costUsd" { value.is_number() } else { TOKENS.contains(&key.as_str()) && whole(value) };
        if !good {
            return Err(format!("`usage.{key}` is not what it should be"));
        }
    }
    Ok(())
}

/// A whole number of at least 0, however it is written.
fn whole(value: &Json) -> bool {
    value.is_u64() || value.as_f64().is_some_and(|n| n >= 0.0 && n.fract() == 0.0)
}

fn evidence(evidence: &Json) -> Result<(), String> {
    let map = evidence.as_object().ok_or("`evidence` is not an object")?;
    for (key, value) in map {
        let good = match key.as_str() {
            "requestId" | "resolvedModel" => value.is_string(),
            "warnings" => value.as_array().is_some_and(|list| list.iter().all(Json::is_string)),
            "extras" => value.is_object(),
            _ => false,
        };
        if !good {
            return Err(format!("`evidence.{key}` is not what it should be"));
        }
    }
    Ok(())
}

fn blocks_of<'a>(candidate: &'a JsonMap, kind: &'a str) -> impl Iterator<Item = &'a Json> {
    let blocks = candidate.get("output").and_then(Json::as_array).into_iter().flatten();
    blocks.filter(move |block| block.get("type").and_then(Json::as_str) == Some(kind))
}

/// What a candidate says: its text blocks joined; `None` when that is nothing.
#[must_use]
pub fn text(candidate: &JsonMap) -> Option<String> {
    let text: String = blocks_of(candidate, "text").filter_map(|block| block.get("text")?.as_str()).collect();
    (!text.is_empty()).then_some(text)
}

/// The calls of a candidate as hooks see them: `{id, name, args}` each.
#[must_use]
pub fn calls(candidate: &JsonMap) -> Json {
    let member = |block: &Json, key: &str| block.get(key).cloned().unwrap_or_else(|| json!(""));
    let call = |block: &Json| json!({"id": member(block, "id"), "name": member(block, "name"), "args": block["args"]});
    blocks_of(candidate, "tool-call").map(call).collect()
}

/// Puts one text in the place of all text blocks: where the first was, or before the calls.
pub fn replace_text(candidate: &mut JsonMap, text: &str) {
    replace(candidate, "text", json!({"type": "text", "text": text}));
}

/// Puts one value in the place of all json blocks.
pub fn replace_json(candidate: &mut JsonMap, value: &Json) {
    replace(candidate, "json", json!({"type": "json", "value": value}));
}

fn replace(candidate: &mut JsonMap, kind: &str, block: Json) {
    let Some(blocks) = candidate.get_mut("output").and_then(Json::as_array_mut) else { return };
    let is = |block: &Json, kind: &str| block.get("type").and_then(Json::as_str) == Some(kind);
    let at =
        blocks.iter().position(|block| is(block, kind) || is(block, "tool-call")).unwrap_or(blocks.len());
    blocks.retain(|block| !is(block, kind));
    blocks.insert(at, block);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stands_for_one_text_block() {
        assert_eq!(
            Json::Object(normalize(&json!("hi")).unwrap()),
            json!({"output": [{"type": "text", "text": "hi"}]})
        );
    }

    #[test]
    fn a_full_candidate_passes_unchanged() {
        let full = json!({
            "output": [
                {"type": "reasoning", "text": "", "providerMetadata": {"pi": {}}},
                {"type": "text", "text": "a"},
                {"type": "json", "value": null},
                {"type": "tool-call", "id": "c", "name": "t", "args": {}, "raw": "{}", "providerMetadata": {}},
            ],
            "finishReason": "tool-calls",
            "usage": {"inputTokens": 1, "outputTokens": 2.0, "costUsd": 0.1},
            "evidence": {"requestId": "r", "resolvedModel": "m", "warnings": ["w"], "extras": {"contextWindow": 1}},
        });
        assert_eq!(Json::Object(normalize(&full).unwrap()), full);
    }

    #[test]
    fn a_replaced_text_stands_where_the_first_was_or_before_the_calls() {
        let block = |kind: &str, text: &str| json!({"type": kind, "text": text});
        let call = json!({"type": "tool-call", "id": "c", "name": "t", "args": {"a": 1}});
        let replaced = |output: Json| {
            let mut candidate = json!({"output": output}).as_object().cloned().unwrap();
            replace_text(&mut candidate, "new");
            candidate["output"].clone()
        };
        let reasoning = block("reasoning", "r");
        assert_eq!(
            replaced(json!([reasoning, block("text", "a"), call, block("text", "b")])),
            json!([reasoning, block("text", "new"), call])
        );
        assert_eq!(replaced(json!([reasoning, call])), json!([reasoning, block("text", "new"), call]));
        assert_eq!(replaced(json!([])), json!([block("text", "new")]));
    }

    #[test]
    fn hooks_see_the_joined_text_and_the_calls() {
        let output = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"},
            {"type": "tool-call", "id": "c", "name": "t", "args": {"a": 1}, "raw": "{}"}, {"type": "tool-call", "args": {}}]);
        let candidate = json!({"output": output}).as_object().cloned().unwrap();
        assert_eq!(text(&candidate).as_deref(), Some("ab"));
        assert_eq!(
            calls(&candidate),
            json!([{"id": "c", "name": "t", "args": {"a": 1}}, {"id": "", "name": "", "args": {}}])
        );
        assert_eq!(
            text(&json!({"output": [{"type": "text", "text": ""}]}).as_object().cloned().unwrap()),
            None
        );
    }

    #[test]
    fn anything_else_is_an_invalid_candidate() {
        for bad in [
            json!(5),
            json!({}),
            json!({"output": [], "x": 1}),
            json!({"output": [{"type": "image"}]}),
            json!({"output": [{"type": "text", "text": 1}]}),
            json!({"output": [{"type": "text", "text": "a", "x": 1}]}),
            json!({"output": [{"type": "tool-call", "id": "c", "name": "t", "args": "{}"}]}),
            json!({"output": [{"type": "tool-call", "id": 1, "name": "t", "args": {}}]}),
            json!({"output": [], "finishReason": "error"}),
            json!({"output": [], "usage": {"inputTokens": -1}}),
            json!({"output": [], "usage": {"inputTokens": 1.5}}),
            json!({"output": [], "usage": {"madeUp": 1}}),
            json!({"output": [], "evidence": {"warnings": [1]}}),
        ] {
            assert_eq!(normalize(&bad).unwrap_err().code, "model.invalid-candidate", "{bad}");
        }
        assert_eq!(normalize(&Json::Null).unwrap_err().code, "model.candidate-missing");
    }
}
