//! What the actors of one tree share: ports, configuration, the directory of sessions, the current supervisor.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use actix::Addr;
use tokio::time::Instant;

use super::feeds::Feeds;
use super::{TenantConfig, TenantPorts};
use crate::artifacts::Artifacts;
use crate::endpoint::EndpointActor;
use crate::harness::HarnessActor;
use crate::limits::MANIFEST_CACHE;
use crate::messages::endpoint::{AbortDeliveries, Delivered, Look};
use crate::messages::session::ActionResolved;
use crate::messages::supervisor::{Child, Gone, NudgeEndpoints, WakeSessions};
use crate::model::Json;
use crate::model::ids::{AgentId, SessionId, TenantId, TurnId};
use crate::rules::actions::Resolution;
use crate::session::SessionActor;
use crate::supervisor::TenantSupervisor;
use crate::sweeper::Sweeper;

/// Shared by the actors of one tree.
pub struct Tree {
    /// The Tenant.
    pub tenant: TenantId,
    /// What the tree needs from outside.
    pub ports: TenantPorts,
    /// Times and sizes.
    pub config: TenantConfig,
    /// Live events for observers.
    pub feeds: Arc<Feeds>,
    artifacts: Artifacts,
    directory: RwLock<HashMap<SessionId, Entry>>,
    supervisor: RwLock<Option<Addr<TenantSupervisor>>>,
    manifests: Mutex<HashMap<String, Arc<Json>>>,
    deaths: Mutex<HashMap<Child, (u32, Instant)>>,
    children: Mutex<Children>,
    generation: AtomicU64,
    closing: AtomicBool,
}

/// Children other than sessions. They outlive their supervisor: a successor adopts them.
#[derive(Default)]
pub struct Children {
    /// The in-process harness of each arbiter.
    pub harnesses: Vec<Option<(u64, Addr<HarnessActor>)>>,
    /// Harnesses that have connected, by generation, with the pod that each hosts.
    pub connections: BTreeMap<u64, (Addr<HarnessActor>, Option<String>)>,
    /// Action endpoints that have something to do, by agent.
    pub endpoints: BTreeMap<AgentId, (u64, Addr<EndpointActor>)>,
    /// The sweeper.
    pub sweeper: Option<(u64, Addr<Sweeper>)>,
}

/// How long a child that dies again and again is remembered for it.
const FORGET_DEATHS_AFTER: Duration = Duration::from_secs(60);

struct Entry {
    generation: u64,
    addr: Addr<SessionActor>,
}

impl Tree {
    /// A tree without actors.
    #[must_use]
    pub fn new(tenant: TenantId, ports: TenantPorts, config: TenantConfig, feeds: Arc<Feeds>) -> Self {
        let artifacts = Artifacts::new(ports.store.clone(), Arc::clone(&ports.blobs));
        Self {
            tenant,
            ports,
            config,
            feeds,
            artifacts,
            directory: RwLock::default(),
            supervisor: RwLock::default(),
            manifests: Mutex::default(),
            deaths: Mutex::default(),
            children: Mutex::default(),
            generation: AtomicU64::new(1),
            closing: AtomicBool::new(false),
        }
    }

    /// The Tenant's artifacts.
    #[must_use]
    pub fn artifacts(&self) -> &Artifacts {
        &self.artifacts
    }

