//! Random crashes, restarts, panics and store faults from a printed seed. The invariants of the design hold at the end
//! of every run: no accepted command is lost, no seq has a gap, nothing is recorded twice, no tool is called twice,
//! every turn ends.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nylorun_actors::messages::Panic;
use nylorun_actors::model::session::SessionStatus as S;
use nylorun_actors::ports::action::Answered;
use nylorun_actors::ports::store::StoreError;
use nylorun_actors::rules::actions::DeliveryClaim;
use nylorun_actors::tenant::HarnessMode;
use nylorun_actors::testing::endpoints::{FakeEndpoints, Seen, ok, status};
use nylorun_actors::testing::engine::{FakeEngine, Step};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::actions::register;
use super::support::{World, sim};

/// Whose tool the turns of a world call.
#[derive(Clone, Copy)]
enum Tools {
    /// The harness's own.
    Harness,
    /// An Action endpoint's, which refuses, hangs, dies and works in the background.
    Endpoint,
}

impl Tools {
    fn engine(self) -> Arc<FakeEngine> {
        let tool = match self {
            Self::Harness => Step::Tool(20),
            Self::Endpoint => Step::Charge,
        };
        FakeEngine::of(vec![Step::Model(20), tool, Step::Model(20)])
    }
}

/// What an endpoint does with a delivery: the same for the same seed, Action and generation.
fn chance(seed: u64, seen: &Seen) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, &seen.action, seen.generation).hash(&mut hasher);
    hasher.finish() % 12
}

fn endpoints(seed: u64) -> FakeEndpoints {
    FakeEndpoints::new(move |seen| match chance(seed, seen) {
        0 => (30, status(503, &json!({}))),
        1 => (5, Answered::NotSent { code: "CONNECT", message: "refused".to_owned() }),
        2 => (40, Answered::Lost { code: "RESET", message: "reset".to_owned() }),
        3 => (90_000, ok(&json!(1))),
        4 => (3_000, ok(&json!(1))),
        5 => (20, status(500, &json!({}))),
        6 | 7 => (20, status(202, &json!({}))),
        _ => (20, ok(&json!(1))),
    })
}

/// Background results come some time after their 202, some twice, some never.
async fn call_back(world: &World, seed: u64, rng: &mut SmallRng, answered: &mut HashSet<(String, i64)>) {
    for seen in world.endpoints.seen() {
        let Some(action) = seen.action.clone().filter(|_| matches!(chance(seed, &seen), 6 | 7)) else {
            continue;
        };
        if !rng.random_bool(0.3) || answered.contains(&(action.clone(), seen.generation)) {
            continue;
        }
        let claim = DeliveryClaim {
            action: action.as_str().into(),
            token_action: action.clone(),
            generation: seen.generation,
            agent: "assistant".to_owned(),
        };
        let outcome = json!({ "value": { "kind": "completed", "output": 1 } });
        let times = rng.random_range(1..3);
        for _ in 0..times {
            // Refused ones are for a delivery that is not the live one any more.
            if world.tenant.action_result(claim.clone(), outcome.clone()).await.is_ok() {
                answered.insert((action.clone(), seen.generation));
            }
        }
    }
}

/// One world under one seed; its trace tells the whole record.
async fn run(seed: u64, kind: Tools) -> String {
    let engine = || kind.engine();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut engines = vec![engine()];
    let mut world = World::with(engines[0].clone(), seed, HarnessMode::InProcess, endpoints(seed)).await;
    register(&world).await;
    let mut answered = HashSet::new();
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
        call_back(&world, seed, &mut rng, &mut answered).await;
        match rng.random_range(0..13) {
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
            6 => {
                if let Some(endpoint) = world.tenant.tree().endpoint(&"assistant".into()) {
                    endpoint.do_send(Panic);
                }
            }
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
                kind @ ("message.assistant" | "tool.completed" | "action.completed" | "action.pending") => {
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
    check_deliveries(seed, &world);
    world.tenant.stop().await;
    trace
}

/// Each delivery reached its endpoint once, and none followed one whose fate is unknown.
fn check_deliveries(seed: u64, world: &World) {
    let mut generations: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
    for seen in world.endpoints.seen() {
        generations.entry(seen.action.clone().unwrap()).or_default().push(seen);
    }
    for (action, mut seen) in generations {
        seen.sort_by_key(|s| s.generation);
        let numbers: Vec<i64> = seen.iter().map(|s| s.generation).collect();
        let each: HashSet<i64> = numbers.iter().copied().collect();
        assert_eq!(
            each.len(),
            numbers.len(),
            "seed {seed}: {action} was delivered twice under one generation"
        );
        for (before, _) in seen.iter().zip(seen.iter().skip(1)) {
            let nothing_done = matches!(chance(seed, before), 0 | 1);
            assert!(
                nothing_done,
                "seed {seed}: {action} was delivered again after generation {}",
                before.generation
            );
        }
    }
}

fn trace_of(seed: u64, kind: Tools) -> String {
    let (send, receive) = std::sync::mpsc::channel();
    sim(move || async move { send.send(run(seed, kind).await).unwrap() });
    receive.recv().unwrap()
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    for kind in [Tools::Harness, Tools::Endpoint] {
        assert_eq!(trace_of(42, kind), trace_of(42, kind));
        assert_ne!(trace_of(42, kind), trace_of(43, kind));
    }
}

/// Runs the seeds that the environment asks for; answers their traces, one after the other.
fn each_seed(most: u64, kind: Tools) -> String {
    let seeds = std::env::var("NYLORUN_SIM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(most);
    let first = std::env::var("NYLORUN_SIM_FIRST").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut traces = String::new();
    for seed in first..first + seeds {
        // Printed before it runs: a run that hangs or dies still names its seed.
        println!("seed {seed}");
        traces.push_str(&trace_of(seed, kind));
    }
    traces
}

#[test]
fn invariants_hold_under_random_crashes_panics_and_faults() {
    each_seed(300, Tools::Harness);
}

#[test]
fn actions_reach_their_endpoint_once_under_each_generation_whatever_crashes() {
    let traces = each_seed(60, Tools::Endpoint);
    if std::env::var("NYLORUN_SIM_SEEDS").is_err() {
        for kind in ["action.completed", "action.uncertain", "action.delivery_failed"] {
            assert!(
                traces.contains(kind),
                "no seed came to {kind}: the simulation does not test what it should"
            );
        }
    }
}
