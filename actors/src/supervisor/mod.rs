//! TenantSupervisor: starts, finds, watches and stops everything below, and owns the lease broker.
//!
//! actix's own supervisor does not restart after a panic, so each child holds a [`ChildGuard`] whose `Drop` sends
//! [`Gone`]; this actor then starts a new child, and the store says what its work is. Children are found through the
//! shared directory of [`Tree`], so this actor is asked only when one must be started.

mod broker;
mod places;
mod workspaces;

use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::timeout;

pub use self::broker::Placement;

use self::broker::{Broker, PREFER_FOR};
use self::places::Places;
use crate::endpoint::EndpointActor;
use crate::harness::HarnessActor;
use crate::limits::SUPERVISOR_MAILBOX;
use crate::messages::Observe;
use crate::messages::endpoint::{DrainEndpoint, Look};
use crate::messages::harness::Introduce;
use crate::messages::session::{Drain, Wake};
use crate::messages::supervisor::{
    AttachHarness, Child, CountHarnesses, DrainAll, Gone, HarnessSays, NudgeEndpoints, ObserveAll, Offer,
    ParkLease, StartEndpoint, StartSession, WakeSessions, WithdrawLease,
};
use crate::model::Json;
use crate::model::ids::{AgentId, SessionId};
use crate::session::SessionActor;
use crate::sweeper::Sweeper;
use crate::tenant::HarnessMode;
use crate::tenant::tree::{ChildGuard, Tree};

/// How long one actor may take to say how it is.
const OBSERVE_WITHIN: Duration = Duration::from_secs(1);

/// The root of a Tenant's tree.
pub struct TenantSupervisor {
    tree: Arc<Tree>,
    arbiters: Arc<Vec<ArbiterHandle>>,
    next_arbiter: usize,
    broker: Broker,
    places: Places,
    restarts: u64,
    /// Dropped with this actor; whoever holds the other end starts a successor.
    _alive: oneshot::Sender<()>,
}

impl TenantSupervisor {
    /// A supervisor over these arbiters (none: everything lives on the current one). `alive` is dropped with it.
    #[must_use]
    pub fn new(tree: Arc<Tree>, arbiters: Arc<Vec<ArbiterHandle>>, alive: oneshot::Sender<()>) -> Self {
        Self {
            tree,
            arbiters,
            next_arbiter: 0,
            broker: Broker::default(),
            places: Places::default(),
            restarts: 0,
            _alive: alive,
        }
    }

    fn arbiter(&self, index: usize) -> ArbiterHandle {
        self.arbiters.get(index).cloned().unwrap_or_else(|| Arbiter::current().clone())
    }

    fn start_harness(&mut self, index: usize) {
        let generation = self.tree.next_generation();
        let guard = ChildGuard::new(Arc::clone(&self.tree), Child::Harness(index), generation);
        let tree = Arc::clone(&self.tree);
        let addr = HarnessActor::start_in_arbiter(&self.arbiter(index), move |_| {
            HarnessActor::in_process(tree, guard, index)
        });
        if let Some(place) = self.tree.children().harnesses.get_mut(index) {
            *place = Some((generation, addr.clone()));
        }
        self.broker.attach(generation, addr, None, Some(index));
    }

    fn start_sweeper(&mut self) {
        let generation = self.tree.next_generation();
        let guard = ChildGuard::new(Arc::clone(&self.tree), Child::Sweeper, generation);
        let tree = Arc::clone(&self.tree);
        let addr = Sweeper::start_in_arbiter(&self.arbiter(0), move |_| Sweeper::new(tree, guard));
        self.tree.children().sweeper = Some((generation, addr));
    }

    fn start_session(&mut self, id: &SessionId) -> Option<Addr<SessionActor>> {
        if let Some(addr) = self.tree.session(id)
            && addr.connected()
        {
            return Some(addr);
        }
        if self.tree.is_closing() {
            return None;
        }
        let index = self.tree.arbiter_of(id.as_str());
        let generation = self.tree.next_generation();
        let deaths = self.tree.deaths_of(id);
        let guard = ChildGuard::new(Arc::clone(&self.tree), Child::Session(id.clone()), generation);
        let harness = self.harness_of(index).map(|(_, addr)| addr);
        let tree = Arc::clone(&self.tree);
        let session = id.clone();
        let addr = SessionActor::start_in_arbiter(&self.arbiter(index), move |_| {
            SessionActor::new(session, tree, guard, index, harness, deaths)
        });
        self.tree.enter(id.clone(), generation, addr.clone());
        Some(addr)
    }

