//! Effects whose fate somebody must decide: uncertain ones and parked Actions (DESIGN.md, section 9; spec: durability,
//! section 23).

use std::sync::Arc;

use serde_json::json;

use super::Refusal;
use super::actions::{self, Resolution, resume};
use super::event::write;
use crate::model::action::ActionStatus;
use crate::model::canonical::{canonical, sha256_hex};
use crate::model::effect::{EffectIntent, EffectKind, EffectStatus, Outcome};
use crate::model::event::{EventKind, cursor};
use crate::model::ids::{AgentId, EffectId, SessionId};
use crate::model::json::{Json, JsonMap, JsonText};
use crate::model::outcome::{EffectFacts, MODEL_FAILURES, event_of};
use crate::model::session::{SessionHead, SessionStatus};
use crate::ports::store::{ActionRow, CommandRow, EffectRow, Page, Reads, StoreError, StoreResult, Tx};

/// Which effects are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Their fate is unknown.
    Uncertain,
    /// They wait for an endpoint.
    Pending,
    /// Their deliveries were given up.
    Dead,
}

impl Asked {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Uncertain => "uncertain",
            Self::Pending => "pending",
            Self::Dead => "dead",
        }
    }

    /// What a wire name asks for.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Uncertain, Self::Pending, Self::Dead].into_iter().find(|asked| asked.as_str() == name)
    }

    fn of(effect: &EffectRow, action: Option<&ActionRow>) -> Option<Self> {
        match effect.status {
            EffectStatus::Uncertain => Some(Self::Uncertain),
            EffectStatus::Pending if action.is_some_and(|a| a.parked_at.is_some()) => Some(Self::Dead),
            EffectStatus::Pending => Some(Self::Pending),
            _ => None,
        }
    }
}

/// Effects of a session that wait for somebody: `{effectId, kind, status, toolName?, agentId, input?, error?, generation?,
/// since?}`, by id.
///
/// # Errors
/// 404 without the session.
pub fn list(
    reads: &mut dyn Reads,
    session: &SessionId,
    asked: Option<Asked>,
    page: &Page,
) -> Result<Vec<Json>, Refusal> {
    if reads.session(session)?.is_none() {
        return Err(Refusal::not_found("session"));
    }
    let mut views = Vec::new();
    for effect in reads.open_effects(session, &[EffectStatus::Pending, EffectStatus::Uncertain])? {
        if page.after.as_deref().is_some_and(|after| effect.id.as_str() <= after) {
            continue;
        }
        if page.limit.is_some_and(|limit| views.len() >= limit) {
            break;
        }
        let action = reads.action(&effect.id)?;
        let Some(is) = Asked::of(&effect, action.as_ref()) else { continue };
        if asked.is_none_or(|asked| asked == is) {
            views.push(view(&effect, action.as_ref(), is)?);
        }
    }
    Ok(views)
}

fn view(effect: &EffectRow, action: Option<&ActionRow>, is: Asked) -> StoreResult<Json> {
    let intent = intent_of(effect)?;
    let mut view = json!({
        "effectId": effect.id.as_str(), "kind": effect.kind.as_str(), "status": is.as_str(),
        "agentId": intent.agent_id.as_str(),
    });
    let optional = [
        ("toolName", intent.tool_name.map(Json::String)),
        ("input", intent.input.as_deref().cloned()),
        ("error", effect.error.clone().map(Json::String)),
        ("generation", action.map(|a| json!(a.generation))),
        ("since", action.map(|a| json!(a.since.to_iso()))),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            view[key] = value;
        }
    }
    Ok(view)
}

fn intent_of(effect: &EffectRow) -> StoreResult<EffectIntent> {
    effect
        .request
        .decode()
        .map_err(|e| StoreError::Corrupt(format!("the request of effect {} does not parse: {e}", effect.id)))
}

/// What is decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It was done, with this outcome.
    Completed(Outcome),
    /// It failed.
    Failed {
        /// A code.
        code: String,
        /// In words.
        message: String,
    },
    /// Deliver or run it again.
    Retry,
}

impl Decision {
    fn name(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completed",
            Self::Failed { .. } => "failed",
            Self::Retry => "retry",
        }
    }
}

