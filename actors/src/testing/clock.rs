//! Time that stands still until it is told to move, and chance that repeats itself from a seed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::model::Micros;
use crate::ports::{Clock, Entropy};

/// A clock that a test moves.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at `at`.
    #[must_use]
    pub fn at(at: Micros) -> Self {
        Self(AtomicI64::new(at.0))
    }

    /// Moves it to `at`, back or forth.
    pub fn set(&self, at: Micros) {
        self.0.store(at.0, Ordering::SeqCst);
    }

    /// Moves it by `ms` milliseconds, back when negative.
    pub fn advance_ms(&self, ms: i64) {
        self.0.fetch_add(ms.saturating_mul(1000), Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    /// Some moment of 2026.
    fn default() -> Self {
        Self::at(Micros(1_780_000_000_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        Micros(self.0.load(Ordering::SeqCst))
    }
}

/// Random bits that depend on the seed and on how many were drawn, on nothing else.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<SmallRng>);

impl SeededEntropy {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(SmallRng::seed_from_u64(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn bits(&self) -> u128 {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).random()
    }
}
