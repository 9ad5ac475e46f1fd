//! The session: its status, its rows (spec: durability, section 4; http-api, section 6).
//!
//! A session is kept in three rows, so that the path of a turn rewrites little: the *head* (hot, small), the *pin*
//! (written when the session is opened) and the *doc* (the turn's documents, written when a turn starts and when a
//! segment settles). Documents are JSON text here; whoever needs them parses them on its own thread.

use serde::{Deserialize, Serialize};

use super::ids::{AgentId, SessionId, TurnId, WorkerId};
use super::json::JsonText;
use super::time::Micros;

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// Opened, never used.
    Idle,
    /// Has work that nobody has taken.
    Runnable,
    /// A worker holds its lease.
    Running,
    /// Waits for an Action or a linked session.
    Waiting,
    /// Waits for a person.
    Paused,
    /// An effect's fate is unknown.
    Uncertain,
    /// The last turn completed.
    Completed,
    /// The last turn failed.
    Failed,
    /// The last turn was cancelled.
    Cancelled,
}

impl SessionStatus {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Runnable => "runnable",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Uncertain => "uncertain",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of a stored name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "idle" => Self::Idle,
            "runnable" => Self::Runnable,
            "running" => Self::Running,
            "waiting" => Self::Waiting,
            "paused" => Self::Paused,
            "uncertain" => Self::Uncertain,
            "completed" => Self::Completed,
            "failed" => Self::Failed,
            "cancelled" => Self::Cancelled,
            _ => return None,
        })
    }

    /// Whether a `message` may start a turn.
    #[must_use]
    pub fn accepts_message(self) -> bool {
        matches!(self, Self::Idle | Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// The hot row of a session: what every transaction of it locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHead {
    /// Chosen by the client.
    pub id: SessionId,
    /// The definition it was opened from.
    pub agent_id: AgentId,
    /// Whose session it is.
    pub owner_user_id: String,
    /// The sandbox resource it is attached to.
    pub sandbox_id: Option<String>,
    /// Hash of the pinned manifest.
    pub manifest_hash: String,
    /// Where it stands.
    pub status: SessionStatus,
    /// From the accepted message to the turn's end.
    pub active_turn_id: Option<TurnId>,
    /// The last ended turn.
    pub last_turn_id: Option<TurnId>,
    /// The worker that holds the lease.
    pub owner: Option<WorkerId>,
    /// One more on every take; never less.
    pub epoch: i64,
    /// When the lease lapses, on the store's clock.
    pub owner_expires_at: Option<Micros>,
}

/// What a session was opened with.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SessionPin {
    /// Version of the application's code.
    pub implementation_version: String,
    /// `{name: absolutePath}`.
    pub plugin_roots: Option<JsonText>,
    /// Trusted context for agent code, an object.
    pub info: Option<JsonText>,
    /// Canonical text of the opening body without request id and attachments: what a second open must equal.
    pub creation: String,
    /// Attached vaults, an array of ids.
    pub vault_ids: Option<JsonText>,
    /// Credential selections, an array.
    pub credential_selections: Option<JsonText>,
    /// The session that owns the sandbox, when it is not this one.
    pub sandbox_owner_id: Option<SessionId>,
    /// The resolved sandbox spec.
    pub sandbox: Option<JsonText>,
    /// `default`, `inline`, `shared` or `sandbox`.
    pub sandbox_source: Option<String>,
    /// The MCP snapshot pinned at first discovery.
    pub mcp_snapshot: Option<JsonText>,
    /// What discovery said, an array.
    pub mcp_diagnostics: Option<JsonText>,
    /// When it was opened.
    pub created_at: Micros,
}

/// The turn's documents.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SessionDoc {
    /// The start of the current segment, without `state` (which is [`SessionDoc::state`]).
    pub checkpoint: Option<JsonText>,
    /// The engine's state, transcript emptied.
    pub state: Option<JsonText>,
    /// What `state` goes back to when the turn fails or is cancelled.
    pub turn_start_state: Option<JsonText>,
    /// Where the transcript's fold starts.
    pub history_from: Option<i64>,
    /// The latest edit that replaced everything.
    pub history_snapshot: Option<i64>,
    /// Pending interactions, or `{effectIds}`.
    pub waits: Option<JsonText>,
    /// The text of a segment that threw.
    pub error: Option<String>,
    /// Output of the last completed turn.
    pub last_output: Option<JsonText>,
    /// Hashes of the turn manifests this session has used.
    pub variants: Vec<String>,
}
