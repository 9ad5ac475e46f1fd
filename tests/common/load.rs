//! Load on a server that is killed under it, and the wait for the end of what it started.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel::sqlite::SqliteConnection;
use nylorun_actors::model::json::{Json, parse};
use serde_json::json;

use crate::common::Server;

/// What was answered with 200: session, idempotency key and turn.
pub type Accepted = Arc<Mutex<Vec<(String, String, String)>>>;

#[derive(Clone)]
pub struct Api {
    http: reqwest::Client,
    pub url: String,
    key: String,
}

impl Api {
    pub fn of(server: &Server) -> Self {
        let http = reqwest::Client::builder().timeout(Duration::from_secs(20)).build().expect("a client");
        Self { http, url: server.url.clone(), key: server.key.clone() }
    }

    /// Status and body; `None` when the server is gone.
    pub async fn call(&self, method: &str, path: &str, body: Option<Json>) -> Option<(u16, Json)> {
        let method = method.parse().expect("a method");
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        request = request.header("nylorun-protocol", "7").bearer_auth(&self.key);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, parse(&answer.bytes().await.ok()?).unwrap_or_default()))
    }

    pub async fn command(&self, session: &str, kind: &str, key: &str) -> Option<(u16, Json)> {
        let mut body = json!({ "type": kind, "requestId": "r", "idempotencyKey": key });
        if kind == "message" {
            body["content"] = json!("go");
        }
        self.call("POST", &format!("/v1/sessions/{session}/commands"), Some(body)).await
    }

    /// Registers an agent, has the fixture model answer, and opens the sessions `s0`, `s1`, …
    pub async fn prepare(&self, manifest: Json, sessions: usize) {
        let agent = manifest["id"].as_str().expect("an id").to_owned();
        let put = json!({ "requestId": "r", "manifest": manifest, "implementationVersion": "1" });
        assert_eq!(
            self.call("PUT", &format!("/v1/agents/{agent}"), Some(put)).await.expect("answered").0,
            200
        );
        let seed = json!({ "requestId": "r", "fixtureModel": true });
        assert_eq!(self.call("PUT", "/v1/tenant/config/seed", Some(seed)).await.expect("answered").0, 200);
        for n in 0..sessions {
            let open = json!({ "requestId": "r", "agentId": agent, "ownerUserId": "u" });
            let put = self.call("PUT", &format!("/v1/sessions/s{n}"), Some(open)).await;
            assert_eq!(put.expect("answered").0, 200);
        }
    }

    pub async fn status(&self, session: &str) -> Option<String> {
        let (_, view) = self.call("GET", &format!("/v1/sessions/{session}"), None).await?;
        view["status"].as_str().map(str::to_owned)
    }

    /// Sends one message after the other until the server dies; an uncertain turn is cancelled, so that the next starts.
    pub async fn load(self, session: String, round: usize, accepted: Accepted) {
        for n in 0.. {
            let key = format!("{round}-{n}");
            let Some((status, body)) = self.command(&session, "message", &key).await else { return };
            match status {
                200 => {
                    let turn = body["turnId"].as_str().expect("a turn").to_owned();
                    accepted.lock().expect("a lock").push((session.clone(), key, turn));
                }
                409 => {
                    if self.status(&session).await.as_deref() == Some("uncertain") {
                        let _ = self.command(&session, "cancel", &format!("c{key}")).await;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                other => panic!("{other}: {body}"),
            }
        }
    }
}

/// Waits until nothing runs any more.
pub async fn settle(api: &Api, sessions: usize) {
    let until = Instant::now() + Duration::from_secs(60);
    for n in 0..sessions {
        loop {
            let status = api.status(&format!("s{n}")).await.expect("answered");
            if ["completed", "failed", "cancelled", "uncertain", "idle"].contains(&status.as_str()) {
                break;
            }
            assert!(Instant::now() < until, "s{n} never ended: {status}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[derive(QueryableByName)]
struct EventLine {
    #[diesel(sql_type = Text)]
    body: String,
}

/// Every event of every session, each session's in order. No record has a gap.
pub fn events(db: &mut SqliteConnection) -> Vec<Json> {
    let lines: Vec<EventLine> =
        diesel::sql_query("SELECT body FROM events ORDER BY log_no, seq").load(db).expect("events");
    let events: Vec<Json> = lines.iter().map(|line| parse(line.body.as_bytes()).expect("JSON")).collect();
    let mut next: HashMap<&str, i64> = HashMap::new();
    for event in &events {
        let session = event["sessionId"].as_str().expect("a session");
        let seq = next.entry(session).or_default();
        assert_eq!(event["seq"].as_i64(), Some(*seq), "{session} has a gap");
        *seq += 1;
    }
    events
}

/// The seed of a run: printed, and taken from the environment to run it again.
pub fn seed() -> u64 {
    let given = std::env::var("NYLORUN_CRASH_SEED").ok().and_then(|s| s.parse().ok());
    let seed = given.unwrap_or_else(rand::random);
    println!("NYLORUN_CRASH_SEED={seed}");
    seed
}
