//! What becomes of an Action: offered with its intent, completed, lost, cancelled, extended (spec: durability, section 7;
//! http-api, sections 10.3 and 10.4).

use serde_json::json;

use super::Refusal;
use super::event::write;
use crate::model::Micros;
use crate::model::action::{ActionStatus, on_the_wire};
use crate::model::canonical::canonical;
use crate::model::effect::{EffectIntent, EffectKind, EffectStatus, Outcome};
use crate::model::event::{EventKind, cursor};
use crate::model::ids::{EffectId, SessionId, TurnId};
use crate::model::json::{Json, JsonMap, JsonText};
use crate::model::session::{SessionHead, SessionStatus};
use crate::ports::store::{ActionRow, Reads, StoreError, StoreResult, Tx};

/// The row of a new Action; written in the transaction of its intent.
#[must_use]
pub fn offered(intent: &EffectIntent, body: JsonText, now: Micros) -> ActionRow {
    ActionRow {
        id: intent.effect_id.clone(),
        session_id: intent.session_id.clone(),
        turn_id: intent.turn_id.clone(),
        agent_id: intent.agent_id.clone(),
        kind: intent.kind,
        status: ActionStatus::Pending,
        generation: 0,
        deadline_at: None,
        retry_at: None,
        parked_at: None,
        since: now,
        body,
        receipt: None,
    }
}

/// An Action as its endpoint gets it.
///
/// # Errors
/// [`StoreError::Corrupt`] when its stored members do not parse.
pub fn wire(row: &ActionRow) -> StoreResult<Json> {
    Ok(on_the_wire(members(row)?, row.status, row.generation, row.deadline_at))
}

/// Its members that never change.
///
/// # Errors
/// [`StoreError::Corrupt`] when they do not parse.
pub fn members(row: &ActionRow) -> StoreResult<JsonMap> {
    row.body.decode().map_err(|e| StoreError::Corrupt(format!("Action {} does not parse: {e}", row.id)))
}

/// Whether the Action's turn is the session's active one.
pub(super) fn is_live(row: &ActionRow, head: Option<&SessionHead>) -> bool {
    head.is_some_and(|head| {
        head.status != SessionStatus::Cancelled && head.active_turn_id.as_ref() == Some(&row.turn_id)
    })
}

/// What a run that may be held for an Action is told after the commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// Whose session.
    pub session: SessionId,
    /// The Action's effect.
    pub effect: EffectId,
    /// Its outcome.
    pub outcome: Outcome,
}

/// Records the outcome of an Action: Action and effect completed, event, session runnable, wake, receipt.
///
/// # Errors
/// The store's.
pub fn complete(
    tx: &mut dyn Tx,
    mut row: ActionRow,
    head: &SessionHead,
    outcome: &Outcome,
) -> StoreResult<(Resolution, Json)> {
    tx.settle_effect(&row.id, EffectStatus::Completed, Some(&JsonText::of(outcome)), None)?;
    let payload = completed_payload(&row, outcome)?;
    let seq = write(tx, &row.session_id, Some(&row.turn_id), EventKind::ActionCompleted, &payload)?;
    let receipt = json!({
        "status": "accepted", "turnId": row.turn_id.as_str(), "cursor": cursor(&row.session_id, seq),
    });
    resume(
        tx,
        head,
        "action_result",
        &format!("action_result:{}:{}:{}", row.turn_id, row.id, row.generation),
    )?;
    row.status = ActionStatus::Completed;
    row.deadline_at = None;
    row.retry_at = None;
    row.parked_at = None;
    row.receipt = Some(JsonText::of(&receipt));
    tx.put_action(&row)?;
    let resolution = Resolution { session: row.session_id.clone(), effect: row.id, outcome: outcome.clone() };
    Ok((resolution, receipt))
}

/// The session can go on: runnable, with a wake.
pub(super) fn resume(tx: &mut dyn Tx, head: &SessionHead, reason: &str, dedupe: &str) -> StoreResult<()> {
    let (active, last) = (head.active_turn_id.as_ref(), head.last_turn_id.as_ref());
    tx.put_status(&head.id, SessionStatus::Runnable, active, last)?;
    tx.put_wake(&head.id, reason, Some(dedupe))
}

