//! The door for everybody outside the tree: what the API, the commands and the tests may ask of a Tenant.

use std::sync::Arc;

use serde::Serialize;

use crate::model::command::{Command, Receipt};
use crate::model::ids::{AgentId, SessionId, TenantId, WorkerId};
use crate::model::json::{Json, JsonMap, JsonText};
use crate::model::session::SessionStatus;
use crate::model::turn::YieldAfter;
use crate::ports::store::{Page, StoreHandle};
use crate::ports::{Clock, Engine, Entropy};
use crate::rules::Refusal;

/// Whose sessions a caller reaches (spec: http-api, section 3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// An application key acting as itself: all.
    All,
    /// A person: their own; with an allowlist only of those agents.
    Person {
        /// The subject.
        subject: String,
        /// `None` is every agent.
        agents: Option<Vec<AgentId>>,
        /// Whether an issuer's token speaks (it may not set `info`, nor a turn's manifest).
        token: bool,
    },
}

impl Reach {
    /// Whether a session of this owner and agent is reached.
    #[must_use]
    pub fn includes(&self, owner_user: &str, agent: &AgentId) -> bool {
        match self {
            Self::All => true,
            Self::Person { subject, agents, .. } => {
                subject == owner_user && agents.as_ref().is_none_or(|list| list.contains(agent))
            }
        }
    }
}

/// How a model call that a crash has cut is treated (DESIGN.md, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ModelOnCrash {
    /// Made again under the same effect, counted as a duplicate.
    #[default]
    Repeat,
    /// Its fate is unknown, like a tool's.
    Uncertain,
}

/// Times and sizes of a Tenant. Milliseconds where nothing else is said.
#[derive(Clone, Debug)]
pub struct TenantConfig {
    /// This process, with a random part.
    pub worker: WorkerId,
    /// Life of a session's lease.
    pub owner_lease_ms: i64,
    /// Age at which an advance is told to end.
    pub advance_deadline_ms: i64,
    /// Time an aborted advance has left.
    pub abort_grace_ms: i64,
    /// When an agent's segment rolls over.
    pub rollover: YieldAfter,
    /// How long a run waits for an Action inside its lease.
    pub action_hold_ms: u64,
    /// Pause between two passes of the sweeper.
    pub sweep_interval_ms: u64,
    /// How long a session without work stays in memory.
    pub idle_after_ms: u64,
    /// Threads that sessions are spread over.
    pub arbiters: usize,
    /// A model call cut by a crash.
    pub model_on_crash: ModelOnCrash,
}

impl TenantConfig {
    /// The defaults of the spec (durability, section 21) for a worker.
    #[must_use]
    pub fn new(worker: WorkerId) -> Self {
        Self {
            worker,
            owner_lease_ms: 30_000,
            advance_deadline_ms: 50 * 60_000,
            abort_grace_ms: 30_000,
            rollover: YieldAfter { steps: Some(50), ms: Some(20 * 60_000) },
            action_hold_ms: 5 * 60_000,
            sweep_interval_ms: 5_000,
            idle_after_ms: 15_000,
            arbiters: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            model_on_crash: ModelOnCrash::Repeat,
        }
    }
}

/// What a Tenant needs from outside.
#[derive(Clone)]
pub struct TenantPorts {
    /// The truth.
    pub store: StoreHandle,
    /// Wall clock for what is not a lease.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub entropy: Arc<dyn Entropy>,
    /// The engine of the in-process harness.
    pub engine: Arc<dyn Engine>,
}

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
    /// In-process harnesses and connected peers count alike.
    pub harnesses_connected: usize,
    /// Whether a connected harness serves workspaces.
    pub harness_workspace: bool,
    /// Whether the Tenant still takes new work.
    pub accepting: bool,
}

/// A running Tenant. Cheap to clone; lives as long as its tree.
#[derive(Clone)]
pub struct Tenant {
    shared: Arc<Shared>,
}

struct Shared {
    id: TenantId,
    ports: TenantPorts,
    config: TenantConfig,
}

impl Tenant {
    /// The Tenant's id.
    #[must_use]
    pub fn id(&self) -> &TenantId {
        &self.shared.id
    }

    /// Its store, for rules that need no actor (keys, settings, status).
    #[must_use]
    pub fn store(&self) -> &StoreHandle {
        &self.shared.ports.store
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &TenantConfig {
        &self.shared.config
    }

    /// Registers or replaces a definition. Existing sessions keep their pin.
    ///
    /// # Errors
    /// The store's.
    pub async fn put_agent(&self, _put: PutAgent) -> Result<AgentView, Refusal> {
        Err(Refusal::Closing)
    }

    /// Definitions by id.
    ///
    /// # Errors
    /// The store's.
    pub async fn agents(&self, _page: Page) -> Result<Vec<AgentView>, Refusal> {
        Err(Refusal::Closing)
    }

    /// Opens a session or re-attaches to it (spec: http-api, section 6.1, steps 5 to 13).
    ///
    /// # Errors
    /// As the section says.
    pub async fn open_session(&self, _open: OpenSession, _reach: &Reach) -> Result<SessionView, Refusal> {
        Err(Refusal::Closing)
    }

    /// One session.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], also when it is out of reach.
    pub async fn session(&self, _id: &SessionId, _reach: &Reach) -> Result<SessionView, Refusal> {
        Err(Refusal::Closing)
    }

    /// Sessions by id. `page.after` is the last id of the page before.
    ///
    /// # Errors
    /// The store's.
    pub async fn sessions(
        &self,
        _agent: Option<AgentId>,
        _reach: &Reach,
        _page: Page,
    ) -> Result<Vec<SessionSummary>, Refusal> {
        Err(Refusal::Closing)
    }

    /// Gives a session a command and answers after the commit that accepts it.
    ///
    /// # Errors
    /// As spec http-api, section 7 says.
    pub async fn command(
        &self,
        _id: &SessionId,
        _command: Command,
        _reach: &Reach,
    ) -> Result<Receipt, Refusal> {
        Err(Refusal::Closing)
    }

    /// History: events after `cursor` up to the tail seen now. `agent` filters by `payload.agent.path` or `.delegationId`.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]; [`Refusal::Invalid`] for a cursor of something else.
    pub async fn items(
        &self,
        _id: &SessionId,
        _reach: &Reach,
        _cursor: Option<&str>,
        _agent: Option<&str>,
        _limit: Option<usize>,
    ) -> Result<Items, Refusal> {
        Err(Refusal::Closing)
    }

    /// Replay and live in one stream, from after `cursor` (an empty or absent one: from 0).
    ///
    /// # Errors
    /// As [`Tenant::items`].
    pub async fn observe(
        &self,
        _id: &SessionId,
        _reach: &Reach,
        _cursor: Option<&str>,
        _previews: bool,
    ) -> Result<Observer, Refusal> {
        Err(Refusal::Closing)
    }

    /// Figures for status pages.
    ///
    /// # Errors
    /// The store's.
    pub async fn figures(&self) -> Result<TenantFigures, Refusal> {
        Err(Refusal::Closing)
    }

    /// The observable state of every actor: `[{kind, id, state: {…}}]`.
    pub async fn actors(&self) -> Vec<Json> {
        Vec::new()
    }
}

/// One observer of one session.
pub struct Observer;

impl Observer {
    /// The next thing to show; `None` ends the stream (session gone, Tenant closing).
    pub async fn next(&mut self) -> Option<Observed> {
        None
    }
}
