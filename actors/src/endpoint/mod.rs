//! EndpointActor: one for each agent whose Actions wait for its endpoint. It decides when to look for what is due, keeps
//! to the endpoint's limits, and cuts what a cancel makes pointless (spec: durability, section 7; http-api, section 10.3).
//!
//! It owns nothing that the store could not give back: pending Actions are rows, a delivery is a row with a deadline. The
//! POST itself is a task of its own ([`deliver`]), so an answer is settled even when this actor dies meanwhile.

mod deliver;
mod ping;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::limits::{DELIVERIES_AT_ONCE, DELIVERY_DRAIN_MS, DELIVERY_FAILED_EVERY_MS, ENDPOINT_MAILBOX};
use crate::messages::Observe;
use crate::messages::endpoint::{AbortDeliveries, Delivered, DrainEndpoint, Look};
use crate::model::ids::{AgentId, EffectId, SessionId, TurnId};
use crate::model::{Json, Micros};
use crate::ports::store::{AgentLoad, StoreError};
use crate::rules::delivery::{self, Claimed};
use crate::tenant::tree::{ChildGuard, Tree};

/// Pause before a look that the store has refused is tried again, ms.
const LOOK_AGAIN_MS: u64 = 1_000;

/// The actor of one agent's endpoint.
pub struct EndpointActor {
    agent: AgentId,
    tree: Arc<Tree>,
    guard: ChildGuard,
    /// Deliveries whose answer is awaited in this process.
    in_flight: HashMap<(EffectId, i64), Flight>,
    looking: bool,
    look_again: bool,
    timer: Option<SpawnHandle>,
    /// The endpoint fails: nothing is claimed before.
    not_before: Option<Instant>,
    /// When `action.delivery_failed` was written last, by Action.
    told: HashMap<EffectId, Instant>,
    failures: u32,
    load: AgentLoad,
    registered: bool,
    last_error: Option<String>,
    last_used: Instant,
    draining: Vec<oneshot::Sender<()>>,
}

struct Flight {
    session: SessionId,
    turn: TurnId,
    task: AbortHandle,
}

impl EndpointActor {
    /// An actor of an agent's endpoint.
    #[must_use]
    pub fn new(agent: AgentId, tree: Arc<Tree>, guard: ChildGuard) -> Self {
        Self {
            agent,
            tree,
            guard,
            in_flight: HashMap::new(),
            looking: false,
            look_again: false,
            timer: None,
            not_before: None,
            told: HashMap::new(),
            failures: 0,
            load: AgentLoad::default(),
            registered: false,
            last_error: None,
            last_used: Instant::now(),
            draining: Vec::new(),
        }
    }

    /// How many Actions may be claimed now: a failing endpoint is tried with one at a time.
    fn room(&self) -> usize {
        if self.not_before.is_some_and(|at| at > Instant::now()) {
            0
        } else if self.failures > 0 {
            usize::from(self.in_flight.is_empty())
        } else {
            DELIVERIES_AT_ONCE
        }
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
        if self.looking {
            self.look_again = true;
            return;
        }
        if self.tree.is_closing() || !self.draining.is_empty() {
            return;
        }
        self.looking = true;
        // A task that panicked has told nobody; its delivery is lost at the deadline.
        self.in_flight.retain(|_, flight| !flight.task.is_finished());
        let (agent, room) = (self.agent.clone(), self.room());
        let jitter = jitter(&self.tree);
        let store = self.tree.ports.store.clone();
        let claiming = async move { store.tx(move |tx| delivery::claim(tx, &agent, room, jitter)).await };
        ctx.spawn(wrap_future::<_, Self>(claiming).map(|claimed, act, ctx| act.looked(claimed, ctx)));
    }

    fn looked(&mut self, claimed: Result<Claimed, StoreError>, ctx: &mut Context<Self>) {
        self.looking = false;
        match claimed {
            Ok(claimed) => {
                self.last_error = None;
                self.start(claimed, ctx);
            }
            Err(error) => {
                tracing::warn!(agent = %self.agent, %error, "an endpoint's Actions could not be claimed");
                self.last_error = Some(error.to_string());
                self.look_in(Duration::from_millis(LOOK_AGAIN_MS), ctx);
            }
        }
        if std::mem::take(&mut self.look_again) {
            self.look(ctx);
        }
    }

    fn start(&mut self, claimed: Claimed, ctx: &mut Context<Self>) {
        let Claimed { started, lost, load, endpoint, failures, now } = claimed;
        if !started.is_empty() || !lost.is_empty() || !self.in_flight.is_empty() {
            self.last_used = Instant::now();
        }
        for session in lost {
            tracing::warn!(session = %session, agent = %self.agent, "an Action's delivery was lost: its deadline has passed");
        }
        self.registered = endpoint.is_some();
        if failures == 0 {
            self.not_before = None;
        }
        self.failures = failures;
        self.load = load;
        // What was claimed in full may leave more that is due.
        if started.len() == DELIVERIES_AT_ONCE {
            self.look_again = true;
        }
        for started in started {
            let (id, generation) = (started.row.id.clone(), started.row.generation);
            let (session, turn) = (started.row.session_id.clone(), started.row.turn_id.clone());
            let tell = self
                .told
                .get(&id)
                .is_none_or(|at| at.elapsed() >= Duration::from_millis(DELIVERY_FAILED_EVERY_MS));
            let task = actix::spawn(deliver::deliver(Arc::clone(&self.tree), started, tell)).abort_handle();
            self.in_flight.insert((id, generation), Flight { session, turn, task });
        }
        self.schedule(now, ctx);
    }

