//! What can be read.

use super::actions::ActionReads;
use super::rows::{
    CommandRow, Counts, DefinitionRow, EffectRow, FoldSnapshotRow, Page, RecordRow, TenantRow, WakeRow,
};
use super::tenant::TenantReads;
use super::{ArtifactReads, KeyReads, SandboxReads, StoreResult, WorkspaceReads};
use crate::model::Micros;
use crate::model::effect::EffectStatus;
use crate::model::ids::{AgentId, EffectId, SessionId, TurnId, WorkerId};
use crate::model::json::JsonText;
use crate::model::session::{SessionDoc, SessionHead, SessionPin};

/// Everything that can be read, in a transaction or on a reader's snapshot.
pub trait Reads:
    ActionReads + ArtifactReads + KeyReads + SandboxReads + TenantReads + WorkspaceReads
{
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
}
