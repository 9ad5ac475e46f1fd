//! The adapters.

pub mod engine;
pub mod vault;
