//! What the writer remembers of sessions, so that a transaction of a session that works reads nothing.
//!
//! Only the writer changes the database (the lock file sees to it), so what it has read or written stays true. What a
//! transaction changed is forgotten again when it is rolled back.

use std::collections::HashMap;

use nylorun_actors::model::ids::SessionId;
use nylorun_actors::model::session::SessionHead;

/// Sessions remembered before everything is forgotten.
pub(crate) const KEPT: usize = 8192;

/// One session.
#[derive(Debug)]
pub(super) struct Hot {
    /// Its number in `logs`.
    pub no: i64,
    /// Its hot row.
    pub head: SessionHead,
    /// The hot row's count of attempts.
    pub attempts: u32,
    /// Next `seq` of its record, once it was needed.
    pub next_seq: Option<i64>,
}

/// The sessions, and what the transaction at hand changed.
#[derive(Debug, Default)]
pub(super) struct HotSessions {
    sessions: HashMap<SessionId, Hot>,
    touched: Vec<SessionId>,
    all_touched: bool,
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

    /// The session is no more.
    pub fn remove(&mut self, id: &SessionId) {
        self.touched.push(id.clone());
        self.sessions.remove(id);
    }

    /// No session is any more.
    pub fn remove_all(&mut self) {
        self.all_touched = true;
        self.sessions.clear();
    }

    /// The transaction's changes stand, until the group's commit fails.
    pub fn keep(&mut self) {
        self.touched.clear();
        self.all_touched = false;
    }

    /// The transaction was rolled back.
    pub fn roll_back(&mut self) {
        for id in self.touched.drain(..) {
            self.sessions.remove(&id);
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
        if self.sessions.len() > KEPT {
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
        sessions.remember(id.into(), Hot { no: 1, head, attempts: 0, next_seq: None });
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
