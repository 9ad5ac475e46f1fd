//! Definitions, sessions, commands, history (spec: http-api, sections 4 to 8).

use nylorun_actors::model::Json;
use nylorun_actors::testing::engine::Step;
use serde_json::json;

use super::support::{Answer, Api, agent, agent_body, message};

fn issues(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.refusal(), (400, "request_rejected".into()), "{}", answer.text);
    let body = answer.json();
    let list = body["details"]["issues"].as_array().unwrap();
    assert_eq!(body["message"], Json::Array(list.clone()).to_string());
    let path = |issue: &Json| {
        let steps = issue["path"].as_array().unwrap().iter();
        steps.map(|s| s.as_str().map_or_else(|| s.to_string(), str::to_owned)).collect::<Vec<_>>().join(".")
    };
    list.iter().map(|issue| format!("{} {}", path(issue), issue["code"].as_str().unwrap())).collect()
}

#[actix_web::test]
async fn me_says_who_the_caller_is() {
    let api = Api::start(vec![]).await;
    let all = ["agents:read", "agents:write", "sessions:own", "tenant:settings", "sandboxes:write"];
    let app = api.app("GET", "/v1/me").send().await.ok("GET", "/v1/me");
    assert_eq!(app, json!({"scopes": all, "agents": "*", "via": "application:local"}));
    let ada = api.app("GET", "/v1/me").subject("ada", "sessions:own agents:read vaults:own").send().await;
    let expected =
        json!({"subject": "ada", "scopes": ["agents:read", "sessions:own"], "agents": "*", "via": "subject"});
    assert_eq!(ada.ok("GET", "/v1/me"), expected);
}

#[actix_web::test]
async fn a_definition_is_put_listed_and_replaced() {
    let api = Api::start(vec![]).await;
    let put =
        api.app("PUT", "/v1/agents/a").json(&agent_body("a")).send().await.ok("PUT", "/v1/agents/{agentId}");
    assert_eq!((&put["agentId"], &put["implementationVersion"]), (&json!("a"), &json!("1")));
    let mut second = agent_body("a");
    second["implementationVersion"] = json!("2");
    second["manifest"]["name"] = json!("named");
    api.app("PUT", "/v1/agents/a").json(&second).send().await.ok("PUT", "/v1/agents/{agentId}");
    let list = api.app("GET", "/v1/agents").send().await.ok("GET", "/v1/agents");
    assert_eq!(list["agents"].as_array().unwrap().len(), 1);
    assert_eq!(list["agents"][0]["manifest"], second["manifest"]);
    assert_ne!(list["agents"][0]["manifestHash"], put["manifestHash"]);
    assert!(list.get("nextCursor").is_none());
}

#[actix_web::test]
async fn a_definition_is_refused_with_every_problem_in_the_order_of_the_checks() {
    let api = Api::start(vec![]).await;
    let put = |body: Json| api.app("PUT", "/v1/agents/a").json(&body).send();
    let body = json!({"manifest": {"manifestSchemaVersion": 4, "id": ""}, "implementationVersion": "", "x": 1,
        "pluginRoots": {"p": "relative"}});
    let found = issues(&put(body).await);
    for expected in [
        "requestId invalid_type",
        "implementationVersion too_small",
        "pluginRoots.p invalid_format",
        " unrecognized_keys",
        "manifest.capabilities invalid_type",
    ] {
        assert!(found.iter().any(|issue| issue == expected), "{expected} in {found:?}");
    }
    assert_eq!(issues(&put(agent_body("b")).await), ["manifest.id custom"]);
    let tools: Vec<Json> = ["bash", "read", "write", "edit", "grep", "glob"]
        .iter()
        .map(|name| json!({"name": name, "inputSchema": {}}))
        .collect();
    let mut sandboxed = agent_body("a");
    sandboxed["manifest"]["capabilities"] =
        json!([{"id": "box", "type": "agent", "sandbox": {}, "tools": tools}]);
    let refused = put(sandboxed).await;
    assert_eq!(issues(&refused), ["manifest custom"]);
    assert!(refused.text.contains("box"), "{}", refused.text);
    assert_eq!(put(json!([])).await.refusal(), (400, "request_rejected".into()));
    assert_eq!(
        api.app("PUT", "/v1/agents/a").text("{").send().await.refusal(),
        (400, "request_rejected".into())
    );
    assert_eq!(api.app("PUT", "/v1/agents/a").send().await.refusal(), (400, "request_rejected".into()));
}

