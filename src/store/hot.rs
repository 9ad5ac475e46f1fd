//! What the writer remembers of sessions, so that a transaction of a session that works reads nothing.
//!
//! Only the writer changes the database (the lock file sees to it), so what it has read or written stays true. What a
//! transaction changed is forgotten again when it is rolled back.

use std::collections::{BTreeSet, HashMap, HashSet};

use nylorun_actors::model::effect::EffectStatus;
use nylorun_actors::model::ids::{EffectId, SessionId, TurnId};
use nylorun_actors::model::json::JsonText;
use nylorun_actors::model::session::{SessionDoc, SessionHead, SessionPin};
use nylorun_actors::ports::store::EffectRow;

/// Sessions remembered before everything is forgotten.
pub(crate) const KEPT: usize = 8192;

/// Documents larger than this are read when they are needed, bytes of text.
const SMALL: usize = 16 * 1024;

/// One session.
#[derive(Debug)]
pub(super) struct Hot {
    /// Its number in `logs`.
    pub no: i64,
    /// Its hot row.
    pub head: SessionHead,
    /// Next `seq` of its record, once it was needed.
    pub next_seq: Option<i64>,
    /// Its turn's documents, when they are known and small.
    pub doc: Option<SessionDoc>,
    /// What it was opened with, when it is known and small.
    pub pin: Option<SessionPin>,
    /// The head is newer than its row: the transaction's end writes it once, however often it changed.
    pub dirty: bool,
    /// Ids of its open effects, when all of them are known.
    pub open: Option<BTreeSet<EffectId>>,
}

/// Documents worth keeping.
pub(super) fn small_doc(doc: &SessionDoc) -> Option<SessionDoc> {
    let texts = [&doc.checkpoint, &doc.state, &doc.turn_start_state, &doc.waits, &doc.last_output];
    let size: usize = texts.iter().filter_map(|t| t.as_ref()).map(|t| t.as_str().len()).sum();
    (size <= SMALL).then(|| doc.clone())
}

/// A pin worth keeping.
pub(super) fn small_pin(pin: &SessionPin) -> Option<SessionPin> {
    let texts = [&pin.info, &pin.mcp_snapshot, &pin.mcp_diagnostics, &pin.sandbox, &pin.plugin_roots];
    let size: usize = texts.iter().filter_map(|t| t.as_ref()).map(|t| t.as_str().len()).sum();
    (size + pin.creation.len() <= SMALL).then(|| pin.clone())
}

/// The sessions, and what the transaction at hand changed.
#[derive(Debug, Default)]
pub(super) struct HotSessions {
    sessions: HashMap<SessionId, Hot>,
    touched: Vec<SessionId>,
    all_touched: bool,
    /// Effects that are still open, as far as they are known.
    effects: HashMap<EffectId, EffectRow>,
    touched_effects: Vec<EffectId>,
    /// Turns that began while this writer watched, each with the ids of all its effects.
    turns: HashMap<TurnId, HashSet<EffectId>>,
    touched_turns: Vec<TurnId>,
    settings: HashMap<String, Option<String>>,
    settings_touched: bool,
}

impl HotSessions {
    pub fn get(&self, id: &SessionId) -> Option<&Hot> {
        self.sessions.get(id)
    }

    /// Keeps what was read.
    pub fn remember(&mut self, id: SessionId, hot: Hot) {
        self.sessions.insert(id, hot);
    }

    /// Changes what is kept of a session, to go with a change of the database.
    pub fn change(&mut self, id: &SessionId, change: impl FnOnce(&mut Hot)) {
        self.touched.push(id.clone());
        if let Some(hot) = self.sessions.get_mut(id) {
            change(hot);
        }
    }

    /// Sessions whose head this transaction has changed and not written.
    pub fn take_dirty(&mut self) -> Vec<(i64, SessionHead)> {
        let mut dirty = Vec::new();
        for id in &self.touched {
            if let Some(hot) = self.sessions.get_mut(id)
                && std::mem::take(&mut hot.dirty)
            {
                dirty.push((hot.no, hot.head.clone()));
            }
        }
        dirty
    }

    /// An effect that is still open, if it is known.
    pub fn effect(&self, id: &EffectId) -> Option<&EffectRow> {
        self.effects.get(id)
    }

    /// An effect as it is now; `None`: it is done, or must be read.
    pub fn set_effect(&mut self, id: &EffectId, row: Option<EffectRow>) {
        self.touched_effects.push(id.clone());
        match row {
            Some(row) => self.effects.insert(id.clone(), row),
            None => self.effects.remove(id),
        };
    }

