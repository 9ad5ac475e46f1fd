//! The sentences of `docs/fencing.md`, one test each.

use std::sync::Arc;
use std::time::Duration;

use nylorun_actors::messages::Panic;
use nylorun_actors::model::effect::{EffectKind, EffectStatus};
use nylorun_actors::model::ids::WorkerId;
use nylorun_actors::model::session::SessionStatus as S;
use nylorun_actors::ports::engine::{IntentAnswer, OutcomeAnswer};
use nylorun_actors::ports::store::StoreError;
use nylorun_actors::rules::RunRefusal;
use nylorun_actors::rules::advance::{LostRun, Taken};
use nylorun_actors::rules::ownership::Claim;
use nylorun_actors::tenant::{ModelOnCrash, Tenant, TenantConfig, TenantPorts};
use nylorun_actors::testing::engine::{FakeEngine, Step};
use nylorun_actors::testing::{MemoryBlobs, SeededEntropy};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::bare::{Bare, LEASE_MS, claim};
use super::support::{World, sim};

fn lost<T: std::fmt::Debug>(result: Result<T, RunRefusal>, actual: Option<i64>) {
    match result {
        Err(RunRefusal::OwnershipLost(lost)) => assert_eq!(lost.actual, actual),
        other => panic!("the fence let it pass: {other:?}"),
    }
}

// When an epoch is minted, and why it cannot go back.

#[tokio::test]
async fn each_take_mints_the_next_epoch() {
    let bare = Bare::new().await;
    assert_eq!(bare.own("a").await.epoch, 1);
    assert!(bare.release("a", 1).await);
    assert_eq!(bare.own("b").await.epoch, 2, "after a release");
    bare.clock.advance_ms(LEASE_MS);
    assert_eq!(bare.own("c").await.epoch, 3, "after a lapse");
    assert_eq!(bare.head().await.epoch, 3);
}

#[tokio::test]
async fn a_renewal_a_release_and_a_settle_keep_the_epoch() {
    let bare = Bare::new().await;
    bare.own("a").await;
    assert!(bare.renew("a", 1).await);
    assert_eq!(bare.head().await.epoch, 1);
    assert!(bare.release("a", 1).await);
    assert_eq!(bare.head().await.epoch, 1);
    bare.own("a").await;
    bare.settle("a", 2).await.unwrap();
    assert_eq!(bare.head().await.epoch, 2);
}

#[tokio::test]
async fn a_take_that_is_busy_or_finds_nothing_to_do_mints_none() {
    let bare = Bare::new().await;
    bare.own("a").await;
    assert!(matches!(bare.take(claim("b")).await, Ok(Taken::Busy { .. })));
    assert_eq!(bare.head().await.epoch, 1);
    bare.settle("a", 1).await.unwrap();
    assert!(matches!(bare.take(claim("b")).await, Ok(Taken::Nothing)));
    assert_eq!(bare.head().await.epoch, 1);
}

#[tokio::test]
async fn an_epoch_never_goes_back_and_never_jumps() {
    let mut takes = 0;
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut bare = Bare::new().await;
        let mut seen = 0;
        for step in 0..60 {
            let worker = ["a", "b", "c"][rng.random_range(0..3)];
            // A holder of any epoch there ever was, and one that there never was.
            let epoch = rng.random_range(0..seen + 2);
            match rng.random_range(0..9) {
                0 | 1 => {
                    let dead = rng.random_bool(0.3);
                    let claim = Claim { own_is_dead: dead, others_are_dead: dead, ..claim(worker) };
                    drop(bare.take(claim).await);
                }
                2 => drop(bare.renew(worker, epoch).await),
                3 => drop(bare.release(worker, epoch).await),
                4 => drop(bare.settle(worker, epoch).await),
                5 => drop(bare.lose(worker, epoch).await),
                // A model call, since a tool in flight at a takeover would end the walk as `uncertain`.
                6 => drop(bare.intend(epoch, EffectKind::Model, &format!("m{step}")).await),
                7 => bare.cancel(&format!("c{step}")).await,
                _ => bare.clock.advance_ms(rng.random_range(-LEASE_MS..2 * LEASE_MS)),
            }
            let head = bare.head().await;
            assert!(head.epoch == seen || head.epoch == seen + 1, "seed {seed}: {seen} -> {}", head.epoch);
            seen = head.epoch;
            if head.status.accepts_message() {
                bare.say(&format!("k{step}")).await;
            }
        }
        let epochs: Vec<i64> = bare.events().await.iter().map(|e| e.1).collect();
        assert!(epochs.is_sorted(), "seed {seed}: {epochs:?}");
        takes += seen;
    }
    assert!(takes > 200, "the walks took the session only {takes} times");
}

