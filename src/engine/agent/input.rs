//! What a segment starts from (spec: engine, section 3.2).

use nylorun_actors::model::Json;
use nylorun_actors::model::json::JsonMap;
use serde_json::json;

/// A parsed execution input.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A `user-message` or `interrupt` event, with its kind written out.
    Message(Json),
    /// A person approves or rejects.
    Approve {
        /// Which interaction.
        interaction_id: String,
        /// What they said.
        approved: bool,
    },
    /// A person answers a question.
    Respond {
        /// Which interaction.
        interaction_id: String,
        /// What they said.
        value: Json,
    },
    /// The next segment of a turn that rolled over, or that a crash cut.
    Continue,
    /// A deferred call is settled.
    Settle {
        /// Which call.
        invocation_id: String,
        /// `{kind: completed | failed | denied, ...}`.
        outcome: Json,
    },
}

impl Input {
    /// Reads an input.
    ///
    /// # Errors
    /// In words, when it is none of the known forms; every form is closed.
    pub fn read(input: &Json) -> Result<Self, String> {
        let map = match input {
            Json::String(text) => return Ok(Self::Message(json!({"kind": "user-message", "text": text}))),
            Json::Object(map) => map,
            _ => return Err("the input is neither a text nor an object".to_owned()),
        };
        match map.get("kind").map(|kind| kind.as_str().unwrap_or("")) {
            None | Some("user-message" | "interrupt") => message(map).map(Self::Message),
            Some("approve") => {
                closed(map, &["kind", "interactionId", "approved"])?;
                let approved = map.get("approved").and_then(Json::as_bool);
                Ok(Self::Approve {
                    interaction_id: text(map, "interactionId")?,
                    approved: approved.ok_or("`approved` is not a boolean")?,
                })
            }
            Some("respond") => {
                closed(map, &["kind", "interactionId", "value"])?;
                let value = map.get("value").cloned().ok_or("`value` is missing")?;
                Ok(Self::Respond { interaction_id: text(map, "interactionId")?, value })
            }
            Some("continue") => closed(map, &["kind"]).map(|()| Self::Continue),
            Some("settle") => {
                closed(map, &["kind", "invocationId", "outcome"])?;
                let outcome = map.get("outcome").cloned().ok_or("`outcome` is missing")?;
                Ok(Self::Settle { invocation_id: text(map, "invocationId")?, outcome })
            }
            Some(_) => Err("unknown kind of input".to_owned()),
        }
    }

    /// Whether it answers something that an earlier segment left open, or goes on with it.
    #[must_use]
    pub fn resumes(&self) -> bool {
        !matches!(self, Self::Message(_))
    }

    /// The event that a person's answer leaves in the transcript.
    #[must_use]
    pub fn answer_event(&self) -> Option<Json> {
        match self {
            Self::Approve { interaction_id, approved } => {
                Some(json!({"kind": "approve", "interactionId": interaction_id, "approved": approved}))
            }
            Self::Respond { interaction_id, value } => {
                Some(json!({"kind": "respond", "interactionId": interaction_id, "value": value}))
            }
            _ => None,
        }
    }
}

fn message(map: &JsonMap) -> Result<Json, String> {
    closed(map, &["kind", "text", "content", "metadata"])?;
    match (map.get("text"), map.get("content")) {
        (Some(Json::String(_)), None) => {}
        (None, Some(Json::Array(parts))) => parts.iter().try_for_each(part)?,
        _ => return Err("a message has either a `text` or a list `content`".to_owned()),
    }
    if map.get("metadata").is_some_and(|metadata| !metadata.is_object()) {
        return Err("`metadata` is not an object".to_owned());
    }
    let mut event = map.clone();
    event.entry("kind").or_insert_with(|| json!("user-message"));
    Ok(Json::Object(event))
}

fn part(part: &Json) -> Result<(), String> {
    let map = part.as_object().ok_or("a part is not an object")?;
    match map.get("type").and_then(Json::as_str) {
        Some("text") => {
            closed(map, &["type", "text"])?;
            text(map, "text").map(drop)
        }
        Some("media") => {
            closed(map, &["type", "mediaType", "reference"])?;
            if text(map, "mediaType")?.is_empty() || !map.contains_key("reference") {
                return Err("a media part needs a `mediaType` and a `reference`".to_owned());
            }
            Ok(())
        }
        _ => Err("unknown type of part".to_owned()),
    }
}

fn text(map: &JsonMap, key: &str) -> Result<String, String> {
    map.get(key).and_then(Json::as_str).map(str::to_owned).ok_or_else(|| format!("`{key}` is not a text"))
}

/// Refuses members other than `known`.
pub(super) fn closed(map: &JsonMap, known: &[&str]) -> Result<(), String> {
    match map.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("unknown member `{key}`")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_message_becomes_an_event_with_its_kind() {
        let event = |input: Json| match Input::read(&input) {
            Ok(Input::Message(event)) => event,
            other => panic!("{other:?}"),
        };
        assert_eq!(event(json!("hi")), json!({"kind": "user-message", "text": "hi"}));
        assert_eq!(
            event(json!({"text": "hi", "metadata": {}})),
            json!({"kind": "user-message", "text": "hi", "metadata": {}})
        );
        let parts = json!({"kind": "interrupt", "content": [{"type": "text", "text": "a"}, {"type": "media", "mediaType": "image/png", "reference": 1}]});
        assert_eq!(event(parts.clone()), parts);
    }

    #[test]
    fn inputs_are_closed() {
        for bad in [
            json!(5),
            json!({"text": "a", "content": []}),
            json!({"kind": "user-message"}),
            json!({"text": "a", "x": 1}),
            json!({"content": [{"type": "media", "mediaType": "", "reference": 1}]}),
            json!({"kind": "approve", "interactionId": "i"}),
            json!({"kind": "respond", "interactionId": "i"}),
            json!({"kind": "continue", "x": 1}),
            json!({"kind": "steer"}),
            json!({"kind": 7, "text": "a"}),
        ] {
            assert!(Input::read(&bad).is_err(), "{bad}");
        }
    }
}
