//! Effects: one journaled side effect each (spec: durability, section 6; harness-api, sections 7.4 and 11).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ids::{AgentId, EffectId, SessionId, TurnId};
use super::json::{Json, JsonMap};

/// What an effect does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EffectKind {
    /// A model call, made by the harness.
    Model,
    /// A tool call: by the harness (MCP, sandbox, scripted) or an Action.
    Tool,
    /// A hook point, always an Action.
    Hook,
    /// The start or the end of a sub-agent; only journaled.
    Delegation,
    /// A linked agent session of a flow.
    Agent,
    /// A function of a flow, an Action.
    Fn,
    /// A verifier of a flow's loop, an Action.
    Verify,
}

impl EffectKind {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Hook => "hook",
            Self::Delegation => "delegation",
            Self::Agent => "agent",
            Self::Fn => "fn",
            Self::Verify => "verify",
        }
    }

    /// The kind of a wire name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "model" => Self::Model,
            "tool" => Self::Tool,
            "hook" => Self::Hook,
            "delegation" => Self::Delegation,
            "agent" => Self::Agent,
            "fn" => Self::Fn,
            "verify" => Self::Verify,
            _ => return None,
        })
    }
}

/// Where an effect stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EffectStatus {
    /// Over the flow limit; not offered yet.
    Queued,
    /// Waits for an Action or a linked session.
    Pending,
    /// A harness has it in flight.
    Invoking,
    /// Its outcome is recorded.
    Completed,
    /// Its fate is unknown; never run again by us.
    Uncertain,
    /// Its turn was cancelled before it ran.
    Cancelled,
}

impl EffectStatus {
    /// The stored name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Pending => "pending",
            Self::Invoking => "invoking",
            Self::Completed => "completed",
            Self::Uncertain => "uncertain",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of a stored name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "queued" => Self::Queued,
            "pending" => Self::Pending,
            "invoking" => Self::Invoking,
            "completed" => Self::Completed,
            "uncertain" => Self::Uncertain,
            "cancelled" => Self::Cancelled,
            _ => return None,
        })
    }
}

/// The sub-agent that an effect belongs to; absent for the root agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentRef {
    /// The child's manifest id.
    pub id: String,
    /// `<rootId>/<childId>`.
    pub path: String,
    /// The parent call's invocation id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation_id: Option<String>,
}

/// A hook point of an effect of kind `hook`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EffectHook {
    /// `before` or `after`.
    pub at: String,
    /// `turn` or `step`.
    pub scope: String,
    /// The capabilities registered there, in manifest order.
    pub capability_ids: Vec<String>,
}

/// What a harness declares before it does anything. A `model` intent travels without `input`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EffectIntent {
    /// Deterministic id.
    pub effect_id: EffectId,
    /// The run's session.
    pub session_id: SessionId,
    /// The session's turn id (not the engine's).
    pub turn_id: TurnId,
    /// Always the root agent's.
    pub agent_id: AgentId,
    /// Always the root manifest's.
    pub manifest_hash: String,
    /// What it does.
    pub kind: EffectKind,
    /// The sub-agent, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentRef>,
    /// Capability of a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability_id: Option<String>,
    /// Tool name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// Hook point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<EffectHook>,
    /// Flow path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Flow function key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Flow iteration vector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<String>,
    /// The input; absent on the wire for a model.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub input: Option<Arc<Json>>,
    /// The context (engine section 3.5).
    pub context: JsonMap,
}

/// Reads a member that is there: a null is a value, only a missing member is none.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Arc<Json>>, D::Error> {
    Arc::deserialize(from).map(Some)
}

/// What an effect came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Outcome {
    /// The value; a missing one is null (a JavaScript endpoint whose function returns nothing).
    #[serde(default)]
    pub value: Arc<Json>,
    /// What it changes in the session's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_patch: Option<Arc<JsonMap>>,
}

/// A completed effect of a segment, sent along at its start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedOutcome {
    /// Which effect.
    pub effect_id: EffectId,
    /// The hash it was declared with.
    pub request_hash: String,
    /// Its outcome.
    pub outcome: Outcome,
}
