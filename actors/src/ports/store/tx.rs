//! What a transaction writes.

use super::actions::ActionTx;
use super::rows::{CommandRow, DefinitionRow, EffectRow, FoldSnapshotRow};
use super::tenant::TenantTx;
use super::{ArtifactTx, KeyTx, Reads, SandboxTx, StoreResult, WorkspaceTx};
use crate::model::Micros;
use crate::model::effect::EffectStatus;
use crate::model::event::EventKind;
use crate::model::ids::{EffectId, SessionId, TurnId, WorkerId};
use crate::model::json::JsonText;
use crate::model::session::{SessionDoc, SessionHead, SessionPin, SessionStatus};

/// One transaction.
///
/// A write to a session or an effect that does not exist fails with [`StoreError::Missing`](super::StoreError::Missing). After any other error
/// than `Missing` or `Conflict` the transaction is lost: whatever the closure answers, nothing of it is written.
pub trait Tx: Reads + ActionTx + ArtifactTx + KeyTx + SandboxTx + WorkspaceTx + TenantTx {
    /// A fresh random UUID.
    fn uuid(&mut self) -> String;

    /// Writes a new session. `owner`, `epoch` and expiry of the head are taken as given.
    ///
    /// # Errors
    /// [`StoreError::Conflict`](super::StoreError::Conflict) when the id exists.
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
    /// Removes a session's rows (commands, effects, wakes, fold snapshots and artifacts too; nothing when it is not there); its record and the record's head stay, so a session opened again under the id goes on numbering.
    fn delete_session(&mut self, id: &SessionId) -> StoreResult<()>;

    /// Keeps a manifest's text under its hash; nothing happens when it is there.
    fn put_manifest(&mut self, hash: &str, text: &JsonText) -> StoreResult<()>;
    /// Writes or replaces a definition.
    fn put_definition(&mut self, row: &DefinitionRow) -> StoreResult<()>;
    /// Records a command.
    ///
    /// # Errors
    /// [`StoreError::Conflict`](super::StoreError::Conflict) when the session has one with this key, [`StoreError::Missing`](super::StoreError::Missing) without the session.
    fn put_command(&mut self, session: &SessionId, key: &str, row: &CommandRow) -> StoreResult<()>;

    /// Writes a new effect.
    ///
    /// # Errors
    /// [`StoreError::Conflict`](super::StoreError::Conflict) when the id exists, [`StoreError::Missing`](super::StoreError::Missing) without the session.
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

    /// Appends an event to the session's record and answers its `seq`. The session must exist ([`StoreError::Missing`](super::StoreError::Missing)); its current epoch goes into the envelope.
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
    /// [`StoreError::Missing`](super::StoreError::Missing) without the session.
    fn put_wake(&mut self, session: &SessionId, reason: &str, dedupe_key: Option<&str>) -> StoreResult<()>;
    /// Deletes every wake of a session: an advance has taken it.
    fn delete_wakes(&mut self, session: &SessionId) -> StoreResult<()>;
    /// A hand-over failed: one more attempt, due again in `retry_in_ms`, or parked.
    fn fail_wake(&mut self, id: &str, retry_in_ms: i64, park: bool) -> StoreResult<()>;

    /// Deletes all sessions with everything of theirs (commands, effects, wakes, record, heads, fold snapshots, artifacts) and moves the record to its next generation.
    fn reset_sessions(&mut self) -> StoreResult<()>;
}
