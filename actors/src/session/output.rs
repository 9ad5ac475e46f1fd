//! How a held run ends with an output.

use std::sync::Arc;

use actix::fut::wrap_future;
use actix::prelude::*;

use super::run::{not_held, refused};
use super::{Advance, SessionActor};
use crate::artifacts::export;
use crate::limits::FOLD_SNAPSHOT_EDITS;
use crate::messages::session::{Before, Output};
use crate::model::session::SessionStatus;
use crate::model::transcript::{Edit, FoldStep};
use crate::model::turn::{AbortKind, OutputStatus};
use crate::ports::engine::{ApiCode, ApiError};
use crate::ports::store::StoreError;
use crate::rules::RunRefusal;
use crate::rules::effects::{self, PreparedValue};
use crate::rules::ownership;
use crate::rules::settle::{self, PreparedOutput, SettleScope, Settled};
use crate::tenant::persist::persist;
use crate::tenant::tree::Tree;

impl Handler<Output> for SessionActor {
    type Result = ResponseActFuture<Self, Result<Option<i64>, ApiError>>;

    fn handle(&mut self, msg: Output, ctx: &mut Self::Context) -> Self::Result {
        let Output { output, before } = msg;
        let run = output.run_id.clone();
        let worker = self.tree.config.worker.clone();
        let held = match self.held(&run) {
            Ok(held) => held,
            Err(error) => return Box::pin(fut::ready(Err(error))),
        };
        let deadline =
            held.abort.as_ref().filter(|a| a.kind == AbortKind::Deadline).map(|a| a.message.clone());
        let lost = output.thrown.as_ref().and_then(|t| t.code.as_deref()) == Some("ownership_lost");
        let (epoch, cursor, timer) = (held.scope.epoch, held.cursor, held.timer.take());
        // A turn that completes in a sandbox has its outputs kept, still under the lease.
        let exports = output.status == Some(OutputStatus::Completed)
            && output.thrown.is_none()
            && held.pin.sandbox.is_some();
        let scope = SettleScope {
            session: held.scope.session.clone(),
            turn: held.scope.turn.clone(),
            epoch,
            worker,
            keeps_lease: exports,
        };
        let value = before.map(|Before { effect, value }| {
            let facts = held.facts.get(&effect).cloned();
            let prepared = PreparedValue::new(effect, value, facts.as_ref());
            (held.scope.clone(), prepared, held.agent.clone())
        });
        if let Some(timer) = timer {
            ctx.cancel_future(timer);
        }
        if lost {
            self.idle(ctx);
            return Box::pin(fut::ready(Ok(None)));
        }
        self.state = Advance::Settling { run: run.clone(), epoch };
        self.beat(epoch, ctx);
        let keeps = matches!(
            output.status,
            Some(OutputStatus::Completed | OutputStatus::Paused | OutputStatus::Yielded)
        ) && output.thrown.is_none();
        let prepared = PreparedOutput::new(&output, deadline.as_deref());
        let edits = if keeps { output.transcript.unwrap_or_default() } else { Vec::new() };
        let (tree, turn) = (Arc::clone(&self.tree), scope.turn.clone());
        let settling = async move {
            let all = Arc::new((scope, prepared, value));
            let settling = Arc::clone(&all);
            let settled = persist(&tree.ports.store, None, move |tx| {
                let (scope, prepared, value) = settling.as_ref();
                if let Some((run, value, agent)) = value {
                    match effects::record_value(tx, run, value, agent) {
                        // A turn that was cancelled meanwhile takes no value, and settles nothing either.
                        Ok(_) | Err(RunRefusal::TurnCancelled | RunRefusal::Invalid(_)) => {}
                        Err(refusal) => return Err(refusal),
                    }
                }
                settle::settle(tx, scope, prepared)
            })
            .await;
            if exports && matches!(&settled, Ok(settled) if settled.written) {
                export(&tree, &all.0).await;
            }
            settled
        };
        Box::pin(wrap_future::<_, Self>(settling).map(move |result, act, ctx| {
            if !matches!(&act.state, Advance::Settling { run: of, .. } if *of == run) {
                return Err(not_held());
            }
            let result = result.map_err(refused);
            match &result {
                Ok(settled) => act.settled(settled, &turn, &edits, ctx),
                Err(error) => {
                    tracing::error!(session = %act.id, turn = %turn, %error, "a segment could not be settled");
                    act.folded = None;
                    act.wake_again = error.code != ApiCode::OwnershipLost;
                    act.idle(ctx);
                }
            }
            let settled = result?;
            Ok((keeps && settled.written).then(|| settled.edit_cursor.unwrap_or(cursor)))
        }))
    }
}

/// Keeps the outputs of a completed turn, then gives the lease back. Neither changes what the turn has come to.
async fn export(tree: &Arc<Tree>, scope: &SettleScope) {
    export::outputs(tree, &scope.session, &scope.turn).await;
    let (id, worker, epoch) = (scope.session.clone(), scope.worker.clone(), scope.epoch);
    let released = tree.ports.store.tx(move |tx| ownership::release(tx, &id, &worker, epoch)).await;
    if let Err(error) = released {
        tracing::warn!(session = %scope.session, %error, "a lease could not be released; it lapses by itself");
    }
}

impl SessionActor {
    /// Follows the settled segment in the fold, and goes on.
    fn settled(
        &mut self,
        settled: &Settled,
        turn: &crate::model::ids::TurnId,
        edits: &[Edit],
        ctx: &mut Context<Self>,
    ) {
        if settled.written && self.follow(settled, turn, edits).is_err() {
            // The copy is wrong somehow; the record is right, and is read again when needed.
            self.folded = None;
        }
        self.made_progress();
        if settled.status == SessionStatus::Runnable {
            self.wake_again = true;
        }
        self.idle(ctx);
        self.write_piece(ctx);
    }

    fn follow(
        &mut self,
        settled: &Settled,
        turn: &crate::model::ids::TurnId,
        edits: &[Edit],
    ) -> Result<(), StoreError> {
        let folded = self.folded.get_or_insert_with(Default::default);
        let count = i64::try_from(edits.len()).unwrap_or(0);
        let first = settled.edit_cursor.map_or(0, |last| last + 1 - count);
        for (at, edit) in (first..).zip(edits) {
            folded.step(at, Some(turn), &FoldStep::Edit(edit.clone()))?;
        }
        match (settled.status, settled.end_cursor) {
            (SessionStatus::Completed, _) => {
                folded.step(settled.head - 1, Some(turn), &FoldStep::Completed)?
            }
            (_, Some(seq)) => folded.step(seq, Some(turn), &FoldStep::Reverted)?,
            _ => {}
        }
        folded.read_to = settled.head;
        Ok(())
    }

    /// Writes the fold down when enough has come since the last time. Losing this costs only time.
    fn write_piece(&mut self, ctx: &mut Context<Self>) {
        let Some(folded) = &mut self.folded else { return };
        let Some(row) = folded.next_piece(&self.id, FOLD_SNAPSHOT_EDITS) else { return };
        folded.wrote_piece(&row);
        let store = self.tree.ports.store.clone();
        let writing = async move { store.tx(move |tx| crate::rules::history::write_piece(tx, &row)).await };
        ctx.spawn(wrap_future::<_, Self>(writing).map(|result: Result<(), StoreError>, act, _| {
            if let Err(error) = result {
                tracing::warn!(session = %act.id, %error, "a fold snapshot was not written");
                // The chain of pieces has a gap now: the next one starts a new chain.
                if let Some(folded) = &mut act.folded {
                    folded.forget_pieces();
                }
            }
        }));
    }
}
