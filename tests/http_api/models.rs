//! The Tenant's model and what is kept of its credential (spec: http-api, section 15; security, sections 6 and 12.1).

use nylorun::engine::model::router::ProviderSource as _;
use nylorun_actors::model::Json;
use nylorun_actors::ports::StoreError;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::support::{Api, KEY};

fn custom(key: &str, model: &str) -> Json {
    json!({"requestId": "r", "idempotencyKey": key, "provider": "custom", "model": model,
        "baseUrl": "http://127.0.0.1:9/v1", "settings": {"maxTokens": 100},
        "auth": {"type": "api_key", "key": "secret-key-of-tests"}})
}

async fn active_key(api: &Api) -> Option<(String, String)> {
    let open = api.state.slot().open_tenant().unwrap();
    let config = open.models.active().await.unwrap()?;
    Some((config.model, config.key.expose_secret().to_owned()))
}

#[actix_web::test]
async fn a_provider_is_stored_sealed_and_used() {
    let api = Api::start(vec![]).await;
    let none = api.app("GET", "/v1/tenant/model").send().await.ok("GET", "/v1/tenant/model");
    assert_eq!(none, json!({"configured": false}));
    assert_eq!(active_key(&api).await, None);
    let put = api.app("PUT", "/v1/tenant/model").json(&custom("k", "m-1")).send().await;
    let view = put.ok("PUT", "/v1/tenant/model");
    let expected = json!({"configured": true, "provider": "custom", "model": "m-1", "authType": "api_key",
        "baseUrl": "http://127.0.0.1:9/v1", "settings": {"maxTokens": 100}});
    assert_eq!(view, expected);
    assert_eq!(api.app("GET", "/v1/tenant/model").send().await.json(), expected);
    assert_eq!(active_key(&api).await, Some(("m-1".into(), "secret-key-of-tests".into())));
    let rows = api.store.handle().read::<_, StoreError, _>(|r| r.credentials("host")).await.unwrap();
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!((row.id.as_str(), row.wrapped_dek.len(), row.nonce.len()), ("host-model:custom", 60, 12));
    let kept = String::from_utf8_lossy(&row.ciphertext).into_owned() + row.binding.as_str();
    assert!(!kept.contains("secret-key"));
}

#[actix_web::test]
async fn a_write_is_repeated_by_its_key_and_only_with_the_same_body() {
    let api = Api::start(vec![]).await;
    let put = |body: Json| api.app("PUT", "/v1/tenant/model").json(&body).send();
    let first = put(custom("k", "m-1")).await;
    put(custom("k2", "m-2")).await.ok("PUT", "/v1/tenant/model");
    let mut again = custom("k", "m-1");
    again["requestId"] = json!("other");
    assert_eq!(put(again).await.text, first.text);
    // The repetition changed nothing.
    assert_eq!(active_key(&api).await.unwrap().0, "m-2");
    let mut other = custom("k", "m-1");
    other["auth"]["key"] = json!("another-key");
    assert_eq!(put(other).await.refusal(), (409, "request_rejected".into()));
}

#[actix_web::test]
async fn a_selection_keeps_credential_and_settings() {
    let api = Api::start(vec![]).await;
    let select = |body: Json| api.app("PUT", "/v1/tenant/model/selection").json(&body).send();
    let body = json!({"requestId": "r", "idempotencyKey": "s", "provider": "custom", "model": "m-9"});
    assert_eq!(select(body.clone()).await.refusal(), (404, "request_rejected".into()));
    api.app("PUT", "/v1/tenant/model").json(&custom("k", "m-1")).send().await.ok("PUT", "/v1/tenant/model");
    let view = select(body).await.ok("PUT", "/v1/tenant/model/selection");
    assert_eq!((&view["model"], &view["settings"]), (&json!("m-9"), &json!({"maxTokens": 100})));
    assert_eq!(active_key(&api).await, Some(("m-9".into(), "secret-key-of-tests".into())));
}

