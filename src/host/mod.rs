//! The Host: what stands around the Tenant. It reads the settings, owns the home directory, binds the listeners,
//! opens the Tenant behind them (or names why it cannot), and stops everything in order.
//!
//! Spec: http-api, sections 1.1, 1.4, 4 and 19; durability, section 19; security, sections 2 and 13; DESIGN.md, section 8.

pub mod home;
pub mod listen;
pub mod lock;
pub mod open;
pub mod sandboxes;
pub mod serve;
pub mod settings;
pub mod studio;
