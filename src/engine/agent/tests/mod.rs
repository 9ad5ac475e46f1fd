//! The loop against a journal in memory.

mod aborts;
mod delegations;
mod hooks;
mod pauses;
mod replay;
mod retries;
mod states;
mod tools;
mod turns;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use nylorun_actors::model::Json;
use nylorun_actors::model::checkpoint::{Checkpoint, ENGINE_VERSION};
use nylorun_actors::model::effect::{EffectKind, Outcome};
use nylorun_actors::model::ids::{SessionId, TurnId};
use nylorun_actors::model::transcript::{Entry, apply};
use nylorun_actors::model::turn::{Abort, AbortKind, OutputStatus, YieldAfter};
use serde_json::json;

use super::definition::Definition;
use super::errors::PortError;
use super::port::{Effect, EffectPort, Resolution};
use super::projection::{Projection, PromptHash};
use super::{Ended, SegmentEnd, Start, run_segment};

/// What a tool does when it is executed.
#[derive(Clone)]
pub enum Does {
    Answers(Json),
    Patches(Json, Json),
    Waits,
    IsLost,
    Fails(PortError),
}

/// A journal: completed effects are replayed, new ones are executed by script.
#[derive(Default)]
pub struct Journal {
    models: RefCell<VecDeque<Does>>,
    /// The models of sub-agents, by agent id.
    children: RefCell<HashMap<String, VecDeque<Does>>>,
    tools: RefCell<HashMap<String, Does>>,
    /// By point, as `before-turn`, and in a sub-agent `<id>/before-turn`; the last of each is said again and again.
    hooks: RefCell<HashMap<String, VecDeque<Does>>>,
    recorded: RefCell<HashMap<String, (String, Outcome)>>,
    /// Every effect that was asked for, in order.
    asked: RefCell<Vec<Effect>>,
    /// Ids of the effects that were executed.
    executed: RefCell<Vec<String>>,
    abort: RefCell<Option<Abort>>,
    /// Fires the abort once this many effects have been asked for.
    abort_at: Cell<Option<usize>>,
    elapsed: Cell<u64>,
}

impl EffectPort for Rc<Journal> {
    fn resolve(&self, effect: Effect) -> LocalBoxFuture<'static, Result<Resolution, PortError>> {
        let resolved = self.answer(&effect);
        self.asked.borrow_mut().push(effect);
        if self.abort_at.get() == Some(self.asked.borrow().len()) {
            *self.abort.borrow_mut() = Some(abort(AbortKind::Cancel));
        }
        ready(resolved).boxed_local()
    }

    fn aborted(&self) -> Option<Abort> {
        self.abort.borrow().clone()
    }

    fn elapsed_ms(&self) -> u64 {
        self.elapsed.get()
    }
}

impl Journal {
    fn answer(&self, effect: &Effect) -> Result<Resolution, PortError> {
        let id = effect.intent.effect_id.as_str().to_owned();
        if let Some((hash, outcome)) = self.recorded.borrow().get(&id) {
            return if *hash == effect.request_hash {
                Ok(Resolution::Completed(outcome.clone()))
            } else {
                Err(PortError::Drift(format!("{id} drifted")))
            };
        }
        let does = match effect.intent.kind {
            EffectKind::Model => match &effect.intent.agent {
                None => self.models.borrow_mut().pop_front(),
                Some(agent) => self.children.borrow_mut().get_mut(&agent.id).and_then(VecDeque::pop_front),
            }
            .expect("an answer of the model"),
            EffectKind::Delegation => Does::Answers(Json::Null),
            EffectKind::Hook => self.hook(effect),
            _ => {
                let name = effect.intent.tool_name.as_deref().unwrap();
                self.tools.borrow().get(name).cloned().expect(name)
            }
        };
        let outcome = match does {
            Does::Answers(value) => Outcome { value: Arc::new(value), state_patch: None },
            Does::Patches(value, patch) => Outcome {
                value: Arc::new(value),
                state_patch: Some(Arc::new(patch.as_object().unwrap().clone())),
            },
            Does::Waits => return Ok(Resolution::Pending),
            Does::IsLost => return Ok(Resolution::Uncertain),
            Does::Fails(error) => return Err(error),
        };
        self.executed.borrow_mut().push(id.clone());
        self.recorded.borrow_mut().insert(id, (effect.request_hash.clone(), outcome.clone()));
        Ok(Resolution::Completed(outcome))
    }

    /// The next answer at a hook's point; by default nobody says anything.
    fn hook(&self, effect: &Effect) -> Does {
        let hook = effect.intent.hook.as_ref().unwrap();
        let child = effect.intent.agent.as_ref().map(|agent| format!("{}/", agent.id)).unwrap_or_default();
        let mut hooks = self.hooks.borrow_mut();
        match hooks.get_mut(&format!("{child}{}-{}", hook.at, hook.scope)) {
            None => Does::Answers(json!({"results": {}})),
            Some(list) if list.len() > 1 => list.pop_front().unwrap(),
            Some(list) => list[0].clone(),
        }
    }

