//! Requests about workspaces under a paused clock: their bounds, pods, and what a supervisor's death leaves of it all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::Addr;
use nylorun_actors::harness::HarnessActor;
use nylorun_actors::harness::wire::{FrameSink, SinkFull};
use nylorun_actors::limits::{HARNESS_ASKED, WORKSPACE_ANSWER_MS, WORKSPACE_REPORT_MS};
use nylorun_actors::messages::Panic;
use nylorun_actors::messages::harness::{Closed, Incoming};
use nylorun_actors::model::Json;
use nylorun_actors::model::json::parse;
use nylorun_actors::model::workspace::{Tool, ToolOutcome, WorkspaceSession, sandbox_key};
use nylorun_actors::ports::workspaces::{WorkspaceError, WorkspaceOf};
use nylorun_actors::tenant::HarnessMode;
use nylorun_actors::testing::engine::FakeEngine;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::support::{World, sim};

/// A peer of a connection: what core sends, and what core is told.
struct Peer {
    actor: Addr<HarnessActor>,
    frames: Arc<Mutex<Vec<String>>>,
    /// Numbers of sweeps.
    swept: Mutex<Vec<Json>>,
}

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

impl Peer {
    /// Connects and declares workspaces.
    async fn connect(world: &World, pod: Option<&str>) -> Self {
        let frames = Arc::new(Mutex::new(Vec::new()));
        let sink = Box::new(Sink(Arc::clone(&frames)));
        let actor = world.tenant.attach_harness(sink, "peer".into(), pod.map(str::to_owned)).await.unwrap();
        let peer = Self { actor, frames, swept: Mutex::default() };
        peer.say(&json!({"t": "req", "id": 1, "m": "hello", "p": {"api": 1, "name": "h", "version": "1",
            "capabilities": {"workspace": {"backends": ["virtual"]}}}}));
        sleep(Duration::from_millis(50)).await;
        let backend = if pod.is_some() { Json::Null } else { json!("auto") };
        assert_eq!(peer.next()["r"]["sandbox"]["backend"], backend);
        peer
    }

    fn say(&self, frame: &Json) {
        self.actor.do_send(Incoming { text: frame.to_string(), more: false });
    }

    /// The next frame; sweeps, which come by themselves, are left aside.
    fn next(&self) -> Json {
        loop {
            let frame = parse(self.frames.lock().unwrap().remove(0).as_bytes()).unwrap();
            let mut swept = self.swept.lock().unwrap();
            if frame["m"] == "workspace.sweep" {
                swept.push(frame["id"].clone());
            } else if frame["t"] != "abort" || !swept.contains(&frame["id"]) {
                return frame;
            }
        }
    }

    fn is_quiet(&self) -> bool {
        self.frames.lock().unwrap().is_empty()
    }
}

fn of(session: &str, sandbox: Option<&str>, pod: Option<&str>) -> WorkspaceOf {
    let session = WorkspaceSession {
        owner_id: session.into(),
        sandbox_id: sandbox.map(str::to_owned),
        active_turn_id: None,
    };
    WorkspaceOf { session, spec: json!({}), pod: pod.map(str::to_owned) }
}

type Called = JoinHandle<Result<ToolOutcome, WorkspaceError>>;

async fn call(world: &World, of: WorkspaceOf) -> Called {
    let call = world.tenant.workspaces().call(of, Tool::Bash, json!({"command": "ls"}));
    let called = tokio::task::spawn_local(call);
    sleep(Duration::from_millis(50)).await;
    called
}

async fn remote() -> World {
    World::in_mode(FakeEngine::of(Vec::new()), 7, HarnessMode::Remote).await
}

#[test]
fn a_harness_that_does_not_answer_in_time_is_told_to_stop_and_the_caller_is_refused() {
    sim(|| async {
        let world = remote().await;
        let peer = Peer::connect(&world, None).await;
        let began = Instant::now();
        let called = call(&world, of("s", None, None)).await;
        assert_eq!(peer.next()["m"], "workspace.exec");
        // Its pongs keep the connection alive meanwhile.
        while began.elapsed() < Duration::from_millis(WORKSPACE_ANSWER_MS - 1_000) {
            assert!(!called.is_finished());
            peer.say(&json!({"t": "ping"}));
            sleep(Duration::from_secs(30)).await;
        }
        let answer = called.await.unwrap();
        assert!(matches!(answer, Err(WorkspaceError::Unavailable(_))), "{answer:?}");
        assert_eq!(peer.next(), json!({"t": "abort", "id": 1}));
        // The report has a bound of its own; a status page is not held up.
        let began = Instant::now();
        assert_eq!(world.tenant.workspaces().report().await.backend, None);
        assert_eq!(began.elapsed().as_millis(), u128::from(WORKSPACE_REPORT_MS));
    });
}

