//! Commands of a session (spec: http-api, section 7; durability, section 5).

use serde::{Deserialize, Serialize};

use super::json::{Json, JsonMap};
use super::manifest::{self, PathItem};
use super::shape::{
    BOOL, COUNT_FROM_ONE, FILLED, IDEMPOTENCY_KEY, Issue, OBJECT, Shape, TEXT, issue, may, must, whole,
};

/// What a client may tell a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Carried back in the receipt; never used to tell repeats apart.
    pub request_id: String,
    /// 1 to 256 characters; the same key and command answer the stored receipt.
    pub idempotency_key: String,
    /// What to do.
    pub body: CommandBody,
    /// The command as it was sent (an object): the payload of its event.
    pub sent: JsonMap,
}

/// What a command does.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandBody {
    /// Starts a turn.
    Message {
        /// What the turn is about.
        input: MessageInput,
        /// A manifest for this turn only.
        manifest: Option<Json>,
    },
    /// Answers an approval.
    Approve {
        /// Which.
        interaction_id: String,
        /// Yes or no.
        approved: bool,
    },
    /// Answers a question.
    Respond {
        /// Which.
        interaction_id: String,
        /// The answer; null when a JavaScript client left it out.
        value: Json,
    },
    /// Ends the turn.
    Cancel {
        /// In words.
        reason: Option<String>,
    },
}

