//! An engine below the port whose every step a test chooses. It counts what it calls outside, so that a test sees
//! whether anything was done twice.

use std::collections::HashMap;
use std::panic::panic_any;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use serde_json::json;

use crate::model::Json;
use crate::model::canonical::request_hash;
use crate::model::effect::{EffectIntent, EffectKind};
use crate::model::ids::EffectId;
use crate::model::transcript::{Edit, edits};
use crate::model::turn::{AbortKind, OutputStatus, RunGrant, Thrown, TurnOutput, TurnStart};
use crate::ports::engine::{
    ApiCode, ApiError, EffectReport, Engine, IntentAnswer, OutcomeAnswer, RunEnd, RunLink,
};

/// One step of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A model call that takes so long, ms.
    Model(u64),
    /// A call of the scripted tool `work` that the harness runs, ms.
    Tool(u64),
    /// An Action (a hook) that the run does not wait for.
    Action,
    /// The tool `charge`, an Action, that the run waits for as long as it may.
    Charge,
    /// A hook that the run waits for as long as it may.
    Hook,
    /// The engine's task panics.
    Panic,
    /// The engine waits for ever and hears no abort.
    Hang,
    /// The engine waits for ever but ends when it is told to.
    Wait,
    /// The segment rolls over.
    Yield,
    /// The turn fails with this code.
    Fail(&'static str),
    /// The engine throws.
    Throw,
    /// The turn pauses for an approval.
    Approval,
    /// A call of `save_artifact` with this input.
    Save(Json),
}

type Plan = dyn Fn(&TurnStart) -> Vec<Step> + Send + Sync;

/// The engine.
pub struct FakeEngine {
    plan: Box<Plan>,
    calls: Arc<Mutex<HashMap<String, u32>>>,
    runs: Arc<Mutex<Vec<(String, u32)>>>,
}

impl FakeEngine {
    /// An engine that plans each run by its start.
    pub fn new(plan: impl Fn(&TurnStart) -> Vec<Step> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { plan: Box::new(plan), calls: Arc::default(), runs: Arc::default() })
    }

    /// An engine that does the same in every run.
    pub fn of(steps: Vec<Step>) -> Arc<Self> {
        Self::new(move |_| steps.clone())
    }

    /// How often each effect was called outside.
    #[must_use]
    pub fn calls(&self) -> HashMap<String, u32> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Turn and segment of every run that began.
    #[must_use]
    pub fn runs(&self) -> Vec<(String, u32)> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Engine for FakeEngine {
    fn run(
        &self,
        grant: RunGrant,
        start: TurnStart,
        link: Rc<dyn RunLink>,
    ) -> LocalBoxFuture<'static, RunEnd> {
        let steps = (self.plan)(&start);
        let turn = (grant.turn_id.to_string(), start.checkpoint.segment);
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(turn);
        let calls = Arc::clone(&self.calls);
        async move { Run { grant, start, link, calls }.play(steps).await }.boxed_local()
    }

    fn settled(&self, _grant: &RunGrant, _cursor: Option<i64>) {}
}

struct Run {
    grant: RunGrant,
    start: TurnStart,
    link: Rc<dyn RunLink>,
    calls: Arc<Mutex<HashMap<String, u32>>>,
}

#[allow(clippy::large_enum_variant)] // It lives for one step.
enum Done {
    Value(Arc<Json>),
    End(RunEnd),
}

impl Run {
    async fn play(&self, steps: Vec<Step>) -> RunEnd {
        let mut said = Vec::new();
        for (n, step) in steps.into_iter().enumerate() {
            let done = match step {
                Step::Model(ms) => self.effect(EffectKind::Model, n, ms).await,
                Step::Tool(ms) => self.effect(EffectKind::Tool, n, ms).await,
                Step::Action => self.action(EffectKind::Hook, n, false).await,
                Step::Save(input) => self.save(n, input).await,
                Step::Charge => self.action(EffectKind::Tool, n, true).await,
                Step::Hook => self.action(EffectKind::Hook, n, true).await,
                Step::Panic => panic_any("a test asked the engine to panic"),
                Step::Hang => std::future::pending().await,
                Step::Wait => {
                    let abort = self.link.abort().fired().await;
                    Done::End(self.stopped(abort.kind))
                }
                Step::Yield => return self.output(OutputStatus::Yielded, &said).await,
                Step::Approval => return self.output(OutputStatus::Paused, &said).await,
                Step::Fail(code) => {
                    let mut output = TurnOutput::of(self.grant.run_id.clone());
                    output.status = Some(OutputStatus::Failed);
                    output.error = Some(json!({ "code": code, "message": "as planned" }));
                    return RunEnd::Output(output);
                }
                Step::Throw => return self.thrown(None, "as planned"),
            };
            match done {
                Done::Value(value) => said.push(value),
                Done::End(end) => return end,
            }
        }
        self.output(OutputStatus::Completed, &said).await
    }

