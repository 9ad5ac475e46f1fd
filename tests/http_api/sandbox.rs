//! The tool route: its checks in their order, and a call that ends well (spec: http-api, section 9; sandbox, section 15).

use std::sync::Arc;
use std::time::Duration;

use nylorun_actors::model::json::JsonText;
use nylorun_actors::model::workspace::session_key;
use nylorun_actors::ports::store::StoreResult;
use nylorun_actors::testing::FakeWorkspaces;
use nylorun_actors::testing::engine::Step;
use serde_json::json;

use super::actions::{background, path, register, seen, token};
use super::support::{Api, message};

const ROUTE: &str = "/v1/sessions/{sessionId}/sandbox/{tool}";

async fn start(steps: Vec<Step>) -> (Api, Arc<FakeWorkspaces>) {
    let api = Api::opening(false);
    let workspaces = FakeWorkspaces::of(api.tenant_id().await.as_str().into());
    api.open_serving(steps, workspaces.clone()).await;
    (api, workspaces)
}

/// Opens a session with a sandbox.
async fn sandboxed(api: &Api, id: &'static str) {
    api.session(id, "ada").await;
    pin(api, id).await;
}

pub async fn pin(api: &Api, id: &'static str) {
    let store = api.store.handle();
    let put = store.tx(move |tx| -> StoreResult<()> {
        let mut pin = tx.session_pin(&id.into())?.unwrap();
        pin.sandbox = Some(JsonText::of(&json!({})));
        tx.put_session_pin(&id.into(), &pin)
    });
    put.await.unwrap();
}

#[actix_web::test]
async fn a_tool_runs_in_the_sessions_workspace_and_is_recorded() {
    let (api, workspaces) = start(vec![]).await;
    sandboxed(&api, "s").await;
    let post = |tool: &str| api.app("POST", &format!("/v1/sessions/s/sandbox/{tool}"));
    let write = post("write").json(&json!({"requestId": "r", "path": "a", "content": "hi"})).send().await;
    let expected = json!({"kind": "completed", "output": {"path": "a", "bytes": 2}});
    assert_eq!(write.ok("POST", ROUTE), expected);
    let read = post("read").json(&json!({"path": "a"})).send().await;
    assert_eq!(read.ok("POST", ROUTE), json!({"kind": "completed", "output": "hi"}));
    let missing = post("read").json(&json!({"path": "b"})).send().await;
    assert_eq!(missing.ok("POST", ROUTE)["code"], "sandbox.not_found");
    let items = api.app("GET", "/v1/sessions/s/items").send().await.json();
    let types: Vec<&str> =
        items["items"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["sandbox.state", "sandbox.state", "sandbox.exec", "sandbox.exec", "sandbox.exec"]);
    assert_eq!(items["items"][0]["turnId"], json!(null));
    let status = api.app("GET", "/v1/tenant").send().await.ok("GET", "/v1/tenant");
    assert_eq!(status["sandbox"], json!({"backend": "virtual", "retained": 1}));
    let key = session_key(&api.tenant_id().await.as_str().into(), &"s".into());
    assert_eq!(workspaces.keys(), [key]);
}

#[actix_web::test]
async fn the_checks_come_in_the_order_of_the_section() {
    let (api, _workspaces) = start(vec![Step::Model(60_000)]).await;
    sandboxed(&api, "boxed").await;
    api.session("plain", "ada").await;
    sandboxed(&api, "busy").await;
    let sent = api.app("POST", "/v1/sessions/busy/commands").json(&message("k", "hi")).send().await;
    let turn = sent.json()["turnId"].clone();
    let post = |session: &str, tool: &str| api.app("POST", &format!("/v1/sessions/{session}/sandbox/{tool}"));
    let rejected = |status: u16| (status, "request_rejected".to_owned());
    // The session comes before its turn, the turn before the tool, the tool before the body, the body before the sandbox.
    assert_eq!(post("none", "other").text("[").send().await.refusal(), rejected(404));
    let busy = post("busy", "other").text("[").send().await;
    assert_eq!((busy.refusal(), &busy.json()["activeTurnId"]), (rejected(409), &turn));
    assert_eq!(post("plain", "other").text("[").send().await.refusal(), rejected(400));
    for body in ["[", "[]", "null", "1", "\"x\""] {
        assert_eq!(post("plain", "bash").text(body).send().await.refusal(), rejected(400), "{body}");
    }
    assert_eq!(post("plain", "bash").text("{}").send().await.refusal(), rejected(404));
    assert_eq!(post("plain", "bash").send().await.refusal(), rejected(404), "without a body");
    assert_eq!(post("boxed", "bash").send().await.status, 200);
    for tool in ["Bash", "bash2", "exec"] {
        assert_eq!(post("boxed", tool).json(&json!({})).send().await.refusal(), rejected(400), "{tool}");
    }
    let person = post("boxed", "bash").subject("ada", "sessions:own").json(&json!({})).send().await;
    assert_eq!(person.refusal(), (403, "scope_required".to_owned()));
}

