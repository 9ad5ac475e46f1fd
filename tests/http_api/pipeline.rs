//! The order of checks, as a client sees it (spec: http-api, section 1.2).

use std::sync::Arc;

use nylorun::api::{Cause, FEATURES};
use nylorun_actors::testing::engine::Step;
use serde_json::json;

use super::support::{ADMIN, Api, KEY, OPAQUE, WRONG, raw};

fn head(api: &Api, line: &str, more: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{more}\r\n", api.public)
}

#[actix_web::test]
async fn the_host_header_is_judged_before_everything_else() {
    let api = Api::start(vec![]).await;
    for host in ["example.com", "127.0.0.1", "127.0.0.1:1"] {
        let answer = api.app("GET", "/v1/me").header("host", host).send().await;
        assert_eq!(answer.refusal(), (421, "host_rejected".into()), "{host}");
    }
    let answer = raw(api.public, "GET /health HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 421"), "{answer}");
    // HTTP/1.1 itself demands exactly one, so the server's own 400 comes first (RFC 9112, section 3.2).
    let none = "GET /health HTTP/1.1\r\nconnection: close\r\n\r\n".to_owned();
    let twice =
        format!("GET /health HTTP/1.1\r\nhost: {0}\r\nhost: {0}\r\nconnection: close\r\n\r\n", api.public);
    for request in [none, twice] {
        let answer = raw(api.public, request).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    let answer = raw(api.public, "OPTIONS * HTTP/1.1\r\nhost: evil\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 421"), "{answer}");
}

#[actix_web::test]
async fn a_target_that_is_no_path_is_a_400_even_for_options() {
    let api = Api::start(vec![]).await;
    let answer = raw(api.public, head(&api, "OPTIONS *", "")).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("invalid_request"), "{answer}");
}

#[actix_web::test]
async fn browsers_are_refused_outside_the_tenant_api() {
    let api = Api::start(vec![]).await;
    for path in ["/health", "/ready", "/openapi.json", "/other", "/v1/admin/status", "/v1//admin/x"] {
        let answer = api.admin("GET", path).header("origin", "http://a.test").send().await;
        assert_eq!(answer.refusal(), (403, "origin_rejected".into()), "{path}");
    }
    // A key of the Tenant is refused too, before it is looked up.
    for key in [KEY, WRONG] {
        let answer = api.request("GET", "/v1/me").bearer(key).header("origin", "http://a.test").send().await;
        assert_eq!(answer.refusal(), (403, "origin_rejected".into()));
    }
    let preflight = api.request("OPTIONS", "/v1/me").header("origin", "http://a.test").send().await;
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("allow"), "GET, POST, PUT, DELETE, OPTIONS");
}

#[actix_web::test]
async fn a_body_that_is_not_json_is_a_415_before_anybody_is_asked_who_they_are() {
    let api = Api::opening(false);
    let answer = api.request("POST", "/v1/sessions/s/commands").header("content-type", "text/plain");
    let answer = answer.header("content-length", "2").send().await;
    assert_eq!(answer.refusal(), (415, "unsupported_media_type".into()));
    let chunked = head(&api, "PUT /health", "transfer-encoding: chunked\r\n") + "0\r\n\r\n";
    let answer = raw(api.public, chunked).await;
    assert!(answer.starts_with("HTTP/1.1 415"), "{answer}");
}

#[actix_web::test]
async fn the_protocol_comes_before_the_tenant_and_before_any_key() {
    let api = Api::opening(false);
    for (path, version) in [("/v1/me", "8"), ("/v1/me", "x"), ("/v1/admin/status", "3"), ("/other", "")] {
        let request = api.request("GET", path);
        // reqwest adds the second one beside the first: sent twice is no version either.
        let answer = request.header("nylorun-protocol", version).send().await;
        assert_eq!(answer.status, 426, "{path} {version}");
        let body = json!({
            "status": "rejected", "code": "protocol_unsupported",
            "protocol": {"min": 4, "max": 7, "features": FEATURES},
        });
        assert_eq!(answer.json(), body);
    }
    for served in ["4", "7", "007"] {
        let answer =
            raw(api.public, head(&api, "GET /v1/me", &format!("nylorun-protocol: {served}\r\n"))).await;
        assert!(answer.ends_with(OPAQUE), "{answer}");
    }
    for refused in ["", "nylorun-protocol: 3\r\n", "nylorun-protocol: 8\r\n", "nylorun-protocol: 7.0\r\n"] {
        for path in ["/v1/me", "/v1/admin/status"] {
            let answer = raw(api.public, head(&api, &format!("GET {path}"), refused)).await;
            assert!(answer.starts_with("HTTP/1.1 426"), "{answer}");
        }
    }
}

