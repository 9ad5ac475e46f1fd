//! Time and chance, so that a simulation can own both.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::model::Micros;

/// Wall-clock time.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Micros;
}

/// Random bits for ids and jitter.
pub trait Entropy: Send + Sync + 'static {
    /// 128 random bits.
    fn bits(&self) -> u128;

    /// A random UUID v4 as text.
    fn uuid(&self) -> String {
        uuid::Builder::from_random_bytes(self.bits().to_be_bytes()).into_uuid().to_string()
    }

    /// A number in `0..bound` (0 when `bound` is 0).
    fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { u64::try_from(self.bits() % u128::from(bound)).unwrap_or(0) }
    }
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Micros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

/// The operating system's randomness, through the thread's generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn bits(&self) -> u128 {
        rand::random()
    }
}
