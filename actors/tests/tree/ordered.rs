//! What a peer says of a run without waiting for the answer to the value before it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::Addr;
use nylorun_actors::harness::HarnessActor;
use nylorun_actors::harness::wire::{FrameSink, SinkFull};
use nylorun_actors::messages::harness::{Closed, Incoming};
use nylorun_actors::model::Json;
use nylorun_actors::model::effect::EffectStatus;
use nylorun_actors::model::json::parse;
use nylorun_actors::ports::store::{Reads, StoreError};
use nylorun_actors::tenant::HarnessMode;
use nylorun_actors::testing::engine::FakeEngine;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::support::{World, sim};

struct Sink(Arc<Mutex<Vec<String>>>);

impl FrameSink for Sink {
    fn send(&self, text: String) -> Result<(), SinkFull> {
        self.0.lock().unwrap().push(text);
        Ok(())
    }

    fn close(&self, _code: u16, _reason: &str) {}

    fn stalled_since(&self) -> Option<Instant> {
        None
    }
}

/// A peer with a run of session `s`.
struct Peer {
    world: World,
    actor: Addr<HarnessActor>,
    frames: Arc<Mutex<Vec<String>>>,
    run: Json,
    turn: Json,
}

impl Peer {
    async fn with_run() -> Self {
        let world = World::in_mode(FakeEngine::of(Vec::new()), 7, HarnessMode::Remote).await;
        let frames = Arc::new(Mutex::new(Vec::new()));
        let sink = Box::new(Sink(Arc::clone(&frames)));
        let actor = world.tenant.attach_harness(sink, "peer".into(), None).await.unwrap();
        let mut peer = Self { world, actor, frames, run: Json::Null, turn: Json::Null };
        peer.say(&[json!({"t": "req", "id": 1, "m": "hello", "p": {"api": 1, "name": "h", "version": "1",
            "capabilities": {}}})]);
        peer.say(&[json!({"t": "req", "id": 2, "m": "lease", "p": {"slots": 1}})]);
        let session = peer.world.open("s").await;
        peer.world.say(&session, "k").await.unwrap();
        peer.pause().await;
        let leased = peer.answer(2)["r"]["run"].clone();
        (peer.run, peer.turn) = (leased["runId"].clone(), leased["turnId"].clone());
        peer
    }

    async fn pause(&self) {
        sleep(Duration::from_millis(20)).await;
    }

    /// Says frames in one breath.
    fn say(&self, frames: &[Json]) {
        for (at, frame) in frames.iter().enumerate() {
            self.actor.do_send(Incoming { text: frame.to_string(), more: at + 1 < frames.len() });
        }
    }

    fn intent(&self, id: u64, effect: &str) -> Json {
        let turn = self.turn.as_str().unwrap();
        json!({"t": "req", "id": id, "m": "effect.intent", "p": {"runId": self.run, "requestHash": "0".repeat(64),
            "effect": {"effectId": format!("{turn}:0:model:{effect}"), "sessionId": "s", "turnId": turn,
                "agentId": "assistant", "manifestHash": "m", "kind": "model",
                "context": {"invocationId": effect}}}})
    }

    fn outcome(&self, id: u64, effect: &str) -> Json {
        let effect = format!("{}:0:model:{effect}", self.turn.as_str().unwrap());
        json!({"t": "req", "id": id, "m": "effect.outcome", "p": {"runId": self.run, "effectId": effect,
            "value": {"text": "hm"}}})
    }

    fn is_answered(&self, id: u64) -> bool {
        let frames = self.frames.lock().unwrap();
        frames.iter().any(|frame| parse(frame.as_bytes()).unwrap()["id"] == id)
    }

    fn answer(&self, id: u64) -> Json {
        let frames = self.frames.lock().unwrap();
        let mut answers = frames.iter().map(|frame| parse(frame.as_bytes()).unwrap());
        answers.find(|frame| frame["id"] == id).unwrap_or_else(|| panic!("no answer to {id}: {frames:?}"))
    }

    async fn status(&self, effect: &str) -> Option<EffectStatus> {
        let id = format!("{}:0:model:{effect}", self.turn.as_str().unwrap()).into();
        let read = move |reads: &mut dyn Reads| Ok::<_, StoreError>(reads.effect(&id)?.map(|row| row.status));
        self.world.tenant.store().read(read).await.unwrap()
    }

    /// From now on commits that write are counted.
    fn count_commits(&self) -> Arc<AtomicU32> {
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        self.world.store.inject(Arc::new(move |point| {
            counted.fetch_add(u32::from(point.wrote), Ordering::SeqCst);
            None
        }));
        count
    }
}

