//! The record of workspaces: which there are, as whoever has them said last (spec: sandbox, section 10; durability,
//! section 3: `sandboxes`).

use super::StoreResult;
use crate::model::workspace::WorkspaceRecord;

/// What can be read of it.
pub trait WorkspaceReads {
    /// A workspace by its key.
    fn workspace(&mut self, key: &str) -> StoreResult<Option<WorkspaceRecord>>;
    /// Workspaces by key, strictly after `after`.
    fn workspaces(&mut self, after: Option<&str>, limit: usize) -> StoreResult<Vec<WorkspaceRecord>>;
    /// How many there are.
    fn count_workspaces(&mut self) -> StoreResult<i64>;
}

/// What a transaction writes of it.
pub trait WorkspaceTx: WorkspaceReads {
    /// Writes or replaces a workspace's record. Its session need not exist.
    fn put_workspace(&mut self, record: &WorkspaceRecord) -> StoreResult<()>;
    /// Deletes a record; whether it was there.
    fn delete_workspace(&mut self, key: &str) -> StoreResult<bool>;
}
