//! The sandbox that a session is opened with (spec: http-api, sections 6.1 to 6.3; sandbox, sections 3, 4 and 8).

use nylorun_actors::model::Json;
use nylorun_actors::testing::engine::Step;
use serde_json::json;

use super::sandboxes::{open, serving};
use super::support::{Api, agent};

const ROUTE: &str = "/v1/sessions/{sessionId}";

fn rejected(status: u16) -> (u16, String) {
    (status, "request_rejected".to_owned())
}

async fn settings(api: &Api, body: Json) {
    let put = api.app("PUT", "/v1/tenant/sandbox").json(&body).send().await;
    assert_eq!(put.status, 200, "{}", put.text);
}

#[actix_web::test]
async fn a_session_says_what_it_was_opened_with_and_runs_its_tools_there() {
    let (api, _) = serving(vec![]).await;
    let plain = open(&api, "plain", None).send().await.ok("PUT", ROUTE);
    assert_eq!((&plain["sandbox"], plain.get("sandboxSource")), (&Json::Null, None));
    let asked = json!({"network": {"allow": ["GitHub.com"]}, "resources": {"cpus": 1}});
    let boxed = open(&api, "boxed", Some(asked.clone())).send().await.ok("PUT", ROUTE);
    let spec = json!({"network": {"preset": "none", "allow": ["github.com"]}, "resources": {"cpus": 1, "memory": "1024MiB"}, "idle": "15m"});
    assert_eq!((&boxed["sandbox"], &boxed["sandboxSource"]), (&spec, &json!("inline")));
    assert_ne!(boxed["manifestHash"], plain["manifestHash"]);
    assert_eq!(api.app("GET", "/v1/sessions/boxed").send().await.ok("GET", ROUTE), boxed);
    let run = api.app("POST", "/v1/sessions/boxed/sandbox/bash").json(&json!({"command": "ls"})).send().await;
    assert_eq!(run.json()["kind"], "completed", "{}", run.text);
    // What it was opened with is its identity.
    assert_eq!(open(&api, "boxed", Some(asked)).send().await.ok("PUT", ROUTE), boxed);
    for other in [None, Some(json!(false)), Some(json!({}))] {
        assert_eq!(open(&api, "boxed", other).send().await.refusal(), rejected(409));
    }
}

#[actix_web::test]
async fn the_tenants_default_is_for_whoever_asks_for_nothing() {
    let (api, _) = serving(vec![]).await;
    settings(&api, json!({"default": "virtual", "limits": {"idle": "1h"}})).await;
    let view = open(&api, "s", None).subject("ada", "sessions:own").send().await.ok("PUT", ROUTE);
    assert_eq!((&view["sandboxSource"], &view["sandbox"]["idle"]), (&json!("default"), &json!("1h")));
    assert_eq!(open(&api, "t", Some(json!(false))).send().await.ok("PUT", ROUTE)["sandbox"], Json::Null);
    settings(&api, json!({})).await;
    assert_eq!(open(&api, "u", None).send().await.ok("PUT", ROUTE)["sandbox"], Json::Null);
    assert_eq!(open(&api, "s", None).send().await.ok("PUT", ROUTE), view, "one that is open keeps its own");
}

#[actix_web::test]
async fn bad_wishes_are_400_with_all_reasons_and_403_for_a_person() {
    let (api, _) = serving(vec![]).await;
    let asked = json!({"image": "i", "network": {"allow": ["a.example"]}, "resources": {"cpus": 5, "memory": "9GiB"}});
    let answer = open(&api, "s", Some(asked.clone())).send().await;
    assert_eq!(answer.refusal(), rejected(400));
    let words = answer.json()["message"].as_str().unwrap().to_owned();
    for part in ["image", "a.example", "5 CPUs", "9216 MiB"] {
        assert!(words.contains(part), "{words}");
    }
    assert_eq!(
        open(&api, "s", Some(asked)).subject("ada", "sessions:own").send().await.refusal(),
        rejected(403)
    );
    for odd in [
        json!(true),
        json!(null),
        json!("virtual"),
        json!({"id": "a", "image": "i"}),
        json!({"id": "-"}),
        json!({"network": {"preset": "dev"}}),
        json!({"idle": "1m"}),
        json!({"resources": {"cpus": 1.5}}),
    ] {
        assert_eq!(open(&api, "s", Some(odd.clone())).send().await.refusal(), rejected(400), "{odd}");
    }
    assert_eq!(api.app("GET", "/v1/sessions/s").send().await.status, 404, "nothing was opened");
}

