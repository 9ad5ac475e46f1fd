//! Taking a session and starting its segment; giving a lost run up (spec: durability, section 8.1 and 8.2;
//! harness-api, sections 10 and 14).

use serde_json::json;

use super::event::write;
use super::ownership::{Claim, RunRefusal, Take, fence, judge};
use super::workspaces;
use crate::limits::RECORD_PAGE;
use crate::model::Micros;
use crate::model::effect::{EffectKind, EffectStatus};
use crate::model::event::EventKind;
use crate::model::ids::{SessionId, TurnId, WorkerId};
use crate::model::json::{JsonMap, JsonText};
use crate::model::session::{SessionHead, SessionPin, SessionStatus};
use crate::ports::store::{EffectRow, RecordRow, StoreError, StoreResult, Tx};
use crate::tenant::ModelOnCrash;

/// Tenant setting: every model call is answered by the fixture model.
pub const FIXTURE_SETTING: &str = "model.fixture";

/// What an advance wants to know beside the lease.
#[derive(Clone, Debug)]
pub struct TakeRequest {
    /// Who takes.
    pub claim: Claim,
    /// What becomes of a model call in flight.
    pub model_on_crash: ModelOnCrash,
    /// Whether the pin must be read (it is kept by the actor).
    pub want_pin: bool,
    /// The caller's fold has read the record up to here; `None`: it has none.
    pub folded_to: Option<i64>,
}

/// Everything that a segment starts from.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The turn.
    pub turn_id: TurnId,
    /// The lease's epoch.
    pub epoch: i64,
    /// End of the lease.
    pub expires_at: Micros,
    /// Hash of the session's pin.
    pub root_hash: String,
    /// The checkpoint without its state.
    pub checkpoint: JsonText,
    /// The engine's state.
    pub state: Option<JsonText>,
    /// Completed effects of the segment.
    pub outcomes: Vec<EffectRow>,
    /// The pin, when it was asked for.
    pub pin: Option<SessionPin>,
    /// The session that owns the workspace and the sandbox resource that it is, when the pin was asked for.
    pub workspace: Option<(SessionId, Option<String>)>,
    /// Whether the fixture model answers.
    pub fixture_model: bool,
    /// Where the fold starts.
    pub history_from: i64,
    /// Next `seq` of the record.
    pub head: i64,
    /// Fold events from the asked place on, when they all fit one page.
    pub fold_rows: Option<Vec<RecordRow>>,
}

/// What taking came to.
#[derive(Clone, Debug)]
pub enum Taken {
    /// No such session, or nothing to do.
    Nothing,
    /// Somebody holds it.
    Busy {
        /// Until then.
        until: Micros,
        /// The store's clock now.
        now: Micros,
    },
    /// The lease is held and the segment may start.
    Segment(Box<Segment>),
}

