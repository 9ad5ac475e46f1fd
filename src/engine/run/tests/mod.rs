//! The run wrapper against a link in memory.

mod aborts;
mod caching;
mod children;
mod effects;
mod sandbox;
mod scripted;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::pending;
use std::sync::Mutex;

use futures_util::FutureExt;
use futures_util::future::ready;
use nylorun_actors::model::Json;
use nylorun_actors::model::canonical::manifest_hash;
use nylorun_actors::model::checkpoint::{Checkpoint, ENGINE_VERSION};
use nylorun_actors::model::effect::{EffectIntent, EffectKind, Outcome, RecordedOutcome};
use nylorun_actors::model::ids::{EffectId, RunId, SessionId, TurnId};
use nylorun_actors::model::json::JsonMap;
use nylorun_actors::model::transcript::{Entry, apply};
use nylorun_actors::model::turn::{Abort, Routing, RunOptions, TranscriptAt, TurnStartType, YieldAfter};
use nylorun_actors::ports::engine::{AbortSignal, EffectReport, IntentAnswer, OutcomeAnswer, Preview};
use nylorun_actors::ports::workspaces::RunWorkspaces;
use serde_json::json;
use tokio::sync::{oneshot, watch};

use super::tools::ToolCall;
use super::*;
use crate::engine::model::call::{CallContext, ModelAdapter, ModelCall};

/// What the model does next.
pub enum Model {
    Says(Json),
    Hangs,
}

thread_local! {
    static SCRIPT: RefCell<Vec<Model>> = const { RefCell::new(Vec::new()) };
}

struct Scripted;

impl ModelAdapter for Scripted {
    fn call(&self, _: ModelCall, cx: CallContext) -> LocalBoxFuture<'static, Result<Arc<Json>, Abort>> {
        if let Some(show) = cx.preview {
            show(Preview { invocation_id: cx.invocation_id, text: Some("p".into()), tool_call: None });
        }
        match SCRIPT.with_borrow_mut(|script| script.remove(0)) {
            Model::Says(value) => ready(Ok(Arc::new(value))).boxed_local(),
            Model::Hangs => pending().boxed_local(),
        }
    }
}

/// An executor of the tool `local`.
#[derive(Default)]
pub struct Local {
    answers: Mutex<Vec<Result<Json, String>>>,
}

impl ToolExecutor for Local {
    fn can(&self, _: &Json, tool: &str) -> bool {
        tool == "local"
    }

    fn run(&self, call: ToolCall) -> LocalBoxFuture<'static, Result<Arc<Json>, String>> {
        let answer = self.answers.lock().unwrap().pop();
        match answer {
            Some(answer) => ready(answer.map(Arc::new)).boxed_local(),
            // Runs until it is stopped.
            None => {
                async move { Err(format!("cut by {}", call.abort.fired().await.kind.as_str())) }.boxed_local()
            }
        }
    }
}

/// Core, as a run sees it.
pub struct Link {
    pub intents: RefCell<Vec<EffectIntent>>,
    pub hashes: RefCell<HashMap<String, String>>,
    pub reports: RefCell<Vec<(String, EffectReport)>>,
    pub previews: Cell<usize>,
    pub reads: Cell<usize>,
    pub entries: RefCell<Vec<Entry>>,
    /// Answer to the intent of a tool or a hook; a model's is `Execute`, a delegation's `null`.
    pub tool: RefCell<Result<IntentAnswer, ApiError>>,
    /// Answer to the outcome of a value, if not the recorded value.
    pub refuses_values: RefCell<Option<ApiError>>,
    pub resolved: RefCell<HashMap<String, oneshot::Receiver<Outcome>>>,
    /// Values that travel with what comes next, where the channel takes them.
    pub deferred: RefCell<Option<Vec<String>>>,
    pub workspaces: RefCell<Option<RunWorkspaces>>,
    pub aborter: watch::Sender<Option<Abort>>,
    signal: AbortSignal,
}

impl Link {
    pub fn new() -> Rc<Self> {
        let (aborter, signal) = AbortSignal::channel();
        Rc::new(Self {
            intents: RefCell::default(),
            hashes: RefCell::default(),
            reports: RefCell::default(),
            previews: Cell::new(0),
            reads: Cell::new(0),
            entries: RefCell::default(),
            tool: RefCell::new(Ok(IntentAnswer::Pending)),
            refuses_values: RefCell::new(None),
            resolved: RefCell::default(),
            deferred: RefCell::default(),
            workspaces: RefCell::default(),
            aborter,
            signal,
        })
    }

    pub fn abort_with(&self, kind: AbortKind) {
        self.aborter.send_replace(Some(Abort { kind, message: "stop".into() }));
    }

    pub fn ids(&self) -> Vec<String> {
        self.intents.borrow().iter().map(|intent| intent.effect_id.as_str().to_owned()).collect()
    }

    /// The errors that were reported.
    pub fn errors(&self) -> Vec<String> {
        let text = |(_, report): &(String, EffectReport)| match report {
            EffectReport::Error(text) => Some(text.clone()),
            EffectReport::Value(_) => None,
        };
        self.reports.borrow().iter().filter_map(text).collect()
    }
}