    /// An effect was written anew.
    pub fn add_effect(&mut self, row: &EffectRow, is_open: bool) {
        self.set_effect(&row.id, is_open.then(|| row.clone()));
        if let Some(effects) = self.turns.get_mut(&row.turn_id) {
            effects.insert(row.id.clone());
            self.touched_turns.push(row.turn_id.clone());
        }
        if is_open {
            self.change(&row.session_id, |hot| {
                if let Some(open) = &mut hot.open {
                    open.insert(row.id.clone());
                }
            });
        }
    }

    /// An effect has changed: its row as it is now, or nothing where it was not known or is done.
    pub fn settle_effect(
        &mut self,
        id: &EffectId,
        status: EffectStatus,
        is_open: bool,
        outcome: Option<&JsonText>,
        error: Option<&str>,
    ) {
        let known = self.effects.get(id).cloned();
        let session = known.as_ref().map(|row| row.session_id.clone());
        let row = known.filter(|_| is_open).map(|row| EffectRow {
            status,
            outcome: outcome.cloned(),
            error: error.map(str::to_owned),
            ..row
        });
        self.set_effect(id, row);
        match session {
            Some(session) => self.change(&session, |hot| {
                if let (Some(open), false) = (&mut hot.open, is_open) {
                    open.remove(id);
                }
            }),
            // Whose it is, nobody knows here: what was known of open effects may be wrong now.
            None => self.forget_open(),
        }
    }

    /// An effect has changed in a way that only the database knows.
    pub fn reread_effect(&mut self, id: &EffectId) {
        // One that was done is open again, and whose it is, nobody knows here.
        if !self.effects.contains_key(id) {
            self.forget_open();
        }
        self.set_effect(id, None);
    }

    fn forget_open(&mut self) {
        for hot in self.sessions.values_mut() {
            hot.open = None;
        }
    }

    /// All open effects of a session, by id, when they are all known.
    pub fn open_effects(&self, session: &SessionId) -> Option<Vec<EffectRow>> {
        let open = self.sessions.get(session)?.open.as_ref()?;
        open.iter().map(|id| self.effects.get(id).cloned()).collect()
    }

    /// Keeps the open effects of a session, which were all read.
    pub fn remember_open(&mut self, session: &SessionId, rows: &[EffectRow]) {
        for row in rows {
            self.set_effect(&row.id, Some(row.clone()));
        }
        self.change(session, |hot| hot.open = Some(rows.iter().map(|row| row.id.clone()).collect()));
    }

    /// A turn begins whose id nobody has ever had.
    pub fn begin_turn(&mut self, turn: &TurnId) {
        self.touched_turns.push(turn.clone());
        self.turns.insert(turn.clone(), HashSet::new());
    }

    /// The turn is over.
    pub fn end_turn(&mut self, turn: &TurnId) {
        self.touched_turns.push(turn.clone());
        self.turns.remove(turn);
    }

    /// Whether there is surely no effect of this id: its turn began while this writer watched.
    pub fn is_new_effect(&self, id: &EffectId) -> bool {
        let turn = id.as_str().split_once(':').map(|(turn, _)| turn);
        turn.and_then(|turn| self.turns.get(turn)).is_some_and(|effects| !effects.contains(id))
    }

    /// Whether there is surely no effect of the turn whose id starts with `prefix`.
    pub fn has_none(&self, turn: &TurnId, prefix: &str) -> bool {
        self.turns.get(turn).is_some_and(|effects| !effects.iter().any(|id| id.as_str().starts_with(prefix)))
    }

    /// A setting, if it is known: its value or that there is none.
    pub fn setting(&self, key: &str) -> Option<&Option<String>> {
        self.settings.get(key)
    }

    /// Keeps a setting that was read.
    pub fn remember_setting(&mut self, key: &str, value: Option<String>) {
        self.settings.insert(key.to_owned(), value);
    }

    /// A setting changes.
    pub fn forget_settings(&mut self) {
        self.settings_touched = true;
        self.settings.clear();
    }

    /// The session is no more.
    pub fn remove(&mut self, id: &SessionId) {
        self.touched.push(id.clone());
        self.sessions.remove(id);
        self.forget_effects();
    }

    /// No session is any more.
    pub fn remove_all(&mut self) {
        self.all_touched = true;
        self.sessions.clear();
        self.forget_effects();
    }

    fn forget_effects(&mut self) {
        self.effects.clear();
        self.turns.clear();
        self.forget_open();
    }

    /// The transaction's changes stand, until the group's commit fails.
    pub fn keep(&mut self) {
        self.touched.clear();
        self.all_touched = false;
        self.touched_effects.clear();
        self.touched_turns.clear();
        self.settings_touched = false;
    }

    /// The transaction was rolled back.
    pub fn roll_back(&mut self) {
        for id in self.touched.drain(..) {
            self.sessions.remove(&id);
        }
        for id in self.touched_effects.drain(..) {
            self.effects.remove(&id);
        }
        for turn in self.touched_turns.drain(..) {
            self.turns.remove(&turn);
        }
        if std::mem::take(&mut self.settings_touched) {
            self.settings.clear();
        }
        if std::mem::take(&mut self.all_touched) {
            self.sessions.clear();
        }
    }

