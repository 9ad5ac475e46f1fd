//! How a segment stops before its time: failures, suspensions, aborts (spec: engine, sections 4.2 and 14).

use nylorun_actors::model::Json;
use nylorun_actors::model::turn::{Abort, AbortKind, Thrown};
use serde_json::json;

/// Code of a segment that asked for another effect under an id than before.
pub const EFFECT_DRIFT: &str = "effect_drift";

/// Why a turn failed. Becomes the `error` of a `failed` output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct TurnFailure {
    /// A code of engine section 14.
    pub code: String,
    /// In words.
    pub message: String,
    /// What failed: `step` for a model call and what follows from it, `execution` for a hook of the turn; absent for
    /// the turn as a whole.
    pub scope: Option<&'static str>,
}

impl TurnFailure {
    /// A failure of the turn as a whole.
    #[must_use]
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), scope: None }
    }

    /// A failure of one step.
    #[must_use]
    pub fn of_step(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::scoped("step", code, message)
    }

    /// A failure within a scope.
    #[must_use]
    pub fn scoped(scope: &'static str, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { scope: Some(scope), ..Self::new(code, message) }
    }

    /// `{code, message, scope?}`.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let mut value = json!({"code": self.code, "message": self.message});
        if let Some(scope) = self.scope {
            value["scope"] = json!(scope);
        }
        value
    }
}

/// Why an effect came to nothing that the loop can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortError {
    /// The run was told to stop.
    Aborted(Abort),
    /// The run is no longer ours; nothing more may be written. Which release core is to see.
    Lost(AbortKind),
    /// The same effect id was declared before with another request.
    Drift(String),
    /// Core refused it, for this reason.
    Refused(String),
}

/// What ends a segment other than reaching its end.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// Effects are open: the segment will be replayed from its start.
    Suspended {
        /// Which.
        effect_ids: Vec<String>,
        /// Whether the fate of one is unknown.
        uncertain: bool,
    },
    /// The turn failed.
    Failed(TurnFailure),
    /// The segment cannot run at all.
    Thrown(Thrown),
    /// The run was told to stop.
    Aborted(Abort),
    /// The run is no longer ours.
    Lost(AbortKind),
}

impl Stop {
    /// A segment that cannot run: `execution.incompatible`, `execution.invalid-state` or `execution.invalid-input`.
    #[must_use]
    pub fn thrown(code: &str, message: impl Into<String>) -> Self {
        Self::Thrown(Thrown { code: Some(code.to_owned()), message: message.into() })
    }

    /// A checkpoint of another engine, agent or session.
    #[must_use]
    pub fn incompatible(message: impl Into<String>) -> Self {
        Self::thrown("execution.incompatible", message)
    }

    /// A state that breaks one of its invariants.
    #[must_use]
    pub fn invalid_state(message: impl Into<String>) -> Self {
        Self::thrown("execution.invalid-state", message)
    }

    /// An input that does not fit the state.
    #[must_use]
    pub fn invalid_input(message: impl Into<String>) -> Self {
        Self::thrown("execution.invalid-input", message)
    }
}

impl From<TurnFailure> for Stop {
    fn from(failure: TurnFailure) -> Self {
        Self::Failed(failure)
    }
}
