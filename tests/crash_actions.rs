//! kill -9 at random moments while an Action endpoint refuses, hangs, breaks off, works in the background and goes away
//! itself, with a printed seed. The endpoint keeps a log of what reached it: each tool Action at most once under each
//! generation, and none after a generation that may have had an effect.

mod common;
#[path = "common/load.rs"]
mod load;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Options, Server};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use load::{Accepted, Api, events, settle};
use nylorun_actors::model::json::{Json, parse};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const KILLS: usize = 30;
const SESSIONS: usize = 12;

/// What the endpoint does with a delivery; the same for the same Action and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Answers,
    Slow,
    /// 503, and nothing was done.
    Refuses,
    /// No answer within the time-out.
    Hangs,
    /// Closes after it has read the request.
    BreaksOff,
    /// 500.
    Fails,
    /// 202, and a result a moment later, twice.
    Background,
    /// 202, and never a result.
    Forgets,
}

impl Manner {
    fn of(seed: u64, action: &str, generation: i64) -> Self {
        let mut hasher = DefaultHasher::new();
        (seed, action, generation).hash(&mut hasher);
        match hasher.finish() % 16 {
            0 | 1 => Self::Refuses,
            2 => Self::Hangs,
            3 => Self::BreaksOff,
            4 => Self::Fails,
            5..=7 => Self::Background,
            8 => Self::Forgets,
            9 | 10 => Self::Slow,
            _ => Self::Answers,
        }
    }
}

/// A delivery that has reached the endpoint whole.
#[derive(Clone, Debug)]
struct Seen {
    action: String,
    generation: i64,
    manner: Manner,
}

#[derive(Clone)]
struct Endpoint {
    seed: u64,
    log: Arc<Mutex<Vec<Seen>>>,
    /// Where the Runtime is now.
    runtime: Arc<Mutex<String>>,
    http: reqwest::Client,
}

impl Endpoint {
    async fn serve(self, listener: TcpListener) {
        loop {
            let Ok((socket, _)) = listener.accept().await else { return };
            let endpoint = self.clone();
            tokio::spawn(async move { endpoint.exchange(socket).await });
        }
    }

    async fn exchange(self, mut socket: TcpStream) -> Option<()> {
        let (head, body) = read_request(&mut socket).await?;
        let request = parse(&body).ok()?;
        let action = request["action"]["actionId"].as_str()?.to_owned();
        let generation = request["action"]["generation"].as_i64()?;
        let token = header(&head, "nylorun-signature")?;
        let manner = Manner::of(self.seed, &action, generation);
        self.log.lock().expect("a lock").push(Seen { action: action.clone(), generation, manner });
        let (status, answer) = match manner {
            Manner::Answers => ("200 OK", json!({ "done": true })),
            Manner::Slow => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                ("200 OK", json!({ "done": true }))
            }
            Manner::Refuses => ("503 Service Unavailable", json!({ "code": "busy", "message": "later" })),
            Manner::Hangs => {
                tokio::time::sleep(Duration::from_secs(3)).await;
                return None;
            }
            Manner::BreaksOff => return None,
            Manner::Fails => ("500 Internal Server Error", json!({})),
            Manner::Background => {
                let endpoint = self.clone();
                tokio::spawn(async move { endpoint.call_back(action, token).await });
                ("202 Accepted", json!({}))
            }
            Manner::Forgets => ("202 Accepted", json!({})),
        };
        let text = answer.to_string();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            text.len()
        );
        socket.write_all(head.as_bytes()).await.ok()?;
        socket.write_all(text.as_bytes()).await.ok()
    }

    /// Posts the result twice; a Runtime that is gone is tried again for a while.
    async fn call_back(self, action: String, token: String) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let body = json!({ "value": { "kind": "completed", "output": { "done": true } } }).to_string();
        let mut posted = 0;
        for _ in 0..60 {
            let url = self.runtime.lock().expect("a lock").clone();
            let url = format!("{url}/v1/actions/{}/result", action.replace(':', "%3A"));
            let request = self.http.post(url).header("nylorun-protocol", "7").bearer_auth(&token);
            let sent = request.header("content-type", "application/json").body(body.clone()).send().await;
            match sent.map(|answer| answer.status().as_u16()) {
                // Refused: the delivery is not the live one any more.
                Ok(200 | 409) => posted += 1,
                Ok(503) | Err(_) => {}
                Ok(other) => panic!("a callback was answered {other}"),
            }
            if posted == 2 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn read_request(socket: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length: usize = header(&head, "content-length")?.parse().ok()?;
    while bytes.len() < end + length {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some((head, bytes[end..end + length].to_vec()))
}

fn header(head: &str, name: &str) -> Option<String> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find_map(|(key, value)| key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned()))
}

fn agent() -> Json {
    json!({
        "manifestSchemaVersion": 4, "id": "worker",
        "metadata": { "nylorun.fixture": {
            "steps": [{ "toolCalls": [{ "name": "charge", "args": {} }] }, { "text": "done" }],
        } },
        "capabilities": [{ "id": "agent", "type": "agent", "tools": [{ "name": "charge", "inputSchema": { "type": "object" } }] }],
    })
}

