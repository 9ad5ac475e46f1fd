//! A turn with hooks, two delegations at once, a rollover and an approval, interrupted wherever it can be: whatever is
//! replayed, it asks for the same effects under the same hashes and leaves the same transcript.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::engine::model::call::ModelCall;

/// What happens at an effect that nobody has executed yet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// It is executed.
    Done,
    /// The run is lost before it is executed.
    LostBefore,
    /// The run is lost after its outcome was recorded.
    LostAfter,
    /// An Action's outcome comes after the segment was suspended. A model's or a delegation's comes at once.
    Late,
}

/// Core and the world, whose answers depend on the effect alone.
#[derive(Default)]
struct World {
    recorded: RefCell<BTreeMap<String, (String, Outcome)>>,
    /// Every effect that was ever asked for, with its hash.
    asked: RefCell<BTreeMap<String, String>>,
    /// How often each was executed.
    executed: RefCell<BTreeMap<String, u32>>,
    fates: RefCell<Vec<Fate>>,
    /// The fate of what `fates` does not cover.
    otherwise: Option<Fate>,
    new: Cell<usize>,
}

impl World {
    fn fate(&self) -> Fate {
        let n = self.new.replace(self.new.get() + 1);
        self.fates.borrow().get(n).copied().unwrap_or(self.otherwise.unwrap_or(Fate::Done))
    }

    fn answer(&self, effect: &Effect) -> Result<Resolution, PortError> {
        let (id, hash) = (effect.intent.effect_id.as_str().to_owned(), effect.request_hash.clone());
        let before = self.asked.borrow_mut().insert(id.clone(), hash.clone());
        assert!(before.is_none_or(|before| before == hash), "{id} was asked for with another request");
        if let Some((_, outcome)) = self.recorded.borrow().get(&id) {
            return Ok(Resolution::Completed(outcome.clone()));
        }
        let lost = Err(PortError::Lost(AbortKind::Shutdown));
        let fate = self.fate();
        if fate == Fate::LostBefore {
            return lost;
        }
        let outcome = execute(effect);
        *self.executed.borrow_mut().entry(id.clone()).or_default() += 1;
        self.recorded.borrow_mut().insert(id, (hash, outcome.clone()));
        let is_action = matches!(effect.intent.kind, EffectKind::Tool | EffectKind::Hook);
        match fate {
            Fate::LostAfter => lost,
            Fate::Late if is_action => Ok(Resolution::Pending),
            _ => Ok(Resolution::Completed(outcome)),
        }
    }
}

impl EffectPort for Rc<World> {
    fn resolve(&self, effect: Effect) -> LocalBoxFuture<'static, Result<Resolution, PortError>> {
        let world = Rc::clone(self);
        // Asked for when it is polled, as over a channel.
        async move { world.answer(&effect) }.boxed_local()
    }

    fn aborted(&self) -> Option<Abort> {
        None
    }

    fn elapsed_ms(&self) -> u64 {
        0
    }
}

fn execute(effect: &Effect) -> Outcome {
    let intent = &effect.intent;
    let input = intent.input.as_deref().cloned().unwrap_or_default();
    let agent = intent.agent.as_ref().map_or("bot", |agent| agent.id.as_str());
    let (value, patch) = match intent.kind {
        EffectKind::Model => (model(agent, effect.call.as_ref().unwrap()), None),
        EffectKind::Hook => {
            let hook = intent.hook.as_ref().unwrap();
            (
                json!({"results": {"guard": guard(agent, &format!("{}-{}", hook.at, hook.scope), &input)}}),
                None,
            )
        }
        EffectKind::Tool => {
            let name = intent.tool_name.as_deref().unwrap();
            let value = json!({"kind": "completed", "output": {"by": agent, "name": name, "saw": intent.context["state"]}});
            (value, json!({"last": name}).as_object().cloned().map(Arc::new))
        }
        _ => (Json::Null, None),
    };
    Outcome { value: Arc::new(value), state_patch: patch }
}

/// The n-th answer of an agent, n being the answers that its prompt holds.
fn model(agent: &str, call: &ModelCall) -> Json {
    let said = call.prompt.iter().filter(|item| item["role"] == "assistant").count();
    let task = |task: &str| json!({"task": task});
    match (agent, said) {
        ("bot", 0) => calls(&[
            ("c1", "finder", task("find")),
            ("c2", "add", json!({"n": 1})),
            ("c3", "writer", task("write")),
        ]),
        ("bot", 1) => {
            calls(&[("c4", "own", json!({})), ("c5", "finder", task("find more")), ("c6", "nope", json!({}))])
        }
        ("bot", 2) => text("draft"),
        ("bot", 3) => text("second draft"),
        ("bot", _) => text("final"),
        ("finder", 0) => calls(&[("k1", "look", json!({})), ("k2", "ask", json!({}))]),
        (_, 0) => calls(&[("k1", "look", json!({}))]),
        (agent, n) => text(&format!("{agent} said {n}")),
    }
}

fn guard(agent: &str, point: &str, input: &Json) -> Json {
    let is = |key: &str, value: Json| input[key] == value;
    match (agent, point) {
        ("bot", "before-turn") => json!({"instructions": ["Be kind."], "state": {"begun": true}}),
        ("bot", "before-step") if is("step", json!(0)) => json!({"active": false, "state": {"first": true}}),
        ("bot", "after-step") if is("step", json!(1)) => json!({"approve": [{"id": "c4", "prompt": "Own?"}]}),
        ("bot", "after-step") if is("text", json!("draft")) => json!({"retry": "Better."}),
        ("bot", "after-turn") if is("text", json!("second draft")) => json!({"retry": "Better still."}),
        ("bot", "after-turn") => json!({"text": "FINAL"}),
        ("finder", "after-step") if is("step", json!(0)) => json!({"deny": [{"id": "k2", "reason": "no"}]}),
        ("finder", "before-step") => json!({"state": {"mine": input["step"]}}),
        _ => json!({}),
    }
}

