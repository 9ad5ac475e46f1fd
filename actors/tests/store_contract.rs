//! The in-memory store keeps the store contract, and does what only it can: fail on command.

// Helpers of tests may panic like tests.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use nylorun_actors::model::event::EventKind;
use nylorun_actors::model::session::{SessionDoc, SessionHead, SessionPin, SessionStatus};
use nylorun_actors::ports::store::{StoreError, StoreHandle, StoreResult};
use nylorun_actors::testing::contract::Subject;
use nylorun_actors::testing::{FaultPoint, ManualClock, MemoryStore, SeededEntropy};

struct Memory {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    handle: StoreHandle,
}

impl Memory {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(clock.clone(), Arc::new(SeededEntropy::new(1)));
        let handle = store.handle();
        Self { clock, store, handle }
    }
}

impl Subject for Memory {
    fn handle(&self) -> StoreHandle {
        self.handle.clone()
    }

    fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }

    fn reopen(&mut self) {
        self.handle.store().close();
        self.store = self.store.reopen();
        self.handle = self.store.handle();
    }
}

nylorun_actors::store_contract!(Memory::new());

fn head(id: &str) -> SessionHead {
    SessionHead {
        id: id.into(),
        agent_id: "a".into(),
        owner_user_id: "u".to_owned(),
        sandbox_id: None,
        manifest_hash: "h".to_owned(),
        status: SessionStatus::Idle,
        active_turn_id: None,
        last_turn_id: None,
        owner: None,
        epoch: 0,
        owner_expires_at: None,
    }
}

async fn open(store: &StoreHandle) -> StoreResult<i64> {
    store
        .tx(|t| {
            t.insert_session(&head("s"), &SessionPin::default(), &SessionDoc::default())?;
            t.event(&"s".into(), None, EventKind::CommandMessage, "{}")
        })
        .await
}

#[tokio::test]
async fn an_injected_fault_fails_the_commit_and_nothing_is_written() {
    let memory = Memory::new();
    let heard = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = heard.clone();
    memory.store.inject(Arc::new(|point: &FaultPoint| {
        assert!(point.wrote);
        assert_eq!(point.events, [EventKind::CommandMessage]);
        (point.number == 0).then_some(StoreError::Full)
    }));
    memory.handle.store().on_commit(Arc::new(move |_| {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }));
    assert_eq!(open(&memory.handle).await, Err(StoreError::Full));
    assert_eq!(heard.load(std::sync::atomic::Ordering::SeqCst), 0);
    let there: StoreResult<_> = memory.handle.read(|r| r.session(&"s".into())).await;
    assert_eq!(there, Ok(None));
    assert_eq!(open(&memory.handle).await, Ok(0));
    memory.store.inject_nothing();
    let answer: StoreResult<()> = memory.handle.tx(|t| t.put_setting("a", "1")).await;
    assert_eq!(answer, Ok(()));
}

#[tokio::test]
async fn a_transaction_is_answered_before_submit_returns() {
    let memory = Memory::new();
    let mut future = std::pin::pin!(open(&memory.handle));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_ready());
}

#[tokio::test]
async fn the_same_seed_writes_the_same_record() {
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let memory = Memory::new();
        open(&memory.handle).await.unwrap();
        let rows: StoreResult<_> = memory.handle.read(|r| r.record(&"s".into(), 0, 9)).await;
        bodies.push(rows.unwrap());
    }
    assert_eq!(bodies[0], bodies[1]);
}
