//! One transaction (or read) of the in-memory store.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::data::{Data, SessionRows, Table, Tables, Undo};
use crate::model::Micros;
use crate::model::action::ActionStatus;
use crate::model::effect::{EffectKind, EffectStatus};
use crate::model::event::{Envelope, EventKind};
use crate::model::ids::{AgentId, EffectId, SessionId, TenantId, TurnId, WorkerId};
use crate::model::json::JsonText;
use crate::model::session::{SessionDoc, SessionHead, SessionPin, SessionStatus};
use crate::ports::store::{
    CommandRow, Committed, Counts, DefinitionRow, EffectRow, FoldSnapshotRow, Page, Reads, RecordRow,
    StoreError, StoreResult, TenantRow, Tx, WakeRow,
};
use crate::ports::{Clock, Entropy};

/// What every transaction of one store shares.
pub(super) struct Env {
    pub tenant: TenantId,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    latest: AtomicI64,
}

impl Env {
    pub fn new(tenant: TenantId, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { tenant, clock, entropy, latest: AtomicI64::new(i64::MIN) }
    }

    /// The clock, never earlier than it was.
    pub fn now(&self) -> Micros {
        let now = self.clock.now().0;
        Micros(self.latest.fetch_max(now, Ordering::SeqCst).max(now))
    }
}

pub(super) struct MemoryTx<'a> {
    env: &'a Env,
    pub(super) data: &'a mut Data,
    undo: Vec<Undo>,
    events: Vec<Committed>,
}

impl<'a> MemoryTx<'a> {
    pub fn new(env: &'a Env, data: &'a mut Data) -> Self {
        Self { env, data, undo: Vec::new(), events: Vec::new() }
    }

    pub fn wrote(&self) -> bool {
        !self.undo.is_empty()
    }

    pub fn events(&self) -> &[Committed] {
        &self.events
    }

    pub fn into_events(self) -> Vec<Committed> {
        self.events
    }

    pub fn roll_back(self) {
        for step in self.undo.into_iter().rev() {
            step(self.data);
        }
    }

    pub(super) fn tables(&self) -> &Tables {
        &self.data.tables
    }

    pub(super) fn set<K, V>(&mut self, table: Table<K, V>, key: K, value: Option<V>)
    where
        K: Ord + Clone + 'static,
        V: 'static,
    {
        let undo = self.data.set(table, key, value);
        self.undo.push(undo);
    }

    pub(super) fn insert<K, V>(&mut self, table: Table<K, V>, key: K, value: V) -> StoreResult<()>
    where
        K: Ord + Clone + std::fmt::Debug + 'static,
        V: 'static,
    {
        if table(&mut self.data.tables).contains_key(&key) {
            return Err(StoreError::Conflict(format!("{key:?} exists")));
        }
        self.set(table, key, Some(value));
        Ok(())
    }

    pub(super) fn remove_where<K, V>(&mut self, table: Table<K, V>, goes: impl Fn(&K, &V) -> bool)
    where
        K: Ord + Clone + 'static,
        V: 'static,
    {
        let keys: Vec<K> =
            table(&mut self.data.tables).iter().filter(|(k, v)| goes(k, v)).map(|(k, _)| k.clone()).collect();
        for key in keys {
            self.set(table, key, None);
        }
    }

    fn rows(&self, id: &SessionId) -> StoreResult<SessionRows> {
        self.data.tables.sessions.get(id).cloned().ok_or_else(|| missing("session", id.as_str()))
    }

    fn change_session(&mut self, id: &SessionId, change: impl FnOnce(&mut SessionRows)) -> StoreResult<()> {
        let mut rows = self.rows(id)?;
        change(&mut rows);
        self.set(|t| &mut t.sessions, id.clone(), Some(rows));
        Ok(())
    }

    fn change_effect(&mut self, id: &EffectId, change: impl FnOnce(&mut EffectRow)) -> StoreResult<()> {
        let found = self.data.tables.effects.get(id).cloned();
        let mut row = found.ok_or_else(|| missing("effect", id.as_str()))?;
        change(&mut row);
        self.set(|t| &mut t.effects, id.clone(), Some(row));
        Ok(())
    }

    fn record_of(&self, session: &SessionId, from: i64) -> impl Iterator<Item = &RecordRow> {
        self.data
            .tables
            .events
            .range((session.clone(), from)..=(session.clone(), i64::MAX))
            .map(|(_, row)| row)
    }
}

fn missing(what: &str, id: &str) -> StoreError {
    StoreError::Missing(format!("{what} {id}"))
}

fn is_open(status: EffectStatus) -> bool {
    !matches!(status, EffectStatus::Completed | EffectStatus::Cancelled)
}

fn is_after(id: &str, page: &Page) -> bool {
    page.after.as_deref().is_none_or(|after| id > after)
}

