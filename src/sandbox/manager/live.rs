//! Which workspaces are in use, and who waits for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nylorun_actors::model::json::Json;
use nylorun_actors::model::workspace::WorkspaceSession;
use tokio::sync::OwnedMutexGuard;

use super::super::backend::idle_ms;
use super::Manager;

/// A workspace that is in use, or was.
pub(super) struct Live {
    pub(super) session: WorkspaceSession,
    pub(super) idle: Duration,
    /// Held by whoever works in the workspace; the others wait in order.
    pub(super) queue: Arc<tokio::sync::Mutex<()>>,
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

/// A call's place among those that wait for a workspace. It is taken when the call is made, not when its task comes to
/// run: so calls work in the order in which they were made.
pub(super) struct Place {
    pub(super) key: String,
    /// Comes when it is this call's turn, for as long as it is held.
    pub(super) turn: BoxFuture<'static, OwnedMutexGuard<()>>,
    pub(super) active: Active,
}

impl Live {
    /// Takes the next place.
    fn line_up(&self) -> BoxFuture<'static, OwnedMutexGuard<()>> {
        // What is asked for once stands in line. A task that has worked for long must not be put off instead.
        let mut turn = Box::pin(tokio::task::unconstrained(Arc::clone(&self.queue).lock_owned()));
        match (&mut turn).now_or_never() {
            Some(held) => std::future::ready(held).boxed(),
            None => turn,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Manager {
    /// Takes a place for a call. It must be made where the caller calls.
    pub(super) fn line_up(&self, session: &WorkspaceSession, spec: &Json) -> Place {
        let (key, active) = self.live(session, spec);
        let turn = active.0.line_up();
        Place { key, turn, active }
    }

    fn live(&self, session: &WorkspaceSession, spec: &Json) -> (String, Active) {
        let key = session.key(&self.0.tenant);
        let mut all = self.0.live.lock().unwrap_or_else(PoisonError::into_inner);
        let live = all.entry(key.clone()).or_insert_with(|| {
            Arc::new(Live {
                session: session.clone(),
                idle: Duration::from_millis(idle_ms(spec)),
                queue: Arc::default(),
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
