//! The request log (spec: http-api, section 1.3; security, section 14).

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};

use nylorun_actors::model::Json;
use nylorun_actors::testing::engine::Step;
use serde_json::json;

use super::artifacts::uploaded;
use super::support::{ADMIN, Api, KEY, WRONG, message};

/// Everything that was logged in this process, at the most talkative level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .init();
    log
});

fn text() -> String {
    String::from_utf8(LOG.0.lock().unwrap().clone()).unwrap()
}

/// The request lines of one request id. A line is written before its answer is sent.
fn lines(id: &str) -> Vec<Json> {
    let all = text();
    let lines = all.lines().filter_map(|line| nylorun_actors::model::json::parse(line.as_bytes()).ok());
    lines
        .map(|line| line["fields"].clone())
        .filter(|fields| fields["message"] == "request" && fields["request_id"] == id)
        .collect()
}

#[actix_web::test]
async fn each_request_is_one_line_without_ids_of_sessions_and_without_secrets() {
    LazyLock::force(&LOG);
    let api = Api::start(vec![Step::Model(0)]).await;
    api.session("session-name", "ada").await;
    let tenant = api.tenant_id().await;
    let get = |id: &str, path: &str| api.app("GET", path).header("x-request-id", id);
    get("log-1", "/v1/sessions/session-name/items?cursor=&agent=query-value").send().await;
    let line = lines("log-1");
    assert_eq!(line.len(), 1);
    let shown = |line: &Json| {
        (line["method"].clone(), line["path"].clone(), line["status"].clone(), line["tenant_id"].clone())
    };
    assert_eq!(shown(&line[0]), (json!("GET"), json!("/v1/sessions/:id/…"), json!(200), json!(tenant)));
    assert_eq!(line[0]["route"], "/v1/sessions/{sessionId}/items");
    assert!(line[0]["duration_ms"].is_number());
    get("log-2", "/v1/sessions/none").send().await;
    assert_eq!(lines("log-2")[0]["path"], "/v1/sessions/:id");
    assert_eq!(lines("log-2")[0]["code"], "request_rejected");
    for quiet in ["/health", "/ready"] {
        get("log-3", quiet).send().await;
    }
    assert_eq!(lines("log-3"), Vec::<Json>::new());

    let command =
        api.app("POST", "/v1/sessions/session-name/commands").json(&message("k", "prompt-of-tests"));
    assert_eq!(command.send().await.status, 200);
    api.request("GET", "/v1/me").bearer(WRONG).send().await;
    let made = api.admin("PUT", "/v1/admin/keys/ci").send().await.json();
    let model = json!({"requestId": "r", "idempotencyKey": "k", "provider": "custom", "model": "m",
        "baseUrl": "http://127.0.0.1:9", "auth": {"type": "api_key", "key": "secret-key-of-tests"}});
    assert_eq!(api.app("PUT", "/v1/tenant/model").json(&model).send().await.status, 200);
    api.until("session-name", "completed").await;
    let all = text();
    for line in all.lines().filter(|line| line.contains("\"nylorun")) {
        for secret in [
            KEY,
            ADMIN,
            WRONG,
            made["key"].as_str().unwrap(),
            "secret-key-of-tests",
            "prompt-of-tests",
            "query-value",
        ] {
            assert!(!line.contains(secret), "{line}");
        }
    }
    assert!(all.lines().any(|line| line.contains("\"nylorun")), "our own lines were looked at");
}

#[actix_web::test]
async fn the_token_of_a_link_is_in_no_line() {
    LazyLock::force(&LOG);
    let api = Api::start(vec![]).await;
    let id = uploaded(&api, "name=f", b"x").await;
    let made = api.app("POST", &format!("/v1/artifacts/{id}/links")).json(&json!({})).send().await.json();
    let path = made["path"].as_str().unwrap();
    for (request, path) in
        [("link-1", path.to_owned()), ("link-2", path.replacen("artifact", "%61rtifact", 1))]
    {
        let read = api.request("GET", &path).header("x-request-id", request).send().await;
        assert_eq!(read.status, 200);
        assert_eq!(lines(request)[0]["path"], "/v1/artifact-links/:token");
    }
    let signature = path.rsplit('.').next().unwrap();
    let all = text();
    assert!(!all.lines().any(|line| line.contains("\"nylorun") && line.contains(signature)));
}
