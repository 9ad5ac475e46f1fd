//! Prompt items: how each is written, and how an adapter reads it (spec: engine, section 4.3).

use std::sync::Arc;

use nylorun_actors::model::Json;
use nylorun_actors::model::json::encode;
use serde_json::json;

use super::call::PromptItem;

/// `{kind: "instructions", role: "system", content: [text]}`.
#[must_use]
pub fn instructions(text: &str) -> PromptItem {
    Arc::new(json!({"kind": "instructions", "role": "system", "content": [text_part(text)]}))
}

/// A person's message, as text.
#[must_use]
pub fn user_text(text: &str) -> PromptItem {
    user_parts(vec![text_part(text)])
}

/// A person's message, as parts: `{type: "text", text}` or `{type: "media", mediaType, reference}` each.
#[must_use]
pub fn user_parts(parts: Vec<Json>) -> PromptItem {
    Arc::new(json!({"kind": "message", "role": "user", "content": parts}))
}

/// The assistant's message, as candidate blocks (`text`, `reasoning`, `tool-call`), with the model that made it.
#[must_use]
pub fn assistant(blocks: Vec<Json>, producer: Option<&Json>) -> PromptItem {
    let mut item = json!({"kind": "message", "role": "assistant", "content": blocks});
    if let Some(producer) = producer {
        item["producer"] = producer.clone();
    }
    Arc::new(item)
}

/// A tool's result. `status` is `completed`, `denied` or `failed`; `text` is the JSON that the model reads.
#[must_use]
pub fn tool_result(call_id: &str, tool_name: &str, status: &str, text: &str) -> PromptItem {
    Arc::new(json!({
        "kind": "tool-result", "toolCallId": call_id, "toolName": tool_name, "status": status,
        "content": [text_part(text)],
    }))
}

/// Runtime context, shown to the model as if a person had said it.
#[must_use]
pub fn context(parts: Vec<Json>) -> PromptItem {
    Arc::new(json!({"kind": "context", "role": "user", "content": parts}))
}

/// `{type: "text", text}`.
#[must_use]
pub fn text_part(text: &str) -> Json {
    json!({"type": "text", "text": text})
}

/// An item as an adapter reads it. Content is a list of parts or blocks.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemView<'a> {
    /// What the agent is told to be.
    Instructions {
        /// Text parts.
        content: Vec<PartView<'a>>,
    },
    /// A person's message.
    User {
        /// Text and media parts.
        content: Vec<PartView<'a>>,
    },
    /// A model's message.
    Assistant {
        /// Blocks.
        content: Vec<PartView<'a>>,
        /// `{provider, api?, model}` of the model that wrote it; the current model when absent.
        producer: Option<&'a Json>,
    },
    /// A tool's result.
    ToolResult {
        /// The model's call id.
        call_id: &'a str,
        /// The tool.
        tool_name: &'a str,
        /// Whether the tool completed; a denied or failed call did not.
        completed: bool,
        /// Text parts.
        content: Vec<PartView<'a>>,
    },
    /// Runtime context.
    Context {
        /// Text parts.
        content: Vec<PartView<'a>>,
    },
}

/// A part of a message or a block of a candidate.
#[derive(Clone, Debug, PartialEq)]
pub enum PartView<'a> {
    /// Text.
    Text {
        /// The text.
        text: &'a str,
        /// What the provider wants back with it.
        metadata: Option<&'a Json>,
    },
    /// Reasoning.
    Reasoning {
        /// The text, possibly empty.
        text: &'a str,
        /// What the provider wants back with it.
        metadata: Option<&'a Json>,
    },
    /// A tool call.
    ToolCall {
        /// The model's call id.
        id: &'a str,
        /// The tool.
        name: &'a str,
        /// Arguments.
        args: &'a Json,
        /// What the provider wants back with it.
        metadata: Option<&'a Json>,
    },
    /// A file.
    Media {
        /// Its media type.
        media_type: &'a str,
        /// Where the host finds it.
        reference: &'a Json,
    },
    /// Anything else.
    Other(&'a Json),
}

