//! Runs in the hands of a scripted peer (spec: harness-api, sections 7 to 14).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nylorun_actors::limits::HARNESS_FRAME_BYTES;
use nylorun_actors::model::Json;
use nylorun_actors::ports::StoreError;
use serde_json::json;

use super::peer::{Peer, Run};
use super::world::World;

fn said(text: &str) -> Json {
    json!({"output": [{"type": "text", "text": text}]})
}

fn code(text: &str) -> Result<Json, String> {
    Err(text.to_owned())
}

/// Does a model call from its intent to its outcome.
async fn model(peer: &mut Peer, run: &Run, name: &str) {
    let intent = run.model(name);
    assert_eq!(peer.call("effect.intent", intent.clone()).await, Ok(json!({"status": "execute"})), "{name}");
    let answer = peer.call("effect.outcome", run.value(&intent, &said(name))).await.unwrap();
    assert_eq!(answer, json!({"status": "completed", "outcome": {"value": said(name)}}));
}

#[actix_web::test]
async fn a_run_belongs_to_its_connection_and_to_no_other() {
    let world = World::start().await;
    let session = world.session("s-bound").await;
    let (mut holder, mut other) = (Peer::ready(world.address).await, Peer::ready(world.address).await);
    let run = holder.lease().await;
    assert_eq!((run.session.as_str(), run.epoch), ("s-bound", 1));
    let intent = run.model("m");
    for (method, params) in [
        ("lease.renew", json!({"runId": run.id})),
        ("lease.release", json!({"runId": run.id, "reason": "shutdown"})),
        ("effect.intent", intent.clone()),
        ("effect.outcome", run.value(&intent, &said("x"))),
        ("transcript.read", json!({"runId": run.id})),
        ("session.mcp", json!({"runId": run.id, "diagnostics": []})),
        (
            "event",
            json!({"runId": run.id, "sessionId": run.session, "turnId": null, "type": "sandbox.exec", "payload": {}}),
        ),
        ("turn.completed", run.completed(0, &[])),
        ("turn.failed", json!({"runId": run.id, "thrown": {"message": "x"}})),
    ] {
        assert_eq!(other.call(method, params.clone()).await, code("run_not_held"), "{method}");
        let mut unknown = params;
        unknown["runId"] = json!("no-such-run");
        assert_eq!(holder.call(method, unknown).await, code("run_not_held"), "{method}");
    }
    assert_eq!(holder.call("lease.renew", json!({"runId": run.id})).await, Ok(json!({"ok": true})));
    model(&mut holder, &run, "m").await;
    let answer = holder.call("turn.completed", run.completed(0, &[json!({"kind": "input"})])).await.unwrap();
    assert!(answer["cursor"].is_i64(), "{answer}");
    world.until(&session, "completed").await;
    assert_eq!(
        holder.call("lease.renew", json!({"runId": run.id})).await,
        code("run_not_held"),
        "it has ended"
    );
}

#[actix_web::test]
async fn a_run_whose_connection_ends_is_offered_again_at_once_and_completed_by_another() {
    let world = World::start().await;
    let session = world.session("s-again").await;
    let mut first = Peer::ready(world.address).await;
    let run = first.lease().await;
    model(&mut first, &run, "m1").await;
    let mut second = Peer::ready(world.address).await;
    let waiting = second.ask("lease", json!({})).await;
    let began = tokio::time::Instant::now();
    drop(first);
    let again = Run::of(&second.answer(waiting).await.unwrap());
    // The lease of the first one would have lasted 30 s.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert_ne!(again.id, run.id);
    assert_eq!((again.turn.as_str(), again.epoch), (run.turn.as_str(), 2));
    let known = Run::effect_id(&run.model("m1"));
    assert_eq!(again.input["outcomes"][0]["effectId"], known.as_str());
    assert_eq!(again.input["outcomes"][0]["outcome"], json!({"value": said("m1")}));
    // What is recorded is answered from the record.
    let intent = again.model("m1");
    let answer = second.call("effect.intent", intent).await.unwrap();
    assert_eq!(answer, json!({"status": "completed", "outcome": {"value": said("m1")}}));
    model(&mut second, &again, "m2").await;
    second.call("turn.completed", again.completed(0, &[])).await.unwrap();
    world.until(&session, "completed").await;
    let types = world.types(&session).await;
    assert_eq!(types.iter().filter(|t| *t == "message.assistant").count(), 2, "{types:?}");
    assert_eq!(types.iter().filter(|t| *t == "turn.completed").count(), 1, "{types:?}");
}

