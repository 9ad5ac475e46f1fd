//! kill -9 at random moments under load, with a printed seed. The record that is left is judged: no accepted command
//! is lost, no seq has a gap, no outcome is recorded twice, every turn ends; a model call cut by a kill is made again
//! and counted as a duplicate, a tool cut by a kill is uncertain and never run again.

mod common;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Options, Server};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::SqliteConnection;
use nylorun_actors::model::json::{Json, parse};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

const KILLS: usize = 50;
const SESSIONS: usize = 8;

/// What was answered with 200: session, idempotency key and turn.
type Accepted = Arc<Mutex<Vec<(String, String, String)>>>;

#[derive(Clone)]
struct Api {
    http: reqwest::Client,
    url: String,
    key: String,
}

impl Api {
    fn of(server: &Server) -> Self {
        let http = reqwest::Client::builder().timeout(Duration::from_secs(20)).build().expect("a client");
        Self { http, url: server.url.clone(), key: server.key.clone() }
    }

    /// Status and body; `None` when the server is gone.
    async fn call(&self, method: &str, path: &str, body: Option<Json>) -> Option<(u16, Json)> {
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

    async fn command(&self, session: &str, kind: &str, key: &str) -> Option<(u16, Json)> {
        let mut body = json!({ "type": kind, "requestId": "r", "idempotencyKey": key });
        if kind == "message" {
            body["content"] = json!("go");
        }
        self.call("POST", &format!("/v1/sessions/{session}/commands"), Some(body)).await
    }

    async fn prepare(&self) {
        let manifest = json!({
            "manifestSchemaVersion": 4, "id": "worker",
            "metadata": { "nylorun.fixture": {
                "steps": [{ "toolCalls": [{ "name": "work", "args": {} }], "delayMs": 15 }, { "text": "done", "delayMs": 15 }],
                "tools": { "work": { "output": "ok", "delayMs": 15 } },
            } },
            "capabilities": [{ "id": "agent", "type": "agent",
                "tools": [{ "name": "work", "inputSchema": { "type": "object" } }] }],
        });
        let put = json!({ "requestId": "r", "manifest": manifest, "implementationVersion": "1" });
        assert_eq!(self.call("PUT", "/v1/agents/worker", Some(put)).await.expect("answered").0, 200);
        let seed = json!({ "requestId": "r", "fixtureModel": true });
        assert_eq!(self.call("PUT", "/v1/tenant/config/seed", Some(seed)).await.expect("answered").0, 200);
        for n in 0..SESSIONS {
            let open = json!({ "requestId": "r", "agentId": "worker", "ownerUserId": "u" });
            assert_eq!(
                self.call("PUT", &format!("/v1/sessions/s{n}"), Some(open)).await.expect("answered").0,
                200
            );
        }
    }

    async fn status(&self, session: &str) -> Option<String> {
        let (_, view) = self.call("GET", &format!("/v1/sessions/{session}"), None).await?;
        view["status"].as_str().map(str::to_owned)
    }

    /// Sends one message after the other until the server dies; an uncertain turn is cancelled, so that the next starts.
    async fn load(self, session: String, round: usize, accepted: Accepted) {
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

#[test]
fn fifty_kills_under_load_lose_nothing_and_repeat_no_tool() {
    let seed =
        std::env::var("NYLORUN_CRASH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    println!("NYLORUN_CRASH_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut server = Server::start_with(Options::default());
    runtime.block_on(Api::of(&server).prepare());
    let accepted = Accepted::default();
    for round in 0..KILLS {
        let api = Api::of(&server);
        let wait = Duration::from_millis(rng.random_range(20..350));
        runtime.block_on(async {
            let loads: Vec<_> = (0..SESSIONS)
                .map(|n| tokio::spawn(api.clone().load(format!("s{n}"), round, accepted.clone())))
                .collect();
            tokio::time::sleep(wait).await;
            server.kill9();
            for load in loads {
                load.await.expect("a load that failed");
            }
        });
        server.restart();
    }
    runtime.block_on(settle(&Api::of(&server)));
    assert!(server.terminate().success());
    judge(&server.home().join("nylorun.db"), &accepted.lock().expect("a lock"));
}

/// Waits until nothing runs any more.
async fn settle(api: &Api) {
    let until = Instant::now() + Duration::from_secs(60);
    for n in 0..SESSIONS {
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

#[derive(QueryableByName)]
struct EffectLine {
    #[diesel(sql_type = Text)]
    id: String,
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = BigInt)]
    attempts: i64,
}

#[derive(QueryableByName)]
struct UsageLine {
    #[diesel(sql_type = Text)]
    effect_key: String,
}

fn judge(database: &std::path::Path, accepted: &[(String, String, String)]) {
    let mut db = SqliteConnection::establish(database.to_str().expect("a path")).expect("the database");
    let events: Vec<EventLine> =
        diesel::sql_query("SELECT body FROM events ORDER BY log_no, seq").load(&mut db).expect("events");
    let mut next: HashMap<String, i64> = HashMap::new();
    let mut commands = HashSet::new();
    let mut begun = HashSet::new();
    let mut ended: HashMap<String, u32> = HashMap::new();
    let mut outcomes = HashSet::new();
    for line in &events {
        let event = parse(line.body.as_bytes()).expect("JSON");
        let session = event["sessionId"].as_str().expect("a session").to_owned();
        let turn = event["turnId"].as_str().unwrap_or_default().to_owned();
        let seq = next.entry(session.clone()).or_default();
        assert_eq!(event["seq"].as_i64(), Some(*seq), "{session} has a gap");
        *seq += 1;
        match event["type"].as_str().expect("a type") {
            "command.message" => {
                let key = event["payload"]["idempotencyKey"].as_str().expect("a key").to_owned();
                begun.insert(turn.clone());
                assert!(commands.insert((session, key, turn)), "a command was recorded twice");
            }
            "turn.completed" | "turn.failed" | "turn.cancelled" => *ended.entry(turn).or_default() += 1,
            kind @ ("message.assistant" | "tool.completed") => {
                let what = format!("{kind} {turn} {}", event["payload"]["invocationId"]);
                assert!(outcomes.insert(what.clone()), "{what} was recorded twice");
            }
            _ => {}
        }
    }
    for command in accepted {
        assert!(commands.contains(command), "an accepted command is lost: {command:?}");
    }
    let effects: Vec<EffectLine> =
        diesel::sql_query("SELECT id, kind, status, attempts FROM effects").load(&mut db).expect("effects");
    let uncertain_turns: HashSet<String> = effects
        .iter()
        .filter(|e| e.status == "uncertain")
        .map(|e| e.id.split(':').next().unwrap_or_default().to_owned())
        .collect();
    for turn in &begun {
        let ends = ended.get(turn).copied().unwrap_or(0);
        assert!(ends == 1 || (ends == 0 && uncertain_turns.contains(turn)), "turn {turn} has {ends} ends");
    }
    let mut repeated = HashSet::new();
    for effect in &effects {
        assert_ne!(effect.status, "invoking", "{} is still in flight", effect.id);
        match effect.kind.as_str() {
            "tool" => assert_eq!(effect.attempts, 1, "tool {} was handed out again", effect.id),
            _ if effect.attempts > 1 && effect.status == "completed" => {
                repeated.insert(effect.id.clone());
            }
            _ => {}
        }
    }
    let usage: Vec<UsageLine> =
        diesel::sql_query("SELECT effect_key FROM model_usage WHERE duplicate").load(&mut db).expect("usage");
    let duplicates: HashSet<String> = usage.into_iter().map(|u| u.effect_key).collect();
    assert_eq!(duplicates, repeated, "a model call that was made again is counted as a duplicate");
    println!(
        "{} turns begun, {} accepted, {} events, {} model calls made again, {} uncertain effects",
        begun.len(),
        accepted.len(),
        events.len(),
        repeated.len(),
        effects.iter().filter(|e| e.status == "uncertain").count()
    );
    assert!(begun.len() > KILLS, "the load was too small to mean anything");
    assert!(!repeated.is_empty() && !uncertain_turns.is_empty(), "no kill hit a call in flight");
}
