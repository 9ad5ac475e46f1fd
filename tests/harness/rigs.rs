//! A core with harnesses at one kind of channel, as the suite sees it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use nylorun::engine::model::call::{CallContext, ModelAdapter, ModelCall};
use nylorun::engine::model::provider::{ProviderConfig, ProviderLimits, Providers};
use nylorun::engine::model::router::{ModelRouter, ProviderSource};
use nylorun::engine::run::kit::{self, Kit};
use nylorun::engine::run::tools::{ToolCall, ToolExecutor};
use nylorun::engine::run::{AgentEngine, EngineConfig};
use nylorun::harness::lease::Harness;
use nylorun_actors::model::Json as Value;
use nylorun_actors::model::command::{Command, CommandBody, MessageInput};
use nylorun_actors::model::effect::EffectStatus;
use nylorun_actors::model::ids::{EffectId, SessionId};
use nylorun_actors::model::json::parse;
use nylorun_actors::model::turn::Abort;
use nylorun_actors::ports::store::Reads;
use nylorun_actors::tenant::{HarnessMode, PutAgent, Reach};
use nylorun_actors::testing::engine::{FakeEngine, Step};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::sample::manifest;
use super::support::World;
use super::wire::{Learns, Peer};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A core with one harness; the agent plays a script.
pub trait Rig: Sized {
    async fn start(script: Value) -> Self;
    async fn open(&self, session: &str);
    async fn say(&self, session: &str, text: &str);
    async fn cancel(&self, session: &str);
    async fn status(&self, session: &str) -> String;
    /// The served events.
    async fn events(&self, session: &str) -> Vec<Value>;
    /// Kind and number of hand-overs of every model and tool effect, in order.
    async fn attempts(&self) -> Vec<(&'static str, u32)>;
    /// Whether an effect of this kind is in flight.
    async fn in_flight(&self, session: &str, kind: &str) -> bool;
    /// A second harness connects.
    async fn add_harness(&mut self);
    /// The first harness stops in order.
    async fn stop_harness(&mut self);
    /// The first harness dies.
    async fn kill_harness(&mut self);
    /// Requests for a transcript that harnesses made; `None` where none are made.
    fn transcript_reads(&self) -> Option<usize>;

    async fn until(&self, session: &str, status: &str) {
        for _ in 0..3_000 {
            let now = self.status(session).await;
            if now == status {
                return;
            }
            assert!(status == "failed" || now != "failed", "{:?}", self.last(session).await);
            sleep(LOOK).await;
        }
        panic!("{session} never became {status}: {}", self.status(session).await);
    }

    async fn until_turns(&self, session: &str, turns: usize) {
        for _ in 0..3_000 {
            let ended = self.types(session).await.iter().filter(|kind| *kind == "turn.completed").count();
            if ended == turns {
                return self.until(session, "completed").await;
            }
            sleep(LOOK).await;
        }
        panic!("{session} has not {turns} turns: {:?}", self.types(session).await);
    }

    async fn until_event(&self, session: &str, kind: &str) {
        for _ in 0..3_000 {
            if self.types(session).await.iter().any(|k| k == kind) {
                return;
            }
            sleep(LOOK).await;
        }
        panic!("{session} has no {kind}");
    }

    async fn until_called(&self, session: &str, kind: &str) {
        for _ in 0..3_000 {
            if self.in_flight(session, kind).await {
                return;
            }
            sleep(LOOK).await;
        }
        panic!("{session} has no {kind} in flight");
    }

    /// Kills the first harness; how long the session then took.
    async fn kill_harness_until(&mut self, session: &str, status: &str) -> Duration {
        self.kill_harness().await;
        let since = Instant::now();
        self.until(session, status).await;
        since.elapsed()
    }

    async fn types(&self, session: &str) -> Vec<String> {
        self.events(session).await.iter().map(|e| e["type"].as_str().unwrap().to_owned()).collect()
    }

    async fn last(&self, session: &str) -> Value {
        self.events(session).await.pop().unwrap_or_default()
    }
}

/// Starts rigs of one channel.
pub trait Rigs {
    type Rig: Rig;
    async fn start(&self, script: Value) -> Self::Rig;
}

/// The rigs of this kind.
pub struct Of<R>(PhantomData<R>);

impl<R> Default for Of<R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<R: Rig> Rigs for Of<R> {
    type Rig = R;

