//! What a held run asks of its session.

use std::sync::Arc;

use actix::fut::wrap_future;
use actix::prelude::*;
use tokio::time::Instant;

use super::{Advance, Held, SessionActor};
use crate::artifacts::save::{self, SaveCall};
use crate::messages::harness::Hold;
use crate::messages::session::{
    Claimed, Intend, McpDiscovered, ReadTranscript, ReleaseRun, RenewLease, Report, ReportAndIntend,
};
use crate::model::Json;
use crate::model::action::ActionSource;
use crate::model::effect::EffectIntent;
use crate::model::ids::{EffectId, RunId};
use crate::model::transcript::Entry;
use crate::model::turn::AbortKind;
use crate::ports::engine::{ApiCode, ApiError, EffectReport, IntentAnswer, OutcomeAnswer};
use crate::ports::store::{StoreError, Tx};
use crate::rules::RunRefusal;
use crate::rules::claims;
use crate::rules::effects::{self, PreparedIntent, PreparedValue};
use crate::rules::ownership;
use crate::tenant::persist::persist;

/// How long an intent is tried again while the store refuses it in passing, ms.
const INTENT_PATIENCE_MS: u64 = 10_000;

pub(super) fn refused(refusal: RunRefusal) -> ApiError {
    let code = match &refusal {
        RunRefusal::OwnershipLost(_) => ApiCode::OwnershipLost,
        RunRefusal::TurnCancelled => ApiCode::TurnCancelled,
        RunRefusal::EffectDrift(_) => ApiCode::EffectDrift,
        RunRefusal::Invalid(_) => ApiCode::Invalid,
        RunRefusal::Store(_) => ApiCode::Internal,
    };
    ApiError::new(code, refusal.to_string())
}

pub(super) fn not_held() -> ApiError {
    ApiError::new(ApiCode::RunNotHeld, "this session holds no such run")
}

impl Held {
    /// Renders an intent and notes what it is about; with the call when core carries it out itself. A run that was told to
    /// stop starts nothing.
    fn prepare(
        &mut self,
        intent: EffectIntent,
        hash: String,
    ) -> Result<(PreparedIntent, Option<SaveCall>), ApiError> {
        if let Some(abort) = &self.abort {
            let code =
                if abort.kind == AbortKind::Cancel { ApiCode::TurnCancelled } else { ApiCode::Internal };
            return Err(ApiError::new(code, abort.message.clone()));
        }
        if !self.harness_tools.knows_agent(&intent) {
            return Err(refused(RunRefusal::Invalid("the manifest has no such sub-agent".into())));
        }
        let call = self.harness_tools.is_cores(&intent).then(|| SaveCall::of(&intent));
        let by_harness = call.is_some() || self.harness_tools.has(&intent);
        let kind = intent.kind;
        let source = ActionSource {
            manifest: &self.manifest,
            implementation_version: &self.pin.implementation_version,
        };
        let prepared = PreparedIntent::new(&self.scope, intent, hash, by_harness, source).map_err(refused)?;
        self.facts.insert(prepared.id().clone(), prepared.facts());
        self.in_flight.insert(prepared.id().clone(), kind);
        Ok((prepared, call))
    }
}

impl SessionActor {
    /// After an intent: what nobody has to do is not in flight, and an Action goes to its endpoint.
    fn intended(&mut self, run: &RunId, id: &EffectId, result: Result<&IntentAnswer, &ApiError>) {
        if matches!(result, Ok(IntentAnswer::Pending))
            && let Ok(held) = self.held(run)
        {
            let agent = held.agent.clone();
            if let Some(harness) = &held.harness {
                // One for each Action: rare control, as the outcome that ends it.
                harness.do_send(Hold { run: run.clone(), effect: id.clone() });
            }
            self.tree.nudge_endpoint(&agent);
        }
        if !matches!(result, Ok(IntentAnswer::Execute { .. } | IntentAnswer::Pending))
            && let Ok(held) = self.held(run)
        {
            held.in_flight.remove(id);
        }
    }

