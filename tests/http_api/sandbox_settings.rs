//! The Tenant's settings of sandboxes over HTTP (spec: http-api, sections 15.2 and 15.4; sandbox, section 5).

use nylorun_actors::model::Json;
use nylorun_actors::model::sandbox::network::DEV_HOSTS;
use serde_json::json;

use super::sandboxes::serving;
use super::support::Api;

const ROUTE: &str = "/v1/tenant/sandbox";

fn rejected(status: u16) -> (u16, String) {
    (status, "request_rejected".to_owned())
}

async fn config(api: &Api) -> Json {
    api.app("GET", ROUTE).send().await.ok("GET", ROUTE)["config"].clone()
}

#[actix_web::test]
async fn without_settings_every_default_is_in_force_beside_the_report() {
    let (api, _) = serving(vec![]).await;
    let view = api.app("GET", ROUTE).send().await.ok("GET", ROUTE);
    let names: Vec<&str> = view.as_object().unwrap().keys().map(String::as_str).collect();
    let expected =
        ["preference", "backend", "isolation", "reason", "probes", "defaultImage", "config", "cluster"];
    assert_eq!(names, expected);
    assert_eq!(view["cluster"], Json::Null);
    assert_eq!(
        view["config"],
        json!({
            "default": "none",
            "limits": {
                "network": DEV_HOSTS,
                "resources": {"cpus": 4, "memoryMiB": 8192},
                "defaultResources": {"cpus": 2, "memoryMiB": 1024},
                "idle": "15m",
                "sandboxes": 100,
            },
            "lifecycle": {"onExpiry": "retain", "stopGrace": "10s"},
            "placement": {"*": {"hosts": ["harness-container", "sandbox"]}},
        })
    );
    let nobody = Api::start(vec![]).await;
    let view = nobody.app("GET", ROUTE).send().await.ok("GET", ROUTE);
    assert_eq!((&view["backend"], &view["probes"]), (&Json::Null, &json!([])));
}

#[actix_web::test]
async fn a_put_replaces_everything_and_answers_what_is_in_force() {
    let api = Api::start(vec![]).await;
    let full = json!({
        "requestId": "r",
        "default": {"resources": {"memory": "512MiB"}},
        "limits": {"network": ["*.in.example"], "resources": {"cpus": 8}, "idle": "30m", "sandboxes": 0, "ttl": "2d"},
        "lifecycle": {"onExpiry": "delete", "stopGrace": "30s"},
        "placement": {"nylorun": {"hosts": ["harness-container"]}},
    });
    let put =
        async |body: &Json| api.app("PUT", ROUTE).json(body).send().await.ok("PUT", ROUTE)["config"].clone();
    let view = put(&full).await;
    assert_eq!(view["default"], json!({"resources": {"memory": "512MiB"}}));
    assert_eq!(view["limits"]["network"], json!(["*.in.example"]));
    assert_eq!(view["limits"]["resources"], json!({"cpus": 8, "memoryMiB": 8192}));
    assert_eq!((&view["limits"]["ttl"], &view["limits"]["sandboxes"]), (&json!("2d"), &json!(0)));
    assert_eq!(view["placement"], json!({"nylorun": {"hosts": ["harness-container"]}}));
    assert_eq!(config(&api).await, view);
    let second = put(&json!({"limits": {"idle": "1h"}})).await;
    assert_eq!((&second["default"], &second["limits"]["sandboxes"]), (&json!("none"), &json!(100)));
    assert_eq!(second["limits"].get("ttl"), None);
}

#[actix_web::test]
async fn contradictions_are_400_with_all_of_them_and_change_nothing() {
    let api = Api::start(vec![]).await;
    let body = json!({
        "default": {"image": "i", "network": {"allow": ["a.example"]}},
        "limits": {"resources": {"cpus": 1, "memory": "512MiB"}},
    });
    let answer = api.app("PUT", ROUTE).json(&body).send().await;
    assert_eq!(answer.refusal(), rejected(400));
    let words = answer.json()["message"].as_str().unwrap().to_owned();
    assert_eq!(words.matches("limits.defaultResources: ").count(), 2, "{words}");
    assert_eq!(words.matches("default: ").count(), 4, "{words}");
    for odd in [
        json!({"limits": {"network": {"allow": []}}}),
        json!({"limits": {"sandboxes": 100_001}}),
        json!({"lifecycle": {"stopGrace": "31s"}}),
        json!({"placement": {"*": {"hosts": []}}}),
        json!({"default": false}),
        json!({"more": 1}),
    ] {
        assert_eq!(api.app("PUT", ROUTE).json(&odd).send().await.refusal(), rejected(400), "{odd}");
    }
    assert_eq!(config(&api).await["default"], "none");
}

#[actix_web::test]
async fn a_seed_sets_them_once_and_is_checked_like_a_put() {
    let api = Api::start(vec![]).await;
    let seed = |config: Json| {
        let body = json!({"requestId": "r", "sandbox": {"config": config}});
        api.app("PUT", "/v1/tenant/config/seed").json(&body).send()
    };
    let bad = seed(json!({"limits": {"resources": {"cpus": 1}}})).await;
    assert_eq!(bad.refusal(), rejected(400));
    assert_eq!(seed(json!({"default": "virtual"})).await.json()["applied"], json!(["sandbox.config"]));
    assert_eq!(seed(json!({"default": "none"})).await.json()["kept"], json!(["sandbox.config"]));
    assert_eq!(config(&api).await["default"], "virtual");
}

#[actix_web::test]
async fn they_are_for_applications_and_subjects_with_the_scope() {
    let api = Api::start(vec![]).await;
    for method in ["GET", "PUT"] {
        let refused = api.app(method, ROUTE).json(&json!({})).subject("ada", "sessions:own").send().await;
        assert_eq!(refused.json()["details"], json!({"scopes": ["tenant:settings"]}));
        let let_in = api.app(method, ROUTE).json(&json!({})).subject("ada", "tenant:settings").send().await;
        assert_eq!(let_in.status, 200);
    }
}