    fn thrown(&self, code: Option<&str>, message: &str) -> RunEnd {
        let mut output = TurnOutput::of(self.grant.run_id.clone());
        output.thrown = Some(Thrown { code: code.map(str::to_owned), message: message.into() });
        RunEnd::Output(output)
    }

    fn stopped(&self, kind: AbortKind) -> RunEnd {
        match kind {
            AbortKind::Shutdown | AbortKind::OwnershipLost => RunEnd::Released(kind),
            AbortKind::Cancel | AbortKind::Deadline => {
                let mut output = TurnOutput::of(self.grant.run_id.clone());
                output.status = Some(OutputStatus::Cancelled);
                RunEnd::Output(output)
            }
        }
    }

    /// An effect that the harness itself runs.
    async fn effect(&self, kind: EffectKind, n: usize, ms: u64) -> Done {
        let intent = self.intent(kind, n, (kind == EffectKind::Tool).then_some("work"));
        let id = intent.effect_id.clone();
        match self.declare(intent).await {
            Ok(IntentAnswer::Completed(outcome)) => Done::Value(outcome.value),
            Ok(IntentAnswer::Pending) => Done::End(self.waiting(OutputStatus::Waiting, &id)),
            Ok(IntentAnswer::Uncertain) => Done::End(self.waiting(OutputStatus::Uncertain, &id)),
            Ok(IntentAnswer::Execute { .. }) => self.call(kind, id, n, ms).await,
            Err(error) => Done::End(self.refused(error.code, &error.message)),
        }
    }

    /// A tool that core carries out itself: its outcome is the answer to its intent.
    async fn save(&self, n: usize, input: Json) -> Done {
        let mut intent = self.intent(EffectKind::Tool, n, Some("save_artifact"));
        intent.capability_id = Some("nylorun.artifacts".to_owned());
        intent.input = Some(Arc::new(input));
        let id = intent.effect_id.clone();
        match self.declare(intent).await {
            Ok(IntentAnswer::Completed(outcome)) => Done::Value(outcome.value),
            Ok(IntentAnswer::Uncertain) => Done::End(self.waiting(OutputStatus::Uncertain, &id)),
            Ok(_) => Done::End(self.thrown(None, "nobody carried the tool out")),
            Err(error) => Done::End(self.refused(error.code, &error.message)),
        }
    }

    /// An Action; with `hold` its outcome is waited for as long as the run's options say.
    async fn action(&self, kind: EffectKind, n: usize, hold: bool) -> Done {
        let intent = self.intent(kind, n, (kind == EffectKind::Tool).then_some("charge"));
        let id = intent.effect_id.clone();
        match self.declare(intent).await {
            Ok(IntentAnswer::Completed(outcome)) => Done::Value(outcome.value),
            Ok(IntentAnswer::Pending) if hold => self.hold(id).await,
            Ok(IntentAnswer::Uncertain) => Done::End(self.waiting(OutputStatus::Uncertain, &id)),
            Ok(_) => Done::End(self.waiting(OutputStatus::Waiting, &id)),
            Err(error) => Done::End(self.refused(error.code, &error.message)),
        }
    }

    async fn hold(&self, id: EffectId) -> Done {
        let abort = self.link.abort();
        let most = Duration::from_millis(self.start.options.hold_ms.unwrap_or(0));
        // The lease is renewed meanwhile by whoever carries the run.
        tokio::select! {
            biased;
            outcome = self.link.resolved(id.clone()) => Done::Value(outcome.value),
            abort = abort.fired() => Done::End(self.stopped(abort.kind)),
            () = tokio::time::sleep(most) => Done::End(self.waiting(OutputStatus::Waiting, &id)),
        }
    }

    /// Declares an effect, or finds it among the outcomes that the segment started with.
    async fn declare(&self, intent: EffectIntent) -> Result<IntentAnswer, ApiError> {
        if let Some(known) = self.start.outcomes.iter().find(|o| o.effect_id == intent.effect_id) {
            return Ok(IntentAnswer::Completed(known.outcome.clone()));
        }
        let hash = request_hash(&intent);
        self.link.intent(intent, hash).await
    }

