//! Sandbox resources in the store: rows, events, and the outbox of workspaces whose files are still to be removed (spec:
//! sandbox, section 6; durability, sections 3.1 and 3.2).

use std::sync::Arc;

use super::rows::Page;
use super::{StoreResult, WorkspaceReads};
use crate::model::ids::SessionId;
use crate::model::sandbox::{SandboxEventKind, SandboxResource};
use crate::model::session::SessionHead;

/// What can be read of sandboxes.
pub trait SandboxReads: WorkspaceReads {
    /// A sandbox. In a transaction this locks it.
    fn sandbox(&mut self, id: &str) -> StoreResult<Option<SandboxResource>>;
    /// Sandboxes by id.
    fn sandboxes(&mut self, page: &Page) -> StoreResult<Vec<SandboxResource>>;
    /// How many there are.
    fn count_sandboxes(&mut self) -> StoreResult<i64>;
    /// Sessions that are attached to a sandbox, by id. The sandbox need not exist.
    fn sessions_on_sandbox(&mut self, id: &str) -> StoreResult<Vec<SessionHead>>;
    /// Those of them that have an active turn, by id.
    fn busy_on_sandbox(&mut self, id: &str) -> StoreResult<Vec<SessionId>>;
    /// Sessions that have an active turn and work in this session's workspace, itself not counted, by id.
    fn busy_sharing(&mut self, owner: &SessionId) -> StoreResult<Vec<SessionId>>;
    /// Events of a sandbox from `from` on, in order, as JSON text. The sandbox need not exist.
    fn sandbox_events(&mut self, id: &str, from: i64, limit: usize) -> StoreResult<Vec<Arc<str>>>;
    /// Whether files of a deleted sandbox of this id are still to be removed.
    fn is_sandbox_removal(&mut self, id: &str) -> StoreResult<bool>;
    /// Ids of deleted sandboxes whose files are still to be removed, oldest first.
    fn sandbox_removals(&mut self, limit: usize) -> StoreResult<Vec<String>>;
}

/// What a transaction writes of sandboxes.
pub trait SandboxTx: SandboxReads {
    /// Writes a new sandbox.
    ///
    /// # Errors
    /// [`StoreError::Conflict`](super::StoreError::Conflict) when the id exists.
    fn insert_sandbox(&mut self, row: &SandboxResource) -> StoreResult<()>;
    /// Replaces a sandbox's spec, labels and time of its last change.
    ///
    /// # Errors
    /// [`StoreError::Missing`](super::StoreError::Missing) without it.
    fn put_sandbox(&mut self, row: &SandboxResource) -> StoreResult<()>;
    /// Deletes a sandbox; whether it was there. Its events stay, and sessions stay attached by its id.
    fn delete_sandbox(&mut self, id: &str) -> StoreResult<bool>;
    /// Appends an event and answers its `seq`, which counts from 0 for each id. The sandbox need not exist (any more).
    fn sandbox_event(&mut self, id: &str, kind: SandboxEventKind, payload: &str) -> StoreResult<i64>;
    /// Notes that files of a deleted sandbox are to be removed.
    fn put_sandbox_removal(&mut self, id: &str) -> StoreResult<()>;
    /// They are removed.
    fn delete_sandbox_removal(&mut self, id: &str) -> StoreResult<()>;
}
