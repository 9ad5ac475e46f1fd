//! The door for everybody outside the tree: what the API, the commands and the tests may ask of a Tenant.

mod actions;
pub mod feeds;
mod items;
mod observer;
pub(crate) mod persist;
mod root;
pub mod tree;

use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use serde::Serialize;
use tokio::sync::oneshot;

pub use self::actions::Heartbeat;
pub use self::observer::Observer;

use self::feeds::{Feeds, NoPlace};
use self::root::Root;
use self::tree::Tree;
use crate::harness::HarnessActor;
use crate::harness::wire::FrameSink;
use crate::limits::{HARNESS_PING_MS, HARNESS_SILENCE_MS};
use crate::messages::session::DoCommand;
use crate::messages::supervisor::{AttachHarness, CountHarnesses, DrainAll, ObserveAll, StartSession};
use crate::model::canonical::manifest_hash;
use crate::model::command::{Command, Receipt};
use crate::model::ids::{AgentId, SessionId, TenantId, WorkerId};
use crate::model::json::{Json, JsonMap, JsonText};
use crate::model::session::SessionStatus;
use crate::model::turn::YieldAfter;
use crate::ports::store::{DefinitionRow, Page, Reads, StoreError, StoreHandle, StoreResult};
use crate::ports::{ActionTransport, Clock, Engine, Entropy, Schemas, WorkspaceManager, Workspaces};
use crate::rules::commands::Prepared;
use crate::rules::workspaces::{self as rules_of_workspaces, SessionWorkspace};
use crate::rules::{Refusal, definitions, sessions};
use crate::session::SessionActor;
use crate::workspaces;

/// How often a session's actor is looked for before its caller is told to come back.
const FIND_ATTEMPTS: usize = 50;

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

/// Where segments run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HarnessMode {
    /// In this process; harnesses that connect take runs too, but sessions stay beside their actor.
    #[default]
    InProcess,
    /// Only in harnesses that connect.
    Remote,
}

impl HarnessMode {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProcess => "in-process",
            Self::Remote => "remote",
        }
    }
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
    /// Life of a background delivery without a heartbeat.
    pub action_lease_ms: i64,
    /// Age from which an Action whose delivery fails is parked.
    pub delivery_max_age_ms: i64,
    /// Pause between two passes of the sweeper.
    pub sweep_interval_ms: u64,
    /// How long a session without work stays in memory.
    pub idle_after_ms: u64,
    /// Threads that sessions are spread over.
    pub arbiters: usize,
    /// A model call cut by a crash.
    pub model_on_crash: ModelOnCrash,
    /// Where segments run.
    pub harness: HarnessMode,
    /// Pause between two looks at a connected harness's silence.
    pub harness_ping_ms: u64,
    /// Silence, or frames that are not read, after which a connected harness is dropped.
    pub harness_silence_ms: u64,
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
            action_lease_ms: 30_000,
            delivery_max_age_ms: 24 * 60 * 60_000,
            sweep_interval_ms: 5_000,
            idle_after_ms: 15_000,
            arbiters: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            model_on_crash: ModelOnCrash::Repeat,
            harness: HarnessMode::InProcess,
            harness_ping_ms: HARNESS_PING_MS,
            harness_silence_ms: HARNESS_SILENCE_MS,
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
    /// The workspaces of the in-process harness, if it has any.
    pub workspaces: Option<Arc<dyn WorkspaceManager>>,
    /// How deliveries reach Action endpoints.
    pub actions: Arc<dyn ActionTransport>,
    /// How outputs of tools are checked.
    pub schemas: Arc<dyn Schemas>,
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

/// A running Tenant. Cheap to clone; lives as long as its tree.
#[derive(Clone)]
pub struct Tenant {
    tree: Arc<Tree>,
    root: Arc<Root>,
}

impl Tenant {
    /// Starts the tree of the store's Tenant. Must be called on an actix arbiter.
    ///
    /// # Errors
    /// The store's, when its Tenant cannot be read.
    pub async fn start(config: TenantConfig, ports: TenantPorts) -> Result<Self, StoreError> {
        let row = ports.store.read(|reads| reads.tenant()).await?;
        let feeds = Arc::new(Feeds::default());
        let listener = Arc::clone(&feeds);
        ports.store.store().on_commit(Arc::new(move |events| listener.publish(events)));
        let tree = Arc::new(Tree::new(row.id, ports, config, feeds));
        let root = Root::start(Arc::clone(&tree));
        Ok(Self { tree, root })
    }

    /// The Tenant's id.
    #[must_use]
    pub fn id(&self) -> &TenantId {
        &self.tree.tenant
    }