    /// Looks again when the next Action is due or the next delivery is lost. What is due already waits for a free place
    /// (whose end looks) or for the end of the endpoint's pause.
    fn schedule(&mut self, now: Micros, ctx: &mut Context<Self>) {
        let until = |at: Micros| Duration::from_millis(u64::try_from(at.ms_since(now)).unwrap_or(0) + 1);
        let pause = self.not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        let retry =
            self.load.next_retry.filter(|at| self.registered && *at > now).map(|at| until(at).max(pause));
        let paused = (self.registered && self.load.pending > 0 && !pause.is_zero()).then_some(pause);
        let deadline = self.load.next_deadline.map(until);
        self.stop_timer(ctx);
        if let Some(wait) = retry.into_iter().chain(paused).chain(deadline).min() {
            self.look_in(wait, ctx);
        }
    }

    fn stop_timer(&mut self, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
    }

    fn look_in(&mut self, wait: Duration, ctx: &mut Context<Self>) {
        self.stop_timer(ctx);
        self.timer = Some(ctx.run_later(wait, |act, ctx| {
            act.timer = None;
            act.look(ctx);
        }));
    }

    fn leave_later(&self, ctx: &mut Context<Self>) {
        let after = Duration::from_millis(self.tree.config.idle_after_ms.max(1));
        ctx.run_later(after, move |act, ctx| {
            let busy = act.looking || !act.in_flight.is_empty() || act.timer.is_some();
            if !busy && act.last_used.elapsed() >= after {
                act.guard.stops_in_order();
                act.tree.leave_endpoint(&act.agent, act.guard.generation());
                ctx.stop();
            } else {
                act.leave_later(ctx);
            }
        });
    }

    fn answer_drains(&mut self) {
        if self.in_flight.is_empty() {
            for done in self.draining.drain(..) {
                // Whoever asked may have stopped waiting.
                let _ = done.send(());
            }
        }
    }
}

/// Chance from 0 to 1, of the tree's own entropy.
fn jitter(tree: &Tree) -> f64 {
    f64::from(u32::try_from(tree.ports.entropy.below(1_001)).unwrap_or(0)) / 1_000.0
}

impl Actor for EndpointActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(ENDPOINT_MAILBOX);
        self.look(ctx);
        self.leave_later(ctx);
    }
}

impl Handler<Look> for EndpointActor {
    type Result = ();

    fn handle(&mut self, _msg: Look, ctx: &mut Self::Context) {
        self.last_used = Instant::now();
        self.look(ctx);
    }
}

impl Handler<Delivered> for EndpointActor {
    type Result = ();

    fn handle(&mut self, msg: Delivered, ctx: &mut Self::Context) {
        self.in_flight.remove(&(msg.action.clone(), msg.generation));
        if msg.told {
            self.told.retain(|_, at| at.elapsed() < Duration::from_millis(DELIVERY_FAILED_EVERY_MS));
            self.told.insert(msg.action, Instant::now());
        }
        if msg.failed {
            // It is given a pause, and then one Action at a time until one succeeds.
            self.failures = self.failures.saturating_add(1);
            let pause = delivery::backoff_ms(self.failures, jitter(&self.tree));
            self.not_before = Some(Instant::now() + Duration::from_millis(u64::try_from(pause).unwrap_or(0)));
        } else {
            self.failures = 0;
            self.not_before = None;
        }
        self.answer_drains();
        self.look(ctx);
    }
}

impl Handler<AbortDeliveries> for EndpointActor {
    type Result = ();

    fn handle(&mut self, msg: AbortDeliveries, ctx: &mut Self::Context) {
        self.in_flight.retain(|_, flight| {
            let goes = flight.session == msg.session && flight.turn == msg.turn;
            if goes {
                flight.task.abort();
            }
            !goes
        });
        self.answer_drains();
        self.look(ctx);
    }
}

impl Handler<DrainEndpoint> for EndpointActor {
    type Result = ();

    fn handle(&mut self, msg: DrainEndpoint, ctx: &mut Self::Context) {
        self.draining.push(msg.done);
        self.answer_drains();
        ctx.run_later(Duration::from_millis(DELIVERY_DRAIN_MS), |act, _| {
            for (_, flight) in act.in_flight.drain() {
                flight.task.abort();
            }
            act.answer_drains();
        });
    }
}

impl Handler<Observe> for EndpointActor {
    type Result = MessageResult<Observe>;

    fn handle(&mut self, _msg: Observe, _ctx: &mut Self::Context) -> Self::Result {
        let flights: Vec<Json> = self
            .in_flight
            .iter()
            .map(|((id, generation), f)| {
                json!({ "actionId": id.as_str(), "generation": generation, "sessionId": f.session.as_str() })
            })
            .collect();
        let pause = self.not_before.map(|at| at.saturating_duration_since(Instant::now()).as_millis());
        let freed_by = match (self.registered, self.failures) {
            (false, _) => "a registration of the agent's endpoint",
            (true, 0) => "the endpoint's answers",
            (true, _) => "an answer of the endpoint, which fails now",
        };
        MessageResult(json!({
            "kind": "endpoint", "id": self.agent.as_str(),
            "state": {
                "registered": self.registered, "inFlight": flights, "pending": self.load.pending,
                "delivering": self.load.delivering, "dead": self.load.parked, "failures": self.failures,
                "pausedMs": pause.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)), "lastError": self.last_error,
                "freedBy": freed_by,
            },
        }))
    }
}

#[cfg(any(test, feature = "testing"))]
impl Handler<crate::messages::Panic> for EndpointActor {
    type Result = ();

    #[allow(clippy::panic)]
    fn handle(&mut self, _msg: crate::messages::Panic, _ctx: &mut Self::Context) {
        panic!("a test asked this endpoint's actor to panic");
    }
}
