//! Random crashes, restarts, panics and store faults from a printed seed. The invariants of the design hold at the end
//! of every run: no accepted command is lost, no seq has a gap, nothing is recorded twice, no tool is called twice,
//! every turn ends.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nylorun_actors::messages::Panic;
use nylorun_actors::model::session::SessionStatus as S;
use nylorun_actors::ports::store::StoreError;
use nylorun_actors::testing::engine::{FakeEngine, Step};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::support::{World, sim};

fn engine() -> Arc<FakeEngine> {
    FakeEngine::of(vec![Step::Model(20), Step::Tool(20), Step::Model(20)])
}

/// One world under one seed; its trace tells the whole record.
async fn run(seed: u64) -> String {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut engines = vec![engine()];
    let mut world = World::seeded(engines[0].clone(), seed).await;
    let mut sessions = Vec::new();
    for n in 0..4 {
        sessions.push(world.open(&format!("s{n}")).await);
    }
    let mut accepted: BTreeMap<String, HashSet<String>> = BTreeMap::new();
    for step in 0..30 {
        let id = sessions[rng.random_range(0..sessions.len())].clone();
        if let Ok(receipt) = world.say(&id, &format!("k{step}")).await {
            accepted.entry(id.to_string()).or_default().insert(receipt.turn_id.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..60))).await;
        match rng.random_range(0..12) {
            0 => {
                engines.push(engine());
                world.crash(engines.last().unwrap().clone()).await;
            }
            1 => {
                engines.push(engine());
                world.restart(engines.last().unwrap().clone()).await;
            }
            2 => {
                if let Some(actor) = world.tenant.tree().session(&id) {
                    actor.do_send(Panic);
                }
            }
            3 => world.kill_harness().await,
            4 => world.tenant.tree().supervisor().unwrap().do_send(Panic),
            5 => {
                // The disk says no a few times.
                let left = AtomicU32::new(rng.random_range(1..4));
                world.store.inject(Arc::new(move |_| {
                    let fails =
                        left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
                    fails.then(|| StoreError::Unavailable("injected".into()))
                }));
            }
            _ => {}
        }
    }
    world.store.inject_nothing();
    let ended = [S::Idle, S::Completed, S::Uncertain, S::Failed];
    let mut trace = String::new();
    for id in &sessions {
        world.until(id, &ended).await;
        let record = world.record(id).await;
        let mut turns = HashSet::new();
        let mut outcomes = HashSet::new();
        for (seq, event) in record.iter().enumerate() {
            assert_eq!(event["seq"], seq, "seed {seed}: {id} has a gap");
            let turn = event["turnId"].as_str().unwrap_or_default().to_owned();
            match event["type"].as_str().unwrap() {
                "command.message" => assert!(turns.insert(turn), "seed {seed}: a command twice"),
                kind @ ("message.assistant" | "tool.completed") => {
                    let key = format!("{kind}:{turn}:{}", event["payload"]["invocationId"]);
                    assert!(outcomes.insert(key.clone()), "seed {seed}: {key} was recorded twice");
                }
                _ => {}
            }
            trace.push_str(&format!("{id} {seq} {} {} {}\n", event["epoch"], event["type"], event["time"]));
        }
        for turn in accepted.get(id.as_str()).into_iter().flatten() {
            assert!(turns.contains(turn), "seed {seed}: an accepted turn of {id} is not in the record");
        }
    }
    let mut tools: BTreeMap<String, u32> = BTreeMap::new();
    for engine in &engines {
        for (effect, count) in engine.calls() {
            if effect.contains(":tool:") {
                *tools.entry(effect).or_default() += count;
            }
        }
    }
    assert!(tools.values().all(|n| *n == 1), "seed {seed}: a tool was called twice: {tools:?}");
    world.tenant.stop().await;
    trace
}

fn trace_of(seed: u64) -> String {
    let (send, receive) = std::sync::mpsc::channel();
    sim(move || async move { send.send(run(seed).await).unwrap() });
    receive.recv().unwrap()
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    assert_eq!(trace_of(42), trace_of(42));
    assert_ne!(trace_of(42), trace_of(43));
}

#[test]
fn invariants_hold_under_random_crashes_panics_and_faults() {
    let seeds = std::env::var("NYLORUN_SIM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    let first = std::env::var("NYLORUN_SIM_FIRST").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    for seed in first..first + seeds {
        // Printed before it runs: a run that hangs or dies still names its seed.
        println!("seed {seed}");
        trace_of(seed);
    }
}
