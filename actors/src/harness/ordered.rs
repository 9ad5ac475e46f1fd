//! What a run says of its effects, in the order in which it says it (spec: harness-api, sections 11, 12 and 14;
//! `docs/adr/0015-values-travel-over-wires.md`).
//!
//! A peer may say the next thing of a run without waiting for the answer to the value before it. Nothing of that run
//! overtakes a value: what comes while one is being recorded waits. An intent that has come in the same read as the value
//! before it goes to the session together with it and is written in the same commit, as in memory.

use std::future::Future;

use actix::prelude::*;
use tokio::sync::{oneshot, watch};

use super::HarnessActor;
use super::methods::{self, EffectAnswer, OutputCursor};
use super::wire::gone;
use crate::messages::session::{Before, Intend, Output, Report, ReportAndIntend};
use crate::model::Json;
use crate::model::ids::RunId;
use crate::model::json::encode;
use crate::model::turn::TurnOutput;
use crate::ports::engine::{ApiCode, ApiError, EffectReport, IntentAnswer, OutcomeAnswer};
use crate::session::SessionActor;

/// A value whose next message has come already: it waits for that one to be looked at, and for nothing else.
pub(super) struct Stash {
    /// The number of its request.
    pub(super) id: u64,
    pub(super) run: RunId,
    before: Before,
}

/// How many values of a run are being recorded.
pub(super) struct Recording(watch::Sender<usize>);

impl Default for Recording {
    fn default() -> Self {
        Self(watch::channel(0).0)
    }
}

/// One of them.
struct OneMore(watch::Sender<usize>);

impl Drop for OneMore {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Recording {
    fn one_more(&self) -> OneMore {
        self.0.send_modify(|count| *count += 1);
        OneMore(self.0.clone())
    }

    fn is_over(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Waits until all are recorded, or refused.
    fn over(&self) -> impl Future<Output = ()> + use<> {
        let mut count = self.0.subscribe();
        async move {
            // A run that is gone has nothing to wait for.
            let _ = count.wait_for(|count| *count == 0).await;
        }
    }
}

/// Reports a value and what the run is about to do. Where the second is refused, the first is recorded all the same: what
/// was done is done.
pub(super) async fn both_at_once(
    session: &Addr<SessionActor>,
    both: ReportAndIntend,
) -> (Result<OutcomeAnswer, ApiError>, Result<IntentAnswer, ApiError>) {
    let (run, before) = (both.run.clone(), both.before.clone());
    let error = match session.send(both).await.map_err(gone).and_then(|answer| answer) {
        Ok((reported, intended)) => return (Ok(reported), Ok(intended)),
        Err(error) => error,
    };
    if !matches!(error.code, ApiCode::EffectDrift | ApiCode::Invalid | ApiCode::Internal) {
        return (Err(error.clone()), Err(error));
    }
    let Before { effect, value } = before;
    let report = Report { run, effect, report: EffectReport::Value(value) };
    let reported = session.send(report).await.map_err(gone).and_then(|answer| answer);
    (reported, Err(error))
}

/// The answer of a request whose work goes on whoever waits for it.
async fn answer_of<T>(
    answer: oneshot::Receiver<Result<T, ApiError>>,
    render: impl FnOnce(T) -> String,
) -> Result<String, ApiError> {
    let lost = || ApiError::new(ApiCode::OwnershipLost, "the session is being taken over");
    answer.await.unwrap_or_else(|_| Err(lost())).map(render)
}

impl HarnessActor {
    fn take_stash(&mut self) -> Option<Stash> {
        self.wire_mut().and_then(|wire| wire.stash.take())
    }

    /// Sends a value on its way whose next message is none that carries it.
    pub(super) fn flush(&mut self, ctx: &mut Context<Self>) {
        if let Some(Stash { id, run, before: Before { effect, value } }) = self.take_stash() {
            let report = Report { run, effect, report: EffectReport::Value(value) };
            if let Err(error) = self.report(id, report, ctx) {
                self.answer(id, Err(error), ctx);
            }
        }
    }

    /// The connection ends: nothing carries the value any more, and nobody waits for what becomes of it.
    pub(super) fn keep_stash(&mut self) {
        if let Some(Stash { run, before: Before { effect, value }, .. }) = self.take_stash()
            && let Ok(session) = self.run_session(&run)
        {
            // One for each connection, before the loss of its run is told.
            session.do_send(Report { run, effect, report: EffectReport::Value(value) });
        }
    }

    /// `effect.outcome`. `more`: the message behind it is there.
    pub(super) fn outcome(
        &mut self,
        id: u64,
        params: Json,
        more: bool,
        ctx: &mut Context<Self>,
    ) -> Result<(), ApiError> {
        let (run, effect, report) = methods::outcome(params)?;
        self.run_session(&run)?;
        match report {
            EffectReport::Value(value) if more => {
                if let Some(wire) = self.wire_mut() {
                    wire.stash = Some(Stash { id, run, before: Before { effect, value } });
                }
                Ok(())
            }
            report => self.report(id, Report { run, effect, report }, ctx),
        }
    }

