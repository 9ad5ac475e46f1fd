//! The adapters around `nylorun-actors`: the binary, its commands, and what the tree needs from outside.

pub mod api;
pub mod blobs;
pub mod cli;
pub mod engine;
pub mod gates;
pub mod harness;
pub mod harness_api;
pub mod host;
pub mod identity;
pub mod limits;
pub mod sample;
pub mod sandbox;
pub mod store;
pub mod telemetry;
pub mod vault;