#[actix_web::test]
async fn a_tool_in_flight_when_its_connection_ends_is_uncertain_and_a_model_call_is_made_again() {
    let world = World::start().await;
    let tools = json!({"metadata": {"nylorun.fixture": {"tools": {"refund": {}}}}});
    world.agent("scripted", tools).await;
    world.tenant.store().tx(|tx| tx.put_setting("model.fixture", "true")).await.unwrap();
    let mut peer = Peer::ready(world.address).await;

    let model_session = world.open("s-cut-model", "scripted").await;
    world.say(&model_session, "hello").await;
    let run = peer.lease().await;
    assert_eq!(peer.call("effect.intent", run.model("m")).await, Ok(json!({"status": "execute"})));
    drop(peer);
    let mut peer = Peer::ready(world.address).await;
    let run = peer.lease().await;
    let rejoined = peer.call("effect.intent", run.model("m")).await;
    assert_eq!(rejoined, Ok(json!({"status": "execute", "rejoin": true})));
    peer.call("effect.outcome", run.value(&run.model("m"), &said("m"))).await.unwrap();
    peer.call("turn.completed", run.completed(0, &[])).await.unwrap();
    world.until(&model_session, "completed").await;

    let tool_session = world.open("s-cut-tool", "scripted").await;
    world.say(&tool_session, "hello").await;
    let run = peer.lease().await;
    let tool = run.tool("refund", "t", json!({"n": 1}));
    assert_eq!(peer.call("effect.intent", tool).await, Ok(json!({"status": "execute"})));
    drop(peer);
    let view = world.until(&tool_session, "uncertain").await;
    assert_eq!(view.uncertain_effects.len(), 1, "{view:?}");
    assert!(world.types(&tool_session).await.contains(&"effect.uncertain".to_owned()));
}

#[actix_web::test]
async fn an_output_that_is_repeated_waits_for_the_same_answer_and_another_one_is_refused() {
    let world = World::start().await;
    let session = world.session("s-repeat").await;
    let mut peer = Peer::ready(world.address).await;
    let run = peer.lease().await;
    // The store refuses for a moment, so that the repeats come while the first one waits.
    let refusals = Arc::new(AtomicUsize::new(5));
    let left = Arc::clone(&refusals);
    world.store.inject(Arc::new(move |_| {
        let refuse = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
        refuse.then(|| StoreError::Unavailable("a test said so".into()))
    }));
    let output = run.completed(0, &[json!({"kind": "input"})]);
    let first = peer.ask("turn.completed", output.clone()).await;
    let second = peer.ask("turn.completed", output.clone()).await;
    let other = peer.ask("turn.failed", json!({"runId": run.id, "thrown": {"message": "x"}})).await;
    let renewal = peer.ask("lease.renew", json!({"runId": run.id})).await;
    assert_eq!(peer.answer(other).await, code("run_not_held"));
    assert_eq!(peer.answer(renewal).await, code("run_not_held"), "core renews from the output on");
    let answer = peer.answer(first).await.unwrap();
    assert!(answer["cursor"].is_i64(), "{answer}");
    assert_eq!(peer.answer(second).await, Ok(answer));
    world.store.inject_nothing();
    assert_eq!(peer.call("turn.completed", output).await, code("run_not_held"), "it was answered");
    world.until(&session, "completed").await;
    let types = world.types(&session).await;
    assert_eq!(types.iter().filter(|t| *t == "turn.completed").count(), 1, "{types:?}");
}

#[actix_web::test]
async fn a_release_gives_the_session_to_whoever_has_room() {
    let world = World::with(|config| {
        config.owner_lease_ms = 1_000;
        config.sweep_interval_ms = 200;
    })
    .await;
    let session = world.session("s-release").await;
    let mut peer = Peer::ready(world.address).await;
    let mut last = peer.lease().await;
    for reason in ["shutdown", "connection.lost", "ownership.lost"] {
        let release = json!({"runId": last.id, "reason": reason});
        assert_eq!(peer.call("lease.release", release.clone()).await, Ok(json!({})), "{reason}");
        assert_eq!(peer.call("lease.release", release).await, code("run_not_held"), "{reason}");
        let next = peer.lease().await;
        assert_eq!((next.turn.as_str(), next.epoch), (last.turn.as_str(), last.epoch + 1), "{reason}");
        last = next;
    }
    peer.call("turn.completed", last.completed(0, &[])).await.unwrap();
    world.until(&session, "completed").await;
}