#[test]
fn a_value_and_the_intent_right_behind_it_are_one_commit_and_have_an_answer_each() {
    sim(|| async {
        let peer = Peer::with_run().await;
        peer.say(&[peer.intent(3, "a")]);
        peer.pause().await;
        assert_eq!(peer.answer(3)["r"]["status"], "execute");
        let commits = peer.count_commits();
        peer.say(&[peer.outcome(4, "a"), peer.intent(5, "b")]);
        peer.pause().await;
        assert_eq!(commits.load(Ordering::SeqCst), 1);
        let value = json!({"status": "completed", "outcome": {"value": {"text": "hm"}}});
        assert_eq!((peer.answer(4)["r"].clone(), &peer.answer(5)["r"]["status"]), (value, &json!("execute")));
        assert_eq!(peer.status("b").await, Some(EffectStatus::Invoking));
        // In two reads they are two commits, and come to the same.
        let commits = peer.count_commits();
        peer.say(&[peer.outcome(6, "b")]);
        peer.say(&[peer.intent(7, "c")]);
        peer.pause().await;
        assert_eq!(commits.load(Ordering::SeqCst), 2);
        assert_eq!((peer.answer(6)["ok"].clone(), peer.answer(7)["ok"].clone()), (json!(true), json!(true)));
    });
}

#[test]
fn nothing_of_a_run_overtakes_a_value_that_the_store_refuses_for_now() {
    for in_one_read in [true, false] {
        sim(move || async move {
            let peer = Peer::with_run().await;
            peer.say(&[peer.intent(3, "a")]);
            peer.pause().await;
            // Only what follows the first refusal is let through, as by a disk that has room again.
            let refused = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&refused);
            peer.world.store.inject(Arc::new(move |point| {
                let first = point.wrote && counted.fetch_add(1, Ordering::SeqCst) == 0;
                first.then(|| StoreError::Unavailable("for now".into()))
            }));
            if in_one_read {
                peer.say(&[peer.outcome(4, "a"), peer.intent(5, "b"), peer.intent(6, "c")]);
            } else {
                for frame in [peer.outcome(4, "a"), peer.intent(5, "b"), peer.intent(6, "c")] {
                    peer.say(&[frame]);
                }
            }
            let until = Instant::now() + Duration::from_secs(30);
            while !peer.is_answered(6) {
                assert!(Instant::now() < until, "no answer");
                let after = (peer.status("b").await, peer.status("c").await);
                if peer.status("a").await != Some(EffectStatus::Completed) {
                    assert_eq!(after, (None, None), "an intent is recorded before the value that it follows");
                }
                sleep(Duration::from_millis(1)).await;
            }
            assert!(refused.load(Ordering::SeqCst) > 1, "the store refused one");
            assert!(peer.is_answered(4) && peer.is_answered(5));
        });
    }
}

#[test]
fn an_output_waits_for_the_value_before_it() {
    sim(|| async {
        let peer = Peer::with_run().await;
        peer.say(&[peer.intent(3, "a")]);
        peer.pause().await;
        let output = json!({"t": "req", "id": 5, "m": "turn.completed", "p": {"runId": peer.run,
            "status": "completed", "transcript": [], "state": {}, "output": "done"}});
        peer.say(&[peer.outcome(4, "a"), output]);
        peer.pause().await;
        assert_eq!((peer.answer(4)["ok"].clone(), peer.answer(5)["ok"].clone()), (json!(true), json!(true)));
        assert_eq!(peer.status("a").await, Some(EffectStatus::Completed));
        let view = peer.world.view(&"s".into()).await;
        assert_eq!(view.status.as_str(), "completed");
    });
}

#[test]
fn a_value_whose_next_message_is_refused_is_recorded_all_the_same() {
    sim(|| async {
        let peer = Peer::with_run().await;
        peer.say(&[peer.intent(3, "a")]);
        peer.pause().await;
        let mut bad = peer.intent(5, "b");
        bad["p"]["requestHash"] = json!("short");
        peer.say(&[peer.outcome(4, "a"), bad]);
        peer.pause().await;
        assert_eq!((peer.answer(4)["ok"].clone(), peer.answer(5)["ok"].clone()), (json!(true), json!(false)));
        assert_eq!(peer.status("a").await, Some(EffectStatus::Completed));
        assert_eq!(peer.status("b").await, None);
        // The same effect with another request: the session refuses it, not the frame.
        peer.say(&[peer.intent(6, "b")]);
        peer.pause().await;
        let mut drifted = peer.intent(8, "a");
        drifted["p"]["requestHash"] = json!("1".repeat(64));
        peer.say(&[peer.outcome(7, "b"), drifted]);
        peer.pause().await;
        assert_eq!(peer.answer(7)["r"]["status"], "completed");
        assert_eq!(peer.answer(8)["e"]["code"], "effect_drift");
        assert_eq!(peer.status("b").await, Some(EffectStatus::Completed));
    });
}

#[test]
fn a_value_in_hand_is_kept_when_the_connection_ends_before_the_next_message() {
    sim(|| async {
        let peer = Peer::with_run().await;
        peer.say(&[peer.intent(3, "a")]);
        peer.pause().await;
        peer.actor.do_send(Incoming { text: peer.outcome(4, "a").to_string(), more: true });
        peer.actor.do_send(Closed { code: 1006, reason: "gone".into() });
        peer.pause().await;
        assert_eq!(peer.status("a").await, Some(EffectStatus::Completed));
    });
}
