//! One session over a bare store: the rules alone, without an actor that would act by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nylorun_actors::model::action::ActionSource;
use nylorun_actors::model::canonical::request_hash;
use nylorun_actors::model::effect::{EffectIntent, EffectKind};
use nylorun_actors::model::ids::{EffectId, SessionId, TurnId, WorkerId};
use nylorun_actors::model::json::JsonText;
use nylorun_actors::model::session::{SessionDoc, SessionHead};
use nylorun_actors::model::turn::{OutputStatus, TurnOutput};
use nylorun_actors::ports::engine::{IntentAnswer, OutcomeAnswer};
use nylorun_actors::ports::store::{DefinitionRow, EffectRow, RecordRow, StoreError, StoreHandle, Tx};
use nylorun_actors::rules::advance::{self, LostRun, Segment, TakeRequest, Taken};
use nylorun_actors::rules::commands::{self, Prepared};
use nylorun_actors::rules::effects::{self, PreparedIntent, PreparedValue, RunScope};
use nylorun_actors::rules::ownership::{self, Claim, RunRefusal};
use nylorun_actors::rules::settle::{self, PreparedOutput, SettleScope, Settled};
use nylorun_actors::rules::{Refusal, definitions, sessions};
use nylorun_actors::tenant::{ModelOnCrash, Reach};
use nylorun_actors::testing::{ManualClock, MemoryStore, SeededEntropy};
use serde_json::json;

use super::support::{message, opening};

pub const LEASE_MS: i64 = 30_000;

/// A session with a turn that nobody has taken yet.
pub struct Bare {
    pub memory: Arc<MemoryStore>,
    pub clock: Arc<ManualClock>,
    pub store: StoreHandle,
    pub id: SessionId,
    pub turn: TurnId,
}

/// Everything of the session that a write could change.
#[derive(Debug, PartialEq)]
pub struct Everything {
    head: Option<SessionHead>,
    doc: Option<SessionDoc>,
    record: Vec<RecordRow>,
    effects: Vec<Option<EffectRow>>,
}

/// Who asks for the lease.
pub fn claim(worker: &str) -> Claim {
    Claim { worker: worker.into(), lease_ms: LEASE_MS, own_is_dead: false, others_are_dead: false }
}