    /// Its store, for rules that need no actor (keys, settings, status).
    #[must_use]
    pub fn store(&self) -> &StoreHandle {
        &self.tree.ports.store
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &TenantConfig {
        &self.tree.config
    }

    /// What it was given from outside.
    #[must_use]
    pub fn ports(&self) -> &TenantPorts {
        &self.tree.ports
    }

    /// What its actors share; for tests that reach into the tree.
    #[must_use]
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Stops the tree: streams end, every advance is told `shutdown` and gives its lease back. Nothing is lost; whoever
    /// opens the store next resumes. Answers when all are idle, or when the grace has passed.
    pub async fn stop(&self) {
        self.tree.close();
        self.tree.feeds.end();
        let grace =
            Duration::from_millis(u64::try_from(self.tree.config.abort_grace_ms).unwrap_or(0) + 1_000);
        let (done, drained) = oneshot::channel();
        if let Some(supervisor) = self.tree.supervisor() {
            supervisor.do_send(DrainAll { done });
            if tokio::time::timeout(grace, drained).await.is_err() {
                tracing::warn!("some advances did not stop in their grace and were abandoned");
            }
        }
        self.root.stop();
    }

    /// Registers or replaces a definition. Existing sessions keep their pin.
    ///
    /// # Errors
    /// The store's.
    pub async fn put_agent(&self, put: PutAgent) -> Result<AgentView, Refusal> {
        let manifest = JsonText::of(&put.manifest);
        let row = DefinitionRow {
            id: put.id,
            manifest_hash: manifest_hash(&put.manifest),
            implementation_version: put.implementation_version,
            plugin_roots: put.plugin_roots.as_ref().map(JsonText::of),
        };
        let (stored, text) = (row.clone(), manifest.clone());
        self.store().tx(move |tx| definitions::put(tx, &stored, &text)).await?;
        Ok(agent_view(row, manifest))
    }

    /// Definitions by id.
    ///
    /// # Errors
    /// The store's.
    pub async fn agents(&self, page: Page) -> Result<Vec<AgentView>, Refusal> {
        let rows = self.store().read(move |reads| definitions::list(reads, &page)).await?;
        Ok(rows.into_iter().map(|(row, manifest)| agent_view(row, manifest)).collect())
    }

    /// Opens a session or re-attaches to it (spec: http-api, section 6.1, steps 5 to 13).
    ///
    /// # Errors
    /// As the section says.
    pub async fn open_session(&self, open: OpenSession, reach: &Reach) -> Result<SessionView, Refusal> {
        let reach = reach.clone();
        self.store().tx(move |tx| sessions::open(tx, &open, &reach)).await
    }

    /// One session.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], also when it is out of reach.
    pub async fn session(&self, id: &SessionId, reach: &Reach) -> Result<SessionView, Refusal> {
        let (id, reach) = (id.clone(), reach.clone());
        self.store().read(move |reads| sessions::view(reads, &id, &reach)).await
    }

    /// Sessions by id. `page.after` is the last id of the page before.
    ///
    /// # Errors
    /// The store's.
    pub async fn sessions(
        &self,
        agent: Option<AgentId>,
        reach: &Reach,
        page: Page,
    ) -> Result<Vec<SessionSummary>, Refusal> {
        let reach = reach.clone();
        let list = move |reads: &mut dyn Reads| sessions::list(reads, agent.as_ref(), &reach, &page);
        Ok(self.store().read(list).await?)
    }

    /// Gives a session a command and answers after the commit that accepts it.
    ///
    /// # Errors
    /// As spec http-api, section 7 says.
    pub async fn command(&self, id: &SessionId, command: Command, reach: &Reach) -> Result<Receipt, Refusal> {
        let prepared = Prepared::new(command);
        for _ in 0..FIND_ATTEMPTS {
            let Some(actor) = self.find(id).await? else { return Err(Refusal::Closing) };
            let message = DoCommand { prepared: prepared.clone(), reach: reach.clone() };
            // A closed mailbox means that the actor left memory before it saw the message.
            if let Ok(answer) = actor.send(message).await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(StoreError::Unavailable("the session's actor dies again and again".into()).into())
    }

    /// The actor of a session that exists. A session that does not exist costs no actor.
    async fn find(&self, id: &SessionId) -> Result<Option<Addr<SessionActor>>, Refusal> {
        if let Some(actor) = self.tree.session(id)
            && actor.connected()
        {
            return Ok(Some(actor));
        }
        let wanted = id.clone();
        let exists = self.store().read(move |r| Ok::<_, StoreError>(r.session(&wanted)?.is_some())).await?;
        if !exists {
            return Err(Refusal::not_found("session"));
        }
        for _ in 0..FIND_ATTEMPTS {
            if self.tree.is_closing() {
                return Ok(None);
            }
            if let Some(supervisor) = self.tree.supervisor()
                && let Ok(found) = supervisor.send(StartSession { id: id.clone() }).await
            {
                return Ok(found);
            }
            // The supervisor itself died; its successor is started within moments.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(None)
    }

    /// History: events after `cursor` up to the tail seen now. `agent` filters by `payload.agent.path` or `.delegationId`.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]; [`Refusal::Invalid`] for a cursor of something else.
    pub async fn items(
        &self,
        id: &SessionId,
        reach: &Reach,
        cursor: Option<&str>,
        agent: Option<&str>,
        limit: Option<usize>,
    ) -> Result<Items, Refusal> {
        let request = items::Request {
            session: id.clone(),
            reach: reach.clone(),
            cursor: cursor.filter(|c| !c.is_empty()).map(str::to_owned),
            agent: agent.map(str::to_owned),
            limit,
        };
        items::read(self.store(), request).await
    }

    /// Replay and live in one stream, from after `cursor` (an empty or absent one: from 0).
    ///
    /// # Errors
    /// As [`Tenant::items`]; [`Refusal::Closing`] when the Tenant closes, [`Refusal::Busy`] when too many observe.
    pub async fn observe(
        &self,
        id: &SessionId,
        reach: &Reach,
        cursor: Option<&str>,
        previews: bool,
    ) -> Result<Observer, Refusal> {
        let next = items::after(id, cursor)?;
        let (wanted, reach) = (id.clone(), reach.clone());
        self.store().read(move |reads| sessions::reachable(reads, &wanted, &reach).map(|_| ())).await?;
        // The place at the ring is taken before the record is read, so nothing falls between the two.
        let feed = self.tree.feeds.subscribe(id).map_err(|no| match no {
            NoPlace::Ended => Refusal::Closing,
            NoPlace::Full => Refusal::Busy("Too many observe this session already".into()),
        })?;
        Ok(Observer::new(self.store().clone(), id.clone(), feed, next, previews))
    }

    /// Figures for status pages.
    ///
    /// # Errors
    /// The store's.
    pub async fn figures(&self) -> Result<TenantFigures, Refusal> {
        let read =
            |reads: &mut dyn Reads| -> StoreResult<_> { Ok((reads.counts()?, reads.count_workspaces()?)) };
        let (counts, workspaces) = self.store().read(read).await?;
        let harnesses = match self.tree.supervisor() {
            Some(supervisor) => supervisor.send(CountHarnesses).await.unwrap_or_default(),
            None => (0, false),
        };
        Ok(TenantFigures {
            counts,
            harness_mode: self.tree.config.harness,
            harnesses_connected: harnesses.0,
            harness_workspace: harnesses.1,
            workspaces,
            accepting: !self.tree.is_closing(),
        })
    }

    /// A harness has connected: its actor, or `None` when the Tenant closes. `pod`: the sandbox whose engine it is.
    pub async fn attach_harness(
        &self,
        sink: Box<dyn FrameSink>,
        peer: String,
        pod: Option<String>,
    ) -> Option<Addr<HarnessActor>> {
        self.tree.supervisor()?.send(AttachHarness { sink, peer, pod }).await.ok().flatten()
    }

    /// Its workspaces, wherever they are.
    #[must_use]
    pub fn workspaces(&self) -> Arc<dyn Workspaces> {
        workspaces::of(&self.tree)
    }

    /// A session's turn in progress and its workspace, for the tool routes.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub async fn session_workspace(&self, id: &SessionId) -> Result<SessionWorkspace, Refusal> {
        let id = id.clone();
        let found =
            self.store().read(move |reads: &mut dyn Reads| rules_of_workspaces::of_session(reads, &id));
        found.await?.ok_or_else(|| Refusal::not_found("session"))
    }

    /// The observable state of every actor: `[{kind, id, state: {…}}]`.
    pub async fn actors(&self) -> Vec<Json> {
        match self.tree.supervisor() {
            Some(supervisor) => supervisor.send(ObserveAll).await.unwrap_or_default(),
            None => Vec::new(),
        }
    }
}

fn agent_view(row: DefinitionRow, manifest: JsonText) -> AgentView {
    AgentView {
        id: row.id,
        manifest,
        manifest_hash: row.manifest_hash,
        implementation_version: row.implementation_version,
    }
}
