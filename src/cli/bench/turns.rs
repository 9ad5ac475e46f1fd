//! `bench turns`: sessions that send one message after the other and wait for each turn to be seen as completed on
//! their stream of events, as a real client does.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use nylorun_actors::model::json::{self, Json};
use secrecy::ExposeSecret;
use serde_json::json;

use super::server::{TemporaryServer, memory};
use super::wire::{Head, Scan, Wire};
use super::{Latencies, round};
use crate::cli::args::{BenchTurns, Global, TurnKind};
use crate::cli::client::Client;
use crate::cli::fault::{Fault, exit};
use crate::cli::out::Out;
use crate::cli::target::Wanted;

/// A turn that takes longer has hung.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the measurement and prints it.
///
/// # Errors
/// When the Runtime does not start, refuses, or a turn hangs.
pub async fn run(bench: &BenchTurns, global: &Global, out: &Out) -> Result<(), Fault> {
    let server = if bench.running || global.url.is_some() {
        None
    } else {
        Some(TemporaryServer::start(bench.dir.as_deref())?)
    };
    let wanted = match &server {
        Some(server) => Wanted { home: Some(server.home.path().to_owned()), ..Wanted::default() },
        None => global.wanted(),
    };
    let client = Client::new(wanted.tenant()?)?;
    let agent = prepare(&client, bench.kind).await?;
    let head = head(&client)?;
    let work =
        Work { bench, head, agent, run: uuid::Uuid::new_v4().simple().to_string(), next: AtomicU32::new(0) };
    let concurrency = bench.concurrency.unwrap_or(bench.sessions).min(bench.sessions);

    // Every session exists, and has its history behind it, before the clock starts.
    let ready = try_join_all((0..concurrency).map(|_| work.open_share())).await?;
    let opened: Vec<Session> = ready.into_iter().flatten().collect();
    let queue = std::cell::RefCell::new(opened);
    // A Runtime whose operator key is not at hand is measured without its commits.
    let operator = wanted.operator().ok().and_then(|target| Client::new(target).ok());
    let commits_before = commits(operator.as_ref()).await;
    let began = Instant::now();
    let figures = try_join_all((0..concurrency).map(|_| work.measure(&queue))).await?;
    let elapsed = began.elapsed().as_secs_f64();
    let commits = commits(operator.as_ref()).await.zip(commits_before).map(|(after, before)| after - before);

    let mut all = Figures::default();
    for figure in figures {
        all.add(figure);
    }
    let health = client.probe("/health").await.unwrap_or(Json::Null);
    let memory = health["pid"].as_u64().and_then(memory);
    let latencies = all.latencies.sorted();
    let turns = latencies.0.len() as f64;
    let report = json!({
        "bench": "turns",
        "kind": match bench.kind { TurnKind::Hello => "hello", TurnKind::Step => "step" },
        "sessions": bench.sessions, "turns": bench.turns, "concurrency": concurrency, "history": bench.history,
        "seconds": round(elapsed),
        "turnsPerSecond": round(turns / elapsed),
        "eventsPerSecond": round(all.events as f64 / elapsed),
        "commitsPerSecond": commits.map(|count| round(count / elapsed)),
        "p50Ms": latencies.at(500), "p95Ms": latencies.at(950), "p99Ms": latencies.at(990), "maxMs": latencies.at(1000),
        "notCompleted": all.others,
        "serverRssBytes": memory.map(|m| m.0), "serverPeakRssBytes": memory.map(|m| m.1),
        "server": if server.is_some() { "temporary" } else { "running" },
    });
    print(out, &report)?;
    if all.others > 0 {
        return Err(Fault::new(exit::FAILED, "bench", format!("{} turns did not complete", all.others)));
    }
    Ok(())
}

fn print(out: &Out, report: &Json) -> Result<(), Fault> {
    if out.is_json() {
        return out.json(report);
    }
    let mib = |field: &str| {
        report[field]
            .as_f64()
            .map_or_else(|| "unknown".to_owned(), |b| format!("{:.1} MiB", b / 1024.0 / 1024.0))
    };
    out.line(&format!(
        "{} turns: {} sessions of {} turns, {} at once, {} turns of history, {} s",
        report["kind"].as_str().unwrap_or_default(),
        report["sessions"],
        report["turns"],
        report["concurrency"],
        report["history"],
        report["seconds"]
    ))?;
    out.line(&format!("turns/s   {}", report["turnsPerSecond"]))?;
    out.line(&format!("events/s  {}", report["eventsPerSecond"]))?;
    if !report["commitsPerSecond"].is_null() {
        out.line(&format!("commits/s {}", report["commitsPerSecond"]))?;
    }
    out.line(&format!(
        "per turn  p50 {} ms, p95 {} ms, p99 {} ms, max {} ms",
        report["p50Ms"], report["p95Ms"], report["p99Ms"], report["maxMs"]
    ))?;
    out.line(&format!("resident  {}, peak {}", mib("serverRssBytes"), mib("serverPeakRssBytes")))
}

/// Commits of the Runtime's store so far, one for each group of transactions.
async fn commits(operator: Option<&Client>) -> Option<f64> {
    let answer = operator?.get("/v1/admin/actors").await.ok()?;
    let actors = answer["actors"].as_array()?;
    actors.iter().find_map(|actor| actor["state"]["storeCommits"].as_f64())
}