impl Reads for MemoryTx<'_> {
    fn now(&self) -> Micros {
        self.env.now()
    }

    fn tenant(&mut self) -> StoreResult<TenantRow> {
        Ok(TenantRow {
            id: self.env.tenant.clone(),
            name: self.data.name.clone(),
            created_at: self.data.created_at,
            updated_at: self.data.updated_at,
            schema_version: super::SCHEMA_VERSION,
            generation: self.data.generation,
        })
    }

    fn counts(&mut self) -> StoreResult<Counts> {
        let t = &self.data.tables;
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let effects = |status| count(t.effects.values().filter(|e| e.status == status).count());
        let works = |h: &SessionHead| matches!(h.status, SessionStatus::Running | SessionStatus::Runnable);
        Ok(Counts {
            sessions: count(t.sessions.len()),
            running_sessions: count(t.sessions.values().filter(|s| works(&s.head)).count()),
            pending_effects: effects(EffectStatus::Pending),
            uncertain_effects: effects(EffectStatus::Uncertain),
            definitions: count(t.definitions.len()),
            parked_wakes: count(t.wakes.values().filter(|w| w.parked_at.is_some()).count()),
            parked_actions: count(
                t.actions.values().filter(|(_, a)| a.status.is_open() && a.parked_at.is_some()).count(),
            ),
            delivering_actions: count(
                t.actions.values().filter(|(_, a)| a.status == ActionStatus::Delivering).count(),
            ),
        })
    }

    fn session(&mut self, id: &SessionId) -> StoreResult<Option<SessionHead>> {
        Ok(self.data.tables.sessions.get(id).map(|s| s.head.clone()))
    }

    fn session_pin(&mut self, id: &SessionId) -> StoreResult<Option<SessionPin>> {
        Ok(self.data.tables.sessions.get(id).map(|s| s.pin.clone()))
    }

    fn session_doc(&mut self, id: &SessionId) -> StoreResult<Option<SessionDoc>> {
        Ok(self.data.tables.sessions.get(id).map(|s| s.doc.clone()))
    }

    fn sessions(
        &mut self,
        agent: Option<&AgentId>,
        owner_user: Option<&str>,
        page: &Page,
    ) -> StoreResult<Vec<SessionHead>> {
        let heads = self.data.tables.sessions.values().map(|s| &s.head);
        Ok(heads
            .filter(|h| is_after(h.id.as_str(), page))
            .filter(|h| agent.is_none_or(|a| h.agent_id == *a))
            .filter(|h| owner_user.is_none_or(|o| h.owner_user_id == o))
            .take(page.limit.unwrap_or(usize::MAX))
            .cloned()
            .collect())
    }

    fn orphans(
        &mut self,
        worker: &WorkerId,
        dead_others: bool,
        after: Option<&SessionId>,
        limit: usize,
    ) -> StoreResult<Vec<SessionId>> {
        let now = self.now();
        let from = after.map_or(Unbounded, Excluded);
        let heads = self.data.tables.sessions.range::<SessionId, _>((from, Unbounded)).map(|(_, s)| &s.head);
        Ok(heads
            .filter(|h| matches!(h.status, SessionStatus::Running | SessionStatus::Runnable))
            .filter(|h| match &h.owner {
                None => true,
                Some(owner) => {
                    h.owner_expires_at.is_none_or(|at| at <= now) || (dead_others && owner != worker)
                }
            })
            .take(limit)
            .map(|h| h.id.clone())
            .collect())
    }

    fn manifest(&mut self, hash: &str) -> StoreResult<Option<JsonText>> {
        Ok(self.data.tables.manifests.get(hash).cloned())
    }

    fn definition(&mut self, id: &AgentId) -> StoreResult<Option<DefinitionRow>> {
        Ok(self.data.tables.definitions.get(id).cloned())
    }

    fn definitions(&mut self, page: &Page) -> StoreResult<Vec<DefinitionRow>> {
        let rows = self.data.tables.definitions.values().filter(|d| is_after(d.id.as_str(), page));
        Ok(rows.take(page.limit.unwrap_or(usize::MAX)).cloned().collect())
    }

    fn command(&mut self, session: &SessionId, key: &str) -> StoreResult<Option<CommandRow>> {
        Ok(self.data.tables.commands.get(&(session.clone(), key.to_owned())).cloned())
    }

    fn effect(&mut self, id: &EffectId) -> StoreResult<Option<EffectRow>> {
        Ok(self.data.tables.effects.get(id).cloned())
    }

    fn open_effects(
        &mut self,
        session: &SessionId,
        statuses: &[EffectStatus],
    ) -> StoreResult<Vec<EffectRow>> {
        let rows = self.data.tables.effects.values();
        Ok(rows
            .filter(|e| e.session_id == *session && is_open(e.status) && statuses.contains(&e.status))
            .cloned()
            .collect())
    }

    fn completed_effects(&mut self, turn: &TurnId, segment: u32) -> StoreResult<Vec<EffectRow>> {
        let prefix = format!("{turn}:{segment}:");
        let rows = self.data.tables.effects.values().filter(|e| e.id.as_str().starts_with(&prefix));
        Ok(rows.filter(|e| e.status == EffectStatus::Completed && e.outcome.is_some()).cloned().collect())
    }

    fn head(&mut self, session: &SessionId) -> StoreResult<i64> {
        let last =
            self.data.tables.events.range((session.clone(), 0)..=(session.clone(), i64::MAX)).next_back();
        Ok(last.map_or(0, |((_, seq), _)| seq + 1))
    }

    fn record(&mut self, session: &SessionId, from: i64, limit: usize) -> StoreResult<Vec<RecordRow>> {
        Ok(self.record_of(session, from).take(limit).cloned().collect())
    }

    fn fold_record(&mut self, session: &SessionId, from: i64, limit: usize) -> StoreResult<Vec<RecordRow>> {
        let steps = self.record_of(session, from).filter(|row| row.kind.is_fold_step());
        Ok(steps.take(limit).cloned().collect())
    }

    fn fold_snapshots(
        &mut self,
        session: &SessionId,
        from: i64,
        to: i64,
    ) -> StoreResult<Vec<FoldSnapshotRow>> {
        if from > to {
            return Ok(Vec::new());
        }
        let range = (Included((session.clone(), from)), Included((session.clone(), to)));
        Ok(self.data.tables.folds.range(range).map(|(_, row)| row.clone()).collect())
    }

    fn due_wakes(&mut self, grace_ms: i64, limit: usize) -> StoreResult<Vec<WakeRow>> {
        let now = self.now();
        let due = |w: &&WakeRow| match w.retry_at {
            _ if w.parked_at.is_some() => false,
            Some(at) => at <= now,
            None => w.created_at.plus_ms(grace_ms) <= now,
        };
        Ok(self.data.tables.wakes.values().filter(due).take(limit).cloned().collect())
    }
}

