//! Work that waits for a thread of the store. Its length is bounded by whoever pushes (`ports::store::StoreHandle`).

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
}

struct State<T> {
    waiting: VecDeque<T>,
    /// Threads that sleep: nobody is woken when there are none.
    idle: usize,
    closed: bool,
}

impl<T> Queue<T> {
    pub fn new() -> Self {
        let state = State { waiting: VecDeque::new(), idle: 0, closed: false };
        Self { state: Mutex::new(state), ready: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `work`, or gives it back when the queue is closed.
    pub fn push(&self, work: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.closed {
            return Err(work);
        }
        state.waiting.push_back(work);
        let wake = state.idle > 0;
        drop(state);
        if wake {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Moves the oldest, at most `most`, to `taken`; waits for one. `false` when the queue is closed and empty.
    pub fn take(&self, taken: &mut Vec<T>, most: usize) -> bool {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.closed {
                return false;
            }
            state.idle += 1;
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
        let n = state.waiting.len().min(most);
        taken.extend(state.waiting.drain(..n));
        true
    }

    /// Refuses what comes; what waits is still taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
    }

    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }
}
