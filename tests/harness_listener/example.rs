//! The worked example of the specification (harness-api, section 18), byte for byte: an unmodified peer's frames and
//! the texts that answer them: with an Action that is answered in the background, with its hold ending before the answer,
//! and with the tool given to the harness.

use std::sync::Arc;

use nylorun_actors::model::Json;
use nylorun_actors::model::json::encode;
use nylorun_actors::rules::actions::DeliveryClaim;
use nylorun_actors::rules::endpoints::Registration;
use nylorun_actors::testing::endpoints::{FakeEndpoints, status};
use serde_json::json;

use super::peer::{PATIENCE, Peer};
use super::world::World;

const T: &str = "6f1d0c1e-5b7a-4a53-9f0e-2f4f7f6a9b10";
const R: &str = "b3a4c0de-0000-4000-8000-000000000001";
const MODEL_HASH: &str = "f7a0d7d523e3f1247519f88a4037a83868bdbba7aca08f9794b4a3df30a5b370";
const TOOL_HASH: &str = "deafcf5ca3bd80df3eb052778d9e6ae83cfb86e145f567133d57c59f108b2c75";

/// Says a frame and compares what comes back.
async fn exchange(peer: &mut Peer, says: &str, answers: &str) {
    peer.text(says).await;
    assert_eq!(peer.next_text().await, answers, "after {says}");
}

fn model_intent(id: u32, name: &str, hash: &str) -> String {
    format!(
        r#"{{"t":"req","id":{id},"m":"effect.intent","p":{{"runId":"{R}","requestHash":"{hash}","effect":{{"effectId":"{T}:0:model:{name}","sessionId":"s-42","turnId":"{T}","agentId":"billing-bot","manifestHash":"mh-1","kind":"model","context":{{"invocationId":"{name}"}}}}}}}}"#
    )
}

fn outcome(id: u32, effect: &str, value: &str) -> (String, String) {
    (
        format!(
            r#"{{"t":"req","id":{id},"m":"effect.outcome","p":{{"runId":"{R}","effectId":"{T}:0:{effect}","value":{value}}}}}"#
        ),
        format!(
            r#"{{"t":"res","id":{id},"ok":true,"r":{{"status":"completed","outcome":{{"value":{value}}}}}}}"#
        ),
    )
}

const CALLS: &str = r#"{"output":[{"type":"tool-call","id":"call-1","name":"refund","args":{"invoice":"INV-7","cents":1250}}]}"#;
const ANSWER: &str = r#"{"output":[{"type":"text","text":"Refunded."}]}"#;

fn tool_intent(id: u32) -> String {
    format!(
        r#"{{"t":"req","id":{id},"m":"effect.intent","p":{{"runId":"{R}","requestHash":"{TOOL_HASH}","effect":{{"effectId":"{T}:0:tool:inv-2","sessionId":"s-42","turnId":"{T}","agentId":"billing-bot","manifestHash":"mh-1","kind":"tool","capabilityId":"billing","toolName":"refund","input":{{"invoice":"INV-7","cents":1250}},"context":{{"executionId":"s-42","turnId":"turn-1","stepId":"step-1","callId":"call-1","invocationId":"inv-2","idempotencyKey":"idem-1","state":{{}}}}}}}}}}"#
    )
}

