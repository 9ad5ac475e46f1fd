//! The nouns: pure data and pure functions, without I/O, clock or randomness of their own.

pub mod action;
pub mod artifact;
pub mod canonical;
pub mod checkpoint;
pub mod command;
pub mod effect;
pub mod event;
pub mod folder;
pub mod ids;
pub mod json;
pub mod manifest;
pub mod outcome;
pub mod sandbox;
pub mod session;
pub mod shape;
pub mod time;
pub mod transcript;
pub mod turn;
pub mod workspace;

pub use json::Json;
pub use time::Micros;
