//! Runs that keep their lease while an Action is pending.

use std::time::Duration;

use nylorun_actors::model::Json;
use nylorun_actors::model::session::SessionStatus as S;
use nylorun_actors::rules::endpoints::Registration;
use nylorun_actors::testing::endpoints::{FakeEndpoints, ok};
use serde_json::json;

use super::actions::{charging, registration};
use super::support::{World, sim};

/// The turn of a world whose endpoint answers after so long: its record without what differs, and how many runs it took.
async fn held_for(ms: u64) -> (Vec<(String, Json)>, usize) {
    let (world, engine) = charging(FakeEndpoints::new(move |_| (ms, ok(&json!(7))))).await;
    let slow = Registration { timeout_ms: 840_000, ..registration("http://endpoint/") };
    world.tenant.register_endpoints(vec![slow]).await.unwrap();
    let id = world.open("s").await;
    world.say(&id, "k").await.unwrap();
    world.until(&id, &[S::Completed]).await;
    let record = world.record(&id).await;
    let turn = record[0]["turnId"].as_str().unwrap().to_owned();
    let history = record
        .iter()
        .map(|e| {
            let payload = e["payload"].to_string().replace(&turn, "TURN");
            (e["type"].as_str().unwrap().to_owned(), payload.parse().unwrap())
        })
        .collect();
    (history, engine.runs().len())
}

#[test]
fn a_hold_of_4_min_59_s_resumes_the_same_run_and_5_min_1_s_resumes_by_replay_with_the_same_history() {
    sim(|| async {
        let (short, runs_of_short) = held_for(299_000).await;
        let (long, runs_of_long) = held_for(301_000).await;
        assert_eq!((runs_of_short, runs_of_long), (1, 2));
        assert_eq!(short, long);
    });
}

/// What the harness's actor says that runs wait for.
async fn holds(world: &World) -> Vec<Json> {
    let actors = world.tenant.actors().await;
    let harnesses = actors.iter().filter(|actor| actor["kind"] == "harness");
    let runs = harnesses.flat_map(|harness| harness["state"]["runs"].as_array().unwrap().clone());
    runs.flat_map(|run| run["holds"].as_array().unwrap().clone()).collect()
}

#[test]
fn a_hold_is_seen_from_its_beginning_to_the_actions_outcome() {
    sim(|| async {
        let (world, _) = charging(FakeEndpoints::new(|_| (60_000, ok(&json!(7))))).await;
        let slow = Registration { timeout_ms: 840_000, ..registration("http://endpoint/") };
        world.tenant.register_endpoints(vec![slow]).await.unwrap();
        let id = world.open("s").await;
        assert_eq!(holds(&world).await, Vec::<Json>::new());
        world.say(&id, "k").await.unwrap();
        tokio::time::sleep(Duration::from_secs(40)).await;
        let held = holds(&world).await;
        assert_eq!(held.len(), 1, "{held:?}");
        assert_eq!(held[0]["effectId"], world.view(&id).await.actions[0]["actionId"]);
        assert!((39_000..=40_000).contains(&held[0]["heldMs"].as_u64().unwrap()), "{held:?}");
        world.until(&id, &[S::Completed]).await;
        assert_eq!(holds(&world).await, Vec::<Json>::new());
    });
}
