//! Commands of a session (spec: http-api, section 7; durability, section 5).

use serde::{Deserialize, Serialize};

use super::json::{Json, JsonMap};

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
