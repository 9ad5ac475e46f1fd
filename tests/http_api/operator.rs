//! The operator's API (spec: http-api, section 17; security, section 2).

use std::sync::atomic::Ordering;

use nylorun::api::Cause;
use nylorun::engine::model::router::ProviderSource as _;
use nylorun_actors::model::Json;
use nylorun_actors::testing::engine::Step;
use serde_json::json;

use super::support::{ADMIN, Api, KEY, OPAQUE};

async fn put_key(api: &Api, id: &str) -> String {
    let answer =
        api.admin("PUT", &format!("/v1/admin/keys/{id}")).send().await.ok("PUT", "/v1/admin/keys/{id}");
    answer["key"].as_str().unwrap().to_owned()
}

#[actix_web::test]
async fn a_rotated_or_deleted_key_is_refused_on_its_very_next_request() {
    let api = Api::start(vec![]).await;
    let try_key = |key: &str| api.request("GET", "/v1/me").bearer(key).send();
    let mut key = put_key(&api, "ci").await;
    for _ in 0..20 {
        // Used, so that it is known to whatever remembers keys.
        assert_eq!(try_key(&key).await.status, 200);
        let next = put_key(&api, "ci").await;
        assert_eq!(try_key(&key).await.text, OPAQUE);
        assert_eq!(try_key(&next).await.json()["via"], "application:ci");
        key = next;
    }
    let deleted = api.admin("DELETE", "/v1/admin/keys/ci").send().await.ok("DELETE", "/v1/admin/keys/{id}");
    assert_eq!(deleted, json!({"id": "ci", "deleted": true}));
    assert_eq!(try_key(&key).await.text, OPAQUE);
    let again = api.admin("DELETE", "/v1/admin/keys/ci").send().await;
    assert_eq!(again.refusal(), (404, "not_found".into()));
    assert_eq!(again.json()["message"], "No key ci");
    assert_eq!(try_key(KEY).await.status, 200);
}

#[actix_web::test]
async fn a_key_that_was_unknown_works_as_soon_as_it_is_made() {
    let api = Api::start(vec![]).await;
    // The negative cache must not outlive a change either; two keys at once share nothing.
    assert_eq!(api.request("GET", "/v1/me").bearer("0").send().await.text, OPAQUE);
    let (a, b) = (put_key(&api, "a").await, put_key(&api, "b").await);
    assert_ne!(a, b);
    for key in [&a, &b] {
        assert_eq!(api.request("GET", "/v1/me").bearer(key).send().await.status, 200);
    }
}

