//! The store, seen from the rules: one synchronous closure over [`Tx`] is one transaction (DESIGN.md, section 5).
//!
//! A closure cannot await, so it cannot do I/O. It runs on a thread of the store; its result is answered after the
//! commit that makes it true. A closure that returns an error has written nothing.
//!
//! Every implementation runs the same contract (`testing::contract`).

use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

use crate::limits::{READ_QUEUE, WRITE_QUEUE};
use crate::model::Micros;
use crate::model::effect::{EffectKind, EffectStatus};
use crate::model::event::EventKind;
use crate::model::ids::{AgentId, EffectId, SessionId, TenantId, TurnId, WorkerId};
use crate::model::json::JsonText;
use crate::model::session::{SessionDoc, SessionHead, SessionPin, SessionStatus};

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

/// A page of a list ordered by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Ids strictly after this one.
    pub after: Option<String>,
    /// At most so many; `None` is all.
    pub limit: Option<usize>,
}

/// A definition as registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionRow {
    /// The manifest's id.
    pub id: AgentId,
    /// Hash of the manifest, whose text is in the manifests table.
    pub manifest_hash: String,
    /// Version of the application's code.
    pub implementation_version: String,
    /// `{name: absolutePath}`.
    pub plugin_roots: Option<JsonText>,
}

/// A recorded command: the digest of what was asked, and what was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRow {
    /// SHA-256 of the canonical command without its request id, lowercase hex.
    pub digest: String,
    /// The stored answer.
    pub response: JsonText,
}

/// A row of the effect journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectRow {
    /// Deterministic id.
    pub id: EffectId,
    /// Its session.
    pub session_id: SessionId,
    /// Its turn.
    pub turn_id: TurnId,
    /// What it does.
    pub kind: EffectKind,
    /// Where it stands.
    pub status: EffectStatus,
    /// Hash of the full request.
    pub request_hash: String,
    /// The request; a model's without its input.
    pub request: JsonText,
    /// `{value, statePatch?}` once completed.
    pub outcome: Option<JsonText>,
    /// Why its fate is unknown.
    pub error: Option<String>,
    /// How often it was handed out for execution.
    pub attempts: u32,
    /// Its request's input and its answer were dropped when the turn ended.
    pub slimmed: bool,
}

/// A stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRow {
    /// Its place in the session's record.
    pub seq: i64,
    /// Its type.
    pub kind: EventKind,
    /// Its turn.
    pub turn_id: Option<TurnId>,
    /// The whole envelope as JSON text.
    pub body: Arc<str>,
}

/// A wake that waits to be handed over (the outbox).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WakeRow {
    /// Sortable id.
    pub id: String,
    /// Who is woken.
    pub session_id: SessionId,
    /// `message`, `approve`, `respond`, `recover`, `rollover`, `linked`, `flow`, `action_result`.
    pub reason: String,
    /// Same session and key: one advance.
    pub dedupe_key: Option<String>,
    /// When it was written.
    pub created_at: Micros,
    /// Failed hand-overs.
    pub attempts: u32,
    /// Not before.
    pub retry_at: Option<Micros>,
    /// Given up for an operator.
    pub parked_at: Option<Micros>,
}

/// A key's holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalRow {
    /// Operator key name or principal id.
    pub id: String,
    /// `application` or `studio`.
    pub role: String,
    /// SHA-256 of the key, lowercase hex.
    pub token_hash: String,
    /// When it was created or rotated.
    pub created_at: Micros,
}

/// A sealed credential (spec: security, section 6).
#[derive(Clone, PartialEq, Eq)]
pub struct CredentialRow {
    /// Its id, `host-model:<provider>` for a model provider.
    pub id: String,
    /// Its vault, `host` for the Tenant's own.
    pub vault_id: String,
    /// In words.
    pub name: String,
    /// `bearer`, `oauth` or `model`.
    pub kind: String,
    /// What it is bound to; for a model `{provider, model, baseUrl?, settings?, authType}`.
    pub binding: JsonText,
    /// ISO instant.
    pub expires_at: Option<String>,
    /// When it was stored.
    pub created_at: Micros,
    /// When it was replaced last.
    pub rotated_at: Option<Micros>,
    /// Hex SHA-256 of the KEK that wraps it.
    pub kek_id: String,
    /// 12 bytes.
    pub nonce: Vec<u8>,
    /// Body and tag.
    pub ciphertext: Vec<u8>,
    /// 60 bytes.
    pub wrapped_dek: Vec<u8>,
}