#[actix_web::test]
async fn whoever_is_not_known_gets_the_same_bytes_everywhere() {
    let opening = Api::opening(false);
    let failed = Api::opening(false);
    let cause = Cause { code: "corrupt", message: "secret".into(), repair: "none".into() };
    failed.state.slot().fail(cause);
    let closing = Api::start(vec![]).await;
    closing.state.slot().close();
    let api = Api::start(vec![]).await;
    let mut answers = Vec::new();
    for closed in [&opening, &failed, &closing] {
        answers.push(closed.app("GET", "/v1/me").send().await);
    }
    answers.push(api.app("GET", "/v1/me").header("nylorun-tenant", "tn_other").send().await);
    answers.push(api.request("GET", "/v1/me").send().await);
    for credential in ["", "Bearer", "bearer x", "Basic abc", "Bearer a.b.c", &format!("Bearer {WRONG}")] {
        answers.push(api.request("GET", "/v1/me").header("authorization", credential).send().await);
        answers.push(api.request("GET", "/v1/unknown").header("authorization", credential).send().await);
        answers.push(api.request("GET", "/v1/admin/status").header("authorization", credential).send().await);
        answers.push(api.request("GET", "/v1/admin/x").header("authorization", credential).send().await);
    }
    for answer in answers {
        assert_eq!((answer.status, answer.text.as_str()), (404, OPAQUE));
        assert_eq!(answer.header("content-type"), "application/json");
    }
}

#[actix_web::test]
async fn a_tenant_header_may_be_blank_or_right() {
    let api = Api::start(vec![]).await;
    for named in [String::new(), " ".into(), api.tenant_id().await] {
        let answer = api.app("GET", "/v1/me").header("nylorun-tenant", &named).send().await;
        assert_eq!(answer.status, 200, "{named}");
    }
}

#[actix_web::test]
async fn a_broken_path_is_a_400_before_authentication() {
    let api = Api::start(vec![]).await;
    for credential in ["", "authorization: Bearer x\r\n"] {
        let more = format!("nylorun-protocol: 7\r\n{credential}");
        let answer = raw(api.public, head(&api, "GET /v1/sessions/%ff", &more)).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("request_rejected"), "{answer}");
    }
    let more = format!("nylorun-protocol: 7\r\nauthorization: Bearer {ADMIN}\r\n");
    let answer = raw(api.public, head(&api, "GET /v1/admin/keys/%zz", &more)).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("invalid_request"), "{answer}");
    let answer = raw(api.public, head(&api, "GET /v1/admin/keys/%zz", "nylorun-protocol: 7\r\n")).await;
    assert!(answer.ends_with(OPAQUE), "{answer}");
}

#[actix_web::test]
async fn head_is_not_get() {
    let api = Api::start(vec![]).await;
    for path in ["/v1/me", "/v1/sessions", "/v1/admin/status"] {
        let key = if path.contains("admin") { ADMIN } else { KEY };
        assert_eq!(api.request("HEAD", path).bearer(key).send().await.status, 404, "{path}");
    }
    assert_eq!(api.request("HEAD", "/health").send().await.status, 200);
}

