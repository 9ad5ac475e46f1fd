//! Sandboxes of the real binary: `serve` with its in-process harness, and `nylorun harness` beside it.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod common;

#[path = "sandbox_turns/serve.rs"]
mod serve;
