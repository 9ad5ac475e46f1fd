//! Sandbox resources in diesel (spec: sandbox, section 6; durability, sections 3.1 and 3.2).

use std::sync::Arc;

use diesel::prelude::*;
use nylorun_actors::model::Micros;
use nylorun_actors::model::ids::SessionId;
use nylorun_actors::model::json::{decode, encode};
use nylorun_actors::model::sandbox::resource::SandboxEnvelope;
use nylorun_actors::model::sandbox::{SandboxEventKind, SandboxKind, SandboxResource};
use nylorun_actors::model::session::SessionHead;
use nylorun_actors::ports::StoreError;
use nylorun_actors::ports::store::{Page, SandboxReads, SandboxTx, StoreResult, Tx as _};

use super::access::Access;
use super::prepared::{change, prepared};
use super::rows;
use super::schema::{sandbox_events, sandbox_removals, sandboxes, session_pins, sessions};

#[derive(Queryable, Selectable)]
#[diesel(table_name = sandboxes)]
struct Row {
    id: String,
    kind: String,
    spec: String,
    labels: String,
    created_at: i64,
    updated_at: i64,
}

impl Row {
    fn resource(self) -> StoreResult<SandboxResource> {
        let odd = |what: &str| StoreError::Corrupt(format!("{what} of the sandbox {}", self.id));
        Ok(SandboxResource {
            kind: SandboxKind::from_name(&self.kind).ok_or_else(|| odd("the kind"))?,
            spec: decode(self.spec.as_bytes()).map_err(|_| odd("the spec"))?,
            labels: decode(self.labels.as_bytes()).map_err(|_| odd("the labels"))?,
            created_at: Micros(self.created_at),
            updated_at: Micros(self.updated_at),
            id: self.id,
        })
    }
}

fn rows_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl SandboxReads for Access<'_> {
    fn sandbox(&mut self, id: &str) -> StoreResult<Option<SandboxResource>> {
        let row: Option<Row> =
            self.run(|c| sandboxes::table.find(id).select(Row::as_select()).get_result(c).optional())?;
        row.map(Row::resource).transpose()
    }

    fn sandboxes(&mut self, page: &Page) -> StoreResult<Vec<SandboxResource>> {
        let mut query = sandboxes::table.select(Row::as_select()).order(sandboxes::id).into_boxed();
        if let Some(after) = &page.after {
            query = query.filter(sandboxes::id.gt(after));
        }
        if let Some(limit) = page.limit {
            query = query.limit(rows_limit(limit));
        }
        let found: Vec<Row> = self.run(|c| query.load(c))?;
        found.into_iter().map(Row::resource).collect()
    }

    fn count_sandboxes(&mut self) -> StoreResult<i64> {
        self.run(|c| sandboxes::table.count().get_result(c))
    }

    fn sessions_on_sandbox(&mut self, id: &str) -> StoreResult<Vec<SessionHead>> {
        self.flush()?;
        let found: Vec<rows::Session> = self.run(|c| {
            sessions::table
                .filter(sessions::sandbox_id.eq(id))
                .order(sessions::id)
                .select(rows::Session::as_select())
                .load(c)
        })?;
        found.into_iter().map(rows::Session::head).collect()
    }

    fn busy_on_sandbox(&mut self, id: &str) -> StoreResult<Vec<SessionId>> {
        self.flush()?;
        let found: Vec<String> = self.run(|c| {
            sessions::table
                .filter(sessions::sandbox_id.eq(id))
                .filter(sessions::active_turn_id.is_not_null())
                .order(sessions::id)
                .select(sessions::id)
                .load(c)
        })?;
        Ok(found.into_iter().map(Into::into).collect())
    }

    fn busy_sharing(&mut self, owner: &SessionId) -> StoreResult<Vec<SessionId>> {
        self.flush()?;
        let found: Vec<String> = self.run(|c| {
            sessions::table
                .inner_join(session_pins::table.on(session_pins::no.eq(sessions::no)))
                .filter(session_pins::sandbox_owner_id.eq(owner.as_str()))
                .filter(sessions::active_turn_id.is_not_null())
                .order(sessions::id)
                .select(sessions::id)
                .load(c)
        })?;
        Ok(found.into_iter().map(Into::into).collect())
    }

    fn sandbox_events(&mut self, id: &str, from: i64, limit: usize) -> StoreResult<Vec<Arc<str>>> {
        let found: Vec<String> = self.run(|c| {
            sandbox_events::table
                .filter(sandbox_events::sandbox_id.eq(id))
                .filter(sandbox_events::seq.ge(from))
                .order(sandbox_events::seq)
                .limit(rows_limit(limit))
                .select(sandbox_events::body)
                .load(c)
        })?;
        Ok(found.into_iter().map(Into::into).collect())
    }

    fn is_sandbox_removal(&mut self, id: &str) -> StoreResult<bool> {
        let found: i64 = self.run(|c| sandbox_removals::table.find(id).count().get_result(c))?;
        Ok(found > 0)
    }

    fn sandbox_removals(&mut self, limit: usize) -> StoreResult<Vec<String>> {
        self.run(|c| {
            sandbox_removals::table
                .order((sandbox_removals::since, sandbox_removals::sandbox_id))
                .limit(rows_limit(limit))
                .select(sandbox_removals::sandbox_id)
                .load(c)
        })
    }
}