impl std::fmt::Debug for CredentialRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CredentialRow")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// A stored answer of an idempotent vault or model write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyRow {
    /// SHA-256 of the canonical body, lowercase hex.
    pub body_hash: String,
    /// What was answered.
    pub response: JsonText,
}

/// One line of the append-only audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// A UUID.
    pub id: String,
    /// When.
    pub at: Micros,
    /// Who: `application:<id>`, `operator`, …
    pub actor: String,
    /// What: `model.put`, `key.put`, …
    pub action: String,
    /// On what.
    pub target: Option<String>,
    /// `ok` or `refused`.
    pub outcome: String,
}

/// One answered model call.
#[derive(Clone, Debug, PartialEq)]
pub struct UsageRow {
    /// A UUID.
    pub id: String,
    /// The effect.
    pub effect_key: String,
    /// Its session.
    pub session_id: SessionId,
    /// Its turn.
    pub turn_id: TurnId,
    /// The root agent.
    pub agent_id: AgentId,
    /// Provider, if the answer names it.
    pub provider: Option<String>,
    /// Model, if the answer names it.
    pub model: Option<String>,
    /// input, output, total, cached, cache write, reasoning.
    pub tokens: [i64; 6],
    /// US dollars.
    pub cost_usd: f64,
    /// A second call of one effect: money spent twice.
    pub duplicate: bool,
    /// When.
    pub created_at: Micros,
}

/// A written-down piece of a session's fold: what `entries` a transcript has beyond `keep` of the piece before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldSnapshotRow {
    /// The session.
    pub session_id: SessionId,
    /// Cursor of the fold after this piece.
    pub cursor: i64,
    /// Cursor of the piece before it, -1 for none.
    pub base: i64,
    /// Entries kept of the piece before it.
    pub keep: i64,
    /// JSON array of entries.
    pub entries: JsonText,
}

/// The Tenant of this store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRow {
    /// `tn_…`.
    pub id: TenantId,
    /// In words.
    pub name: String,
    /// When it was created.
    pub created_at: Micros,
    /// When it was changed last.
    pub updated_at: Micros,
    /// Migrations applied.
    pub schema_version: i64,
    /// Generation of the record; one more on each reset of sessions.
    pub generation: i64,
}

/// Figures of the Tenant's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All sessions.
    pub sessions: i64,
    /// Sessions that are `running` or `runnable`.
    pub running_sessions: i64,
    /// Effects that wait for somebody else.
    pub pending_effects: i64,
    /// Effects whose fate is unknown.
    pub uncertain_effects: i64,
    /// Definitions.
    pub definitions: i64,
    /// Wakes given up for an operator.
    pub parked_wakes: i64,
}

/// Everything that can be read, in a transaction or on a reader's snapshot.
pub trait Reads {
    /// The store's clock; it never goes back while the process lives.
    fn now(&self) -> Micros;
    /// The Tenant.
    fn tenant(&mut self) -> StoreResult<TenantRow>;
    /// Status figures.
    fn counts(&mut self) -> StoreResult<Counts>;

    /// A session's head. In a transaction this locks it.
    fn session(&mut self, id: &SessionId) -> StoreResult<Option<SessionHead>>;
    /// What it was opened with.
    fn session_pin(&mut self, id: &SessionId) -> StoreResult<Option<SessionPin>>;
    /// Its turn's documents.
    fn session_doc(&mut self, id: &SessionId) -> StoreResult<Option<SessionDoc>>;
    /// Sessions by id, filtered.
    fn sessions(
        &mut self,
        agent: Option<&AgentId>,
        owner_user: Option<&str>,
        page: &Page,
    ) -> StoreResult<Vec<SessionHead>>;
    /// `running` or `runnable` sessions after an id that nobody works on: no owner, a lapsed lease, or (with
    /// `dead_others`, when this process alone uses the store) an owner that is not `worker`.
    fn orphans(
        &mut self,
        worker: &WorkerId,
        dead_others: bool,
        after: Option<&SessionId>,
        limit: usize,
    ) -> StoreResult<Vec<SessionId>>;