/// From the connection to the answer of frame 5. `fixture`: the harness has the tool.
async fn begin(world: &World, fixture: bool) -> Peer {
    let tools = json!({"nylorun.fixture": {"tools": {"refund": {}}}});
    let metadata = if fixture { json!({"metadata": tools}) } else { json!({}) };
    let hash = world.agent("billing-bot", metadata.clone()).await;
    world.tenant.store().tx(move |tx| tx.put_setting("model.fixture", &fixture.to_string())).await.unwrap();
    let session = world.open("s-42", "billing-bot").await;

    let mut peer = Peer::connect(world.address).await;
    exchange(
        &mut peer,
        r#"{"t":"req","id":1,"m":"hello","p":{"api":1,"name":"harness","version":"0.17.0","capabilities":{"workspace":{"backends":["virtual"]}}}}"#,
        &format!(
            r#"{{"t":"res","id":1,"ok":true,"r":{{"api":1,"tenantId":"{}","sandbox":{{"backend":"auto"}},"renewEveryMs":10000}}}}"#,
            world.tenant.id()
        ),
    )
    .await;
    peer.text(r#"{"t":"req","id":2,"m":"lease","p":{}}"#).await;
    // The lease is parked before the message comes.
    let until = tokio::time::Instant::now() + PATIENCE;
    while !encode(&world.tenant.actors().await).contains(r#""parkedLeases":1"#) {
        assert!(tokio::time::Instant::now() < until);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    world.turns.next_uuid(T);
    world.runs.next_uuid(R);
    world.say(&session, "Refund INV-7").await;

    let mut manifest = json!({
        "manifestSchemaVersion": 4, "id": "billing-bot",
        "capabilities": [{"id": "agent", "type": "agent", "tools": [{"name": "refund", "inputSchema": {}}]}],
    });
    manifest.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    let manifest = encode(&manifest);
    let version = nylorun_actors::model::checkpoint::ENGINE_VERSION;
    assert_eq!(
        peer.next_text().await,
        format!(
            r#"{{"t":"res","id":2,"ok":true,"r":{{"run":{{"runId":"{R}","sessionId":"s-42","turnId":"{T}","epoch":1}},"input":{{"type":"turn.start","engine":"agent","manifest":{manifest},"checkpoint":{{"version":1,"engineVersion":"{version}","manifestHash":"{hash}","sessionId":"s-42","turnId":"{T}","segment":0,"input":"Refund INV-7"}},"sessionTools":[],"outcomes":[],"transcript":{{"cursor":-1}},"options":{{"yieldAfter":{{"steps":50,"ms":1200000}},"fixtureModel":{fixture},"holdMs":300000}},"routing":{{"rootManifest":{manifest},"pluginRoots":{{}},"sandbox":{{"ownerId":"s-42"}}}}}}}}}}"#
        )
    );
    peer.text(r#"{"t":"req","id":3,"m":"lease","p":{}}"#).await;
    let execute = r#"{"t":"res","id":4,"ok":true,"r":{"status":"execute"}}"#;
    exchange(&mut peer, &model_intent(4, "inv-1", MODEL_HASH), execute).await;
    let (says, answers) = outcome(5, "model:inv-1", CALLS);
    exchange(&mut peer, &says, &answers).await;
    peer
}

fn completed() -> String {
    format!(
        r#"{{"t":"req","id":10,"m":"turn.completed","p":{{"runId":"{R}","status":"completed","output":"Refunded.","state":{{"manifestHash":"mh-1","agentId":"billing-bot","executionId":"s-42","status":"completed","turnCount":1,"transcript":[]}},"transcript":[{{"keep":0,"length":5,"entries":[{{"kind":"input","turnId":"turn-1","event":{{"kind":"user-message","text":"Refund INV-7"}}}},{{"kind":"candidate","turnId":"turn-1","stepId":"step-1","candidate":{{}}}},{{"kind":"tool-results","turnId":"turn-1","stepId":"step-1","results":[{{}}]}},{{"kind":"candidate","turnId":"turn-1","stepId":"step-2","candidate":{{}}}},{{"kind":"final","turnId":"turn-1","stepId":"step-2","output":"Refunded."}}]}}]}}}}"#
    )
}

#[actix_web::test]
async fn the_worked_example_with_a_tool_of_the_harness() {
    let world = World::start().await;
    let mut peer = begin(&world, true).await;
    exchange(&mut peer, &tool_intent(6), r#"{"t":"res","id":6,"ok":true,"r":{"status":"execute"}}"#).await;
    let (says, answers) = outcome(7, "tool:inv-2", r#"{"kind":"completed","output":{"refunded":true}}"#);
    exchange(&mut peer, &says, &answers).await;
    let any_hash = "0123456789abcdef".repeat(4);
    let execute = r#"{"t":"res","id":8,"ok":true,"r":{"status":"execute"}}"#;
    exchange(&mut peer, &model_intent(8, "inv-3", &any_hash), execute).await;
    let (says, answers) = outcome(9, "model:inv-3", ANSWER);
    exchange(&mut peer, &says, &answers).await;
    // Four events come before the edit: the message, the two answers, and what the tool came to.
    exchange(&mut peer, &completed(), r#"{"t":"res","id":10,"ok":true,"r":{"cursor":4}}"#).await;
    let session = "s-42".into();
    world.until(&session, "completed").await;
    let record = world.record(&session).await;
    let types: Vec<&str> = record.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(
        types,
        [
            "command.message",
            "message.assistant",
            "tool.completed",
            "message.assistant",
            "transcript.updated",
            "turn.completed"
        ]
    );
    assert_eq!(record[5].1, json!({"output": "Refunded."}));
}

#[actix_web::test]
async fn the_worked_example_whose_hold_ends_without_an_answer() {
    let world = World::start().await;
    let mut peer = begin(&world, false).await;
    exchange(&mut peer, &tool_intent(6), r#"{"t":"res","id":6,"ok":true,"r":{"status":"pending"}}"#).await;
    // No token: the gates are in this process.
    let renew = format!(r#"{{"t":"req","id":7,"m":"lease.renew","p":{{"runId":"{R}"}}}}"#);
    exchange(&mut peer, &renew, r#"{"t":"res","id":7,"ok":true,"r":{"ok":true}}"#).await;
    let waiting = format!(
        r#"{{"t":"req","id":8,"m":"turn.waiting","p":{{"runId":"{R}","status":"waiting","effectIds":["{T}:0:tool:inv-2"]}}}}"#
    );
    exchange(&mut peer, &waiting, r#"{"t":"res","id":8,"ok":true,"r":{}}"#).await;
    let session = "s-42".into();
    let view = world.until(&session, "waiting").await;
    assert_eq!(view.waits, Some(json!({"effectIds": [format!("{T}:0:tool:inv-2")]})));
    assert_eq!(world.types(&session).await, ["command.message", "message.assistant", "action.pending"]);
}

const TOOL_VALUE: &str = r#"{"kind":"completed","output":{"refunded":true}}"#;

/// A world whose Action endpoint accepts the refund and works on in the background.
async fn in_the_background() -> World {
    let endpoints = FakeEndpoints::new(|_| (0, status(202, &json!({}))));
    let world = World::with_actions(Arc::new(endpoints), |_| {}).await;
    let registration = Registration {
        agent_id: "billing-bot".into(),
        url: "http://endpoint.test/".to_owned(),
        implementation_version: "1".to_owned(),
        manifest_hash: None,
        timeout_ms: 60_000,
        max_concurrent: 16,
    };
    world.tenant.register_endpoints(vec![registration]).await.unwrap();
    world
}

/// The endpoint posts its result, once its 202 is settled.
async fn post_result(world: &World) {
    let action = format!("{T}:0:tool:inv-2");
    let claim = DeliveryClaim {
        action: action.as_str().into(),
        token_action: action,
        generation: 1,
        agent: "billing-bot".to_owned(),
    };
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let outcome = json!({"value": serde_json::from_str::<Json>(TOOL_VALUE).unwrap()});
        match world.tenant.action_result(claim.clone(), outcome).await {
            Ok(receipt) => return assert_eq!(receipt["status"], "accepted"),
            Err(_) => assert!(tokio::time::Instant::now() < until),
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn conclude(peer: &mut Peer, cursor: i64) {
    let any_hash = "0123456789abcdef".repeat(4);
    let execute = r#"{"t":"res","id":8,"ok":true,"r":{"status":"execute"}}"#;
    exchange(peer, &model_intent(8, "inv-3", &any_hash), execute).await;
    let (says, answers) = outcome(9, "model:inv-3", ANSWER);
    exchange(peer, &says, &answers).await;
    exchange(peer, &completed(), &format!(r#"{{"t":"res","id":10,"ok":true,"r":{{"cursor":{cursor}}}}}"#))
        .await;
}

const WHOLE: [&str; 8] = [
    "command.message",
    "message.assistant",
    "action.pending",
    "action.delivered",
    "action.completed",
    "message.assistant",
    "transcript.updated",
    "turn.completed",
];

#[actix_web::test]
async fn the_worked_example_with_an_action_that_is_answered_while_the_run_holds() {
    let world = in_the_background().await;
    let mut peer = begin(&world, false).await;
    exchange(&mut peer, &tool_intent(6), r#"{"t":"res","id":6,"ok":true,"r":{"status":"pending"}}"#).await;
    let renew = format!(r#"{{"t":"req","id":7,"m":"lease.renew","p":{{"runId":"{R}"}}}}"#);
    exchange(&mut peer, &renew, r#"{"t":"res","id":7,"ok":true,"r":{"ok":true}}"#).await;
    post_result(&world).await;
    assert_eq!(
        peer.next_text().await,
        format!(
            r#"{{"t":"msg","m":"effect.resolved","p":{{"runId":"{R}","effectId":"{T}:0:tool:inv-2","outcome":{{"value":{TOOL_VALUE}}}}}}}"#
        )
    );
    conclude(&mut peer, 6).await;
    let session = "s-42".into();
    world.until(&session, "completed").await;
    assert_eq!(world.types(&session).await, WHOLE);
}

#[actix_web::test]
async fn the_worked_example_whose_answer_comes_after_the_hold_resumes_segment_0_with_both_outcomes() {
    let world = in_the_background().await;
    let mut peer = begin(&world, false).await;
    exchange(&mut peer, &tool_intent(6), r#"{"t":"res","id":6,"ok":true,"r":{"status":"pending"}}"#).await;
    let waiting = format!(
        r#"{{"t":"req","id":7,"m":"turn.waiting","p":{{"runId":"{R}","status":"waiting","effectIds":["{T}:0:tool:inv-2"]}}}}"#
    );
    exchange(&mut peer, &waiting, r#"{"t":"res","id":7,"ok":true,"r":{}}"#).await;
    world.runs.next_uuid(R);
    post_result(&world).await;
    // The lease that was parked as request 3 takes it.
    let granted: Json = serde_json::from_str(&peer.next_text().await).unwrap();
    assert_eq!((&granted["id"], &granted["r"]["run"]["epoch"]), (&json!(3), &json!(2)));
    let input = &granted["r"]["input"];
    assert_eq!(input["checkpoint"]["segment"], 0);
    let outcomes: Vec<(&str, &Json)> = input["outcomes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| (o["effectId"].as_str().unwrap(), &o["outcome"]["value"]))
        .collect();
    let calls: Json = serde_json::from_str(CALLS).unwrap();
    let value: Json = serde_json::from_str(TOOL_VALUE).unwrap();
    let (model, tool) = (format!("{T}:0:model:inv-1"), format!("{T}:0:tool:inv-2"));
    assert_eq!(outcomes, [(model.as_str(), &calls), (tool.as_str(), &value)]);
    conclude(&mut peer, 6).await;
    let session = "s-42".into();
    world.until(&session, "completed").await;
    assert_eq!(world.types(&session).await, WHOLE);
}