/// `POST /v1/sessions/{id}/effects/{effectId}/resolve`.
#[derive(Clone, Debug)]
pub struct Resolve {
    /// Whose session.
    pub session: SessionId,
    /// Which effect.
    pub effect: EffectId,
    /// Carried back in the receipt.
    pub request_id: String,
    /// The same key and decision answer the stored receipt.
    pub idempotency_key: String,
    /// What is decided.
    pub decision: Decision,
    /// Who decides: `application:<id>`.
    pub by: String,
    /// The body as sent, for the comparison of replays.
    pub sent: JsonMap,
}

/// What is left to do after the commit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AfterResolve {
    /// A run may be held for it.
    pub resolved: Option<Resolution>,
    /// The session can go on.
    pub wake: Option<SessionId>,
    /// The endpoint of this agent has something to deliver.
    pub deliver: Option<AgentId>,
}

/// Applies a decision once.
///
/// # Errors
/// 404 without the session or the effect, 409 when the effect is neither uncertain nor parked or the key was used for
/// something else, 400 for a decision that does not fit the effect's kind. Nothing is written then.
pub fn resolve(tx: &mut dyn Tx, resolve: &Resolve) -> Result<(Json, AfterResolve), Refusal> {
    let head = tx.session(&resolve.session)?.ok_or_else(|| Refusal::not_found("session"))?;
    let mut identity = resolve.sent.clone();
    identity.shift_remove("requestId");
    identity.insert("effectId".into(), json!(resolve.effect.as_str()));
    let digest = sha256_hex(canonical(&Json::Object(identity)).as_bytes());
    if let Some(row) = tx.command(&head.id, &resolve.idempotency_key)? {
        if row.digest != digest {
            return Err(Refusal::conflict("The idempotency key was used for another command"));
        }
        let receipt = row.response.decode().map_err(|e| StoreError::Corrupt(e.to_string()))?;
        return Ok((receipt, AfterResolve::default()));
    }
    let effect = tx
        .effect(&resolve.effect)?
        .filter(|effect| effect.session_id == head.id)
        .ok_or_else(|| Refusal::not_found("effect"))?;
    let action = tx.action(&effect.id)?;
    if !matches!(Asked::of(&effect, action.as_ref()), Some(Asked::Uncertain | Asked::Dead)) {
        return Err(Refusal::conflict("The effect is neither uncertain nor dead"));
    }
    let outcome = outcome_of(&resolve.decision, effect.kind)?;
    let live =
        head.status != SessionStatus::Cancelled && head.active_turn_id.as_ref() == Some(&effect.turn_id);
    let mut after = AfterResolve::default();
    match (outcome, live) {
        (Some(outcome), true) => complete(tx, &head, &effect, action, outcome, &mut after)?,
        (None, true) => again(tx, &head, &effect, action, &mut after)?,
        // The turn is over: the decision is only written down.
        (outcome, false) => close(tx, &effect, action, outcome)?,
    }
    let payload = json!({
        "effectId": effect.id.as_str(), "resolution": resolve.decision.name(), "by": resolve.by,
    });
    let payload = payload.as_object().cloned().unwrap_or_default();
    let seq = write(tx, &head.id, Some(&effect.turn_id), EventKind::EffectReconciled, &payload)?;
    let receipt = json!({
        "status": "accepted", "turnId": effect.turn_id.as_str(), "cursor": cursor(&head.id, seq),
        "requestId": resolve.request_id,
    });
    let row = CommandRow { digest, response: JsonText::of(&receipt) };
    tx.put_command(&head.id, &resolve.idempotency_key, &row)?;
    Ok((receipt, after))
}

