//! What tests and simulations stand on: a clock and entropy of their own, the in-memory store, the store contract.

pub mod clock;
pub mod contract;
pub mod memory_store;

pub use clock::{ManualClock, SeededEntropy};
pub use memory_store::{FaultPoint, MemoryStore};
