//! The registry of endpoints, the callbacks of deliveries, and decisions on effects, over HTTP.

use nylorun::identity::delivery::Grant;
use nylorun_actors::model::Json;
use nylorun_actors::ports::action::Answered;
use nylorun_actors::testing::endpoints::{FakeEndpoints, Seen, ok, pong, status};
use serde_json::json;

use super::support::{Answer, Api};

const ENDPOINTS: &str = "/v1/endpoints";

fn endpoint(agent: &str) -> Json {
    json!({"agentId": agent, "url": "http://endpoint.test/a", "implementationVersion": "7"})
}

async fn put(api: &Api, endpoints: Json) -> Answer {
    api.app("PUT", ENDPOINTS).json(&json!({ "endpoints": endpoints })).send().await
}

pub async fn register(api: &Api) {
    put(api, json!([endpoint("assistant")])).await.ok("PUT", ENDPOINTS);
}

pub fn background() -> FakeEndpoints {
    FakeEndpoints::new(|seen| (0, if seen.action.is_some() { status(202, &json!({})) } else { pong(seen) }))
}

/// Waits for the deliveries that have reached the endpoints.
pub async fn seen(endpoints: &FakeEndpoints, count: usize) -> Vec<Seen> {
    for _ in 0..500 {
        let seen = endpoints.seen();
        if seen.len() >= count {
            return seen;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{count} deliveries never came");
}

pub async fn token(api: &Api, action: &str, agent: &str, generation: i64) -> String {
    let grant = Grant {
        audience: "http://endpoint.test/a",
        action: Some(action),
        agent,
        generation,
        body: b"",
        ttl_s: 600,
    };
    api.signing().mint_delivery(grant).await.unwrap()
}

pub fn path(action: &str, what: &str) -> String {
    format!("/v1/actions/{}/{what}", action.replace(':', "%3A"))
}

#[actix_web::test]
async fn endpoints_are_registered_with_their_defaults_listed_in_pages_and_deleted() {
    let api = Api::charging(FakeEndpoints::answering(json!(1))).await;
    let batch = put(&api, json!([endpoint("b"), endpoint("a")])).await.ok("PUT", ENDPOINTS);
    let first = &batch["endpoints"][0];
    assert_eq!(
        (&first["agentId"], &first["timeoutMs"], &first["maxConcurrent"]),
        (&json!("b"), &json!(60_000), &json!(16))
    );
    assert_eq!(first["health"], json!({"consecutiveFailures": 0}));
    let listed = api.app("GET", ENDPOINTS).send().await.ok("GET", ENDPOINTS);
    let ids: Vec<_> = listed["endpoints"].as_array().unwrap().iter().map(|e| e["agentId"].clone()).collect();
    assert_eq!(ids, [json!("a"), json!("b")]);
    let page = api.app("GET", "/v1/endpoints?limit=1").send().await.ok("GET", ENDPOINTS);
    assert_eq!((page["endpoints"].as_array().unwrap().len(), page["nextCursor"].is_string()), (1, true));
    let gone = api.app("DELETE", "/v1/endpoints/a").send().await.ok("DELETE", "/v1/endpoints/{agentId}");
    assert_eq!(gone, json!({"agentId": "a", "deleted": true}));
    assert_eq!(
        api.app("DELETE", "/v1/endpoints/a").send().await.refusal(),
        (404, "request_rejected".to_owned())
    );
    let tenant = api.app("GET", "/v1/tenant").send().await.json();
    assert_eq!(
        tenant["agents"],
        json!([{"agentId": "assistant", "registered": true, "endpoint": false},
            {"agentId": "b", "registered": false, "endpoint": true}])
    );
}

#[actix_web::test]
async fn a_malformed_registration_is_refused_whole_with_every_problem() {
    let api = Api::charging(FakeEndpoints::answering(json!(1))).await;
    let with = |key: &str, value: Json| {
        let mut endpoint = endpoint("a");
        endpoint[key] = value;
        json!([endpoint])
    };
    let mut cases =
        vec![json!([]), json!({}), json!([endpoint("a"), endpoint("a")]), json!([{"agentId": "a"}])];
    for (key, value) in [
        ("url", json!("ftp://a/")),
        ("url", json!("http://u:p@a/")),
        ("url", json!("http://a/#f")),
        ("url", json!(format!("http://a/{}", "x".repeat(2048)))),
        ("timeoutMs", json!(999)),
        ("timeoutMs", json!(840_001)),
        ("maxConcurrent", json!(0)),
        ("maxConcurrent", json!(257)),
        ("agentId", json!("")),
        ("requestId", json!("r")),
    ] {
        cases.push(with(key, value));
    }
    cases.push(Json::Array((0..65).map(|n| endpoint(&format!("a{n}"))).collect()));
    for case in cases {
        let refused = put(&api, case.clone()).await;
        assert_eq!(refused.refusal(), (400, "request_rejected".to_owned()), "{case}");
        assert!(!refused.json()["details"]["issues"].as_array().unwrap().is_empty());
    }
    assert_eq!(api.app("GET", ENDPOINTS).send().await.json()["endpoints"], json!([]));
}

#[actix_web::test]
async fn a_ping_answers_what_is_served_and_502_when_it_is_not_this_agent() {
    let endpoints = FakeEndpoints::new(|seen| match seen.url.as_str() {
        "http://endpoint.test/a" => (0, pong(seen)),
        "http://endpoint.test/other" => {
            (0, ok(&json!({"agentId": "somebody", "implementationVersion": "1"})))
        }
        "http://endpoint.test/html" => (0, status(200, &json!("<html>"))),
        _ => (0, status(404, &json!({}))),
    });
    let api = Api::charging(endpoints).await;
    const PING: &str = "/v1/endpoints/{agentId}/ping";
    register(&api).await;
    let pong = api.app("POST", "/v1/endpoints/assistant/ping").send().await.ok("POST", PING);
    assert_eq!(pong, json!({"agentId": "assistant", "implementationVersion": "served"}));
    let listed = api.app("GET", ENDPOINTS).send().await.ok("GET", ENDPOINTS);
    assert_eq!(listed["endpoints"][0]["health"]["served"], json!({"implementationVersion": "served"}));
    let none = api.app("POST", "/v1/endpoints/nobody/ping").send().await;
    assert_eq!(none.refusal(), (404, "request_rejected".to_owned()));
    for url in ["other", "html", "missing"] {
        let mut endpoint = endpoint("assistant");
        endpoint["url"] = json!(format!("http://endpoint.test/{url}"));
        put(&api, json!([endpoint])).await.ok("PUT", ENDPOINTS);
        let bad = api.app("POST", "/v1/endpoints/assistant/ping").send().await;
        assert_eq!(bad.refusal(), (502, "request_rejected".to_owned()), "{url}");
        let health = &api.app("GET", ENDPOINTS).send().await.json()["endpoints"][0]["health"];
        assert_eq!(
            (&health["consecutiveFailures"], &health["lastError"]["code"]),
            (&json!(1), &json!("endpoint.ping-failed"))
        );
    }
}

#[actix_web::test]
async fn the_same_url_keeps_its_health_and_another_starts_anew() {
    let endpoints = FakeEndpoints::new(|_| (0, status(503, &json!({}))));
    let api = Api::charging(endpoints).await;
    register(&api).await;
    assert_eq!(api.app("POST", "/v1/endpoints/assistant/ping").send().await.status, 502);
    register(&api).await;
    let kept = put(&api, json!([endpoint("assistant")])).await.json();
    assert_eq!(kept["endpoints"][0]["health"]["consecutiveFailures"], 1);
    let mut other = endpoint("assistant");
    other["url"] = json!("http://endpoint.test/other");
    let fresh = put(&api, json!([other])).await.json();
    assert_eq!(fresh["endpoints"][0]["health"], json!({"consecutiveFailures": 0}));
}

#[actix_web::test]
async fn a_background_delivery_is_extended_and_answered_by_its_own_token_alone() {
    let endpoints = background();
    let api = Api::charging(endpoints.clone()).await;
    register(&api).await;
    api.charge("s").await;
    let action = seen(&endpoints, 1).await[0].action.clone().unwrap();
    let operator = api.admin("GET", "/v1/admin/status").send().await.json();
    assert_eq!(operator["aggregate"]["inFlightDeliveries"], 1);
    let good = token(&api, &action, "assistant", 1).await;
    let beat = |bearer: String| {
        let request = api.request("POST", &path(&action, "heartbeat")).bearer(&bearer);
        async move { request.send().await }
    };
    // The POST's answer is settled in a moment; until then the delivery lives by its first deadline.
    let extended = beat(good.clone()).await.ok("POST", "/v1/actions/{actionId}/heartbeat");
    let next = extended["token"].as_str().unwrap().to_owned();
    for (action_of, agent, generation, refused) in [
        (action.as_str(), "assistant", 2, 409),
        (action.as_str(), "another", 1, 403),
        ("t:0:tool:other", "assistant", 1, 403),
    ] {
        let bearer = token(&api, action_of, agent, generation).await;
        assert_eq!(beat(bearer).await.status, refused, "{action_of} {agent} {generation}");
    }
    let missing = api.request("POST", &path("nothing", "heartbeat")).bearer(&good).send().await;
    assert_eq!(missing.refusal(), (404, "request_rejected".to_owned()));
    // No caller but the delivery.
    assert_eq!(api.app("POST", &path(&action, "heartbeat")).send().await.status, 403);
    let post = |bearer: &str, body: Json| {
        let request = api.request("POST", &path(&action, "result")).bearer(bearer).json(&body);
        async move { request.send().await }
    };
    for malformed in [json!([]), json!({"value": 1, "more": 1}), json!({"statePatch": 1}), json!("x")] {
        assert_eq!(
            post(&good, malformed.clone()).await.refusal(),
            (400, "request_rejected".to_owned()),
            "{malformed}"
        );
    }
    let outcome =
        json!({"value": {"kind": "completed", "output": {"refunded": true}}, "statePatch": {"n": 1}});
    let receipt = post(&next, outcome.clone()).await.ok("POST", "/v1/actions/{actionId}/result");
    assert_eq!(receipt["status"], "accepted");
    api.until("s", "completed").await;
    assert_eq!(post(&good, outcome).await.json(), receipt, "an equal replay");
    let other = post(&good, json!({"value": {"kind": "completed", "output": 2}})).await;
    assert_eq!(other.refusal(), (409, "request_rejected".to_owned()));
    assert_eq!(beat(good).await.status, 409, "the delivery is over");
}

#[actix_web::test]
async fn a_result_without_a_value_is_null() {
    let endpoints = background();
    let api = Api::charging(endpoints.clone()).await;
    register(&api).await;
    api.charge("s").await;
    let action = seen(&endpoints, 1).await[0].action.clone().unwrap();
    let bearer = token(&api, &action, "assistant", 1).await;
    let post = api.request("POST", &path(&action, "result")).bearer(&bearer).json(&json!({})).send().await;
    assert_eq!(post.status, 200, "{}", post.text);
    api.until("s", "completed").await;
    let items = api.app("GET", "/v1/sessions/s/items").send().await.json();
    let done = items["items"].as_array().unwrap().iter().find(|e| e["type"] == "action.completed").unwrap();
    assert_eq!(done["payload"]["result"], Json::Null);
}

#[actix_web::test]
async fn an_uncertain_effect_is_listed_and_decided_by_an_application_alone() {
    let lost = Answered::Lost { code: "RESET", message: "reset".to_owned() };
    let api = Api::charging(FakeEndpoints::new(move |_| (0, lost.clone()))).await;
    register(&api).await;
    api.charge("s").await;
    let view = api.until("s", "uncertain").await;
    assert_eq!(view["actions"][0]["status"], "uncertain");
    const EFFECTS: &str = "/v1/sessions/{sessionId}/effects";
    const RESOLVE: &str = "/v1/sessions/{sessionId}/effects/{effectId}/resolve";
    let list = async |query: &str| {
        api.app("GET", &format!("/v1/sessions/s/effects{query}")).send().await.ok("GET", EFFECTS)
    };
    let effect = list("?status=uncertain").await["effects"][0].clone();
    assert_eq!(
        (&effect["kind"], &effect["toolName"], &effect["agentId"]),
        (&json!("tool"), &json!("charge"), &json!("assistant"))
    );
    assert_eq!(list("?status=dead&limit=1").await, json!({"effects": [], "nextCursor": null}));
    let bad = api.app("GET", "/v1/sessions/s/effects?status=lost").send().await;
    assert_eq!(bad.refusal(), (400, "request_rejected".to_owned()));
    assert_eq!(api.app("GET", "/v1/sessions/nobody/effects").send().await.status, 404);
    let id = effect["effectId"].as_str().unwrap().replace(':', "%3A");
    let resolve = async |body: Json| {
        let path = format!("/v1/sessions/s/effects/{id}/resolve");
        let mut sent = json!({"requestId": "q", "idempotencyKey": "d1"});
        sent.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        api.app("POST", &path).json(&sent).send().await
    };
    for incomplete in [
        json!({"resolution": "completed"}),
        json!({"resolution": "failed"}),
        json!({"resolution": "failed", "outcome": {"value": 1}}),
        json!({"resolution": "retry", "outcome": {"value": 1}}),
        json!({"resolution": "retry", "error": {"code": "x", "message": "y"}}),
        json!({"resolution": "perhaps"}),
        json!({"resolution": "completed", "outcome": {"value": 1, "more": 1}}),
    ] {
        assert_eq!(
            resolve(incomplete.clone()).await.refusal(),
            (400, "request_rejected".to_owned()),
            "{incomplete}"
        );
    }
    let person = api
        .app("POST", &format!("/v1/sessions/s/effects/{id}/resolve"))
        .subject("ada", "sessions:own")
        .json(&json!({"requestId": "q", "idempotencyKey": "d1", "resolution": "retry"}))
        .send()
        .await;
    assert_eq!(person.refusal(), (403, "scope_required".to_owned()));
    let done = json!({"resolution": "completed", "outcome": {"value": {"kind": "completed", "output": 5}}});
    let receipt = resolve(done.clone()).await.ok("POST", RESOLVE);
    assert_eq!((&receipt["status"], &receipt["requestId"]), (&json!("accepted"), &json!("q")));
    assert_eq!(resolve(done).await.json(), receipt, "the same key and decision");
    api.until("s", "completed").await;
    assert_eq!(
        resolve(json!({"resolution": "retry"})).await.status,
        409,
        "the key was used for another decision"
    );
    let missing = api
        .app("POST", "/v1/sessions/s/effects/nothing/resolve")
        .json(&json!({"requestId": "q", "idempotencyKey": "d2", "resolution": "retry"}))
        .send()
        .await;
    assert_eq!(missing.refusal(), (404, "request_rejected".to_owned()));
}
