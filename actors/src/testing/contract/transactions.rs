//! Transactions, listeners, the store as a whole.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;

use super::samples::{append, head, open, pin, sid};
use super::{Subject, both, read, tx};
use crate::model::Micros;
use crate::model::event::EventKind;
use crate::model::session::SessionDoc;
use crate::ports::Clock as _;
use crate::ports::store::{Committed, StoreError, StoreResult};

const KIND: EventKind = EventKind::ToolCompleted;

pub async fn a_commit_is_readable_and_answers_what_its_closure_answered(s: &mut dyn Subject) {
    let answer = tx(s, |t| {
        t.put_setting("a", "1")?;
        // A transaction sees what it wrote.
        t.setting("a")
    })
    .await;
    assert_eq!(answer, Ok(Some("1".to_owned())));
    assert_eq!(read(s, |r| r.setting("a")).await, Ok(Some("1".to_owned())));
}

#[derive(Debug, PartialEq)]
enum Mine {
    Refused(u8),
    Store(StoreError),
}

impl From<StoreError> for Mine {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub async fn a_failed_transaction_writes_nothing_and_answers_its_own_error(s: &mut dyn Subject) {
    open(s, "kept").await;
    let answer: Result<(), Mine> = s
        .handle()
        .tx(|t| {
            t.put_setting("a", "1")?;
            t.insert_session(&head("new"), &pin(), &SessionDoc::default())?;
            t.event(&sid("kept"), None, KIND, "{}")?;
            t.put_owner(&sid("kept"), Some(&"w".into()), 9, Some(Micros(9)))?;
            t.delete_session(&sid("new"))?;
            Err(Mine::Refused(7))
        })
        .await;
    assert_eq!(answer, Err(Mine::Refused(7)));
    assert_eq!(both(s, |r| r.setting("a")).await, None);
    assert_eq!(both(s, |r| r.session(&sid("new"))).await, None);
    assert_eq!(both(s, |r| r.session(&sid("kept"))).await, Some(head("kept")));
    assert_eq!(both(s, |r| r.head(&sid("kept"))).await, 0);
}

pub async fn a_conflict_does_not_end_the_transaction(s: &mut dyn Subject) {
    open(s, "s").await;
    tx(s, |t| {
        t.put_setting("before", "1")?;
        let again = t.insert_session(&head("s"), &pin(), &SessionDoc::default());
        assert!(matches!(again, Err(StoreError::Conflict(_))), "{again:?}");
        let missing = t.event(&sid("nobody"), None, KIND, "{}");
        assert!(matches!(missing, Err(StoreError::Missing(_))), "{missing:?}");
        t.put_setting("after", "1")
    })
    .await
    .unwrap();
    let kept = both(s, |r| Ok((r.setting("before")?.is_some(), r.setting("after")?.is_some()))).await;
    assert_eq!(kept, (true, true));
}

pub async fn a_panicking_transaction_is_rolled_back_alone(s: &mut dyn Subject) {
    let answer: StoreResult<()> = tx(s, |t| {
        t.put_setting("a", "1")?;
        panic!("a transaction of the contract panics");
    })
    .await;
    assert_eq!(answer, Err(StoreError::Panicked));
    assert_eq!(both(s, |r| r.setting("a")).await, None);
    tx(s, |t| t.put_setting("b", "1")).await.unwrap();
    assert_eq!(both(s, |r| r.setting("b")).await, Some("1".to_owned()));
}

pub async fn a_panicking_read_harms_nobody(s: &mut dyn Subject) {
    for _ in 0..4 {
        let answer: StoreResult<()> = read(s, |_| panic!("a read of the contract panics")).await;
        assert_eq!(answer, Err(StoreError::Panicked));
    }
    assert_eq!(read(s, |r| r.setting("a")).await, Ok(None));
}

pub async fn transactions_of_a_group_fail_alone(s: &mut dyn Subject) {
    open(s, "s").await;
    let store = s.handle();
    let one = |i: usize| {
        let store = store.clone();
        async move {
            store
                .tx(move |t| {
                    t.event(&sid("s"), None, KIND, &format!("{{\"i\":{i}}}"))?;
                    t.put_setting(&format!("k{i}"), "v")?;
                    match i % 5 {
                        1 => Err(StoreError::Unavailable("mine".to_owned())),
                        3 => panic!("transaction {i} of the contract panics"),
                        _ => Ok(i),
                    }
                })
                .await
        }
    };
    let answers = join_all((0..300).map(one)).await;
    let mut kept = 0;
    for (i, answer) in answers.iter().enumerate() {
        let expected = match i % 5 {
            1 => Err(StoreError::Unavailable("mine".to_owned())),
            3 => Err(StoreError::Panicked),
            _ => Ok(i),
        };
        assert_eq!(*answer, expected);
        let there = both(s, move |r| r.setting(&format!("k{i}"))).await.is_some();
        assert_eq!(there, expected.is_ok(), "k{i}");
        kept += i64::from(there);
    }
    assert_eq!(both(s, |r| r.head(&sid("s"))).await, kept);
    let seqs: Vec<i64> = both(s, |r| r.record(&sid("s"), 0, 1000)).await.iter().map(|row| row.seq).collect();
    assert_eq!(seqs, (0..kept).collect::<Vec<_>>());
}

pub async fn concurrent_failures_leave_no_gap_and_pairs_stay_adjacent(s: &mut dyn Subject) {
    open(s, "s").await;
    let store = s.handle();
    let one = |i: usize| {
        let store = store.clone();
        async move {
            store
                .tx(move |t| {
                    let first = t.event(&sid("s"), None, KIND, "{}")?;
                    let second = t.event(&sid("s"), None, EventKind::TurnCompleted, "{}")?;
                    if i % 7 == 3 {
                        return Err(StoreError::Unavailable("mine".to_owned()));
                    }
                    Ok((first, second))
                })
                .await
        }
    };
    let answers = join_all((0..20).map(one)).await;
    assert_eq!(answers.iter().filter(|a| a.is_err()).count(), 3);
    let mut pairs: Vec<(i64, i64)> = answers.into_iter().flatten().collect();
    pairs.sort_unstable();
    assert_eq!(pairs, (0..17).map(|i| (2 * i, 2 * i + 1)).collect::<Vec<_>>());
    assert_eq!(both(s, |r| r.record(&sid("s"), 0, 100)).await.len(), 34);
}

pub async fn concurrent_read_modify_writes_lose_nothing(s: &mut dyn Subject) {
    open(s, "s").await;
    let store = s.handle();
    let one = |_| {
        let store = store.clone();
        async move {
            store
                .tx(|t| {
                    let epoch = t.session(&sid("s"))?.map_or(0, |h| h.epoch);
                    t.put_owner(&sid("s"), None, epoch + 1, None)?;
                    let n: u32 = t.setting("n")?.and_then(|n| n.parse().ok()).unwrap_or(0);
                    t.put_setting("n", &(n + 1).to_string())
                })
                .await
        }
    };
    let answers: Vec<StoreResult<()>> = join_all((0..20).map(one)).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(both(s, |r| r.setting("n")).await, Some("20".to_owned()));
    assert_eq!(both(s, |r| r.session(&sid("s"))).await.unwrap().epoch, 20);
}

type Heard = Arc<Mutex<Vec<(&'static str, Vec<i64>)>>>;

fn listen(s: &dyn Subject, heard: &Heard, name: &'static str) {
    let heard = heard.clone();
    s.handle().store().on_commit(Arc::new(move |events: &[Committed]| {
        heard.lock().unwrap().push((name, events.iter().map(|e| e.seq).collect()));
    }));
}

pub async fn listeners_hear_each_commit_in_order_before_its_caller(s: &mut dyn Subject) {
    open(s, "s").await;
    let heard = Heard::default();
    listen(s, &heard, "first");
    listen(s, &heard, "second");
    append(s, "s", &[KIND, EventKind::TurnCompleted]).await;
    assert_eq!(*heard.lock().unwrap(), [("first", vec![0, 1]), ("second", vec![0, 1])]);
    heard.lock().unwrap().clear();

    let store = s.handle();
    let one = |_| {
        let (store, heard) = (store.clone(), heard.clone());
        async move {
            let seq = store.tx(|t| t.event(&sid("s"), None, KIND, "{}")).await;
            let seq: StoreResult<i64> = seq;
            let seq = seq.unwrap();
            let told = heard.lock().unwrap().iter().filter(|(_, seqs)| seqs.contains(&seq)).count();
            assert_eq!(told, 2, "both listeners are told before the caller");
        }
    };
    join_all((0..50).map(one)).await;
    let heard = heard.lock().unwrap().clone();
    for name in ["first", "second"] {
        let seqs: Vec<i64> =
            heard.iter().filter(|(who, _)| *who == name).flat_map(|(_, seqs)| seqs.clone()).collect();
        assert_eq!(seqs, (2..52).collect::<Vec<_>>(), "{name} hears them in commit order");
    }
    let body = both(s, |r| r.record(&sid("s"), 0, 1)).await[0].body.clone();
    assert!(body.contains("tool.completed"));
}

pub async fn listeners_hear_nothing_without_events(s: &mut dyn Subject) {
    open(s, "s").await;
    let heard = Heard::default();
    listen(s, &heard, "only");
    tx(s, |t| t.put_setting("a", "1")).await.unwrap();
    let failed: StoreResult<()> = tx(s, |t| {
        t.event(&sid("s"), None, KIND, "{}")?;
        Err(StoreError::Full)
    })
    .await;
    assert_eq!(failed, Err(StoreError::Full));
    let panicked: StoreResult<()> = tx(s, |t| {
        t.event(&sid("s"), None, KIND, "{}")?;
        panic!("a transaction with an event panics");
    })
    .await;
    assert_eq!(panicked, Err(StoreError::Panicked));
    read(s, |r| r.setting("a")).await.unwrap();
    assert_eq!(*heard.lock().unwrap(), []);
    append(s, "s", &[KIND]).await;
    assert_eq!(*heard.lock().unwrap(), [("only", vec![0])]);
}

pub async fn a_panicking_listener_is_contained(s: &mut dyn Subject) {
    open(s, "s").await;
    let heard = Heard::default();
    s.handle().store().on_commit(Arc::new(|_| panic!("a listener of the contract panics")));
    listen(s, &heard, "after it");
    assert_eq!(append(s, "s", &[KIND]).await, [0]);
    assert_eq!(append(s, "s", &[KIND]).await, [1]);
    assert_eq!(*heard.lock().unwrap(), [("after it", vec![0]), ("after it", vec![1])]);
}

pub async fn a_listener_may_use_the_store(s: &mut dyn Subject) {
    open(s, "s").await;
    let (store, seen) = (s.handle(), Arc::new(AtomicUsize::new(0)));
    let (weak, count) = (Arc::downgrade(store.store()), seen.clone());
    store.store().on_commit(Arc::new(move |events| {
        // Only hands work over: it must not wait for it.
        let Some(store) = weak.upgrade() else { return };
        let seq = events[0].seq;
        struct Follow(i64, Arc<AtomicUsize>);
        impl crate::ports::store::Job for Follow {
            fn run(&mut self, tx: &mut dyn crate::ports::store::Tx) -> bool {
                tx.put_setting("heard", &self.0.to_string()).is_ok()
            }
            fn finish(self: Box<Self>, result: StoreResult<()>) {
                assert_eq!(result, Ok(()));
                self.1.fetch_add(1, Ordering::SeqCst);
            }
        }
        store.submit(Box::new(Follow(seq, count.clone())));
    }));
    append(s, "s", &[KIND]).await;
    // Queued before the caller was answered, so it runs before what the caller asks next.
    assert_eq!(tx(s, |t| t.setting("heard")).await, Ok(Some("0".to_owned())));
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

pub async fn a_closed_store_refuses(s: &mut dyn Subject) {
    let store = s.handle();
    tx(s, |t| t.put_setting("a", "1")).await.unwrap();
    store.store().close();
    assert_eq!(tx(s, |t| t.put_setting("a", "2")).await, Err(StoreError::Closed));
    assert_eq!(read(s, |r| r.setting("a")).await, Err(StoreError::Closed));
    assert!(!store.store().health().ok);
    // Again does no harm.
    store.store().close();
    s.reopen();
    assert_eq!(both(s, |r| r.setting("a")).await, Some("1".to_owned()));
}

pub async fn the_clock_never_goes_back(s: &mut dyn Subject) {
    let clock = s.clock();
    let start = clock.now();
    assert_eq!(both(s, |r| Ok(r.now())).await, start);
    clock.advance_ms(5_000);
    assert_eq!(tx(s, |t| Ok(t.now())).await, Ok(start.plus_ms(5_000)));
    clock.set(Micros(start.0 - 3_600_000_000));
    assert_eq!(both(s, |r| Ok(r.now())).await, start.plus_ms(5_000));
    clock.set(start.plus_ms(6_000));
    assert_eq!(both(s, |r| Ok(r.now())).await, start.plus_ms(6_000));
}

pub async fn commits_survive_a_reopen(s: &mut dyn Subject) {
    open(s, "s").await;
    append(s, "s", &[KIND, KIND]).await;
    let before = both(s, |r| r.record(&sid("s"), 0, 10)).await;
    let tenant = both(s, |r| r.tenant()).await;
    s.reopen();
    assert_eq!(both(s, |r| r.session(&sid("s"))).await, Some(head("s")));
    assert_eq!(both(s, |r| r.record(&sid("s"), 0, 10)).await, before);
    assert_eq!(both(s, |r| r.tenant()).await, tenant);
    assert_eq!(append(s, "s", &[KIND]).await, [2]);
}

pub async fn health_names_the_schema(s: &mut dyn Subject) {
    let health = s.handle().store().health();
    assert!(health.ok);
    assert_eq!(health.schema_version, health.expected_schema_version);
    assert!(health.schema_version > 0);
    assert_eq!(both(s, |r| r.tenant()).await.schema_version, health.schema_version);
}