    pub(super) fn held(&mut self, run: &RunId) -> Result<&mut Held, ApiError> {
        match &mut self.state {
            Advance::Held(held) if held.run == *run => Ok(held),
            _ => Err(not_held()),
        }
    }

    /// Something new is recorded: attempts and deaths before it count no more.
    pub(super) fn made_progress(&mut self) {
        self.drops = 0;
        if self.attempts > 0 {
            self.attempts = 0;
            self.tree.forgive(&self.id);
        }
    }

    /// After a run's request: an epoch that moved on ends the run here.
    pub(super) fn after<T>(&mut self, run: &RunId, result: &Result<T, ApiError>, ctx: &mut Context<Self>) {
        if matches!(result, Err(error) if error.code == ApiCode::OwnershipLost) {
            self.abort_run(run, AbortKind::OwnershipLost, "the lease was lost", ctx);
        }
    }
}

impl Handler<Intend> for SessionActor {
    type Result = ResponseActFuture<Self, Result<IntentAnswer, ApiError>>;

    fn handle(&mut self, msg: Intend, _ctx: &mut Self::Context) -> Self::Result {
        let Intend { run, intent, hash } = msg;
        let held = match self.held(&run) {
            Ok(held) => held,
            Err(error) => return Box::pin(fut::ready(Err(error))),
        };
        let (prepared, call) = match held.prepare(intent, hash) {
            Ok(prepared) => prepared,
            Err(error) => return Box::pin(fut::ready(Err(error))),
        };
        let (scope, id) = (held.scope.clone(), prepared.id().clone());
        let call = call.map(|call| call.by(&held.agent, &scope, &prepared));
        let tree = Arc::clone(&self.tree);
        let intending = async move {
            let (scope, prepared) = (Arc::new(scope), Arc::new(prepared));
            let intend = move |tx: &mut dyn Tx| effects::intend(tx, &scope, &prepared);
            let answer = persist(&tree.ports.store, Some(INTENT_PATIENCE_MS), intend).await;
            save::intended(&tree, call, answer).await
        };
        Box::pin(wrap_future::<_, Self>(intending).map(move |result, act, ctx| {
            let result = result.map_err(refused);
            act.intended(&run, &id, result.as_ref());
            act.after(&run, &result, ctx);
            result
        }))
    }
}

impl Handler<ReportAndIntend> for SessionActor {
    type Result = ResponseActFuture<Self, Result<(OutcomeAnswer, IntentAnswer), ApiError>>;

    fn handle(&mut self, msg: ReportAndIntend, _ctx: &mut Self::Context) -> Self::Result {
        let ReportAndIntend { run, before, intent, hash } = msg;
        let held = match self.held(&run) {
            Ok(held) => held,
            Err(error) => return Box::pin(fut::ready(Err(error))),
        };
        let (prepared, call) = match held.prepare(intent, hash) {
            Ok(prepared) => prepared,
            Err(error) => return Box::pin(fut::ready(Err(error))),
        };
        let (scope, agent) = (held.scope.clone(), held.agent.clone());
        let call = call.map(|call| call.by(&agent, &scope, &prepared));
        let facts = held.facts.get(&before.effect).cloned();
        let (done, id) = (before.effect.clone(), prepared.id().clone());
        let tree = Arc::clone(&self.tree);
        let writing = async move {
            let value = PreparedValue::new(before.effect, before.value, facts.as_ref());
            let all = Arc::new((scope, value, agent, prepared));
            let write = move |tx: &mut dyn Tx| {
                let (scope, value, agent, prepared) = all.as_ref();
                let recorded = effects::record_value(tx, scope, value, agent)?;
                let intended = match recorded {
                    OutcomeAnswer::Completed(_) => effects::intend(tx, scope, prepared)?,
                    OutcomeAnswer::Uncertain => IntentAnswer::Uncertain,
                };
                Ok::<_, RunRefusal>((recorded, intended))
            };
            let (recorded, answer) = persist(&tree.ports.store, None, write).await?;
            Ok((recorded, save::intended(&tree, call, Ok(answer)).await?))
        };
        Box::pin(wrap_future::<_, Self>(writing).map(move |result, act, ctx| {
            let result = result.map_err(refused);
            if result.is_ok() {
                act.made_progress();
                if let Ok(held) = act.held(&run) {
                    held.in_flight.remove(&done);
                    held.facts.remove(&done);
                }
            }
            act.intended(&run, &id, result.as_ref().map(|(_, intended)| intended));
            act.after(&run, &result, ctx);
            result
        }))
    }
}

