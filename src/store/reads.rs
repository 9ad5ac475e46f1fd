//! The port's reads in diesel. Statements that a turn needs are built without literals, lists or boxes, so that diesel
//! keeps them prepared (spec: durability, section 2). A single row is asked for without a limit: SQLite itself prepares a
//! statement anew each time a limit is bound to it.

use diesel::prelude::*;
use nylorun_actors::model::Micros;
use nylorun_actors::model::effect::EffectStatus;
use nylorun_actors::model::event::EventKind;
use nylorun_actors::model::ids::{AgentId, EffectId, SessionId, TurnId, WorkerId};
use nylorun_actors::model::json::JsonText;
use nylorun_actors::model::session::{SessionDoc, SessionHead, SessionPin, SessionStatus};
use nylorun_actors::ports::store::{
    CommandRow, Counts, DefinitionRow, EffectRow, FoldSnapshotRow, Page, Reads, RecordRow, StoreResult,
    TenantRow, WakeRow,
};

use super::access::Access;
use super::hot::{small_doc, small_pin};
use super::rows;
use super::schema::{
    actions, commands, definitions, effects, events, fold_snapshots, logs, manifests, session_docs,
    session_pins, sessions, tenant, wakes,
};

/// A row limit for SQL.
fn rows_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The smallest text above every text that starts with `prefix`, which ends in `:` (`;` is the next character).
pub(super) fn above(prefix: &str) -> String {
    let mut end = prefix.strip_suffix(':').unwrap_or(prefix).to_owned();
    end.push(';');
    end
}

