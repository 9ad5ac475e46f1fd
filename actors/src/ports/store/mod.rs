//! The store, seen from the rules: one synchronous closure over [`Tx`] is one transaction (DESIGN.md, section 5).
//!
//! A closure cannot await, so it cannot do I/O. It runs on a thread of the store; its result is answered after the
//! commit that makes it true. A closure that returns an error has written nothing.
//!
//! Every implementation runs the same contract (`testing::contract`).

mod actions;
mod artifacts;
mod keys;
mod reads;
mod rows;
mod sandboxes;
mod tenant;
mod tx;
mod workspaces;

use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

use crate::limits::{READ_QUEUE, WRITE_QUEUE};
use crate::model::event::EventKind;
use crate::model::ids::SessionId;

pub use self::actions::{ActionReads, ActionRow, ActionTx, AgentLoad, EndpointRow};
pub use self::artifacts::{
    ArtifactContentRow, ArtifactFilter, ArtifactReads, ArtifactRow, ArtifactTx, ArtifactVersionRow,
};
pub use self::keys::{KeyReads, KeyState, KeyTx, SigningKeyRow};
pub use self::reads::Reads;
pub use self::rows::{
    AuditRow, CommandRow, Counts, CredentialRow, DefinitionRow, EffectRow, FoldSnapshotRow, IdempotencyRow,
    Page, PrincipalRow, RecordRow, TenantRow, UsageRow, WakeRow,
};
pub use self::sandboxes::{SandboxReads, SandboxTx};
pub use self::tenant::{TenantReads, TenantTx};
pub use self::tx::Tx;
pub use self::workspaces::{WorkspaceReads, WorkspaceTx};

/// Why the store could not do what it was asked. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It may work a moment later: locked, out of connections, an I/O error of the disk.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// No room on the disk.
    #[error("the disk that holds the store is full")]
    Full,
    /// The store's file or folder may not be written.
    #[error("the store is read-only: {0}")]
    ReadOnly(String),
    /// What is stored contradicts itself.
    #[error("the store is corrupt: {0}")]
    Corrupt(String),
    /// A row that must be new exists.
    #[error("conflict: {0}")]
    Conflict(String),
    /// A row that must exist does not: the session of an event, the effect to settle.
    #[error("missing: {0}")]
    Missing(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The transaction's closure panicked; it was rolled back alone.
    #[error("a transaction panicked and was rolled back")]
    Panicked,
}

impl StoreError {
    /// Whether the same transaction may pass when it is tried again soon.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// Result of a store operation.
pub type StoreResult<T> = Result<T, StoreError>;

/// A committed event, for the listeners.
#[derive(Clone, Debug)]
pub struct Committed {
    /// Its session.
    pub session_id: SessionId,
    /// Its place.
    pub seq: i64,
    /// Its type.
    pub kind: EventKind,
    /// The envelope as JSON text.
    pub body: Arc<str>,
}

/// Told of each committed transaction that wrote at least one event, in commit order, before its caller is answered.
/// It runs on the store's thread: it must not block and a panic in it is contained and reported.
pub type CommitListener = Arc<dyn Fn(&[Committed]) + Send + Sync>;

/// A boxed transaction: [`Job::run`] on a store thread, then [`Job::finish`] after the commit.
pub trait Job: Send {
    /// Runs the closure. `true` commits its writes, `false` rolls them back.
    fn run(&mut self, tx: &mut dyn Tx) -> bool;
    /// Answers the caller. `Err` when the commit failed or the closure panicked.
    fn finish(self: Box<Self>, result: StoreResult<()>);
}

/// A boxed read.
pub trait ReadJob: Send {
    /// Runs the closure and answers the caller.
    fn run(self: Box<Self>, result: StoreResult<&mut dyn Reads>);
}

/// What a health check says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreHealth {
    /// Reachable, writable and of the expected version.
    pub ok: bool,
    /// Migrations applied.
    pub schema_version: i64,
    /// Migrations known.
    pub expected_schema_version: i64,
    /// Commits that wrote something since it was opened; one for a whole group.
    pub commits: u64,
}