// Who checks it.

#[tokio::test]
async fn each_write_of_a_stale_run_is_refused_and_writes_nothing() {
    let bare = Bare::new().await;
    bare.own("a").await;
    for name in ["one", "two"] {
        bare.intend(1, EffectKind::Model, name).await.unwrap();
    }
    bare.clock.advance_ms(LEASE_MS);
    bare.own("b").await;
    let before = bare.everything(&["one", "two", "three"]).await;
    lost(bare.intend(1, EffectKind::Tool, "three").await, Some(2));
    lost(bare.value(1, "one").await, Some(2));
    lost(bare.cut(1, "two").await, Some(2));
    lost(bare.settle("a", 1).await, Some(2));
    lost(bare.lose("a", 1).await, Some(2));
    assert_eq!(bare.everything(&["one", "two", "three"]).await, before);
}

#[tokio::test]
async fn a_stale_owner_neither_renews_nor_gives_back() {
    let bare = Bare::new().await;
    bare.own("a").await;
    bare.clock.advance_ms(LEASE_MS);
    // The same worker: its name does not help, the epoch is another.
    bare.own("a").await;
    let before = bare.everything(&[]).await;
    assert!(!bare.renew("a", 1).await);
    assert!(!bare.release("a", 1).await);
    assert_eq!(bare.everything(&[]).await, before);
}

#[tokio::test]
async fn the_fence_looks_at_the_epoch_and_not_at_the_clock() {
    let bare = Bare::new().await;
    bare.own("a").await;
    bare.clock.advance_ms(100 * LEASE_MS);
    assert_eq!(
        bare.intend(1, EffectKind::Model, "m").await,
        Ok(IntentAnswer::Execute { rejoin: false }),
        "nobody took the lapsed lease"
    );
    assert!(bare.renew("a", 1).await, "and it may still be renewed");
    assert!(matches!(bare.take(claim("b")).await, Ok(Taken::Busy { .. })));
}

#[tokio::test]
async fn a_session_that_is_gone_fences_its_run() {
    let bare = Bare::new().await;
    bare.own("a").await;
    bare.delete().await;
    lost(bare.intend(1, EffectKind::Model, "m").await, None);
    lost(bare.settle("a", 1).await, None);
}

#[test]
fn a_stalled_owner_that_comes_back_writes_nothing_and_the_new_owner_ends_the_turn() {
    sim(|| async {
        let slow = FakeEngine::of(vec![Step::Model(120_000)]);
        let world = World::new(slow.clone()).await;
        world.store.share();
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        // Another process opens the same store; the first one does not reach it for a while.
        let next = FakeEngine::of(vec![Step::Model(200_000)]);
        let shared = world.store.reopen();
        shared.share();
        let ports = TenantPorts {
            blobs: MemoryBlobs::new(),
            store: shared.handle(),
            clock: world.clock.clone(),
            entropy: Arc::new(SeededEntropy::new(99)),
            engine: next.clone(),
            ..world.tenant.ports().clone()
        };
        let mut config = TenantConfig::new(WorkerId::from("worker-other"));
        config.arbiters = 0;
        let _other = Tenant::start(config, ports).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((world.view(&id).await.status, next.runs().len()), (S::Running, 0), "it renews its lease");
        world.store.inject(Arc::new(|_| Some(StoreError::Unavailable("stalled".into()))));
        tokio::time::sleep(Duration::from_secs(50)).await;
        world.store.inject_nothing();
        // The first one's call ends at two minutes, while the second one makes the same call.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.types(&id).await, ["command.message"], "the first owner wrote after its time");
        let view = world.until(&id, &[S::Completed]).await;
        assert_eq!(view.uncertain_effects.len(), 0);
        let record = world.record(&id).await;
        let epochs: Vec<_> = record.iter().map(|e| e["epoch"].as_i64().unwrap()).collect();
        assert_eq!(epochs, [0, 2, 2, 2]);
        assert_eq!((slow.runs().len(), next.runs().len()), (1, 1));
    });
}