impl Reads for Access<'_> {
    fn now(&self) -> Micros {
        self.shared.now()
    }

    fn tenant(&mut self) -> StoreResult<TenantRow> {
        let (id, name, created_at, updated_at, generation): (String, String, i64, i64, i64) =
            self.run(|c| {
                tenant::table
                    .select((
                        tenant::id,
                        tenant::name,
                        tenant::created_at,
                        tenant::updated_at,
                        tenant::generation,
                    ))
                    .get_result(c)
            })?;
        Ok(TenantRow {
            id: id.into(),
            name,
            created_at: Micros(created_at),
            updated_at: Micros(updated_at),
            schema_version: self.shared.schema_version,
            generation,
        })
    }

    fn counts(&mut self) -> StoreResult<Counts> {
        self.flush()?;
        let open = |status: EffectStatus| {
            effects::table
                .filter(effects::open_in.is_not_null())
                .filter(effects::status.eq(status.as_str()))
                .count()
        };
        Ok(Counts {
            sessions: self.run(|c| sessions::table.count().get_result(c))?,
            running_sessions: self.run(|c| sessions::table.filter(at_work()).count().get_result(c))?,
            pending_effects: self.run(|c| open(EffectStatus::Pending).get_result(c))?,
            uncertain_effects: self.run(|c| open(EffectStatus::Uncertain).get_result(c))?,
            definitions: self.run(|c| definitions::table.count().get_result(c))?,
            parked_wakes: self
                .run(|c| wakes::table.filter(wakes::parked_at.is_not_null()).count().get_result(c))?,
            parked_actions: self.run(|c| {
                let open = actions::table.filter(actions::open_for.is_not_null());
                open.filter(actions::parked_at.is_not_null()).count().get_result(c)
            })?,
        })
    }

    fn session(&mut self, id: &SessionId) -> StoreResult<Option<SessionHead>> {
        self.peek(id, |hot| hot.head.clone())
    }

    fn session_pin(&mut self, id: &SessionId) -> StoreResult<Option<SessionPin>> {
        let Some((no, known)) = self.peek(id, |hot| (hot.no, hot.pin.clone()))? else { return Ok(None) };
        if known.is_some() {
            return Ok(known);
        }
        let row: rows::Pin =
            self.run(|c| session_pins::table.find(no).select(rows::Pin::as_select()).get_result(c))?;
        let pin: SessionPin = row.into();
        if let Some(memory) = self.memory() {
            memory.change(id, |hot| hot.pin = small_pin(&pin));
        }
        Ok(Some(pin))
    }

    fn session_doc(&mut self, id: &SessionId) -> StoreResult<Option<SessionDoc>> {
        let seen = self.peek(id, |hot| (hot.no, hot.doc.clone()))?;
        let Some((no, known)) = seen else { return Ok(None) };
        if known.is_some() {
            return Ok(known);
        }
        let row: rows::Doc =
            self.run(|c| session_docs::table.find(no).select(rows::Doc::as_select()).get_result(c))?;
        let doc = row.doc()?;
        if let Some(memory) = self.memory() {
            memory.change(id, |hot| hot.doc = small_doc(&doc));
        }
        Ok(Some(doc))
    }

    fn sessions(
        &mut self,
        agent: Option<&AgentId>,
        owner_user: Option<&str>,
        page: &Page,
    ) -> StoreResult<Vec<SessionHead>> {
        self.flush()?;
        let mut query = sessions::table.select(rows::Session::as_select()).order(sessions::id).into_boxed();
        if let Some(agent) = agent {
            query = query.filter(sessions::agent_id.eq(agent.as_str()));
        }
        if let Some(owner_user) = owner_user {
            query = query.filter(sessions::owner_user_id.eq(owner_user));
        }
        if let Some(after) = &page.after {
            query = query.filter(sessions::id.gt(after));
        }
        if let Some(limit) = page.limit {
            query = query.limit(rows_limit(limit));
        }
        let found = self.run(|c| query.load(c))?;
        found.into_iter().map(rows::Session::head).collect()
    }

    fn orphans(
        &mut self,
        worker: &WorkerId,
        dead_others: bool,
        after: Option<&SessionId>,
        limit: usize,
    ) -> StoreResult<Vec<SessionId>> {
        self.flush()?;
        let now = self.now().0;
        let lapsed = sessions::owner_expires_at.is_null().or(sessions::owner_expires_at.le(now));
        let mut query = sessions::table
            .select(sessions::id)
            .filter(at_work())
            .order(sessions::id)
            .limit(rows_limit(limit))
            .into_boxed();
        query = if dead_others {
            let free = sessions::owner.is_null().or(sessions::owner.ne(worker.as_str()));
            query.filter(free.or(lapsed))
        } else {
            query.filter(sessions::owner.is_null().or(lapsed))
        };
        if let Some(after) = after {
            query = query.filter(sessions::id.gt(after.as_str()));
        }
        let found: Vec<String> = self.run(|c| query.load(c))?;
        Ok(found.into_iter().map(Into::into).collect())
    }

    fn manifest(&mut self, hash: &str) -> StoreResult<Option<JsonText>> {
        let text =
            self.run(|c| manifests::table.find(hash).select(manifests::body).get_result(c).optional())?;
        Ok(rows::json(text))
    }

    fn definition(&mut self, id: &AgentId) -> StoreResult<Option<DefinitionRow>> {
        let row: Option<rows::Definition> = self.run(|c| {
            definitions::table
                .find(id.as_str())
                .select(rows::Definition::as_select())
                .get_result(c)
                .optional()
        })?;
        Ok(row.map(Into::into))
    }

    fn definitions(&mut self, page: &Page) -> StoreResult<Vec<DefinitionRow>> {
        let mut query =
            definitions::table.select(rows::Definition::as_select()).order(definitions::id).into_boxed();
        if let Some(after) = &page.after {
            query = query.filter(definitions::id.gt(after));
        }
        if let Some(limit) = page.limit {
            query = query.limit(rows_limit(limit));
        }
        let found = self.run(|c| query.load(c))?;
        Ok(found.into_iter().map(Into::into).collect())
    }

    fn command(&mut self, session: &SessionId, key: &str) -> StoreResult<Option<CommandRow>> {
        let Some(no) = self.log_no(session)? else { return Ok(None) };
        let row: Option<(String, String)> = self.run(|c| {
            commands::table
                .filter(commands::log_no.eq(no))
                .filter(commands::key.eq(key))
                .select((commands::digest, commands::response))
                .get_result(c)
                .optional()
        })?;
        Ok(row.map(|(digest, response)| CommandRow { digest, response: JsonText::from_trusted(response) }))
    }

    fn effect(&mut self, id: &EffectId) -> StoreResult<Option<EffectRow>> {
        if let Some(row) = self.memory().and_then(|memory| memory.effect(id).cloned()) {
            return Ok(Some(row));
        }
        if self.memory().is_some_and(|memory| memory.is_new_effect(id)) {
            return Ok(None);
        }
        let row: Option<(rows::Effect, String)> = self.run(|c| {
            effects::table
                .inner_join(logs::table)
                .filter(effects::id.eq(id.as_str()))
                .select((rows::Effect::as_select(), logs::session_id))
                .get_result(c)
                .optional()
        })?;
        row.map(|(row, session)| row.row(&session)).transpose()
    }

    fn open_effects(
        &mut self,
        session: &SessionId,
        statuses: &[EffectStatus],
    ) -> StoreResult<Vec<EffectRow>> {
        let is_asked = |row: &EffectRow| statuses.contains(&row.status);
        if let Some(mut known) = self.memory().and_then(|memory| memory.open_effects(session)) {
            known.retain(is_asked);
            return Ok(known);
        }
        let Some(no) = self.log_no(session)? else { return Ok(Vec::new()) };
        // All of them, picked here: a list of statuses in SQL would be prepared anew each time.
        let found: Vec<rows::Effect> = self.run(|c| {
            effects::table
                .filter(effects::open_in.eq(no))
                .order(effects::id)
                .select(rows::Effect::as_select())
                .load(c)
        })?;
        let mut open = Vec::with_capacity(found.len());
        for row in found {
            open.push(row.row(session.as_str())?);
        }
        if let Some(memory) = self.memory() {
            memory.remember_open(session, &open);
        }
        open.retain(is_asked);
        Ok(open)
    }

    fn completed_effects(&mut self, turn: &TurnId, segment: u32) -> StoreResult<Vec<EffectRow>> {
        let prefix = format!("{turn}:{segment}:");
        if self.memory().is_some_and(|memory| memory.has_none(turn, &prefix)) {
            return Ok(Vec::new());
        }
        let found: Vec<(rows::Effect, String)> = self.run(|c| {
            effects::table
                .inner_join(logs::table)
                .filter(effects::id.ge(&prefix))
                .filter(effects::id.lt(above(&prefix)))
                .filter(effects::status.eq(EffectStatus::Completed.as_str()))
                .filter(effects::outcome.is_not_null())
                .order(effects::id)
                .select((rows::Effect::as_select(), logs::session_id))
                .load(c)
        })?;
        found.into_iter().map(|(row, session)| row.row(&session)).collect()
    }

    fn head(&mut self, session: &SessionId) -> StoreResult<i64> {
        if let Some(Some(seq)) = self.peek(session, |hot| hot.next_seq)? {
            return Ok(seq);
        }
        let Some(no) = self.log_no(session)? else { return Ok(0) };
        self.load_head(no)
    }

    fn record(&mut self, session: &SessionId, from: i64, limit: usize) -> StoreResult<Vec<RecordRow>> {
        let Some(no) = self.log_no(session)? else { return Ok(Vec::new()) };
        let found: Vec<rows::Event> = self.run(|c| {
            events::table
                .filter(events::log_no.eq(no))
                .filter(events::seq.ge(from))
                .order(events::seq)
                .limit(rows_limit(limit))
                .select(rows::Event::as_select())
                .load(c)
        })?;
        found.into_iter().map(rows::Event::row).collect()
    }

    fn fold_record(&mut self, session: &SessionId, from: i64, limit: usize) -> StoreResult<Vec<RecordRow>> {
        let Some(no) = self.log_no(session)? else { return Ok(Vec::new()) };
        let is = |kind: EventKind| events::kind.eq(kind.as_str());
        let step = is(EventKind::TranscriptUpdated)
            .or(is(EventKind::TurnCancelled))
            .or(is(EventKind::TurnFailed))
            .or(is(EventKind::TurnCompleted));
        let found: Vec<rows::Event> = self.run(|c| {
            events::table
                .filter(events::log_no.eq(no))
                .filter(events::seq.ge(from))
                .filter(step)
                .order(events::seq)
                .limit(rows_limit(limit))
                .select(rows::Event::as_select())
                .load(c)
        })?;
        found.into_iter().map(rows::Event::row).collect()
    }

    fn fold_snapshots(
        &mut self,
        session: &SessionId,
        from: i64,
        to: i64,
    ) -> StoreResult<Vec<FoldSnapshotRow>> {
        let Some(no) = self.log_no(session)? else { return Ok(Vec::new()) };
        let found: Vec<(i64, i64, i64, String)> = self.run(|c| {
            fold_snapshots::table
                .filter(fold_snapshots::log_no.eq(no))
                .filter(fold_snapshots::cursor.ge(from))
                .filter(fold_snapshots::cursor.le(to))
                .order(fold_snapshots::cursor)
                .select((
                    fold_snapshots::cursor,
                    fold_snapshots::base,
                    fold_snapshots::keep,
                    fold_snapshots::entries,
                ))
                .load(c)
        })?;
        let row = |(cursor, base, keep, entries): (i64, i64, i64, String)| FoldSnapshotRow {
            session_id: session.clone(),
            cursor,
            base,
            keep,
            entries: JsonText::from_trusted(entries),
        };
        Ok(found.into_iter().map(row).collect())
    }

    fn due_wakes(&mut self, grace_ms: i64, limit: usize) -> StoreResult<Vec<WakeRow>> {
        let now = self.now();
        let never_failed = wakes::retry_at.is_null().and(wakes::created_at.le(now.plus_ms(-grace_ms).0));
        let due =
            never_failed.or(wakes::retry_at.is_not_null().and(wakes::retry_at.assume_not_null().le(now.0)));
        let found: Vec<(rows::Wake, String)> = self.run(|c| {
            wakes::table
                .inner_join(logs::table)
                .filter(wakes::parked_at.is_null())
                .filter(due)
                .order(wakes::id)
                .limit(rows_limit(limit))
                .select((rows::Wake::as_select(), logs::session_id))
                .load(c)
        })?;
        Ok(found.into_iter().map(|(row, session)| row.row(&session)).collect())
    }
}

/// The condition of the partial index `sessions_at_work`, in the words SQLite needs to recognise it.
fn at_work() -> diesel::expression::SqlLiteral<diesel::sql_types::Bool> {
    debug_assert_eq!(
        (SessionStatus::Runnable.as_str(), SessionStatus::Running.as_str()),
        ("runnable", "running")
    );
    diesel::dsl::sql("status IN ('runnable', 'running')")
}