#[actix_web::test]
async fn a_harness_that_answers_pings_and_does_not_renew_loses_its_run_within_a_lease() {
    let world = World::with(|config| config.owner_lease_ms = 3_000).await;
    let session = world.session("s-hung").await;
    let mut hung = Peer::ready(world.address).await;
    let run = hung.lease().await;
    let held = tokio::time::Instant::now();
    let mut other = Peer::ready(world.address).await;
    let waiting = other.ask("lease", json!({})).await;
    // It has room for more, and asked for it first.
    hung.ask("lease", json!({})).await;
    let cancel = hung.message().await;
    assert_eq!((&cancel["m"], &cancel["p"]["reason"]), (&json!("cancel"), &json!("ownership.lost")));
    assert_eq!(cancel["p"]["runId"], run.id.as_str());
    assert!(
        held.elapsed() < Duration::from_millis(4_200),
        "one lease and what a busy machine takes: {:?}",
        held.elapsed()
    );
    let told = tokio::time::Instant::now();
    let again = Run::of(&other.answer(waiting).await.unwrap());
    // The one that hangs is connected as before, and has the session's preference no more.
    assert!(told.elapsed() < Duration::from_secs(8), "{:?}", told.elapsed());
    assert_eq!((again.turn.as_str(), again.epoch), (run.turn.as_str(), 2));
    // Whatever the first one still says is heard by nobody.
    assert_eq!(hung.call("turn.completed", run.completed(0, &[])).await, code("run_not_held"));
    assert_eq!(hung.call("effect.intent", run.model("m")).await, code("run_not_held"));
    other.call("turn.completed", again.completed(0, &[])).await.unwrap();
    world.until(&session, "completed").await;
}

