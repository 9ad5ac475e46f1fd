//! Peers that are silent, that do not read, and that are many (spec: harness-api, section 4; DESIGN.md, section 4).

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::peer::{Got, PATIENCE, Peer, Run, frame};
use super::world::World;

/// Resident memory of this process, bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

async fn impatient() -> World {
    World::with(|config| {
        config.harness_ping_ms = 200;
        config.harness_silence_ms = 1_500;
    })
    .await
}

#[actix_web::test]
async fn a_silent_peer_is_dropped_and_its_run_goes_on_elsewhere() {
    let world = impatient().await;
    let session = world.session("s-silent").await;
    let mut silent = Peer::ready(world.address).await;
    let run = silent.lease().await;
    let mut other = Peer::ready(world.address).await;
    // The silent one reads, and says nothing, not even a pong.
    let waiting = other.ask("lease", json!({})).await;
    let drained = actix_web::rt::spawn(async move {
        let mut pings = 0;
        loop {
            match silent.receive().await {
                Got::Ping => pings += 1,
                Got::Close(code, reason) => return (pings, code, reason),
                other => panic!("{other:?}"),
            }
        }
    });
    let again = Run::of(&other.answer(waiting).await.unwrap());
    assert_eq!(again.turn, run.turn);
    let (pings, code, reason) = drained.await.unwrap();
    assert_eq!((code, reason.as_str()), (1001, "silent for too long"));
    assert!(pings >= 3, "core asks for signs of life: {pings}");
    other.call("turn.completed", again.completed(0, &[])).await.unwrap();
    world.until(&session, "completed").await;
}

#[actix_web::test]
async fn a_peer_that_only_answers_pings_is_kept() {
    let world = impatient().await;
    let mut peer = Peer::ready(world.address).await;
    let until = Instant::now() + Duration::from_millis(5_000);
    let mut pings = 0;
    while Instant::now() < until {
        match peer.receive().await {
            Got::Ping => {
                pings += 1;
                peer.frame(0x8A, b"").await;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(pings >= 5, "{pings}");
    assert_eq!(peer.call("lease", json!({"slots": 0})).await, Err("invalid".to_owned()));
}

#[actix_web::test]
async fn a_peer_that_does_not_read_is_dropped_in_its_bound_and_holds_no_more_than_its_queue() {
    let world = impatient().await;
    let session = world.session("s-stall").await;
    let mut stalled = Peer::ready(world.address).await;
    let first = stalled.lease().await;
    let entry = json!({"kind": "input", "text": "x".repeat(16 * 1024 * 1024)});
    stalled.call("turn.completed", first.completed(0, &[entry])).await.unwrap();
    world.say(&session, "again").await;
    let run = stalled.lease().await;
    let before = resident();

    // Four answers of 16 MiB, none of which is read; its own pings keep coming, so it is not silent.
    for n in 0..4 {
        let text =
            json!({"t": "req", "id": 100 + n, "m": "transcript.read", "p": {"runId": run.id}}).to_string();
        stalled.bytes(&frame(0x81, text.as_bytes())).await;
    }
    let began = Instant::now();
    let (mut highest, mut dropped) = (before, None);
    while began.elapsed() < PATIENCE {
        highest = highest.max(resident());
        stalled.push(&frame(0x89, b"alive")).await;
        if world.connected().await == 0 && world.listener.connections() == 0 {
            dropped = Some(began.elapsed());
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let dropped = dropped.expect("the connection is dropped");
    assert!(dropped > Duration::from_millis(1_000), "it had its time: {dropped:?}");
    assert!(dropped < Duration::from_secs(30), "{dropped:?}");
    // The queue of 64 MiB, and what an answer takes while it is made.
    let grown = highest.saturating_sub(before) / (1024 * 1024);
    assert!(grown < 160, "{grown} MiB");

    let mut other = Peer::ready(world.address).await;
    let again = other.lease().await;
    assert_eq!(again.turn, run.turn);
    other.call("turn.completed", again.completed(1, &[])).await.unwrap();
    world.until(&session, "completed").await;
}

#[actix_web::test]
async fn a_queue_that_is_full_ends_the_connection_at_once() {
    let world = World::start().await;
    let session = world.session("s-full").await;
    let mut greedy = Peer::ready(world.address).await;
    let first = greedy.lease().await;
    let entry = json!({"kind": "input", "text": "x".repeat(30 * 1024 * 1024)});
    greedy.call("turn.completed", first.completed(0, &[entry])).await.unwrap();
    world.say(&session, "again").await;
    let run = greedy.lease().await;
    for n in 0..8 {
        let text =
            json!({"t": "req", "id": 100 + n, "m": "transcript.read", "p": {"runId": run.id}}).to_string();
        greedy.push(&frame(0x81, text.as_bytes())).await;
    }
    // Its silence would be noticed after 90 s only.
    world.until_connected(0).await;
    let mut other = Peer::ready(world.address).await;
    assert_eq!(other.lease().await.turn, run.turn);
}

#[actix_web::test]
async fn a_flood_of_pings_and_requests_is_answered_by_one_connection_without_harm_to_another() {
    let world = World::start().await;
    let (mut flood, mut calm) = (Peer::ready(world.address).await, Peer::ready(world.address).await);
    let mut bytes = Vec::new();
    for n in 0..2_000 {
        bytes.extend(frame(0x89, b"x"));
        bytes.extend(frame(
            0x81,
            format!(r#"{{"t":"req","id":{},"m":"nothing.known"}}"#, 1_000 + n).as_bytes(),
        ));
    }
    flood.bytes(&bytes).await;
    assert_eq!(calm.call("lease", json!({"slots": 0})).await, Err("invalid".to_owned()));
    for n in 0..2_000 {
        assert_eq!(flood.answer(1_000 + n).await, Err("invalid".to_owned()));
    }
}

#[actix_web::test]
async fn many_idle_connections_are_kept_and_counted() {
    let world = World::start().await;
    let mut peers = Vec::new();
    for _ in 0..100 {
        peers.push(Peer::ready(world.address).await);
    }
    world.until_connected(100).await;
    drop(peers.split_off(40));
    world.until_connected(40).await;
}
