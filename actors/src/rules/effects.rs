//! What a harness may do next, and what it came to (spec: harness-api, sections 11.3 and 11.4; durability, section 6).

use std::sync::Arc;

use serde_json::json;

use super::actions;
use super::event::{payload_text, write};
use super::ownership::{RunRefusal, fence};
use crate::model::action::{ActionSource, fixed_members};
use crate::model::canonical::request_hash;
use crate::model::effect::{EffectIntent, EffectKind, EffectStatus, Outcome};
use crate::model::event::EventKind;
use crate::model::ids::{AgentId, EffectId, SessionId, TurnId};
use crate::model::json::{Json, JsonMap, JsonText};
use crate::model::outcome::{EffectFacts, Usage, event_of, usage_of};
use crate::model::session::{SessionHead, SessionStatus};
use crate::ports::engine::{IntentAnswer, OutcomeAnswer};
use crate::ports::store::{EffectRow, StoreError, Tx, UsageRow};
use crate::tenant::ModelOnCrash;

/// The run that a request is made for.
#[derive(Clone, Debug)]
pub struct RunScope {
    /// Its session.
    pub session: SessionId,
    /// Its turn.
    pub turn: TurnId,
    /// Its epoch.
    pub epoch: i64,
    /// A model call cut by a crash.
    pub model_on_crash: ModelOnCrash,
}

/// An intent with everything that can be computed before its transaction.
#[derive(Clone, Debug)]
pub struct PreparedIntent {
    intent: Arc<EffectIntent>,
    hash: String,
    request: JsonText,
    by_harness: bool,
    delegation: Option<(EventKind, JsonText)>,
    action: Option<PreparedAction>,
}

/// The event and the row's members of an effect that is an Action.
#[derive(Clone, Debug)]
struct PreparedAction {
    payload: JsonText,
    body: JsonText,
}

impl PreparedIntent {
    /// Checks an intent and renders it. `by_harness`: whether the harness itself runs a tool of this name; `source`: what
    /// an Action takes from its session.
    ///
    /// # Errors
    /// [`RunRefusal::Invalid`] when it names another session or turn, an agent that the manifest does not have, or its hash
    /// is not its own.
    pub fn new(
        scope: &RunScope,
        intent: EffectIntent,
        hash: String,
        by_harness: bool,
        source: ActionSource<'_>,
    ) -> Result<Self, RunRefusal> {
        if intent.session_id != scope.session || intent.turn_id != scope.turn {
            return Err(RunRefusal::Invalid(
                "the effect belongs to another session or turn than the run".into(),
            ));
        }
        let is_model = intent.kind == EffectKind::Model;
        if is_model && intent.input.is_some() {
            return Err(RunRefusal::Invalid("a model's prompt does not leave the harness".into()));
        }
        if matches!(intent.kind, EffectKind::Agent | EffectKind::Fn | EffectKind::Verify) {
            return Err(RunRefusal::Invalid(format!(
                "an agent's run has no effect of kind {}",
                intent.kind.as_str()
            )));
        }
        if !is_model && request_hash(&intent) != hash {
            return Err(RunRefusal::Invalid("requestHash is not the hash of the effect".into()));
        }
        let delegation = (intent.kind == EffectKind::Delegation).then(|| delegation_event(&intent));
        let acts = matches!(intent.kind, EffectKind::Tool | EffectKind::Hook) && !by_harness;
        let action = if acts {
            let members = fixed_members(&intent, source).map_err(RunRefusal::Invalid)?;
            Some(PreparedAction {
                payload: payload_text(&action_payload(&intent)),
                body: JsonText::of(&members),
            })
        } else {
            None
        };
        let request = JsonText::of(&intent);
        let by_harness = is_model || by_harness;
        Ok(Self { intent: Arc::new(intent), hash, request, by_harness, delegation, action })
    }