/// Takes the lease, marks what a dead owner left in flight, and reads what the segment starts from: one commit.
///
/// # Errors
/// The store's.
pub fn take(tx: &mut dyn Tx, session: &SessionId, request: &TakeRequest) -> StoreResult<Taken> {
    let (mut head, takeover) = match judge(tx, session, &request.claim)? {
        Take::Missing => return Ok(Taken::Nothing),
        Take::Busy { until } => return Ok(Taken::Busy { until, now: tx.now() }),
        Take::Free { head, takeover } => (head, takeover),
    };
    tx.delete_wakes(session)?;
    // A dead owner left calls behind; one that gave its lease back in the middle of a turn may have, unreported.
    // An Action's outcome makes a session runnable while its run goes on, so the status alone does not say.
    let resumed = takeover
        || head.status == SessionStatus::Running
        || (head.status == SessionStatus::Runnable
            && !tx.open_effects(session, &[EffectStatus::Invoking])?.is_empty());
    if resumed {
        head.epoch += 1;
        // The new epoch goes into the events that the marking writes.
        tx.put_owner(session, None, head.epoch, None)?;
        if mark_in_flight(tx, &head, request.model_on_crash)? {
            head.status = SessionStatus::Uncertain;
            tx.put_status(session, head.status, head.active_turn_id.as_ref(), head.last_turn_id.as_ref())?;
        }
    }
    let (true, Some(turn_id)) = (is_workable(head.status), head.active_turn_id.clone()) else {
        return Ok(Taken::Nothing);
    };
    let doc = tx.session_doc(session)?.unwrap_or_default();
    let Some(checkpoint) = doc.checkpoint else { return Ok(Taken::Nothing) };
    if !resumed {
        head.epoch += 1;
    }
    let expires_at = tx.now().plus_ms(request.claim.lease_ms);
    tx.put_owner(session, Some(&request.claim.worker), head.epoch, Some(expires_at))?;
    if head.status != SessionStatus::Running {
        tx.put_status(session, SessionStatus::Running, Some(&turn_id), head.last_turn_id.as_ref())?;
    }
    let segment = segment_of(&checkpoint)?;
    let history_from = doc.history_from.unwrap_or(0);
    let (record_head, fold_rows) = match request.folded_to {
        Some(from) => {
            let record_head = tx.head(session)?;
            // One event since the last segment is the command that began this one: a turn that was reverted meanwhile
            // would have left two.
            let unread = record_head - from > 1;
            let rows = if unread { tx.fold_record(session, from, RECORD_PAGE)? } else { Vec::new() };
            (record_head, (rows.len() < RECORD_PAGE).then_some(rows))
        }
        None => (tx.head(session)?, None),
    };
    Ok(Taken::Segment(Box::new(Segment {
        outcomes: tx.completed_effects(&turn_id, segment)?,
        turn_id,
        epoch: head.epoch,
        expires_at,
        root_hash: head.manifest_hash,
        checkpoint,
        state: doc.state,
        pin: if request.want_pin { Some(tx.session_pin(session)?.unwrap_or_default()) } else { None },
        workspace: if request.want_pin { Some(workspaces::owner(tx, session)?) } else { None },
        fixture_model: tx.setting(FIXTURE_SETTING)?.as_deref() == Some("true"),
        history_from,
        head: record_head,
        fold_rows,
    })))
}

fn is_workable(status: SessionStatus) -> bool {
    matches!(status, SessionStatus::Running | SessionStatus::Runnable)
}

fn segment_of(checkpoint: &JsonText) -> StoreResult<u32> {
    #[derive(serde::Deserialize)]
    struct Only {
        segment: u32,
    }
    checkpoint
        .decode::<Only>()
        .map(|c| c.segment)
        .map_err(|e| StoreError::Corrupt(format!("a checkpoint does not parse: {e}")))
}

/// Marks effects that a dead owner had in flight as uncertain; whether one of the active turn was.
fn mark_in_flight(tx: &mut dyn Tx, head: &SessionHead, model: ModelOnCrash) -> StoreResult<bool> {
    let mut of_active = false;
    for effect in tx.open_effects(&head.id, &[EffectStatus::Invoking])? {
        if effect.kind == EffectKind::Model && model == ModelOnCrash::Repeat {
            continue;
        }
        let text = "the harness that ran this was lost; whether it took effect is unknown";
        tx.settle_effect(&effect.id, EffectStatus::Uncertain, None, Some(text))?;
        if head.active_turn_id.as_ref() == Some(&effect.turn_id) {
            of_active = true;
            let mut payload = JsonMap::new();
            payload.insert("effectId".into(), json!(effect.id.as_str()));
            payload.insert("message".into(), json!(text));
            write(tx, &head.id, Some(&effect.turn_id), EventKind::EffectUncertain, &payload)?;
        }
    }
    Ok(of_active)
}

/// What a lost run leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostRun {
    /// The session can be advanced again at once.
    Resume,
    /// It ended `uncertain` (or was over): nothing to advance.
    Stop,
}

/// A run was lost while this worker holds the lease: marks what was in flight and releases, in one commit.
///
/// # Errors
/// [`RunRefusal::OwnershipLost`] when somebody took over meanwhile.
pub fn lose_run(
    tx: &mut dyn Tx,
    session: &SessionId,
    worker: &WorkerId,
    epoch: i64,
    model: ModelOnCrash,
) -> Result<LostRun, RunRefusal> {
    let head = fence(tx, session, epoch)?;
    let marked = mark_in_flight(tx, &head, model)?;
    if marked {
        let last = head.last_turn_id.as_ref();
        tx.put_status(session, SessionStatus::Uncertain, head.active_turn_id.as_ref(), last)?;
    }
    if head.owner.as_ref() == Some(worker) {
        tx.put_owner(session, None, epoch, None)?;
    }
    Ok(if !marked && is_workable(head.status) { LostRun::Resume } else { LostRun::Stop })
}