#[actix_web::test]
async fn a_lease_request_that_was_taken_back_gets_no_run() {
    let world = World::start().await;
    let (mut first, mut second) = (Peer::ready(world.address).await, Peer::ready(world.address).await);
    let taken_back = first.ask("lease", json!({})).await;
    first.text(&format!(r#"{{"t":"abort","id":{taken_back}}}"#)).await;
    assert_eq!(first.call("lease", json!({"slots": 0})).await, code("invalid"), "the abort was read before");
    let waiting = second.ask("lease", json!({})).await;
    let session = world.session("s-abort").await;
    let run = Run::of(&second.answer(waiting).await.unwrap());
    // A request that was given up may have been served; its answer never comes.
    let intent = second.ask("effect.intent", run.model("m")).await;
    second.text(&format!(r#"{{"t":"abort","id":{intent}}}"#)).await;
    second.call("turn.completed", run.completed(0, &[])).await.unwrap();
    world.until(&session, "completed").await;
}

#[actix_web::test]
async fn effects_are_checked_against_the_run_and_the_record() {
    let world = World::start().await;
    let session = world.session("s-effects").await;
    let mut peer = Peer::ready(world.address).await;
    let run = peer.lease().await;
    model(&mut peer, &run, "m1").await;

    // A repeat is answered from the record, an error after a value changes nothing.
    let intent = run.model("m1");
    let recorded = json!({"status": "completed", "outcome": {"value": said("m1")}});
    for params in [
        run.value(&intent, &said("another")),
        json!({"runId": run.id, "effectId": Run::effect_id(&intent), "error": "cut off"}),
    ] {
        assert_eq!(peer.call("effect.outcome", params).await, Ok(recorded.clone()));
    }
    let mut drifted = intent.clone();
    drifted["requestHash"] = json!("0".repeat(64));
    assert_eq!(peer.call("effect.intent", drifted).await, code("effect_drift"));

    // What was never declared has no outcome.
    let undeclared = run.model("never");
    assert_eq!(peer.call("effect.outcome", run.value(&undeclared, &said("x"))).await, code("invalid"));
    let unknown = json!({"runId": run.id, "effectId": "unknown", "error": "x"});
    assert_eq!(peer.call("effect.outcome", unknown).await, Ok(json!({"status": "uncertain"})));

    // An Action is the application's: a harness cannot say what it came to.
    let action = run.tool("refund", "t1", json!({"cents": 5}));
    assert_eq!(peer.call("effect.intent", action.clone()).await, Ok(json!({"status": "pending"})));
    assert_eq!(peer.call("effect.intent", action.clone()).await, Ok(json!({"status": "pending"})));
    assert_eq!(
        peer.call("effect.outcome", run.value(&action, &json!({"forged": true}))).await,
        code("invalid")
    );
    let mut wrong = run.tool("refund", "t2", json!({"cents": 5}));
    wrong["requestHash"] = action["requestHash"].clone();
    assert_eq!(peer.call("effect.intent", wrong).await, code("invalid"), "a hash of something else");

    // A model's prompt never travels, and another session's effect is not this run's.
    let mut prompt = run.model("m2");
    prompt["effect"]["input"] = json!({"prompt": "x"});
    assert_eq!(peer.call("effect.intent", prompt).await, code("invalid"));
    let other = world.session("s-other").await;
    let theirs = peer.lease().await;
    let mine = run.value(&theirs.model("m"), &said("x"));
    assert_eq!(peer.call("effect.intent", theirs.model("m")).await, Ok(json!({"status": "execute"})));
    assert_eq!(peer.call("effect.outcome", mine).await, code("invalid"));
    let mut stolen = run.model("m");
    stolen["effect"]["effectId"] = theirs.model("m")["effect"]["effectId"].clone();
    assert_eq!(peer.call("effect.intent", stolen).await, code("invalid"));

    let waiting = json!({"runId": run.id, "status": "waiting", "effectIds": [Run::effect_id(&action)]});
    assert_eq!(peer.call("turn.waiting", waiting).await, Ok(json!({})));
    world.until(&session, "waiting").await;
    peer.call(
        "turn.failed",
        json!({"runId": theirs.id, "status": "failed", "error": {"code": "x", "message": "y"}}),
    )
    .await
    .unwrap();
    world.until(&other, "failed").await;
    let types = world.types(&session).await;
    assert_eq!(types.iter().filter(|t| *t == "message.assistant").count(), 1, "{types:?}");
    assert!(!types.contains(&"effect.uncertain".to_owned()), "{types:?}");
}

#[actix_web::test]
async fn a_cancelled_turn_is_told_to_its_run_and_nothing_of_it_is_recorded_any_more() {
    let world = World::start().await;
    let session = world.session("s-cancel").await;
    let mut peer = Peer::ready(world.address).await;
    let run = peer.lease().await;
    let intent = run.model("m1");
    peer.call("effect.intent", intent.clone()).await.unwrap();
    world.cancel(&session).await;
    let cancel = peer.message().await;
    let p = cancel["p"].as_object().unwrap();
    assert_eq!(
        (&cancel["m"], &p["runId"], &p["reason"]),
        (&json!("cancel"), &json!(run.id), &json!("cancel"))
    );
    assert!(p.keys().all(|key| ["runId", "reason", "message"].contains(&key.as_str())), "{cancel}");
    assert_eq!(peer.call("lease.renew", json!({"runId": run.id})).await, Ok(json!({"ok": true})));
    assert_eq!(peer.call("effect.intent", run.model("m2")).await, code("turn_cancelled"));
    assert_eq!(peer.call("effect.outcome", run.value(&intent, &said("late"))).await, code("turn_cancelled"));
    let failed = json!({"runId": run.id, "status": "cancelled"});
    assert_eq!(peer.call("turn.failed", failed).await, Ok(json!({})));
    world.until(&session, "cancelled").await;
    let types = world.types(&session).await;
    assert_eq!(
        types.iter().filter(|t| t.starts_with("turn.")).collect::<Vec<_>>(),
        ["turn.cancelled"],
        "{types:?}"
    );
    assert!(!types.contains(&"message.assistant".to_owned()), "{types:?}");
}

#[actix_web::test]
async fn tools_that_a_harness_has_just_discovered_are_its_own_in_the_same_run() {
    let world = World::start().await;
    let session = world.session("s-mcp").await;
    let mut peer = Peer::ready(world.address).await;
    let run = peer.lease().await;
    let snapshot = json!({"snapshotSchemaVersion": 1, "manifestHash": "mh", "mcpTools": [
        {"capabilityId": "agent", "serverName": "docs", "serverToolName": "find", "name": "docs__find",
            "inputSchema": {"type": "object"}}]});
    let diagnostic =
        json!({"capabilityId": "agent", "serverName": "docs", "outcome": "connected", "message": "1 tool"});
    let found = json!({"runId": run.id, "snapshot": snapshot, "diagnostics": [diagnostic]});
    let answer = peer.call("session.mcp", found).await.unwrap();
    assert_eq!(answer["snapshot"], snapshot);
    assert_eq!(answer["sessionTools"][0]["name"], "docs__find");
    let other = json!({"snapshotSchemaVersion": 1, "manifestHash": "mh", "mcpTools": []});
    let again = json!({"runId": run.id, "snapshot": other, "diagnostics": []});
    assert_eq!(peer.call("session.mcp", again).await.unwrap()["snapshot"], snapshot, "the first one wins");

    let tool = run.tool("docs__find", "t", json!({"q": "x"}));
    assert_eq!(peer.call("effect.intent", tool.clone()).await, Ok(json!({"status": "execute"})));
    let value = json!({"kind": "completed", "output": "found"});
    peer.call("effect.outcome", run.value(&tool, &value)).await.unwrap();
    peer.call("turn.completed", run.completed(0, &[])).await.unwrap();
    world.until(&session, "completed").await;
    assert!(world.types(&session).await.contains(&"tool.completed".to_owned()));
    world.say(&session, "again").await;
    let next = peer.lease().await;
    assert_eq!(next.input["sessionTools"][0]["name"], "docs__find");
    assert_eq!(next.input["routing"]["mcpSnapshot"], snapshot);
}

#[actix_web::test]
async fn a_claim_is_recorded_for_the_runs_session_only() {
    let world = World::start().await;
    let session = world.session("s-claim").await;
    let mut peer = Peer::ready(world.address).await;
    let run = peer.lease().await;
    let claim = json!({"runId": run.id, "sessionId": run.session, "turnId": run.turn, "type": "sandbox.exec",
        "payload": {"tool": "bash", "outcome": "completed", "durationMs": 3}});
    assert_eq!(peer.call("event", claim.clone()).await, Ok(json!({})));
    let mut other = claim.clone();
    other["sessionId"] = json!("another");
    assert_eq!(peer.call("event", other).await, code("run_not_held"));
    let mut without = claim;
    without.as_object_mut().unwrap().remove("runId");
    assert_eq!(peer.call("event", without).await, code("run_not_held"), "no workspace request is in flight");
    peer.call("turn.completed", run.completed(0, &[])).await.unwrap();
    world.until(&session, "completed").await;
    let record = world.record(&session).await;
    let claims: Vec<_> = record.iter().filter(|(kind, _)| kind == "sandbox.exec").collect();
    assert_eq!(claims.len(), 1);
    assert_eq!(claims[0].1["tool"], "bash");
}

#[actix_web::test]
async fn a_transcript_is_read_as_it_was_kept_at_its_cursor() {
    let world = World::start().await;
    let session = world.session("s-read").await;
    let mut peer = Peer::ready(world.address).await;
    let run = peer.lease().await;
    assert_eq!(run.input["transcript"], json!({"cursor": -1}));
    assert_eq!(
        peer.call("transcript.read", json!({"runId": run.id})).await,
        Ok(json!({"cursor": -1, "entries": []}))
    );
    let entries = [json!({"kind": "input", "odd": "\u{2028}"}), json!({"kind": "final", "n": 1.5})];
    let settled = peer.call("turn.completed", run.completed(0, &entries)).await.unwrap();
    world.say(&session, "again").await;
    let run = peer.lease().await;
    assert_eq!(run.input["transcript"]["cursor"], settled["cursor"]);
    assert_eq!(run.input["checkpoint"]["state"]["transcript"], json!([]));
    let read = peer.call("transcript.read", json!({"runId": run.id})).await.unwrap();
    assert_eq!(read, json!({"cursor": settled["cursor"], "entries": entries}));
    // A segment that rolls over goes on in the next one.
    let mut rolled = run.completed(2, &[json!({"kind": "input"})]);
    rolled["status"] = json!("yielded");
    rolled.as_object_mut().unwrap().remove("output");
    let rolled = peer.call("checkpoint", rolled).await.unwrap();
    assert!(rolled["cursor"].as_i64() > settled["cursor"].as_i64(), "{rolled}");
    let next = peer.lease().await;
    assert_eq!((next.turn.as_str(), &next.input["checkpoint"]["segment"]), (run.turn.as_str(), &json!(1)));
    assert_eq!(next.input["transcript"]["cursor"], rolled["cursor"]);
    peer.call("turn.completed", next.completed(3, &[])).await.unwrap();
    world.until(&session, "completed").await;
}

#[actix_web::test]
async fn a_start_larger_than_a_frame_fails_its_turn_and_leaves_the_lease_to_others() {
    let world = World::start().await;
    world.agent("huge", json!({"metadata": {"text": "x".repeat(HARNESS_FRAME_BYTES)}})).await;
    let mut peer = Peer::ready(world.address).await;
    let waiting = peer.ask("lease", json!({})).await;
    let huge = world.open("s-huge", "huge").await;
    world.say(&huge, "hello").await;
    let view = world.until(&huge, "failed").await;
    assert!(
        view.error.as_deref().is_some_and(|text| text.contains("too large for a harness")),
        "{:?}",
        view.error
    );
    let small = world.session("s-small").await;
    let run = Run::of(&peer.answer(waiting).await.unwrap());
    assert_eq!(run.session, "s-small");
    peer.call("turn.completed", run.completed(0, &[])).await.unwrap();
    world.until(&small, "completed").await;
}

#[actix_web::test]
async fn a_connection_that_flaps_100_times_loses_nothing_and_repeats_no_effect() {
    let world = World::start().await;
    let session = world.session("s-flap").await;
    for n in 0..100 {
        let mut peer = Peer::ready(world.address).await;
        let run = peer.lease().await;
        let known = run.input["outcomes"].as_array().unwrap();
        assert_eq!(known.len(), n, "every outcome so far, once each");
        // `execute` is answered once for each: it was never started before.
        model(&mut peer, &run, &format!("m{n}")).await;
        // Now in order, now by breaking off.
        if n % 2 == 0 {
            peer.frame(0x88, &1000_u16.to_be_bytes()).await;
            peer.end().await;
        }
    }
    let mut peer = Peer::ready(world.address).await;
    let run = peer.lease().await;
    assert_eq!(run.input["outcomes"].as_array().unwrap().len(), 100);
    peer.call("turn.completed", run.completed(0, &[])).await.unwrap();
    world.until(&session, "completed").await;
    let types = world.types(&session).await;
    assert_eq!(types.iter().filter(|t| *t == "message.assistant").count(), 100);
    assert_eq!(types.iter().filter(|t| t.starts_with("turn.")).collect::<Vec<_>>(), ["turn.completed"]);
    world.until_connected(1).await;
}

#[actix_web::test]
async fn a_connection_that_flaps_without_progress_does_not_use_up_the_attempts_of_a_segment() {
    let world = World::start().await;
    let session = world.session("s-flap-idle").await;
    let mut runs = std::collections::BTreeSet::new();
    for _ in 0..10 {
        let mut peer = Peer::ready(world.address).await;
        let run = peer.lease().await;
        // The same call each time; it never comes to its end.
        assert!(peer.call("effect.intent", run.model("m")).await.is_ok());
        assert!(runs.insert(run.id), "each offer is a new run");
    }
    let mut peer = Peer::ready(world.address).await;
    let run = peer.lease().await;
    peer.call("turn.completed", run.completed(0, &[])).await.unwrap();
    world.until(&session, "completed").await;
}

#[actix_web::test]
async fn a_core_that_stops_tells_its_runs_and_another_core_goes_on() {
    let world = World::start().await;
    let session = world.session("s-stop").await;
    let mut peer = Peer::ready(world.address).await;
    let run = peer.lease().await;
    let tenant = world.tenant.clone();
    let stopping = actix_web::rt::spawn(async move { tenant.stop().await });
    let cancel = peer.message().await;
    assert_eq!((&cancel["p"]["reason"], &cancel["p"]["runId"]), (&json!("shutdown"), &json!(run.id)));
    let release = json!({"runId": run.id, "reason": "shutdown"});
    assert_eq!(peer.call("lease.release", release).await, Ok(json!({})));
    assert_eq!(peer.end().await, Some((1001, "core is stopping".to_owned())));
    stopping.await.unwrap();
    world.listener.stop().await;
    let view = world.tenant.session(&session, &nylorun_actors::tenant::Reach::All).await.unwrap();
    assert_eq!(view.status.as_str(), "running", "it is resumed by the next core");
}
