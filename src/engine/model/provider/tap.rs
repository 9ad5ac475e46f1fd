//! What the provider library does not pass on of a stream, read from its raw frames: the model that answered, how much
//! came, and tool calls of the OpenAI protocol. The library keeps those in a list as long as the highest index that
//! the peer names, which a broken peer could choose freely; here they are in a map, and an index may be missing.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use genai::chat::{ChatFrameSink, FrameCtx, RawFrameRef};
use nylorun_actors::model::Json;
use nylorun_actors::model::json::parse;

/// A tool call as far as it has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PartialCall {
    pub id: String,
    pub name: String,
    pub args: String,
}

#[derive(Debug, Default)]
struct Seen {
    model: Option<String>,
    bytes: usize,
    calls: BTreeMap<u64, PartialCall>,
}

/// Reads along with one stream.
#[derive(Debug)]
pub(super) struct FrameTap {
    with_calls: bool,
    seen: Mutex<Seen>,
}

impl FrameTap {
    /// A tap; `with_calls` when the stream is of the OpenAI protocol.
    pub fn new(with_calls: bool) -> Self {
        Self { with_calls, seen: Mutex::default() }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        // Plain data without invariants between its fields: what a panicking holder left is still good.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The model that the provider says answered.
    pub fn model(&self) -> Option<String> {
        self.seen().model.clone()
    }

    /// Bytes of frames so far.
    pub fn bytes(&self) -> usize {
        self.seen().bytes
    }

    /// The tool calls, in the order of their index.
    pub fn calls(&self) -> Vec<PartialCall> {
        self.seen().calls.values().cloned().collect()
    }
}

impl ChatFrameSink for FrameTap {
    fn on_frame(&self, _cx: &FrameCtx, frame: RawFrameRef<'_>) {
        let mut seen = self.seen();
        seen.bytes = seen.bytes.saturating_add(frame.data.len());
        let calls = self.with_calls && frame.data.contains("\"tool_calls\"");
        if !calls && seen.model.is_some() {
            return;
        }
        let Ok(frame) = parse(frame.data.as_bytes()) else { return };
        if seen.model.is_none() {
            let model = ["/model", "/message/model", "/modelVersion"];
            let model = model.into_iter().find_map(|at| frame.pointer(at)?.as_str());
            seen.model = model.filter(|name| !name.is_empty()).map(str::to_owned);
        }
        if let Some(deltas) = frame.pointer("/choices/0/delta/tool_calls").and_then(Json::as_array) {
            for delta in deltas {
                add(&mut seen.calls, delta);
            }
        }
    }
}

fn add(calls: &mut BTreeMap<u64, PartialCall>, delta: &Json) {
    let text = |at: &str| delta.pointer(at).and_then(Json::as_str).filter(|text| !text.is_empty());
    let last = calls.last_key_value().map(|(index, call)| (*index, call.id.clone()));
    let index = delta.get("index").and_then(Json::as_u64).unwrap_or_else(|| match (&last, text("/id")) {
        // Without an index, a new id begins a new call and anything else belongs to the last one.
        (Some((index, id)), Some(new)) if id != new => index.saturating_add(1),
        (Some((index, _)), _) => *index,
        (None, _) => 0,
    });
    let call = calls.entry(index).or_default();
    if let Some(id) = text("/id").filter(|_| call.id.is_empty()) {
        call.id = id.to_owned();
    }
    if let Some(name) = text("/function/name").filter(|_| call.name.is_empty()) {
        call.name = name.to_owned();
    }
    match delta.pointer("/function/arguments") {
        Some(Json::String(args)) => call.args.push_str(args),
        Some(args @ Json::Object(_)) => call.args = nylorun_actors::model::json::encode(args),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn calls(deltas: &[Json]) -> Vec<(String, String, String)> {
        let mut calls = BTreeMap::new();
        for delta in deltas {
            add(&mut calls, delta);
        }
        calls.into_values().map(|c| (c.id, c.name, c.args)).collect()
    }

    fn call(id: &str, name: &str, args: &str) -> (String, String, String) {
        (id.into(), name.into(), args.into())
    }

    #[test]
    fn fragments_find_their_call_by_index_even_when_they_alternate() {
        let got = calls(&[
            json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}),
            json!({"index": 1, "id": "b", "function": {"name": "g", "arguments": "{"}}),
            json!({"index": 0, "function": {"arguments": "{\"x\""}}),
            json!({"index": 1, "function": {"arguments": "}"}}),
            json!({"index": 0, "function": {"arguments": ":1}"}}),
        ]);
        assert_eq!(got, [call("a", "f", "{\"x\":1}"), call("b", "g", "{}")]);
    }

    #[test]
    fn a_missing_index_is_guessed_from_the_id_and_a_huge_one_costs_nothing() {
        let got = calls(&[
            json!({"id": "a", "function": {"name": "f", "arguments": "{}"}}),
            json!({"id": "b", "function": {"name": "g", "arguments": "{"}}),
            json!({"function": {"arguments": "}"}}),
        ]);
        assert_eq!(got, [call("a", "f", "{}"), call("b", "g", "{}")]);
        let far = calls(&[
            json!({"index": 4_294_967_295_u64, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}}),
        ]);
        assert_eq!(far, [call("a", "f", "{\"x\":1}")]);
    }
}