/// What a message brings. Exactly one of three.
#[derive(Clone, Debug, PartialEq)]
pub enum MessageInput {
    /// Text, not empty.
    Content(String),
    /// Any JSON.
    Data(Json),
    /// 1 to 32 parts.
    Parts(Vec<MessagePart>),
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum MessagePart {
    /// Text, not empty.
    Text(String),
    /// An artifact of this session.
    File {
        /// Which.
        artifact_id: String,
        /// Which version; the latest when absent.
        version: Option<u64>,
    },
}

static PART: Shape = Shape::Tagged {
    tag: "type",
    cases: &[
        ("text", &Shape::Object(&[must("type", &TEXT), must("text", &FILLED)])),
        (
            "file",
            &Shape::Object(&[
                must("type", &TEXT),
                must("artifactId", &FILLED),
                may("version", &COUNT_FROM_ONE),
            ]),
        ),
    ],
};

/// Each command, by its `type`.
pub static COMMAND: Shape = Shape::Tagged {
    tag: "type",
    cases: &[
        (
            "message",
            &Shape::Object(&[
                must("requestId", &FILLED),
                must("idempotencyKey", &IDEMPOTENCY_KEY),
                must("type", &Shape::Literal("message")),
                may("content", &FILLED),
                may("data", &Shape::Any),
                may("parts", &Shape::List { item: &PART, min: 1, max: 32 }),
                may("manifest", &OBJECT),
            ]),
        ),
        (
            "approve",
            &Shape::Object(&[
                must("requestId", &FILLED),
                must("idempotencyKey", &IDEMPOTENCY_KEY),
                must("type", &Shape::Literal("approve")),
                must("interactionId", &FILLED),
                must("approved", &BOOL),
            ]),
        ),
        (
            "respond",
            &Shape::Object(&[
                must("requestId", &FILLED),
                must("idempotencyKey", &IDEMPOTENCY_KEY),
                must("type", &Shape::Literal("respond")),
                must("interactionId", &FILLED),
                may("value", &Shape::Any),
            ]),
        ),
        (
            "cancel",
            &Shape::Object(&[
                must("requestId", &FILLED),
                must("idempotencyKey", &IDEMPOTENCY_KEY),
                must("type", &Shape::Literal("cancel")),
                may("reason", &TEXT),
            ]),
        ),
    ],
};

/// What a message may bring; exactly one of them, and `data: null` counts as sent.
const INPUTS: [&str; 3] = ["content", "data", "parts"];

impl Command {
    /// Reads a command.
    ///
    /// # Errors
    /// Every problem of the body.
    pub fn parse(body: Json) -> Result<Self, Vec<Issue>> {
        let mut issues = COMMAND.check(&body);
        let Json::Object(sent) = body else { return Err(issues) };
        let kind = text(&sent, "type");
        if kind == "message" {
            let inputs: Vec<&str> = INPUTS.into_iter().filter(|name| sent.contains_key(*name)).collect();
            if inputs.len() != 1 {
                let given = if inputs.is_empty() { "none".to_owned() } else { inputs.join(", ") };
                issues.push(issue(
                    &[],
                    format!("exactly one of content, data or parts is needed, got {given}"),
                ));
            }
            issues.extend(sent.get("manifest").map(manifest_issues).unwrap_or_default());
        }
        if !issues.is_empty() {
            return Err(issues);
        }
        let interaction_id = text(&sent, "interactionId");
        let body = match kind.as_str() {
            "approve" => CommandBody::Approve {
                interaction_id,
                approved: sent.get("approved").and_then(Json::as_bool).unwrap_or_default(),
            },
            "respond" => CommandBody::Respond {
                interaction_id,
                value: sent.get("value").cloned().unwrap_or(Json::Null),
            },
            "cancel" => {
                CommandBody::Cancel { reason: sent.get("reason").and_then(Json::as_str).map(str::to_owned) }
            }
            _ => CommandBody::Message { input: input(&sent), manifest: sent.get("manifest").cloned() },
        };
        Ok(Self {
            request_id: text(&sent, "requestId"),
            idempotency_key: text(&sent, "idempotencyKey"),
            body,
            sent,
        })
    }
}

/// What is wrong with a turn's own manifest. A value that is no object is the shape's business.
fn manifest_issues(document: &Json) -> Vec<Issue> {
    let Some(mut issues) = document.is_object().then(|| manifest::parse(document).err()).flatten() else {
        return Vec::new();
    };
    for issue in &mut issues {
        issue.path.insert(0, PathItem::from("manifest"));
    }
    issues
}

fn text(map: &JsonMap, name: &str) -> String {
    map.get(name).and_then(Json::as_str).unwrap_or_default().to_owned()
}

fn input(sent: &JsonMap) -> MessageInput {
    if let Some(data) = sent.get("data") {
        return MessageInput::Data(data.clone());
    }
    match sent.get("parts").and_then(Json::as_array) {
        Some(parts) => MessageInput::Parts(parts.iter().filter_map(Json::as_object).map(part).collect()),
        None => MessageInput::Content(text(sent, "content")),
    }
}

fn part(map: &JsonMap) -> MessagePart {
    if text(map, "type") == "text" {
        return MessagePart::Text(text(map, "text"));
    }
    let version = map.get("version").and_then(Json::as_number).and_then(whole);
    MessagePart::File {
        artifact_id: text(map, "artifactId"),
        version: version.and_then(|v| u64::try_from(v).ok()),
    }
}

impl CommandBody {
    /// `message`, `approve`, `respond` or `cancel`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Message { .. } => "message",
            Self::Approve { .. } => "approve",
            Self::Respond { .. } => "respond",
            Self::Cancel { .. } => "cancel",
        }
    }
}

