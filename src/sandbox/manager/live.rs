//! Which workspaces are in use, and who waits for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nylorun_actors::model::json::Json;
use nylorun_actors::model::workspace::WorkspaceSession;

use super::super::backend::idle_ms;
use super::Manager;

/// A workspace that is in use, or was.
pub(super) struct Live {
    pub(super) session: WorkspaceSession,
    pub(super) idle: Duration,
    /// Held by whoever works in the workspace; the others wait in order.
    pub(super) queue: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) open: bool,
    /// Calls that wait or run.
    pub(super) active: usize,
    pub(super) used: Instant,
}

/// A call that waits or runs.
pub(super) struct Active(pub(super) Arc<Live>);

impl Drop for Active {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.active -= 1;
        state.used = Instant::now();
    }
}

impl Live {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Manager {
    pub(super) fn live(&self, session: &WorkspaceSession, spec: &Json) -> (String, Active) {
        let key = session.key(&self.0.tenant);
        let mut all = self.0.live.lock().unwrap_or_else(PoisonError::into_inner);
        let live = all.entry(key.clone()).or_insert_with(|| {
            Arc::new(Live {
                session: session.clone(),
                idle: Duration::from_millis(idle_ms(spec)),
                queue: tokio::sync::Mutex::new(()),
                state: Mutex::new(State { open: false, active: 0, used: Instant::now() }),
            })
        });
        live.state().active += 1;
        (key, Active(Arc::clone(live)))
    }

    pub(super) fn all_live(&self) -> Vec<(String, Arc<Live>)> {
        let all = self.0.live.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(key, live)| (key.clone(), Arc::clone(live))).collect()
    }

    /// Forgets an entry that nobody uses. The caller holds the only other reference to it.
    pub(super) fn forget(&self, key: &str, live: &Arc<Live>) {
        let mut all = self.0.live.lock().unwrap_or_else(PoisonError::into_inner);
        let same = all.get(key).is_some_and(|entry| Arc::ptr_eq(entry, live));
        // The map's, the caller's, and the queue guard borrows the caller's.
        if same && Arc::strong_count(live) == 2 && live.state().active == 0 {
            all.remove(key);
        }
    }
}
