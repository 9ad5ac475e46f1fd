//! The port's writes in diesel (spec: durability, section 2).

use std::collections::BTreeSet;

use diesel::prelude::*;
use nylorun_actors::model::Micros;
use nylorun_actors::model::effect::{EffectKind, EffectStatus};
use nylorun_actors::model::event::{Envelope, EventKind};
use nylorun_actors::model::ids::{EffectId, SessionId, TurnId, WorkerId};
use nylorun_actors::model::json::{JsonText, encode};
use nylorun_actors::model::session::{SessionDoc, SessionHead, SessionPin, SessionStatus};
use nylorun_actors::ports::StoreError;
use nylorun_actors::ports::store::{
    CommandRow, Committed, DefinitionRow, EffectRow, FoldSnapshotRow, Reads as _, StoreResult, Tx,
};

use super::access::Access;
use super::hot::{Hot, small_doc, small_pin};
use super::prepared::{change, prepared};
use super::reads::above;
use super::schema::{
    actions, commands, definitions, effects, events, fold_snapshots, logs, manifests, session_docs,
    session_pins, sessions, tenant, wakes,
};

fn text(json: Option<&JsonText>) -> Option<&str> {
    json.map(JsonText::as_str)
}

fn variants(doc: &SessionDoc) -> Option<String> {
    if doc.variants.is_empty() { None } else { Some(encode(&doc.variants)) }
}

/// Columns of a pin, for insert and update.
macro_rules! pin_columns {
    ($pin:expr) => {
        (
            session_pins::implementation_version.eq(&$pin.implementation_version),
            session_pins::plugin_roots.eq(text($pin.plugin_roots.as_ref())),
            session_pins::info.eq(text($pin.info.as_ref())),
            session_pins::creation.eq(&$pin.creation),
            session_pins::vault_ids.eq(text($pin.vault_ids.as_ref())),
            session_pins::credential_selections.eq(text($pin.credential_selections.as_ref())),
            session_pins::sandbox_owner_id.eq($pin.sandbox_owner_id.as_ref().map(SessionId::as_str)),
            session_pins::sandbox.eq(text($pin.sandbox.as_ref())),
            session_pins::sandbox_source.eq($pin.sandbox_source.as_deref()),
            session_pins::mcp_snapshot.eq(text($pin.mcp_snapshot.as_ref())),
            session_pins::mcp_diagnostics.eq(text($pin.mcp_diagnostics.as_ref())),
            session_pins::created_at.eq($pin.created_at.0),
        )
    };
}

/// Columns of the turn's documents, for insert and update.
macro_rules! doc_columns {
    ($doc:expr) => {
        (
            session_docs::checkpoint.eq(text($doc.checkpoint.as_ref())),
            session_docs::state.eq(text($doc.state.as_ref())),
            session_docs::turn_start_state.eq(text($doc.turn_start_state.as_ref())),
            session_docs::history_from.eq($doc.history_from),
            session_docs::history_snapshot.eq($doc.history_snapshot),
            session_docs::waits.eq(text($doc.waits.as_ref())),
            session_docs::error.eq($doc.error.as_deref()),
            session_docs::last_output.eq(text($doc.last_output.as_ref())),
            session_docs::variants.eq(variants($doc)),
        )
    };
}

impl Access<'_> {
    /// The number of a session's record, given on first sight.
    fn log_no_or_new(&mut self, id: &SessionId) -> StoreResult<i64> {
        if let Some(no) = self.log_no(id)? {
            return Ok(no);
        }
        self.write(|c| {
            diesel::insert_into(logs::table)
                .values(logs::session_id.eq(id.as_str()))
                .returning(logs::no)
                .get_result(c)
        })
    }

    fn must_change(&self, changed: usize, effect: &EffectId) -> StoreResult<()> {
        if changed == 0 { Err(StoreError::Missing(format!("effect {effect}"))) } else { Ok(()) }
    }
}

