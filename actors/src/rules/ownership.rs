//! The lease of a session and its fence (spec: durability, section 8; harness-api, section 9). See `docs/fencing.md`.

use crate::model::Micros;
use crate::model::ids::{SessionId, WorkerId};
use crate::model::session::SessionHead;
use crate::ports::store::{StoreError, StoreResult, Tx};

/// The epoch moved on: somebody else owns the session. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ownership of session {session} was lost: this run has epoch {expected}, the session has {actual:?}")]
pub struct OwnershipLost {
    /// The session.
    pub session: SessionId,
    /// The run's epoch.
    pub expected: i64,
    /// The session's, `None` when it is gone.
    pub actual: Option<i64>,
}

/// Why a write made for a run was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunRefusal {
    /// The fence failed.
    #[error(transparent)]
    OwnershipLost(#[from] OwnershipLost),
    /// The session is cancelled or works on another turn.
    #[error("the turn is cancelled or over")]
    TurnCancelled,
    /// The same effect id was declared with another request.
    #[error("effect {0} was declared before with another request")]
    EffectDrift(String),
    /// The request contradicts what is known.
    #[error("{0}")]
    Invalid(String),
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Locks the session and asserts the epoch. Every write made for a run begins with this.
///
/// # Errors
/// [`OwnershipLost`] when the session is gone or its epoch is another.
pub fn fence(tx: &mut dyn Tx, session: &SessionId, epoch: i64) -> Result<SessionHead, RunRefusal> {
    match tx.session(session)? {
        Some(head) if head.epoch == epoch => Ok(head),
        other => Err(OwnershipLost {
            session: session.clone(),
            expected: epoch,
            actual: other.map(|head| head.epoch),
        }
        .into()),
    }
}

/// Who asks for a session's lease, and what it knows of the other owners.
#[derive(Clone, Debug)]
pub struct Claim {
    /// This process.
    pub worker: WorkerId,
    /// Life of the lease, ms.
    pub lease_ms: i64,
    /// A lease of this very process is held by nobody alive: its actor died.
    pub own_is_dead: bool,
    /// Leases of other processes are held by nobody alive: the store is this process's alone.
    pub others_are_dead: bool,
}

/// What a claim came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// No such session.
    Missing,
    /// Somebody holds it until then.
    Busy {
        /// End of the lease.
        until: Micros,
    },
    /// It may be taken; `takeover` when an owner was still recorded. Nothing is written yet.
    Free {
        /// The head as it was.
        head: SessionHead,
        /// A dead owner left it.
        takeover: bool,
    },
}

/// Judges a claim. A lease that expires exactly now is free.
///
/// # Errors
/// The store's.
pub fn judge(tx: &mut dyn Tx, session: &SessionId, claim: &Claim) -> StoreResult<Take> {
    let now = tx.now();
    let Some(head) = tx.session(session)? else { return Ok(Take::Missing) };
    let Some(owner) = &head.owner else { return Ok(Take::Free { head, takeover: false }) };
    let dead = if *owner == claim.worker { claim.own_is_dead } else { claim.others_are_dead };
    match head.owner_expires_at {
        Some(until) if until > now && !dead => Ok(Take::Busy { until }),
        _ => Ok(Take::Free { head, takeover: true }),
    }
}

/// Extends a lease when owner and epoch still match. A lapsed lease that nobody took may be renewed.
///
/// # Errors
/// The store's.
pub fn renew(
    tx: &mut dyn Tx,
    session: &SessionId,
    worker: &WorkerId,
    epoch: i64,
    lease_ms: i64,
) -> StoreResult<Option<Micros>> {
    let until = tx.now().plus_ms(lease_ms);
    match tx.session(session)? {
        Some(head) if head.epoch == epoch && head.owner.as_ref() == Some(worker) => {
            tx.put_owner(session, Some(worker), epoch, Some(until))?;
            Ok(Some(until))
        }
        _ => Ok(None),
    }
}

/// Gives a lease back when owner and epoch still match; whether they did. The epoch stays.
///
/// # Errors
/// The store's.
pub fn release(tx: &mut dyn Tx, session: &SessionId, worker: &WorkerId, epoch: i64) -> StoreResult<bool> {
    match tx.session(session)? {
        Some(head) if head.epoch == epoch && head.owner.as_ref() == Some(worker) => {
            tx.put_owner(session, None, epoch, None)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}