    fn start_endpoint(&mut self, agent: &AgentId) -> Option<Addr<EndpointActor>> {
        if let Some(addr) = self.tree.endpoint(agent) {
            return Some(addr);
        }
        if self.tree.is_closing() {
            return None;
        }
        let index = self.tree.arbiter_of(agent.as_str());
        let generation = self.tree.next_generation();
        let guard = ChildGuard::new(Arc::clone(&self.tree), Child::Endpoint(agent.clone()), generation);
        let (tree, of) = (Arc::clone(&self.tree), agent.clone());
        let addr = EndpointActor::start_in_arbiter(&self.arbiter(index), move |_| {
            EndpointActor::new(of, tree, guard)
        });
        self.tree.children().endpoints.insert(agent.clone(), (generation, addr.clone()));
        Some(addr)
    }

    fn harness_of(&self, index: usize) -> Option<(u64, Addr<HarnessActor>)> {
        self.tree.children().harnesses.get(index).cloned().flatten()
    }

    fn died(&mut self, child: &Child) {
        self.restarts += 1;
        self.tree.died(child);
    }

    /// Takes over the children that a supervisor before this one has left, and starts those that are missing.
    fn adopt(&mut self) {
        let count = match self.tree.config.harness {
            HarnessMode::InProcess => self.tree.config.arbiters.max(1),
            HarnessMode::Remote => 0,
        };
        let (harnesses, connections, sweeper) = {
            let mut children = self.tree.children();
            children.harnesses.resize(count, None);
            children.connections.retain(|_, (addr, _)| addr.connected());
            (children.harnesses.clone(), children.connections.clone(), children.sweeper.clone())
        };
        for (index, harness) in harnesses.into_iter().enumerate() {
            match harness.filter(|(_, addr)| addr.connected()) {
                Some((generation, addr)) => self.broker.attach(generation, addr, None, Some(index)),
                None => self.start_harness(index),
            }
        }
        for (generation, (addr, pod)) in connections {
            self.broker.attach(generation, addr.clone(), pod, None);
            // Its parked leases are known to nobody now: it says them again.
            addr.do_send(Introduce);
        }
        if !sweeper.is_some_and(|(_, addr)| addr.connected()) {
            self.start_sweeper();
        }
    }

    fn children(&self) -> Vec<Recipient<Observe>> {
        let mut all: Vec<Recipient<Observe>> = Vec::new();
        let children = self.tree.children();
        all.extend(children.harnesses.iter().flatten().map(|(_, a)| a.clone().recipient()));
        all.extend(children.connections.values().map(|(a, _)| a.clone().recipient()));
        all.extend(children.endpoints.values().map(|(_, a)| a.clone().recipient()));
        all.extend(children.sweeper.iter().map(|(_, a)| a.clone().recipient()));
        drop(children);
        all.extend(self.tree.sessions().into_iter().map(|(_, a)| a.recipient()));
        all
    }
}

impl Actor for TenantSupervisor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(SUPERVISOR_MAILBOX);
        self.tree.set_supervisor(ctx.address());
        self.adopt();
        // A preference for the last harness ends by itself: the queue is looked at again while anything waits.
        ctx.run_interval(PREFER_FOR / 10, |act, _| {
            if act.broker.queued() > 0 {
                act.broker.match_all();
            }
        });
    }
}

impl Handler<StartSession> for TenantSupervisor {
    type Result = MessageResult<StartSession>;

    fn handle(&mut self, msg: StartSession, _ctx: &mut Self::Context) -> Self::Result {
        MessageResult(self.start_session(&msg.id))
    }
}

impl Handler<Gone> for TenantSupervisor {
    type Result = ();