#[actix_web::test]
async fn without_anybody_who_serves_workspaces_it_is_503() {
    let api = Api::start(vec![]).await;
    sandboxed(&api, "s").await;
    let answer = api.app("POST", "/v1/sessions/s/sandbox/bash").json(&json!({"command": "ls"})).send().await;
    assert_eq!(answer.refusal(), (503, "request_rejected".into()));
    assert_eq!(answer.header("retry-after"), "1");
    let status = api.app("GET", "/v1/tenant").send().await.ok("GET", "/v1/tenant");
    assert_eq!(status["sandbox"], json!({"backend": null, "retained": 0}));
}

#[actix_web::test]
async fn a_client_that_leaves_stops_what_runs_for_it() {
    let (api, workspaces) = start(vec![]).await;
    sandboxed(&api, "s").await;
    let wait = api.app("POST", "/v1/sessions/s/sandbox/bash").json(&json!({"command": "wait"}));
    let answer = tokio::time::timeout(Duration::from_millis(500), wait.send()).await;
    assert!(answer.is_err(), "it runs until its client leaves");
    for _ in 0..600 {
        if workspaces.given_up() == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the command still runs");
}

#[actix_web::test]
async fn a_delivery_uses_the_sandbox_of_its_session_and_of_no_other() {
    let endpoints = background();
    let api = Api::charging_serving(endpoints.clone()).await;
    register(&api).await;
    // Opened before its turn, so that it has its sandbox when the Action is delivered.
    let body = json!({"requestId": "r", "agentId": "assistant", "ownerUserId": "ada"});
    assert_eq!(api.app("PUT", "/v1/sessions/boxed").json(&body).send().await.status, 200);
    pin(&api, "boxed").await;
    api.charge("boxed").await;
    let delivery = seen(&endpoints, 1).await.remove(0);
    let action = delivery.action.clone().unwrap();
    let bearer = token(&api, &action, "assistant", 1).await;
    let post = |action: &str, tool: &str| {
        let path = format!("{}/{tool}", path(action, "sandbox"));
        api.request("POST", &path).bearer(&bearer)
    };
    let write =
        post(&action, "write").json(&json!({"requestId": "r", "path": "a", "content": "hi"})).send().await;
    assert_eq!(write.ok("POST", "/v1/actions/{actionId}/sandbox/{tool}")["output"]["bytes"], 2);
    // What it did belongs to the turn.
    let items = api.app("GET", "/v1/sessions/boxed/items").send().await.json();
    let exec = items["items"].as_array().unwrap().iter().find(|item| item["type"] == "sandbox.exec").unwrap();
    assert_eq!(exec["turnId"].as_str().unwrap(), action.split(':').next().unwrap());
    let rejected = |status: u16| (status, "request_rejected".to_owned());
    // The body comes before the Action, the Action before the tool.
    for body in ["", "[", "[]", "null"] {
        assert_eq!(post("nothing", "other").text(body).send().await.refusal(), rejected(400), "{body:?}");
    }
    assert_eq!(post("nothing", "other").text("{}").send().await.refusal(), rejected(404));
    let stale = token(&api, &action, "assistant", 2).await;
    let path_of = format!("{}/other", path(&action, "sandbox"));
    let late = api.request("POST", &path_of).bearer(&stale).text("{}").send().await;
    assert_eq!(late.refusal(), rejected(409), "another generation");
    assert_eq!(post(&action, "other").text("{}").send().await.refusal(), rejected(400));
    let other = token(&api, "t:0:tool:x", "assistant", 1).await;
    let path_of = format!("{}/bash", path(&action, "sandbox"));
    assert_eq!(api.request("POST", &path_of).bearer(&other).text("{}").send().await.status, 403);
    assert_eq!(api.app("POST", &path_of).text("{}").send().await.status, 403, "no caller but the delivery");
    // A session without a sandbox.
    api.charge("plain").await;
    let plain = seen(&endpoints, 2).await.remove(1).action.unwrap();
    let bearer = token(&api, &plain, "assistant", 1).await;
    let path_of = format!("{}/bash", path(&plain, "sandbox"));
    let none = api.request("POST", &path_of).bearer(&bearer).text("{}").send().await;
    assert_eq!(none.refusal(), rejected(404));
}