#[test]
fn a_harness_has_a_bounded_number_of_unanswered_requests() {
    sim(|| async {
        let world = remote().await;
        let peer = Peer::connect(&world, None).await;
        let mut waiting = Vec::new();
        for n in 0..HARNESS_ASKED {
            waiting.push(call(&world, of(&format!("s{n}"), None, None)).await);
            peer.say(&json!({"t": "ping"}));
        }
        let refused = call(&world, of("one more", None, None)).await.await.unwrap();
        assert!(matches!(refused, Err(WorkspaceError::Unavailable(_))), "{refused:?}");
        peer.say(&json!({"t": "res", "id": 1, "ok": true, "r": {"kind": "completed", "output": 1}}));
        sleep(Duration::from_millis(50)).await;
        assert!(waiting.remove(0).is_finished());
        let called = call(&world, of("one more", None, None)).await;
        assert!(!called.is_finished(), "there is room again");
        // The connection ends: everybody is answered.
        peer.actor.do_send(Closed { code: 1006, reason: "gone".into() });
        for waiting in waiting.into_iter().chain([called]) {
            assert!(matches!(waiting.await.unwrap(), Err(WorkspaceError::Unavailable(_))));
        }
    });
}

#[test]
fn a_pods_workspace_is_its_engines_and_of_no_other_harness() {
    sim(|| async {
        let world = remote().await;
        let base = Peer::connect(&world, None).await;
        let in_pod = || of("s", Some("team/box"), Some("team/box"));
        let answer = call(&world, in_pod()).await.await.unwrap();
        assert_eq!(answer, Err(WorkspaceError::PodAway));
        let host = Peer::connect(&world, Some("team/box")).await;
        let called = call(&world, in_pod()).await;
        assert_eq!(host.next()["p"]["session"]["sandboxId"], "team/box");
        // It claims its own workspace only.
        world.open("s").await;
        let claim = |id: u64, key: &str| {
            let record = json!({"key": key, "sessionId": "s", "sandboxId": "team/box", "backend": "local",
                "image": "i", "state": "running", "createdAt": "x", "updatedAt": "x"});
            json!({"t": "req", "id": id, "m": "event", "p": {"sessionId": "s", "turnId": null,
                "type": "sandbox.state", "payload": {}, "record": record}})
        };
        let tenant = world.tenant.id();
        host.say(&claim(2, &sandbox_key(tenant, "team/other")));
        host.say(&claim(3, &sandbox_key(tenant, "team/box")));
        sleep(Duration::from_millis(50)).await;
        assert_eq!(host.next()["e"]["code"], "invalid");
        assert_eq!(host.next()["ok"], true);
        host.say(&json!({"t": "res", "id": 1, "ok": true, "r": {"kind": "completed", "output": 1}}));
        assert!(called.await.unwrap().is_ok());
        // Everything else stays with the base.
        let called = call(&world, of("s", None, None)).await;
        assert_eq!(base.next()["m"], "workspace.exec");
        assert!(host.is_quiet());
        called.abort();
        sleep(Duration::from_millis(50)).await;
        assert_eq!(base.next(), json!({"t": "abort", "id": 1}));
    });
}

#[test]
fn a_supervisor_that_dies_is_told_again_who_serves_workspaces() {
    sim(|| async {
        let world = remote().await;
        let peer = Peer::connect(&world, None).await;
        world.tenant.tree().supervisor().unwrap().do_send(Panic);
        sleep(Duration::from_secs(2)).await;
        let called = call(&world, of("s", None, None)).await;
        assert_eq!(peer.next()["m"], "workspace.exec");
        peer.say(&json!({"t": "res", "id": 1, "ok": true, "r": {"kind": "completed", "output": 1}}));
        assert!(called.await.unwrap().is_ok());
    });
}