// What a dead owner is.

#[tokio::test]
async fn a_lease_keeps_others_out_until_the_moment_it_ends() {
    let bare = Bare::new().await;
    bare.own("a").await;
    bare.clock.advance_ms(LEASE_MS - 1);
    for worker in ["a", "b"] {
        assert!(matches!(bare.take(claim(worker)).await, Ok(Taken::Busy { .. })), "{worker}");
    }
    bare.clock.advance_ms(1);
    assert_eq!(bare.own("b").await.epoch, 2);
}

#[tokio::test]
async fn a_lease_of_this_process_is_dead_only_for_the_sessions_own_actor() {
    let bare = Bare::new().await;
    bare.own("a").await;
    let own = Claim { own_is_dead: true, ..claim("a") };
    assert!(matches!(bare.take(Claim { worker: "b".into(), ..own.clone() }).await, Ok(Taken::Busy { .. })));
    assert!(matches!(bare.take(own).await, Ok(Taken::Segment(segment)) if segment.epoch == 2));
}

#[tokio::test]
async fn on_an_exclusive_store_every_other_owner_is_dead() {
    let bare = Bare::new().await;
    bare.own("a").await;
    let alone = Claim { others_are_dead: true, ..claim("b") };
    assert!(matches!(bare.take(Claim { worker: "a".into(), ..alone.clone() }).await, Ok(Taken::Busy { .. })));
    assert!(matches!(bare.take(alone).await, Ok(Taken::Segment(segment)) if segment.epoch == 2));
}

// What happens to what was in flight.

#[tokio::test]
async fn a_takeover_marks_a_tool_in_flight_uncertain_under_the_new_epoch() {
    let bare = Bare::new().await;
    bare.own("a").await;
    bare.intend(1, EffectKind::Tool, "t").await.unwrap();
    bare.clock.advance_ms(LEASE_MS);
    assert!(matches!(bare.take(claim("b")).await, Ok(Taken::Nothing)), "an uncertain session does not run");
    assert_eq!(bare.effect_row("t").await.status, EffectStatus::Uncertain);
    assert_eq!(bare.events().await, [("command.message", 0), ("effect.uncertain", 2)]);
    let head = bare.head().await;
    assert_eq!((head.status, head.epoch, head.owner), (S::Uncertain, 2, None));
}

#[tokio::test]
async fn a_takeover_leaves_a_model_call_in_flight_to_be_made_again() {
    let bare = Bare::new().await;
    bare.own("a").await;
    bare.intend(1, EffectKind::Model, "m").await.unwrap();
    bare.clock.advance_ms(LEASE_MS);
    bare.own("b").await;
    assert_eq!(bare.intend(2, EffectKind::Model, "m").await, Ok(IntentAnswer::Execute { rejoin: true }));
    assert_eq!(bare.effect_row("m").await.attempts, 2);
}

#[tokio::test]
async fn by_setting_a_model_call_in_flight_is_uncertain_too() {
    let bare = Bare::new().await;
    bare.own("a").await;
    bare.intend(1, EffectKind::Model, "m").await.unwrap();
    bare.clock.advance_ms(LEASE_MS);
    drop(bare.take_as(claim("b"), ModelOnCrash::Uncertain).await.unwrap());
    assert_eq!(bare.effect_row("m").await.status, EffectStatus::Uncertain);
    assert_eq!(bare.head().await.status, S::Uncertain);
}

#[tokio::test]
async fn an_outcome_that_was_recorded_is_not_in_flight() {
    let bare = Bare::new().await;
    bare.own("a").await;
    bare.intend(1, EffectKind::Tool, "t").await.unwrap();
    bare.value(1, "t").await.unwrap();
    bare.clock.advance_ms(LEASE_MS);
    let segment = bare.own("b").await;
    assert_eq!(segment.outcomes.iter().map(|e| e.id.clone()).collect::<Vec<_>>(), [bare.effect("t")]);
    assert!(matches!(bare.intend(2, EffectKind::Tool, "t").await, Ok(IntentAnswer::Completed(_))));
}

