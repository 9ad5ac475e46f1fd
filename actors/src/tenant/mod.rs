//! The door for everybody outside the tree: what the API, the commands and the tests may ask of a Tenant.

mod actions;
mod config;
pub mod feeds;
mod items;
mod observer;
pub(crate) mod persist;
mod root;
mod sandboxes;
pub mod tree;
mod views;

use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use tokio::sync::oneshot;

pub use self::actions::Heartbeat;
pub use self::config::{HarnessMode, ModelOnCrash, TenantConfig, TenantPorts};
pub use self::observer::Observer;
pub use self::views::{
    AgentView, Items, Observed, OpenSession, PutAgent, SessionSummary, SessionView, TenantFigures,
};

use self::feeds::{Feeds, NoPlace};
use self::root::Root;
use self::tree::Tree;
use crate::artifacts::Artifacts;
use crate::harness::HarnessActor;
use crate::harness::wire::FrameSink;
use crate::messages::session::DoCommand;
use crate::messages::supervisor::{AttachHarness, CountHarnesses, DrainAll, ObserveAll, StartSession};
use crate::model::canonical::manifest_hash;
use crate::model::command::{Command, Receipt};
use crate::model::ids::{AgentId, SessionId, TenantId};
use crate::model::json::{Json, JsonText};
use crate::model::sandbox::id::grant_reaches;
use crate::ports::store::{DefinitionRow, Page, Reads, StoreError, StoreHandle, StoreResult};
use crate::ports::{WorkspaceError, Workspaces};
use crate::rules::commands::Prepared;
use crate::rules::workspaces::{self as rules_of_workspaces, SessionWorkspace};
use crate::rules::{Refusal, definitions, sessions};
use crate::session::SessionActor;
use crate::workspaces::{self, Missing};

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
        /// Grants of sandboxes: ids, and prefixes that end in `/*`. `None` is every sandbox, which is what an
        /// application's key gives; a token reaches only what its grants say.
        sandboxes: Option<Vec<String>>,
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

impl Reach {
    /// Whether a sandbox resource is reached, be it there or not.
    #[must_use]
    pub fn grants(&self, sandbox: &str) -> bool {
        match self {
            Self::All | Self::Person { sandboxes: None, .. } => true,
            Self::Person { sandboxes: Some(grants), .. } => {
                grants.iter().any(|grant| grant_reaches(grant, sandbox))
            }
        }
    }

    /// Whether the caller acts for a person: what is not theirs is as good as missing.
    #[must_use]
    pub fn is_person(&self) -> bool {
        matches!(self, Self::Person { .. })
    }
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

    /// Its artifacts.
    #[must_use]
    pub fn artifacts(&self) -> &Artifacts {
        self.tree.artifacts()
    }

    /// Its workspaces, wherever they are.
    #[must_use]
    pub fn workspaces(&self) -> Arc<dyn Workspaces> {
        workspaces::of(&self.tree)
    }

    /// Sweeps the workspaces once, beside the sweeper's own time: whatever is on record as running when a process starts
    /// does not run.
    ///
    /// # Errors
    /// Whatever stopped it; the sweeper makes up for it.
    pub async fn sweep_workspaces(&self) -> Result<(), WorkspaceError> {
        workspaces::sweep(&self.tree, &Missing::default()).await
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
