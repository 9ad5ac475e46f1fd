//! What the writer remembers of sessions, so that a transaction of a session that works reads nothing.
//!
//! Only the writer changes the database (the lock file sees to it), so what it has read or written stays true. What a
//! transaction changed is forgotten again when it is rolled back.

use std::collections::HashMap;

use nylorun_actors::model::ids::SessionId;
use nylorun_actors::model::session::SessionHead;

/// Sessions remembered before everything is forgotten.
const KEPT: usize = 8192;

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
