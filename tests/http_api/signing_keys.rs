//! Signing keys over HTTP, and delivery tokens as bearers.

use std::sync::Arc;

use nylorun::identity::SigningKeys;
use nylorun::identity::delivery::Grant;
use nylorun::vault::{Kek, Vault};
use nylorun_actors::model::{Json, Micros};
use nylorun_actors::ports::clock::SystemEntropy;
use nylorun_actors::testing::ManualClock;
use serde_json::json;

use super::support::{Api, OPAQUE};

const JWKS: &str = "/v1/access/jwks";
const KEYS: &str = "/v1/access/signing-keys";
const ROTATE: &str = "/v1/access/signing-keys/rotate";
const REVOKE: &str = "/v1/access/signing-keys/{kid}/revoke";

fn grant() -> Grant<'static> {
    Grant { audience: "http://a.test/", action: Some("x"), agent: "a", generation: 1, body: b"", ttl_s: 60 }
}

fn states(keys: &Json) -> Vec<&str> {
    keys["keys"].as_array().unwrap().iter().map(|key| key["state"].as_str().unwrap()).collect()
}

async fn rotate(api: &Api, force: bool) -> super::support::Answer {
    api.app("POST", ROTATE).json(&json!({"requestId": "r", "force": force})).send().await
}

#[actix_web::test]
async fn the_key_set_is_open_to_all_and_made_on_first_sight() {
    let api = Api::start(vec![]).await;
    let none = api.app("GET", KEYS).send().await.ok("GET", KEYS);
    assert_eq!(none, json!({"keys": []}));
    let set = api.request("GET", JWKS).send().await.ok("GET", JWKS);
    assert_eq!(set["keys"].as_array().unwrap().len(), 2);
    for key in set["keys"].as_array().unwrap() {
        assert_eq!(key.as_object().unwrap().len(), 7, "{key}");
        assert_eq!((&key["kty"], &key["crv"], &key["use"]), (&json!("EC"), &json!("P-256"), &json!("sig")));
    }
    // By a library that knows nothing of the protocol; a version that is not served is refused all the same.
    let plain = reqwest::get(format!("http://{}{JWKS}", api.public)).await.unwrap();
    assert_eq!(plain.status(), 200);
    let old =
        reqwest::Client::new().get(format!("http://{}{JWKS}", api.public)).header("nylorun-protocol", "3");
    assert_eq!(old.send().await.unwrap().status(), 426);
    // From a browser too, and by every caller; a wrong credential is refused all the same.
    assert_eq!(api.request("GET", JWKS).header("origin", "http://a.test").send().await.status, 200);
    assert_eq!(api.app("GET", JWKS).send().await.status, 200);
    assert_eq!(api.request("GET", JWKS).bearer("wrong").send().await.text, OPAQUE);
    let listed = api.app("GET", KEYS).send().await.ok("GET", KEYS);
    assert_eq!(listed["keys"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains("PRIVATE"));
}

#[actix_web::test]
async fn a_rotation_waits_for_the_previous_key_unless_it_is_forced() {
    let api = Api::start(vec![]).await;
    let first = rotate(&api, false).await.ok("POST", ROTATE);
    let mut found = states(&first);
    found.sort_unstable();
    assert_eq!(found, ["current", "previous", "standby"]);
    let second = rotate(&api, false).await;
    assert_eq!(second.refusal(), (409, "request_rejected".to_owned()));
    let wait = second.json()["details"]["retryAfterSeconds"].as_i64().unwrap();
    assert!((900..=960).contains(&wait), "{wait}");
    let forced = rotate(&api, true).await.ok("POST", ROTATE);
    assert_eq!(states(&forced).iter().filter(|state| **state == "revoked").count(), 1);
    let set = api.request("GET", JWKS).send().await.json();
    assert_eq!(set["keys"].as_array().unwrap().len(), 3);
}

#[actix_web::test]
async fn a_key_is_revoked_by_its_id_and_the_current_one_is_not() {
    let api = Api::start(vec![]).await;
    let keys = rotate(&api, false).await.json();
    let of = |state: &str| {
        let keys = keys["keys"].as_array().unwrap();
        keys.iter().find(|key| key["state"] == state).unwrap()["id"].as_str().unwrap().to_owned()
    };
    let revoke = async |id: &str| {
        let path = REVOKE.replace("{kid}", id);
        api.app("POST", &path).json(&json!({"requestId": "r"})).send().await
    };
    let view = revoke(&of("previous")).await.ok("POST", REVOKE);
    assert_eq!((&view["state"], view["revokedAt"].is_string()), (&json!("revoked"), true));
    assert_eq!(revoke(&of("previous")).await.json(), view);
    assert_eq!(revoke(&of("current")).await.refusal(), (409, "request_rejected".to_owned()));
    let unknown = format!("sk_{}", "7".repeat(26));
    for id in [unknown.as_str(), "sk_", "nonsense", "SK_1"] {
        assert_eq!(revoke(id).await.refusal(), (404, "request_rejected".to_owned()), "{id}");
    }
    // The set never shows it again.
    let set = api.request("GET", JWKS).send().await.text;
    assert!(!set.contains(&of("previous")));
}

#[actix_web::test]
async fn bodies_are_strict_and_persons_have_no_business_with_keys() {
    let api = Api::start(vec![]).await;
    for body in
        [json!({}), json!({"requestId": "r", "force": 1}), json!({"requestId": "r", "x": 1}), json!([])]
    {
        let refused = api.app("POST", ROTATE).json(&body).send().await;
        assert_eq!(refused.refusal(), (400, "request_rejected".to_owned()), "{body}");
    }
    let path = REVOKE.replace("{kid}", "sk_1");
    let refused = api.app("POST", &path).json(&json!({"requestId": "r", "force": true})).send().await;
    assert_eq!(refused.refusal(), (400, "request_rejected".to_owned()));
    for (method, path) in [("GET", KEYS), ("POST", ROTATE), ("POST", path.as_str())] {
        let person = api.app(method, path).subject("ada", "agents:write tenant:settings").send().await;
        assert_eq!(person.refusal(), (403, "scope_required".to_owned()), "{path}");
        assert_eq!(person.json()["details"], json!({"scopes": []}));
        assert_eq!(api.request(method, path).send().await.text, OPAQUE);
    }
}

#[actix_web::test]
async fn the_list_comes_in_pages() {
    let api = Api::start(vec![]).await;
    rotate(&api, false).await;
    let first = api.app("GET", &format!("{KEYS}?limit=2")).send().await.json();
    assert_eq!(first["keys"].as_array().unwrap().len(), 2);
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = api.app("GET", &format!("{KEYS}?limit=2&cursor={cursor}")).send().await.json();
    assert_eq!((second["keys"].as_array().unwrap().len(), &second["nextCursor"]), (1, &Json::Null));
}

#[actix_web::test]
async fn a_delivery_token_is_a_caller_that_reaches_its_callbacks_alone() {
    let api = Api::start(vec![]).await;
    let token = api.signing().mint_delivery(grant()).await.unwrap();
    for (method, path) in [("GET", "/v1/me"), ("GET", "/v1/sessions"), ("GET", JWKS), ("GET", KEYS)] {
        let refused = api.request(method, path).bearer(&token).send().await;
        assert_eq!(refused.refusal(), (403, "request_rejected".to_owned()), "{path}");
    }
    let nowhere = api.request("GET", "/v1/nowhere").bearer(&token).send().await;
    assert_eq!(nowhere.refusal(), (404, "request_rejected".to_owned()));
    let browser = api.request("GET", "/v1/me").bearer(&token).header("origin", "http://a.test").send().await;
    assert_eq!(browser.refusal(), (403, "origin_rejected".to_owned()));
    for name in ["nylorun-subject", "nylorun-scopes"] {
        let acting = api.request("GET", "/v1/nowhere").bearer(&token).header(name, "ada").send().await;
        assert_eq!(acting.refusal(), (403, "request_rejected".to_owned()), "{name}");
    }
}

#[actix_web::test]
async fn an_expired_or_revoked_delivery_token_is_401_with_a_challenge_and_any_other_defect_the_opaque_404() {
    let api = Api::start(vec![]).await;
    let good = api.signing().mint_delivery(grant()).await.unwrap();
    // The same keys an hour ago.
    let clock = ManualClock::at(Micros(
        nylorun_actors::ports::Clock::now(&nylorun_actors::ports::clock::SystemClock).0 - 3_600_000_000,
    ));
    let vault = Arc::new(Vault::new(Kek::from_bytes([5; 32])));
    let tenant = api.tenant_id().await.as_str().into();
    let past = SigningKeys::new(api.store.handle(), vault, tenant, Arc::new(clock), Arc::new(SystemEntropy));
    let old = past.mint_delivery(grant()).await.unwrap();
    let ask = async |token: &str| api.request("GET", "/v1/me").bearer(token).send().await;

    let expired = ask(&old).await;
    assert_eq!(expired.refusal(), (401, "token_expired".to_owned()));
    assert_eq!(expired.header("www-authenticate"), r#"Bearer error="invalid_token""#);

    let forged = format!("{}AAAA", &old[..old.len() - 4]);
    assert_eq!((ask(&forged).await.status, ask(&forged).await.text.as_str()), (404, OPAQUE));
    let ping = api.signing().mint_delivery(Grant { action: None, ..grant() }).await.unwrap();
    let answer = ask(&ping).await;
    assert_eq!((answer.status, answer.text.as_str()), (404, OPAQUE));
    assert_eq!(answer.header("www-authenticate"), "");

    let keys = api.app("GET", KEYS).send().await.json();
    let keys = keys["keys"].as_array().unwrap();
    let current = keys.iter().find(|key| key["state"] == "current").unwrap();
    let kid = current["id"].as_str().unwrap();
    assert_eq!(ask(&good).await.status, 403);
    rotate(&api, false).await;
    assert_eq!(ask(&good).await.status, 403);
    api.app("POST", &REVOKE.replace("{kid}", kid)).json(&json!({"requestId": "r"})).send().await;
    let revoked = ask(&good).await;
    assert_eq!(revoked.refusal(), (401, "token_expired".to_owned()));
    assert_eq!(revoked.header("www-authenticate"), r#"Bearer error="invalid_token""#);
}