    fn intent(&self, kind: EffectKind, n: usize, tool: Option<&str>) -> EffectIntent {
        let segment = self.start.checkpoint.segment;
        let context = json!({ "invocationId": format!("i{n}"), "callId": format!("c{n}") });
        EffectIntent {
            effect_id: EffectId::from(format!("{}:{segment}:{}:{n}", self.grant.turn_id, kind.as_str())),
            session_id: self.grant.session_id.clone(),
            turn_id: self.grant.turn_id.clone(),
            agent_id: "assistant".into(),
            manifest_hash: self.start.checkpoint.manifest_hash.clone(),
            kind,
            agent: None,
            capability_id: tool.map(|_| "agent".to_owned()),
            tool_name: tool.map(str::to_owned),
            hook: None,
            path: None,
            key: None,
            iterations: None,
            input: (kind != EffectKind::Model).then(|| Arc::new(json!({ "n": n }))),
            context: context.as_object().cloned().unwrap_or_default(),
        }
    }

    fn refused(&self, code: ApiCode, message: &str) -> RunEnd {
        match (code, self.link.abort().get()) {
            (_, Some(abort)) => self.stopped(abort.kind),
            (ApiCode::OwnershipLost | ApiCode::Unavailable, None) => {
                RunEnd::Released(AbortKind::OwnershipLost)
            }
            _ => self.thrown(Some(code.as_str()), message),
        }
    }

    fn waiting(&self, status: OutputStatus, id: &EffectId) -> RunEnd {
        let mut output = TurnOutput::of(self.grant.run_id.clone());
        output.status = Some(status);
        output.effect_ids = Some(vec![id.to_string()]);
        RunEnd::Output(output)
    }

    async fn call(&self, kind: EffectKind, id: EffectId, n: usize, ms: u64) -> Done {
        *self.calls.lock().unwrap_or_else(PoisonError::into_inner).entry(id.to_string()).or_insert(0) += 1;
        let abort = self.link.abort();
        let aborted = tokio::select! {
            biased;
            abort = abort.fired() => Some(abort),
            () = tokio::time::sleep(Duration::from_millis(ms)) => None,
        };
        if let Some(abort) = aborted {
            // A model call is made again by whoever resumes; a tool's fate is unknown.
            if kind != EffectKind::Model || abort.kind != AbortKind::Shutdown {
                let _ = self.link.outcome(id, EffectReport::Error("cut off".into())).await;
            }
            return Done::End(self.stopped(abort.kind));
        }
        let value = match kind {
            EffectKind::Model => json!({ "output": [{ "type": "text", "text": format!("step {n}") }] }),
            _ => json!({ "kind": "completed", "output": n }),
        };
        let value = Arc::new(value);
        if self.link.defer(&id, &value) {
            return Done::Value(value);
        }
        match self.link.outcome(id.clone(), EffectReport::Value(value)).await {
            Ok(OutcomeAnswer::Completed(outcome)) => Done::Value(outcome.value),
            Ok(OutcomeAnswer::Uncertain) => Done::End(self.waiting(OutputStatus::Uncertain, &id)),
            Err(error) => Done::End(self.refused(error.code, &error.message)),
        }
    }

    /// Ends with the transcript that the segment started with, the input and what was said.
    async fn output(&self, status: OutputStatus, said: &[Arc<Json>]) -> RunEnd {
        let before = if self.start.checkpoint.state.is_some() {
            match self.link.transcript().await {
                Ok(entries) => entries,
                Err(error) => return self.refused(error.code, &error.message),
            }
        } else {
            Arc::default()
        };
        let mut after = before.as_ref().clone();
        after.push(Arc::new(json!({ "kind": "input", "event": self.start.checkpoint.input })));
        after.extend(said.iter().cloned());
        let mut output = TurnOutput::of(self.grant.run_id.clone());
        output.status = Some(status);
        output.state = Some(Arc::new(json!({
            "version": 1, "agentId": "assistant", "executionId": self.grant.session_id.as_str(),
            "manifestHash": self.start.checkpoint.manifest_hash, "transcript": [], "entries": after.len(),
        })));
        let changes: Vec<Edit> = edits(&before, &after);
        output.transcript = Some(changes);
        match status {
            OutputStatus::Paused => {
                let id = format!("{}:interaction", self.grant.turn_id);
                output.pending =
                    Some(json!([{ "invocationId": "i0", "callId": "c0", "status": "interaction",
                    "interaction": { "id": id, "kind": "approval", "prompt": "go on?" } }]));
            }
            _ => output.output = Some(Arc::new(json!(format!("{} steps", said.len())))),
        }
        RunEnd::Output(output)
    }
}
