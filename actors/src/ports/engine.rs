//! The seam between a harness and the engine it runs: [`Engine`] runs one segment, [`RunLink`] is how the
//! engine speaks to core while it does (the methods of spec: harness-api, section 7, seen from the harness).
//!
//! One engine serves three channels: in memory (values by reference), JSON in memory, and WebSocket. Both traits
//! are local to a thread, as actix's actors are.

use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use tokio::sync::watch;

use crate::model::Json;
use crate::model::effect::{EffectIntent, Outcome};
use crate::model::ids::EffectId;
use crate::model::transcript::Entry;
use crate::model::turn::{Abort, RunGrant, TurnOutput, TurnStart};
use crate::ports::workspaces::RunWorkspaces;

/// Error codes of the Harness API (spec: harness-api, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApiCode {
    /// Unknown run, run of another connection, run already ended.
    RunNotHeld,
    /// The session is cancelled or works on another turn.
    TurnCancelled,
    /// The epoch moved on. Nothing was written.
    OwnershipLost,
    /// Same effect id, different request.
    EffectDrift,
    /// Malformed, forbidden or contradictory.
    Invalid,
    /// Connection closed, or the requester gave up.
    Unavailable,
    /// Everything else.
    Internal,
}

impl ApiCode {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::RunNotHeld,
        Self::TurnCancelled,
        Self::OwnershipLost,
        Self::EffectDrift,
        Self::Invalid,
        Self::Unavailable,
        Self::Internal,
    ];

    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunNotHeld => "run_not_held",
            Self::TurnCancelled => "turn_cancelled",
            Self::OwnershipLost => "ownership_lost",
            Self::EffectDrift => "effect_drift",
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }
}

/// A refused request of a harness.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct ApiError {
    /// Which of the closed list.
    pub code: ApiCode,
    /// In words.
    pub message: String,
}

impl ApiError {
    /// An error of this code.
    #[must_use]
    pub fn new(code: ApiCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Core's answer to `effect.intent`.
#[derive(Clone, Debug, PartialEq)]
pub enum IntentAnswer {
    /// Already done: use this outcome.
    Completed(Outcome),
    /// Somebody else does it; an `effect.resolved` may follow while the run is held.
    Pending,
    /// Its fate is unknown. Never run it.
    Uncertain,
    /// Run it here, then report. `rejoin`: it was started before, so a call may still live at its gate.
    Execute {
        /// Started before.
        rejoin: bool,
    },
}

/// Core's answer to `effect.outcome`.
#[derive(Clone, Debug, PartialEq)]
pub enum OutcomeAnswer {
    /// Recorded (or recorded before): this is the outcome.
    Completed(Outcome),
    /// Recorded as uncertain.
    Uncertain,
}

/// What a harness reports of an effect that it ran.
#[derive(Clone, Debug, PartialEq)]
pub enum EffectReport {
    /// It came to a value.
    Value(Arc<Json>),
    /// It was cut off; its fate is unknown.
    Error(String),
}

/// A piece of a model's answer while it is being written. Shown to observers that ask, never recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// The engine's invocation.
    pub invocation_id: String,
    /// New text.
    pub text: Option<String>,
    /// A tool call that has begun: `{callId?, name?}` as far as known.
    pub tool_call: Option<Json>,
}

/// Whether and why a run was told to stop.
#[derive(Clone, Debug)]
pub struct AbortSignal(watch::Receiver<Option<Abort>>);

impl AbortSignal {
    /// A signal and the sender that fires it.
    #[must_use]
    pub fn channel() -> (watch::Sender<Option<Abort>>, Self) {
        let (sender, receiver) = watch::channel(None);
        (sender, Self(receiver))
    }

    /// The abort, if it has fired.
    #[must_use]
    pub fn get(&self) -> Option<Abort> {
        self.0.borrow().clone()
    }

    /// Waits for the abort. Pends for ever when the sender is gone without one.
    pub async fn fired(&self) -> Abort {
        let mut receiver = self.0.clone();
        loop {
            if let Some(abort) = receiver.borrow_and_update().clone() {
                return abort;
            }
            if receiver.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

/// How an engine speaks to core for one run.
pub trait RunLink {
    /// Declares an effect before anything is done for it. A model's prompt stays here: send its intent without `input`.
    fn intent(
        &self,
        effect: EffectIntent,
        request_hash: String,
    ) -> LocalBoxFuture<'static, Result<IntentAnswer, ApiError>>;

    /// Reports an effect that was answered with [`IntentAnswer::Execute`].
    fn outcome(
        &self,
        effect: EffectId,
        report: EffectReport,
    ) -> LocalBoxFuture<'static, Result<OutcomeAnswer, ApiError>>;

    /// The transcript at the start's cursor.
    fn transcript(&self) -> LocalBoxFuture<'static, Result<Arc<Vec<Entry>>, ApiError>>;

    /// Reports a value together with whatever the run says next: the next intent or its output carries it, in one
    /// commit. For a value that nothing else of the run waits beside. `false` when the channel has no way to do so;
    /// then nothing was taken and [`RunLink::outcome`] must be used.
    fn defer(&self, _effect: &EffectId, _value: &Arc<Json>) -> bool {
        false
    }

    /// Waits for `effect.resolved` of a pending effect; one that arrived before the wait counts.
    fn resolved(&self, effect: EffectId) -> LocalBoxFuture<'static, Outcome>;

    /// Shows a piece of a model's answer to observers. Lossy; nothing on a channel that has no place for it.
    fn preview(&self, preview: Preview);

    /// The run's abort signal.
    fn abort(&self) -> AbortSignal;

    /// The workspaces that this run's sandbox tools work in; `None` where nobody serves any.
    fn workspaces(&self) -> Option<RunWorkspaces> {
        None
    }
}

/// What the engine hands back for a run.
// There is one for each run: boxing it would save nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum RunEnd {
    /// An output to settle.
    Output(TurnOutput),
    /// Nothing to settle: `lease.release` with the abort's kind (`shutdown` or `ownership.lost`).
    Released(crate::model::turn::AbortKind),
}

/// Runs segments.
pub trait Engine: Send + Sync + 'static {
    /// Runs one segment to its end. Dropping the future stops it at its next await.
    fn run(
        &self,
        grant: RunGrant,
        start: TurnStart,
        link: Rc<dyn RunLink>,
    ) -> LocalBoxFuture<'static, RunEnd>;

    /// Tells the engine at which cursor a settled transcript now stands (`None`: forget what was cached for it).
    fn settled(&self, grant: &RunGrant, cursor: Option<i64>);
}