impl Tx for Access<'_> {
    fn uuid(&mut self) -> String {
        let id = self.shared.entropy.uuid();
        self.drawn.push(id.clone());
        id
    }

    fn insert_session(&mut self, head: &SessionHead, pin: &SessionPin, doc: &SessionDoc) -> StoreResult<()> {
        if self.peek(&head.id, |_| ())?.is_some() {
            return Err(StoreError::Conflict(format!("session {} exists", head.id)));
        }
        let no = self.log_no_or_new(&head.id)?;
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(sessions::table).values((
                    sessions::no.eq(no),
                    sessions::id.eq(head.id.as_str()),
                    sessions::agent_id.eq(head.agent_id.as_str()),
                    sessions::owner_user_id.eq(&head.owner_user_id),
                    sessions::sandbox_id.eq(head.sandbox_id.as_deref()),
                    sessions::manifest_hash.eq(&head.manifest_hash),
                    sessions::status.eq(head.status.as_str()),
                    sessions::active_turn_id.eq(head.active_turn_id.as_ref().map(TurnId::as_str)),
                    sessions::last_turn_id.eq(head.last_turn_id.as_ref().map(TurnId::as_str)),
                    sessions::owner.eq(head.owner.as_ref().map(WorkerId::as_str)),
                    sessions::epoch.eq(head.epoch),
                    sessions::owner_expires_at.eq(head.owner_expires_at.map(|at| at.0)),
                ))
            )
        })?;
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(session_pins::table).values((session_pins::no.eq(no), pin_columns!(pin)))
            )
        })?;
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(session_docs::table).values((session_docs::no.eq(no), doc_columns!(doc)))
            )
        })?;
        let hot = Hot {
            no,
            head: head.clone(),
            next_seq: None,
            doc: small_doc(doc),
            pin: small_pin(pin),
            dirty: false,
            open: Some(BTreeSet::new()),
        };
        let memory = self.hot()?;
        memory.remember(head.id.clone(), hot);
        // So that a rollback forgets it.
        memory.change(&head.id, |_| ());
        Ok(())
    }

    fn put_status(
        &mut self,
        id: &SessionId,
        status: SessionStatus,
        active: Option<&TurnId>,
        last: Option<&TurnId>,
    ) -> StoreResult<()> {
        let before = self.need(id, |hot| hot.head.active_turn_id.clone())?;
        self.write(|_| Ok(()))?;
        let begins = before.as_ref() != active;
        let is_new = |turn: &&TurnId| begins && self.drawn.iter().any(|drawn| drawn == turn.as_str());
        let new = active.filter(is_new).cloned();
        let memory = self.hot()?;
        memory.change(id, |hot| {
            hot.head.status = status;
            hot.head.active_turn_id = active.cloned();
            hot.head.last_turn_id = last.cloned();
            hot.dirty = true;
        });
        if let Some(ended) = before.filter(|_| begins) {
            memory.end_turn(&ended);
        }
        if let Some(turn) = new {
            memory.begin_turn(&turn);
        }
        Ok(())
    }

    fn put_owner(
        &mut self,
        id: &SessionId,
        owner: Option<&WorkerId>,
        epoch: i64,
        expires: Option<Micros>,
    ) -> StoreResult<()> {
        self.need(id, |_| ())?;
        self.write(|_| Ok(()))?;
        self.hot()?.change(id, |hot| {
            hot.head.owner = owner.cloned();
            hot.head.epoch = epoch;
            hot.head.owner_expires_at = expires;
            hot.dirty = true;
        });
        Ok(())
    }

    fn put_session_pin(&mut self, id: &SessionId, pin: &SessionPin) -> StoreResult<()> {
        let no = self.need(id, |hot| hot.no)?;
        self.write(|c| change!(c, session_pins::table, session_pins::no.eq(no), pin_columns!(pin)))?;
        self.hot()?.change(id, |hot| hot.pin = small_pin(pin));
        Ok(())
    }

    fn put_session_doc(&mut self, id: &SessionId, doc: &SessionDoc) -> StoreResult<()> {
        let no = self.need(id, |hot| hot.no)?;
        self.write(|c| change!(c, session_docs::table, session_docs::no.eq(no), doc_columns!(doc)))?;
        self.hot()?.change(id, |hot| hot.doc = small_doc(doc));
        Ok(())
    }

    fn delete_session(&mut self, id: &SessionId) -> StoreResult<()> {
        let Some(no) = self.peek(id, |hot| hot.no)? else { return Ok(()) };
        self.write(|c| prepared!(c, diesel::delete(commands::table.filter(commands::log_no.eq(no)))))?;
        self.write(|c| prepared!(c, diesel::delete(effects::table.filter(effects::log_no.eq(no)))))?;
        self.write(|c| {
            prepared!(c, diesel::delete(fold_snapshots::table.filter(fold_snapshots::log_no.eq(no))))
        })?;
        self.write(|c| prepared!(c, diesel::delete(wakes::table.filter(wakes::log_no.eq(no)))))?;
        self.write(|c| {
            prepared!(c, diesel::delete(actions::table.filter(actions::session_id.eq(id.as_str()))))
        })?;
        self.delete_artifacts_of_session(id)?;
        // Pin and documents go with it.
        self.write(|c| prepared!(c, diesel::delete(sessions::table.find(no))))?;
        self.hot()?.remove(id);
        Ok(())
    }

    fn put_manifest(&mut self, hash: &str, text: &JsonText) -> StoreResult<()> {
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(manifests::table)
                    .values((manifests::hash.eq(hash), manifests::body.eq(text.as_str())))
                    .on_conflict_do_nothing()
            )
        })?;
        Ok(())
    }

    fn put_definition(&mut self, row: &DefinitionRow) -> StoreResult<()> {
        self.write(|c| {
            prepared!(
                c,
                diesel::replace_into(definitions::table).values((
                    definitions::id.eq(row.id.as_str()),
                    definitions::manifest_hash.eq(&row.manifest_hash),
                    definitions::implementation_version.eq(&row.implementation_version),
                    definitions::plugin_roots.eq(text(row.plugin_roots.as_ref())),
                ))
            )
        })?;
        Ok(())
    }

    fn put_command(&mut self, session: &SessionId, key: &str, row: &CommandRow) -> StoreResult<()> {
        let no = self.need(session, |hot| hot.no)?;
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(commands::table).values((
                    commands::log_no.eq(no),
                    commands::key.eq(key),
                    commands::digest.eq(&row.digest),
                    commands::response.eq(row.response.as_str()),
                ))
            )
        })?;
        Ok(())
    }

    fn insert_effect(&mut self, row: &EffectRow) -> StoreResult<()> {
        let no = self.need(&row.session_id, |hot| hot.no)?;
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(effects::table).values((
                    effects::id.eq(row.id.as_str()),
                    effects::log_no.eq(no),
                    effects::turn_id.eq(row.turn_id.as_str()),
                    effects::kind.eq(row.kind.as_str()),
                    effects::status.eq(row.status.as_str()),
                    effects::request_hash.eq(&row.request_hash),
                    effects::request.eq(row.request.as_str()),
                    effects::outcome.eq(text(row.outcome.as_ref())),
                    effects::error.eq(row.error.as_deref()),
                    effects::attempts.eq(i64::from(row.attempts)),
                    effects::slimmed.eq(row.slimmed),
                    effects::open_in.eq(is_open(row.status).then_some(no)),
                ))
            )
        })?;
        self.hot()?.add_effect(row, is_open(row.status));
        Ok(())
    }

    fn settle_effect(
        &mut self,
        id: &EffectId,
        status: EffectStatus,
        outcome: Option<&JsonText>,
        error: Option<&str>,
    ) -> StoreResult<()> {
        let columns = (
            effects::status.eq(status.as_str()),
            effects::outcome.eq(text(outcome)),
            effects::error.eq(error),
        );
        let row = effects::id.eq(id.as_str());
        let changed = if is_open(status) {
            let open = effects::open_in.eq(effects::log_no.nullable());
            self.write(|c| change!(c, effects::table, row, (columns, open)))?
        } else {
            let closed = effects::open_in.eq(None::<i64>);
            self.write(|c| change!(c, effects::table, row, (columns, closed)))?
        };
        self.hot()?.settle_effect(id, status, is_open(status), outcome, error);
        self.must_change(changed, id)
    }

    fn reinvoke_effect(&mut self, id: &EffectId) -> StoreResult<()> {
        let changed = self.write(|c| {
            change!(
                c,
                effects::table,
                effects::id.eq(id.as_str()),
                (
                    effects::status.eq(EffectStatus::Invoking.as_str()),
                    effects::attempts.eq(effects::attempts + 1),
                    effects::open_in.eq(effects::log_no.nullable()),
                )
            )
        })?;
        // Its attempts are the database's to count.
        self.hot()?.reread_effect(id);
        self.must_change(changed, id)
    }

    fn slim_model_effects(&mut self, session: &SessionId, turn: &TurnId) -> StoreResult<()> {
        let Some(no) = self.log_no(session)? else { return Ok(()) };
        let prefix = format!("{turn}:");
        let rows = effects::id
            .ge(&prefix)
            .and(effects::id.lt(above(&prefix)))
            .and(effects::log_no.eq(no))
            .and(effects::kind.eq(EffectKind::Model.as_str()))
            .and(effects::status.eq(EffectStatus::Completed.as_str()))
            .and(effects::slimmed.eq(false));
        self.write(|c| {
            change!(c, effects::table, rows, (effects::outcome.eq(None::<String>), effects::slimmed.eq(true)))
        })?;
        Ok(())
    }

    fn event(
        &mut self,
        session: &SessionId,
        turn: Option<&TurnId>,
        kind: EventKind,
        payload: &str,
    ) -> StoreResult<i64> {
        let (no, epoch, next) = self.need(session, |hot| (hot.no, hot.head.epoch, hot.next_seq))?;
        let seq = match next {
            Some(seq) => seq,
            None => self.load_head(no)?,
        };
        let event_id = self.shared.entropy.uuid();
        let body = Envelope {
            event_id: &event_id,
            tenant: &self.shared.tenant,
            session,
            turn,
            epoch,
            seq,
            time: self.now(),
            kind,
            payload,
        }
        .to_text();
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(events::table).values((
                    events::log_no.eq(no),
                    events::seq.eq(seq),
                    events::kind.eq(kind.as_str()),
                    events::turn_id.eq(turn.map(TurnId::as_str)),
                    events::body.eq(&body),
                ))
            )
        })?;
        self.hot()?.change(session, |hot| hot.next_seq = Some(seq + 1));
        self.events.push(Committed { session_id: session.clone(), seq, kind, body: body.into() });
        Ok(seq)
    }

    fn put_fold_snapshot(&mut self, row: &FoldSnapshotRow) -> StoreResult<()> {
        let no = self.need(&row.session_id, |hot| hot.no)?;
        self.write(|c| {
            prepared!(
                c,
                diesel::replace_into(fold_snapshots::table).values((
                    fold_snapshots::log_no.eq(no),
                    fold_snapshots::cursor.eq(row.cursor),
                    fold_snapshots::base.eq(row.base),
                    fold_snapshots::keep.eq(row.keep),
                    fold_snapshots::entries.eq(row.entries.as_str()),
                ))
            )
        })?;
        Ok(())
    }

    fn put_wake(&mut self, session: &SessionId, reason: &str, dedupe_key: Option<&str>) -> StoreResult<()> {
        let no = self.need(session, |hot| hot.no)?;
        let now = self.now().0;
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(wakes::table).values((
                    wakes::log_no.eq(no),
                    wakes::reason.eq(reason),
                    wakes::dedupe_key.eq(dedupe_key),
                    wakes::created_at.eq(now),
                    wakes::attempts.eq(0),
                    wakes::retry_at.eq(None::<i64>),
                    wakes::parked_at.eq(None::<i64>),
                ))
            )
        })?;
        Ok(())
    }

    fn delete_wakes(&mut self, session: &SessionId) -> StoreResult<()> {
        let Some(no) = self.log_no(session)? else { return Ok(()) };
        self.write(|c| prepared!(c, diesel::delete(wakes::table.filter(wakes::log_no.eq(no)))))?;
        Ok(())
    }

    fn fail_wake(&mut self, id: &str, retry_in_ms: i64, park: bool) -> StoreResult<()> {
        let now = self.now();
        // Not a number, or gone: an advance has taken it.
        let Ok(no) = id.parse::<i64>() else { return Ok(()) };
        self.write(|c| {
            change!(
                c,
                wakes::table,
                wakes::id.eq(no),
                (
                    wakes::attempts.eq(wakes::attempts + 1),
                    wakes::retry_at.eq(Some(now.plus_ms(retry_in_ms).0)),
                    wakes::parked_at.eq(park.then_some(now.0)),
                )
            )
        })?;
        Ok(())
    }

    fn reset_sessions(&mut self) -> StoreResult<()> {
        self.write(|c| prepared!(c, diesel::delete(wakes::table)))?;
        self.write(|c| prepared!(c, diesel::delete(actions::table)))?;
        self.write(|c| prepared!(c, diesel::delete(fold_snapshots::table)))?;
        self.write(|c| prepared!(c, diesel::delete(events::table)))?;
        self.write(|c| prepared!(c, diesel::delete(effects::table)))?;
        self.write(|c| prepared!(c, diesel::delete(commands::table)))?;
        self.write(|c| prepared!(c, diesel::delete(session_docs::table)))?;
        self.write(|c| prepared!(c, diesel::delete(session_pins::table)))?;
        self.write(|c| prepared!(c, diesel::delete(sessions::table)))?;
        self.write(|c| prepared!(c, diesel::delete(logs::table)))?;
        self.delete_artifacts_of_sessions()?;
        let now = self.now().0;
        self.write(|c| {
            prepared!(
                c,
                diesel::update(tenant::table)
                    .set((tenant::generation.eq(tenant::generation + 1), tenant::updated_at.eq(now)))
            )
        })?;
        self.hot()?.remove_all();
        Ok(())
    }
}

fn is_open(status: EffectStatus) -> bool {
    !matches!(status, EffectStatus::Completed | EffectStatus::Cancelled)
}