    /// The answers of capability `guard` at a point.
    pub fn guard(&self, point: &str, answers: &[Json]) {
        let answer = |answer: &Json| Does::Answers(json!({"results": {"guard": answer}}));
        self.hooks.borrow_mut().insert(point.to_owned(), answers.iter().map(answer).collect());
    }

    /// Ids of all effects asked for.
    pub fn ids(&self) -> Vec<String> {
        self.asked.borrow().iter().map(|effect| effect.intent.effect_id.as_str().to_owned()).collect()
    }

    pub fn executed(&self) -> Vec<String> {
        self.executed.borrow().clone()
    }

    /// The last effect of this id.
    pub fn effect(&self, id: &str) -> Effect {
        self.asked
            .borrow()
            .iter()
            .rev()
            .find(|effect| effect.intent.effect_id.as_str() == id)
            .cloned()
            .expect(id)
    }

    pub fn record(&self, id: &str, value: Json) {
        let hash = self.effect(id).request_hash;
        let outcome = Outcome { value: Arc::new(value), state_patch: None };
        self.recorded.borrow_mut().insert(id.to_owned(), (hash, outcome));
    }

    pub fn tool(&self, name: &str, does: Does) {
        self.tools.borrow_mut().insert(name.to_owned(), does);
    }

    /// The next answer of a sub-agent's model.
    pub fn child(&self, id: &str, does: Does) {
        self.children.borrow_mut().entry(id.to_owned()).or_default().push_back(does);
    }

    pub fn child_says(&self, id: &str, value: Json) {
        self.child(id, Does::Answers(value));
    }

    pub fn says(&self, value: Json) {
        self.models.borrow_mut().push_back(Does::Answers(value));
    }
}

/// A session whose segments run one after the other.
pub struct Session {
    pub definition: Arc<Definition>,
    pub checkpoint: Checkpoint,
    pub entries: Vec<Entry>,
    pub journal: Rc<Journal>,
    pub yield_after: Option<YieldAfter>,
    pub mode: PromptHash,
    pub session_tools: Vec<Json>,
}