    async fn start(&self, script: Value) -> R {
        R::start(script).await
    }
}

struct NoProvider;

impl ProviderSource for NoProvider {
    fn active(&self) -> LocalBoxFuture<'static, Result<Option<ProviderConfig>, String>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Calls of models and tools by effect.
pub type Calls = Arc<Mutex<BTreeMap<String, u32>>>;

fn note(calls: &Calls, effect: &EffectId) {
    *calls.lock().unwrap().entry(effect.to_string()).or_default() += 1;
}

struct CountedModel(Rc<dyn ModelAdapter>, Calls);

impl ModelAdapter for CountedModel {
    fn call(&self, call: ModelCall, cx: CallContext) -> LocalBoxFuture<'static, Result<Arc<Value>, Abort>> {
        note(&self.1, &cx.effect_id);
        self.0.call(call, cx)
    }
}

struct CountedTools(Arc<dyn ToolExecutor>, Calls);

impl ToolExecutor for CountedTools {
    fn can(&self, manifest: &Value, tool: &str) -> bool {
        self.0.can(manifest, tool)
    }

    fn run(&self, call: ToolCall) -> LocalBoxFuture<'static, Result<Arc<Value>, String>> {
        note(&self.1, &call.intent.effect_id);
        self.0.run(call)
    }
}

/// The engine of a harness, as the binary has it; its calls are counted.
fn engine(calls: &Calls) -> Arc<AgentEngine> {
    let router = ModelRouter::new(Arc::new(NoProvider), Providers::new(ProviderLimits::default()));
    let (kits, calls) = (kit::routed(router), Arc::clone(calls));
    let counted: Arc<kit::KitFor> = Arc::new(move |grant, start| {
        let Kit { models, tools } = kits(grant, start);
        Kit {
            models: Rc::new(CountedModel(models, Arc::clone(&calls))),
            tools: tools
                .map(|tools| Arc::new(CountedTools(tools, Arc::clone(&calls))) as Arc<dyn ToolExecutor>),
        }
    });
    Arc::new(AgentEngine::new(EngineConfig::new(counted)))
}

/// What both channels in one process share.
struct InProcess {
    world: World,
    keys: Cell<u32>,
    calls: Calls,
}

impl InProcess {
    async fn new(world: World, calls: Calls, script: Value) -> Self {
        let put = PutAgent {
            id: "assistant".into(),
            manifest: manifest(&script),
            implementation_version: "1".into(),
            plugin_roots: None,
        };
        world.tenant.put_agent(put).await.unwrap();
        Self { world, keys: Cell::new(0), calls }
    }

    async fn say(&self, session: &str, text: &str) {
        let key = format!("k{}", self.keys.replace(self.keys.get() + 1));
        let sent = json!({ "type": "message", "requestId": "r", "idempotencyKey": key, "content": text });
        let command = Command {
            request_id: "r".into(),
            idempotency_key: key,
            body: CommandBody::Message { input: MessageInput::Content(text.into()), manifest: None },
            sent: sent.as_object().unwrap().clone(),
        };
        self.world.tenant.command(&session.into(), command, &Reach::All).await.unwrap();
    }

    async fn cancel(&self, session: &str) {
        let key = format!("c{}", self.keys.replace(self.keys.get() + 1));
        self.world.cancel(&session.into(), &key).await;
    }

    async fn status(&self, session: &str) -> String {
        json!(self.world.view(&session.into()).await.status).as_str().unwrap().to_owned()
    }

    async fn events(&self, session: &str) -> Vec<Value> {
        let items = self.world.tenant.items(&session.into(), &Reach::All, None, None, None).await.unwrap();
        items.items.iter().map(|item| parse(item.as_bytes()).unwrap()).collect()
    }

    async fn attempts(&self) -> Vec<(&'static str, u32)> {
        let calls = self.calls.lock().unwrap();
        let kind = |effect: &str| if effect.contains(":tool:") { "tool" } else { "model" };
        let mut all: Vec<_> = calls.iter().map(|(effect, calls)| (kind(effect), *calls)).collect();
        all.sort_unstable();
        all
    }

