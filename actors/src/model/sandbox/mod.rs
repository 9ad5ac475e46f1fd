//! Sandboxes as data: what one is made of, what may be asked for, what a Tenant allows, and what a session's manifest
//! says of it (spec: sandbox, sections 2 to 7).
//!
//! | File | Has |
//! |---|---|
//! | [`id`] | ids of sandbox resources, grants, labels |
//! | [`network`] | the hosts that the default ceiling has, and what a ceiling lets through |
//! | [`spec`] | a spec as it is pinned and stored, and what a caller may ask for |
//! | [`config`] | the Tenant's sandbox configuration, with every default in force |
//! | [`resolve`] | a wish and a configuration make a spec, or all the reasons why not |
//! | [`capability`] | the two capabilities that a sandboxed session's manifest gets |
//! | [`resource`] | a sandbox resource, its events |
//! | [`shapes`] | what the bodies look like |
//!
//! Everything here is pure. Durations, sizes and host patterns are read by [`manifest`](super::manifest).

pub mod capability;
pub mod config;
pub mod id;
pub mod network;
pub mod resolve;
pub mod resource;
pub mod shapes;
pub mod spec;

pub use config::{HarnessHost, SandboxConfig};
pub use resource::{SandboxEventKind, SandboxKind, SandboxResource};
pub use spec::{SandboxRequest, SandboxSpec};

/// CPUs of a sandbox that asks for none, where the Tenant says nothing else.
pub const DEFAULT_CPUS: u32 = 2;
/// MiB of a sandbox that asks for none, where the Tenant says nothing else.
pub const DEFAULT_MEMORY_MIB: u64 = 1024;
/// Time without use after which a sandbox stops, where the Tenant says nothing else.
pub const DEFAULT_IDLE: &str = "15m";