fn session() -> Session {
    let point = |at: &str, scope: &str| json!({"at": at, "scope": scope});
    let all = json!([
        point("before", "turn"),
        point("before", "step"),
        point("after", "step"),
        point("after", "turn")
    ]);
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let mut session = Session::delegating(json!({"capabilities": [
        {"id": "guard", "type": "agent-plugin", "tools": [tool("look"), tool("ask")], "hooks": all}]}));
    let mut manifest = session.definition.manifest.as_ref().clone();
    let guard = json!({"id": "guard", "type": "agent-plugin", "tools": [tool("own")], "hooks": all});
    manifest["capabilities"].as_array_mut().unwrap().push(guard);
    session.define(manifest);
    session.yield_after = Some(YieldAfter { steps: Some(2), ms: None });
    session
}

/// What a turn comes to in the end.
#[derive(Debug, PartialEq)]
struct Came {
    asked: BTreeMap<String, String>,
    transcript: Vec<Entry>,
    state: Json,
    output: Json,
}

/// Plays the turn to its end.
fn play(fates: Vec<Fate>, otherwise: Fate) -> (Came, usize) {
    let world = Rc::new(World { fates: RefCell::new(fates), otherwise: Some(otherwise), ..World::default() });
    let mut session = session();
    for _ in 0..500 {
        let start = Start {
            definition: Arc::clone(&session.definition),
            tools: session.definition.toolset(&[]).unwrap(),
            session_tools: Arc::default(),
            checkpoint: session.checkpoint.clone(),
            view: Projection::of(&session.entries, session.mode),
            yield_after: session.yield_after,
        };
        let port: Rc<dyn EffectPort> = Rc::new(Rc::clone(&world));
        let (end, view) = run_segment(start, port).now_or_never().unwrap();
        let end = match end {
            SegmentEnd::Ended(end) => end,
            SegmentEnd::Suspended { uncertain: false, .. } | SegmentEnd::Lost(_) => {
                assert_eq!(view.entries(), session.entries, "the start is untouched");
                continue;
            }
            other => panic!("{other:?}"),
        };
        session.take(&end);
        match end.status {
            OutputStatus::Yielded => session.next(json!({"kind": "continue"})),
            OutputStatus::Paused => {
                let id = end.pending.unwrap()[0]["interaction"]["id"].clone();
                session.next(json!({"kind": "approve", "interactionId": id, "approved": true}));
            }
            OutputStatus::Completed => {
                assert!(world.executed.borrow().values().all(|times| *times == 1), "nothing is done twice");
                let came = Came {
                    asked: world.asked.borrow().clone(),
                    transcript: session.entries,
                    state: session.checkpoint.state.as_deref().cloned().unwrap(),
                    output: end.output.as_deref().cloned().unwrap(),
                };
                return (came, world.new.get());
            }
            other => panic!("{other:?}: {:?}", end.error),
        }
    }
    panic!("the turn never ends");
}

#[test]
fn the_turn_has_everything_that_it_is_to_be_tried_with() {
    let (came, effects) = play(Vec::new(), Fate::Done);
    assert_eq!(came.output, "FINAL");
    let count = |part: &str| came.asked.keys().filter(|id| id.contains(part)).count();
    assert_eq!((count(":started"), count(":settled"), count(":hook:before-turn")), (3, 3, 1));
    let segments: Vec<_> = (0..3).map(|n| count(&format!("T:{n}:"))).collect();
    assert!(
        segments.iter().all(|n| *n > 0),
        "one to the approval, one to the rollover, one to the end: {segments:?}"
    );
    let kinds: Vec<_> = came.transcript.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds.iter().filter(|kind| **kind == "input").count(),
        4,
        "a message, an approval, two retries"
    );
    assert!(effects > 40, "{effects}");
    assert_eq!(came.state["state"], json!({"begun": true, "first": true, "last": "own"}));
}

#[test]
fn a_turn_interrupted_after_any_effect_asks_for_the_same_effects_and_leaves_the_same_transcript() {
    let (expected, effects) = play(Vec::new(), Fate::Done);
    for fate in [Fate::LostBefore, Fate::LostAfter, Fate::Late] {
        for n in 0..effects {
            let mut fates = vec![Fate::Done; n];
            fates.push(fate);
            assert_eq!(play(fates, Fate::Done).0, expected, "{fate:?} at effect {n}");
        }
    }
}

#[test]
fn a_turn_interrupted_after_every_effect_is_the_same_turn() {
    let (expected, effects) = play(Vec::new(), Fate::Done);
    for fate in [Fate::LostAfter, Fate::Late] {
        assert_eq!(play(Vec::new(), fate).0, expected, "{fate:?}");
    }
    let lost_first = (0..2 * effects).map(|n| if n % 2 == 0 { Fate::LostBefore } else { Fate::Done });
    assert_eq!(play(lost_first.collect(), Fate::Done).0, expected);
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        4 => Just(Fate::Done),
        1 => Just(Fate::LostBefore),
        1 => Just(Fate::LostAfter),
        2 => Just(Fate::Late),
    ];
    prop::collection::vec(fate, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_turn_interrupted_anyhow_is_the_same_turn(fates in fates()) {
        let (came, _) = play(fates, Fate::Done);
        prop_assert_eq!(came, play(Vec::new(), Fate::Done).0);
    }
}