    async fn in_flight(&self, session: &str, kind: &str) -> bool {
        let id = SessionId::from(session);
        let read = move |reads: &mut dyn Reads| reads.open_effects(&id, &[EffectStatus::Invoking]);
        let effects = self.world.tenant.store().read(read).await.unwrap();
        effects.iter().any(|effect| effect.kind.as_str() == kind)
    }
}

/// The harness inside core.
pub struct Memory(InProcess);

impl Rig for Memory {
    async fn start(script: Value) -> Self {
        let calls = Calls::default();
        let world = World::new(engine(&calls)).await;
        Self(InProcess::new(world, calls, script).await)
    }

    async fn open(&self, session: &str) {
        self.0.world.open(session).await;
    }

    async fn say(&self, session: &str, text: &str) {
        self.0.say(session, text).await;
    }

    async fn cancel(&self, session: &str) {
        self.0.cancel(session).await;
    }

    async fn status(&self, session: &str) -> String {
        self.0.status(session).await
    }

    async fn events(&self, session: &str) -> Vec<Value> {
        self.0.events(session).await
    }

    async fn attempts(&self) -> Vec<(&'static str, u32)> {
        self.0.attempts().await
    }

    async fn in_flight(&self, session: &str, kind: &str) -> bool {
        self.0.in_flight(session, kind).await
    }

    /// It comes back by itself.
    async fn add_harness(&mut self) {}

    async fn stop_harness(&mut self) {
        let engine = engine(&self.0.calls);
        self.0.world.restart(engine).await;
    }

    async fn kill_harness(&mut self) {
        self.0.world.kill_harness().await;
    }

    fn transcript_reads(&self) -> Option<usize> {
        None
    }
}

/// Harnesses at the other end of frames, in this process.
pub struct Json {
    core: InProcess,
    peers: Vec<Peer>,
    gone_reads: usize,
}

impl Json {
    fn peer(&self) -> Peer {
        let tenant = Rc::new(RefCell::new(self.core.world.tenant.clone()));
        Peer::start(tenant, Harness::new(engine(&self.core.calls), 64), 1, 0)
    }
}

impl Rig for Json {
    async fn start(script: Value) -> Self {
        // Core runs nothing itself: its own engine would hang.
        let world = World::in_mode(FakeEngine::of(vec![Step::Hang]), 7, HarnessMode::Remote).await;
        let mut rig = Self {
            core: InProcess::new(world, Calls::default(), script).await,
            peers: Vec::new(),
            gone_reads: 0,
        };
        rig.add_harness().await;
        rig
    }

    async fn open(&self, session: &str) {
        self.core.world.open(session).await;
    }

    async fn say(&self, session: &str, text: &str) {
        self.core.say(session, text).await;
    }

    async fn cancel(&self, session: &str) {
        self.core.cancel(session).await;
    }

    async fn status(&self, session: &str) -> String {
        self.core.status(session).await
    }

    async fn events(&self, session: &str) -> Vec<Value> {
        self.core.events(session).await
    }

    async fn attempts(&self) -> Vec<(&'static str, u32)> {
        self.core.attempts().await
    }

    async fn in_flight(&self, session: &str, kind: &str) -> bool {
        self.core.in_flight(session, kind).await
    }

    async fn add_harness(&mut self) {
        let peer = self.peer();
        self.peers.push(peer);
        sleep(LOOK).await;
    }

    async fn stop_harness(&mut self) {
        let peer = self.peers.remove(0);
        self.gone_reads += peer.network.count("transcript.read");
        peer.stop().await;
    }

    async fn kill_harness(&mut self) {
        let peer = self.peers.remove(0);
        self.gone_reads += peer.network.count("transcript.read");
        peer.kill(Learns { harness_ms: 0, core_ms: Some(0) });
    }

    fn transcript_reads(&self) -> Option<usize> {
        Some(
            self.gone_reads
                + self.peers.iter().map(|peer| peer.network.count("transcript.read")).sum::<usize>(),
        )
    }
}
