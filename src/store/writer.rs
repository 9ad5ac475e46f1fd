//! The writer: one thread that runs transactions in groups (DESIGN.md, section 5).
//!
//! It drains its queue into one SQLite transaction, gives each job that writes a savepoint of its own, commits once,
//! tells the listeners in commit order and then answers all. A job that fails is rolled back alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use nylorun_actors::limits::COMMIT_GROUP;
use nylorun_actors::ports::StoreError;
use nylorun_actors::ports::store::{CommitListener, Committed, Job, StoreResult};

use super::access::{Access, Shared};
use super::error::store_error;
use super::hot::HotSessions;
use super::prepared::{Words, prepared};
use super::queue::Queue;

/// What the writer shares with the store.
pub(super) struct Outside {
    pub queue: Queue<Box<dyn Job>>,
    pub listeners: RwLock<Vec<CommitListener>>,
    /// Whether the last commit went well.
    pub commits: AtomicBool,
    /// Groups that were committed with something written.
    pub groups: AtomicU64,
}

pub(super) struct Writer {
    conn: SqliteConnection,
    shared: Arc<Shared>,
    outside: Arc<Outside>,
    hot: HotSessions,
    /// Jobs of the group at hand that ran, with how they ended so far.
    done: Vec<Done>,
}

struct Done {
    job: Box<dyn Job>,
    result: StoreResult<()>,
    events: Vec<Committed>,
    /// It waits for the commit.
    pending: bool,
    /// It has written.
    wrote: bool,
}

impl Writer {
    pub fn new(conn: SqliteConnection, shared: Arc<Shared>, outside: Arc<Outside>) -> Self {
        Self { conn, shared, outside, hot: HotSessions::default(), done: Vec::new() }
    }

    /// Works until the queue is closed and empty, then leaves a database without a log beside it.
    pub fn work(mut self) {
        let mut jobs = Vec::new();
        while self.outside.queue.take(&mut jobs, COMMIT_GROUP) {
            self.group(&mut jobs);
        }
        if let Err(error) = self.conn.batch_execute("PRAGMA wal_checkpoint(TRUNCATE)") {
            tracing::warn!(%error, "the last checkpoint of the store failed; the next start repeats it");
        }
    }

    fn group(&mut self, jobs: &mut Vec<Box<dyn Job>>) {
        self.hot.trim();
        let mut open = false;
        let mut refused = None;
        for job in jobs.drain(..) {
            if !open && refused.is_none() {
                let begun = prepared!(&mut self.conn, Words("BEGIN IMMEDIATE")).map_err(store_error);
                refused = begun.inspect_err(|_| self.outside.commits.store(false, Ordering::Relaxed)).err();
            }
            // Asked once: each time may mean to wait for a lock.
            if let Some(error) = &refused {
                let result = Err(error.clone());
                self.done.push(Done { job, result, events: Vec::new(), pending: false, wrote: false });
                continue;
            }
            open = self.run(job);
        }
        if open {
            self.commit();
        }
        self.answer();
    }

    /// Runs one job. `false` when SQLite has ended the group's transaction under it.
    fn run(&mut self, mut job: Box<dyn Job>) -> bool {
        let mut access = Access::writing(&mut self.conn, &self.shared, &mut self.hot);
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let keep = job.run(&mut access);
            if keep {
                // A failure is kept in the access, and ends the transaction like any other.
                let _ = access.flush();
            }
            keep
        }));
        let result = match (ran, access.failure()) {
            (Err(_), _) => Err(StoreError::Panicked),
            (Ok(_), Some(failure)) => Err(failure),
            (Ok(keep), None) => Ok(keep),
        };
        let keep = result == Ok(true);
        let ended = access.end(keep);
        let events = if keep { std::mem::take(&mut access.events) } else { Vec::new() };
        let (pending, wrote) = (keep && ended.is_ok(), matches!(ended, Ok(true)));
        let lost = ended.err();
        let result = match (&lost, result) {
            (Some(error), Ok(_)) => Err(error.clone()),
            (_, result) => result.map(|_| ()),
        };
        // What broke the group is better known by the statement that did than by the savepoint that is gone.
        let cause = lost.map(|error| result.clone().err().unwrap_or(error));
        self.done.push(Done { job, result, events, pending, wrote });
        if let Some(cause) = cause {
            self.lose(&cause);
            return false;
        }
        true
    }

    /// The group's transaction is gone: whatever it wrote is not there.
    fn lose(&mut self, cause: &StoreError) {
        // Fails when SQLite has already ended it.
        let _ = self.conn.batch_execute("ROLLBACK");
        self.hot.forget();
        self.outside.commits.store(false, Ordering::Relaxed);
        for done in self.done.iter_mut().filter(|done| done.pending) {
            done.result = Err(cause.clone());
            done.events.clear();
            done.pending = false;
        }
    }

    fn commit(&mut self) {
        // Without a write this touches no file.
        match prepared!(&mut self.conn, Words("COMMIT")).map_err(store_error) {
            Ok(_) => {
                self.outside.commits.store(true, Ordering::Relaxed);
                if self.done.iter().any(|done| done.pending && done.wrote) {
                    self.outside.groups.fetch_add(1, Ordering::Relaxed);
                }
            }
            Err(error) => self.lose(&error),
        }
        for done in &mut self.done {
            done.pending = false;
        }
    }

    fn answer(&mut self) {
        let listeners = self.outside.listeners.read().unwrap_or_else(PoisonError::into_inner).clone();
        for done in self.done.iter().filter(|done| !done.events.is_empty()) {
            for listener in &listeners {
                if catch_unwind(AssertUnwindSafe(|| listener(&done.events))).is_err() {
                    tracing::error!("a commit listener panicked");
                }
            }
        }
        for done in self.done.drain(..) {
            if catch_unwind(AssertUnwindSafe(|| done.job.finish(done.result))).is_err() {
                tracing::error!("the answer of a transaction panicked");
            }
        }
    }
}