impl Handler<Report> for SessionActor {
    type Result = ResponseActFuture<Self, Result<OutcomeAnswer, ApiError>>;

    fn handle(&mut self, msg: Report, _ctx: &mut Self::Context) -> Self::Result {
        let Report { run, effect, report } = msg;
        let held = match self.held(&run) {
            Ok(held) => held,
            Err(error) => return Box::pin(fut::ready(Err(error))),
        };
        if let (EffectReport::Value(_), Some(abort)) = (&report, &held.abort)
            && abort.kind == AbortKind::Cancel
        {
            return Box::pin(fut::ready(Err(ApiError::new(ApiCode::TurnCancelled, abort.message.clone()))));
        }
        let scope = Arc::new(held.scope.clone());
        let agent = held.agent.clone();
        let facts = held.facts.get(&effect).cloned();
        let is_value = matches!(report, EffectReport::Value(_));
        let store = self.tree.ports.store.clone();
        let id = effect.clone();
        let recording = async move {
            match report {
                EffectReport::Value(value) => {
                    let prepared = Arc::new(PreparedValue::new(effect, value, facts.as_ref()));
                    // A value in hand is money spent: it is offered to the store for as long as the run lives.
                    persist(&store, None, move |tx| effects::record_value(tx, &scope, &prepared, &agent))
                        .await
                }
                EffectReport::Error(text) => {
                    let (effect, text) = (Arc::new(effect), Arc::new(text));
                    persist(&store, None, move |tx| effects::record_error(tx, &scope, &effect, &text)).await
                }
            }
        };
        Box::pin(wrap_future::<_, Self>(recording).map(move |result, act, ctx| {
            let result = result.map_err(refused);
            if is_value && result.is_ok() {
                act.made_progress();
            }
            if let Ok(held) = act.held(&run) {
                held.in_flight.remove(&id);
                if result.is_ok() {
                    held.facts.remove(&id);
                }
            }
            act.after(&run, &result, ctx);
            result
        }))
    }
}

impl Handler<ReadTranscript> for SessionActor {
    type Result = Result<Arc<Vec<Entry>>, ApiError>;

    fn handle(&mut self, msg: ReadTranscript, _ctx: &mut Self::Context) -> Self::Result {
        self.held(&msg.run)?;
        match &self.folded {
            Some(folded) => Ok(Arc::new(folded.entries().to_vec())),
            // Never an empty one in its place: the next edits would be made against a history that is not there.
            None => Err(ApiError::new(ApiCode::Internal, "the transcript of this run is not at hand")),
        }
    }
}

impl Handler<RenewLease> for SessionActor {
    type Result = ResponseActFuture<Self, Result<bool, ApiError>>;

