//! Effects of a run, resolved over its link to core (spec: engine, section 3.10 point 4; harness-api, sections 11.5 and 12).

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, LocalBoxFuture, select};
use nylorun_actors::model::Json;
use nylorun_actors::model::effect::{EffectIntent, EffectKind, Outcome, RecordedOutcome};
use nylorun_actors::model::ids::EffectId;
use nylorun_actors::model::turn::{Abort, AbortKind, Routing, RunGrant, RunOptions};
use nylorun_actors::ports::engine::{
    AbortSignal, ApiCode, ApiError, EffectReport, IntentAnswer, OutcomeAnswer, Preview, RunLink,
};
use serde_json::json;
use tokio::time::{Duration, Instant};

use super::hold;
use super::tools::{ToolCall, ToolExecutor};
use crate::engine::agent::errors::PortError;
use crate::engine::agent::port::{Effect, EffectPort, Resolution};
use crate::engine::model::call::{CallContext, ModelAdapter, ModelCall};

/// The effects of one run.
#[derive(Clone)]
pub(super) struct RunPort(Rc<Inner>);

struct Inner {
    parts: RunParts,
    abort: AbortSignal,
    recorded: HashMap<EffectId, RecordedOutcome>,
    began: Instant,
    /// Effects that the loop waits for.
    open: Cell<usize>,
}

/// What a run's effects are resolved with.
pub(super) struct RunParts {
    pub link: Rc<dyn RunLink>,
    pub grant: Arc<RunGrant>,
    pub manifest: Arc<Json>,
    pub routing: Arc<Routing>,
    pub options: RunOptions,
    pub models: Rc<dyn ModelAdapter>,
    pub tools: Option<Arc<dyn ToolExecutor>>,
    pub executors: Arc<[Arc<dyn ToolExecutor>]>,
}

impl RunPort {
    pub(super) fn new(parts: RunParts, recorded: Vec<RecordedOutcome>, began: Instant) -> Self {
        Self(Rc::new(Inner {
            abort: parts.link.abort(),
            parts,
            recorded: recorded.into_iter().map(|outcome| (outcome.effect_id.clone(), outcome)).collect(),
            began,
            open: Cell::new(0),
        }))
    }
}

impl EffectPort for RunPort {
    fn resolve(&self, effect: Effect) -> LocalBoxFuture<'static, Result<Resolution, PortError>> {
        // From here on, not from its first poll: those of one plan are all made before any is polled.
        let open = Open::new(&self.0);
        Box::pin(async move { open.0.resolve(effect).await })
    }

    fn aborted(&self) -> Option<Abort> {
        self.0.abort.get()
    }

    fn elapsed_ms(&self) -> u64 {
        self.0.elapsed_ms()
    }
}

impl Inner {
    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn resolve(&self, effect: Effect) -> Result<Resolution, PortError> {
        if let Some(known) = self.recorded.get(&effect.intent.effect_id) {
            if known.request_hash != effect.request_hash {
                let message = format!("effect {} was recorded with another request", known.effect_id);
                return Err(PortError::Drift(message));
            }
            return Ok(Resolution::Completed(known.outcome.clone()));
        }
        if let Some(abort) = self.abort.get() {
            return Err(PortError::Aborted(abort));
        }
        let Effect { intent, request_hash, call, manifest } = effect;
        let (id, kind) = (intent.effect_id.clone(), intent.kind);
        let kept = intent.clone();
        match self.parts.link.intent(intent, request_hash).await {
            Ok(IntentAnswer::Completed(outcome)) => Ok(Resolution::Completed(outcome)),
            Ok(IntentAnswer::Uncertain) => Ok(Resolution::Uncertain),
            Ok(IntentAnswer::Pending) => self.hold(kind, id).await,
            Ok(IntentAnswer::Execute { rejoin }) => {
                let intent = Arc::new(kept);
                let ran = match call {
                    Some(call) => self.run_model(call, &intent, rejoin).await,
                    None => self.run_tool(intent, manifest, rejoin).await,
                };
                match ran {
                    Ok(value) => self.report_value(id, value).await,
                    Err(cut) => self.report_cut(id, cut).await,
                }
            }
            Err(error) => Err(self.port_error(error)),
        }
    }

    /// Waits for a pending Action, so that a fast one costs no replay.
    async fn hold(&self, kind: EffectKind, id: EffectId) -> Result<Resolution, PortError> {
        let holdable =
            matches!(kind, EffectKind::Tool | EffectKind::Hook | EffectKind::Fn | EffectKind::Verify);
        let most = hold::most_ms(&self.parts.options, self.elapsed_ms());
        if !holdable || most == 0 {
            return Ok(Resolution::Pending);
        }
        let resolved = self.parts.link.resolved(id);
        match hold::wait(resolved, &self.abort, Duration::from_millis(most)).await {
            hold::Held::Resolved(outcome) => Ok(Resolution::Completed(outcome)),
            hold::Held::TimedOut => Ok(Resolution::Pending),
            hold::Held::Aborted(abort) => Err(PortError::Aborted(abort)),
        }
    }

