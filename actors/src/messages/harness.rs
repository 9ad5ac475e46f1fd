//! What a [`HarnessActor`](crate::harness::HarnessActor) is told.

use actix::{Addr, Message};

use crate::model::effect::Outcome;
use crate::model::ids::{EffectId, RunId};
use crate::model::turn::{Abort, RunGrant, TurnStart};
use crate::session::SessionActor;

/// A segment to run.
#[derive(Message)]
#[rtype(result = "()")]
pub struct GrantRun {
    /// Whose.
    pub grant: RunGrant,
    /// Where it starts.
    pub start: TurnStart,
    /// Who settles it.
    pub session: Addr<SessionActor>,
}

/// `cancel`: a run must stop.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CancelRun {
    /// Which run.
    pub run: RunId,
    /// Why.
    pub abort: Abort,
}

/// A run that did not stop in time is dropped; whatever it still says is ignored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DropRun {
    /// Which run.
    pub run: RunId,
}

/// `effect.resolved`: an Action that a held run waits for has an outcome.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct EffectResolved {
    /// Which run.
    pub run: RunId,
    /// Which effect.
    pub effect: EffectId,
    /// Its outcome.
    pub outcome: Outcome,
}

/// A run's task is over.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunEnded {
    /// Which run.
    pub run: RunId,
}