    /// A number that no child has had.
    #[must_use]
    pub fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Relaxed)
    }

    /// The supervisor now.
    #[must_use]
    pub fn supervisor(&self) -> Option<Addr<TenantSupervisor>> {
        self.supervisor.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A supervisor has started.
    pub fn set_supervisor(&self, addr: Addr<TenantSupervisor>) {
        *self.supervisor.write().unwrap_or_else(PoisonError::into_inner) = Some(addr);
    }

    /// The actor of a session, if it is in memory.
    #[must_use]
    pub fn session(&self, id: &SessionId) -> Option<Addr<SessionActor>> {
        let directory = self.directory.read().unwrap_or_else(PoisonError::into_inner);
        directory.get(id).map(|e| e.addr.clone())
    }

    /// All sessions in memory.
    #[must_use]
    pub fn sessions(&self) -> Vec<(SessionId, Addr<SessionActor>)> {
        let directory = self.directory.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = directory.iter().map(|(id, e)| (id.clone(), e.addr.clone())).collect();
        // In an order, so that a simulation that is run again does the same.
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// Enters a session's actor.
    pub fn enter(&self, id: SessionId, generation: u64, addr: Addr<SessionActor>) {
        let mut directory = self.directory.write().unwrap_or_else(PoisonError::into_inner);
        directory.insert(id, Entry { generation, addr });
    }

    /// Takes a session's actor out, if it is still this instance; whether it was.
    pub fn leave(&self, id: &SessionId, generation: u64) -> bool {
        let mut directory = self.directory.write().unwrap_or_else(PoisonError::into_inner);
        if directory.get(id).is_some_and(|e| e.generation == generation) {
            directory.remove(id);
            true
        } else {
            false
        }
    }

    /// Sessions in memory.
    #[must_use]
    pub fn sessions_in_memory(&self) -> usize {
        self.directory.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The children other than sessions.
    pub fn children(&self) -> MutexGuard<'_, Children> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a death of a child; deaths with time between them are forgotten.
    pub fn died(&self, child: &Child) {
        let now = Instant::now();
        let mut deaths = self.deaths.lock().unwrap_or_else(PoisonError::into_inner);
        deaths.retain(|_, (_, last)| now.duration_since(*last) < FORGET_DEATHS_AFTER);
        let entry = deaths.entry(child.clone()).or_insert((0, now));
        *entry = (entry.0 + 1, now);
    }

    /// How often a session's actor died without progress of its session.
    #[must_use]
    pub fn deaths_of(&self, id: &SessionId) -> u32 {
        let deaths = self.deaths.lock().unwrap_or_else(PoisonError::into_inner);
        deaths.get(&Child::Session(id.clone())).map_or(0, |(count, _)| *count)
    }

    /// A session has made progress: earlier deaths of its actor count no more.
    pub fn forgive(&self, id: &SessionId) {
        let mut deaths = self.deaths.lock().unwrap_or_else(PoisonError::into_inner);
        deaths.remove(&Child::Session(id.clone()));
    }

    /// The actor of an agent's endpoint, if it is in memory.
    #[must_use]
    pub fn endpoint(&self, agent: &AgentId) -> Option<Addr<EndpointActor>> {
        self.children().endpoints.get(agent).map(|(_, addr)| addr.clone()).filter(Addr::connected)
    }

    /// Takes an endpoint's actor out, if it is still this instance.
    pub fn leave_endpoint(&self, agent: &AgentId, generation: u64) {
        let mut children = self.children();
        if children.endpoints.get(agent).is_some_and(|(current, _)| *current == generation) {
            children.endpoints.remove(agent);
        }
    }

    /// An agent's endpoint may have something to deliver. Never waits: what is missed here the sweeper finds.
    pub fn nudge_endpoint(&self, agent: &AgentId) {
        if let Some(endpoint) = self.endpoint(agent) {
            // A full mailbox has a look before it that sees the same.
            let _ = endpoint.try_send(Look);
        } else if let Some(supervisor) = self.supervisor() {
            let _ = supervisor.try_send(NudgeEndpoints { agents: vec![agent.clone()] });
        }
    }

    /// A delivery's task is over.
    pub(crate) async fn tell_endpoint(&self, agent: &AgentId, delivered: Delivered) {
        match self.endpoint(agent) {
            // An actor that is gone meanwhile has a successor that looks when it starts.
            Some(endpoint) => drop(endpoint.send(delivered).await),
            None => self.nudge_endpoint(agent),
        }
    }

    /// A cancelled turn's deliveries are cut; their Actions are settled already.
    pub(crate) fn abort_deliveries(&self, agent: &AgentId, session: &SessionId, turn: &TurnId) {
        if let Some(endpoint) = self.endpoint(agent) {
            let abort = AbortDeliveries { session: session.clone(), turn: turn.clone() };
            // Rare control: one for each cancelled turn.
            endpoint.do_send(abort);
        }
    }

    /// An Action has its outcome: a run held for it is told, or the session resumed. What is missed here the wake in the
    /// outbox brings.
    pub(crate) async fn resolved(&self, resolution: Resolution) {
        let Resolution { session, effect, outcome } = resolution;
        if let Some(actor) = self.session(&session)
            && actor.send(ActionResolved { effect, outcome }).await.is_ok()
        {
            return;
        }
        self.wake(session).await;
    }

    /// Has a session looked at. What is missed here the wake in the outbox brings.
    pub(crate) async fn wake(&self, session: SessionId) {
        if let Some(supervisor) = self.supervisor() {
            let _ = supervisor.send(WakeSessions { sessions: vec![session] }).await;
        }
    }

    /// The arbiter of a session or an agent's endpoint: by hash of its id, the same for as long as the process lives.
    #[must_use]
    pub fn arbiter_of(&self, id: &str) -> usize {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let arbiters = u64::try_from(self.config.arbiters.max(1)).unwrap_or(1);
        usize::try_from(hasher.finish() % arbiters).unwrap_or(0)
    }

    /// A parsed manifest, if it is kept.
    #[must_use]
    pub fn manifest(&self, hash: &str) -> Option<Arc<Json>> {
        self.manifests.lock().unwrap_or_else(PoisonError::into_inner).get(hash).cloned()
    }

    /// Keeps a parsed manifest.
    pub fn keep_manifest(&self, hash: String, manifest: Arc<Json>) {
        let mut kept = self.manifests.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MANIFEST_CACHE {
            kept.clear();
        }
        kept.insert(hash, manifest);
    }

    /// Whether the Tenant is closing.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// The Tenant closes: nothing new is taken.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }
}

/// Held by every child. When the child leaves memory, in order or by a panic, its supervisor is told.
pub struct ChildGuard {
    tree: Arc<Tree>,
    child: Child,
    generation: u64,
    clean: bool,
}

impl ChildGuard {
    /// A guard of a child that has just been made.
    #[must_use]
    pub fn new(tree: Arc<Tree>, child: Child, generation: u64) -> Self {
        Self { tree, child, generation, clean: false }
    }

    /// The child stops in order.
    pub fn stops_in_order(&mut self) {
        self.clean = true;
    }

    /// Which instance.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let gone = Gone { child: self.child.clone(), generation: self.generation, clean: self.clean };
        if let Some(supervisor) = self.tree.supervisor() {
            // At most one for each child: bounded by how many there are, so past the mailbox's bound is safe.
            supervisor.do_send(gone);
        }
    }
}