/// The members that `action.pending`, `action.completed` and others share.
fn named(row: &ActionRow) -> StoreResult<(JsonMap, JsonMap)> {
    let members = members(row)?;
    let mut payload = JsonMap::new();
    payload.insert("actionId".into(), json!(row.id.as_str()));
    payload.insert("kind".into(), json!(row.kind.as_str()));
    for key in ["toolName", "path", "key"] {
        if let Some(value) = members.get(key) {
            payload.insert(key.into(), value.clone());
        }
    }
    for key in ["callId", "invocationId"] {
        if let Some(value) = members.get("context").and_then(|context| context.get(key)) {
            payload.insert(key.into(), value.clone());
        }
    }
    Ok((payload, members))
}

fn completed_payload(row: &ActionRow, outcome: &Outcome) -> StoreResult<JsonMap> {
    let (mut payload, mut members) = named(row)?;
    payload.insert("result".into(), outcome.value.as_ref().clone());
    if let Some(agent) = members.shift_remove("agent") {
        payload.insert("agent".into(), agent);
    }
    Ok(payload)
}

/// `{actionId, agent?}`, as short events of an Action have it.
pub(super) fn short_payload(row: &ActionRow) -> StoreResult<JsonMap> {
    let mut payload = JsonMap::new();
    payload.insert("actionId".into(), json!(row.id.as_str()));
    if let Some(agent) = members(row)?.shift_remove("agent") {
        payload.insert("agent".into(), agent);
    }
    Ok(payload)
}

/// What a lost delivery leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// A tool's: nobody knows what it did, so its session waits for an operator.
    Uncertain,
    /// A hook's, function's or verifier's: they do nothing outside, so it is delivered again.
    Again,
}

/// A delivery is lost. `retry_at`: when one that may be repeated is due again.
///
/// # Errors
/// The store's.
pub fn lose(
    tx: &mut dyn Tx,
    mut row: ActionRow,
    head: Option<&SessionHead>,
    why: &str,
    retry_at: Micros,
) -> StoreResult<Lost> {
    row.deadline_at = None;
    if row.kind != EffectKind::Tool {
        row.status = ActionStatus::Pending;
        row.retry_at = Some(retry_at);
        tx.put_action(&row)?;
        return Ok(Lost::Again);
    }
    row.status = ActionStatus::Uncertain;
    tx.put_action(&row)?;
    tx.settle_effect(&row.id, EffectStatus::Uncertain, None, Some(why))?;
    if let Some(head) = head.filter(|head| is_live(&row, Some(head))) {
        let payload = short_payload(&row)?;
        write(tx, &row.session_id, Some(&row.turn_id), EventKind::ActionUncertain, &payload)?;
        let (active, last) = (head.active_turn_id.as_ref(), head.last_turn_id.as_ref());
        tx.put_status(&head.id, SessionStatus::Uncertain, active, last)?;
    }
    Ok(Lost::Uncertain)
}

/// Actions of a turn that ends: what waits is cancelled, what an endpoint has may have had an effect. Their effects
/// follow. Answers whether an endpoint has one.
///
/// # Errors
/// The store's.
pub(super) fn give_up(tx: &mut dyn Tx, session: &SessionId, turn: &TurnId, text: &str) -> StoreResult<bool> {
    let mut delivering = false;
    for mut row in tx.open_actions(session)? {
        if row.turn_id != *turn {
            continue;
        }
        let effect = if row.status == ActionStatus::Delivering {
            delivering = true;
            row.status = ActionStatus::Uncertain;
            (EffectStatus::Uncertain, Some(text))
        } else {
            row.status = ActionStatus::Cancelled;
            (EffectStatus::Cancelled, None)
        };
        row.deadline_at = None;
        row.retry_at = None;
        row.parked_at = None;
        tx.put_action(&row)?;
        tx.settle_effect(&row.id, effect.0, None, effect.1)?;
    }
    Ok(delivering)
}