impl SandboxTx for Access<'_> {
    fn insert_sandbox(&mut self, row: &SandboxResource) -> StoreResult<()> {
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(sandboxes::table).values((
                    sandboxes::id.eq(&row.id),
                    sandboxes::kind.eq(row.kind.as_str()),
                    sandboxes::spec.eq(encode(&row.spec)),
                    sandboxes::labels.eq(encode(&row.labels)),
                    sandboxes::created_at.eq(row.created_at.0),
                    sandboxes::updated_at.eq(row.updated_at.0),
                ))
            )
        })?;
        Ok(())
    }

    fn put_sandbox(&mut self, row: &SandboxResource) -> StoreResult<()> {
        let changed = self.write(|c| {
            change!(
                c,
                sandboxes::table,
                sandboxes::id.eq(&row.id),
                (
                    sandboxes::spec.eq(encode(&row.spec)),
                    sandboxes::labels.eq(encode(&row.labels)),
                    sandboxes::updated_at.eq(row.updated_at.0),
                )
            )
        })?;
        if changed == 0 { Err(StoreError::Missing(format!("sandbox {}", row.id))) } else { Ok(()) }
    }

    fn delete_sandbox(&mut self, id: &str) -> StoreResult<bool> {
        let deleted = self.write(|c| prepared!(c, diesel::delete(sandboxes::table.find(id))))?;
        Ok(deleted > 0)
    }

    fn sandbox_event(&mut self, id: &str, kind: SandboxEventKind, payload: &str) -> StoreResult<i64> {
        let last: Option<i64> = self.run(|c| {
            sandbox_events::table
                .filter(sandbox_events::sandbox_id.eq(id))
                .select(diesel::dsl::max(sandbox_events::seq))
                .get_result(c)
        })?;
        let seq = last.map_or(0, |seq| seq + 1);
        let (event_id, time) = (self.uuid(), self.shared.now());
        let tenant = &self.shared.tenant;
        let body =
            SandboxEnvelope { event_id: &event_id, tenant, sandbox: id, seq, time, kind, payload }.to_text();
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(sandbox_events::table).values((
                    sandbox_events::sandbox_id.eq(id),
                    sandbox_events::seq.eq(seq),
                    sandbox_events::body.eq(&body),
                ))
            )
        })?;
        Ok(seq)
    }

    fn put_sandbox_removal(&mut self, id: &str) -> StoreResult<()> {
        let since = self.shared.now().0;
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(sandbox_removals::table)
                    .values((sandbox_removals::sandbox_id.eq(id), sandbox_removals::since.eq(since)))
                    .on_conflict_do_nothing()
            )
        })?;
        Ok(())
    }

    fn delete_sandbox_removal(&mut self, id: &str) -> StoreResult<()> {
        self.write(|c| prepared!(c, diesel::delete(sandbox_removals::table.find(id))))?;
        Ok(())
    }
}