#[actix_web::test]
async fn an_unknown_route_is_told_to_known_callers_only() {
    let api = Api::start(vec![]).await;
    for path in ["/v1/unknown", "/v1/me/", "/v1//me", "/v1/executors", "/v1/tokens", "/v1/admins", "/other"] {
        let answer = api.app("GET", path).send().await;
        assert_eq!(answer.refusal(), (404, "request_rejected".into()), "{path}");
    }
    assert_eq!(api.app("DELETE", "/v1/me").send().await.refusal(), (404, "request_rejected".into()));
    let unknown = api.admin("GET", "/v1/admin/unknown").send().await;
    assert_eq!(unknown.refusal(), (404, "not_found".into()));
    assert_ne!(unknown.text, OPAQUE);
    for gone in ["/v1/admin/tenants", "/v1//admin/status", "/v1/admin/status/", "/v1/admin"] {
        assert_eq!(api.admin("GET", gone).send().await.refusal(), (404, "not_found".into()), "{gone}");
    }
}

#[actix_web::test]
async fn a_public_listener_beside_an_operator_listener_knows_no_operator_route() {
    let api = Api::opening(true);
    api.open(vec![]).await;
    for path in
        ["/v1/admin/status", "/v1//admin/status", "/v1/admin/status/", "/v1/%61dmin/keys", "/v1/admin"]
    {
        for method in ["GET", "PUT", "DELETE"] {
            let answer = api.admin(method, path).send().await;
            assert_eq!((answer.status, answer.text.as_str()), (404, OPAQUE), "{method} {path}");
        }
    }
    // Not even the protocol is judged there.
    let answer = raw(api.public, head(&api, "GET /v1/admin/status", "")).await;
    assert!(answer.ends_with(OPAQUE), "{answer}");
    let operator = api.operator.unwrap();
    let ask = |line: &str, host: std::net::SocketAddr, more: &str| {
        let text = format!(
            "{line} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\nnylorun-protocol: 7\r\n{more}\r\n"
        );
        raw(operator, text)
    };
    let admin = format!("authorization: Bearer {ADMIN}\r\n");
    assert!(ask("GET /v1/admin/status", operator, &admin).await.starts_with("HTTP/1.1 200"));
    assert!(ask("GET /health", operator, "").await.starts_with("HTTP/1.1 200"));
    let app = format!("authorization: Bearer {KEY}\r\n");
    assert!(ask("GET /v1/me", operator, &app).await.starts_with("HTTP/1.1 200"));
    // Each listener has its own name, and the operator's is not for browsers.
    assert!(ask("GET /health", api.public, "").await.starts_with("HTTP/1.1 421"));
    let browser = format!("{app}origin: http://a.test\r\n");
    assert!(ask("GET /v1/me", operator, &browser).await.starts_with("HTTP/1.1 403"));
}

#[actix_web::test]
async fn headers_that_come_twice_are_refused() {
    let api = Api::start(vec![]).await;
    let subject = api.app("GET", "/v1/me").subject("ada", "sessions:own");
    let answer = subject.header("nylorun-subject", "bob").send().await;
    assert_eq!(answer.refusal(), (400, "subject_invalid".into()));
    let answer = api.app("GET", "/v1/me").header("authorization", "Bearer x").send().await;
    assert_eq!(answer.refusal(), (400, "subject_invalid".into()));
    // Whether subject headers are well-formed is nothing that an unknown key learns.
    let answer = api.request("GET", "/v1/me").bearer(WRONG).header("nylorun-scopes", "x").send().await;
    assert_eq!(answer.text, OPAQUE);
}

#[actix_web::test]
async fn a_body_over_1_mib_is_refused_declared_or_not() {
    let api = Api::start(vec![]).await;
    let large = format!("\"{}\"", "x".repeat(1024 * 1024));
    let answer = api.app("POST", "/v1/sessions/s/commands").text(&large).send().await;
    assert_eq!(answer.refusal(), (413, "request_rejected".into()));
    let lines = "nylorun-protocol: 7\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n";
    let mut chunked =
        head(&api, "POST /v1/sessions/s/commands", &format!("{lines}authorization: Bearer {KEY}\r\n"));
    for _ in 0..40 {
        chunked += &format!("10000\r\n{}\r\n", "y".repeat(0x10000));
    }
    let answer = raw(api.public, chunked).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{}", &answer[..answer.len().min(300)]);
    let fits = format!("\"{}\"", "x".repeat(1024 * 1024 - 2));
    let answer = api.app("POST", "/v1/sessions/s/commands").text(&fits).send().await;
    assert_eq!(answer.refusal(), (400, "request_rejected".into()));
    // Without a credential nobody's body is read: the answer is about the credential.
    assert_eq!(api.request("POST", "/v1/sessions/s/commands").text(&large).send().await.text, OPAQUE);
}

