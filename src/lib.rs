//! The adapters.

pub mod engine;