#[actix_web::test]
async fn lists_come_in_pages_when_a_limit_is_asked_for() {
    let api = Api::start(vec![]).await;
    for n in 0..5 {
        api.session(&format!("s{n}"), "ada").await;
    }
    let mut seen = Vec::new();
    let mut path = "/v1/sessions?limit=2".to_owned();
    loop {
        let page = api.app("GET", &path).send().await.ok("GET", "/v1/sessions");
        seen.extend(
            page["sessions"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap().to_owned()),
        );
        match page["nextCursor"].as_str() {
            Some(cursor) => path = format!("/v1/sessions?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, ["s0", "s1", "s2", "s3", "s4"]);
    let whole = api.app("GET", "/v1/sessions").send().await.ok("GET", "/v1/sessions");
    assert_eq!(whole["sessions"].as_array().unwrap().len(), 5);
    assert!(whole.get("nextCursor").is_none());
    for bad in ["limit=0", "limit=201", "cursor=x", "limit=1&cursor=%21"] {
        let answer = api.app("GET", &format!("/v1/sessions?{bad}")).send().await;
        assert_eq!(answer.refusal(), (400, "request_rejected".into()), "{bad}");
    }
}

#[actix_web::test]
async fn a_session_is_opened_and_reattached_and_belongs_to_its_person() {
    let api = Api::start(vec![]).await;
    api.session("s", "ada").await;
    let path = "/v1/sessions/{sessionId}";
    let view = api.app("GET", "/v1/sessions/s").send().await.ok("GET", path);
    assert_eq!((&view["status"], &view["activeTurnId"]), (&json!("idle"), &Json::Null));
    let body = json!({"requestId": "other", "agentId": "a", "ownerUserId": "ada"});
    assert_eq!(api.app("PUT", "/v1/sessions/s").json(&body).send().await.ok("PUT", path), view);
    let other = json!({"requestId": "r", "agentId": "a", "ownerUserId": "bob"});
    assert_eq!(api.app("PUT", "/v1/sessions/s").json(&other).send().await.status, 409);
    let ada = |method: &str, path: &str| api.app(method, path).subject("ada", "sessions:own");
    let bob = |method: &str, path: &str| api.app(method, path).subject("bob", "sessions:own");
    assert_eq!(ada("GET", "/v1/sessions/s").send().await.status, 200);
    // Somebody else's session is exactly a missing one, on every route.
    let missing = bob("GET", "/v1/sessions/none").send().await;
    assert_eq!(missing.refusal(), (404, "request_rejected".into()));
    for (method, path) in [("GET", ""), ("GET", "/items"), ("GET", "/events")] {
        let foreign = bob(method, &format!("/v1/sessions/s{path}")).send().await;
        assert_eq!((foreign.status, foreign.text), (missing.status, missing.text.clone()), "{path}");
    }
    let command = bob("POST", "/v1/sessions/s/commands").json(&message("k", "hi")).send().await;
    assert_eq!((command.status, command.text), (missing.status, missing.text));
    assert_eq!(bob("PUT", "/v1/sessions/s").json(&other).send().await.status, 404);
    assert_eq!(
        bob("PUT", "/v1/sessions/s").json(&body).send().await.refusal(),
        (403, "request_rejected".into())
    );
    let list = bob("GET", "/v1/sessions").send().await.ok("GET", "/v1/sessions");
    assert_eq!(list["sessions"], json!([]));
    let list = ada("GET", "/v1/sessions?agentId=a").send().await.ok("GET", "/v1/sessions");
    assert_eq!(list["sessions"][0]["id"], "s");
    let list = ada("GET", "/v1/sessions?agentId=b").send().await.ok("GET", "/v1/sessions");
    assert_eq!(list["sessions"], json!([]));
}

#[actix_web::test]
async fn session_bodies_are_strict() {
    let api = Api::start(vec![]).await;
    let put = |body: Json| api.app("PUT", "/v1/sessions/s").json(&body).send();
    let found = issues(&put(json!({"agentId": "", "ownerUserId": 1, "sandbox": true, "more": 1})).await);
    assert_eq!(
        found,
        [
            "requestId invalid_type",
            "agentId too_small",
            "ownerUserId invalid_type",
            "sandbox invalid_value",
            " unrecognized_keys"
        ]
    );
    let body = json!({"requestId": "r", "agentId": "none", "ownerUserId": "u"});
    assert_eq!(put(body).await.refusal(), (404, "request_rejected".into()));
    let id = api.app("PUT", "/v1/sessions/team%2Fone").json(&json!({"requestId": "r"})).send().await;
    assert_eq!(id.status, 400);
}

#[actix_web::test]
async fn a_command_starts_a_turn_and_its_repetition_gets_the_first_receipt() {
    let api = Api::start(vec![Step::Model(0)]).await;
    api.session("s", "ada").await;
    let path = "/v1/sessions/{sessionId}/commands";
    let post = |body: Json| api.app("POST", "/v1/sessions/s/commands").json(&body).send();
    let first = post(message("k", "hi")).await;
    let receipt = first.ok("POST", path);
    assert_eq!((&receipt["status"], &receipt["requestId"]), (&json!("accepted"), &json!("r")));
    let mut again = message("k", "hi");
    again["requestId"] = json!("another");
    assert_eq!(post(again).await.text, first.text);
    assert_eq!(post(message("k", "other")).await.refusal(), (409, "request_rejected".into()));
    let view = api.until("s", "completed").await;
    assert_eq!(view["activeTurnId"], Json::Null);
    assert_eq!(
        issues(&post(json!({"requestId": "r", "idempotencyKey": "k", "type": "steer"})).await),
        ["type invalid_union"]
    );
    let manifest = json!({"requestId": "r", "idempotencyKey": "k2", "type": "message", "content": "x",
        "manifest": agent("a")});
    assert_eq!(post(manifest).await.status, 200);
}

#[actix_web::test]
async fn history_is_what_happened_from_after_a_cursor() {
    let api = Api::start(vec![Step::Model(0)]).await;
    api.session("s", "ada").await;
    let receipt = api.app("POST", "/v1/sessions/s/commands").json(&message("k", "hi")).send().await.json();
    api.until("s", "completed").await;
    let path = "/v1/sessions/{sessionId}/items";
    let get = |query: String| api.app("GET", &format!("/v1/sessions/s/items{query}")).send();
    let all = get(String::new()).await.ok("GET", path);
    let types: Vec<&str> =
        all["items"].as_array().unwrap().iter().map(|i| i["type"].as_str().unwrap()).collect();
    assert_eq!(types.first(), Some(&"command.message"));
    assert_eq!(types.last(), Some(&"turn.completed"));
    assert!(!types.contains(&"transcript.updated"));
    let cursor = receipt["cursor"].as_str().unwrap();
    assert_eq!(all["items"][0]["cursor"], cursor);
    let after = get(format!("?cursor={cursor}")).await.ok("GET", path);
    assert_eq!(after["items"].as_array().unwrap().len(), types.len() - 1);
    let header = api.app("GET", "/v1/sessions/s/items").header("last-event-id", cursor).send().await;
    assert_eq!(header.json(), after);
    // The parameter wins, also when it is empty.
    let empty = api.app("GET", "/v1/sessions/s/items?cursor=").header("last-event-id", cursor).send().await;
    assert_eq!(empty.json(), all);
    assert_eq!(get("?cursor=%21%21".into()).await.refusal(), (400, "request_rejected".into()));
    let end = get(format!("?cursor={}", all["cursor"].as_str().unwrap())).await.ok("GET", path);
    assert_eq!((&end["items"], &end["cursor"]), (&json!([]), &all["cursor"]));
    let (mut walked, mut query) = (Vec::new(), "?limit=1".to_owned());
    loop {
        let page = get(query).await.ok("GET", path);
        walked.extend(page["items"].as_array().unwrap().clone());
        match page["nextCursor"].as_str() {
            Some(next) => query = format!("?limit=1&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(Json::Array(walked), all["items"]);
}

#[actix_web::test]
async fn strings_that_only_javascript_can_hold_come_back_as_they_were_sent() {
    let api = Api::start(vec![Step::Model(0)]).await;
    api.session("s", "ada").await;
    let body =
        r#"{"requestId":"r","idempotencyKey":"k","type":"message","data":{"odd":"\ud800\u0000\udc00x"}}"#;
    let answer = api.app("POST", "/v1/sessions/s/commands").text(body).send().await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let items = api.app("GET", "/v1/sessions/s/items").send().await;
    assert!(items.text.contains(r#""data":{"odd":"\ud800\u0000\udc00x"}"#), "{}", items.text);
}

#[actix_web::test]
async fn ids_in_paths_are_one_encoded_segment() {
    let api = Api::start(vec![]).await;
    api.session("team%2F%C3%A9%20one", "ada").await;
    let view = api.app("GET", "/v1/sessions/team%2F%C3%A9%20one").send().await;
    assert_eq!(view.json()["id"], "team/é one");
}
