//! What a [`HarnessActor`](crate::harness::HarnessActor) is told.

use actix::{Addr, Message};

use crate::model::effect::Outcome;
use crate::model::ids::{EffectId, RunId};
use crate::model::turn::{Abort, RunGrant, TurnStart};
use crate::session::SessionActor;

/// A segment to run.
#[derive(Message)]
#[rtype(result = "Result<(), GrantRefused>")]
pub struct GrantRun {
    /// Whose.
    pub grant: RunGrant,
    /// Where it starts.
    pub start: TurnStart,
    /// Who settles it.
    pub session: Addr<SessionActor>,
    /// The lease request that takes it; 0 is the standing one of a harness in this process.
    pub lease: u64,
}

/// Why a harness does not take a run after all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantRefused {
    /// The lease request was taken back, or the connection ends: offer the run again.
    #[error("the harness took its lease request back")]
    Gone,
    /// The start does not fit a frame, at this harness or any other.
    #[error("the segment's start has {bytes} bytes, more than a frame may have")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// A new supervisor knows the connection but nothing of it: say again what it serves and which leases are parked.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Introduce;

/// A lease was to be used and was not: it is parked again, unless its peer took it back meanwhile.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Unplaced {
    /// The lease request's number.
    pub lease: u64,
}

/// Text from a connection's socket.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Incoming {
    /// One message, whole.
    pub text: String,
    /// Whether the one behind it has come already, whole too.
    pub more: bool,
}

/// A sign of life from a connection's socket: a ping or a pong.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Heard;

/// A connection's socket is closed, or must be.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Closed {
    /// The close code to answer with.
    pub code: u16,
    /// In words, at most 120 bytes of it are sent.
    pub reason: String,
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

/// An effect of a run is pending: somebody else does it, and the run keeps its lease and waits. The hold ends with
/// [`EffectResolved`], or with the run: by its own time (`action-hold-ms`), a cancel, or an uncertain end. Over a wire the
/// answer to the intent says it; this is what the harness's actor knows of it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Hold {
    /// Which run.
    pub run: RunId,
    /// The effect that it waits for.
    pub effect: EffectId,
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