async fn register(api: &Api, port: u16) {
    let endpoint = json!({
        "agentId": "worker", "url": format!("http://127.0.0.1:{port}/actions"), "implementationVersion": "1",
        "timeoutMs": 1_000, "maxConcurrent": 8,
    });
    let put = api.call("PUT", "/v1/endpoints", Some(json!({ "endpoints": [endpoint] }))).await;
    assert_eq!(put.expect("answered").0, 200);
}

#[test]
fn thirty_kills_deliver_no_tool_action_twice_and_none_after_one_whose_fate_is_unknown() {
    let seed = load::seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut server = Server::start_with(Options::default());
    let http = reqwest::Client::builder().timeout(Duration::from_secs(5)).build().expect("a client");
    let endpoint =
        Endpoint { seed, log: Arc::default(), runtime: Arc::new(Mutex::new(server.url.clone())), http };
    let (mut serving, port) = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let api = Api::of(&server);
        api.prepare(agent(), SESSIONS).await;
        register(&api, port).await;
        (tokio::spawn(endpoint.clone().serve(listener)), port)
    });
    let accepted = Accepted::default();
    for round in 0..KILLS {
        let api = Api::of(&server);
        let wait = Duration::from_millis(rng.random_range(100..700));
        let endpoint_dies = rng.random_bool(0.3);
        runtime.block_on(async {
            let loads: Vec<_> = (0..SESSIONS)
                .map(|n| tokio::spawn(api.clone().load(format!("s{n}"), round, accepted.clone())))
                .collect();
            if endpoint_dies {
                tokio::time::sleep(wait / 2).await;
                // Its port refuses for a while; what it has begun goes on.
                serving.abort();
                tokio::time::sleep(wait / 2).await;
                let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("its port again");
                serving = tokio::spawn(endpoint.clone().serve(listener));
            } else {
                tokio::time::sleep(wait).await;
            }
            server.kill9();
            for load in loads {
                load.await.expect("a load that failed");
            }
        });
        server.restart();
        *endpoint.runtime.lock().expect("a lock") = server.url.clone();
    }
    runtime.block_on(settle(&Api::of(&server), SESSIONS));
    assert!(server.terminate().success());
    let log = endpoint.log.lock().expect("a lock").clone();
    judge(&server.home().join("nylorun.db"), &log, &accepted.lock().expect("a lock"));
}

fn judge(database: &std::path::Path, log: &[Seen], accepted: &[(String, String, String)]) {
    let mut by_action: BTreeMap<&str, BTreeMap<i64, Manner>> = BTreeMap::new();
    for seen in log {
        let before = by_action.entry(&seen.action).or_default().insert(seen.generation, seen.manner);
        assert_eq!(
            before, None,
            "{} reached the endpoint twice under generation {}",
            seen.action, seen.generation
        );
    }
    for (action, generations) in &by_action {
        let last = generations.keys().max().copied().unwrap_or(0);
        for (generation, manner) in generations {
            let may_follow = *manner == Manner::Refuses;
            assert!(
                may_follow || *generation == last,
                "{action} was delivered again after {manner:?} ({generation})"
            );
        }
    }
    let mut db = SqliteConnection::establish(database.to_str().expect("a path")).expect("the database");
    let events = events(&mut db);
    let (mut commands, mut completed) = (HashSet::new(), HashSet::new());
    let mut ended: HashMap<String, u32> = HashMap::new();
    let mut uncertain = HashSet::new();
    for event in &events {
        let turn = event["turnId"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str().expect("a type") {
            "command.message" => drop(commands.insert(turn)),
            "turn.completed" | "turn.failed" | "turn.cancelled" => *ended.entry(turn).or_default() += 1,
            "action.uncertain" => drop(uncertain.insert(turn)),
            "action.completed" => {
                let action = event["payload"]["actionId"].as_str().expect("an Action").to_owned();
                assert!(by_action.contains_key(action.as_str()), "{action} never reached the endpoint");
                assert!(completed.insert(action.clone()), "{action} was completed twice");
            }
            _ => {}
        }
    }
    for (_, _, turn) in accepted {
        assert!(commands.contains(turn), "an accepted turn is lost: {turn}");
    }
    for turn in &commands {
        let ends = ended.get(turn).copied().unwrap_or(0);
        assert!(ends == 1 || (ends == 0 && uncertain.contains(turn)), "turn {turn} has {ends} ends");
    }
    println!(
        "{} turns, {} deliveries, {} Actions completed, {} uncertain",
        commands.len(),
        log.len(),
        completed.len(),
        uncertain.len()
    );
    assert!(completed.len() > KILLS / 3 && !uncertain.is_empty(), "the load was too small to mean anything");
    assert!(log.iter().any(|seen| seen.generation > 1), "nothing was delivered again");
}
