//! What leaves this process for addresses that others chose, and under which policy (spec: security, section 8).
//!
//! [`client`] builds HTTP clients beside the start-up, [`address`] says what an address is, [`outbound`] which of them may
//! be dialled and where that is checked, [`actions`] posts deliveries to Action endpoints, [`egress`] is the way out of
//! sandboxes.

pub mod actions;
pub mod address;
pub mod client;
pub mod egress;
pub mod outbound;
mod upload;

pub use actions::HttpTransport;
pub use client::BuiltClient;
pub use outbound::OutboundPolicy;
