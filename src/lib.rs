//! The adapters.

pub mod api;
pub mod engine;
pub mod store;
pub mod vault;