/// A delivery as its endpoint names it in a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryClaim {
    /// Which Action: the path's.
    pub action: EffectId,
    /// Which Action the token is for.
    pub token_action: String,
    /// Which delivery of it.
    pub generation: i64,
    /// The agent that the token names.
    pub agent: String,
}

/// The live delivery that a callback is about.
///
/// # Errors
/// 404 for an unknown Action, 403 for a token of another agent, 409 when the delivery is not the live one.
pub fn live(reads: &mut dyn Reads, claim: &DeliveryClaim) -> Result<(ActionRow, SessionHead), Refusal> {
    let row = named_action(reads, claim)?;
    let head = reads.session(&row.session_id)?;
    let in_time = row.deadline_at.is_some_and(|at| at > reads.now());
    let current = row.status == ActionStatus::Delivering && row.generation == claim.generation && in_time;
    match head {
        Some(head) if current && is_live(&row, Some(&head)) => Ok((row, head)),
        _ => Err(Refusal::conflict("This delivery is not the live one of its Action")),
    }
}

/// The Action of a callback, whatever became of it.
///
/// # Errors
/// 404 and 403 as [`live`].
pub fn named_action(reads: &mut dyn Reads, claim: &DeliveryClaim) -> Result<ActionRow, Refusal> {
    let row = reads.action(&claim.action)?.ok_or_else(|| Refusal::not_found("Action"))?;
    if row.agent_id.as_str() == claim.agent && row.id.as_str() == claim.token_action {
        Ok(row)
    } else {
        Err(Refusal::Forbidden("The token is another Action's or another agent's".into()))
    }
}

/// A heartbeat: the delivery's deadline moves to one lease from now. Answers it with the endpoint's URL as registered now.
///
/// # Errors
/// As [`live`].
pub fn heartbeat(
    tx: &mut dyn Tx,
    claim: &DeliveryClaim,
    lease_ms: i64,
) -> Result<(Micros, Option<String>), Refusal> {
    let (mut row, _) = live(tx, claim)?;
    let deadline = tx.now().plus_ms(lease_ms);
    row.deadline_at = Some(deadline);
    tx.put_action(&row)?;
    let url = tx.endpoint(&row.agent_id)?.map(|endpoint| endpoint.url);
    Ok((deadline, url))
}

/// A background result. `outcome` is what the acceptance rule made of it. Answers the receipt, and what a held run is
/// told when it is new.
///
/// # Errors
/// As [`live`]; 409 for another outcome than the recorded one.
pub fn result(
    tx: &mut dyn Tx,
    claim: &DeliveryClaim,
    outcome: &Outcome,
) -> Result<(Json, Option<Resolution>), Refusal> {
    let row = named_action(tx, claim)?;
    if row.status == ActionStatus::Completed {
        let known = recorded(tx, &row.id)?;
        let same = row.generation == claim.generation && known.is_some_and(|k| same_outcome(&k, outcome));
        return match row.receipt.filter(|_| same) {
            Some(receipt) => {
                let receipt = receipt.decode().map_err(|e| StoreError::Corrupt(e.to_string()))?;
                Ok((receipt, None))
            }
            None => Err(Refusal::conflict("The Action has another outcome")),
        };
    }
    let (row, head) = live(tx, claim)?;
    super::endpoints::note_success(tx, &row.agent_id)?;
    let (resolution, receipt) = complete(tx, row, &head, outcome)?;
    Ok((receipt, Some(resolution)))
}

fn recorded(tx: &mut dyn Tx, id: &EffectId) -> StoreResult<Option<Outcome>> {
    let row = tx.effect(id)?;
    Ok(row.and_then(|row| row.outcome).and_then(|text| text.decode().ok()))
}

/// Whether two outcomes are canonically equal.
fn same_outcome(a: &Outcome, b: &Outcome) -> bool {
    let patch = |o: &Outcome| o.state_patch.as_ref().map(|p| canonical(&Json::Object(p.as_ref().clone())));
    canonical(&a.value) == canonical(&b.value) && patch(a) == patch(b)
}
