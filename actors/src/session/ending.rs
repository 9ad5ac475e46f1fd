//! How a run ends without being asked: cancel, deadline, watchdog, loss, drain.

use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;

use super::{Advance, Held, SessionActor};
use crate::messages::harness::{CancelRun, DropRun};
use crate::messages::session::{Before, Drain, Loss, RunLost};
use crate::model::ids::{RunId, TurnId};
use crate::model::turn::{Abort, AbortKind};
use crate::rules::RunRefusal;
use crate::rules::advance::{LostRun, Segment, lose_run};
use crate::rules::effects::{self, PreparedValue};
use crate::rules::ownership;
use crate::rules::settle::{PreparedOutput, SettleScope, settle};
use crate::tenant::persist::persist;

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// The last part of a lease, in which a run that is not renewed is looked at twice.
fn hearing(lease: Duration) -> Duration {
    lease / 30
}

/// Pause before a lost segment is tried again, growing with attempts that record nothing new, ms.
const RETRY_MS: u64 = 100;

impl SessionActor {
    /// Watches the held run: its lease must be renewed, and it has a deadline. Time is measured on a clock that nobody
    /// sets, so one that jumps loses no run.
    pub(super) fn watch(&mut self, ctx: &mut Context<Self>) {
        let deadline = millis(self.tree.config.advance_deadline_ms);
        let lease = millis(self.tree.config.owner_lease_ms);
        let Advance::Held(held) = &mut self.state else { return };
        let silent = held.renewed.elapsed();
        let until_look = if held.suspected {
            // A look that came late (this process stood still) gives what waits a moment to be heard.
            lease.saturating_sub(silent).max(hearing(lease))
        } else {
            (lease - hearing(lease)).saturating_sub(silent)
        };
        let next =
            deadline.saturating_sub(held.began.elapsed()).min(until_look).max(Duration::from_millis(1));
        let run = held.run.clone();
        held.timer = Some(ctx.run_later(next, move |act, ctx| act.look(&run, ctx)));
    }

    fn look(&mut self, run: &RunId, ctx: &mut Context<Self>) {
        let deadline = millis(self.tree.config.advance_deadline_ms);
        let lease = millis(self.tree.config.owner_lease_ms);
        let Advance::Held(held) = &mut self.state else { return };
        if held.run != *run || held.abort.is_some() {
            return;
        }
        let silent = held.renewed.elapsed();
        if held.began.elapsed() >= deadline {
            let text = format!("the segment ran longer than {} s", deadline.as_secs());
            self.abort_run(run, AbortKind::Deadline, &text, ctx);
        } else if silent >= lease && held.suspected {
            tracing::warn!(session = %self.id, run = %run, "a held run's lease lapsed: its harness does not renew it");
            self.abort_run(run, AbortKind::OwnershipLost, "the lease lapsed", ctx);
            let run = run.clone();
            self.lost(&run, "its harness did not renew the lease", Loss::Attempt, ctx);
        } else {
            held.suspected = silent >= lease - hearing(lease);
            self.watch(ctx);
        }
    }

    /// Core's own beat: renews the lease while nobody else does, from the offer to the run and from the output to the
    /// release. It ends by itself when the advance has moved on.
    pub(super) fn beat(&mut self, epoch: i64, ctx: &mut Context<Self>) {
        let lease = self.tree.config.owner_lease_ms;
        let every = Duration::from_millis(u64::try_from((lease / 3).max(10)).unwrap_or(10));
        self.stop_beat(ctx);
        self.beating = Some(ctx.run_later(every, move |act, ctx| {
            act.beating = None;
            let beats = match act.state {
                Advance::Offered { epoch: of } | Advance::Settling { epoch: of, .. } => of == epoch,
                _ => false,
            };
            if !beats {
                return;
            }
            let (store, id) = (act.tree.ports.store.clone(), act.id.clone());
            let worker = act.tree.config.worker.clone();
            let renewing =
                async move { store.tx(move |tx| ownership::renew(tx, &id, &worker, epoch, lease)).await };
            ctx.spawn(wrap_future::<_, Self>(renewing).map(move |renewed, act, ctx| {
                match renewed {
                    Ok(Some(until)) => act.renewed_until = Some(until),
                    // Somebody took over: nothing more may be written, and there is nothing to give back.
                    Ok(None) if matches!(act.state, Advance::Offered { .. }) => {
                        act.idle(ctx);
                        return;
                    }
                    Ok(None) => return,
                    Err(error) => tracing::warn!(session = %act.id, %error, "a lease was not renewed"),
                }
                act.beat(epoch, ctx);
            }));
        }));
    }

