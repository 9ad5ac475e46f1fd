//! The readers: threads with a connection each, one snapshot per read.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use diesel::prelude::*;
use nylorun_actors::ports::store::ReadJob;

use super::access::{Access, Shared};
use super::error::store_error;
use super::prepared::{Words, prepared};
use super::queue::Queue;

/// Works until the queue is closed and empty.
pub(super) fn work(mut conn: SqliteConnection, shared: &Shared, queue: &Arc<Queue<Box<dyn ReadJob>>>) {
    let mut jobs = Vec::with_capacity(1);
    while queue.take(&mut jobs, 1) {
        for job in jobs.drain(..) {
            read(&mut conn, shared, job);
        }
    }
}

fn read(conn: &mut SqliteConnection, shared: &Shared, job: Box<dyn ReadJob>) {
    // The snapshot is that of the first statement.
    if let Err(error) = prepared!(conn, Words("BEGIN DEFERRED")) {
        job.run(Err(store_error(error)));
        return;
    }
    let mut access = Access::reading(conn, shared);
    if catch_unwind(AssertUnwindSafe(|| job.run(Ok(&mut access)))).is_err() {
        tracing::error!("a read panicked");
    }
    if let Err(error) = prepared!(conn, Words("ROLLBACK")) {
        tracing::warn!(%error, "a read did not end");
    }
}
