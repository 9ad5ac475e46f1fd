//! Sandboxes of the real binary: `serve` with its in-process harness, and `nylorun harness` beside it.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod common;

#[path = "sandbox_turns/cli.rs"]
mod cli;
#[allow(dead_code)]
#[path = "sandbox/dockerd.rs"]
mod dockerd;
#[path = "sandbox_turns/harness.rs"]
mod harness;
#[path = "sandbox_turns/left.rs"]
mod left;
#[path = "sandbox_turns/routes.rs"]
mod routes;
#[path = "sandbox_turns/serve.rs"]
mod serve;
#[path = "sandbox_turns/support.rs"]
mod support;
#[path = "sandbox_turns/turns.rs"]
mod turns;
