//! The verbs that decide: pure functions over model values and a transaction. No await, no I/O, no clock of their own.

pub mod keys;
pub mod models;
pub mod refusal;
pub mod settings;

pub use refusal::Refusal;
