//! The record of workspaces in memory.

use std::ops::Bound::{Excluded, Unbounded};

use super::tx::MemoryTx;
use crate::model::workspace::WorkspaceRecord;
use crate::ports::store::{StoreResult, WorkspaceReads, WorkspaceTx};

impl WorkspaceReads for MemoryTx<'_> {
    fn workspace(&mut self, key: &str) -> StoreResult<Option<WorkspaceRecord>> {
        Ok(self.tables().workspaces.get(key).cloned())
    }

    fn workspaces(&mut self, after: Option<&str>, limit: usize) -> StoreResult<Vec<WorkspaceRecord>> {
        let from = after.map_or(Unbounded, Excluded);
        let rows = self.tables().workspaces.range::<str, _>((from, Unbounded));
        Ok(rows.take(limit).map(|(_, record)| record.clone()).collect())
    }

    fn count_workspaces(&mut self) -> StoreResult<i64> {
        Ok(i64::try_from(self.tables().workspaces.len()).unwrap_or(i64::MAX))
    }
}

impl WorkspaceTx for MemoryTx<'_> {
    fn put_workspace(&mut self, record: &WorkspaceRecord) -> StoreResult<()> {
        self.set(|t| &mut t.workspaces, record.key.clone(), Some(record.clone()));
        Ok(())
    }

    fn delete_workspace(&mut self, key: &str) -> StoreResult<bool> {
        let there = self.tables().workspaces.contains_key(key);
        if there {
            self.set(|t| &mut t.workspaces, key.to_owned(), None);
        }
        Ok(there)
    }
}
