//! The supervision tree of nylorun and the rules that it enforces.
//!
//! ```text
//! TenantSupervisor            starts, finds, watches and stops everything below; owns the lease broker
//! ├── SessionActor            one per session that has work; leaves memory when idle
//! ├── HarnessActor            one per connected harness: in-process here, WebSocket and pods later
//! ├── EndpointActor           one per Action endpoint that has something to do
//! └── Sweeper                 one; on a timer
//! ```
//!
//! Where to start reading: [`tenant`] is the door for everybody outside, [`messages`] says what the
//! actors tell each other, [`rules`] decides what each message does to the store, [`ports`] is what the
//! tree needs from outside, [`model`] holds the nouns.
//!
//! Nothing in this crate knows HTTP, SQL, WebSocket, Docker, Kubernetes or a model provider.

pub mod artifacts;
pub mod endpoint;
pub mod harness;
pub mod limits;
pub mod messages;
pub mod model;
pub mod ports;
pub mod rules;
pub mod session;
pub mod supervisor;
pub mod sweeper;
pub mod tenant;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod workspaces;
