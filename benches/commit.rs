//! How many durable commits a second the SQLite store makes: `cargo bench --bench commit [-- FOLDER]`.
//!
//! Prints appends (one event of 400 bytes, one transaction) and step turns (nine transactions: command, take, start, two
//! effects with intent and outcome, settle, release) at several numbers of callers in flight, each with its own session.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nylorun::store::{OpenOptions, SqliteStore};
use nylorun_actors::model::effect::{EffectKind, EffectStatus};
use nylorun_actors::model::event::EventKind;
use nylorun_actors::model::ids::{EffectId, SessionId, TurnId, WorkerId};
use nylorun_actors::model::json::JsonText;
use nylorun_actors::model::session::{SessionDoc, SessionHead, SessionPin, SessionStatus};
use nylorun_actors::ports::clock::{SystemClock, SystemEntropy};
use nylorun_actors::ports::store::{CommandRow, EffectRow, StoreHandle, StoreResult};

const RUN: Duration = Duration::from_secs(3);

fn main() {
    // `cargo bench` passes `--bench`.
    let folder = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let folder = match &folder {
        Some(path) => tempfile::tempdir_in(path),
        None => tempfile::tempdir_in("."),
    };
    let folder = folder.expect("a folder to write to");
    println!("fdatasync of 4 KiB: {:.0}/s", syncs(folder.path()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .expect("a runtime");
    let path = folder.path().join("bench.db");
    let store = open(&path);
    runtime.block_on(async {
        for in_flight in [1, 8, 64, 512] {
            report("append", in_flight, append(&store.handle(), in_flight).await);
        }
        for in_flight in [1, 8, 64, 512] {
            report("step turn", in_flight, turns(&store.handle(), in_flight).await);
        }
        report("transaction that only reads", 64, looks(&store.handle()).await);
        report("read of ten events", 64, reads(&store.handle()).await);
    });
    let size = std::fs::metadata(&path).map_or(0, |m| m.len());
    drop(store);
    let start = Instant::now();
    let store = open(&path);
    println!("open of {} MB: {:.1} ms", size / 1_000_000, start.elapsed().as_secs_f64() * 1e3);
    drop(store);
}

fn open(path: &Path) -> Arc<SqliteStore> {
    SqliteStore::open(OpenOptions::new(path, Arc::new(SystemClock), Arc::new(SystemEntropy)))
        .expect("a store")
}

fn syncs(folder: &Path) -> f64 {
    let mut file = std::fs::File::create(folder.join("sync")).expect("a file");
    let start = Instant::now();
    let mut n = 0_u32;
    while start.elapsed() < Duration::from_secs(1) {
        file.write_all(&[0; 4096]).and_then(|()| file.sync_data()).expect("a sync");
        n += 1;
    }
    f64::from(n) / start.elapsed().as_secs_f64()
}

struct Rate {
    per_second: f64,
    p50: Duration,
    p99: Duration,
}

fn report(what: &str, in_flight: usize, rate: Rate) {
    println!(
        "{what:<28} {in_flight:>4} in flight: {:>9.0}/s  p50 {:>8.3} ms  p99 {:>8.3} ms",
        rate.per_second,
        rate.p50.as_secs_f64() * 1e3,
        rate.p99.as_secs_f64() * 1e3
    );
}

/// Runs `one(caller, round)` from each caller, again and again, for [`RUN`].
async fn measure<F, Fut>(in_flight: usize, one: F) -> Rate
where
    F: Fn(usize, u64) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = StoreResult<()>> + Send,
{
    static ROUND: AtomicU64 = AtomicU64::new(0);
    let start = Instant::now();
    let callers: Vec<_> = (0..in_flight)
        .map(|caller| {
            let one = one.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                while start.elapsed() < RUN {
                    let from = Instant::now();
                    one(caller, ROUND.fetch_add(1, Ordering::Relaxed)).await.expect("a commit");
                    times.push(from.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for caller in callers {
        times.extend(caller.await.expect("a caller"));
    }
    let per_second = times.len() as f64 / start.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    Rate { per_second, p50: at(0.5), p99: at(0.99) }
}

fn session(group: &str, caller: usize) -> SessionId {
    format!("{group}-{caller:08}-0000-4000-8000-000000000000").into()
}

async fn prepare(store: &StoreHandle, group: &'static str, in_flight: usize) {
    for caller in 0..in_flight {
        let done: StoreResult<()> = store
            .tx(move |t| {
                let head = SessionHead {
                    id: session(group, caller),
                    agent_id: "bench".into(),
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
                if t.session(&head.id)?.is_some() {
                    return Ok(());
                }
                t.insert_session(&head, &SessionPin::default(), &SessionDoc::default())
            })
            .await;
        done.expect("a session");
    }
}

async fn append(store: &StoreHandle, in_flight: usize) -> Rate {
    prepare(store, "append", in_flight).await;
    let payload: Arc<str> = format!(r#"{{"text":"{}"}}"#, "x".repeat(400)).into();
    let store = store.clone();
    measure(in_flight, move |caller, _| {
        let (store, payload) = (store.clone(), payload.clone());
        async move {
            store
                .tx(move |t| {
                    t.event(&session("append", caller), None, EventKind::ToolCompleted, &payload).map(|_| ())
                })
                .await
        }
    })
    .await
}

async fn looks(store: &StoreHandle) -> Rate {
    let store = store.clone();
    measure(64, move |caller, _| {
        let store = store.clone();
        async move { store.tx(move |t| t.session(&session("append", caller)).map(|_| ())).await }
    })
    .await
}

async fn reads(store: &StoreHandle) -> Rate {
    let store = store.clone();
    measure(64, move |caller, _| {
        let store = store.clone();
        async move { store.read(move |r| r.record(&session("append", caller), 100, 10).map(|_| ())).await }
    })
    .await
}

fn effect(session: &SessionId, turn: &TurnId, id: &EffectId, kind: EffectKind) -> EffectRow {
    EffectRow {
        id: id.clone(),
        session_id: session.clone(),
        turn_id: turn.clone(),
        kind,
        status: EffectStatus::Invoking,
        request_hash: "0".repeat(64),
        request: text(300),
        outcome: None,
        error: None,
        attempts: 1,
        slimmed: false,
    }
}

/// JSON text of about so many bytes.
fn text(bytes: usize) -> JsonText {
    JsonText::from_trusted(format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes)))
}

async fn turns(store: &StoreHandle, in_flight: usize) -> Rate {
    prepare(store, "turn", in_flight).await;
    let store = store.clone();
    measure(in_flight, move |caller, round| turn(store.clone(), session("turn", caller), round)).await
}

async fn turn(store: StoreHandle, id: SessionId, round: u64) -> StoreResult<()> {
    let turn = TurnId::from(format!("{round:08x}-0000-4000-8000-{round:012x}"));
    let worker = WorkerId::from("worker-bench-1-00000000");
    let doc = SessionDoc {
        checkpoint: Some(text(600)),
        state: Some(text(300)),
        turn_start_state: Some(text(300)),
        ..SessionDoc::default()
    };
    let (s, t, d) = (id.clone(), turn.clone(), doc.clone());
    store
        .tx::<_, nylorun_actors::ports::StoreError, _>(move |tx| {
            let head = tx.session(&s)?;
            let key = format!("key-{round}");
            assert!(tx.command(&s, &key)?.is_none());
            tx.put_session_doc(&s, &d)?;
            tx.put_status(&s, SessionStatus::Runnable, Some(&t), head.and_then(|h| h.last_turn_id).as_ref())?;
            tx.event(&s, Some(&t), EventKind::CommandMessage, text(200).as_str())?;
            tx.put_wake(&s, "message", Some(&format!("message:{t}:0")))?;
            tx.put_command(&s, &key, &CommandRow { digest: "0".repeat(64), response: text(150) })
        })
        .await?;
    let (s, t, w) = (id.clone(), turn.clone(), worker.clone());
    let epoch = store
        .tx::<_, nylorun_actors::ports::StoreError, _>(move |tx| {
            let epoch = tx.session(&s)?.map_or(0, |h| h.epoch) + 1;
            let until = tx.now().plus_ms(30_000);
            tx.put_owner(&s, Some(&w), epoch, Some(until))?;
            tx.put_status(&s, SessionStatus::Running, Some(&t), None)?;
            tx.delete_wakes(&s)?;
            Ok(epoch)
        })
        .await?;
    let (s, d) = (id.clone(), doc.clone());
    store
        .tx::<_, nylorun_actors::ports::StoreError, _>(move |tx| {
            assert_eq!(tx.session(&s)?.map(|h| h.epoch), Some(epoch));
            tx.put_session_doc(&s, &d)
        })
        .await?;
    for (kind, name) in [(EffectKind::Model, "model:0"), (EffectKind::Tool, "tool:0:0")] {
        let effect_id = EffectId::from(format!("{turn}:0:{name}"));
        let (s, t, e) = (id.clone(), turn.clone(), effect_id.clone());
        store
            .tx::<_, nylorun_actors::ports::StoreError, _>(move |tx| {
                assert_eq!(tx.session(&s)?.map(|h| h.epoch), Some(epoch));
                assert!(tx.effect(&e)?.is_none());
                tx.insert_effect(&effect(&s, &t, &e, kind))
            })
            .await?;
        let (s, t) = (id.clone(), turn.clone());
        store
            .tx::<_, nylorun_actors::ports::StoreError, _>(move |tx| {
                assert_eq!(tx.session(&s)?.map(|h| h.epoch), Some(epoch));
                assert!(tx.effect(&effect_id)?.is_some());
                tx.settle_effect(&effect_id, EffectStatus::Completed, Some(&text(300)), None)?;
                tx.event(&s, Some(&t), EventKind::ToolCompleted, text(300).as_str())
            })
            .await?;
    }
    let (s, t) = (id.clone(), turn.clone());
    store
        .tx::<_, nylorun_actors::ports::StoreError, _>(move |tx| {
            assert_eq!(tx.session(&s)?.map(|h| h.epoch), Some(epoch));
            tx.event(&s, Some(&t), EventKind::TranscriptUpdated, text(600).as_str())?;
            tx.event(&s, Some(&t), EventKind::TurnCompleted, text(200).as_str())?;
            tx.put_session_doc(&s, &doc)?;
            tx.put_status(&s, SessionStatus::Completed, None, Some(&t))?;
            tx.slim_model_effects(&s, &t)
        })
        .await?;
    store.tx(move |tx| tx.put_owner(&id, None, epoch, None)).await
}