#[actix_web::test]
async fn characters_cut_in_two_by_chunks_are_whole_again() {
    let api = Api::start(vec![Step::Model(0)]).await;
    api.session("s", "u").await;
    let body = super::support::message("k", "é\u{1F600}").to_string().into_bytes();
    let lines = "nylorun-protocol: 7\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n";
    let more = format!("{lines}authorization: Bearer {KEY}\r\n");
    let mut request = head(&api, "POST /v1/sessions/s/commands", &more).into_bytes();
    for byte in body {
        request.extend_from_slice(b"1\r\n");
        request.push(byte);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    let answer = raw(api.public, request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let items = api.app("GET", "/v1/sessions/s/items").send().await.json();
    assert_eq!(items["items"][0]["payload"]["content"], "é\u{1F600}");
}

#[actix_web::test]
async fn every_answer_names_its_request() {
    let api = Api::start(vec![]).await;
    let named = api.app("GET", "/v1/me").header("x-request-id", "mine-1").send().await;
    assert_eq!(named.header("x-request-id"), "mine-1");
    let bad = api.app("GET", "/v1/me").header("x-request-id", "not mine").send().await;
    assert!(bad.header("x-request-id").len() >= 32);
    let (a, b) = (api.request("GET", "/health").send().await, api.request("GET", "/health").send().await);
    assert_ne!(a.header("x-request-id"), b.header("x-request-id"));
}

#[actix_web::test]
async fn readiness_follows_the_tenant_and_health_does_not() {
    let api = Api::opening(false);
    let health = api.request("PATCH", "/health").send().await.ok("GET", "/health");
    assert_eq!((&health["hostId"], &health["pid"]), (&json!("host-1"), &json!(7)));
    let answer = api.request("GET", "/ready").send().await;
    assert_eq!(answer.status, 503);
    assert_eq!(
        answer.json(),
        json!({"status": "not_ready", "service": "nylorun-runtime", "checks": {"listener": true, "tenant": false}})
    );
    api.open(vec![]).await;
    let ready = api.request("GET", "/ready").send().await.ok("GET", "/ready");
    assert_eq!(ready["checks"], json!({"listener": true, "tenant": true, "store": true}));
    let several = (0..8).map(|_| api.request("GET", "/ready").send());
    for answer in futures_util::future::join_all(several).await {
        assert_eq!(answer.status, 200);
    }
    api.state.slot().close();
    assert_eq!(api.request("GET", "/ready").send().await.status, 503);
    assert_eq!(api.request("GET", "/health").send().await.status, 200);
}

#[actix_web::test]
async fn peers_with_refused_credentials_are_slowed_and_valid_keys_are_not() {
    let api = Arc::new(Api::start(vec![]).await);
    let began = std::time::Instant::now();
    let wrong = (0..130).map(|n| api.request("GET", "/v1/me").bearer(&format!("{n:064x}")).send());
    for answer in futures_util::future::join_all(wrong).await {
        assert_eq!(answer.text, OPAQUE);
    }
    assert!(began.elapsed().as_millis() >= 500, "{:?}", began.elapsed());
    // The peer is in debt now: its next refusal would take most of a second, its valid key does not.
    let (mut quickest, mut slowest) = (u128::MAX, 0);
    for _ in 0..5 {
        let began = std::time::Instant::now();
        assert_eq!(api.app("GET", "/v1/me").send().await.status, 200);
        quickest = quickest.min(began.elapsed().as_millis());
        slowest = slowest.max(began.elapsed().as_millis());
    }
    assert!(quickest < 300, "{quickest} to {slowest} ms");
}