impl Tx for MemoryTx<'_> {
    fn uuid(&mut self) -> String {
        self.env.entropy.uuid()
    }

    fn insert_session(&mut self, head: &SessionHead, pin: &SessionPin, doc: &SessionDoc) -> StoreResult<()> {
        let rows = SessionRows { head: head.clone(), pin: pin.clone(), doc: doc.clone() };
        self.insert(|t| &mut t.sessions, head.id.clone(), rows)
    }

    fn put_status(
        &mut self,
        id: &SessionId,
        status: SessionStatus,
        active: Option<&TurnId>,
        last: Option<&TurnId>,
    ) -> StoreResult<()> {
        self.change_session(id, |s| {
            s.head.status = status;
            s.head.active_turn_id = active.cloned();
            s.head.last_turn_id = last.cloned();
        })
    }

    fn put_owner(
        &mut self,
        id: &SessionId,
        owner: Option<&WorkerId>,
        epoch: i64,
        expires: Option<Micros>,
    ) -> StoreResult<()> {
        self.change_session(id, |s| {
            s.head.owner = owner.cloned();
            s.head.epoch = epoch;
            s.head.owner_expires_at = expires;
        })
    }

    fn put_session_pin(&mut self, id: &SessionId, pin: &SessionPin) -> StoreResult<()> {
        self.change_session(id, |s| s.pin = pin.clone())
    }

    fn put_session_doc(&mut self, id: &SessionId, doc: &SessionDoc) -> StoreResult<()> {
        self.change_session(id, |s| s.doc = doc.clone())
    }

    fn delete_session(&mut self, id: &SessionId) -> StoreResult<()> {
        if !self.data.tables.sessions.contains_key(id) {
            return Ok(());
        }
        self.set(|t| &mut t.sessions, id.clone(), None);
        self.remove_where(|t| &mut t.commands, |(session, _), _| session == id);
        self.remove_where(|t| &mut t.effects, |_, row| row.session_id == *id);
        self.remove_where(|t| &mut t.folds, |(session, _), _| session == id);
        self.remove_where(|t| &mut t.wakes, |_, row| row.session_id == *id);
        self.remove_where(|t| &mut t.actions, |_, (_, row)| row.session_id == *id);
        self.delete_artifacts_of(Some(id))
    }

    fn put_manifest(&mut self, hash: &str, text: &JsonText) -> StoreResult<()> {
        if !self.data.tables.manifests.contains_key(hash) {
            self.set(|t| &mut t.manifests, hash.to_owned(), Some(text.clone()));
        }
        Ok(())
    }

    fn put_definition(&mut self, row: &DefinitionRow) -> StoreResult<()> {
        self.set(|t| &mut t.definitions, row.id.clone(), Some(row.clone()));
        Ok(())
    }

    fn put_command(&mut self, session: &SessionId, key: &str, row: &CommandRow) -> StoreResult<()> {
        self.rows(session)?;
        self.insert(|t| &mut t.commands, (session.clone(), key.to_owned()), row.clone())
    }

    fn insert_effect(&mut self, row: &EffectRow) -> StoreResult<()> {
        self.rows(&row.session_id)?;
        self.insert(|t| &mut t.effects, row.id.clone(), row.clone())
    }

    fn settle_effect(
        &mut self,
        id: &EffectId,
        status: EffectStatus,
        outcome: Option<&JsonText>,
        error: Option<&str>,
    ) -> StoreResult<()> {
        self.change_effect(id, |row| {
            row.status = status;
            row.outcome = outcome.cloned();
            row.error = error.map(str::to_owned);
        })
    }

    fn reinvoke_effect(&mut self, id: &EffectId) -> StoreResult<()> {
        self.change_effect(id, |row| {
            row.status = EffectStatus::Invoking;
            row.attempts += 1;
        })
    }

    fn slim_model_effects(&mut self, session: &SessionId, turn: &TurnId) -> StoreResult<()> {
        let prefix = format!("{turn}:");
        let rows = self.data.tables.effects.values().filter(|e| {
            e.session_id == *session
                && e.id.as_str().starts_with(&prefix)
                && e.kind == EffectKind::Model
                && e.status == EffectStatus::Completed
                && !e.slimmed
        });
        let ids: Vec<EffectId> = rows.map(|e| e.id.clone()).collect();
        for id in ids {
            self.change_effect(&id, |row| {
                row.outcome = None;
                row.slimmed = true;
            })?;
        }
        Ok(())
    }

    fn event(
        &mut self,
        session: &SessionId,
        turn: Option<&TurnId>,
        kind: EventKind,
        payload: &str,
    ) -> StoreResult<i64> {
        let epoch = self.rows(session)?.head.epoch;
        let seq = self.head(session)?;
        let event_id = self.uuid();
        let body: Arc<str> = Envelope {
            event_id: &event_id,
            tenant: &self.env.tenant,
            session,
            turn,
            epoch,
            seq,
            time: self.now(),
            kind,
            payload,
        }
        .to_text()
        .into();
        let row = RecordRow { seq, kind, turn_id: turn.cloned(), body: body.clone() };
        self.set(|t| &mut t.events, (session.clone(), seq), Some(row));
        self.events.push(Committed { session_id: session.clone(), seq, kind, body });
        Ok(seq)
    }

    fn put_fold_snapshot(&mut self, row: &FoldSnapshotRow) -> StoreResult<()> {
        self.rows(&row.session_id)?;
        self.set(|t| &mut t.folds, (row.session_id.clone(), row.cursor), Some(row.clone()));
        Ok(())
    }

    fn put_wake(&mut self, session: &SessionId, reason: &str, dedupe_key: Option<&str>) -> StoreResult<()> {
        self.rows(session)?;
        // Numbers are used once, also those of wakes that were rolled back.
        self.data.next_wake += 1;
        let row = WakeRow {
            id: format!("{:020}", self.data.next_wake),
            session_id: session.clone(),
            reason: reason.to_owned(),
            dedupe_key: dedupe_key.map(str::to_owned),
            created_at: self.now(),
            attempts: 0,
            retry_at: None,
            parked_at: None,
        };
        self.set(|t| &mut t.wakes, row.id.clone(), Some(row));
        Ok(())
    }

    fn delete_wakes(&mut self, session: &SessionId) -> StoreResult<()> {
        self.remove_where(|t| &mut t.wakes, |_, row| row.session_id == *session);
        Ok(())
    }

    fn fail_wake(&mut self, id: &str, retry_in_ms: i64, park: bool) -> StoreResult<()> {
        let now = self.now();
        // An advance may have taken it meanwhile.
        let Some(mut row) = self.data.tables.wakes.get(id).cloned() else { return Ok(()) };
        row.attempts += 1;
        row.retry_at = Some(now.plus_ms(retry_in_ms));
        row.parked_at = park.then_some(now);
        self.set(|t| &mut t.wakes, id.to_owned(), Some(row));
        Ok(())
    }

    fn reset_sessions(&mut self) -> StoreResult<()> {
        self.delete_artifacts_of(None)?;
        let before = (self.data.tables.clone(), self.data.generation, self.data.updated_at);
        self.undo.push(Box::new(move |data| (data.tables, data.generation, data.updated_at) = before));
        let t = &mut self.data.tables;
        t.sessions.clear();
        t.commands.clear();
        t.effects.clear();
        t.events.clear();
        t.folds.clear();
        t.wakes.clear();
        t.actions.clear();
        self.data.generation += 1;
        self.data.updated_at = self.env.now();
        Ok(())
    }
}