#[actix_web::test]
async fn a_name_that_the_agent_uses_already_is_400_and_says_the_way_out() {
    let (api, _) = serving(vec![]).await;
    let mut manifest = agent("clash");
    let tool = json!({"name": "read", "inputSchema": {"type": "object"}});
    manifest["capabilities"] = json!([{"id": "agent", "type": "agent", "tools": [tool]}]);
    let put = json!({"requestId": "r", "implementationVersion": "1", "manifest": manifest});
    assert_eq!(api.app("PUT", "/v1/agents/clash").json(&put).send().await.status, 200);
    let body = |sandbox: Json| json!({"requestId": "r", "agentId": "clash", "ownerUserId": "ada", "sandbox": sandbox});
    let answer = api.app("PUT", "/v1/sessions/s").json(&body(json!({}))).send().await;
    assert_eq!(answer.refusal(), rejected(400));
    assert!(answer.json()["message"].as_str().unwrap().contains("sandbox: false"));
    api.app("PUT", "/v1/sessions/s").json(&body(json!(false))).send().await.ok("PUT", ROUTE);
}

#[actix_web::test]
async fn a_shared_sandbox_is_used_by_both_and_foreign_ones_are_hidden() {
    let (api, _) = serving(vec![]).await;
    open(&api, "owner", Some(json!({}))).send().await.ok("PUT", ROUTE);
    let share = json!({"session": "owner"});
    let view = open(&api, "second", Some(share.clone())).send().await.ok("PUT", ROUTE);
    assert_eq!((&view["sandboxOwnerId"], &view["sandboxSource"]), (&json!("owner"), &json!("shared")));
    let post = |id: &str, tool: &str, body: Json| {
        api.app("POST", &format!("/v1/sessions/{id}/sandbox/{tool}")).json(&body).send()
    };
    post("owner", "write", json!({"path": "a", "content": "x"})).await;
    assert_eq!(post("second", "read", json!({"path": "a"})).await.json()["output"], "x");
    let of_bob = json!({"requestId": "r", "agentId": "a", "ownerUserId": "bob", "sandbox": share});
    let put = || api.app("PUT", "/v1/sessions/bobs").json(&of_bob);
    assert_eq!(put().send().await.refusal(), rejected(403));
    assert_eq!(put().subject("bob", "sessions:own").send().await.refusal(), rejected(404));
}

#[actix_web::test]
async fn placement_refuses_with_what_is_allowed() {
    let (api, _) = serving(vec![]).await;
    settings(&api, json!({"placement": {"*": {"hosts": ["sandbox"]}}})).await;
    let answer = open(&api, "s", None).send().await;
    assert_eq!(answer.refusal(), (409, "placement_refused".into()));
    assert_eq!(
        answer.json()["details"],
        json!({"harness": "nylorun", "host": "harness-container", "allowed": ["sandbox"]})
    );
}

#[actix_web::test]
async fn a_turn_of_a_sandboxed_session_runs_and_ends() {
    let (api, _) = serving(vec![Step::Model(1)]).await;
    open(&api, "s", Some(json!({}))).send().await.ok("PUT", ROUTE);
    let sent =
        api.app("POST", "/v1/sessions/s/commands").json(&super::support::message("k", "hi")).send().await;
    assert_eq!(sent.status, 200);
    api.until("s", "completed").await;
}