/// The answer to an accepted command. Stored and repeated to the letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// Always `accepted`.
    pub status: String,
    /// The turn; null after a cancel.
    pub turn_id: Option<String>,
    /// Cursor of the event that the command wrote.
    pub cursor: Option<String>,
    /// The first request's id.
    pub request_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(more: Json) -> Json {
        let mut body = json!({"requestId": "r", "idempotencyKey": "k", "type": "message"});
        if let (Some(body), Json::Object(more)) = (body.as_object_mut(), more) {
            body.extend(more);
        }
        body
    }

    fn refused(body: Json) -> Vec<&'static str> {
        Command::parse(body).expect_err("refused").iter().map(|i| i.code).collect()
    }

    #[test]
    fn a_message_brings_exactly_one_of_content_data_and_parts_and_null_data_counts() {
        let input = |more| match Command::parse(message(more)).expect("a message").body {
            CommandBody::Message { input, .. } => input,
            other => panic!("{other:?}"),
        };
        assert_eq!(input(json!({"content": "hi"})), MessageInput::Content("hi".into()));
        assert_eq!(input(json!({"data": null})), MessageInput::Data(Json::Null));
        let parts = json!({"parts": [{"type": "text", "text": "a"}, {"type": "file", "artifactId": "af_1", "version": 2}]});
        assert_eq!(
            input(parts),
            MessageInput::Parts(vec![
                MessagePart::Text("a".into()),
                MessagePart::File { artifact_id: "af_1".into(), version: Some(2) },
            ])
        );
        assert_eq!(refused(message(json!({}))), ["custom"]);
        assert_eq!(refused(message(json!({"content": "a", "data": null}))), ["custom"]);
        assert_eq!(refused(message(json!({"content": ""}))), ["too_small"]);
        assert_eq!(refused(message(json!({"parts": []}))), ["too_small"]);
        let part = json!({"type": "text", "text": "a"});
        assert_eq!(refused(message(json!({"parts": vec![part; 33]}))), ["too_big"]);
        assert_eq!(
            refused(message(json!({"parts": [{"type": "file", "artifactId": "a", "version": 0}]}))),
            ["too_small"]
        );
    }

    #[test]
    fn a_manifest_in_a_message_is_read_in_full() {
        let bad = message(json!({"content": "a", "manifest": {"manifestSchemaVersion": 4, "id": "x"}}));
        let issues = Command::parse(bad).expect_err("refused");
        assert!(issues.iter().all(|i| i.path.first() == Some(&PathItem::from("manifest"))), "{issues:?}");
        let good = json!({"manifestSchemaVersion": 4, "id": "x", "capabilities": []});
        assert!(Command::parse(message(json!({"content": "a", "manifest": good}))).is_ok());
        assert_eq!(refused(message(json!({"content": "a", "manifest": 1}))), ["invalid_type"]);
    }

    #[test]
    fn a_command_keeps_what_was_sent() {
        let sent = message(json!({"content": "hi"}));
        let command = Command::parse(sent.clone()).expect("a message");
        assert_eq!(Json::Object(command.sent), sent);
        assert_eq!((command.request_id.as_str(), command.idempotency_key.as_str()), ("r", "k"));
    }

    #[test]
    fn an_idempotency_key_has_1_to_256_characters() {
        let with = |key: String| json!({"requestId": "r", "idempotencyKey": key, "type": "cancel"});
        assert!(Command::parse(with("k".repeat(256))).is_ok());
        assert!(Command::parse(with("\u{1F600}".repeat(128))).is_ok());
        assert_eq!(refused(with("k".repeat(257))), ["too_big"]);
        assert_eq!(refused(with("\u{1F600}".repeat(129))), ["too_big"]);
        assert_eq!(refused(with(String::new())), ["too_small"]);
    }

    #[test]
    fn each_type_has_its_own_members_and_no_others() {
        let with = |more: Json| {
            let mut body = json!({"requestId": "r", "idempotencyKey": "k"});
            if let (Some(body), Json::Object(more)) = (body.as_object_mut(), more) {
                body.extend(more);
            }
            body
        };
        let respond =
            Command::parse(with(json!({"type": "respond", "interactionId": "i"}))).expect("respond");
        assert_eq!(respond.body, CommandBody::Respond { interaction_id: "i".into(), value: Json::Null });
        let approve = with(json!({"type": "approve", "interactionId": "i", "approved": false}));
        let approve = Command::parse(approve).expect("approve");
        assert_eq!(approve.body, CommandBody::Approve { interaction_id: "i".into(), approved: false });
        assert_eq!(refused(with(json!({"type": "approve", "interactionId": "i"}))), ["invalid_type"]);
        assert_eq!(refused(with(json!({"type": "steer"}))), ["invalid_union"]);
        assert_eq!(refused(with(json!({"type": "cancel", "content": "x"}))), ["unrecognized_keys"]);
        assert_eq!(refused(json!([])), ["invalid_type"]);
    }
}
