//! Projected transcripts kept between the runs of a session (spec: engine, sections 3.9 and 3.10).
//!
//! A projection is taken out while its session runs, so the lock is held for a look-up only and two runs never share
//! one. It is good for one cursor of the transcript and is forgotten when core names another.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use nylorun_actors::model::ids::{RunId, SessionId};

use crate::engine::agent::projection::Projection;

/// Bytes of projected transcripts kept by default.
pub const CACHE_BYTES: usize = 256 * 1024 * 1024;

/// Projections by session, the least recently used dropped first.
#[derive(Debug)]
pub struct ProjectionCache {
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    slots: HashMap<SessionId, Slot>,
    /// Sessions by last use.
    order: BTreeMap<u64, SessionId>,
    clock: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Slot {
    at: At,
    view: Projection,
    bytes: usize,
    used: u64,
}

/// What a projection is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum At {
    /// The transcript at this cursor.
    Cursor(i64),
    /// What this run handed to core; the cursor is not known yet.
    Unsettled(RunId),
}

impl ProjectionCache {
    /// A cache of at most `most` bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, inner: Mutex::default() }
    }

    /// Takes out a session's projection if it is good for `cursor`; one that is not is dropped.
    pub fn take(&self, session: &SessionId, cursor: i64) -> Option<Projection> {
        let slot = self.with(|inner| inner.remove(session))?;
        (slot.at == At::Cursor(cursor)).then_some(slot.view)
    }

    /// Keeps a projection that is good for `cursor`.
    pub fn keep(&self, session: SessionId, cursor: i64, view: Projection) {
        self.insert(session, At::Cursor(cursor), view);
    }

    /// Keeps a projection until core says at which cursor it stands.
    pub fn keep_unsettled(&self, session: SessionId, run: RunId, view: Projection) {
        self.insert(session, At::Unsettled(run), view);
    }

    /// Core settled a run: what it handed over stands at `cursor`, or is void. What is good for a cursor already stays.
    pub fn settled(&self, session: &SessionId, run: &RunId, cursor: Option<i64>) {
        let dropped = self.with(|inner| {
            let slot = inner.slots.get_mut(session)?;
            if slot.at != At::Unsettled(run.clone()) {
                return None;
            }
            match cursor {
                Some(cursor) => {
                    slot.at = At::Cursor(cursor);
                    None
                }
                None => inner.remove(session),
            }
        });
        drop(dropped);
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.with(|inner| inner.bytes)
    }

    fn insert(&self, session: SessionId, at: At, view: Projection) {
        let bytes = view.weight();
        // Large values are dropped after the lock is given back.
        let mut dropped = Vec::new();
        self.with(|inner| {
            dropped.extend(inner.remove(&session));
            if bytes > self.most {
                return;
            }
            inner.clock += 1;
            let used = inner.clock;
            inner.order.insert(used, session.clone());
            inner.bytes += bytes;
            inner.slots.insert(session, Slot { at, view, bytes, used });
            while inner.bytes > self.most {
                let Some((_, oldest)) = inner.order.pop_first() else { break };
                dropped.extend(inner.remove(&oldest));
            }
        });
    }

    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        // Nothing in here panics half way; a poisoned lock holds a whole value.
        f(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inner {
    fn remove(&mut self, session: &SessionId) -> Option<Slot> {
        let slot = self.slots.remove(session)?;
        self.order.remove(&slot.used);
        self.bytes -= slot.bytes;
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::engine::agent::projection::PromptHash;

    fn view(text: &str) -> Projection {
        let entry = json!({"kind": "input", "turnId": "t", "event": {"kind": "user-message", "text": text}});
        Projection::of(&[Arc::new(entry)], PromptHash::Exact)
    }

    fn id(n: &str) -> SessionId {
        SessionId::from(n)
    }

    #[test]
    fn a_projection_is_good_for_its_cursor_only_and_once() {
        let cache = ProjectionCache::new(CACHE_BYTES);
        cache.keep(id("a"), 3, view("x"));
        assert!(cache.take(&id("a"), 4).is_none());
        assert!(cache.take(&id("a"), 3).is_none(), "a mismatch drops it");
        cache.keep(id("a"), 3, view("x"));
        assert!(cache.take(&id("a"), 3).is_some());
        assert!(cache.take(&id("a"), 3).is_none());
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn an_unsettled_projection_waits_for_its_own_runs_cursor() {
        let cache = ProjectionCache::new(CACHE_BYTES);
        let run = RunId::from("r");
        cache.keep_unsettled(id("a"), run.clone(), view("x"));
        cache.settled(&id("a"), &RunId::from("other"), Some(1));
        cache.settled(&id("a"), &run, Some(7));
        cache.settled(&id("a"), &run, None);
        assert!(cache.take(&id("a"), 7).is_some());
        cache.keep_unsettled(id("a"), run.clone(), view("x"));
        cache.settled(&id("a"), &run, None);
        assert_eq!(cache.bytes(), 0);
        cache.keep_unsettled(id("a"), run, view("x"));
        assert!(cache.take(&id("a"), 7).is_none());
    }

    #[test]
    fn the_least_recently_kept_is_dropped_when_the_bytes_are_used_up() {
        let one = view("x").weight();
        let cache = ProjectionCache::new(2 * one);
        for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
            cache.keep(id(name), n as i64, view("x"));
        }
        assert!(cache.take(&id("a"), 0).is_none());
        assert!(cache.take(&id("b"), 1).is_some());
        assert!(cache.take(&id("c"), 2).is_some());
        cache.keep(id("d"), 0, view(&"x".repeat(10 * one)));
        assert_eq!(cache.bytes(), 0, "one that is larger than the whole is not kept");
    }
}
