//! What is known of a workspace, and what is claimed of it (spec: sandbox, sections 10 and 23; harness-api, section 15.4).

use serde::{Deserialize, Serialize};

use crate::model::ids::{RunId, SessionId, TurnId};
use crate::model::json::Json;

/// Where a workspace stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceState {
    /// It is being opened.
    Creating,
    /// It is open.
    Running,
    /// Its files are there, and nothing else.
    Stopped,
}

impl WorkspaceState {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Stopped => "stopped",
        }
    }

    /// The state of a stored name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Creating, Self::Running, Self::Stopped].into_iter().find(|state| state.as_str() == name)
    }
}

/// A workspace as whoever has it knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkspaceRecord {
    /// Its key.
    pub key: String,
    /// The session whose log has its events.
    pub session_id: SessionId,
    /// The sandbox resource that it is, when it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// Which backend.
    pub backend: String,
    /// Which image.
    pub image: String,
    /// Where it stands.
    pub state: WorkspaceState,
    /// ISO instant.
    pub created_at: String,
    /// ISO instant.
    pub updated_at: String,
}

/// `event`: a claim of what happened in a workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Claim {
    /// The run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The session.
    pub session_id: SessionId,
    /// The turn, or null.
    pub turn_id: Option<TurnId>,
    /// `sandbox.state` or `sandbox.exec`.
    #[serde(rename = "type")]
    pub kind: ClaimKind,
    /// Its payload.
    #[serde(default)]
    pub payload: Json,
    /// The workspace's record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<WorkspaceRecord>,
}

/// What may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimKind {
    /// A workspace changed its state.
    #[serde(rename = "sandbox.state")]
    State,
    /// A command ran in it.
    #[serde(rename = "sandbox.exec")]
    Exec,
}