    fn handle(&mut self, msg: Gone, _ctx: &mut Self::Context) {
        if msg.child == Child::Connection {
            self.tree.children().connections.remove(&msg.generation);
            self.broker.detach(msg.generation);
            self.places.gone(msg.generation);
            if !msg.clean && !self.tree.is_closing() {
                tracing::error!(
                    generation = msg.generation,
                    "a connection's actor died; its peer will come again"
                );
                self.died(&msg.child);
            }
            return;
        }
        if let Child::Session(id) = &msg.child {
            let was_current = self.tree.leave(id, msg.generation);
            if msg.clean || !was_current {
                return;
            }
        }
        if let Child::Endpoint(agent) = &msg.child {
            self.tree.leave_endpoint(agent, msg.generation);
            if msg.clean {
                return;
            }
        }
        if self.tree.is_closing() {
            return;
        }
        tracing::error!(child = ?msg.child, generation = msg.generation, "an actor died and is started again");
        self.died(&msg.child);
        match msg.child {
            Child::Session(id) => {
                if let Some(addr) = self.start_session(&id) {
                    addr.do_send(Wake);
                }
            }
            Child::Harness(index) => {
                self.broker.detach(msg.generation);
                // An old instance's end never replaces a newer one that lives.
                if self.harness_of(index).is_some_and(|(current, _)| current == msg.generation) {
                    self.start_harness(index);
                }
            }
            Child::Connection => {}
            Child::Endpoint(agent) => drop(self.start_endpoint(&agent)),
            Child::Sweeper => {
                let current = self.tree.children().sweeper.as_ref().map(|(g, _)| *g);
                if current == Some(msg.generation) {
                    self.start_sweeper();
                }
            }
        }
    }
}

impl Handler<Offer> for TenantSupervisor {
    type Result = ResponseFuture<Option<Placement>>;

    fn handle(&mut self, msg: Offer, _ctx: &mut Self::Context) -> Self::Result {
        let has = msg.workspace.as_deref().and_then(|key| self.places.at(key));
        let placed = self.broker.offer(msg, has);
        Box::pin(async move { placed.await.ok() })
    }
}

impl Handler<AttachHarness> for TenantSupervisor {
    type Result = MessageResult<AttachHarness>;

    fn handle(&mut self, msg: AttachHarness, _ctx: &mut Self::Context) -> Self::Result {
        if self.tree.is_closing() {
            return MessageResult(None);
        }
        let generation = self.tree.next_generation();
        let guard = ChildGuard::new(Arc::clone(&self.tree), Child::Connection, generation);
        let tree = Arc::clone(&self.tree);
        // Connections are spread over the arbiters: a busy one shares with few.
        let index = self.next_arbiter % self.arbiters.len().max(1);
        self.next_arbiter = self.next_arbiter.wrapping_add(1);
        let AttachHarness { sink, peer, pod } = msg;
        tracing::info!(peer = %peer, "harness_connected");
        let hosts = pod.clone();
        let addr = HarnessActor::start_in_arbiter(&self.arbiter(index), move |_| {
            HarnessActor::connected(tree, guard, sink, peer, hosts)
        });
        self.tree.children().connections.insert(generation, (addr.clone(), pod.clone()));
        self.broker.attach(generation, addr.clone(), pod, None);
        MessageResult(Some(addr))
    }
}

impl Handler<HarnessSays> for TenantSupervisor {
    type Result = ();

    fn handle(&mut self, msg: HarnessSays, _ctx: &mut Self::Context) {
        self.broker.set_workspace(msg.harness, msg.workspace);
        if msg.workspace {
            self.places.came();
        }
    }
}

impl Handler<ParkLease> for TenantSupervisor {
    type Result = ();

    fn handle(&mut self, msg: ParkLease, _ctx: &mut Self::Context) {
        self.broker.park(msg.harness, msg.lease);
    }
}

impl Handler<WithdrawLease> for TenantSupervisor {
    type Result = ();

    fn handle(&mut self, msg: WithdrawLease, _ctx: &mut Self::Context) {
        self.broker.withdraw(msg.harness, msg.lease);
    }
}

impl Handler<CountHarnesses> for TenantSupervisor {
    type Result = MessageResult<CountHarnesses>;

    fn handle(&mut self, _msg: CountHarnesses, _ctx: &mut Self::Context) -> Self::Result {
        let children = self.tree.children();
        let in_process = usize::from(!children.harnesses.is_empty());
        MessageResult((in_process + children.connections.len(), self.broker.serves_workspaces()))
    }
}

impl Handler<WakeSessions> for TenantSupervisor {
    type Result = ();