#[actix_web::test]
async fn a_choice_outside_the_catalogue_is_refused() {
    let api = Api::start(vec![]).await;
    let catalogue = api.app("GET", "/v1/tenant/models").send().await.ok("GET", "/v1/tenant/models");
    let provider = catalogue["providers"][0]["id"].as_str().unwrap();
    let model = catalogue["providers"][0]["models"][0]["id"].as_str().unwrap();
    let put = |provider: &str, model: &str, url: Option<&str>, settings: Option<Json>| {
        let mut body = custom("k", model);
        let map = body.as_object_mut().unwrap();
        map.insert("provider".into(), json!(provider));
        map.remove("baseUrl");
        map.remove("settings");
        map.extend(url.map(|url| ("baseUrl".to_owned(), json!(url))));
        map.extend(settings.map(|settings| ("settings".to_owned(), settings)));
        api.app("PUT", "/v1/tenant/model").json(&body).send()
    };
    for answer in [
        put("custom", "m", None, None).await,
        put("custom", "m", Some("ftp://a"), None).await,
        put("custom", "m", Some("http://a.test"), Some(json!({"contextWindow": 1}))).await,
        put("nobody", "m", None, None).await,
        put("a/b", "m", None, None).await,
        put(provider, "no-such-model", None, None).await,
        put(provider, model, Some("http://a.test"), None).await,
    ] {
        assert_eq!(answer.refusal(), (400, "request_rejected".into()));
        assert!(!answer.json()["details"]["issues"].as_array().unwrap().is_empty());
    }
    assert_eq!(active_key(&api).await, None);
    put(provider, model, None, None).await.ok("PUT", "/v1/tenant/model");
    let list = api.app("GET", "/v1/tenant/providers").send().await.ok("GET", "/v1/tenant/providers");
    assert_eq!(
        (&list["providers"][0]["id"], &list["providers"][0]["active"]),
        (&json!(provider), &json!(true))
    );
    let mut second = custom("k9", "m");
    second["settings"] = json!({});
    api.app("PUT", "/v1/tenant/model").json(&second).send().await.ok("PUT", "/v1/tenant/model");
    let list = api.app("GET", "/v1/tenant/providers?limit=1").send().await.ok("GET", "/v1/tenant/providers");
    assert_eq!(list["providers"].as_array().unwrap().len(), 1);
    assert!(list["nextCursor"].is_string());
}

#[actix_web::test]
async fn seeding_sets_only_what_is_not_set() {
    let api = Api::start(vec![]).await;
    let mut model = custom("k", "m-1");
    let map = model.as_object_mut().unwrap();
    map.remove("requestId");
    map.remove("idempotencyKey");
    let body = json!({"requestId": "r", "fixtureModel": true, "model": model,
        "sandbox": {"backend": "auto", "config": {"limits": {"idle": "15m"}}}});
    let path = "/v1/tenant/config/seed";
    let seed = |body: Json| api.app("PUT", path).json(&body).send();
    let names = json!(["sandbox.backend", "sandbox.config", "model.fixture", "model"]);
    assert_eq!(seed(body.clone()).await.ok("PUT", path), json!({"applied": names, "kept": []}));
    assert_eq!(seed(body).await.ok("PUT", path), json!({"applied": [], "kept": names}));
    for bad in [
        json!({"requestId": "r", "fixtureModel": false}),
        json!({"requestId": "r", "sandbox": {"backend": "local"}}),
        json!({"requestId": "r", "sandbox": {"config": {"limits": {"idle": "soon"}}}}),
        json!({"requestId": "r", "idempotencyKey": "k"}),
    ] {
        assert_eq!(seed(bad).await.refusal(), (400, "request_rejected".into()));
    }
}

#[actix_web::test]
async fn the_tenants_status_names_what_it_has_and_no_secret() {
    let api = Api::start(vec![]).await;
    api.session("s", "ada").await;
    api.app("PUT", "/v1/tenant/model").json(&custom("k", "m-1")).send().await.ok("PUT", "/v1/tenant/model");
    let answer = api.app("GET", "/v1/tenant").send().await;
    let status = answer.ok("GET", "/v1/tenant");
    assert_eq!(status["tenant"]["id"], api.tenant_id().await);
    assert_eq!(status["counts"]["sessions"], 1);
    assert_eq!(status["agents"], json!([{"agentId": "a", "registered": true, "endpoint": false}]));
    let checks = json!({"store": true, "scheduler": true, "model": true, "endpoints": true, "schema": true});
    assert_eq!(status["checks"], checks);
    assert!(!answer.text.contains("secret-key") && !answer.text.contains(KEY));
}
