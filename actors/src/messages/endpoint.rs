//! What an [`EndpointActor`](crate::endpoint::EndpointActor) is told.

use actix::Message;
use tokio::sync::oneshot;

use crate::model::Json;
use crate::model::ids::{EffectId, SessionId, TurnId};
use crate::rules::Refusal;

/// There may be Actions to deliver, or deliveries past their deadline. Merges with a look that runs.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Look;

/// A turn was cancelled, and the commit has settled its Actions: cut the deliveries of it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AbortDeliveries {
    /// Whose session.
    pub session: SessionId,
    /// Which turn.
    pub turn: TurnId,
}

/// A delivery is settled. Sent by its task, which outlives an actor that dies.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Delivered {
    /// Which Action.
    pub action: EffectId,
    /// Which delivery of it.
    pub generation: i64,
    /// Whether the endpoint failed.
    pub failed: bool,
    /// Whether `action.delivery_failed` was written.
    pub told: bool,
}

/// Ask the endpoint whether it serves its agent. Answered with `{agentId, implementationVersion, manifestHash?}`.
#[derive(Debug, Message)]
#[rtype(result = "Result<Json, PingFailed>")]
pub struct Ping;

/// Why a ping did not succeed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PingFailed {
    /// The agent has no endpoint, or the store failed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The endpoint did not answer as one that serves this agent; in words.
    #[error("{0}")]
    Endpoint(String),
}

/// Stop delivering; answered when nothing is in flight any more, or when the patience for it is over.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DrainEndpoint {
    /// Answered when done.
    pub done: oneshot::Sender<()>,
}
