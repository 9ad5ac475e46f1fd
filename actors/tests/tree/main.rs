//! The tree under a paused clock, an in-memory store and an engine whose steps each test chooses.
// A test that panics has failed.
#![allow(clippy::unwrap_used, clippy::panic)]

mod actions;
mod artifacts;
mod bare;
mod fencing;
mod holds;
mod observers;
mod ordered;
mod panics;
mod reconcile;
mod simulation;
mod support;
mod turns;
mod workspaces;