    /// The effect's facts, for recording its outcome later.
    #[must_use]
    pub fn facts(&self) -> EffectFacts {
        facts(&self.intent)
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &EffectId {
        &self.intent.effect_id
    }
}

fn facts(intent: &EffectIntent) -> EffectFacts {
    EffectFacts {
        kind: intent.kind,
        context: intent.context.clone(),
        capability_id: intent.capability_id.clone(),
        tool_name: intent.tool_name.clone(),
        agent: intent.agent.clone(),
    }
}

fn delegation_event(intent: &EffectIntent) -> (EventKind, JsonText) {
    let settled = intent.effect_id.as_str().ends_with(":settled");
    let mut payload = match intent.input.as_deref() {
        Some(Json::Object(map)) => map.clone(),
        _ => JsonMap::new(),
    };
    payload.insert("agent".into(), json!(intent.agent));
    if let Some(call) = intent.context.get("callId") {
        payload.insert("callId".into(), call.clone());
    }
    let kind = if settled { EventKind::DelegationCompleted } else { EventKind::DelegationStarted };
    (kind, payload_text(&payload))
}

fn action_payload(intent: &EffectIntent) -> JsonMap {
    let mut payload = JsonMap::new();
    payload.insert("actionId".into(), json!(intent.effect_id.as_str()));
    payload.insert("kind".into(), json!(intent.kind));
    if let Some(name) = &intent.tool_name {
        payload.insert("toolName".into(), json!(name));
    }
    for key in ["callId", "invocationId"] {
        if let Some(value) = intent.context.get(key) {
            payload.insert(key.into(), value.clone());
        }
    }
    payload.insert("input".into(), intent.input.as_deref().cloned().unwrap_or(Json::Null));
    if let Some(agent) = &intent.agent {
        payload.insert("agent".into(), json!(agent));
    }
    payload
}

fn check_turn(head: &SessionHead, scope: &RunScope) -> Result<(), RunRefusal> {
    if head.status == SessionStatus::Cancelled || head.active_turn_id.as_ref() != Some(&scope.turn) {
        return Err(RunRefusal::TurnCancelled);
    }
    Ok(())
}

/// Records an intent before anything is done for it.
///
/// # Errors
/// As section 11.3 says. Nothing is written then.
pub fn intend(
    tx: &mut dyn Tx,
    scope: &RunScope,
    prepared: &PreparedIntent,
) -> Result<IntentAnswer, RunRefusal> {
    let head = fence(tx, &scope.session, scope.epoch)?;
    check_turn(&head, scope)?;
    let intent = &prepared.intent;
    if let Some(row) = tx.effect(&intent.effect_id)? {
        if row.session_id != scope.session || row.turn_id != scope.turn {
            return Err(RunRefusal::Invalid("the effect id belongs to another session or turn".into()));
        }
        if row.request_hash != prepared.hash {
            return Err(RunRefusal::EffectDrift(intent.effect_id.to_string()));
        }
        return again(tx, scope, &row, prepared.by_harness);
    }
    let mut row = EffectRow {
        id: intent.effect_id.clone(),
        session_id: scope.session.clone(),
        turn_id: scope.turn.clone(),
        kind: intent.kind,
        status: EffectStatus::Invoking,
        request_hash: prepared.hash.clone(),
        request: prepared.request.clone(),
        outcome: None,
        error: None,
        attempts: 1,
        slimmed: false,
    };
    if let Some((kind, payload)) = &prepared.delegation {
        let outcome = Outcome { value: Arc::new(Json::Null), state_patch: None };
        row.status = EffectStatus::Completed;
        row.outcome = Some(JsonText::of(&outcome));
        tx.insert_effect(&row)?;
        tx.event(&scope.session, Some(&scope.turn), *kind, payload.as_str())?;
        return Ok(IntentAnswer::Completed(outcome));
    }
    if prepared.by_harness {
        tx.insert_effect(&row)?;
        return Ok(IntentAnswer::Execute { rejoin: false });
    }
    row.status = EffectStatus::Pending;
    row.attempts = 0;
    tx.insert_effect(&row)?;
    if let Some(action) = &prepared.action {
        let now = tx.now();
        tx.insert_action(&actions::offered(intent, action.body.clone(), now))?;
        tx.event(&scope.session, Some(&scope.turn), EventKind::ActionPending, action.payload.as_str())?;
    }
    Ok(IntentAnswer::Pending)
}

/// The answer for an effect that was declared before.
fn again(
    tx: &mut dyn Tx,
    scope: &RunScope,
    row: &EffectRow,
    by_harness: bool,
) -> Result<IntentAnswer, RunRefusal> {
    match row.status {
        EffectStatus::Completed => Ok(IntentAnswer::Completed(outcome_of(row)?)),
        EffectStatus::Invoking
            if row.kind == EffectKind::Model && scope.model_on_crash == ModelOnCrash::Repeat =>
        {
            tx.reinvoke_effect(&row.id)?;
            Ok(IntentAnswer::Execute { rejoin: true })
        }
        EffectStatus::Invoking | EffectStatus::Uncertain => Ok(IntentAnswer::Uncertain),
        // An operator has said that it may be run again.
        EffectStatus::Queued if by_harness => {
            tx.reinvoke_effect(&row.id)?;
            Ok(IntentAnswer::Execute { rejoin: false })
        }
        EffectStatus::Pending | EffectStatus::Queued => Ok(IntentAnswer::Pending),
        EffectStatus::Cancelled => Err(RunRefusal::TurnCancelled),
    }
}

/// The stored outcome of a completed effect.
///
/// # Errors
/// [`StoreError::Corrupt`] when there is none.
pub fn outcome_of(row: &EffectRow) -> Result<Outcome, StoreError> {
    row.outcome
        .as_ref()
        .and_then(|text| text.decode().ok())
        .ok_or_else(|| StoreError::Corrupt(format!("effect {} has no outcome", row.id)))
}

/// A value with everything that can be computed before its transaction.
#[derive(Clone, Debug)]
pub struct PreparedValue {
    effect: EffectId,
    value: Arc<Json>,
    outcome: JsonText,
    event: Option<(EventKind, JsonText)>,
    usage: Usage,
}

impl PreparedValue {
    /// Renders a value. Without `facts` the stored request says what the effect is.
    #[must_use]
    pub fn new(effect: EffectId, value: Arc<Json>, facts: Option<&EffectFacts>) -> Self {
        let outcome = Outcome { value: Arc::clone(&value), state_patch: None };
        let event = facts.and_then(|f| event_of(f, &value)).map(|(kind, map)| (kind, payload_text(&map)));
        let usage = match facts {
            Some(f) if f.kind == EffectKind::Model => usage_of(&value),
            _ => Usage::default(),
        };
        Self { effect, outcome: JsonText::of(&outcome), value, event, usage }
    }
}

/// Records what an effect came to, with its event, atomically.
///
/// # Errors
/// As section 11.4 says, and [`RunRefusal::Invalid`] unless the effect is an `invoking` one of this run's session and
/// turn. Nothing is written then.
pub fn record_value(
    tx: &mut dyn Tx,
    scope: &RunScope,
    prepared: &PreparedValue,
    agent: &AgentId,
) -> Result<OutcomeAnswer, RunRefusal> {
    let head = fence(tx, &scope.session, scope.epoch)?;
    let row = own_effect(tx, scope, &prepared.effect)?;
    match row.status {
        EffectStatus::Completed => return Ok(OutcomeAnswer::Completed(outcome_of(&row)?)),
        EffectStatus::Uncertain if head.active_turn_id.as_ref() == Some(&scope.turn) => {
            return Ok(OutcomeAnswer::Uncertain);
        }
        _ => check_turn(&head, scope)?,
    }
    if row.status != EffectStatus::Invoking {
        return Err(RunRefusal::Invalid("the effect is not in flight at a harness".into()));
    }
    tx.settle_effect(&row.id, EffectStatus::Completed, Some(&prepared.outcome), None)?;
    if let Some((kind, payload)) = &prepared.event {
        tx.event(&scope.session, Some(&scope.turn), *kind, payload.as_str())?;
    }
    let duplicate = row.attempts > 1;
    if row.kind == EffectKind::Model && (prepared.usage.reported || duplicate) {
        let usage = &prepared.usage;
        let line = UsageRow {
            id: tx.uuid(),
            effect_key: row.id.to_string(),
            session_id: scope.session.clone(),
            turn_id: scope.turn.clone(),
            agent_id: agent.clone(),
            provider: usage.provider.clone(),
            model: usage.model.clone(),
            tokens: usage.tokens,
            cost_usd: usage.cost_usd,
            duplicate,
            created_at: tx.now(),
        };
        tx.put_usage(&line)?;
    }
    let outcome = Outcome { value: Arc::clone(&prepared.value), state_patch: None };
    Ok(OutcomeAnswer::Completed(outcome))
}

/// Records that an effect was cut off: its fate is unknown and it is never run again by us. A value in hand wins.
///
/// # Errors
/// As [`record_value`]; an effect that was never declared is answered `uncertain` without a trace.
pub fn record_error(
    tx: &mut dyn Tx,
    scope: &RunScope,
    effect: &EffectId,
    text: &str,
) -> Result<OutcomeAnswer, RunRefusal> {
    let head = fence(tx, &scope.session, scope.epoch)?;
    if tx.effect(effect)?.is_none() {
        return Ok(OutcomeAnswer::Uncertain);
    }
    let row = own_effect(tx, scope, effect)?;
    match row.status {
        EffectStatus::Completed => return Ok(OutcomeAnswer::Completed(outcome_of(&row)?)),
        EffectStatus::Invoking => {}
        _ => return Ok(OutcomeAnswer::Uncertain),
    }
    tx.settle_effect(effect, EffectStatus::Uncertain, None, Some(text))?;
    if check_turn(&head, scope).is_ok() {
        let mut payload = JsonMap::new();
        payload.insert("effectId".into(), json!(effect.as_str()));
        payload.insert("message".into(), json!(text));
        write(tx, &scope.session, Some(&scope.turn), EventKind::EffectUncertain, &payload)?;
    }
    Ok(OutcomeAnswer::Uncertain)
}

fn own_effect(tx: &mut dyn Tx, scope: &RunScope, id: &EffectId) -> Result<EffectRow, RunRefusal> {
    match tx.effect(id)? {
        Some(row) if row.session_id == scope.session && row.turn_id == scope.turn => Ok(row),
        Some(_) => {
            Err(RunRefusal::Invalid("the effect belongs to another session or turn than the run".into()))
        }
        None => Err(RunRefusal::Invalid("the effect was never declared".into())),
    }
}
