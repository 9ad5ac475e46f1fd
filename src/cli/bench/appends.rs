//! `bench appends`: one event a transaction, straight into a temporary SQLite store with full durability. What is
//! measured is the writer: group commit, the record, and the disk.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use nylorun_actors::model::event::EventKind;
use nylorun_actors::model::ids::{AgentId, SessionId};
use nylorun_actors::model::session::{SessionDoc, SessionHead, SessionPin, SessionStatus};
use nylorun_actors::ports::clock::{SystemClock, SystemEntropy};
use nylorun_actors::ports::store::{Store as _, StoreHandle, StoreResult};
use serde_json::json;

use super::server::Scratch;
use super::{Latencies, round};
use crate::cli::args::BenchAppends;
use crate::cli::fault::{Fault, exit};
use crate::cli::out::Out;
use crate::store::{OpenOptions, SqliteStore};

/// A payload as large as an ordinary event's.
const PAYLOAD: &str = r#"{"invocationId":"00000000-0000-4000-8000-000000000000","text":"Your order has left the warehouse.","toolCalls":[]}"#;

/// Runs the measurement and prints it.
///
/// # Errors
/// When the store does not open or refuses.
pub async fn run(bench: &BenchAppends, out: &Out) -> Result<(), Fault> {
    let scratch = Scratch::make(bench.dir.as_deref())?;
    let options =
        OpenOptions::new(scratch.path().join("bench.db"), Arc::new(SystemClock), Arc::new(SystemEntropy));
    let store = SqliteStore::open(options).map_err(|error| told(&error))?;
    let handle = store.handle();
    for index in 0..bench.sessions {
        open(&handle, session(index)).await.map_err(|error| told(&error))?;
    }

    let began = Instant::now();
    let until = began + Duration::from_secs(u64::from(bench.seconds));
    let next = Cell::new(0_u32);
    let latencies = try_join_all((0..bench.in_flight).map(|_| append(bench, &handle, &next, until)))
        .await
        .map_err(|error| told(&error))?;
    let elapsed = began.elapsed().as_secs_f64();
    store.close();

    let all = Latencies(latencies.into_iter().flatten().collect()).sorted();
    // Counts are far below 2^52.
    let count = all.0.len() as f64;
    let report = json!({
        "bench": "appends",
        "inFlight": bench.in_flight, "sessions": bench.sessions, "seconds": round(elapsed),
        "appends": all.0.len(), "appendsPerSecond": round(count / elapsed),
        "p50Ms": all.at(500), "p95Ms": all.at(950), "p99Ms": all.at(990), "maxMs": all.at(1000),
        "directory": scratch.path().parent().map(|path| path.display().to_string()),
    });
    if out.is_json() {
        return out.json(&report);
    }
    out.line(&format!(
        "appends: {} in flight, {} sessions, {} s",
        report["inFlight"], report["sessions"], report["seconds"]
    ))?;
    out.line(&format!("appends/s  {}", report["appendsPerSecond"]))?;
    out.line(&format!(
        "each       p50 {} ms, p95 {} ms, p99 {} ms, max {} ms",
        report["p50Ms"], report["p95Ms"], report["p99Ms"], report["maxMs"]
    ))
}

/// One caller: the next append when the one before it is durable.
async fn append(
    bench: &BenchAppends,
    store: &StoreHandle,
    next: &Cell<u32>,
    until: Instant,
) -> StoreResult<Vec<u64>> {
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let id = session(next.get() % bench.sessions);
        next.set(next.get().wrapping_add(1));
        let began = Instant::now();
        store
            .tx(move |tx| -> StoreResult<i64> { tx.event(&id, None, EventKind::MessageAssistant, PAYLOAD) })
            .await?;
        latencies.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    Ok(latencies)
}

fn session(index: u32) -> SessionId {
    SessionId::from(format!("bench-{index}"))
}

async fn open(store: &StoreHandle, id: SessionId) -> StoreResult<()> {
    store
        .tx(move |tx| -> StoreResult<()> {
            let head = SessionHead {
                id,
                agent_id: AgentId::from("bench"),
                owner_user_id: "bench".to_owned(),
                sandbox_id: None,
                manifest_hash: "0".repeat(64),
                status: SessionStatus::Idle,
                active_turn_id: None,
                last_turn_id: None,
                owner: None,
                epoch: 0,
                owner_expires_at: None,
            };
            let pin = SessionPin { created_at: tx.now(), ..SessionPin::default() };
            tx.insert_session(&head, &pin, &SessionDoc::default())
        })
        .await
}

fn told(error: &dyn std::error::Error) -> Fault {
    Fault::new(exit::FAILED, "bench", error.to_string())
}
