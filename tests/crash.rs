//! kill -9 at random moments under load, with a printed seed. The record that is left is judged: no accepted command
//! is lost, no seq has a gap, no outcome is recorded twice, every turn ends; a model call cut by a kill is made again
//! and counted as a duplicate, a tool cut by a kill is uncertain and never run again.

mod common;
#[path = "common/load.rs"]
mod load;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use common::{Options, Server};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::SqliteConnection;
use load::{Accepted, Api, events, settle};
use nylorun_actors::model::json::Json;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

const KILLS: usize = 50;
const SESSIONS: usize = 8;

fn agent() -> Json {
    json!({
        "manifestSchemaVersion": 4, "id": "worker",
        "metadata": { "nylorun.fixture": {
            "steps": [{ "toolCalls": [{ "name": "work", "args": {} }], "delayMs": 15 }, { "text": "done", "delayMs": 15 }],
            "tools": { "work": { "output": "ok", "delayMs": 15 } },
        } },
        "capabilities": [{ "id": "agent", "type": "agent",
            "tools": [{ "name": "work", "inputSchema": { "type": "object" } }] }],
    })
}

#[test]
fn fifty_kills_under_load_lose_nothing_and_repeat_no_tool() {
    let mut rng = StdRng::seed_from_u64(load::seed());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut server = Server::start_with(Options::default());
    runtime.block_on(Api::of(&server).prepare(agent(), SESSIONS));
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
    runtime.block_on(settle(&Api::of(&server), SESSIONS));
    assert!(server.terminate().success());
    judge(&server.home().join("nylorun.db"), &accepted.lock().expect("a lock"));
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
    let events = events(&mut db);
    let mut commands = HashSet::new();
    let mut begun = HashSet::new();
    let mut ended: HashMap<String, u32> = HashMap::new();
    let mut outcomes = HashSet::new();
    for event in &events {
        let session = event["sessionId"].as_str().expect("a session").to_owned();
        let turn = event["turnId"].as_str().unwrap_or_default().to_owned();
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
