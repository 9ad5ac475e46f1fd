//! One engine, three channels: the same turns in memory, over JSON in memory, and over WebSocket between processes;
//! and a simulation of connections that break.

// A test that panics has failed.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod processes;
mod rigs;
mod sample;
mod simulation;
mod suite;
#[path = "../../actors/tests/tree/support.rs"]
mod support;
mod wire;
