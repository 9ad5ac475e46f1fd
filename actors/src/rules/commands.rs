//! Commands: one transaction each, replayed by key (spec: durability, section 5; http-api, section 7).

use std::sync::Arc;

use serde_json::json;

use super::actions;
use super::advance::{TakeRequest, Taken, take};
use super::event::{payload_text, write};
use super::sessions::reachable;
use super::{Refusal, definitions, session_sandbox};
use crate::model::canonical::{canonical, sha256_hex};
use crate::model::checkpoint::{Checkpoint, ENGINE_VERSION};
use crate::model::command::{Command, CommandBody, MessageInput, MessagePart, Receipt};
use crate::model::effect::EffectStatus;
use crate::model::event::{EventKind, cursor};
use crate::model::ids::{AgentId, SessionId, TurnId};
use crate::model::json::{Json, JsonMap, JsonText};
use crate::model::manifest;
use crate::model::session::{SessionDoc, SessionHead, SessionStatus};
use crate::ports::store::{CommandRow, StoreError, StoreResult, Tx};
use crate::tenant::Reach;

/// A command with everything that can be computed before its transaction.
#[derive(Clone, Debug)]
pub struct Prepared {
    command: Arc<Command>,
    digest: String,
    payload: JsonText,
    variant: Option<(String, JsonText)>,
}

impl Prepared {
    /// Whether it makes work when it is accepted.
    #[must_use]
    pub fn makes_work(&self) -> bool {
        !matches!(self.command.body, CommandBody::Cancel { .. })
    }

    /// Computes digest, payload and variant hash.
    #[must_use]
    pub fn new(command: Command) -> Self {
        let mut identity = command.sent.clone();
        identity.remove("requestId");
        let digest = sha256_hex(canonical(&Json::Object(identity)).as_bytes());
        let payload = payload_text(&command.sent);
        let variant = match &command.body {
            CommandBody::Message { manifest: Some(manifest), .. } => {
                Some((crate::model::canonical::manifest_hash(manifest), JsonText::of(manifest)))
            }
            _ => None,
        };
        Self { command: Arc::new(command), digest, payload, variant }
    }
}

/// What an accepted command asks of the session's actor after its commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterCommand {
    /// A replay: nothing changed.
    Replayed,
    /// There is work: advance.
    Wake,
    /// The turn was cancelled: stop a run of it.
    Cancelled {
        /// Which, if one was active.
        turn: Option<TurnId>,
        /// The agent whose endpoint works on Actions of it, if it does.
        deliveries: Option<AgentId>,
    },
}

/// Applies a command.
///
/// # Errors
/// As section 7 says. Nothing is written then.
pub fn apply(
    tx: &mut dyn Tx,
    session: &SessionId,
    prepared: &Prepared,
    reach: &Reach,
) -> Result<(Receipt, AfterCommand), Refusal> {
    let (receipt, after, wake) = accept(tx, session, prepared, reach)?;
    if let Some((reason, key)) = wake {
        tx.put_wake(session, reason, Some(&key))?;
    }
    Ok((receipt, after))
}

/// Applies a command and takes the session for the work that it makes, in one transaction. What cannot be taken now is
/// left with a wake.
///
/// # Errors
/// As [`apply`].
pub fn apply_and_take(
    tx: &mut dyn Tx,
    session: &SessionId,
    prepared: &Prepared,
    reach: &Reach,
    request: &TakeRequest,
) -> Result<(Receipt, AfterCommand, Option<Taken>), Refusal> {
    let (receipt, after, wake) = accept(tx, session, prepared, reach)?;
    let Some((reason, key)) = wake else { return Ok((receipt, after, None)) };
    let taken = take(tx, session, request)?;
    if !matches!(taken, Taken::Segment(_)) {
        tx.put_wake(session, reason, Some(&key))?;
    }
    Ok((receipt, after, Some(taken)))
}