    fn report(&mut self, id: u64, report: Report, ctx: &mut Context<Self>) -> Result<(), ApiError> {
        let session = self.run_session(&report.run)?;
        let recording = self.wire_run(&report.run).map(|held| held.recording.one_more());
        let asked = session.send(report);
        let (answered, answer) = oneshot::channel();
        // Not the request's own future, which goes when its peer gives it up: what comes behind waits even then.
        ctx.spawn(fut::wrap_future(async move {
            let result = asked.await.map_err(gone).and_then(|answer| answer);
            drop(recording);
            // Its request may have been given up.
            let _ = answered.send(result);
        }));
        let text = answer_of(answer, |answer| encode(&EffectAnswer::from(answer)));
        self.spawn_served(id, fut::wrap_future(text), ctx);
        Ok(())
    }

    /// `effect.intent`, with the value that came right before it.
    pub(super) fn intent(&mut self, id: u64, params: Json, ctx: &mut Context<Self>) -> Result<(), ApiError> {
        let read = methods::params(params).and_then(|intent: methods::Intent| {
            intent.check()?;
            Ok((self.run_session(&intent.run_id)?, intent))
        });
        let (session, intent) = match read {
            Ok(read) => read,
            Err(error) => {
                self.flush(ctx);
                return Err(error);
            }
        };
        let methods::Intent { run_id: run, effect, request_hash: hash } = intent;
        let render = |answer: IntentAnswer| encode(&EffectAnswer::from(answer));
        let carries = self.wire_run(&run).is_some_and(|held| held.recording.is_over())
            && self.wire_mut().and_then(|wire| wire.stash.as_ref()).is_some_and(|stash| stash.run == run);
        let stash = if carries { self.take_stash() } else { None };
        match stash {
            Some(Stash { id: first, before, .. }) => {
                let recording = self.wire_run(&run).map(|held| held.recording.one_more());
                let both = ReportAndIntend { run, before, intent: effect, hash };
                let ((tell_first, first_answer), (tell, answer)) = (oneshot::channel(), oneshot::channel());
                ctx.spawn(fut::wrap_future(async move {
                    let (reported, intended) = both_at_once(&session, both).await;
                    drop(recording);
                    // Either request may have been given up.
                    let _ = tell_first.send(reported);
                    let _ = tell.send(intended);
                }));
                let text = answer_of(first_answer, |answer| encode(&EffectAnswer::from(answer)));
                self.spawn_served(first, fut::wrap_future(text), ctx);
                self.spawn_served(id, fut::wrap_future(answer_of(answer, render)), ctx);
            }
            None => {
                self.flush(ctx);
                self.behind_values(
                    id,
                    &run,
                    &session,
                    Intend { run: run.clone(), intent: effect, hash },
                    render,
                    ctx,
                );
            }
        }
        Ok(())
    }

    /// Asks the session once no value of the run is on its way any more.
    fn behind_values<M, T>(
        &mut self,
        id: u64,
        run: &RunId,
        session: &Addr<SessionActor>,
        message: M,
        render: impl FnOnce(T) -> String + 'static,
        ctx: &mut Context<Self>,
    ) where
        M: Message<Result = Result<T, ApiError>> + Send + 'static,
        SessionActor: Handler<M>,
        T: Send + 'static,
    {
        let Some(held) = self.wire_run(run).filter(|held| !held.recording.is_over()) else {
            return self.serve(id, session, message, render, ctx);
        };
        let (over, session) = (held.recording.over(), session.clone());
        let asked = async move {
            over.await;
            session.send(message).await.map_err(gone).and_then(|answer| answer).map(render)
        };
        self.spawn_served(id, fut::wrap_future(asked), ctx);
    }

    /// One of the five outputs.
    pub(super) fn output(
        &mut self,
        id: u64,
        method: &str,
        params: Json,
        ctx: &mut Context<Self>,
    ) -> Result<(), ApiError> {
        let output: TurnOutput = methods::params(params)?;
        let run = output.run_id.clone();
        let Some(held) = self.wire_run_mut(&run) else {
            return Err(ApiError::new(ApiCode::RunNotHeld, "this connection holds no such run"));
        };
        match &mut held.output {
            Some((of, waiting)) if of == method => {
                waiting.push(id);
                return Ok(());
            }
            Some(_) => return Err(ApiError::new(ApiCode::RunNotHeld, "the run has ended")),
            None => held.output = Some((method.to_owned(), Vec::new())),
        }
        let (session, over) = (held.session.clone(), held.recording.over());
        let asked = async move {
            over.await;
            session.send(Output { output, before: None }).await
        };
        ctx.spawn(fut::wrap_future::<_, Self>(asked).map(move |answer, act, ctx| {
            let result = answer.map_err(gone).and_then(|r| r);
            let waiting = act.drop_wire_run(&run).and_then(|held| held.output).map(|(_, ids)| ids);
            for id in std::iter::once(id).chain(waiting.unwrap_or_default()) {
                let text = result.clone().map(|cursor| encode(&OutputCursor { cursor }));
                act.answer(id, text, ctx);
            }
        }));
        Ok(())
    }
}
