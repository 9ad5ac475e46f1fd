//! The tree under a paused clock, an in-memory store and an engine whose steps each test chooses.
#![allow(clippy::unwrap_used)]

mod observers;
mod panics;
mod simulation;
mod support;
mod turns;
