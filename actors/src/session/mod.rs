//! SessionActor: one for each session that has work. It owns the advance in progress and nothing that the store could
//! not give back (spec: durability, section 8; harness-api, sections 8 to 14).
//!
//! | File | Has |
//! |---|---|
//! | `mod.rs` | the actor, its states, commands, passivation |
//! | [`advance`] | take → fold → offer → held |
//! | [`run`] | what a held run asks: intent, outcome, renewal, release |
//! | [`output`] | its end with an output |
//! | [`actions`] | outcomes of Actions that it waits for |
//! | [`ending`] | cancel, deadline, watchdog, loss, drain |

mod actions;
mod advance;
mod ending;
mod output;
mod run;
mod tools;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::harness::HarnessActor;
use crate::limits::SESSION_MAILBOX;
use crate::messages::Observe;
use crate::messages::session::{DoCommand, Wake};
use crate::model::command::Receipt;
use crate::model::effect::EffectKind;
use crate::model::ids::{AgentId, EffectId, RunId, SessionId};
use crate::model::outcome::EffectFacts;
use crate::model::session::SessionPin;
use crate::model::turn::Abort;
use crate::model::{Json, Micros};
use crate::rules::Refusal;
use crate::rules::commands::{self, AfterCommand};
use crate::rules::effects::RunScope;
use crate::rules::history::Folded;
use crate::tenant::tree::{ChildGuard, Tree};

/// The actor of one session.
pub struct SessionActor {
    id: SessionId,
    tree: Arc<Tree>,
    guard: ChildGuard,
    arbiter: usize,
    /// The in-process harness beside it, as long as it answers.
    harness: Option<Addr<HarnessActor>>,
    state: Advance,
    /// A wake came while an advance ran: look again when it is over.
    wake_again: bool,
    /// Attempts of the segment in hand that recorded nothing new.
    attempts: u32,
    /// The same of attempts that a connection's end has cut.
    drops: u32,
    /// Failed reads and takes in a row.
    failures: u32,
    /// End of the lease as core's own beat has moved it while no harness renews.
    renewed_until: Option<Micros>,
    beating: Option<SpawnHandle>,
    pin: Option<Arc<SessionPin>>,
    /// Who owns its workspace, and which sandbox resource it is; read with the pin.
    workspace: Option<(SessionId, Option<String>)>,
    folded: Option<Folded>,
    draining: Vec<oneshot::Sender<()>>,
    /// Commands between their arrival and their answer.
    commands: usize,
    last_used: Instant,
}

/// Where an advance stands.
enum Advance {
    Idle,
    /// A later look is due: the lease is somebody else's, or the store failed.
    Waiting {
        why: &'static str,
    },
    Taking,
    Preparing {
        epoch: i64,
    },
    /// Looks for a harness.
    Offered {
        epoch: i64,
    },
    Held(Box<Held>),
    Settling {
        run: RunId,
        epoch: i64,
    },
    /// The run is over without an output; the lease goes back.
    Releasing {
        epoch: i64,
    },
}

impl Advance {
    fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Waiting { .. } => "waiting",
            Self::Taking => "taking",
            Self::Preparing { .. } => "preparing",
            Self::Offered { .. } => "offered",
            Self::Held(_) => "held",
            Self::Settling { .. } => "settling",
            Self::Releasing { .. } => "releasing",
        }
    }
}

/// A run in a harness's hands.
struct Held {
    run: RunId,
    scope: RunScope,
    agent: AgentId,
    /// Set from the moment it is handed over.
    harness: Option<Addr<HarnessActor>>,
    /// End of the lease on the store's clock.
    expires_at: Micros,
    began: Instant,
    /// Cursor of the transcript it started with.
    cursor: i64,
    /// What its effects are, for the events of their outcomes.
    facts: HashMap<EffectId, EffectFacts>,
    /// The turn's manifest and the session's pin: what an Action takes from them.
    manifest: Arc<Json>,
    pin: Arc<SessionPin>,
    /// Tools that the harness itself runs.
    harness_tools: tools::HarnessTools,
    in_flight: HashMap<EffectId, EffectKind>,
    abort: Option<Abort>,
    timer: Option<SpawnHandle>,
    /// When the lease was renewed last.
    renewed: Instant,
    /// One look has found the lease about to lapse.
    suspected: bool,
}

impl SessionActor {
    /// An actor of a session on an arbiter. `attempts`: how often an actor of it has died without progress.
    #[must_use]
    pub fn new(
        id: SessionId,
        tree: Arc<Tree>,
        guard: ChildGuard,
        arbiter: usize,
        harness: Option<Addr<HarnessActor>>,
        attempts: u32,
    ) -> Self {
        Self {
            id,
            tree,
            guard,
            arbiter,
            harness,
            state: Advance::Idle,
            wake_again: false,
            attempts,
            drops: 0,
            failures: 0,
            renewed_until: None,
            beating: None,
            pin: None,
            workspace: None,
            folded: None,
            draining: Vec::new(),
            commands: 0,
            last_used: Instant::now(),
        }
    }

    /// The advance is over: look again when a wake asked for it, or note the time since when nothing happens.
    fn idle(&mut self, ctx: &mut Context<Self>) {
        self.state = Advance::Idle;
        self.stop_beat(ctx);
        self.last_used = Instant::now();
        self.answer_drains();
        if std::mem::take(&mut self.wake_again) {
            self.wake(ctx);
        }
    }

