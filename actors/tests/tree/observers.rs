//! Replay and live in one stream.

use std::time::Duration;

use nylorun_actors::model::session::SessionStatus as S;
use nylorun_actors::tenant::{Observed, Observer, Reach};
use nylorun_actors::testing::engine::{FakeEngine, Step};

use super::support::{World, sim};

async fn take(observer: &mut Observer, count: usize) -> Vec<(String, &'static str)> {
    let mut seen = Vec::new();
    while seen.len() < count {
        match observer.next().await {
            Some(Observed::Event { cursor, kind, .. }) => seen.push((cursor, kind)),
            Some(Observed::Preview(_)) => {}
            None => break,
        }
    }
    seen
}

#[test]
fn two_hundred_observers_get_every_event_once_and_a_slow_one_catches_up() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![Step::Model(1)])).await;
        let id = world.open("s").await;
        let turns = 150;
        // command, assistant and completed of each turn are served; its transcript is not.
        let expected = turns * 3;
        let mut slow = world.tenant.observe(&id, &Reach::All, None, false).await.unwrap();
        let mut tasks = Vec::new();
        for _ in 0..200 {
            let mut observer = world.tenant.observe(&id, &Reach::All, None, false).await.unwrap();
            tasks.push(actix::spawn(async move { take(&mut observer, expected).await }));
        }
        for n in 0..turns {
            world.say(&id, &format!("k{n}")).await.unwrap();
            world.until(&id, &[S::Completed]).await;
        }
        let first = take(&mut slow, expected).await;
        assert_eq!(first.len(), expected);
        let mut cursors: Vec<_> = first.iter().map(|e| e.0.clone()).collect();
        cursors.dedup();
        assert_eq!(cursors.len(), expected, "no event comes twice");
        for task in tasks {
            assert_eq!(task.await.unwrap(), first);
        }
    });
}

#[test]
fn a_cursor_resumes_after_its_event_and_another_sessions_cursor_is_refused() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![Step::Model(1)])).await;
        let id = world.open("s").await;
        let receipt = world.say(&id, "k").await.unwrap();
        world.until(&id, &[S::Completed]).await;
        let mut observer =
            world.tenant.observe(&id, &Reach::All, receipt.cursor.as_deref(), false).await.unwrap();
        let seen = take(&mut observer, 2).await;
        assert_eq!(seen.iter().map(|e| e.1).collect::<Vec<_>>(), ["message.assistant", "turn.completed"]);
        let other = world.open("other").await;
        assert!(world.tenant.observe(&other, &Reach::All, receipt.cursor.as_deref(), false).await.is_err());
        let items =
            world.tenant.items(&id, &Reach::All, receipt.cursor.as_deref(), None, Some(1)).await.unwrap();
        assert!(items.items.len() == 1 && items.more);
        let rest = world.tenant.items(&id, &Reach::All, items.cursor.as_deref(), None, None).await.unwrap();
        assert_eq!((rest.items.len(), rest.more), (1, false));
        let none = world.tenant.items(&id, &Reach::All, rest.cursor.as_deref(), None, None).await.unwrap();
        assert_eq!((none.items.len(), none.cursor), (0, rest.cursor));
    });
}

#[test]
fn streams_end_when_the_tenant_stops() {
    sim(|| async {
        let world = World::new(FakeEngine::of(vec![Step::Model(1)])).await;
        let id = world.open("s").await;
        let mut observer = world.tenant.observe(&id, &Reach::All, None, false).await.unwrap();
        let task = actix::spawn(async move { observer.next().await.is_none() });
        tokio::time::sleep(Duration::from_millis(10)).await;
        world.tenant.stop().await;
        assert!(task.await.unwrap());
        assert!(world.tenant.observe(&id, &Reach::All, None, false).await.is_err());
    });
}
