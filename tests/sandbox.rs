//! Workspaces with the real program as their helper: the same behaviour whatever keeps commands apart, what a manager
//! does with them, and that nothing in a sandbox reaches the host.

// Helpers of a test may stop at the first surprise too.
#![allow(clippy::unwrap_used)]

#[path = "sandbox/conformance.rs"]
mod conformance;
#[path = "sandbox/docker.rs"]
mod docker;
#[path = "sandbox/dockerd.rs"]
mod dockerd;
#[path = "sandbox/egress.rs"]
mod egress;
#[path = "sandbox/escapes.rs"]
mod escapes;
#[path = "sandbox/figures.rs"]
mod figures;
#[path = "sandbox/manager.rs"]
mod manager;
#[path = "sandbox/ordinary.rs"]
mod ordinary;
#[path = "sandbox/share.rs"]
mod share;
#[path = "sandbox/support.rs"]
mod support;
#[path = "sandbox/tools.rs"]
mod tools;
#[path = "sandbox/tricks.rs"]
mod tricks;
