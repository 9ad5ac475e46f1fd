//! What the loop needs from outside: effects resolved, the abort, and how long the run has lasted
//! (spec: engine, section 3.3).

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use nylorun_actors::model::Json;
use nylorun_actors::model::effect::{EffectIntent, Outcome};
use nylorun_actors::model::turn::Abort;

use super::errors::{EFFECT_DRIFT, PortError, Stop, TurnFailure};
use crate::engine::model::call::ModelCall;

/// An effect as the loop declares it.
#[derive(Clone, Debug)]
pub struct Effect {
    /// What core is told.
    pub intent: EffectIntent,
    /// The hash of the whole request.
    pub request_hash: String,
    /// What a model is asked; `None` for everything else.
    pub call: Option<ModelCall>,
    /// The manifest of the sub-agent that acts; `None` when the root does.
    pub manifest: Option<Arc<Json>>,
}

/// What an effect came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// Its outcome.
    Completed(Outcome),
    /// Not yet.
    Pending,
    /// Nobody knows.
    Uncertain,
}

/// The world of one run. Requests of one plan run at the same time.
pub trait EffectPort {
    /// Resolves an effect: from the journal, by running it, or by waiting a while.
    fn resolve(&self, effect: Effect) -> LocalBoxFuture<'static, Result<Resolution, PortError>>;

    /// The abort, if it has fired.
    fn aborted(&self) -> Option<Abort>;

    /// Milliseconds since the run began.
    fn elapsed_ms(&self) -> u64;
}

/// The outcome of an effect, or why core refused it.
///
/// # Errors
/// What stops the agent: the effect is open or drifted, or the run was told to stop.
pub async fn outcome(port: &dyn EffectPort, effect: Effect) -> Result<Result<Outcome, String>, Stop> {
    let id = effect.intent.effect_id.as_str().to_owned();
    match port.resolve(effect).await {
        Ok(Resolution::Completed(outcome)) => Ok(Ok(outcome)),
        Err(PortError::Refused(message)) => Ok(Err(message)),
        Ok(Resolution::Pending) => Err(Stop::Suspended { effect_ids: vec![id], uncertain: false }),
        Ok(Resolution::Uncertain) => Err(Stop::Suspended { effect_ids: vec![id], uncertain: true }),
        Err(PortError::Aborted(abort)) => Err(Stop::Aborted(abort)),
        Err(PortError::Lost(kind)) => Err(Stop::Lost(kind)),
        Err(PortError::Drift(message)) => Err(TurnFailure::new(EFFECT_DRIFT, message).into()),
    }
}

/// The outcome of an effect without which an agent cannot go on.
///
/// # Errors
/// As [`outcome`], and `execution.failed` when core refused it.
pub async fn needed(port: &dyn EffectPort, effect: Effect) -> Result<Outcome, Stop> {
    let outcome = outcome(port, effect).await?;
    outcome.map_err(|refused| TurnFailure::of_step("execution.failed", refused).into())
}