/// The outcome that a decision gives an effect of this kind; `None` for a retry.
fn outcome_of(decision: &Decision, kind: EffectKind) -> Result<Option<Outcome>, Refusal> {
    match (decision, kind) {
        (Decision::Retry, _) => Ok(None),
        (
            Decision::Completed(outcome),
            EffectKind::Tool | EffectKind::Hook | EffectKind::Fn | EffectKind::Verify,
        ) => Ok(Some(outcome.clone())),
        (Decision::Completed(_), _) => Err(Refusal::invalid(format!(
            "An effect of kind {} can only fail or be tried again",
            kind.as_str()
        ))),
        (Decision::Failed { code, message }, EffectKind::Model) => {
            if !MODEL_FAILURES.contains(&code.as_str()) {
                let known = MODEL_FAILURES.join(", ");
                return Err(Refusal::invalid(format!("A model call fails with one of {known}")));
            }
            let value = json!({ "kind": "failed", "code": code, "message": message, "retryable": false });
            Ok(Some(Outcome { value: Arc::new(value), state_patch: None }))
        }
        (Decision::Failed { code, message }, _) => {
            Ok(Some(super::verdict::failed_outcome(code, message.clone())))
        }
    }
}

/// The effect has its outcome, and its turn goes on.
fn complete(
    tx: &mut dyn Tx,
    head: &SessionHead,
    effect: &EffectRow,
    action: Option<ActionRow>,
    outcome: Outcome,
    after: &mut AfterResolve,
) -> StoreResult<()> {
    if let Some(row) = action {
        let (resolution, _) = actions::complete(tx, row, head, &outcome)?;
        after.resolved = Some(resolution);
    } else {
        tx.settle_effect(&effect.id, EffectStatus::Completed, Some(&JsonText::of(&outcome)), None)?;
        let intent = intent_of(effect)?;
        let facts = EffectFacts {
            kind: intent.kind,
            context: intent.context,
            capability_id: intent.capability_id,
            tool_name: intent.tool_name,
            agent: intent.agent,
        };
        if let Some((kind, payload)) = event_of(&facts, &outcome.value) {
            write(tx, &head.id, Some(&effect.turn_id), kind, &payload)?;
        }
        resume(tx, head, "recover", &format!("reconciled:{}", effect.id))?;
    }
    settle_status(tx, head, effect, after)
}

/// It is delivered or run again under a new generation.
fn again(
    tx: &mut dyn Tx,
    head: &SessionHead,
    effect: &EffectRow,
    action: Option<ActionRow>,
    after: &mut AfterResolve,
) -> StoreResult<()> {
    match action {
        Some(mut row) => {
            row.status = ActionStatus::Pending;
            row.deadline_at = None;
            row.retry_at = None;
            row.parked_at = None;
            row.since = tx.now();
            tx.put_action(&row)?;
            tx.settle_effect(&effect.id, EffectStatus::Pending, None, None)?;
            after.deliver = Some(row.agent_id);
        }
        None => tx.settle_effect(&effect.id, EffectStatus::Queued, None, None)?,
    }
    resume(tx, head, "recover", &format!("reconciled:{}", effect.id))?;
    settle_status(tx, head, effect, after)
}

/// A turn with another uncertain effect still waits for a decision on that one.
fn settle_status(
    tx: &mut dyn Tx,
    head: &SessionHead,
    effect: &EffectRow,
    after: &mut AfterResolve,
) -> StoreResult<()> {
    let left = tx.open_effects(&head.id, &[EffectStatus::Uncertain])?;
    if left.iter().any(|other| other.turn_id == effect.turn_id) {
        let (active, last) = (head.active_turn_id.as_ref(), head.last_turn_id.as_ref());
        tx.put_status(&head.id, SessionStatus::Uncertain, active, last)?;
        tx.delete_wakes(&head.id)?;
    } else {
        after.wake = Some(head.id.clone());
    }
    Ok(())
}

fn close(
    tx: &mut dyn Tx,
    effect: &EffectRow,
    action: Option<ActionRow>,
    outcome: Option<Outcome>,
) -> StoreResult<()> {
    let (effect_status, action_status) = match outcome {
        Some(_) => (EffectStatus::Completed, ActionStatus::Completed),
        None => (EffectStatus::Cancelled, ActionStatus::Cancelled),
    };
    let text = outcome.as_ref().map(JsonText::of);
    tx.settle_effect(&effect.id, effect_status, text.as_ref(), None)?;
    if let Some(mut row) = action {
        row.status = action_status;
        row.deadline_at = None;
        row.retry_at = None;
        row.parked_at = None;
        tx.put_action(&row)?;
    }
    Ok(())
}
