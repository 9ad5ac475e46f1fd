//! Step turns (model, a tool that the harness runs, model) through the whole tree over SQLite with full durability,
//! without HTTP: what the tree itself costs. Prints figures, asserts nothing.
//!
//! `cargo bench --bench turns -- [sessions] [seconds] [turns behind]`

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use nylorun::engine::agent::projection::PromptHash;
use nylorun::engine::agent::schema::Outputs;
use nylorun::engine::model::provider::{ProviderConfig, ProviderLimits, Providers};
use nylorun::engine::model::router::{ModelRouter, ProviderSource};
use nylorun::engine::run::{AgentEngine, EngineConfig, kit};
use nylorun::store::{OpenOptions, SqliteStore};
use nylorun_actors::model::command::{Command, CommandBody, MessageInput};
use nylorun_actors::model::ids::{SessionId, WorkerId};
use nylorun_actors::ports::NoTransport;
use nylorun_actors::ports::clock::{SystemClock, SystemEntropy};
use nylorun_actors::tenant::{Observed, OpenSession, PutAgent, Reach, Tenant, TenantConfig, TenantPorts};
use serde_json::json;

struct NoProvider;

impl ProviderSource for NoProvider {
    fn active(&self) -> LocalBoxFuture<'static, Result<Option<ProviderConfig>, String>> {
        async { Ok(None) }.boxed_local()
    }
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let mut number = |default: usize| args.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let (sessions, seconds, behind) = (number(64), number(5), number(0));
    actix::System::new().block_on(run(sessions, seconds, behind));
}

async fn run(sessions: usize, seconds: usize, behind: usize) {
    let home = tempfile::tempdir().expect("a temporary folder");
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let options = OpenOptions::new(home.path().join("bench.db"), clock.clone(), entropy.clone());
    let store = SqliteStore::open(options).expect("a store");
    let providers = Providers::new(ProviderLimits::default());
    let router = ModelRouter::new(Arc::new(NoProvider), providers);
    let mut engine = EngineConfig::new(kit::routed(router));
    engine.prompt_hash = PromptHash::Chained;
    let ports = TenantPorts {
        blobs: nylorun_actors::testing::MemoryBlobs::new(),
        store: store.handle(),
        clock,
        entropy,
        engine: Arc::new(AgentEngine::new(engine)),
        actions: Arc::new(NoTransport),
        schemas: Arc::new(Outputs),
        workspaces: None,
    };
    let tenant = Tenant::start(TenantConfig::new(WorkerId::from("bench")), ports).await.expect("a tenant");
    tenant.put_agent(agent()).await.expect("an agent");
    tenant.store().tx(|tx| tx.put_setting("model.fixture", "true")).await.expect("a setting");
    for n in 0..sessions {
        open(&tenant, n).await;
    }
    if behind > 0 {
        let began = Instant::now();
        drive(&tenant, sessions, Until::Turns(behind)).await;
        println!("{behind} turns behind each of {sessions} sessions after {:?}", began.elapsed());
    }
    let began = Instant::now();
    let mut times = drive(&tenant, sessions, Until::Time(began + Duration::from_secs(seconds as u64))).await;
    let took = began.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e3;
    println!(
        "{sessions} sessions, {behind} turns behind: {:.0} turns/s, p50 {:.2} ms, p95 {:.2} ms, p99 {:.2} ms",
        times.len() as f64 / took,
        at(0.5),
        at(0.95),
        at(0.99)
    );
    tenant.stop().await;
}

#[derive(Clone, Copy)]
enum Until {
    Turns(usize),
    Time(Instant),
}

/// Every session makes one turn after the other.
async fn drive(tenant: &Tenant, sessions: usize, until: Until) -> Vec<Duration> {
    let tasks = (0..sessions).map(|n| {
        let tenant = tenant.clone();
        actix::spawn(async move {
            let id = SessionId::from(format!("s{n}"));
            let mut times = Vec::new();
            let mut done = 0;
            let head = {
                let id = id.clone();
                tenant.store().read(move |r| r.head(&id)).await.expect("a head")
            };
            let cursor = (head > 0).then(|| nylorun_actors::model::event::cursor(&id, head - 1));
            let mut observer =
                tenant.observe(&id, &Reach::All, cursor.as_deref(), false).await.expect("a stream");
            loop {
                match until {
                    Until::Turns(turns) if done >= turns => break,
                    Until::Time(end) if Instant::now() >= end => break,
                    _ => {}
                }
                let began = Instant::now();
                tenant.command(&id, message(head, done), &Reach::All).await.expect("a receipt");
                loop {
                    match observer.next().await {
                        Some(Observed::Event { kind: "turn.completed", .. }) => break,
                        Some(Observed::Event { kind: "turn.failed", body, .. }) => panic!("{body}"),
                        Some(_) => {}
                        None => panic!("the stream ended"),
                    }
                }
                times.push(began.elapsed());
                done += 1;
            }
            times
        })
    });
    let mut all = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        all.extend(task.await.expect("a driver"));
    }
    all
}

fn agent() -> PutAgent {
    PutAgent {
        id: "assistant".into(),
        manifest: json!({
            "manifestSchemaVersion": 4, "id": "assistant",
            "metadata": { "nylorun.fixture": {
                "steps": [{ "toolCalls": [{ "name": "lookup", "args": { "id": 7 } }] }, { "text": "It is on its way." }],
                "tools": { "lookup": { "output": { "status": "shipped" } } },
            } },
            "capabilities": [{ "id": "agent", "type": "agent", "instructions": ["Answer shortly."],
                "tools": [{ "name": "lookup", "inputSchema": { "type": "object", "properties": { "id": { "type": "integer" } } } }] }],
        }),
        implementation_version: "1".into(),
        plugin_roots: None,
    }
}

async fn open(tenant: &Tenant, n: usize) {
    let open = OpenSession {
        id: SessionId::from(format!("s{n}")),
        agent_id: "assistant".into(),
        owner_user_id: "bench".into(),
        info: None,
        vault_ids: Vec::new(),
        credential_selections: Vec::new(),
        sandbox: None,
        creation: "{}".into(),
    };
    tenant.open_session(open, &Reach::All).await.expect("a session");
}

fn message(head: i64, n: usize) -> Command {
    let key = format!("k{head}-{n}");
    let sent =
        json!({ "type": "message", "requestId": "r", "idempotencyKey": key, "content": "Where is order 7?" });
    Command {
        request_id: "r".into(),
        idempotency_key: key,
        body: CommandBody::Message {
            input: MessageInput::Content("Where is order 7?".into()),
            manifest: None,
        },
        sent: sent.as_object().expect("an object").clone(),
    }
}
