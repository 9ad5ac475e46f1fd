//! What the door takes and answers.

use std::sync::Arc;

use serde::Serialize;

use super::HarnessMode;
use crate::model::ids::{AgentId, SessionId};
use crate::model::json::{Json, JsonMap, JsonText};
use crate::model::session::SessionStatus;

/// `PUT /v1/agents/{id}`.
#[derive(Clone, Debug)]
pub struct PutAgent {
    /// The definition's id; equals the manifest's.
    pub id: AgentId,
    /// The manifest, already validated by `model::manifest::parse`.
    pub manifest: Json,
    /// Version of the application's code.
    pub implementation_version: String,
    /// `{name: absolutePath}`.
    pub plugin_roots: Option<JsonMap>,
}

/// A registered definition.
#[derive(Clone, Debug)]
pub struct AgentView {
    /// Its id.
    pub id: AgentId,
    /// The manifest's text.
    pub manifest: JsonText,
    /// Its hash.
    pub manifest_hash: String,
    /// Version of the application's code.
    pub implementation_version: String,
}

/// `PUT /v1/sessions/{id}`.
#[derive(Clone, Debug)]
pub struct OpenSession {
    /// Chosen by the client.
    pub id: SessionId,
    /// From which definition.
    pub agent_id: AgentId,
    /// Whose.
    pub owner_user_id: String,
    /// Trusted context.
    pub info: Option<JsonMap>,
    /// Attached vaults.
    pub vault_ids: Vec<String>,
    /// Credential selections, objects `{serverName, credentialId}`.
    pub credential_selections: Vec<Json>,
    /// `false`, `{id}`, `{session}` or inline; `None` when not sent.
    pub sandbox: Option<Json>,
    /// Canonical text of the body without `requestId`, `vaultIds`, `credentialSelections`.
    pub creation: String,
}

/// `GET /v1/sessions/{id}` (spec: http-api, section 6.3).
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// Its id.
    pub id: SessionId,
    /// Its definition.
    pub agent_id: AgentId,
    /// Whose.
    pub owner_user_id: String,
    /// Hash of the pin.
    pub manifest_hash: String,
    /// Version of the application's code.
    pub implementation_version: String,
    /// Where it stands.
    pub status: SessionStatus,
    /// The turn in progress.
    pub active_turn_id: Option<String>,
    /// Attached vaults.
    pub vault_ids: Json,
    /// Credential selections.
    pub credential_selections: Json,
    /// The session that owns the sandbox.
    pub sandbox_owner_id: Option<SessionId>,
    /// The sandbox resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// The sandbox spec or null.
    pub sandbox: Json,
    /// `default`, `inline`, `shared` or `sandbox`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_source: Option<String>,
    /// MCP snapshot or null.
    pub mcp_snapshot: Json,
    /// MCP diagnostics.
    pub mcp_diagnostics: Json,
    /// What it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<Json>,
    /// Text of a segment that threw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Actions that are pending, delivering or uncertain.
    pub actions: Vec<Json>,
    /// `{effectId, turnId, kind, error}` of the whole session.
    pub uncertain_effects: Vec<Json>,
}

/// A row of `GET /v1/sessions`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    /// Its id.
    pub id: SessionId,
    /// Its definition.
    pub agent_id: AgentId,
    /// Whose.
    pub owner_user_id: String,
    /// Where it stands.
    pub status: SessionStatus,
    /// The turn in progress.
    pub active_turn_id: Option<String>,
}

/// `GET /v1/sessions/{id}/items`.
#[derive(Clone, Debug)]
pub struct Items {
    /// Envelopes as JSON text, in order.
    pub items: Vec<Arc<str>>,
    /// Cursor of the last record read, the request's own when nothing was read, else none.
    pub cursor: Option<String>,
    /// Whether more was there to read when `limit` stopped it.
    pub more: bool,
}

/// What an observer is shown.
#[derive(Clone, Debug)]
pub enum Observed {
    /// A served event.
    Event {
        /// Its cursor.
        cursor: String,
        /// Its type.
        kind: &'static str,
        /// The envelope as JSON text.
        body: Arc<str>,
    },
    /// A piece of a model's answer, as JSON text; never recorded.
    Preview(Arc<str>),
}

/// The Tenant's figures for status pages.
#[derive(Clone, Debug)]
pub struct TenantFigures {
    /// Sessions, running ones, effects.
    pub counts: crate::ports::store::Counts,
    /// Where segments run.
    pub harness_mode: HarnessMode,
    /// In-process harnesses and connected peers count alike.
    pub harnesses_connected: usize,
    /// Whether a connected harness serves workspaces.
    pub harness_workspace: bool,
    /// Workspaces on record.
    pub workspaces: i64,
    /// Whether the Tenant still takes new work.
    pub accepting: bool,
}