/// Registers the measured agent and makes sure that no real model would be asked.
async fn prepare(client: &Client, kind: TurnKind) -> Result<&'static str, Fault> {
    let model = client.get("/v1/tenant/model").await?;
    if model["configured"] == true {
        return Err(Fault::new(
            exit::USAGE,
            "bench",
            "this Runtime has a real model configured, and a measurement would cost money",
        )
        .fix("leave out --url and --running: a temporary Runtime is started"));
    }
    let request = || uuid::Uuid::new_v4().to_string();
    client
        .put("/v1/tenant/config/seed", Some(&json!({ "requestId": request(), "fixtureModel": true })))
        .await?;
    let (id, script, tools) = match kind {
        TurnKind::Hello => ("nylorun-bench-hello", json!({ "steps": [{ "text": "hello" }] }), json!([])),
        TurnKind::Step => (
            "nylorun-bench-step",
            json!({
                "steps": [{ "toolCalls": [{ "name": "lookup", "args": { "id": 7 } }] }, { "text": "shipped" }],
                "tools": { "lookup": { "output": { "status": "shipped" } } },
            }),
            json!([{
                "name": "lookup",
                "description": "Looks an order up",
                "inputSchema": { "type": "object", "properties": { "id": { "type": "integer" } } },
            }]),
        ),
    };
    let mut capability = json!({ "id": "bench", "type": "agent", "instructions": ["Measure."] });
    if kind == TurnKind::Step {
        capability["tools"] = tools;
    }
    let manifest = json!({
        "manifestSchemaVersion": 4, "id": id, "capabilities": [capability],
        "metadata": { "nylorun.fixture": script },
    });
    let body = json!({ "requestId": request(), "manifest": manifest, "implementationVersion": "bench" });
    client.put(&format!("/v1/agents/{id}"), Some(&body)).await?;
    Ok(id)
}

fn head(client: &Client) -> Result<Head, Fault> {
    let target = client.target();
    let host = target.url.strip_prefix("http://").filter(|host| !host.contains('/')).ok_or_else(|| {
        Fault::new(exit::USAGE, "bench", "only plain http URLs without a path can be measured")
    })?;
    let host = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    Ok(Head { host, key: target.key.expose_secret().to_owned() })
}

#[derive(Default)]
struct Figures {
    latencies: Latencies,
    events: u64,
    others: u64,
}

impl Figures {
    fn add(&mut self, other: Self) {
        self.latencies.0.extend(other.latencies.0);
        self.events += other.events;
        self.others += other.others;
    }
}

struct Session {
    id: String,
    calls: Wire,
    stream: Wire,
    scan: Scan,
    sent: u32,
}

struct Work<'a> {
    bench: &'a BenchTurns,
    head: Head,
    agent: &'static str,
    run: String,
    next: AtomicU32,
}

impl Work<'_> {
    /// Opens sessions until none is left.
    async fn open_share(&self) -> Result<Vec<Session>, Fault> {
        let mut opened = Vec::new();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.bench.sessions {
                return Ok(opened);
            }
            opened.push(self.open(index).await?);
        }
    }

    async fn open(&self, index: u32) -> Result<Session, Fault> {
        let id = format!("bench-{}-{index}", self.run);
        let mut calls = Wire::connect(&self.head.host).await?;
        let body = json!({ "requestId": id, "agentId": self.agent, "ownerUserId": "bench" }).to_string();
        let request = self.head.request("PUT", &format!("/v1/sessions/{id}"), Some(&body));
        expect(calls.call(&request).await?)?;
        let mut stream = Wire::connect(&self.head.host).await?;
        stream.open(&self.head.request("GET", &format!("/v1/sessions/{id}/events?cursor="), None)).await?;
        let mut session = Session { id, calls, stream, scan: Scan::default(), sent: 0 };
        for _ in 0..self.bench.history {
            self.turn(&mut session).await?;
        }
        Ok(session)
    }

    /// Takes sessions from the queue and runs all their turns.
    async fn measure(&self, queue: &std::cell::RefCell<Vec<Session>>) -> Result<Figures, Fault> {
        let mut figures = Figures::default();
        loop {
            let Some(mut session) = queue.borrow_mut().pop() else { return Ok(figures) };
            let (events, others) = (session.scan.events, session.scan.others);
            for _ in 0..self.bench.turns {
                let began = Instant::now();
                self.turn(&mut session).await?;
                figures.latencies.0.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
            }
            figures.events += session.scan.events - events;
            figures.others += session.scan.others - others;
        }
    }

    async fn turn(&self, session: &mut Session) -> Result<(), Fault> {
        session.sent += 1;
        let Session { id, sent, .. } = session;
        let body = format!(
            r#"{{"type":"message","requestId":"{sent}","idempotencyKey":"{sent}","content":"turn {sent}"}}"#
        );
        let request = self.head.request("POST", &format!("/v1/sessions/{id}/commands"), Some(&body));
        let work = async {
            let answer = match session.calls.call(&request).await {
                Ok(answer) => answer,
                // It stood idle for longer than the Runtime keeps connections; the key makes asking again safe.
                Err(_) => {
                    session.calls = Wire::connect(&self.head.host).await?;
                    session.calls.call(&request).await?
                }
            };
            expect(answer)?;
            let scan = &mut session.scan;
            while scan.completed + scan.others < u64::from(session.sent) {
                session.stream.piece(&mut |piece| scan.see(piece)).await?;
            }
            Ok(())
        };
        tokio::time::timeout(TURN_TIMEOUT, work).await.unwrap_or_else(|_| {
            Err(Fault::new(
                exit::FAILED,
                "bench",
                format!("a turn of {} did not end in {TURN_TIMEOUT:?}", session.id),
            ))
        })
    }
}

fn expect((status, body): (u16, Vec<u8>)) -> Result<(), Fault> {
    if status == 200 {
        return Ok(());
    }
    let body = json::parse(&body).unwrap_or(Json::Null);
    let message = body["message"].as_str().unwrap_or("no message").to_owned();
    Err(Fault::new(exit::FAILED, "bench", format!("the Runtime answered {status}: {message}")))
}
