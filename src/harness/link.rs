//! How an engine speaks to core from another process: its requests become frames of the run's connection
//! (spec: harness-api, sections 7, 11 and 12).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use nylorun_actors::harness::methods::{self, EffectAnswer, Intent, OfRun, Reported, Transcript};
use nylorun_actors::harness::resolved::Resolved;
use nylorun_actors::model::Json;
use nylorun_actors::model::effect::{EffectIntent, EffectKind, Outcome};
use nylorun_actors::model::ids::{EffectId, RunId};
use nylorun_actors::model::transcript::Entry;
use nylorun_actors::ports::engine::{
    AbortSignal, ApiCode, ApiError, EffectReport, IntentAnswer, OutcomeAnswer, Preview, RunLink,
};
use nylorun_actors::ports::workspaces::RunWorkspaces;

use super::channel::{Channel, Params};

/// One run's link.
pub(super) struct WireLink {
    pub(super) channel: Channel,
    pub(super) run: RunId,
    /// Where the start says that the transcript stands.
    pub(super) cursor: i64,
    pub(super) abort: AbortSignal,
    pub(super) resolved: Rc<Resolved>,
    /// A value, as `effect.outcome` has it, that travels with the next thing the run says.
    pub(super) deferred: RefCell<Option<Params>>,
    pub(super) workspaces: Option<RunWorkspaces>,
}

impl WireLink {
    /// The value that nothing has carried yet.
    pub(super) fn take_deferred(&self) -> Option<Params> {
        self.deferred.take()
    }
}

fn invalid(message: &str) -> ApiError {
    ApiError::new(ApiCode::Invalid, message)
}

fn reported(answer: EffectAnswer) -> Result<OutcomeAnswer, ApiError> {
    answer.into_outcome().ok_or_else(|| invalid("invalid result: no answer to an outcome"))
}

impl RunLink for WireLink {
    fn intent(
        &self,
        mut effect: EffectIntent,
        request_hash: String,
    ) -> LocalBoxFuture<'static, Result<IntentAnswer, ApiError>> {
        if effect.kind == EffectKind::Model {
            // The prompt never leaves this process; its hash does.
            effect.input = None;
        }
        let (channel, run_id, before) = (self.channel.clone(), self.run.clone(), self.take_deferred());
        async move {
            let intent = Intent { run_id, effect, request_hash };
            let Some(value) = before else {
                // What core would refuse is not sent.
                intent.check()?;
                let answer: EffectAnswer = channel.request("effect.intent", &intent).await?;
                return Ok(answer.into_intent());
            };
            let intent = match intent.check().and_then(|()| Params::of(&intent)) {
                Ok(intent) => intent,
                Err(error) => {
                    // What comes next cannot be said, but what was done is done.
                    reported(channel.send("effect.outcome", value).await?)?;
                    return Err(error);
                }
            };
            let both = channel.send_both(("effect.outcome", value), ("effect.intent", intent)).await?;
            let (value, intended): (Result<EffectAnswer, _>, Result<EffectAnswer, _>) = both;
            match reported(value?)? {
                OutcomeAnswer::Completed(_) => intended.map(EffectAnswer::into_intent),
                OutcomeAnswer::Uncertain => Ok(IntentAnswer::Uncertain),
            }
        }
        .boxed_local()
    }

    fn defer(&self, effect: &EffectId, value: &Arc<Json>) -> bool {
        if !self.channel.is_ordered() || methods::ids(&[("effectId", effect.as_str())]).is_err() {
            return false;
        }
        let report = EffectReport::Value(Arc::clone(value));
        let Ok(params) = Params::of(&Reported::new(self.run.clone(), effect.clone(), report)) else {
            return false;
        };
        self.deferred.replace(Some(params));
        true
    }

    fn outcome(
        &self,
        effect: EffectId,
        report: EffectReport,
    ) -> LocalBoxFuture<'static, Result<OutcomeAnswer, ApiError>> {
        let (channel, run) = (self.channel.clone(), self.run.clone());
        async move {
            methods::ids(&[("effectId", effect.as_str())])?;
            let reported = Reported::new(run, effect, report);
            self::reported(channel.request("effect.outcome", &reported).await?)
        }
        .boxed_local()
    }

    fn transcript(&self) -> LocalBoxFuture<'static, Result<Arc<Vec<Entry>>, ApiError>> {
        let (channel, run_id, cursor) = (self.channel.clone(), self.run.clone(), self.cursor);
        async move {
            let read: Transcript = channel.request("transcript.read", &OfRun { run_id }).await?;
            if read.cursor != cursor {
                // It would be kept under a cursor that it does not belong to.
                return Err(invalid(
                    "invalid result: the transcript is not the one that the run starts with",
                ));
            }
            Ok(Arc::new(read.entries))
        }
        .boxed_local()
    }

    fn resolved(&self, effect: EffectId) -> LocalBoxFuture<'static, Outcome> {
        let board = Rc::clone(&self.resolved);
        async move { board.get(&effect).await }.boxed_local()
    }

    /// The Harness API has no place for previews.
    fn preview(&self, _: Preview) {}

    fn abort(&self) -> AbortSignal {
        self.abort.clone()
    }

    fn workspaces(&self) -> Option<RunWorkspaces> {
        self.workspaces.clone()
    }
}
