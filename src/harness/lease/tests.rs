//! A connection against a core that a test plays by hand, under paused time.

use std::collections::VecDeque;
use std::future::Future;

use nylorun_actors::model::Json;
use nylorun_actors::model::json::{encode, parse};
use nylorun_actors::testing::engine::{FakeEngine, Step};
use tokio::time::Instant;

use super::*;
use crate::harness::Outgoing;

/// Core, as a test plays it.
struct Core {
    harness: Harness,
    connection: Rc<Connection>,
    serving: tokio::task::JoinHandle<()>,
    engine: Arc<FakeEngine>,
    /// Frames that were looked past.
    later: VecDeque<Json>,
}

impl Core {
    /// A harness whose runs do these steps; hello is answered.
    async fn greeted(max_runs: usize, steps: Vec<Step>) -> Self {
        let engine = FakeEngine::of(steps);
        let harness = Harness::new(engine.clone(), max_runs);
        let connection = Rc::new(harness.connect());
        let serves = Rc::clone(&connection);
        let serving = tokio::task::spawn_local(async move { serves.serve().await });
        let mut core = Self { harness, connection, serving, engine, later: VecDeque::new() };
        let hello = core.frame().await;
        assert_eq!((&hello["m"], &hello["id"]), (&json!("hello"), &json!(1)));
        assert_eq!(hello["p"]["api"], 1);
        assert_eq!(hello["p"]["capabilities"], json!({}));
        core.answer(
            &hello,
            json!({ "api": 1, "tenantId": "tn_1", "sandbox": { "backend": "auto" }, "renewEveryMs": 10_000 }),
        );
        core
    }