impl Bare {
    pub async fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let memory = MemoryStore::new(clock.clone(), Arc::new(SeededEntropy::new(1)));
        let (store, id) = (memory.handle(), SessionId::from("s"));
        let open = opening(&id);
        store
            .tx(move |tx| {
                let row = DefinitionRow {
                    id: "assistant".into(),
                    manifest_hash: "h".into(),
                    implementation_version: "1".into(),
                    plugin_roots: None,
                };
                definitions::put(tx, &row, &JsonText::of(&json!({ "id": "assistant" })))?;
                sessions::open(tx, &open, &Reach::All).map(|_| ())
            })
            .await
            .unwrap();
        let mut bare = Self { memory, clock, store, id, turn: "none".into() };
        bare.say("k").await;
        bare
    }

    /// A message; its turn is the turn from now on.
    pub async fn say(&mut self, key: &str) {
        let (id, prepared) = (self.id.clone(), Prepared::new(message(key)));
        let apply = move |tx: &mut dyn Tx| commands::apply(tx, &id, &prepared, &Reach::All);
        let (receipt, _) = self.store.tx(apply).await.unwrap();
        self.turn = receipt.turn_id.unwrap().into();
    }

    pub async fn cancel(&self, key: &str) {
        let id = self.id.clone();
        let prepared = Prepared::new(super::support::cancel(key));
        let apply = move |tx: &mut dyn Tx| commands::apply(tx, &id, &prepared, &Reach::All);
        self.store.tx(apply).await.map_err(|e: Refusal| e.to_string()).unwrap();
    }

    pub async fn take(&self, claim: Claim) -> Result<Taken, StoreError> {
        self.take_as(claim, ModelOnCrash::Repeat).await
    }

    pub async fn take_as(&self, claim: Claim, model_on_crash: ModelOnCrash) -> Result<Taken, StoreError> {
        let id = self.id.clone();
        let request = TakeRequest { claim, model_on_crash, want_pin: true, folded_to: None };
        self.store.tx(move |tx| advance::take(tx, &id, &request)).await
    }

    /// Takes the session, which must be possible.
    pub async fn own(&self, worker: &str) -> Box<Segment> {
        match self.take(claim(worker)).await {
            Ok(Taken::Segment(segment)) => segment,
            other => panic!("{worker} could not take the session: {other:?}"),
        }
    }

    pub async fn renew(&self, worker: &str, epoch: i64) -> bool {
        let (id, worker) = (self.id.clone(), WorkerId::from(worker));
        let renew = move |tx: &mut dyn Tx| ownership::renew(tx, &id, &worker, epoch, LEASE_MS);
        self.store.tx(renew).await.unwrap().is_some()
    }

    pub async fn release(&self, worker: &str, epoch: i64) -> bool {
        let (id, worker) = (self.id.clone(), WorkerId::from(worker));
        self.store.tx(move |tx| ownership::release(tx, &id, &worker, epoch)).await.unwrap()
    }

    pub fn scope(&self, epoch: i64) -> RunScope {
        let (session, turn) = (self.id.clone(), self.turn.clone());
        RunScope { session, turn, epoch, model_on_crash: ModelOnCrash::Repeat }
    }

    pub fn effect(&self, name: &str) -> EffectId {
        EffectId::from(format!("{}:0:{name}", self.turn))
    }

    fn intent_of(&self, kind: EffectKind, name: &str) -> EffectIntent {
        let tool = (kind == EffectKind::Tool).then(|| "work".to_owned());
        EffectIntent {
            effect_id: self.effect(name),
            session_id: self.id.clone(),
            turn_id: self.turn.clone(),
            agent_id: "assistant".into(),
            manifest_hash: "h".into(),
            kind,
            agent: None,
            capability_id: tool.as_ref().map(|_| "agent".to_owned()),
            tool_name: tool,
            hook: None,
            path: None,
            key: None,
            iterations: None,
            input: (kind != EffectKind::Model).then(|| Arc::new(json!(name))),
            context: json!({ "invocationId": name, "callId": name }).as_object().cloned().unwrap_or_default(),
        }
    }

    /// Declares an effect that the harness itself runs.
    pub async fn intend(&self, epoch: i64, kind: EffectKind, name: &str) -> Result<IntentAnswer, RunRefusal> {
        let (scope, intent) = (self.scope(epoch), self.intent_of(kind, name));
        let hash = request_hash(&intent);
        let source = ActionSource { manifest: &json!({}), implementation_version: "1" };
        let prepared = PreparedIntent::new(&scope, intent, hash, true, source)?;
        self.store.tx(move |tx| effects::intend(tx, &scope, &prepared)).await
    }

    pub async fn value(&self, epoch: i64, name: &str) -> Result<OutcomeAnswer, RunRefusal> {
        let prepared = PreparedValue::new(self.effect(name), Arc::new(json!("done")), None);
        let scope = self.scope(epoch);
        self.store.tx(move |tx| effects::record_value(tx, &scope, &prepared, &"assistant".into())).await
    }

    pub async fn cut(&self, epoch: i64, name: &str) -> Result<OutcomeAnswer, RunRefusal> {
        let (scope, effect) = (self.scope(epoch), self.effect(name));
        self.store.tx(move |tx| effects::record_error(tx, &scope, &effect, "cut off")).await
    }

    pub async fn settle(&self, worker: &str, epoch: i64) -> Result<Settled, RunRefusal> {
        let mut output = TurnOutput::of("run".into());
        output.status = Some(OutputStatus::Completed);
        output.output = Some(Arc::new(json!("all done")));
        let prepared = PreparedOutput::new(&output, None);
        let (session, turn, worker) = (self.id.clone(), self.turn.clone(), worker.into());
        let scope = SettleScope { session, turn, epoch, worker, keeps_lease: false };
        self.store.tx(move |tx| settle::settle(tx, &scope, &prepared)).await
    }

    pub async fn lose(&self, worker: &str, epoch: i64) -> Result<LostRun, RunRefusal> {
        let (id, worker) = (self.id.clone(), WorkerId::from(worker));
        let lose = move |tx: &mut dyn Tx| advance::lose_run(tx, &id, &worker, epoch, ModelOnCrash::Repeat);
        self.store.tx(lose).await
    }

    pub async fn delete(&self) {
        let id = self.id.clone();
        self.store.tx(move |tx| tx.delete_session(&id)).await.unwrap();
    }

    /// Counts the commits from now on that wrote something.
    pub fn count_commits(&self) -> impl Fn() -> u32 {
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        self.memory.inject(Arc::new(move |point| {
            counted.fetch_add(u32::from(point.wrote), Ordering::SeqCst);
            None
        }));
        move || count.load(Ordering::SeqCst)
    }

    pub async fn head(&self) -> SessionHead {
        self.everything(&[]).await.head.unwrap()
    }

    /// `(type, epoch)` of each event.
    pub async fn events(&self) -> Vec<(&'static str, i64)> {
        let epoch = |row: &RecordRow| {
            nylorun_actors::model::json::parse(row.body.as_bytes()).unwrap()["epoch"].as_i64().unwrap()
        };
        self.everything(&[]).await.record.iter().map(|row| (row.kind.as_str(), epoch(row))).collect()
    }

    pub async fn effect_row(&self, name: &str) -> EffectRow {
        let id = self.effect(name);
        self.store.read(move |r| r.effect(&id)).await.unwrap().unwrap()
    }

    /// The session with these effects of its turn.
    pub async fn everything(&self, names: &[&str]) -> Everything {
        let (id, effects) = (self.id.clone(), names.iter().map(|n| self.effect(n)).collect::<Vec<_>>());
        self.store
            .read(move |r| {
                Ok::<_, StoreError>(Everything {
                    head: r.session(&id)?,
                    doc: r.session_doc(&id)?,
                    record: r.record(&id, 0, 1_000)?,
                    effects: effects.iter().map(|e| r.effect(e)).collect::<Result<_, _>>()?,
                })
            })
            .await
            .unwrap()
    }
}