/// The reason and the key of the wake that work needs.
type WakeOf = Option<(&'static str, String)>;

fn accept(
    tx: &mut dyn Tx,
    session: &SessionId,
    prepared: &Prepared,
    reach: &Reach,
) -> Result<(Receipt, AfterCommand, WakeOf), Refusal> {
    let command = &prepared.command;
    let head = reachable(tx, session, reach)?;
    let has_variant = prepared.variant.is_some();
    if has_variant && matches!(reach, Reach::Person { token: true, .. }) {
        return Err(Refusal::Forbidden("A token may not bring a manifest for the turn".into()));
    }
    if let Some(row) = tx.command(session, &command.idempotency_key)? {
        if row.digest != prepared.digest {
            return Err(Refusal::conflict("The idempotency key was used for another command"));
        }
        let receipt = row.response.decode().map_err(|e| StoreError::Corrupt(e.to_string()))?;
        return Ok((receipt, AfterCommand::Replayed, None));
    }
    let doc = tx.session_doc(session)?.unwrap_or_default();
    let (turn, seq, after, wake) = match &command.body {
        CommandBody::Message { input, .. } => message(tx, head, doc, prepared, input, reach)?,
        CommandBody::Approve { interaction_id, approved } => {
            let input = json!({ "kind": "approve", "interactionId": interaction_id, "approved": approved });
            answer(tx, head, doc, prepared, interaction_id, "approval", input)?
        }
        CommandBody::Respond { interaction_id, value } => {
            let input = json!({ "kind": "respond", "interactionId": interaction_id, "value": value });
            answer(tx, head, doc, prepared, interaction_id, "response", input)?
        }
        CommandBody::Cancel { reason } => cancel(tx, head, doc, reason.as_deref())?,
    };
    let receipt = Receipt {
        status: "accepted".into(),
        turn_id: turn.map(|t| t.to_string()),
        cursor: Some(cursor(session, seq)),
        request_id: command.request_id.clone(),
    };
    let row = CommandRow { digest: prepared.digest.clone(), response: JsonText::of(&receipt) };
    tx.put_command(session, &command.idempotency_key, &row)?;
    Ok((receipt, after, wake))
}

/// The turn, the `seq` of the command's event, what follows, and its wake.
type Applied = Result<(Option<TurnId>, i64, AfterCommand, WakeOf), Refusal>;

fn message(
    tx: &mut dyn Tx,
    head: SessionHead,
    mut doc: SessionDoc,
    prepared: &Prepared,
    input: &MessageInput,
    reach: &Reach,
) -> Applied {
    if !head.status.accepts_message() {
        return Err(Refusal::Conflict {
            message: "The session has active or unresolved work".into(),
            active_turn: head.active_turn_id,
            details: None,
        });
    }
    session_sandbox::check_turn(tx, &head, reach)?;
    let input = execution_input(input)?;
    let hash = match &prepared.variant {
        Some((hash, text)) => {
            check_variant(tx, &head, text)?;
            tx.put_manifest(hash, text)?;
            if *hash != head.manifest_hash && !doc.variants.contains(hash) {
                doc.variants.push(hash.clone());
            }
            hash.clone()
        }
        None => head.manifest_hash.clone(),
    };
    let turn = TurnId::from(tx.uuid());
    let pin = tx.session_pin(&head.id)?.unwrap_or_default();
    let checkpoint = Checkpoint {
        version: 1,
        engine_version: ENGINE_VERSION.into(),
        manifest_hash: hash.clone(),
        session_id: head.id.clone(),
        turn_id: turn.clone(),
        segment: 0,
        input,
        state: None,
        info: pin.info.as_ref().and_then(|t| t.decode().ok()),
    };
    rebase(&mut doc, &hash, &head.manifest_hash)?;
    doc.turn_start_state = doc.state.clone();
    doc.checkpoint = Some(JsonText::of(&checkpoint));
    doc.history_from = doc.history_snapshot.or(doc.history_from);
    doc.waits = None;
    doc.error = None;
    tx.put_session_doc(&head.id, &doc)?;
    tx.put_status(&head.id, SessionStatus::Runnable, Some(&turn), head.last_turn_id.as_ref())?;
    let seq = tx.event(&head.id, Some(&turn), EventKind::CommandMessage, prepared.payload.as_str())?;
    let key = format!("message:{turn}:0");
    Ok((Some(turn), seq, AfterCommand::Wake, Some(("message", key))))
}

/// How a message reaches the engine (spec: engine, section 3.2).
fn execution_input(input: &MessageInput) -> Result<Json, Refusal> {
    Ok(match input {
        MessageInput::Content(text) => Json::String(text.clone()),
        MessageInput::Data(Json::String(text)) => Json::String(text.clone()),
        MessageInput::Data(other) => Json::String(crate::model::json::encode(other)),
        MessageInput::Parts(parts) => {
            let content = parts
                .iter()
                .map(|part| match part {
                    MessagePart::Text(text) => Ok(json!({ "type": "text", "text": text })),
                    MessagePart::File { .. } => Err(Refusal::not_found("artifact")),
                })
                .collect::<Result<Vec<_>, _>>()?;
            json!({ "content": content })
        }
    })
}

fn check_variant(tx: &mut dyn Tx, head: &SessionHead, text: &JsonText) -> Result<(), Refusal> {
    let corrupt = |e: serde_json::Error| StoreError::Corrupt(e.to_string());
    let pinned: Json = definitions::manifest(tx, &head.manifest_hash)?.decode().map_err(corrupt)?;
    let candidate: Json = text.decode().map_err(corrupt)?;
    if manifest::is_variant(&candidate, &pinned) {
        Ok(())
    } else {
        Err(Refusal::invalid("manifest is not a variant of the session's pinned manifest"))
    }
}

/// Moves a state that names the pin or a known variant onto the turn's manifest.
fn rebase(doc: &mut SessionDoc, hash: &str, pin: &str) -> Result<(), Refusal> {
    let Some(text) = &doc.state else { return Ok(()) };
    if doc.variants.is_empty() {
        return Ok(());
    }
    let mut state: JsonMap = text.decode().map_err(|e| StoreError::Corrupt(e.to_string()))?;
    let known = match state.get("manifestHash").and_then(Json::as_str) {
        Some(of) => of != hash && (of == pin || doc.variants.iter().any(|v| v == of)),
        None => false,
    };
    if known {
        state.insert("manifestHash".into(), json!(hash));
        doc.state = Some(JsonText::of(&state));
    }
    Ok(())
}

fn answer(
    tx: &mut dyn Tx,
    head: SessionHead,
    mut doc: SessionDoc,
    prepared: &Prepared,
    interaction: &str,
    kind: &str,
    input: Json,
) -> Applied {
    let (SessionStatus::Paused, Some(turn)) = (head.status, head.active_turn_id.clone()) else {
        return Err(Refusal::Conflict {
            message: "The session does not wait for an answer".into(),
            active_turn: head.active_turn_id,
            details: None,
        });
    };
    let waits: Vec<Json> = doc.waits.as_ref().and_then(|t| t.decode().ok()).unwrap_or_default();
    let open = waits.iter().find(|w| w["interaction"]["id"] == *interaction);
    let is_approval = |w: &Json| w["interaction"]["kind"] == "approval";
    match open {
        None => return Err(Refusal::conflict("No such interaction is pending")),
        Some(wait) if is_approval(wait) != (kind == "approval") => {
            return Err(Refusal::conflict(
                "The interaction is of another kind: approvals take approve, questions take respond",
            ));
        }
        Some(_) => {}
    }
    let corrupt = |e: serde_json::Error| StoreError::Corrupt(e.to_string());
    let text = doc
        .checkpoint
        .as_ref()
        .ok_or_else(|| StoreError::Corrupt("a paused turn has no checkpoint".into()))?;
    let mut checkpoint: Checkpoint = text.decode().map_err(corrupt)?;
    checkpoint.segment += 1;
    checkpoint.input = input;
    doc.checkpoint = Some(JsonText::of(&checkpoint));
    doc.waits = None;
    tx.put_session_doc(&head.id, &doc)?;
    tx.put_status(&head.id, SessionStatus::Runnable, Some(&turn), head.last_turn_id.as_ref())?;
    let (kind, reason) = match &prepared.command.body {
        CommandBody::Approve { .. } => (EventKind::CommandApprove, "approve"),
        _ => (EventKind::CommandRespond, "respond"),
    };
    let seq = tx.event(&head.id, Some(&turn), kind, prepared.payload.as_str())?;
    let key = format!("{reason}:{turn}:{}", checkpoint.segment);
    Ok((Some(turn), seq, AfterCommand::Wake, Some((reason, key))))
}

fn cancel(tx: &mut dyn Tx, head: SessionHead, mut doc: SessionDoc, reason: Option<&str>) -> Applied {
    let turn = head.active_turn_id.clone();
    let mut deliveries = None;
    if let Some(turn) = &turn
        && give_up_effects(tx, &head.id, turn, "the turn was cancelled while this was in flight")?
    {
        deliveries = Some(head.agent_id.clone());
    }
    let mut payload = JsonMap::new();
    if let Some(reason) = reason {
        payload.insert("reason".into(), json!(reason));
    }
    let seq = write(tx, &head.id, turn.as_ref(), EventKind::TurnCancelled, &payload)?;
    if let Some(turn) = &turn {
        tx.slim_model_effects(&head.id, turn)?;
        doc.state = doc.turn_start_state.clone();
        doc.history_snapshot = doc.history_from;
    }
    doc.checkpoint = None;
    doc.waits = None;
    doc.error = None;
    tx.put_session_doc(&head.id, &doc)?;
    tx.put_status(&head.id, SessionStatus::Cancelled, None, turn.as_ref().or(head.last_turn_id.as_ref()))?;
    Ok((None, seq, AfterCommand::Cancelled { turn, deliveries }, None))
}

/// Effects of a turn that ends: what is in flight becomes `uncertain`, what waits is cancelled. Answers whether an
/// endpoint works on one of its Actions.
pub(super) fn give_up_effects(
    tx: &mut dyn Tx,
    session: &SessionId,
    turn: &TurnId,
    text: &str,
) -> StoreResult<bool> {
    let statuses = [EffectStatus::Invoking, EffectStatus::Pending, EffectStatus::Queued];
    let mut open = tx.open_effects(session, &statuses)?;
    let mut deliveries = false;
    if open.iter().any(|e| e.turn_id == *turn && e.status == EffectStatus::Pending) {
        deliveries = actions::give_up(tx, session, turn, text)?;
        open = tx.open_effects(session, &statuses)?;
    }
    for effect in open.iter().filter(|e| e.turn_id == *turn) {
        match effect.status {
            EffectStatus::Invoking => {
                tx.settle_effect(&effect.id, EffectStatus::Uncertain, None, Some(text))?;
            }
            _ => tx.settle_effect(&effect.id, EffectStatus::Cancelled, None, None)?,
        }
    }
    Ok(deliveries)
}
