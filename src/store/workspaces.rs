//! The record of workspaces in diesel (spec: durability, section 3).

use diesel::prelude::*;
use diesel::upsert::excluded;
use nylorun_actors::model::ids::SessionId;
use nylorun_actors::model::workspace::{WorkspaceRecord, WorkspaceState};
use nylorun_actors::ports::StoreError;
use nylorun_actors::ports::store::{StoreResult, WorkspaceReads, WorkspaceTx};

use super::access::Access;
use super::prepared::prepared;
use super::schema::workspaces;

#[derive(Queryable, Selectable)]
#[diesel(table_name = workspaces)]
struct Row {
    key: String,
    session_id: String,
    sandbox_id: Option<String>,
    backend: String,
    image: String,
    state: String,
    created_at: String,
    updated_at: String,
}

impl Row {
    fn record(self) -> StoreResult<WorkspaceRecord> {
        let state = WorkspaceState::from_name(&self.state)
            .ok_or_else(|| StoreError::Corrupt(format!("a workspace in the state {:?}", self.state)))?;
        Ok(WorkspaceRecord {
            key: self.key,
            session_id: SessionId::from(self.session_id),
            sandbox_id: self.sandbox_id,
            backend: self.backend,
            image: self.image,
            state,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }
}

impl WorkspaceReads for Access<'_> {
    fn workspace(&mut self, key: &str) -> StoreResult<Option<WorkspaceRecord>> {
        let row: Option<Row> =
            self.run(|c| workspaces::table.find(key).select(Row::as_select()).get_result(c).optional())?;
        row.map(Row::record).transpose()
    }

    fn workspaces(&mut self, after: Option<&str>, limit: usize) -> StoreResult<Vec<WorkspaceRecord>> {
        let rows: Vec<Row> = self.run(|c| {
            workspaces::table
                // Every key is longer than nothing.
                .filter(workspaces::key.gt(after.unwrap_or_default()))
                .order(workspaces::key)
                .limit(i64::try_from(limit).unwrap_or(i64::MAX))
                .select(Row::as_select())
                .load(c)
        })?;
        rows.into_iter().map(Row::record).collect()
    }

    fn count_workspaces(&mut self) -> StoreResult<i64> {
        self.run(|c| workspaces::table.count().get_result(c))
    }
}

impl WorkspaceTx for Access<'_> {
    fn put_workspace(&mut self, record: &WorkspaceRecord) -> StoreResult<()> {
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(workspaces::table)
                    .values((
                        workspaces::key.eq(&record.key),
                        workspaces::session_id.eq(record.session_id.as_str()),
                        workspaces::sandbox_id.eq(record.sandbox_id.as_deref()),
                        workspaces::backend.eq(&record.backend),
                        workspaces::image.eq(&record.image),
                        workspaces::state.eq(record.state.as_str()),
                        workspaces::created_at.eq(&record.created_at),
                        workspaces::updated_at.eq(&record.updated_at),
                    ))
                    .on_conflict(workspaces::key)
                    .do_update()
                    .set((
                        workspaces::session_id.eq(excluded(workspaces::session_id)),
                        workspaces::sandbox_id.eq(excluded(workspaces::sandbox_id)),
                        workspaces::backend.eq(excluded(workspaces::backend)),
                        workspaces::image.eq(excluded(workspaces::image)),
                        workspaces::state.eq(excluded(workspaces::state)),
                        workspaces::created_at.eq(excluded(workspaces::created_at)),
                        workspaces::updated_at.eq(excluded(workspaces::updated_at)),
                    ))
            )
        })?;
        Ok(())
    }

    fn delete_workspace(&mut self, key: &str) -> StoreResult<bool> {
        let deleted = self.write(|c| prepared!(c, diesel::delete(workspaces::table.find(key))))?;
        Ok(deleted > 0)
    }
}