/// A store. Its threads are its own.
pub trait Store: Send + Sync + 'static {
    /// Queues a transaction. Order is kept.
    fn submit(&self, job: Box<dyn Job>);
    /// Queues a read.
    fn submit_read(&self, job: Box<dyn ReadJob>);
    /// Adds a commit listener, for as long as the store lives.
    fn on_commit(&self, listener: CommitListener);
    /// Whether this process is the only one that may use the store (then every other owner of a lease is dead).
    fn is_exclusive(&self) -> bool;
    /// Never fails.
    fn health(&self) -> StoreHealth;
    /// Refuses new work, waits for what is queued.
    fn close(&self);
}

/// The store as the tree uses it: bounded queues, typed results.
#[derive(Clone)]
pub struct StoreHandle {
    store: Arc<dyn Store>,
    writes: Arc<Semaphore>,
    reads: Arc<Semaphore>,
}

impl StoreHandle {
    /// A handle on a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            writes: Arc::new(Semaphore::new(WRITE_QUEUE)),
            reads: Arc::new(Semaphore::new(READ_QUEUE)),
        }
    }

    /// The store itself.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Runs one transaction and answers after its commit.
    ///
    /// # Errors
    /// The closure's own error (nothing was written), or the store's.
    pub async fn tx<T, E, F>(&self, run: F) -> Result<T, E>
    where
        F: FnOnce(&mut dyn Tx) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let Ok(_room) = self.writes.acquire().await else { return Err(StoreError::Closed.into()) };
        let (reply, answer) = oneshot::channel();
        self.store.submit(Box::new(TxJob { run: Some(run), result: None, reply }));
        answer.await.unwrap_or_else(|_| Err(StoreError::Closed.into()))
    }

    /// Runs one read on a reader's snapshot.
    ///
    /// # Errors
    /// The closure's own error, or the store's.
    pub async fn read<T, E, F>(&self, run: F) -> Result<T, E>
    where
        F: FnOnce(&mut dyn Reads) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let Ok(_room) = self.reads.acquire().await else { return Err(StoreError::Closed.into()) };
        let (reply, answer) = oneshot::channel();
        self.store.submit_read(Box::new(ReadOnce { run, reply }));
        // A closed store answers; only a closure that panicked leaves its caller without one.
        answer.await.unwrap_or_else(|_| Err(StoreError::Panicked.into()))
    }
}

struct TxJob<F, T, E> {
    run: Option<F>,
    result: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
}

impl<F, T, E> Job for TxJob<F, T, E>
where
    F: FnOnce(&mut dyn Tx) -> Result<T, E> + Send,
    T: Send,
    E: From<StoreError> + Send,
{
    fn run(&mut self, tx: &mut dyn Tx) -> bool {
        let Some(run) = self.run.take() else { return false };
        let result = run(tx);
        let commits = result.is_ok();
        self.result = Some(result);
        commits
    }

    fn finish(self: Box<Self>, result: StoreResult<()>) {
        let answer = match (result, self.result) {
            // The closure's own error wins: it is why nothing was committed.
            (_, Some(Err(error))) => Err(error),
            (Err(error), _) => Err(error.into()),
            (Ok(()), Some(value)) => value,
            (Ok(()), None) => Err(StoreError::Panicked.into()),
        };
        // The caller may have gone; what it asked for stands all the same.
        let _ = self.reply.send(answer);
    }
}

struct ReadOnce<F, T, E> {
    run: F,
    reply: oneshot::Sender<Result<T, E>>,
}

impl<F, T, E> ReadJob for ReadOnce<F, T, E>
where
    F: FnOnce(&mut dyn Reads) -> Result<T, E> + Send,
    T: Send,
    E: From<StoreError> + Send,
{
    fn run(self: Box<Self>, result: StoreResult<&mut dyn Reads>) {
        let answer = match result {
            Ok(reads) => (self.run)(reads),
            Err(error) => Err(error.into()),
        };
        let _ = self.reply.send(answer);
    }
}