#[actix_web::test]
async fn keys_are_listed_by_id_and_never_shown() {
    let api = Api::start(vec![]).await;
    let key = put_key(&api, "ci").await;
    let answer = api.admin("GET", "/v1/admin/keys").send().await;
    let list = answer.ok("GET", "/v1/admin/keys");
    let ids: Vec<&str> = list["keys"].as_array().unwrap().iter().map(|k| k["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["ci", "local"]);
    assert!(!answer.text.contains(&key));
    let page = api.admin("GET", "/v1/admin/keys?limit=1").send().await.ok("GET", "/v1/admin/keys");
    assert_eq!((&page["keys"][0]["id"], page["nextCursor"].is_string()), (&json!("ci"), true));
    assert_eq!(
        api.admin("GET", "/v1/admin/keys?limit=0").send().await.refusal(),
        (400, "invalid_request".into())
    );
}

#[actix_web::test]
async fn names_of_keys_are_judged() {
    let api = Api::start(vec![]).await;
    for method in ["PUT", "DELETE"] {
        for bad in ["CI", "1a", "a_b", "pr_0", "%20"] {
            let answer = api.admin(method, &format!("/v1/admin/keys/{bad}")).send().await;
            assert_eq!(answer.refusal(), (400, "invalid_request".into()), "{method} {bad}");
        }
        let answer = api.admin(method, "/v1/admin/keys/studio").send().await;
        assert_eq!(answer.refusal(), (400, "request_rejected".into()));
    }
}

#[actix_web::test]
async fn the_host_says_where_it_stands_before_its_tenant_is_open() {
    let api = Api::opening(false);
    for path in ["/v1/admin/status", "/v1/admin/host"] {
        let status = api.admin("GET", path).send().await.ok("GET", path);
        assert_eq!(
            status["tenant"],
            json!({"id": null, "name": null, "state": "unavailable", "envelope": null})
        );
        assert_eq!(
            status["host"],
            json!({"hostId": "host-1", "url": format!("http://{}", api.public), "pid": 7})
        );
    }
    for (method, path) in [
        ("GET", "/v1/admin/keys"),
        ("PUT", "/v1/admin/keys/ci"),
        ("DELETE", "/v1/admin/keys/ci"),
        ("GET", "/v1/admin/actors"),
    ] {
        assert_eq!(api.admin(method, path).send().await.status, 503, "{method} {path}");
    }
    let cause = Cause { code: "kek-missing", message: "no key".into(), repair: "restore it".into() };
    api.state.slot().fail(cause);
    let status = api.admin("GET", "/v1/admin/status").send().await.ok("GET", "/v1/admin/status");
    assert_eq!(
        status["tenant"]["cause"],
        json!({"code": "kek-missing", "message": "no key", "repair": "restore it"})
    );
    api.open(vec![]).await;
    let status = api.admin("GET", "/v1/admin/status").send().await.ok("GET", "/v1/admin/status");
    assert_eq!((&status["tenant"]["state"], status["tenant"].get("cause")), (&json!("open"), None));
    let aggregate = &status["aggregate"];
    assert_eq!(aggregate["harness"], json!({"mode": "in-process", "connected": 1, "workspace": false}));
    let actors = api.admin("GET", "/v1/admin/actors").send().await.ok("GET", "/v1/admin/actors");
    assert!(!actors["actors"].as_array().unwrap().is_empty());
}

#[actix_web::test]
async fn a_shutdown_is_answered_before_the_host_stops() {
    let api = Api::start(vec![]).await;
    assert_eq!(api.request("POST", "/v1/admin/host/shutdown").bearer(KEY).send().await.text, OPAQUE);
    assert_eq!(api.stops.load(Ordering::SeqCst), 0);
    let answer = api.admin("POST", "/v1/admin/host/shutdown").send().await;
    assert_eq!(answer.ok("POST", "/v1/admin/host/shutdown"), json!({"status": "shutting_down"}));
    for _ in 0..200 {
        if api.stops.load(Ordering::SeqCst) > 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(api.stops.load(Ordering::SeqCst), 1);
}

#[actix_web::test]
async fn the_documents_are_served_as_they_are_made() {
    let api = Api::start(vec![]).await;
    let runtime = api.request("GET", "/openapi.json").send().await;
    assert_eq!((runtime.status, runtime.header("cache-control")), (200, "no-cache"));
    assert_eq!(runtime.json(), nylorun::api::tenant_document());
    let operator = api.admin("GET", "/v1/admin/openapi.json").send().await;
    assert_eq!((operator.status, operator.json()), (200, nylorun::api::operator_document()));
    assert_eq!(api.request("POST", "/openapi.json").bearer(ADMIN).send().await.text, OPAQUE);
}

#[actix_web::test]
async fn a_fixture_script_is_the_operators_and_goes_away_again() {
    let api = Api::start(vec![Step::Model(0)]).await;
    let path = "/v1/admin/fixture";
    let put = |body: Json| api.admin("PUT", path).json(&body).send();
    let none = api.admin("GET", path).send().await.ok("GET", path);
    assert_eq!(none, json!({"fixtureModel": false, "script": null}));
    let script = json!({"steps": [{"text": "hello"}]});
    let answer = put(json!({"script": script})).await;
    assert_eq!(answer.ok("PUT", path), json!({"fixtureModel": true, "script": script}));
    let open = api.state.slot().open_tenant().unwrap();
    assert!(open.models.fixture_script().is_some());
    assert_eq!(put(json!({"script": 1})).await.refusal(), (400, "invalid_request".into()));
    assert_eq!(put(json!({})).await.refusal(), (400, "invalid_request".into()));
    assert_eq!(api.admin("PUT", path).text("{").send().await.refusal(), (400, "invalid_request".into()));
    assert!(open.models.fixture_script().is_some());
    assert_eq!(put(json!({"script": null})).await.ok("PUT", path), none);
    assert!(open.models.fixture_script().is_none());
}