    /// A manifest's text by hash.
    fn manifest(&mut self, hash: &str) -> StoreResult<Option<JsonText>>;
    /// A definition.
    fn definition(&mut self, id: &AgentId) -> StoreResult<Option<DefinitionRow>>;
    /// Definitions by id.
    fn definitions(&mut self, page: &Page) -> StoreResult<Vec<DefinitionRow>>;

    /// A recorded command.
    fn command(&mut self, session: &SessionId, key: &str) -> StoreResult<Option<CommandRow>>;

    /// An effect.
    fn effect(&mut self, id: &EffectId) -> StoreResult<Option<EffectRow>>;
    /// Effects of a session with these statuses (none of them may be `completed` or `cancelled`), by id.
    fn open_effects(&mut self, session: &SessionId, statuses: &[EffectStatus])
    -> StoreResult<Vec<EffectRow>>;
    /// Completed effects whose id starts with `<turn>:<segment>:` and that have an outcome, by id.
    fn completed_effects(&mut self, turn: &TurnId, segment: u32) -> StoreResult<Vec<EffectRow>>;

    /// Next `seq` of a session's record, 0 when it has none.
    fn head(&mut self, session: &SessionId) -> StoreResult<i64>;
    /// Events from `from` on, in order.
    fn record(&mut self, session: &SessionId, from: i64, limit: usize) -> StoreResult<Vec<RecordRow>>;
    /// As [`Reads::record`], only the types that the transcript's fold reads.
    fn fold_record(&mut self, session: &SessionId, from: i64, limit: usize) -> StoreResult<Vec<RecordRow>>;
    /// Fold snapshots of a session with `from <= cursor <= to`, ascending.
    fn fold_snapshots(
        &mut self,
        session: &SessionId,
        from: i64,
        to: i64,
    ) -> StoreResult<Vec<FoldSnapshotRow>>;

    /// Wakes that may be handed over: not parked, due at `now`, oldest first. `grace_ms`: age from which a wake that never failed is due.
    fn due_wakes(&mut self, grace_ms: i64, limit: usize) -> StoreResult<Vec<WakeRow>>;

    /// A Tenant setting.
    fn setting(&mut self, key: &str) -> StoreResult<Option<String>>;
    /// Principal by SHA-256 of its key.
    fn principal_by_hash(&mut self, hash: &str) -> StoreResult<Option<PrincipalRow>>;
    /// Principals by id.
    fn principals(&mut self) -> StoreResult<Vec<PrincipalRow>>;
    /// A sealed credential.
    fn credential(&mut self, vault: &str, id: &str) -> StoreResult<Option<CredentialRow>>;
    /// Credentials of a vault by id.
    fn credentials(&mut self, vault: &str) -> StoreResult<Vec<CredentialRow>>;
    /// A stored answer.
    fn idempotency(&mut self, key: &str) -> StoreResult<Option<IdempotencyRow>>;
    /// Usage rows of an effect, by creation.
    fn usage_of_effect(&mut self, effect: &str) -> StoreResult<Vec<UsageRow>>;
}

/// One transaction.
///
/// A write to a session or an effect that does not exist fails with [`StoreError::Missing`]. After any other error
/// than `Missing` or `Conflict` the transaction is lost: whatever the closure answers, nothing of it is written.
pub trait Tx: Reads {
    /// A fresh random UUID.
    fn uuid(&mut self) -> String;

    /// Writes a new session. `owner`, `epoch` and expiry of the head are taken as given.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the id exists.
    fn insert_session(&mut self, head: &SessionHead, pin: &SessionPin, doc: &SessionDoc) -> StoreResult<()>;
    /// Writes status and turn ids, and nothing of the ownership.
    fn put_status(
        &mut self,
        id: &SessionId,
        status: SessionStatus,
        active: Option<&TurnId>,
        last: Option<&TurnId>,
    ) -> StoreResult<()>;
    /// Writes the ownership: owner, epoch, expiry.
    fn put_owner(
        &mut self,
        id: &SessionId,
        owner: Option<&WorkerId>,
        epoch: i64,
        expires: Option<Micros>,
    ) -> StoreResult<()>;
    /// Replaces the pin (attachments, MCP snapshot).
    fn put_session_pin(&mut self, id: &SessionId, pin: &SessionPin) -> StoreResult<()>;
    /// Replaces the turn's documents.
    fn put_session_doc(&mut self, id: &SessionId, doc: &SessionDoc) -> StoreResult<()>;
    /// Removes a session's rows (commands, effects, wakes and fold snapshots too; nothing when it is not there); its record and the record's head stay, so a session opened again under the id goes on numbering.
    fn delete_session(&mut self, id: &SessionId) -> StoreResult<()>;

