//! The immutable start of a segment (spec: engine, section 3.1).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ids::{SessionId, TurnId};
use super::json::{Json, JsonMap};

/// The engine version string of the 0.17 line. A peer refuses a checkpoint with any other.
pub const ENGINE_VERSION: &str = "hosted-3";

/// The start of a segment. It never changes while the segment runs, however often that is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Checkpoint {
    /// Always 1.
    pub version: u32,
    /// [`ENGINE_VERSION`] for agents.
    pub engine_version: String,
    /// The turn's manifest.
    pub manifest_hash: String,
    /// The session.
    pub session_id: SessionId,
    /// The session's turn.
    pub turn_id: TurnId,
    /// From 0; one more on each human answer and each rollover.
    pub segment: u32,
    /// What the segment starts from (engine section 3.2).
    pub input: Json,
    /// The engine's state, transcript emptied. Kept beside the checkpoint in the store and joined when it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Arc<Json>>,
    /// Trusted context for agent code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<JsonMap>,
}

impl Checkpoint {
    /// Whether the input answers a person's approval or question.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        matches!(self.input.get("kind").and_then(Json::as_str), Some("approve" | "respond"))
    }
}