    /// A timer that is over must not stay: an actor polls all it has.
    pub(super) fn stop_beat(&mut self, ctx: &mut Context<Self>) {
        if let Some(beat) = self.beating.take() {
            ctx.cancel_future(beat);
        }
    }

    /// Takes a held run out of the actor's hands, without a word to its harness.
    pub(super) fn drop_held(&mut self, run: &RunId, ctx: &mut Context<Self>) -> Option<Box<Held>> {
        if !matches!(&self.state, Advance::Held(held) if held.run == *run) {
            return None;
        }
        let Advance::Held(held) = std::mem::replace(&mut self.state, Advance::Idle) else { return None };
        if let Some(timer) = held.timer {
            ctx.cancel_future(timer);
        }
        Some(held)
    }

    /// Tells a run to stop and gives it a grace; past that it is abandoned and the epoch fences what it still says.
    pub(super) fn abort_run(&mut self, run: &RunId, kind: AbortKind, text: &str, ctx: &mut Context<Self>) {
        let grace = self.tree.config.abort_grace_ms;
        let Advance::Held(held) = &mut self.state else { return };
        if held.run != *run || held.abort.as_ref().is_some_and(|a| a.kind == AbortKind::Cancel) {
            return;
        }
        let abort = Abort { kind, message: text.to_owned() };
        held.abort = Some(abort.clone());
        if let Some(harness) = &held.harness {
            // Rare control: one for each run and reason.
            harness.do_send(CancelRun { run: run.clone(), abort });
        }
        let run = run.clone();
        ctx.run_later(Duration::from_millis(u64::try_from(grace).unwrap_or(1)), move |act, ctx| {
            act.abandon(&run, ctx);
        });
    }

    fn abandon(&mut self, run: &RunId, ctx: &mut Context<Self>) {
        let Advance::Held(held) = &self.state else { return };
        if held.run != *run {
            return;
        }
        tracing::warn!(session = %self.id, run = %run, "a run did not stop in its grace and was abandoned");
        self.lost(run, "it did not stop when it was told to", Loss::Attempt, ctx);
    }

    /// The session's turn was cancelled and committed as such: stop a run of it.
    pub(super) fn turn_was_cancelled(&mut self, turn: Option<&TurnId>, ctx: &mut Context<Self>) {
        // The fold has a revert to read; it does so at the next take.
        match &self.state {
            Advance::Held(held) if Some(&held.scope.turn) == turn => {
                let run = held.run.clone();
                self.abort_run(&run, AbortKind::Cancel, "the turn was cancelled", ctx);
            }
            // It still looks for a harness: the offer ends here and the lease goes back.
            Advance::Offered { epoch } => self.give_back(*epoch, ctx),
            _ => {}
        }
    }

    /// The run is gone: mark what was in flight, release, look again.
    pub(super) fn lost(&mut self, run: &RunId, why: &str, loss: Loss, ctx: &mut Context<Self>) {
        self.lost_with(run, why, loss, None, ctx);
    }

