//! The scripted fixture: a model that answers from a script, so that whole turns (tools, failures, delays,
//! streaming) can be tried and measured without a provider (spec: engine, weak spot 15; DESIGN, section 9).
//!
//! A script is JSON. It lives in a manifest's `metadata` under [`SCRIPT_KEY`] or in the model settings, and is used
//! only where the fixture model is chosen.
//!
//! The form is described in `docs/fixture-scripts.md`.

mod check;
mod format;
mod play;

pub use format::{FixtureScript, MAX_DELAY_MS, MAX_STEPS};
pub use play::ScriptedModel;

/// Where a manifest's `metadata` holds a script.
pub const SCRIPT_KEY: &str = "nylorun.fixture";
