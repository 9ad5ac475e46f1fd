//! The listener of the Harness API over real sockets: a Tenant in remote mode, and a scripted peer that says exactly
//! what is sent, frame by frame and byte by byte.

// Helpers of a test may stop at the first surprise too.
#![allow(clippy::unwrap_used)]

#[path = "harness_listener/binary.rs"]
mod binary;
#[path = "common/mod.rs"]
mod common;
#[path = "harness_listener/example.rs"]
mod example;
#[path = "harness_listener/frames.rs"]
mod frames;
#[path = "harness_listener/peer.rs"]
mod peer;
#[path = "harness_listener/runs.rs"]
mod runs;
#[path = "harness_listener/sockets.rs"]
mod sockets;
#[path = "harness_listener/upgrade.rs"]
mod upgrade;
#[path = "harness_listener/workspace_claims.rs"]
mod workspace_claims;
#[path = "harness_listener/workspaces.rs"]
mod workspaces;
#[path = "harness_listener/world.rs"]
mod world;
