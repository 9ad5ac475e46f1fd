//! The verbs that decide: pure functions over model values and a transaction. No await, no I/O, no clock of their own.
//!
//! | File | Decides |
//! |---|---|
//! | [`definitions`] | what a registration stores |
//! | [`sessions`] | opening, viewing, listing a session |
//! | [`claims`] | what a harness says of workspaces and MCP servers |
//! | [`commands`] | message, approve, respond, cancel |
//! | [`advance`] | taking a session and starting its segment; giving it up |
//! | [`artifacts`] | who reaches which artifact, what a version costs, what is left when one goes |
//! | [`actions`] | what becomes of an Action: outcome, loss, cancel, callbacks |
//! | [`delivery`], [`verdict`] | which Actions an endpoint gets now; what its answers mean |
//! | [`endpoints`] | the registry of Action endpoints and their health |
//! | [`reconcile`] | what an operator decides on uncertain effects and parked Actions |
//! | [`effects`] | what a harness may do next, and what it came to |
//! | [`settle`] | how a segment's end changes the session |
//! | [`history`] | the fold of the record, its snapshots |
//! | [`keys`] | operator keys |
//! | [`signing`] | the Tenant's signing keys: ensure, rotate, revoke |
//! | [`sandboxes`] | sandbox resources: made, kept, listed, deleted |
//! | [`session_sandbox`] | what sandbox a session gets, where it may run, whether its turn may start |
//! | [`models`], [`settings`] | the Tenant's model providers and its other settings |
//! | [`ownership`] | leases, epochs, the fence |
//! | [`workspaces`] | whose workspace a session uses, and the record of workspaces |
//! | [`event`] | payloads that always fit |

pub mod actions;
pub mod advance;
pub mod artifacts;
pub mod claims;
pub mod commands;
pub mod definitions;
pub mod delivery;
pub mod effects;
pub mod endpoints;
pub mod event;
pub mod history;
pub mod keys;
pub mod models;
pub mod ownership;
pub mod reconcile;
pub mod refusal;
pub mod sandboxes;
pub mod session_sandbox;
pub mod sessions;
pub mod settings;
pub mod settle;
pub mod signing;
pub mod verdict;
pub mod workspaces;

pub use ownership::RunRefusal;
pub use refusal::{Refusal, SandboxRefusal};
