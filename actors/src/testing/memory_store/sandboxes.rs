//! Sandbox resources of the in-memory store.

use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use super::tx::MemoryTx;
use crate::model::ids::SessionId;
use crate::model::sandbox::resource::SandboxEnvelope;
use crate::model::sandbox::{SandboxEventKind, SandboxResource};
use crate::model::session::SessionHead;
use crate::ports::store::{Page, Reads, SandboxReads, SandboxTx, StoreError, StoreResult, Tx};

impl SandboxReads for MemoryTx<'_> {
    fn sandbox(&mut self, id: &str) -> StoreResult<Option<SandboxResource>> {
        Ok(self.tables().sandboxes.get(id).cloned())
    }

    fn sandboxes(&mut self, page: &Page) -> StoreResult<Vec<SandboxResource>> {
        let from = page.after.as_deref().map_or(Unbounded, Excluded);
        let rows = self.tables().sandboxes.range::<str, _>((from, Unbounded));
        Ok(rows.take(page.limit.unwrap_or(usize::MAX)).map(|(_, row)| row.clone()).collect())
    }

    fn count_sandboxes(&mut self) -> StoreResult<i64> {
        Ok(i64::try_from(self.tables().sandboxes.len()).unwrap_or(i64::MAX))
    }

    fn sessions_on_sandbox(&mut self, id: &str) -> StoreResult<Vec<SessionHead>> {
        let heads = self.tables().sessions.values().map(|rows| &rows.head);
        Ok(heads.filter(|head| head.sandbox_id.as_deref() == Some(id)).cloned().collect())
    }

    fn busy_on_sandbox(&mut self, id: &str) -> StoreResult<Vec<SessionId>> {
        let heads = self.sessions_on_sandbox(id)?.into_iter();
        Ok(heads.filter(|head| head.active_turn_id.is_some()).map(|head| head.id).collect())
    }

    fn busy_sharing(&mut self, owner: &SessionId) -> StoreResult<Vec<SessionId>> {
        let rows = self.tables().sessions.values();
        let sharing =
            rows.filter(|rows| rows.pin.sandbox_owner_id.as_ref() == Some(owner)).map(|rows| &rows.head);
        Ok(sharing.filter(|head| head.active_turn_id.is_some()).map(|head| head.id.clone()).collect())
    }

    fn sandbox_events(&mut self, id: &str, from: i64, limit: usize) -> StoreResult<Vec<Arc<str>>> {
        let id = id.to_owned();
        let rows = self.tables().sandbox_events.range((id.clone(), from)..=(id, i64::MAX));
        Ok(rows.take(limit).map(|(_, body)| body.clone()).collect())
    }

    fn is_sandbox_removal(&mut self, id: &str) -> StoreResult<bool> {
        Ok(self.tables().sandbox_removals.contains_key(id))
    }

    fn sandbox_removals(&mut self, limit: usize) -> StoreResult<Vec<String>> {
        let mut rows: Vec<_> =
            self.tables().sandbox_removals.iter().map(|(id, since)| (*since, id)).collect();
        rows.sort();
        Ok(rows.into_iter().take(limit).map(|(_, id)| id.clone()).collect())
    }
}

impl SandboxTx for MemoryTx<'_> {
    fn insert_sandbox(&mut self, row: &SandboxResource) -> StoreResult<()> {
        self.insert(|t| &mut t.sandboxes, row.id.clone(), row.clone())
    }

    fn put_sandbox(&mut self, row: &SandboxResource) -> StoreResult<()> {
        let Some(stored) = self.tables().sandboxes.get(&row.id).cloned() else {
            return Err(StoreError::Missing(format!("sandbox {}", row.id)));
        };
        let changed = SandboxResource {
            spec: row.spec.clone(),
            labels: row.labels.clone(),
            updated_at: row.updated_at,
            ..stored
        };
        self.set(|t| &mut t.sandboxes, row.id.clone(), Some(changed));
        Ok(())
    }

    fn delete_sandbox(&mut self, id: &str) -> StoreResult<bool> {
        let there = self.tables().sandboxes.contains_key(id);
        if there {
            self.set(|t| &mut t.sandboxes, id.to_owned(), None);
        }
        Ok(there)
    }

    fn sandbox_event(&mut self, id: &str, kind: SandboxEventKind, payload: &str) -> StoreResult<i64> {
        let key = id.to_owned();
        let last = self.tables().sandbox_events.range((key.clone(), 0)..=(key.clone(), i64::MAX)).next_back();
        let seq = last.map_or(0, |((_, seq), _)| seq + 1);
        let (event_id, time) = (self.uuid(), self.now());
        let tenant = self.tenant()?.id;
        let body =
            SandboxEnvelope { event_id: &event_id, tenant: &tenant, sandbox: id, seq, time, kind, payload }
                .to_text();
        self.insert(|t| &mut t.sandbox_events, (key, seq), Arc::from(body))?;
        Ok(seq)
    }

    fn put_sandbox_removal(&mut self, id: &str) -> StoreResult<()> {
        if !self.tables().sandbox_removals.contains_key(id) {
            let now = self.now();
            self.set(|t| &mut t.sandbox_removals, id.to_owned(), Some(now));
        }
        Ok(())
    }

    fn delete_sandbox_removal(&mut self, id: &str) -> StoreResult<()> {
        self.set(|t| &mut t.sandbox_removals, id.to_owned(), None);
        Ok(())
    }
}