    /// The next frame from the harness.
    async fn frame(&mut self) -> Json {
        match tokio::time::timeout(Duration::from_secs(3600), self.connection.channel().next()).await {
            Ok(Outgoing::Text(text)) => parse(text.as_bytes()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// The next request of this method.
    async fn next(&mut self, method: &str) -> Json {
        if let Some(at) = self.later.iter().position(|frame| frame["m"] == method) {
            return self.later.remove(at).unwrap();
        }
        loop {
            let frame = self.frame().await;
            if frame["m"] == method {
                return frame;
            }
            self.later.push_back(frame);
        }
    }

    /// Whether nothing more comes within this time.
    async fn quiet(&mut self, ms: u64) -> bool {
        let next = self.connection.channel().next();
        self.later.is_empty() && tokio::time::timeout(Duration::from_millis(ms), next).await.is_err()
    }

    fn take(&self, frame: Json) {
        self.connection.channel().take(&encode(&frame)).unwrap();
    }

    fn answer(&self, request: &Json, result: Json) {
        self.take(json!({ "t": "res", "id": request["id"], "ok": true, "r": result }));
    }

    fn refuse(&self, request: &Json, code: &str) {
        self.take(
            json!({ "t": "res", "id": request["id"], "ok": false, "e": { "code": code, "message": "no" } }),
        );
    }

    fn cancel(&self, reason: &str) {
        self.take(json!({ "t": "msg", "m": "cancel", "p": { "runId": "R", "reason": reason } }));
    }

    /// Answers a lease with the run `R`.
    async fn grant(&mut self) {
        let lease = self.next("lease").await;
        self.answer(&lease, leased());
    }
}

fn leased() -> Json {
    let manifest = json!({ "manifestSchemaVersion": 4, "id": "assistant" });
    json!({
        "run": { "runId": "R", "sessionId": "s", "turnId": "T", "epoch": 1 },
        "input": {
            "type": "turn.start", "engine": "agent", "manifest": manifest,
            "checkpoint": { "version": 1, "engineVersion": "e", "manifestHash": "h", "sessionId": "s",
                "turnId": "T", "segment": 0, "input": "hi" },
            "sessionTools": [], "outcomes": [], "transcript": { "cursor": -1 },
            "options": { "fixtureModel": true, "holdMs": 0 },
            "routing": { "rootManifest": manifest, "pluginRoots": {} },
        },
    })
}

fn test<F: Future<Output = ()>>(test: F) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

#[test]
fn one_lease_is_parked_at_a_time_and_none_beyond_the_most_runs() {
    test(async {
        let mut core = Core::greeted(1, vec![Step::Wait]).await;
        let lease = core.next("lease").await;
        assert_eq!(lease["p"], json!({}));
        assert!(core.quiet(5_000).await, "one is parked");
        core.answer(&lease, leased());
        assert!(core.quiet(9_000).await, "there is no room for another run");
        core.cancel("cancel");
        let failed = core.next("turn.failed").await;
        assert!(core.quiet(9_000).await, "the run ends when its output is answered");
        core.answer(&failed, json!({}));
        core.next("lease").await;
        assert_eq!(core.harness.running(), 0);
    });
}

#[test]
fn a_failed_lease_is_asked_for_again_after_a_tenth_of_a_second() {
    test(async {
        let mut core = Core::greeted(8, vec![]).await;
        for code in ["internal", "unavailable", "invalid"] {
            let lease = core.next("lease").await;
            core.refuse(&lease, code);
            let since = Instant::now();
            assert!(core.quiet(99).await);
            let again = core.next("lease").await;
            assert_eq!(since.elapsed().as_millis(), 100);
            core.refuse(&again, code);
            core.later.clear();
        }
    });
}

#[test]
fn a_run_is_played_over_frames_and_its_output_is_sent_once() {
    test(async {
        let mut core = Core::greeted(8, vec![Step::Model(5), Step::Tool(5)]).await;
        core.grant().await;
        for kind in ["model", "tool"] {
            let intent = core.next("effect.intent").await;
            assert_eq!((&intent["p"]["effect"]["kind"], &intent["p"]["runId"]), (&json!(kind), &json!("R")));
            assert_eq!(intent["p"]["effect"].get("input").is_some(), kind == "tool", "a prompt never leaves");
            core.answer(&intent, json!({ "status": "execute" }));
            let outcome = core.next("effect.outcome").await;
            assert!(outcome["p"].get("error").is_none());
            let value = outcome["p"]["value"].clone();
            core.answer(&outcome, json!({ "status": "completed", "outcome": { "value": value } }));
        }
        let output = core.next("turn.completed").await;
        assert_eq!(output["p"]["status"], "completed");
        core.refuse(&output, "internal");
        core.next("lease").await;
        assert!(core.quiet(60_000).await, "an output that was refused is not repeated");
    });
}

#[test]
fn a_lease_is_renewed_one_at_a_time_until_the_run_is_told_to_stop() {
    test(async {
        let mut core = Core::greeted(1, vec![Step::Wait]).await;
        core.grant().await;
        let since = Instant::now();
        let first = core.next("lease.renew").await;
        assert_eq!(since.elapsed().as_secs(), 10);
        assert!(core.quiet(60_000).await, "the first is not answered yet");
        core.answer(
            &first,
            json!({ "ok": true, "token": "t", "tokenExpiresAt": "2026-01-01T00:00:00.000Z" }),
        );
        let second = core.next("lease.renew").await;
        core.refuse(&second, "internal");
        let third = core.next("lease.renew").await;
        core.cancel("deadline");
        core.next("turn.failed").await;
        let given_up = core.frame().await;
        assert_eq!(given_up, json!({ "t": "abort", "id": third["id"] }), "nobody waits for the last renewal");
        assert!(core.quiet(60_000).await, "an aborted run is not renewed");
    });
}

#[test]
fn a_lease_is_renewed_while_its_output_waits() {
    test(async {
        let mut core = Core::greeted(1, vec![]).await;
        core.grant().await;
        let output = core.next("turn.completed").await;
        let renewal = core.next("lease.renew").await;
        core.refuse(&renewal, "run_not_held");
        core.answer(&output, json!({ "cursor": 3 }));
        core.next("lease").await;
        assert!(!core.later.iter().any(|frame| frame["m"] == "lease.release"));
    });
}

#[test]
fn a_refused_renewal_releases_as_lost_and_sends_no_output() {
    test(async {
        let mut core = Core::greeted(1, vec![Step::Wait]).await;
        core.grant().await;
        let renewal = core.next("lease.renew").await;
        core.answer(&renewal, json!({ "ok": false }));
        let release = core.next("lease.release").await;
        assert_eq!(release["p"], json!({ "runId": "R", "reason": "ownership.lost" }));
        core.refuse(&release, "run_not_held");
        core.next("lease").await;
        assert!(core.later.is_empty(), "{:?}", core.later);
    });
}

#[test]
fn a_cancel_that_follows_its_lease_at_once_is_heard() {
    test(async {
        let mut core = Core::greeted(1, vec![Step::Wait]).await;
        core.grant().await;
        core.cancel("cancel");
        core.next("turn.failed").await;
    });
}

#[test]
fn stopping_ends_runs_as_shutdown_and_closes_in_order() {
    test(async {
        let mut core = Core::greeted(8, vec![Step::Model(60_000)]).await;
        core.grant().await;
        let intent = core.next("effect.intent").await;
        core.answer(&intent, json!({ "status": "execute" }));
        let lease = core.next("lease").await;
        core.harness.stop();
        let abort = core.frame().await;
        assert_eq!(abort, json!({ "t": "abort", "id": lease["id"] }), "the parked lease is taken back");
        let release = core.next("lease.release").await;
        assert_eq!(release["p"]["reason"], "shutdown");
        assert!(core.later.is_empty(), "the model call stays in flight: {:?}", core.later);
        core.answer(&release, json!({}));
        let close = core.connection.channel().next().await;
        assert_eq!(close, Outgoing::Close { code: 1000, reason: "the harness stops".into() });
        core.serving.await.unwrap();
        assert_eq!(core.harness.running(), 0);
    });
}

#[test]
fn a_run_that_crosses_the_stop_is_given_back() {
    test(async {
        let mut core = Core::greeted(8, vec![Step::Hang]).await;
        core.grant().await;
        let lease = core.next("lease").await;
        core.harness.stop();
        core.frame().await;
        let mut crossing = leased();
        crossing["run"]["runId"] = json!("R2");
        core.answer(&lease, crossing);
        let release = core.next("lease.release").await;
        assert_eq!(release["p"], json!({ "runId": "R2", "reason": "shutdown" }));
        assert_eq!(core.engine.runs().len(), 1, "it was never started");
    });
}

#[test]
fn a_run_that_ignores_the_stop_is_dropped_after_ten_seconds() {
    test(async {
        let core = Core::greeted(1, vec![Step::Hang]).await;
        let mut core = core;
        core.grant().await;
        tokio::task::yield_now().await;
        let since = Instant::now();
        core.harness.stop();
        core.serving.await.unwrap();
        assert_eq!(since.elapsed().as_secs(), 10);
        tokio::task::yield_now().await;
        assert_eq!(core.harness.running(), 0);
    });
}

#[test]
fn runs_of_a_lost_connection_wind_down_and_are_dropped_after_five_seconds() {
    test(async {
        let mut core = Core::greeted(2, vec![Step::Hang]).await;
        core.grant().await;
        core.next("lease").await;
        core.connection.channel().close(1006, "gone");
        core.serving.await.unwrap();
        tokio::time::sleep(Duration::from_millis(4_900)).await;
        assert_eq!(core.harness.running(), 1, "it still counts");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(core.harness.running(), 0);
    });
}

#[test]
fn a_lost_connection_aborts_its_runs_at_once() {
    test(async {
        let mut core = Core::greeted(1, vec![Step::Wait]).await;
        core.grant().await;
        tokio::task::yield_now().await;
        core.connection.channel().close(1006, "gone");
        core.serving.await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(core.harness.running(), 0);
    });
}

#[test]
fn an_engine_that_panics_gives_its_run_back_as_if_the_connection_had_gone() {
    test(async {
        let mut core = Core::greeted(1, vec![Step::Panic]).await;
        core.grant().await;
        let release = core.next("lease.release").await;
        assert_eq!(release["p"]["reason"], "connection.lost");
        core.answer(&release, json!({}));
        core.next("lease").await;
    });
}

#[test]
fn a_core_of_another_version_is_left_and_a_hello_without_an_answer_too() {
    test(async {
        for answer in [Some(json!(2)), None] {
            let harness = Harness::new(FakeEngine::of(vec![]), 1);
            let connection = Rc::new(harness.connect());
            let serves = Rc::clone(&connection);
            let serving = tokio::task::spawn_local(async move { serves.serve().await });
            assert!(matches!(connection.channel().next().await, Outgoing::Text(_)));
            if let Some(api) = answer {
                let welcome =
                    json!({ "api": api, "tenantId": "t", "sandbox": { "backend": null }, "renewEveryMs": 1 });
                let frame = json!({ "t": "res", "id": 1, "ok": true, "r": welcome });
                connection.channel().take(&encode(&frame)).unwrap();
            }
            serving.await.unwrap();
            assert!(connection.channel().is_closed());
        }
    });
}