impl Session {
    pub fn new(more: Json) -> Self {
        let mut manifest = json!({"manifestSchemaVersion": 4, "id": "bot", "capabilities": [
            {"id": "agent", "type": "agent", "instructions": ["Be brief."], "tools": [
                {"name": "add", "description": "Adds.", "inputSchema": {"type": "object", "required": ["n"],
                    "properties": {"n": {"type": "integer"}}, "additionalProperties": false}},
                {"name": "get", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object", "required": ["v"]}},
                {"name": "ask", "inputSchema": {"type": "object"}}]}]});
        for (key, value) in more.as_object().cloned().unwrap_or_default() {
            manifest[key] = value;
        }
        let definition = Arc::new(Definition::read(Arc::new(manifest), false).unwrap());
        let checkpoint = Checkpoint {
            version: 1,
            engine_version: ENGINE_VERSION.to_owned(),
            manifest_hash: definition.hash.clone(),
            session_id: SessionId::from("s-1"),
            turn_id: TurnId::from("T"),
            segment: 0,
            input: json!("hello"),
            state: None,
            info: None,
        };
        let journal = Rc::new(Journal::default());
        Self {
            definition,
            checkpoint,
            entries: Vec::new(),
            journal,
            yield_after: None,
            mode: PromptHash::Exact,
            session_tools: Vec::new(),
        }
    }

    /// A session whose agent has a capability `guard` with hooks at these points.
    pub fn guarded(points: &[&str]) -> Self {
        let mut session = Self::plain();
        let mut manifest = session.definition.manifest.as_ref().clone();
        let point = |point: &&str| {
            let (at, scope) = point.split_once('-').unwrap();
            json!({"at": at, "scope": scope})
        };
        let hooks: Vec<_> = points.iter().map(point).collect();
        let tool = json!({"name": "own", "inputSchema": {"type": "object"}});
        let guard = json!({"id": "guard", "type": "agent-plugin", "tools": [tool], "hooks": hooks});
        manifest["capabilities"].as_array_mut().unwrap().push(guard);
        session.define(manifest);
        session
    }

    /// A session whose agent has two agents as tools, `finder` and `writer`; `more` goes into the finder's manifest.
    pub fn delegating(more: Json) -> Self {
        let mut session = Self::plain();
        let mut manifest = session.definition.manifest.as_ref().clone();
        let task = json!({"type": "object", "properties": {"task": {"type": "string", "minLength": 1}},
            "required": ["task"], "additionalProperties": false});
        for (id, more) in [("finder", more), ("writer", json!({}))] {
            let mut child = json!({"manifestSchemaVersion": 4, "id": id, "description": "Helps.", "capabilities": [
                {"id": "agent", "type": "agent", "instructions": [format!("You are {id}.")], "tools": [
                    {"name": "look", "inputSchema": {"type": "object"}}, {"name": "ask", "inputSchema": {"type": "object"}}]}]});
            for (key, value) in more.as_object().cloned().unwrap_or_default() {
                child[key] = value;
            }
            let tool = json!({"name": id, "description": "Helps.", "inputSchema": task, "agent": child});
            manifest["capabilities"][0]["tools"].as_array_mut().unwrap().push(tool);
        }
        session.define(manifest);
        session
    }

    /// Takes another manifest.
    pub fn define(&mut self, manifest: Json) {
        self.definition = Arc::new(Definition::read(Arc::new(manifest), false).unwrap());
        self.checkpoint.manifest_hash = self.definition.hash.clone();
    }

    pub fn plain() -> Self {
        Self::new(json!({}))
    }

    /// Runs the checkpoint's segment.
    pub fn run(&self) -> SegmentEnd {
        self.run_over(Projection::of(&self.entries, self.mode)).0
    }

    pub fn run_over(&self, view: Projection) -> (SegmentEnd, Projection) {
        let start = Start {
            definition: Arc::clone(&self.definition),
            tools: self.definition.toolset(&self.session_tools).unwrap(),
            session_tools: Arc::new(self.session_tools.clone()),
            checkpoint: self.checkpoint.clone(),
            view,
            yield_after: self.yield_after,
        };
        let port: Rc<dyn EffectPort> = Rc::new(Rc::clone(&self.journal));
        run_segment(start, port).now_or_never().expect("the journal answers at once")
    }

    /// Runs the segment, which must end with this status, and settles it.
    pub fn settle(&mut self, status: OutputStatus) -> Ended {
        let ended = ended(self.run());
        assert_eq!(ended.status, status, "{:?}", ended.error);
        self.take(&ended);
        ended
    }

    /// Takes over state and transcript of a segment.
    pub fn take(&mut self, ended: &Ended) {
        for edit in &ended.edits {
            apply(&mut self.entries, edit).unwrap();
        }
        self.checkpoint.state = Some(Arc::new(serde_json::to_value(&ended.state).unwrap()));
    }

    /// The next segment of the turn.
    pub fn next(&mut self, input: Json) {
        self.checkpoint.segment += 1;
        self.checkpoint.input = input;
    }

    /// A new turn.
    pub fn turn(&mut self, id: &str, input: Json) {
        self.checkpoint.turn_id = TurnId::from(id);
        self.checkpoint.segment = 0;
        self.checkpoint.input = input;
    }

    pub fn kinds(&self) -> Vec<&str> {
        self.entries.iter().map(|entry| entry["kind"].as_str().unwrap()).collect()
    }

    pub fn last(&self) -> &Json {
        self.entries.last().unwrap()
    }
}

pub fn ended(end: SegmentEnd) -> Ended {
    match end {
        SegmentEnd::Ended(ended) => *ended,
        other => panic!("{other:?}"),
    }
}

/// The code with which a segment cannot run.
pub fn thrown(end: SegmentEnd) -> String {
    match end {
        SegmentEnd::Thrown(thrown) => thrown.code.unwrap(),
        other => panic!("{other:?}"),
    }
}

pub fn suspended(end: SegmentEnd) -> (Vec<String>, bool) {
    match end {
        SegmentEnd::Suspended { effect_ids, uncertain } => (effect_ids, uncertain),
        other => panic!("{other:?}"),
    }
}

pub fn error_code(ended: &Ended) -> &str {
    ended.error.as_ref().unwrap()["code"].as_str().unwrap()
}

pub fn abort(kind: AbortKind) -> Abort {
    Abort { kind, message: "stop".to_owned() }
}

/// An answer that is text.
pub fn text(text: &str) -> Json {
    json!({"output": [{"type": "text", "text": text}]})
}

/// An answer that calls tools: `(call id, tool, args)` each.
pub fn calls(list: &[(&str, &str, Json)]) -> Json {
    let block = |(id, name, args): &(&str, &str, Json)| json!({"type": "tool-call", "id": id, "name": name, "args": args});
    json!({"output": list.iter().map(block).collect::<Vec<_>>()})
}

pub fn question(kind: &str) -> Does {
    Does::Answers(
        json!({"kind": "interaction-required", "interaction": {"kind": kind, "prompt": "Really?"}, "token": {"t": 1}}),
    )
}