    /// Keeps a manifest's text under its hash; nothing happens when it is there.
    fn put_manifest(&mut self, hash: &str, text: &JsonText) -> StoreResult<()>;
    /// Writes or replaces a definition.
    fn put_definition(&mut self, row: &DefinitionRow) -> StoreResult<()>;
    /// Records a command.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the session has one with this key, [`StoreError::Missing`] without the session.
    fn put_command(&mut self, session: &SessionId, key: &str, row: &CommandRow) -> StoreResult<()>;

    /// Writes a new effect.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the id exists, [`StoreError::Missing`] without the session.
    fn insert_effect(&mut self, row: &EffectRow) -> StoreResult<()>;
    /// Changes an effect's status, outcome and error.
    fn settle_effect(
        &mut self,
        id: &EffectId,
        status: EffectStatus,
        outcome: Option<&JsonText>,
        error: Option<&str>,
    ) -> StoreResult<()>;
    /// Hands an effect out once more: `invoking`, one more attempt.
    fn reinvoke_effect(&mut self, id: &EffectId) -> StoreResult<()>;
    /// Drops outcomes of the turn's completed model effects (those whose id starts with `<turn>:`) and marks them slimmed.
    fn slim_model_effects(&mut self, session: &SessionId, turn: &TurnId) -> StoreResult<()>;

    /// Appends an event to the session's record and answers its `seq`. The session must exist ([`StoreError::Missing`]); its current epoch goes into the envelope.
    fn event(
        &mut self,
        session: &SessionId,
        turn: Option<&TurnId>,
        kind: EventKind,
        payload: &str,
    ) -> StoreResult<i64>;
    /// Writes down a piece of the fold; an existing one at that cursor is replaced.
    fn put_fold_snapshot(&mut self, row: &FoldSnapshotRow) -> StoreResult<()>;

    /// Writes a wake.
    ///
    /// # Errors
    /// [`StoreError::Missing`] without the session.
    fn put_wake(&mut self, session: &SessionId, reason: &str, dedupe_key: Option<&str>) -> StoreResult<()>;
    /// Deletes every wake of a session: an advance has taken it.
    fn delete_wakes(&mut self, session: &SessionId) -> StoreResult<()>;
    /// A hand-over failed: one more attempt, due again in `retry_in_ms`, or parked.
    fn fail_wake(&mut self, id: &str, retry_in_ms: i64, park: bool) -> StoreResult<()>;

    /// Writes a Tenant setting.
    fn put_setting(&mut self, key: &str, value: &str) -> StoreResult<()>;
    /// Deletes a Tenant setting.
    fn delete_setting(&mut self, key: &str) -> StoreResult<()>;
    /// Writes or replaces a principal.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when another principal has this key.
    fn put_principal(&mut self, row: &PrincipalRow) -> StoreResult<()>;
    /// Deletes a principal; whether it was there.
    fn delete_principal(&mut self, id: &str) -> StoreResult<bool>;
    /// Writes or replaces a credential.
    fn put_credential(&mut self, row: &CredentialRow) -> StoreResult<()>;
    /// Deletes a credential; whether it was there.
    fn delete_credential(&mut self, vault: &str, id: &str) -> StoreResult<bool>;
    /// Keeps an answer.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when there is one under this key.
    fn put_idempotency(&mut self, key: &str, row: &IdempotencyRow) -> StoreResult<()>;
    /// Appends to the audit.
    fn put_audit(&mut self, row: &AuditRow) -> StoreResult<()>;
    /// Appends to the usage ledger.
    fn put_usage(&mut self, row: &UsageRow) -> StoreResult<()>;

    /// Deletes all sessions with everything of theirs (commands, effects, wakes, record, heads, fold snapshots) and moves the record to its next generation.
    fn reset_sessions(&mut self) -> StoreResult<()>;
}

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
