//! The in-memory store: synchronous and deterministic, for tests and simulation (DESIGN.md, sections 4 and 5).
//!
//! A submitted transaction runs at once on the caller's thread and is answered before `submit` returns. One that is
//! submitted from inside another one's listener or answer runs right after it, on the same thread. Rollback plays an
//! undo log backwards. The data outlives the store: [`MemoryStore::reopen`] is what a restarted process finds.

mod actions;
mod artifacts;
mod data;
mod keys;
mod sandboxes;
mod tenant;
mod tx;
mod workspaces;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use data::Data;
use tx::{Env, MemoryTx};

use crate::model::event::EventKind;
use crate::model::ids::TenantId;
use crate::ports::store::{
    CommitListener, Committed, Job, ReadJob, Store, StoreError, StoreHealth, StoreResult,
};
use crate::ports::{Clock, Entropy, StoreHandle};

/// Migrations that the in-memory store pretends to have.
const SCHEMA_VERSION: i64 = 1;

/// What is about to be committed, for whoever injects a fault.
#[derive(Clone, Debug)]
pub struct FaultPoint {
    /// Number of this transaction among those of this store that asked to commit, from 0.
    pub number: u64,
    /// Whether it wrote anything.
    pub wrote: bool,
    /// Types of the events it appends.
    pub events: Vec<EventKind>,
}

/// Says whether a commit fails, and how.
pub type FaultHook = Arc<dyn Fn(&FaultPoint) -> Option<StoreError> + Send + Sync>;

/// A store that lives in memory.
pub struct MemoryStore {
    env: Env,
    data: Arc<Mutex<Data>>,
    queue: Mutex<Queue>,
    listeners: Mutex<Vec<CommitListener>>,
    fault: Mutex<Option<FaultHook>>,
    shared: AtomicBool,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Box<dyn Job>>,
    /// Somebody further up (or on another thread) takes jobs out one after the other.
    draining: bool,
    closed: bool,
    /// Transactions that asked to commit.
    commits: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryStore {
    /// An empty store of the Tenant `tn_0…`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Arc<Self> {
        let env = Env::new(TenantId::from(format!("tn_{}", "0".repeat(26))), clock, entropy);
        let data = Data::new(env.now());
        Arc::new(Self::over(env, Arc::new(Mutex::new(data))))
    }

    fn over(env: Env, data: Arc<Mutex<Data>>) -> Self {
        Self {
            env,
            data,
            queue: Mutex::default(),
            listeners: Mutex::default(),
            fault: Mutex::default(),
            shared: AtomicBool::new(false),
        }
    }

    /// Another store over the same data: what a process finds that starts after this one. Listeners and the fault hook
    /// stay behind.
    #[must_use]
    pub fn reopen(&self) -> Arc<Self> {
        let env = Env::new(self.env.tenant.clone(), self.env.clock.clone(), self.env.entropy.clone());
        Arc::new(Self::over(env, self.data.clone()))
    }

    /// From now on other processes may use the same data: the owner of a lease is not dead just because it is another.
    pub fn share(&self) {
        self.shared.store(true, Ordering::SeqCst);
    }

    /// A handle on it.
    #[must_use]
    pub fn handle(self: &Arc<Self>) -> StoreHandle {
        StoreHandle::new(self.clone())
    }

    /// Asks `hook` before each commit; an error it answers fails that transaction, of which nothing is written.
    pub fn inject(&self, hook: FaultHook) {
        *lock(&self.fault) = Some(hook);
    }

    /// No more faults.
    pub fn inject_nothing(&self) {
        *lock(&self.fault) = None;
    }

    fn drain(&self) {
        loop {
            let mut queue = lock(&self.queue);
            let Some(job) = queue.jobs.pop_front() else {
                queue.draining = false;
                return;
            };
            drop(queue);
            self.run(job);
        }
    }

    fn run(&self, mut job: Box<dyn Job>) {
        let mut data = lock(&self.data);
        let mut tx = MemoryTx::new(&self.env, &mut data);
        let ran = catch_unwind(AssertUnwindSafe(|| job.run(&mut tx)));
        let verdict = match ran {
            Err(_) => Err(StoreError::Panicked),
            Ok(false) => Ok(false),
            Ok(true) => self.ask_fault(&tx).map_or(Ok(true), Err),
        };
        let events = if verdict == Ok(true) {
            tx.into_events()
        } else {
            tx.roll_back();
            Vec::new()
        };
        drop(data);
        if !events.is_empty() {
            self.tell(&events);
        }
        finish(job, verdict.map(|_| ()));
    }

    fn ask_fault(&self, tx: &MemoryTx<'_>) -> Option<StoreError> {
        let number = {
            let mut queue = lock(&self.queue);
            queue.commits += 1;
            queue.commits - 1
        };
        let hook = lock(&self.fault).clone()?;
        hook(&FaultPoint { number, wrote: tx.wrote(), events: tx.events().iter().map(|e| e.kind).collect() })
    }

    fn tell(&self, events: &[Committed]) {
        let listeners = lock(&self.listeners).clone();
        for listener in listeners {
            if catch_unwind(AssertUnwindSafe(|| listener(events))).is_err() {
                tracing::error!("a commit listener panicked");
            }
        }
    }
}

fn finish(job: Box<dyn Job>, result: StoreResult<()>) {
    if catch_unwind(AssertUnwindSafe(|| job.finish(result))).is_err() {
        tracing::error!("the answer of a transaction panicked");
    }
}

impl Store for MemoryStore {
    fn submit(&self, job: Box<dyn Job>) {
        let mut queue = lock(&self.queue);
        if queue.closed {
            drop(queue);
            finish(job, Err(StoreError::Closed));
            return;
        }
        queue.jobs.push_back(job);
        if queue.draining {
            return;
        }
        queue.draining = true;
        drop(queue);
        self.drain();
    }

    fn submit_read(&self, job: Box<dyn ReadJob>) {
        if lock(&self.queue).closed {
            job.run(Err(StoreError::Closed));
            return;
        }
        let mut data = lock(&self.data);
        let mut tx = MemoryTx::new(&self.env, &mut data);
        if catch_unwind(AssertUnwindSafe(|| job.run(Ok(&mut tx)))).is_err() {
            tracing::error!("a read panicked");
        }
    }

    fn on_commit(&self, listener: CommitListener) {
        lock(&self.listeners).push(listener);
    }

    fn is_exclusive(&self) -> bool {
        !self.shared.load(Ordering::SeqCst)
    }

    fn health(&self) -> StoreHealth {
        let queue = lock(&self.queue);
        StoreHealth {
            ok: !queue.closed,
            schema_version: SCHEMA_VERSION,
            expected_schema_version: SCHEMA_VERSION,
            commits: queue.commits,
        }
    }

    fn close(&self) {
        lock(&self.queue).closed = true;
    }
}