    fn lost_with(
        &mut self,
        run: &RunId,
        why: &str,
        loss: Loss,
        before: Option<Before>,
        ctx: &mut Context<Self>,
    ) {
        let Advance::Held(held) = &mut self.state else { return };
        if held.run != *run {
            return;
        }
        if let Some(timer) = held.timer.take() {
            ctx.cancel_future(timer);
        }
        if let Some(harness) = &held.harness {
            // Whatever is left of it must not go on: nobody hears it any more.
            harness.do_send(DropRun { run: run.clone() });
        }
        let (epoch, turn) = (held.scope.epoch, held.scope.turn.clone());
        tracing::warn!(session = %self.id, turn = %turn, run = %run, epoch, why, "a run was lost");
        let value = before.map(|Before { effect, value }| {
            let facts = held.facts.get(&effect).cloned();
            (held.scope.clone(), PreparedValue::new(effect, value, facts.as_ref()), held.agent.clone())
        });
        self.state = Advance::Releasing { epoch };
        let count = match loss {
            Loss::Attempt => &mut self.attempts,
            Loss::Connection => &mut self.drops,
        };
        *count = count.saturating_add(1);
        // The first one of either kind is followed at once.
        let delay = match (loss, *count) {
            (_, 0 | 1) => None,
            (Loss::Attempt, n) => Some(RETRY_MS << n.min(6)),
            (Loss::Connection, n) => Some(RETRY_MS << n.min(4)),
        };
        let (store, id) = (self.tree.ports.store.clone(), self.id.clone());
        let (worker, model) = (self.tree.config.worker.clone(), self.tree.config.model_on_crash);
        let value = Arc::new(value);
        let releasing = async move {
            persist(&store, None, move |tx| {
                let mut recorded = false;
                if let Some((run, value, agent)) = value.as_ref() {
                    match effects::record_value(tx, run, value, agent) {
                        Ok(_) => recorded = true,
                        Err(RunRefusal::TurnCancelled | RunRefusal::Invalid(_)) => {}
                        Err(refusal) => return Err(refusal),
                    }
                }
                Ok((recorded, lose_run(tx, &id, &worker, epoch, model)?))
            })
            .await
        };
        let releasing = wrap_future::<_, Self>(releasing).map(move |result, act, _| match result {
            Ok((recorded, lost)) => {
                if recorded {
                    act.made_progress();
                }
                (Ok(lost), delay.filter(|_| !recorded))
            }
            Err(error) => (Err(error), delay),
        });
        ctx.spawn(releasing.map(|result, act, ctx| match result {
            (Ok(LostRun::Resume), None) => {
                act.wake_again = true;
                act.idle(ctx);
            }
            (Ok(LostRun::Resume), Some(delay)) => {
                act.wake_later(delay, "a pause before the segment is tried again", ctx);
            }
            (Ok(LostRun::Stop) | Err(RunRefusal::OwnershipLost(_)), _) => act.idle(ctx),
            (Err(error), _) => {
                tracing::error!(session = %act.id, %error, "a lost run could not be released; its lease lapses");
                act.wake_again = true;
                act.idle(ctx);
            }
        }));
    }

    /// Gives the lease back with nothing settled; the session stays `running` for whoever takes it next.
    pub(super) fn give_back(&mut self, epoch: i64, ctx: &mut Context<Self>) {
        self.state = Advance::Releasing { epoch };
        let (store, id) = (self.tree.ports.store.clone(), self.id.clone());
        let worker = self.tree.config.worker.clone();
        let releasing = async move { store.tx(move |tx| ownership::release(tx, &id, &worker, epoch)).await };
        ctx.spawn(wrap_future::<_, Self>(releasing).map(|result, act, ctx| {
            if let Err(error) = result {
                tracing::warn!(session = %act.id, %error, "a lease could not be released; it lapses by itself");
            }
            act.idle(ctx);
        }));
    }

    /// The segment cannot start: the turn fails with words, and the lease goes back.
    pub(super) fn fail_turn(&mut self, segment: &Segment, text: &str, ctx: &mut Context<Self>) {
        let epoch = segment.epoch;
        tracing::error!(session = %self.id, turn = %segment.turn_id, epoch, error = text, "a segment could not start");
        self.state = Advance::Releasing { epoch };
        self.folded = None;
        let scope = Arc::new(SettleScope {
            session: self.id.clone(),
            turn: segment.turn_id.clone(),
            epoch,
            worker: self.tree.config.worker.clone(),
            keeps_lease: false,
        });
        let prepared = Arc::new(PreparedOutput::thrown(text));
        let store = self.tree.ports.store.clone();
        let failing = async move { persist(&store, None, move |tx| settle(tx, &scope, &prepared)).await };
        ctx.spawn(wrap_future::<_, Self>(failing).map(|result, act, ctx| {
            if let Err(error) = result {
                tracing::error!(session = %act.id, %error, "a turn could not be failed");
            }
            act.made_progress();
            act.idle(ctx);
        }));
    }

    /// The Tenant closes: the run is told `shutdown`, gives its lease back and is resumed by the next process.
    pub(super) fn abort_for_drain(&mut self, ctx: &mut Context<Self>) {
        if let Advance::Held(held) = &self.state {
            let run = held.run.clone();
            self.abort_run(&run, AbortKind::Shutdown, "the Runtime is stopping", ctx);
        }
    }
}

impl Handler<RunLost> for SessionActor {
    type Result = ();

    fn handle(&mut self, msg: RunLost, ctx: &mut Self::Context) {
        self.lost_with(&msg.run, &msg.why, msg.loss, msg.before, ctx);
    }
}

impl Handler<Drain> for SessionActor {
    type Result = ();

    fn handle(&mut self, msg: Drain, ctx: &mut Self::Context) {
        self.draining.push(msg.done);
        match self.state {
            Advance::Idle | Advance::Waiting { .. } => self.answer_drains(),
            Advance::Held(_) => self.abort_for_drain(ctx),
            Advance::Offered { epoch } => self.give_back(epoch, ctx),
            _ => {}
        }
    }
}
