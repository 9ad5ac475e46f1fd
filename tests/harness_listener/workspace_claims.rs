//! What a harness may claim of workspaces, and when (harness-api, section 15.4).

use nylorun_actors::model::Json;
use nylorun_actors::model::workspace::session_key;
use serde_json::json;

use super::workspaces::{answered, http, pin, post, sandboxed, serving};
use super::world::World;

#[actix_web::test]
async fn claims_are_taken_while_a_request_of_their_session_is_in_flight() {
    let world = World::start().await;
    let at = http(&world).await;
    let session = sandboxed(&world, "s-1").await;
    world.open("other", "assistant").await;
    let key = session_key(world.tenant.id(), &session);
    let mut peer = serving(&world, 1).await;
    let record = json!({"key": key, "sessionId": "s-1", "backend": "virtual", "image": "python:3.13-slim",
        "state": "running", "createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z"});
    let state = |session: &str, record: &Json| {
        json!({"sessionId": session, "turnId": null, "type": "sandbox.state",
            "payload": {"state": "running", "backend": "virtual"}, "record": record})
    };
    let exec = |session: &str| {
        json!({"sessionId": session, "turnId": null, "type": "sandbox.exec",
            "payload": {"tool": "bash", "command": "ls", "exitCode": 0, "outcome": "completed", "durationMs": 3}})
    };
    let held = Err("run_not_held".to_owned());
    assert_eq!(peer.call("event", exec("s-1")).await, held, "nothing is in flight");
    let asked = post(at, "s-1", "bash", &json!({"command": "ls"}));
    peer.next_text().await;
    assert_eq!(peer.call("event", state("s-1", &record)).await, Ok(json!({})));
    assert_eq!(peer.call("event", exec("s-1")).await, Ok(json!({})));
    assert_eq!(peer.call("event", exec("other")).await, held, "another session");
    let invalid = Err("invalid".to_owned());
    let mut with_exec = exec("s-1");
    with_exec["record"] = record.clone();
    assert_eq!(peer.call("event", with_exec).await, invalid, "a record comes only with sandbox.state");
    for (member, value) in
        [("sessionId", json!("other")), ("key", json!("nylorun-tn_2-x")), ("state", json!("odd"))]
    {
        let mut bad = record.clone();
        bad[member] = value;
        assert_eq!(peer.call("event", state("s-1", &bad)).await, invalid, "{member}");
    }
    answered(&mut peer, 1, r#"{"kind":"completed","output":{}}"#).await;
    assert_eq!(asked.await.unwrap().0, 200);
    assert_eq!(peer.call("event", exec("s-1")).await, held, "it was answered");

    let types: Vec<String> = world.types(&session).await;
    assert_eq!(types, ["sandbox.state", "sandbox.exec"]);
    let stored = world.tenant.store().read(move |r| r.workspace(&key)).await.unwrap().unwrap();
    assert_eq!(stored.session_id.as_str(), "s-1");
    // A sweep may touch any workspace, so any session may be claimed; one that is gone is logged and answered.
    let swept = tokio::task::spawn_local(world.tenant.workspaces().sweep());
    peer.next_text().await;
    assert_eq!(peer.call("event", exec("other")).await, Ok(json!({})));
    assert_eq!(peer.call("event", exec("gone")).await, Ok(json!({})));
    answered(&mut peer, 2, r#"{"workspaces":[]}"#).await;
    swept.await.unwrap().unwrap();
    assert_eq!(world.types(&"other".into()).await, ["sandbox.exec"]);
}

#[actix_web::test]
async fn a_run_claims_for_its_session_and_for_the_owner_of_its_workspace() {
    let world = World::start().await;
    let owner = sandboxed(&world, "owner").await;
    let guest = world.open("guest", "assistant").await;
    pin(&world, &guest, Some(&owner)).await;
    let mut peer = serving(&world, 1).await;
    world.say(&guest, "hello").await;
    let run = peer.lease().await;
    assert_eq!(run.input["routing"]["sandbox"]["ownerId"], "owner");
    let claim = |session: &str| {
        json!({"runId": run.id, "sessionId": session, "turnId": run.turn, "type": "sandbox.exec",
            "payload": {"tool": "bash", "outcome": "completed", "durationMs": 3}})
    };
    assert_eq!(peer.call("event", claim("owner")).await, Ok(json!({})));
    assert_eq!(peer.call("event", claim("guest")).await, Ok(json!({})));
    assert_eq!(peer.call("event", claim("another")).await, Err("run_not_held".to_owned()));
    assert_eq!(world.types(&owner).await, ["sandbox.exec"]);
}
