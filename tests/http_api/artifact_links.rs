//! Capability links: what they are for, how long they live, and that anything but a good one says nothing
//! (spec: http-api, section 12; security, section 4).

use nylorun::identity::artifact_link::LinkClaims;
use nylorun_actors::model::Json;
use serde_json::json;

use super::artifact_folders::{folder_id, turn, unzip, with_outputs};
use super::artifacts::uploaded;
use super::support::{Answer, Api, KEY, OPAQUE, WRONG};

const LINKS: &str = "/v1/artifacts/{artifactId}/links";

async fn link(api: &Api, id: &str, body: Json) -> Answer {
    api.app("POST", &format!("/v1/artifacts/{id}/links")).json(&body).send().await
}

/// Follows a link as somebody who knows nothing else.
async fn follow(api: &Api, path: &str) -> Answer {
    let url = format!("http://{}{path}", api.public);
    Answer::of(reqwest::get(url).await.unwrap()).await
}

fn path(answer: &Answer) -> String {
    answer.json()["path"].as_str().unwrap().to_owned()
}

#[actix_web::test]
async fn a_link_lets_anybody_read_one_version_for_a_while() {
    let api = Api::start(vec![]).await;
    let id = uploaded(&api, "name=a.txt", b"one").await;
    api.app("POST", &format!("/v1/artifacts/{id}/versions")).bytes(b"second").send().await;
    let before = nylorun_actors::ports::Clock::now(&nylorun_actors::ports::clock::SystemClock).0 / 1_000_000;
    let made = link(&api, &id, json!({})).await;
    let body = made.ok("POST", LINKS);
    assert_eq!((&body["artifactId"], &body["version"], body.get("file")), (&json!(id), &json!(2), None));
    let token = path(&made).strip_prefix("/v1/artifact-links/").unwrap().to_owned();
    let claims = {
        use base64::Engine as _;
        let part = token.split('.').nth(1).unwrap();
        let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap();
        nylorun_actors::model::json::parse(&text).unwrap()
    };
    let (iat, exp) = (claims["iat"].as_i64().unwrap(), claims["exp"].as_i64().unwrap());
    assert_eq!(exp - iat, 300);
    assert!((before..before + 10).contains(&iat));
    assert_eq!(body["expiresAt"], nylorun_actors::model::Micros(exp * 1_000_000).to_iso());
    assert_eq!((&claims["sub"], &claims["ver"], claims.get("path")), (&json!(id), &json!(2), None));
    assert_eq!(claims["aud"], "nylorun-artifact");
    assert_eq!(claims["iss"], format!("urn:nylorun:tenant:{}", api.tenant_id().await));

    let read = follow(&api, &path(&made)).await;
    assert_eq!((read.status, read.text.as_str(), read.header("content-type")), (200, "second", "text/plain"));
    let part = api.client().get(format!("http://{}{}", api.public, path(&made))).header("range", "bytes=-2");
    let part = Answer::of(part.send().await.unwrap()).await;
    assert_eq!((part.status, part.text.as_str()), (206, "nd"));
    let first = link(&api, &id, json!({"requestId": "r", "version": 1, "expiresIn": 900})).await;
    assert_eq!(follow(&api, &path(&first)).await.text, "one");
    // A credential that comes along is still looked at, and a protocol too.
    let with = |name: &str, value: &str| {
        let request = api.client().get(format!("http://{}{}", api.public, path(&first)));
        request.header(name, value)
    };
    for (name, value, status) in [
        ("authorization", format!("Bearer {WRONG}"), 404),
        ("authorization", format!("Bearer {KEY}"), 200),
        ("nylorun-protocol", "3".to_owned(), 426),
        ("nylorun-protocol", "7".to_owned(), 200),
        ("nylorun-tenant", "tn_other".to_owned(), 404),
        ("origin", "http://a.test".to_owned(), 200),
    ] {
        assert_eq!(with(name, &value).send().await.unwrap().status().as_u16(), status, "{name} {value}");
    }
}

#[actix_web::test]
async fn a_link_of_a_folder_is_for_its_archive_or_for_one_file() {
    let api = with_outputs(&[("a.txt", "hello"), ("b/c.csv", "1,2")]).await;
    let id = folder_id(&turn(&api, "1").await);
    let file = link(&api, &id, json!({"file": "b/c.csv"})).await;
    assert_eq!(file.ok("POST", LINKS)["file"], "b/c.csv");
    let read = follow(&api, &path(&file)).await;
    assert_eq!((read.status, read.text.as_str(), read.header("content-type")), (200, "1,2", "text/csv"));
    let whole = link(&api, &id, json!({"version": 1})).await;
    let read = reqwest::get(format!("http://{}{}", api.public, path(&whole))).await.unwrap();
    assert_eq!(read.headers()["content-type"], "application/zip");
    let bytes = read.bytes().await.unwrap();
    assert_eq!(unzip(&bytes).len(), 2);
    assert_eq!(link(&api, &id, json!({"file": "nope"})).await.status, 404);
    let single = uploaded(&api, "name=f", b"x").await;
    assert_eq!(link(&api, &single, json!({"file": "a.txt"})).await.status, 400);
}

#[actix_web::test]
async fn a_bad_link_request_is_a_400_and_a_missing_version_a_404() {
    let api = Api::start(vec![]).await;
    let id = uploaded(&api, "name=f", b"x").await;
    for bad in [
        json!({"expiresIn": 0}),
        json!({"expiresIn": 901}),
        json!({"expiresIn": "60"}),
        json!({"version": 0}),
        json!({"version": "latest"}),
        json!({"file": ""}),
        json!({"file": "x".repeat(1025)}),
        json!({"other": 1}),
    ] {
        assert_eq!(
            link(&api, &id, bad.clone()).await.refusal(),
            (400, "request_rejected".to_owned()),
            "{bad}"
        );
    }
    assert_eq!(link(&api, &id, json!({"version": 2})).await.status, 404);
    assert_eq!(link(&api, "af_none", json!({})).await.status, 404);
}

