//! A wall clock that follows tokio's time, which a simulation pauses: a day of holds takes milliseconds.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::time::Instant;

use crate::model::Micros;
use crate::ports::Clock;

/// A clock that follows tokio's (paused) time from a fixed day, with an offset that a test may move.
pub struct VirtualClock {
    start: Instant,
    offset_us: AtomicI64,
}

/// 2026-01-01T00:00:00Z.
const DAY: i64 = 1_767_225_600_000_000;

impl VirtualClock {
    /// A clock that starts now. Must be made inside a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now(), offset_us: AtomicI64::new(0) }
    }

    /// Moves the wall clock, backwards too, without moving timers.
    pub fn shift_ms(&self, ms: i64) {
        self.offset_us.fetch_add(ms * 1000, Ordering::SeqCst);
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Micros {
        let elapsed = i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX / 2);
        Micros(DAY + elapsed + self.offset_us.load(Ordering::SeqCst))
    }
}