    /// The group was rolled back.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Bounds the memory; between two groups.
    pub fn trim(&mut self) {
        if self.sessions.len() > KEPT || self.effects.len() > KEPT || self.turns.len() > KEPT {
            self.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nylorun_actors::model::session::SessionStatus;

    fn remember(sessions: &mut HotSessions, id: &str) {
        let head = SessionHead {
            id: id.into(),
            agent_id: "a".into(),
            owner_user_id: String::new(),
            sandbox_id: None,
            manifest_hash: String::new(),
            status: SessionStatus::Idle,
            active_turn_id: None,
            last_turn_id: None,
            owner: None,
            epoch: 0,
            owner_expires_at: None,
        };
        let hot = Hot { no: 1, head, next_seq: None, doc: None, pin: None, dirty: false, open: None };
        sessions.remember(id.into(), hot);
    }

    fn knows(sessions: &HotSessions, id: &str) -> bool {
        sessions.get(&id.into()).is_some()
    }

    #[test]
    fn a_rollback_forgets_what_its_transaction_changed_and_nothing_else() {
        let mut sessions = HotSessions::default();
        for id in ["before", "changed", "read"] {
            remember(&mut sessions, id);
        }
        sessions.change(&"before".into(), |hot| hot.next_seq = Some(1));
        sessions.keep();
        sessions.change(&"changed".into(), |hot| hot.next_seq = Some(1));
        sessions.roll_back();
        assert!(knows(&sessions, "before") && knows(&sessions, "read") && !knows(&sessions, "changed"));
    }

    #[test]
    fn a_rolled_back_reset_forgets_what_was_learned_after_it() {
        let mut sessions = HotSessions::default();
        sessions.remove_all();
        remember(&mut sessions, "inside");
        sessions.roll_back();
        assert!(!knows(&sessions, "inside"));
    }

    fn effect(id: &str, session: &str) -> EffectRow {
        EffectRow {
            id: id.into(),
            session_id: session.into(),
            turn_id: "t".into(),
            kind: nylorun_actors::model::effect::EffectKind::Tool,
            status: EffectStatus::Invoking,
            request_hash: String::new(),
            request: JsonText::of(&0),
            outcome: None,
            error: None,
            attempts: 1,
            slimmed: false,
        }
    }

    #[test]
    fn open_effects_are_known_until_something_changes_that_only_the_database_knows() {
        let mut sessions = HotSessions::default();
        remember(&mut sessions, "s");
        assert_eq!(sessions.open_effects(&"s".into()), None, "nobody has read them");
        sessions.remember_open(&"s".into(), &[]);
        sessions.begin_turn(&"t".into());
        assert!(sessions.is_new_effect(&"t:0:a".into()) && !sessions.is_new_effect(&"other:0:a".into()));
        assert!(sessions.has_none(&"t".into(), "t:0:"));
        sessions.add_effect(&effect("t:0:a", "s"), true);
        assert!(!sessions.is_new_effect(&"t:0:a".into()) && !sessions.has_none(&"t".into(), "t:0:"));
        assert!(sessions.has_none(&"t".into(), "t:1:"));
        let known = sessions.open_effects(&"s".into()).unwrap();
        assert_eq!(known.len(), 1);
        sessions.settle_effect(&"t:0:a".into(), EffectStatus::Uncertain, true, None, Some("why"));
        let known = sessions.open_effects(&"s".into()).unwrap();
        assert_eq!((known[0].status, known[0].error.as_deref()), (EffectStatus::Uncertain, Some("why")));
        sessions.settle_effect(&"t:0:a".into(), EffectStatus::Completed, false, None, None);
        assert_eq!(sessions.open_effects(&"s".into()).unwrap().len(), 0);
        sessions.reread_effect(&"t:0:a".into());
        assert_eq!(sessions.open_effects(&"s".into()), None, "one that was done is open again");
        sessions.keep();
        sessions.add_effect(&effect("t:0:b", "s"), true);
        sessions.roll_back();
        assert!(
            !sessions.is_new_effect(&"t:0:c".into()),
            "a turn that a rollback touched is not known any more"
        );
    }

    #[test]
    fn memory_is_bounded_between_groups() {
        let mut sessions = HotSessions::default();
        for i in 0..KEPT {
            remember(&mut sessions, &i.to_string());
        }
        sessions.trim();
        assert!(knows(&sessions, "0"));
        remember(&mut sessions, "one more");
        sessions.trim();
        assert!(!knows(&sessions, "0") && !knows(&sessions, "one more"));
    }
}
