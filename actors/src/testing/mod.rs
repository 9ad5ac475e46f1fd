//! What tests and simulations stand on: clocks and entropy of their own, the in-memory store, the store contract, an
//! engine whose steps a test chooses, workspaces and blobs in memory.

pub mod blobs;
pub mod clock;
pub mod contract;
pub mod endpoints;
pub mod engine;
pub mod memory_store;
pub mod virtual_time;
pub mod workspaces;

pub use blobs::MemoryBlobs;
pub use clock::{ManualClock, SeededEntropy};
pub use memory_store::{FaultPoint, MemoryStore};
pub use workspaces::FakeWorkspaces;
