//! The harness we ship: the agent loop and the models it asks (spec: engine).

pub mod model;
