//! Every route × every kind of credential, as a golden table: status, code and details. What a handler itself answers
//! to an admitted caller is `in` here; the other files test it.

use std::fmt::Write as _;

use nylorun::identity::delivery::Grant;
use nylorun_actors::model::Json;

use super::support::{ADMIN, Api, KEY, Request, WRONG, golden};

const CREDENTIALS: [&str; 11] = [
    "none",
    "wrong",
    "jwt",
    "application",
    "application+origin",
    "subject:all",
    "subject:agents:read",
    "subject:vaults:own",
    "delivery",
    "delivery+origin",
    "admin",
];

fn with(request: Request, credential: &str, delivery: &str) -> Request {
    match credential {
        "none" => request,
        "wrong" => request.bearer(WRONG),
        "jwt" => request.bearer("eyJh.eyJp.c2ln"),
        "application" => request.bearer(KEY),
        "application+origin" => request.bearer(KEY).header("origin", "http://a.test"),
        "subject:all" => request
            .bearer(KEY)
            .subject("ada", "agents:read agents:write sessions:own tenant:settings sandboxes:write"),
        "subject:agents:read" => request.bearer(KEY).subject("ada", "agents:read"),
        "subject:vaults:own" => request.bearer(KEY).subject("ada", "vaults:own"),
        "delivery" => request.bearer(delivery),
        "delivery+origin" => request.bearer(delivery).header("origin", "http://a.test"),
        _ => request.bearer(ADMIN),
    }
}

#[actix_web::test]
async fn every_route_answers_every_credential_as_the_table_says() {
    let api = Api::start(vec![]).await;
    let grant = Grant { audience: "", action: Some("x"), agent: "a", generation: 1, body: b"", ttl_s: 900 };
    let delivery = api.signing().mint_delivery(grant).await.unwrap();
    let mut table = String::new();
    for document in [nylorun::api::tenant_document(), nylorun::api::operator_document()] {
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                let method = method.to_ascii_uppercase();
                writeln!(table, "{method} {path}").unwrap();
                for credential in CREDENTIALS {
                    let answer = row(&api, &method, path, credential, &delivery).await;
                    writeln!(table, "  {credential:<20} {answer}").unwrap();
                }
            }
        }
    }
    golden("matrix.txt", &table);
}

async fn row(api: &Api, method: &str, path: &str, credential: &str, delivery: &str) -> String {
    let concrete = path
        .replace("{sessionId}", "s")
        .replace("{agentId}", "a")
        .replace("{artifactId}", "af_none")
        .replace("{version}", "1")
        .replace("{token}", "t")
        .replace("{id}", "UPPER")
        .replace("{tool}", "bash")
        .replace("{sandboxId}", "box")
        .replace("{kid}", "UPPER");
    let mut request = with(api.request(method, &concrete), credential, delivery);
    if method != "GET" && method != "DELETE" {
        request = request.text("[]");
    }
    // The matrix must not stop its own Host, and its point is who is let in, not what happens then.
    let response = request.stream().await;
    let status = response.status().as_u16();
    if response.headers()["content-type"] != "application/json" {
        return format!("in {status}");
    }
    let text = response.text().await.unwrap();
    let body = nylorun_actors::model::json::parse(text.as_bytes()).unwrap();
    if body["status"] != "rejected" {
        return format!("in {status}");
    }
    // A body of the wrong shape, a session that is not there, a bad key name: the handler has spoken.
    let code = body["code"].as_str().unwrap();
    let missing = |what: &str| text.contains(&format!("No such {what}"));
    let handler = body["details"].get("issues").is_some()
        || ["session", "artifact", "sandbox"].into_iter().any(missing);
    if handler || text.contains("A key's name") {
        return format!("in {status} {code}");
    }
    match &body["details"] {
        Json::Null if text == super::support::OPAQUE => format!("{status} opaque"),
        Json::Null => format!("{status} {code}"),
        details => format!("{status} {code} {details}"),
    }
}