impl RunLink for Link {
    fn intent(
        &self,
        effect: EffectIntent,
        hash: String,
    ) -> LocalBoxFuture<'static, Result<IntentAnswer, ApiError>> {
        let answer = match effect.kind {
            EffectKind::Model => Ok(IntentAnswer::Execute { rejoin: false }),
            EffectKind::Tool if effect.tool_name.as_deref() == Some("local") => {
                Ok(IntentAnswer::Execute { rejoin: false })
            }
            EffectKind::Delegation => {
                let outcome = Outcome { value: Arc::new(Json::Null), state_patch: None };
                Ok(IntentAnswer::Completed(outcome))
            }
            _ => self.tool.borrow().clone(),
        };
        self.hashes.borrow_mut().insert(effect.effect_id.as_str().to_owned(), hash);
        self.intents.borrow_mut().push(effect);
        ready(answer).boxed_local()
    }

    fn outcome(
        &self,
        effect: EffectId,
        report: EffectReport,
    ) -> LocalBoxFuture<'static, Result<OutcomeAnswer, ApiError>> {
        self.reports.borrow_mut().push((effect.as_str().to_owned(), report.clone()));
        ready(match (report, self.refuses_values.borrow().clone()) {
            (EffectReport::Value(_), Some(error)) => Err(error),
            (EffectReport::Value(value), None) => {
                Ok(OutcomeAnswer::Completed(Outcome { value, state_patch: None }))
            }
            (EffectReport::Error(_), _) => Ok(OutcomeAnswer::Uncertain),
        })
        .boxed_local()
    }

    fn transcript(&self) -> LocalBoxFuture<'static, Result<Arc<Vec<Entry>>, ApiError>> {
        self.reads.set(self.reads.get() + 1);
        ready(Ok(Arc::new(self.entries.borrow().clone()))).boxed_local()
    }

    fn defer(&self, effect: &EffectId, _: &Arc<Json>) -> bool {
        let mut deferred = self.deferred.borrow_mut();
        deferred.as_mut().map(|ids| ids.push(effect.as_str().to_owned())).is_some()
    }

    fn resolved(&self, effect: EffectId) -> LocalBoxFuture<'static, Outcome> {
        match self.resolved.borrow_mut().remove(effect.as_str()) {
            Some(receiver) => async move {
                match receiver.await {
                    Ok(outcome) => outcome,
                    Err(_) => pending().await,
                }
            }
            .boxed_local(),
            None => pending().boxed_local(),
        }
    }

    fn preview(&self, _: Preview) {
        self.previews.set(self.previews.get() + 1);
    }

    fn abort(&self) -> AbortSignal {
        self.signal.clone()
    }

    fn workspaces(&self) -> Option<RunWorkspaces> {
        self.workspaces.borrow().clone()
    }
}

pub fn script(list: Vec<Model>) {
    SCRIPT.set(list);
}

pub fn engine_with(executors: Vec<Arc<dyn ToolExecutor>>) -> AgentEngine {
    let kits: Arc<KitFor> = Arc::new(|_, _| Kit { models: Rc::new(Scripted), tools: None });
    AgentEngine::new(EngineConfig { executors, ..EngineConfig::new(kits) })
}

pub fn engine() -> AgentEngine {
    engine_with(Vec::new())
}

pub fn grant(run: &str) -> RunGrant {
    RunGrant {
        run_id: RunId::from(run),
        session_id: SessionId::from("s-1"),
        turn_id: TurnId::from("T"),
        epoch: 1,
        token: None,
        token_expires_at: None,
    }
}

pub fn start() -> TurnStart {
    let manifest = json!({"manifestSchemaVersion": 4, "id": "bot", "capabilities": [{"id": "agent", "type": "agent", "tools": [
        {"name": "act", "inputSchema": {"type": "object"}}, {"name": "local", "inputSchema": {"type": "object"}}]}]});
    TurnStart {
        kind: TurnStartType::TurnStart,
        engine: EngineKind::Agent,
        checkpoint: Checkpoint {
            version: 1,
            engine_version: ENGINE_VERSION.into(),
            manifest_hash: manifest_hash(&manifest),
            session_id: SessionId::from("s-1"),
            turn_id: TurnId::from("T"),
            segment: 0,
            input: json!("hello"),
            state: None,
            info: None,
        },
        manifest: Arc::new(manifest.clone()),
        session_tools: Some(Arc::new(Vec::new())),
        outcomes: Vec::new(),
        transcript: TranscriptAt { cursor: -1 },
        options: RunOptions {
            yield_after: Some(YieldAfter { steps: Some(50), ms: Some(1_200_000) }),
            flow_limits: None,
            fixture_model: false,
            hold_ms: Some(300_000),
        },
        routing: Routing {
            root_manifest: Arc::new(manifest),
            plugin_roots: JsonMap::new(),
            mcp_snapshot: None,
            sandbox: None,
        },
    }
}

pub fn says(text: &str) -> Model {
    Model::Says(json!({"output": [{"type": "text", "text": text}]}))
}

pub fn calls(tool: &str) -> Model {
    calls_with(tool, json!({}))
}

pub fn calls_with(tool: &str, args: Json) -> Model {
    Model::Says(json!({"output": [{"type": "tool-call", "id": "c1", "name": tool, "args": args}]}))
}

pub fn output(end: RunEnd) -> TurnOutput {
    match end {
        RunEnd::Output(output) => output,
        other => panic!("{other:?}"),
    }
}

/// Applies an output's edits to what core holds.
pub fn fold(link: &Link, output: &TurnOutput) {
    for edit in output.transcript.as_deref().unwrap() {
        apply(&mut link.entries.borrow_mut(), edit).unwrap();
    }
}

/// What a thrown output says.
pub fn thrown(end: RunEnd) -> String {
    let output = output(end);
    assert_eq!(output.status, None);
    output.thrown.unwrap().code.unwrap()
}

pub fn recorded(link: &Link, id: &str, value: Json) -> RecordedOutcome {
    RecordedOutcome {
        effect_id: EffectId::from(id),
        request_hash: link.hashes.borrow()[id].clone(),
        outcome: Outcome { value: Arc::new(value), state_patch: None },
    }
}
