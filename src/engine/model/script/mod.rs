//! The scripted fixture: a model that answers from a script, so that whole turns (tools, failures, delays,
//! streaming) can be tried and measured without a provider (spec: engine, weak spot 15; DESIGN, section 9).
//!
//! A script is JSON. It lives in a manifest's `metadata` under [`SCRIPT_KEY`] or in the model settings, and is used
//! only where the fixture model is chosen.
//!
//! ```json
//! {
//!   "steps": [
//!     {"reasoning": "look it up", "toolCalls": [{"name": "lookup", "args": {"id": 7}}], "delayMs": 20},
//!     {"chunks": ["It is ", "on its way."], "chunkDelayMs": 10, "usage": {"inputTokens": 12, "outputTokens": 5}}
//!   ],
//!   "cases": [
//!     {"when": {"contains": "fail"}, "steps": [{"failure": {"code": "overloaded", "message": "busy"}}]}
//!   ],
//!   "tools": {"lookup": {"output": {"status": "shipped"}, "delayMs": 5}}
//! }
//! ```
//!
//! - `cases`: the first one whose `when` fits the last message of a person (`equals` or `contains`) is played; else
//!   the top-level `steps`. `repeat: true` beside `steps` plays a list from its start again when it is used up;
//!   otherwise a call beyond the end is an `invalid_request` failure.
//! - The step is chosen by the number of assistant messages since that last message: a pure function of the call, so
//!   a replay gives the same answer.
//! - A step is either a `failure {code, message, retryable?, retryAfterMs?}`, or any of `reasoning`, one of `text`,
//!   `chunks`, `json`, `echo: true` (the person's text), and `toolCalls [{id?, name, args?}]`; beside them `usage`,
//!   `finishReason`, `evidence {resolvedModel?, contextWindow?, maxOutputTokens?}`, `delayMs` before the answer, and
//!   `chunkDelayMs` before each chunk. A tool call without `id` gets one that no other call of the session has.
//! - `tools`: each is `output` (any JSON), `echo: true` (its input) or `failed {code, message, retryable?}`, with `delayMs`.

mod format;
mod play;

pub use format::{FixtureScript, MAX_DELAY_MS, MAX_STEPS};
pub use play::ScriptedModel;

/// Where a manifest's `metadata` holds a script.
pub const SCRIPT_KEY: &str = "nylorun.fixture";