#[tokio::test]
async fn a_tool_that_was_handed_out_is_never_handed_out_again() {
    let bare = Bare::new().await;
    bare.own("a").await;
    bare.intend(1, EffectKind::Tool, "t").await.unwrap();
    // In the same run, and after a lease that was given back in order, which is no takeover.
    assert_eq!(bare.intend(1, EffectKind::Tool, "t").await, Ok(IntentAnswer::Uncertain));
    bare.release("a", 1).await;
    assert!(
        matches!(bare.take(claim("b")).await, Ok(Taken::Nothing)),
        "an unknown fate waits for a decision"
    );
    let row = bare.effect_row("t").await;
    assert_eq!((row.status, row.attempts), (EffectStatus::Uncertain, 1));
}

#[tokio::test]
async fn a_late_value_does_not_undo_uncertain() {
    let bare = Bare::new().await;
    bare.own("a").await;
    bare.intend(1, EffectKind::Tool, "t").await.unwrap();
    assert_eq!(bare.cut(1, "t").await, Ok(OutcomeAnswer::Uncertain));
    assert_eq!(bare.value(1, "t").await, Ok(OutcomeAnswer::Uncertain));
    assert_eq!(bare.effect_row("t").await.outcome, None);
}

#[test]
fn what_the_run_of_a_dead_actor_still_says_is_not_heard() {
    sim(|| async {
        let engine = FakeEngine::of(vec![Step::Tool(2_000)]);
        let world = World::new(engine.clone()).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.tenant.tree().session(&id).unwrap().do_send(Panic);
        world.until(&id, &[S::Uncertain]).await;
        // The tool comes to its end, and its engine reports it.
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(world.types(&id).await, ["command.message", "effect.uncertain"]);
        assert!(engine.calls().values().all(|n| *n == 1));
    });
}

// Each of these is one commit.

#[tokio::test]
async fn taking_marking_and_starting_are_one_commit() {
    let bare = Bare::new().await;
    bare.own("a").await;
    bare.intend(1, EffectKind::Tool, "t").await.unwrap();
    bare.clock.advance_ms(LEASE_MS);
    let before = bare.everything(&["t"]).await;
    bare.memory.inject(Arc::new(|_| Some(StoreError::Full)));
    assert_eq!(bare.take(claim("b")).await.unwrap_err(), StoreError::Full);
    assert_eq!(bare.everything(&["t"]).await, before);
    bare.memory.inject_nothing();
    let commits = bare.count_commits();
    bare.take(claim("b")).await.unwrap();
    assert_eq!(commits(), 1);
    assert_eq!((bare.effect_row("t").await.status, bare.head().await.epoch), (EffectStatus::Uncertain, 2));
}

#[tokio::test]
async fn settling_and_giving_back_are_one_commit() {
    let bare = Bare::new().await;
    bare.own("a").await;
    let before = bare.everything(&[]).await;
    bare.memory.inject(Arc::new(|_| Some(StoreError::Full)));
    bare.settle("a", 1).await.unwrap_err();
    assert_eq!(bare.everything(&[]).await, before);
    bare.memory.inject_nothing();
    let commits = bare.count_commits();
    bare.settle("a", 1).await.unwrap();
    assert_eq!(commits(), 1);
    let head = bare.head().await;
    assert_eq!((head.status, head.owner, head.owner_expires_at), (S::Completed, None, None));
}

#[tokio::test]
async fn losing_a_run_marks_and_gives_back_in_one_commit() {
    let bare = Bare::new().await;
    bare.own("a").await;
    bare.intend(1, EffectKind::Tool, "t").await.unwrap();
    let commits = bare.count_commits();
    assert_eq!(bare.lose("a", 1).await, Ok(LostRun::Stop));
    assert_eq!(commits(), 1);
    let head = bare.head().await;
    assert_eq!((head.status, head.owner), (S::Uncertain, None));
    assert_eq!(bare.effect_row("t").await.status, EffectStatus::Uncertain);
}