impl<'a> ItemView<'a> {
    /// Reads an item. `None` when it is none of the known kinds.
    #[must_use]
    pub fn read(item: &'a Json) -> Option<Self> {
        let content = || parts(item.get("content"));
        Some(match item.get("kind")?.as_str()? {
            "instructions" => Self::Instructions { content: content() },
            "context" => Self::Context { content: content() },
            "message" if item.get("role")?.as_str()? == "assistant" => {
                Self::Assistant { content: content(), producer: item.get("producer") }
            }
            "message" => Self::User { content: content() },
            "tool-result" => Self::ToolResult {
                call_id: item.get("toolCallId")?.as_str()?,
                tool_name: item.get("toolName")?.as_str()?,
                completed: item.get("status")?.as_str()? == "completed",
                content: content(),
            },
            _ => return None,
        })
    }
}

/// The parts of a `content`: a list, or a string standing for one text part.
fn parts(content: Option<&Json>) -> Vec<PartView<'_>> {
    match content {
        Some(Json::Array(list)) => list.iter().map(PartView::read).collect(),
        Some(Json::String(text)) => vec![PartView::Text { text, metadata: None }],
        _ => Vec::new(),
    }
}

impl<'a> PartView<'a> {
    /// Reads one part or block.
    #[must_use]
    pub fn read(part: &'a Json) -> Self {
        let text = |key| part.get(key).and_then(Json::as_str);
        let metadata = part.get("providerMetadata");
        match (text("type"), part) {
            (_, Json::String(text)) => Self::Text { text, metadata: None },
            (Some("text"), _) => match text("text") {
                Some(text) => Self::Text { text, metadata },
                None => Self::Other(part),
            },
            (Some("reasoning"), _) => Self::Reasoning { text: text("text").unwrap_or(""), metadata },
            (Some("tool-call"), _) => match (text("id"), text("name"), part.get("args")) {
                (Some(id), Some(name), Some(args)) => Self::ToolCall { id, name, args, metadata },
                _ => Self::Other(part),
            },
            (Some("media"), _) => match (text("mediaType"), part.get("reference")) {
                (Some(media_type), Some(reference)) => Self::Media { media_type, reference },
                _ => Self::Other(part),
            },
            _ => Self::Other(part),
        }
    }

    /// The part as text: a text as it is, anything else as its JSON.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Text { text, .. } | Self::Reasoning { text, .. } => (*text).to_owned(),
            Self::ToolCall { name, args, .. } => encode(&json!({"name": name, "args": args})),
            Self::Media { media_type, reference } => {
                encode(&json!({"type": "media", "mediaType": media_type, "reference": reference}))
            }
            Self::Other(part) => encode(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_reads_back_as_what_it_was_built_from() {
        let text = |text| PartView::Text { text, metadata: None };
        let producer = json!({"provider": "p", "model": "m"});
        let call = json!({"type": "tool-call", "id": "c1", "name": "t", "args": {}});
        let media = json!({"type": "media", "mediaType": "image/png", "reference": {"artifactId": "a"}});
        assert_eq!(
            ItemView::read(&instructions("be brief")),
            Some(ItemView::Instructions { content: vec![text("be brief")] })
        );
        assert_eq!(ItemView::read(&user_text("hi")), Some(ItemView::User { content: vec![text("hi")] }));
        assert_eq!(
            ItemView::read(&context(vec![text_part("now")])),
            Some(ItemView::Context { content: vec![text("now")] })
        );
        assert_eq!(
            ItemView::read(&user_parts(vec![media.clone()])),
            Some(ItemView::User {
                content: vec![PartView::Media { media_type: "image/png", reference: &media["reference"] }]
            })
        );
        assert_eq!(
            ItemView::read(&assistant(vec![call], Some(&producer))),
            Some(ItemView::Assistant {
                content: vec![PartView::ToolCall { id: "c1", name: "t", args: &json!({}), metadata: None }],
                producer: Some(&producer),
            })
        );
        assert_eq!(
            ItemView::read(&tool_result("c1", "t", "denied", "{}")),
            Some(ItemView::ToolResult {
                call_id: "c1",
                tool_name: "t",
                completed: false,
                content: vec![text("{}")]
            })
        );
        assert_eq!(ItemView::read(&json!({"kind": "surprise"})), None);
    }
}