fn opaque(answer: &Answer, why: &str) {
    assert_eq!((answer.status, answer.text.as_str()), (404, OPAQUE), "{why}");
}

#[actix_web::test]
async fn anything_but_a_good_token_is_the_opaque_404_and_one_that_was_good_a_401() {
    let api = Api::start(vec![]).await;
    let id = uploaded(&api, "name=f", b"x").await;
    let made = path(&link(&api, &id, json!({})).await);
    let token = made.strip_prefix("/v1/artifact-links/").unwrap();
    let [head, body, tail] = token.split('.').collect::<Vec<_>>()[..] else { panic!("three segments") };
    use base64::Engine as _;
    let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let none = encode(r#"{"alg":"none","typ":"nylorun-artifact+jwt"}"#);
    let flipped: String = tail.chars().rev().collect();
    let other_body = encode(&format!(r#"{{"sub":"{id}","ver":1}}"#));
    for (bad, why) in [
        ("x".to_owned(), "no token"),
        (format!("{none}.{body}."), "no signature"),
        (format!("{none}.{body}.{tail}"), "alg none"),
        (format!("{head}.{body}.{flipped}"), "another signature"),
        (format!("{head}.{other_body}.{tail}"), "other claims"),
        (format!("{head}.{body}"), "two segments"),
        ("a".repeat(5000), "too long"),
    ] {
        opaque(&follow(&api, &format!("/v1/artifact-links/{bad}")).await, why);
    }
    // A token of another kind, and one of another Tenant.
    let signing = api.signing();
    let grant = nylorun::identity::delivery::Grant {
        audience: "x",
        action: Some("a"),
        agent: "a",
        generation: 1,
        body: b"",
        ttl_s: 60,
    };
    let delivery = signing.mint_delivery(grant).await.unwrap();
    opaque(&follow(&api, &format!("/v1/artifact-links/{delivery}")).await, "a delivery's");
    let elsewhere = Api::start(vec![]).await;
    let theirs = uploaded(&elsewhere, "name=f", b"x").await;
    let foreign = path(&link(&elsewhere, &theirs, json!({})).await);
    opaque(&follow(&api, &foreign).await, "of another Tenant");
    // Well signed, and about nothing.
    let about = |artifact: &str, version: i64, path: Option<&str>| {
        let claims = LinkClaims { artifact_id: artifact.to_owned(), version, path: path.map(str::to_owned) };
        let signing = signing.clone();
        async move { signing.mint_link(&claims, 60).await.unwrap().unwrap().0 }
    };
    for (token, why) in [
        (about(&id, 2, None).await, "no such version"),
        (about(&id, 0, None).await, "no version at all"),
        (about(&theirs, 1, None).await, "no such artifact"),
        (about("nonsense", 1, None).await, "no artifact's id"),
        (about(&id, 1, Some("a")).await, "a file of a file"),
    ] {
        opaque(&follow(&api, &format!("/v1/artifact-links/{token}")).await, why);
    }
    // It works until the artifact is gone.
    assert_eq!(follow(&api, &made).await.status, 200);
    assert_eq!(api.app("DELETE", &format!("/v1/artifacts/{id}")).send().await.status, 200);
    opaque(&follow(&api, &made).await, "deleted");
}

#[actix_web::test]
async fn a_link_whose_time_is_over_or_whose_key_was_revoked_is_a_401_without_a_challenge() {
    let api = Api::start(vec![]).await;
    let id = uploaded(&api, "name=f", b"x").await;
    let claims = LinkClaims { artifact_id: id.clone(), version: 1, path: None };
    // Signed by these keys when their clock stood an hour earlier.
    let early = api.signing_at(-3_600).mint_link(&claims, 900).await.unwrap().unwrap().0;
    let expired = follow(&api, &format!("/v1/artifact-links/{early}")).await;
    assert_eq!(expired.refusal(), (401, "token_expired".to_owned()));
    assert_eq!(expired.header("www-authenticate"), "");
    // The two clocks may be 30 s apart.
    let late = api.signing_at(-320).mint_link(&claims, 300).await.unwrap().unwrap().0;
    assert_eq!(follow(&api, &format!("/v1/artifact-links/{late}")).await.status, 200);

    let made = path(&link(&api, &id, json!({})).await);
    let kid = {
        let keys = api.app("GET", "/v1/access/signing-keys").send().await.json();
        let keys = keys["keys"].as_array().unwrap().clone();
        keys.into_iter().find(|key| key["state"] == "current").unwrap()["id"].as_str().unwrap().to_owned()
    };
    let rotate = json!({"requestId": "r", "force": true});
    assert_eq!(api.app("POST", "/v1/access/signing-keys/rotate").json(&rotate).send().await.status, 200);
    assert_eq!(follow(&api, &made).await.status, 200);
    let revoke = api.app("POST", &format!("/v1/access/signing-keys/{kid}/revoke"));
    assert_eq!(revoke.json(&json!({"requestId": "r"})).send().await.status, 200);
    let revoked = follow(&api, &made).await;
    assert_eq!(revoked.refusal(), (401, "token_expired".to_owned()));
    assert_eq!(revoked.header("www-authenticate"), "");
}