    fn handle(&mut self, msg: RenewLease, _ctx: &mut Self::Context) -> Self::Result {
        let run = msg.run;
        let held = match self.held(&run) {
            Ok(held) => held,
            Err(error) => return Box::pin(fut::ready(Err(error))),
        };
        if held.abort.is_some() {
            // Its cancel is on the way; an advance that will not wind down is taken over.
            return Box::pin(fut::ready(Ok(true)));
        }
        let (id, epoch) = (held.scope.session.clone(), held.scope.epoch);
        let (worker, lease) = (self.tree.config.worker.clone(), self.tree.config.owner_lease_ms);
        let store = self.tree.ports.store.clone();
        let renewing =
            async move { store.tx(move |tx| ownership::renew(tx, &id, &worker, epoch, lease)).await };
        Box::pin(wrap_future::<_, Self>(renewing).map(move |result, act, ctx| match result {
            Ok(Some(until)) => {
                if let Ok(held) = act.held(&run) {
                    held.expires_at = until;
                    held.renewed = Instant::now();
                }
                Ok(true)
            }
            Ok(None) => {
                act.abort_run(&run, AbortKind::OwnershipLost, "the lease was lost", ctx);
                Ok(false)
            }
            Err(error) => Err(ApiError::new(ApiCode::Internal, error.to_string())),
        }))
    }
}

impl Handler<Claimed> for SessionActor {
    type Result = ResponseActFuture<Self, Result<(), ApiError>>;

    fn handle(&mut self, msg: Claimed, _ctx: &mut Self::Context) -> Self::Result {
        if let Err(error) = self.held(&msg.run) {
            return Box::pin(fut::ready(Err(error)));
        }
        let (store, claim) = (self.tree.ports.store.clone(), msg.claim);
        let recording = async move { store.tx(move |tx| claims::record(tx, &claim)).await };
        Box::pin(wrap_future::<_, Self>(recording).map(|result: Result<(), StoreError>, act, _| {
            // A claim is best effort: the workspace goes on whether or not it is told.
            if let Err(error) = result {
                tracing::warn!(session = %act.id, %error, "a workspace's claim was not recorded");
            }
            Ok(())
        }))
    }
}

impl Handler<McpDiscovered> for SessionActor {
    type Result = ResponseActFuture<Self, Result<Json, ApiError>>;

    fn handle(&mut self, msg: McpDiscovered, _ctx: &mut Self::Context) -> Self::Result {
        let McpDiscovered { run, snapshot, diagnostics } = msg;
        let scope = match self.held(&run) {
            Ok(held) => Arc::new(held.scope.clone()),
            Err(error) => return Box::pin(fut::ready(Err(error))),
        };
        let store = self.tree.ports.store.clone();
        let (snapshot, diagnostics) = (Arc::new(snapshot), Arc::new(diagnostics));
        let recording = async move {
            persist(&store, Some(INTENT_PATIENCE_MS), move |tx| {
                claims::discovered(tx, &scope, snapshot.as_ref().as_ref(), &diagnostics)
            })
            .await
        };
        Box::pin(wrap_future::<_, Self>(recording).map(move |result, act, ctx| {
            // The pin has changed: it is read again at the next take.
            act.pin = None;
            let result = result.map_err(refused);
            // What was discovered just now is the harness's to run in this segment already.
            if let Ok(answer) = &result
                && let Ok(held) = act.held(&run)
            {
                held.harness_tools.discover(answer["sessionTools"].as_array().map_or(&[], Vec::as_slice));
            }
            act.after(&run, &result, ctx);
            result
        }))
    }
}

impl Handler<ReleaseRun> for SessionActor {
    type Result = Result<(), ApiError>;

    fn handle(&mut self, msg: ReleaseRun, ctx: &mut Self::Context) -> Self::Result {
        let held = self.held(&msg.run)?;
        let epoch = held.scope.epoch;
        if let Some(timer) = held.timer.take() {
            ctx.cancel_future(timer);
        }
        match msg.reason {
            AbortKind::OwnershipLost => {
                // Whoever owns it now goes on; when that is nobody, this process does.
                self.wake_again = self.draining.is_empty();
                self.idle(ctx);
            }
            _ => {
                // Resumed at once from the checkpoint, unless the Tenant closes.
                self.wake_again = self.draining.is_empty();
                self.give_back(epoch, ctx);
            }
        }
        Ok(())
    }
}
