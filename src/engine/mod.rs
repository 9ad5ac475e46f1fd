//! The harness we ship: the agent loop, how it runs for core, and the models it asks (spec: engine).

pub mod agent;
pub mod model;
pub mod run;