    /// Leaves memory after a while without work.
    fn passivate_later(&self, ctx: &mut Context<Self>) {
        let after = Duration::from_millis(self.tree.config.idle_after_ms.max(1));
        ctx.run_later(after, move |act, ctx| {
            let idle = matches!(act.state, Advance::Idle) && act.commands == 0;
            if idle && act.last_used.elapsed() >= after {
                act.leave(ctx);
            } else {
                act.passivate_later(ctx);
            }
        });
    }

    /// Leaves memory. Whatever still arrives finds a closed mailbox and is sent again to the next actor.
    fn leave(&mut self, ctx: &mut Context<Self>) {
        self.guard.stops_in_order();
        self.tree.leave(&self.id, self.guard.generation());
        ctx.stop();
    }

    fn answer_drains(&mut self) {
        for done in self.draining.drain(..) {
            // Whoever asked may have stopped waiting.
            let _ = done.send(());
        }
    }
}

impl Actor for SessionActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(SESSION_MAILBOX);
        self.passivate_later(ctx);
    }
}

impl Handler<DoCommand> for SessionActor {
    type Result = ResponseActFuture<Self, Result<Receipt, Refusal>>;

    fn handle(&mut self, msg: DoCommand, _ctx: &mut Self::Context) -> Self::Result {
        self.commands += 1;
        self.last_used = Instant::now();
        let (store, id) = (self.tree.ports.store.clone(), self.id.clone());
        let DoCommand { prepared, reach } = msg;
        // What an idle session is given it takes up in the same commit.
        if prepared.makes_work() && self.may_take() {
            self.state = Advance::Taking;
            let request = self.take_request();
            let apply = async move {
                store.tx(move |tx| commands::apply_and_take(tx, &id, &prepared, &reach, &request)).await
            };
            return Box::pin(wrap_future::<_, Self>(apply).map(|result, act, ctx| {
                act.commands -= 1;
                match result {
                    Ok((receipt, _, Some(taken))) => {
                        act.made_progress();
                        act.taken(Ok(taken), ctx);
                        Ok(receipt)
                    }
                    // A replay: there is nothing new to do.
                    Ok((receipt, _, None)) => {
                        act.idle(ctx);
                        Ok(receipt)
                    }
                    Err(refusal) => {
                        act.idle(ctx);
                        Err(refusal)
                    }
                }
            }));
        }
        let apply = async move { store.tx(move |tx| commands::apply(tx, &id, &prepared, &reach)).await };
        Box::pin(wrap_future::<_, Self>(apply).map(|result, act, ctx| {
            act.commands -= 1;
            let (receipt, after) = result?;
            match after {
                AfterCommand::Replayed => {}
                AfterCommand::Wake => {
                    act.made_progress();
                    act.wake(ctx);
                }
                AfterCommand::Cancelled { turn, deliveries } => {
                    if let (Some(turn), Some(agent)) = (&turn, &deliveries) {
                        act.tree.abort_deliveries(agent, &act.id, turn);
                    }
                    act.turn_was_cancelled(turn.as_ref(), ctx);
                }
            }
            Ok(receipt)
        }))
    }
}

impl Handler<Wake> for SessionActor {
    type Result = ();

    fn handle(&mut self, _msg: Wake, ctx: &mut Self::Context) {
        self.wake(ctx);
    }
}

impl Handler<Observe> for SessionActor {
    type Result = MessageResult<Observe>;

    fn handle(&mut self, _msg: Observe, _ctx: &mut Self::Context) -> Self::Result {
        let mut state = json!({
            "state": self.state.name(), "arbiter": self.arbiter, "wakeAgain": self.wake_again,
            "attempts": self.attempts, "drops": self.drops, "transcriptEntries": self.folded.as_ref().map(|f| f.entries().len()),
        });
        match &self.state {
            Advance::Held(held) => {
                state["runId"] = json!(held.run.as_str());
                state["turnId"] = json!(held.scope.turn.as_str());
                state["epoch"] = json!(held.scope.epoch);
                state["leaseUntil"] = json!(held.expires_at.to_iso());
                state["heldForMs"] = json!(u64::try_from(held.began.elapsed().as_millis()).unwrap_or(0));
                state["abort"] = json!(held.abort.as_ref().map(|a| a.kind.as_str()));
                let flights: Vec<Json> = held
                    .in_flight
                    .iter()
                    .map(|(id, kind)| json!({ "effectId": id.as_str(), "kind": kind.as_str() }))
                    .collect();
                state["waitsFor"] = json!(flights);
                state["freedBy"] = json!("the effects' outcomes, a cancel, or the end of the lease");
            }
            Advance::Offered { epoch } => {
                state["epoch"] = json!(epoch);
                state["freedBy"] = json!("a harness that takes the run");
            }
            Advance::Waiting { why } => state["freedBy"] = json!(why),
            Advance::Preparing { epoch } | Advance::Settling { epoch, .. } | Advance::Releasing { epoch } => {
                state["epoch"] = json!(epoch);
                state["freedBy"] = json!("the store");
            }
            Advance::Idle | Advance::Taking => {}
        }
        MessageResult(json!({ "kind": "session", "id": self.id.as_str(), "state": state }))
    }
}

#[cfg(any(test, feature = "testing"))]
impl Handler<crate::messages::Panic> for SessionActor {
    type Result = ();

    #[allow(clippy::panic)]
    fn handle(&mut self, _msg: crate::messages::Panic, _ctx: &mut Self::Context) {
        panic!("a test asked this session's actor to panic");
    }
}