    fn handle(&mut self, msg: WakeSessions, _ctx: &mut Self::Context) {
        for id in msg.sessions {
            if let Some(addr) = self.start_session(&id) {
                // A full mailbox has work before it that ends with a look at the session.
                let _ = addr.try_send(Wake);
            }
        }
    }
}

impl Handler<StartEndpoint> for TenantSupervisor {
    type Result = MessageResult<StartEndpoint>;

    fn handle(&mut self, msg: StartEndpoint, _ctx: &mut Self::Context) -> Self::Result {
        MessageResult(self.start_endpoint(&msg.agent))
    }
}

impl Handler<NudgeEndpoints> for TenantSupervisor {
    type Result = ();

    fn handle(&mut self, msg: NudgeEndpoints, _ctx: &mut Self::Context) {
        for agent in msg.agents {
            if let Some(addr) = self.start_endpoint(&agent) {
                // A full mailbox has a look before it that sees the same.
                let _ = addr.try_send(Look);
            }
        }
    }
}

impl Handler<DrainAll> for TenantSupervisor {
    type Result = ();

    fn handle(&mut self, msg: DrainAll, ctx: &mut Self::Context) {
        self.tree.close();
        self.broker.close();
        let sessions = self.tree.sessions().into_iter().map(|(_, addr)| {
            let (done, idle) = oneshot::channel();
            addr.do_send(Drain { done });
            idle
        });
        let mut waits: Vec<_> = sessions.collect();
        for (_, addr) in self.tree.children().endpoints.values() {
            let (done, idle) = oneshot::channel();
            addr.do_send(DrainEndpoint { done });
            waits.push(idle);
        }
        ctx.spawn(wrap_future::<_, Self>(join_all(waits)).map(|_, _, _| {
            let _ = msg.done.send(());
        }));
    }
}

impl Handler<ObserveAll> for TenantSupervisor {
    type Result = ResponseFuture<Vec<Json>>;

    fn handle(&mut self, _msg: ObserveAll, _ctx: &mut Self::Context) -> Self::Result {
        let (harnesses, connections) = {
            let children = self.tree.children();
            (children.harnesses.len(), children.connections.len())
        };
        let own = json!({
            "kind": "supervisor", "id": self.tree.tenant.as_str(),
            "state": {
                "sessionsInMemory": self.tree.sessions_in_memory(), "inProcessHarnesses": harnesses, "connections": connections, "parkedLeases": self.broker.parked(),
                "queuedOffers": self.broker.queued(),
                "storeCommits": self.tree.ports.store.store().health().commits, "restarts": self.restarts,
                "observedSessions": self.tree.feeds.observed_sessions(), "closing": self.tree.is_closing(),
            },
        });
        let asked = self.children().into_iter().map(|child| timeout(OBSERVE_WITHIN, child.send(Observe)));
        let asked = join_all(asked);
        Box::pin(async move {
            let mut all = vec![own];
            all.extend(asked.await.into_iter().filter_map(|a| a.ok().and_then(Result::ok)));
            all
        })
    }
}

#[cfg(any(test, feature = "testing"))]
impl Handler<crate::messages::Panic> for TenantSupervisor {
    type Result = ();

    #[allow(clippy::panic)]
    fn handle(&mut self, _msg: crate::messages::Panic, _ctx: &mut Self::Context) {
        panic!("a test asked the supervisor to panic");
    }
}

/// Makes a child panic, for tests.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum PanicChild {
    /// The harness of an arbiter.
    Harness(usize),
    /// The endpoint of an agent.
    Endpoint(AgentId),
    /// The sweeper.
    Sweeper,
}

#[cfg(any(test, feature = "testing"))]
impl Handler<PanicChild> for TenantSupervisor {
    type Result = ();

    fn handle(&mut self, msg: PanicChild, _ctx: &mut Self::Context) {
        match msg {
            PanicChild::Harness(index) => {
                if let Some((_, harness)) = self.harness_of(index) {
                    harness.do_send(crate::messages::Panic);
                }
            }
            PanicChild::Endpoint(agent) => {
                if let Some(endpoint) = self.tree.endpoint(&agent) {
                    endpoint.do_send(crate::messages::Panic);
                }
            }
            PanicChild::Sweeper => {
                if let Some((_, sweeper)) = &self.tree.children().sweeper {
                    sweeper.do_send(crate::messages::Panic);
                }
            }
        }
    }
}
