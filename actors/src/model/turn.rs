//! A run's documents: what a harness is given and what it gives back (spec: harness-api, section 7.4).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::checkpoint::Checkpoint;
use super::effect::RecordedOutcome;
use super::ids::{RunId, SessionId, TurnId};
use super::json::{Json, JsonMap};
use super::transcript::Edit;

/// What a lease answers first: whose segment this is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunGrant {
    /// Fresh for every offer.
    pub run_id: RunId,
    /// The session.
    pub session_id: SessionId,
    /// The session's turn.
    pub turn_id: TurnId,
    /// The lease's epoch.
    pub epoch: i64,
    /// A run token, only where the gates are a separate service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// ISO instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_expires_at: Option<String>,
}

/// Whether a segment begins with a message or with a person's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TurnStartType {
    /// Everything else.
    #[serde(rename = "turn.start")]
    TurnStart,
    /// The checkpoint's input is `approve` or `respond` (agent engine).
    #[serde(rename = "approval.answer")]
    ApprovalAnswer,
}

/// Which engine runs the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// The agent loop.
    Agent,
    /// The flow engine.
    Flow,
}

/// Everything that a harness needs for one segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TurnStart {
    /// How the segment begins.
    #[serde(rename = "type")]
    pub kind: TurnStartType,
    /// Which engine.
    pub engine: EngineKind,
    /// The turn's manifest: the session's pin or a stored variant of it.
    pub manifest: Arc<Json>,
    /// The immutable start; an agent's `state.transcript` is empty.
    pub checkpoint: Checkpoint,
    /// Discovered tools; always present for agents, absent for flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_tools: Option<Arc<Vec<Json>>>,
    /// Completed effects of this segment.
    pub outcomes: Vec<RecordedOutcome>,
    /// Where the folded transcript stands.
    pub transcript: TranscriptAt,
    /// Limits and switches.
    pub options: RunOptions,
    /// Manifest and sandbox facts.
    pub routing: Routing,
}

/// `seq` of the last event that the fold used, or -1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TranscriptAt {
    /// The cursor.
    pub cursor: i64,
}

/// Options of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunOptions {
    /// When an agent's segment rolls over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yield_after: Option<YieldAfter>,
    /// Limits of a flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_limits: Option<Json>,
    /// Whether every model call is answered by the fixture model.
    pub fixture_model: bool,
    /// How long a pending Action may be waited for inside the lease, ms; 0 never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_ms: Option<u64>,
}

/// Rollover budget of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct YieldAfter {
    /// Steps of this segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// Milliseconds since the segment began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
}

/// Facts for the executors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Routing {
    /// The session's pinned manifest.
    pub root_manifest: Arc<Json>,
    /// Plugin roots by capability.
    pub plugin_roots: JsonMap,
    /// The pinned MCP snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_snapshot: Option<Arc<Json>>,
    /// The sandbox and whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxRoute>,
}

/// Whose sandbox a session uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxRoute {
    /// The owning session.
    pub owner_id: SessionId,
    /// The sandbox resource, if attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// Its spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Json>,
}

/// How a segment ended, as its harness says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputStatus {
    /// The turn is done.
    Completed,
    /// It waits for a person.
    Paused,
    /// It rolled over.
    Yielded,
    /// It waits for pending effects.
    Waiting,
    /// At least one effect's fate is unknown.
    Uncertain,
    /// The turn failed.
    Failed,
    /// The engine saw an abort.
    Cancelled,
}

/// A segment's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TurnOutput {
    /// Which run.
    pub run_id: RunId,
    /// How it ended; absent when the engine threw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<OutputStatus>,
    /// The engine's state without its transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Arc<Json>>,
    /// The turn's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<Json>>,
    /// What a paused turn waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Json>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Json>,
    /// What a waiting segment waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect_ids: Option<Vec<String>>,
    /// Siblings that a failed flow gives up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_effect_ids: Option<Vec<String>>,
    /// Edits against the transcript that the segment started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript: Option<Vec<Edit>>,
    /// What the engine threw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thrown: Option<Thrown>,
}

impl TurnOutput {
    /// An output with nothing but its run.
    #[must_use]
    pub fn of(run_id: RunId) -> Self {
        Self {
            run_id,
            status: None,
            state: None,
            output: None,
            pending: None,
            error: None,
            effect_ids: None,
            cancel_effect_ids: None,
            transcript: None,
            thrown: None,
        }
    }
}

/// An exception of the engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thrown {
    /// Its code, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Its text.
    pub message: String,
}

/// Why a run was told to stop (spec: durability, section 8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AbortKind {
    /// A person cancelled the turn; later results are discarded.
    #[serde(rename = "cancel")]
    Cancel,
    /// The process stops; nothing is settled, the segment resumes elsewhere.
    #[serde(rename = "shutdown")]
    Shutdown,
    /// The advance is older than its deadline; it settles.
    #[serde(rename = "deadline")]
    Deadline,
    /// Somebody else owns the session; nothing more is written.
    #[serde(rename = "ownership.lost")]
    OwnershipLost,
}

impl AbortKind {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Shutdown => "shutdown",
            Self::Deadline => "deadline",
            Self::OwnershipLost => "ownership.lost",
        }
    }
}

/// An abort and its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abort {
    /// Why.
    pub kind: AbortKind,
    /// In words.
    pub message: String,
}