    /// A model call ends at once when the run is told to stop; the adapter is not waited for.
    async fn run_model(
        &self,
        call: ModelCall,
        intent: &EffectIntent,
        rejoin: bool,
    ) -> Result<Arc<Json>, Cut> {
        let link = Rc::clone(&self.parts.link);
        // A preview cannot say whose it is, so only the root's answer is shown while it is written.
        let of_root = intent.agent.is_none();
        let invocation = intent.context.get("invocationId").and_then(Json::as_str).unwrap_or("");
        let context = CallContext {
            effect_id: intent.effect_id.clone(),
            session_id: intent.session_id.clone(),
            turn_id: intent.turn_id.clone(),
            agent_id: intent.agent_id.clone(),
            child_id: intent.agent.as_ref().map(|agent| agent.id.clone()),
            invocation_id: invocation.to_owned(),
            abort: self.abort.clone(),
            preview: of_root.then(|| {
                let show: Rc<dyn Fn(Preview)> = Rc::new(move |preview| link.preview(preview));
                show
            }),
            rejoin,
        };
        let answer = self.parts.models.call(call, context);
        let cut = |abort| Cut { abort: Some(abort), model: true, text: None };
        match select(answer, Box::pin(self.abort.fired())).await {
            Either::Left((answer, _)) => answer.map_err(cut),
            Either::Right((abort, _)) => Err(cut(abort)),
        }
    }

    /// Runs a tool call: of a sub-agent where there is a `manifest`, else of the turn's agent.
    async fn run_tool(
        &self,
        intent: Arc<EffectIntent>,
        manifest: Option<Arc<Json>>,
        rejoin: bool,
    ) -> Result<Arc<Json>, Cut> {
        let name = intent.tool_name.as_deref().unwrap_or("");
        let manifest = manifest.as_ref().unwrap_or(&self.parts.manifest);
        let mut executors = self.parts.tools.iter().chain(self.parts.executors.iter());
        let Some(executor) = executors.find(|executor| executor.can(manifest, name)) else {
            // Nothing was started, so this is known to have failed.
            let message = format!("this harness does not run tool {name}");
            return Ok(Arc::new(
                json!({"kind": "failed", "code": "tool.execution-failed", "message": message}),
            ));
        };
        let call = ToolCall {
            grant: Arc::clone(&self.parts.grant),
            manifest: Arc::clone(manifest),
            routing: Arc::clone(&self.parts.routing),
            workspaces: self.parts.link.workspaces(),
            abort: self.abort.clone(),
            rejoin,
            intent,
        };
        executor.run(call).await.map_err(|text| Cut {
            abort: self.abort.get(),
            model: false,
            text: Some(text),
        })
    }

    async fn report_value(&self, id: EffectId, value: Arc<Json>) -> Result<Resolution, PortError> {
        // With nothing else to wait for the loop goes on at once, so the value may travel with what it says next. Beside
        // a held Action it would travel only when that is over.
        if self.open.get() == 1 && self.parts.link.defer(&id, &value) {
            return Ok(Resolution::Completed(Outcome { value, state_patch: None }));
        }
        match self.parts.link.outcome(id.clone(), EffectReport::Value(value)).await {
            Ok(OutcomeAnswer::Completed(outcome)) => Ok(Resolution::Completed(outcome)),
            Ok(OutcomeAnswer::Uncertain) => Ok(Resolution::Uncertain),
            Err(error) if is_final(error.code) => Err(self.port_error(error)),
            // The value is never sent again: core may or may not have it, and only core can say.
            Err(error) => self.report_error(id, error.message).await,
        }
    }

    async fn report_cut(&self, id: EffectId, cut: Cut) -> Result<Resolution, PortError> {
        let Cut { abort, model, text } = cut;
        if let Some(abort) = &abort {
            // Core makes a model call that a shutdown cut again under the same effect, so it stays in flight.
            if abort.kind == AbortKind::OwnershipLost || (abort.kind == AbortKind::Shutdown && model) {
                return Err(PortError::Aborted(abort.clone()));
            }
        }
        let text = text.or_else(|| abort.as_ref().map(|abort| abort.message.clone())).unwrap_or_default();
        let reported = self.report_error(id, text).await;
        match abort {
            Some(abort) if abort.kind == AbortKind::Cancel => Err(PortError::Aborted(abort)),
            _ => reported,
        }
    }

    async fn report_error(&self, id: EffectId, text: String) -> Result<Resolution, PortError> {
        match self.parts.link.outcome(id, EffectReport::Error(text)).await {
            Ok(OutcomeAnswer::Completed(outcome)) => Ok(Resolution::Completed(outcome)),
            Ok(OutcomeAnswer::Uncertain) => Ok(Resolution::Uncertain),
            Err(error) if is_final(error.code) => Err(self.port_error(error)),
            // Whatever core refused, the effect was started and has no outcome here.
            Err(_) => Ok(Resolution::Uncertain),
        }
    }

    /// What a refusal means for the loop.
    fn port_error(&self, error: ApiError) -> PortError {
        let ApiError { code, message } = error;
        match (code, self.abort.get()) {
            (ApiCode::OwnershipLost | ApiCode::RunNotHeld, _) => PortError::Lost(AbortKind::OwnershipLost),
            (ApiCode::TurnCancelled, _) => PortError::Aborted(Abort { kind: AbortKind::Cancel, message }),
            (_, Some(abort)) => PortError::Aborted(abort),
            (ApiCode::Unavailable, None) => PortError::Lost(AbortKind::Shutdown),
            (ApiCode::EffectDrift, None) => PortError::Drift(message),
            (ApiCode::Invalid | ApiCode::Internal, None) => PortError::Refused(message),
        }
    }
}

/// Codes after which nothing more of this run is taken.
fn is_final(code: ApiCode) -> bool {
    matches!(
        code,
        ApiCode::OwnershipLost | ApiCode::RunNotHeld | ApiCode::TurnCancelled | ApiCode::Unavailable
    )
}

/// Counts an effect for as long as the loop waits for it.
struct Open(Rc<Inner>);

impl Open {
    fn new(inner: &Rc<Inner>) -> Self {
        inner.open.set(inner.open.get() + 1);
        Self(Rc::clone(inner))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
    }
}

/// An effect that was started and gave no value.
struct Cut {
    abort: Option<Abort>,
    model: bool,
    text: Option<String>,
}
