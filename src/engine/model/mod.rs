//! The model side of the engine (spec: engine, section 9): what a call is, who answers it, and what an answer looks like.

pub mod call;
pub mod fixture;
pub mod item;
pub mod prompt;
pub mod provider;
pub mod router;
pub mod script;
pub mod scrub;
