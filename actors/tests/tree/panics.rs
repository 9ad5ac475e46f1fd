//! An actor of each kind dies in the middle of its work: the work goes on within a second.

use std::time::Duration;

use nylorun_actors::messages::Panic;
use nylorun_actors::model::session::SessionStatus as S;
use nylorun_actors::testing::engine::{FakeEngine, Step};
use tokio::time::Instant;

use super::support::{World, sim};

#[test]
fn a_session_actor_that_dies_is_started_again_and_its_turn_ends() {
    sim(|| async {
        let engine = FakeEngine::of(vec![Step::Model(1), Step::Model(500), Step::Model(1)]);
        let world = World::new(engine.clone()).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.tenant.tree().session(&id).unwrap().do_send(Panic);
        let died = Instant::now();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let states = world.tenant.actors().await;
        assert!(states.iter().any(|a| a["id"] == "s" && a["state"]["state"] == "held"), "{states:?}");
        assert!(died.elapsed() < Duration::from_secs(1));
        world.until(&id, &[S::Completed]).await;
        let calls = engine.calls();
        assert_eq!(calls.len(), 3);
        assert_eq!(calls.values().sum::<u32>(), 4, "only the call in flight was made again");
    });
}

#[test]
fn a_session_actor_that_dies_during_a_tool_leaves_it_uncertain() {
    sim(|| async {
        let engine = FakeEngine::of(vec![Step::Model(1), Step::Tool(5_000), Step::Model(1)]);
        let world = World::new(engine.clone()).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.tenant.tree().session(&id).unwrap().do_send(Panic);
        let view = world.until(&id, &[S::Uncertain]).await;
        assert_eq!(view.uncertain_effects.len(), 1);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(engine.calls().values().all(|n| *n == 1));
        assert_eq!(world.view(&id).await.status, S::Uncertain);
    });
}

#[test]
fn a_harness_that_dies_is_started_again_and_its_runs_are_taken_over_at_once() {
    sim(|| async {
        let engine = FakeEngine::of(vec![Step::Model(500), Step::Model(1)]);
        let world = World::new(engine.clone()).await;
        let ids = [world.open("a").await, world.open("b").await];
        for id in &ids {
            world.say(id, "k").await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.kill_harness().await;
        let died = Instant::now();
        for id in &ids {
            world.until(id, &[S::Completed]).await;
        }
        assert!(died.elapsed() < Duration::from_millis(1_500), "{:?}", died.elapsed());
    });
}

#[test]
fn an_engine_that_panics_takes_only_its_run_and_is_given_up_after_five_attempts() {
    sim(|| async {
        let engine = FakeEngine::new(|start| {
            if start.checkpoint.session_id.as_str() == "bad" {
                vec![Step::Panic]
            } else {
                vec![Step::Model(300)]
            }
        });
        let world = World::new(engine.clone()).await;
        let (bad, good) = (world.open("bad").await, world.open("good").await);
        world.say(&good, "k").await.unwrap();
        world.say(&bad, "k").await.unwrap();
        world.until(&good, &[S::Completed]).await;
        let view = world.until(&bad, &[S::Failed]).await;
        assert!(view.error.unwrap().contains("5 attempts"));
        assert_eq!(engine.runs().len(), 6);
    });
}

#[test]
fn attempts_that_record_something_new_are_not_counted() {
    sim(|| async {
        // Each attempt records one more model call before it dies.
        let engine = FakeEngine::new(|start| {
            let done = start.outcomes.len();
            let mut steps = vec![Step::Model(1); done + 1];
            if done < 9 {
                steps.push(Step::Panic);
            }
            steps
        });
        let world = World::new(engine.clone()).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        world.until(&id, &[S::Completed]).await;
        assert_eq!(engine.runs().len(), 10);
        assert!(engine.calls().values().all(|n| *n == 1));
    });
}

#[test]
fn a_sweeper_that_dies_is_started_again() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![Step::Model(1)])).await;
        tokio::time::sleep(Duration::from_secs(12)).await;
        let passes = |states: &[serde_json::Value]| {
            states.iter().find(|a| a["kind"] == "sweeper").map(|a| a["state"]["passes"].as_u64().unwrap())
        };
        assert!(passes(&world.tenant.actors().await).unwrap() >= 2);
        world.kill_sweeper().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(passes(&world.tenant.actors().await), Some(1));
    });
}

#[test]
fn a_supervisor_that_dies_has_a_successor_and_its_sessions_live_on() {
    sim(|| async {
        let engine = FakeEngine::of(vec![Step::Model(300), Step::Model(1)]);
        let world = World::new(engine.clone()).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.tenant.tree().supervisor().unwrap().do_send(Panic);
        let other = world.open("other").await;
        world.say(&other, "k").await.unwrap();
        world.until(&other, &[S::Completed]).await;
        world.until(&id, &[S::Completed]).await;
        assert!(engine.calls().values().all(|n| *n == 1), "{:?}", engine.calls());
    });
}

#[test]
fn deaths_between_progress_are_forgiven() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![Step::Model(100), Step::Model(1)])).await;
        let id = world.open("s").await;
        for n in 0..8 {
            world.say(&id, &format!("k{n}")).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            world.tenant.tree().session(&id).unwrap().do_send(Panic);
            let view = world.until(&id, &[S::Completed, S::Failed]).await;
            assert_eq!(view.status, S::Completed, "turn {n}: {:?}", view.error);
        }
    });
}

#[test]
fn a_supervisors_successor_adopts_the_children_it_finds() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![Step::Model(1)])).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let count = || std::sync::Arc::strong_count(world.tenant.tree());
        let before = count();
        for _ in 0..5 {
            world.tenant.tree().supervisor().unwrap().do_send(Panic);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(count(), before, "every death of a supervisor leaves actors behind");
        let states = world.tenant.actors().await;
        let of = |kind: &str| states.iter().filter(|a| a["kind"] == kind).count();
        assert_eq!((of("harness"), of("sweeper")), (1, 1));
    });
}

#[test]
fn a_run_that_is_lost_is_dropped_at_its_harness() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![Step::Hang])).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.cancel(&id, "c").await;
        tokio::time::sleep(Duration::from_secs(40)).await;
        let states = world.tenant.actors().await;
        let harness = states.iter().find(|a| a["kind"] == "harness").unwrap();
        assert_eq!(harness["state"]["runs"].as_array().map(Vec::len), Some(0), "{states:?}");
    });
}

#[test]
fn a_clock_that_jumps_forward_loses_no_healthy_run() {
    sim(|| async {
        let engine = FakeEngine::of(vec![Step::Model(1), Step::Tool(120_000), Step::Model(1)]);
        let world = World::new(engine.clone()).await;
        let id = world.open("s").await;
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_millis(29_900)).await;
        world.clock.shift_ms(60_000);
        world.until(&id, &[S::Completed, S::Uncertain]).await;
        assert_eq!(world.view(&id).await.status, S::Completed);
        world.clock.shift_ms(-3_600_000);
        world.say(&id, "k2").await.unwrap();
        world.until(&id, &[S::Completed]).await;
        assert_eq!(engine.runs().len(), 2);
    });
}
