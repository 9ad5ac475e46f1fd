//! How a segment's end changes its session: one fenced commit that also gives the lease back
//! (spec: harness-api, section 13; durability, section 8.4).

use serde_json::json;

use super::event::payload_text;
use super::ownership::{RunRefusal, fence};
use crate::model::checkpoint::Checkpoint;
use crate::model::effect::EffectStatus;
use crate::model::event::EventKind;
use crate::model::ids::{SessionId, TurnId, WorkerId};
use crate::model::json::{Json, JsonMap, JsonText};
use crate::model::session::{SessionDoc, SessionHead, SessionStatus};
use crate::model::turn::{OutputStatus, TurnOutput};
use crate::ports::store::{StoreError, StoreResult, Tx};

/// An output with everything that can be computed before its transaction.
#[derive(Clone, Debug)]
pub struct PreparedOutput {
    end: End,
    state: Option<JsonText>,
    edits: Vec<PreparedEdit>,
}

#[derive(Clone, Debug)]
struct PreparedEdit {
    payload: JsonText,
    replaces_all: bool,
}

#[derive(Clone, Debug)]
enum End {
    Completed { payload: JsonText, output: JsonText },
    Paused { payload: JsonText, waits: JsonText },
    Yielded,
    Waiting { waits: JsonText, uncertain: bool },
    Failed { payload: JsonText, cancel_effects: Vec<String> },
    Cancelled,
    Thrown { payload: JsonText, message: String },
}

impl PreparedOutput {
    /// Renders an output. `deadline`: the message of the deadline that aborted the run, which then explains a failure.
    #[must_use]
    pub fn new(output: &TurnOutput, deadline: Option<&str>) -> Self {
        let state = output.state.as_ref().map(|s| lean(s));
        let mut edits: Vec<PreparedEdit> = Vec::new();
        for edit in output.transcript.iter().flatten() {
            edits.push(PreparedEdit { payload: JsonText::of(edit), replaces_all: edit.keep == 0 });
        }
        if let Some(thrown) = &output.thrown {
            return Self::thrown(deadline.unwrap_or(&thrown.message));
        }
        let end = match output.status.unwrap_or(OutputStatus::Failed) {
            OutputStatus::Completed => {
                let value = output.output.as_deref().cloned().unwrap_or(Json::Null);
                let text = JsonText::of(&value);
                let mut payload = JsonMap::new();
                payload.insert("output".into(), value);
                End::Completed { payload: payload_text(&payload), output: text }
            }
            OutputStatus::Paused => {
                let pending = output.pending.clone().unwrap_or_else(|| json!([]));
                let mut payload = JsonMap::new();
                payload.insert("interactions".into(), interactions(&pending));
                End::Paused { payload: payload_text(&payload), waits: JsonText::of(&waits(&pending)) }
            }
            OutputStatus::Yielded => End::Yielded,
            status @ (OutputStatus::Waiting | OutputStatus::Uncertain) => End::Waiting {
                waits: JsonText::of(&json!({ "effectIds": output.effect_ids.clone().unwrap_or_default() })),
                uncertain: status == OutputStatus::Uncertain,
            },
            OutputStatus::Failed | OutputStatus::Cancelled if deadline.is_some() => {
                return Self::thrown(deadline.unwrap_or_default());
            }
            OutputStatus::Failed => {
                let mut payload = JsonMap::new();
                payload.insert("error".into(), error_of(output.error.as_ref()));
                let cancel_effects = output.cancel_effect_ids.clone().unwrap_or_default();
                End::Failed { payload: payload_text(&payload), cancel_effects }
            }
            OutputStatus::Cancelled => End::Cancelled,
        };
        Self { end, state, edits }
    }

    /// A segment that ended with an exception (of the engine, of the fold, of a broken start).
    #[must_use]
    pub fn thrown(message: &str) -> Self {
        let mut payload = JsonMap::new();
        payload.insert("message".into(), json!(message));
        let end = End::Thrown { payload: payload_text(&payload), message: message.to_owned() };
        Self { end, state: None, edits: Vec::new() }
    }
}

/// The state without its transcript.
fn lean(state: &Json) -> JsonText {
    match state.get("transcript").and_then(Json::as_array) {
        Some(list) if !list.is_empty() => {
            let mut lean = state.clone();
            lean["transcript"] = json!([]);
            JsonText::of(&lean)
        }
        _ => JsonText::of(state),
    }
}

fn error_of(error: Option<&Json>) -> Json {
    let mut out = JsonMap::new();
    for key in ["code", "message", "path"] {
        if let Some(value) = error.and_then(|e| e.get(key)) {
            out.insert(key.into(), value.clone());
        }
    }
    Json::Object(out)
}

/// `turn.paused`'s interactions, one for each pending call.
fn interactions(pending: &Json) -> Json {
    let pick = |call: &Json| {
        let mut out = JsonMap::new();
        for key in ["invocationId", "callId", "interaction", "wait", "status", "path", "toolName"] {
            if let Some(value) = call.get(key) {
                out.insert(key.into(), value.clone());
            }
        }
        Json::Object(out)
    };
    Json::Array(pending.as_array().map_or(&[][..], Vec::as_slice).iter().map(pick).collect())
}

/// What the session view shows while it is paused.
fn waits(pending: &Json) -> Json {
    let pick = |call: &Json| {
        let mut out = JsonMap::new();
        for key in ["invocationId", "interaction", "wait", "status"] {
            if let Some(value) = call.get(key) {
                out.insert(key.into(), value.clone());
            }
        }
        Json::Object(out)
    };
    Json::Array(pending.as_array().map_or(&[][..], Vec::as_slice).iter().map(pick).collect())
}

/// Which run settles.
#[derive(Clone, Debug)]
pub struct SettleScope {
    /// Its session.
    pub session: SessionId,
    /// Its turn.
    pub turn: TurnId,
    /// Its epoch.
    pub epoch: i64,
    /// The worker that gives the lease back.
    pub worker: WorkerId,
    /// Whether it keeps the lease when the turn completes: something is left to do for the session.
    pub keeps_lease: bool,
}

/// What settling came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// `seq` of the last edit recorded.
    pub edit_cursor: Option<i64>,
    /// Where the fold's cursor stands when the end itself moved it (`turn.failed`, `turn.cancelled`).
    pub end_cursor: Option<i64>,
    /// Whether anything was written beside the release: not when the turn was cancelled or over.
    pub written: bool,
    /// The session's status afterwards.
    pub status: SessionStatus,
    /// Next `seq` of the record.
    pub head: i64,
    /// Start of the fold afterwards.
    pub history_from: i64,
}

/// Settles a segment and gives the lease back, unless it is to be kept and the turn completed.
///
/// # Errors
/// [`RunRefusal::OwnershipLost`], or the store's. Nothing is written then.
pub fn settle(tx: &mut dyn Tx, scope: &SettleScope, output: &PreparedOutput) -> Result<Settled, RunRefusal> {
    let head = fence(tx, &scope.session, scope.epoch)?;
    let settled =
        if head.status == SessionStatus::Cancelled || head.active_turn_id.as_ref() != Some(&scope.turn) {
            Settled {
                edit_cursor: None,
                end_cursor: None,
                written: false,
                status: head.status,
                head: tx.head(&scope.session)?,
                history_from: tx.session_doc(&scope.session)?.and_then(|d| d.history_from).unwrap_or(0),
            }
        } else {
            write_end(tx, scope, &head, output)?
        };
    let kept = scope.keeps_lease && settled.written && settled.status == SessionStatus::Completed;
    if head.owner.as_ref() == Some(&scope.worker) && !kept {
        tx.put_owner(&scope.session, None, scope.epoch, None)?;
    }
    Ok(settled)
}

fn write_end(
    tx: &mut dyn Tx,
    scope: &SettleScope,
    head: &SessionHead,
    output: &PreparedOutput,
) -> StoreResult<Settled> {
    let (session, turn) = (&scope.session, &scope.turn);
    let mut doc = tx.session_doc(session)?.unwrap_or_default();
    let mut edit_cursor = None;
    let mut end_seq = None;
    let keeps_edits = matches!(output.end, End::Completed { .. } | End::Paused { .. } | End::Yielded);
    if keeps_edits {
        for edit in &output.edits {
            let seq = tx.event(session, Some(turn), EventKind::TranscriptUpdated, edit.payload.as_str())?;
            if edit.replaces_all {
                doc.history_from = doc.history_from.or(Some(seq));
                doc.history_snapshot = Some(seq);
            }
            edit_cursor = Some(seq);
        }
    }
    let last = head.last_turn_id.as_ref();
    let status = match &output.end {
        End::Waiting { waits, uncertain } => {
            let status = match head.status {
                SessionStatus::Runnable => SessionStatus::Runnable,
                SessionStatus::Uncertain => SessionStatus::Uncertain,
                _ if *uncertain => SessionStatus::Uncertain,
                _ => SessionStatus::Waiting,
            };
            doc.waits = Some(waits.clone());
            tx.put_status(session, status, Some(turn), last)?;
            status
        }
        End::Yielded => {
            doc.state = output.state.clone().or(doc.state);
            let corrupt = |e: serde_json::Error| StoreError::Corrupt(e.to_string());
            let text = doc
                .checkpoint
                .as_ref()
                .ok_or_else(|| StoreError::Corrupt("an active turn has no checkpoint".into()))?;
            let mut checkpoint: Checkpoint = text.decode().map_err(corrupt)?;
            checkpoint.segment += 1;
            checkpoint.input = json!({ "kind": "continue" });
            doc.checkpoint = Some(JsonText::of(&checkpoint));
            doc.waits = None;
            tx.slim_model_effects(session, turn)?;
            let key = format!("rollover:{turn}:{}", checkpoint.segment);
            tx.put_wake(session, "rollover", Some(&key))?;
            tx.put_status(session, SessionStatus::Runnable, Some(turn), last)?;
            SessionStatus::Runnable
        }
        End::Paused { payload, waits } => {
            doc.state = output.state.clone().or(doc.state);
            doc.waits = Some(waits.clone());
            tx.event(session, Some(turn), EventKind::TurnPaused, payload.as_str())?;
            tx.put_status(session, SessionStatus::Paused, Some(turn), last)?;
            SessionStatus::Paused
        }
        End::Completed { payload, output: text } => {
            doc.state = output.state.clone().or(doc.state);
            doc.last_output = Some(text.clone());
            tx.event(session, Some(turn), EventKind::TurnCompleted, payload.as_str())?;
            end_turn(tx, scope, &mut doc, SessionStatus::Completed)?
        }
        End::Failed { payload, cancel_effects } => {
            cancel_named(tx, session, cancel_effects)?;
            revert(&mut doc);
            end_seq = Some(tx.event(session, Some(turn), EventKind::TurnFailed, payload.as_str())?);
            end_turn(tx, scope, &mut doc, SessionStatus::Failed)?
        }
        End::Cancelled => {
            doc.state = output.state.clone().or(doc.state);
            doc.history_snapshot = doc.history_from;
            end_seq = Some(tx.event(session, Some(turn), EventKind::TurnCancelled, "{}")?);
            end_turn(tx, scope, &mut doc, SessionStatus::Cancelled)?
        }
        End::Thrown { payload, message } => {
            revert(&mut doc);
            doc.error = Some(message.clone());
            end_seq = Some(tx.event(session, Some(turn), EventKind::TurnFailed, payload.as_str())?);
            end_turn(tx, scope, &mut doc, SessionStatus::Failed)?
        }
    };
    tx.put_session_doc(session, &doc)?;
    Ok(Settled {
        edit_cursor,
        end_cursor: end_seq,
        written: true,
        status,
        head: tx.head(session)?,
        history_from: doc.history_from.unwrap_or(0),
    })
}

/// A failed turn leaves state and history as they were when it started.
fn revert(doc: &mut SessionDoc) {
    doc.state = doc.turn_start_state.clone();
    doc.history_snapshot = doc.history_from;
}

fn end_turn(
    tx: &mut dyn Tx,
    scope: &SettleScope,
    doc: &mut SessionDoc,
    status: SessionStatus,
) -> StoreResult<SessionStatus> {
    doc.waits = None;
    super::commands::give_up_effects(
        tx,
        &scope.session,
        &scope.turn,
        "the turn ended while this was in flight",
    )?;
    tx.slim_model_effects(&scope.session, &scope.turn)?;
    tx.put_status(&scope.session, status, None, Some(&scope.turn))?;
    Ok(status)
}

fn cancel_named(tx: &mut dyn Tx, session: &SessionId, ids: &[String]) -> StoreResult<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let open = [EffectStatus::Pending, EffectStatus::Queued, EffectStatus::Uncertain];
    for effect in tx.open_effects(session, &open)? {
        if ids.iter().any(|id| id == effect.id.as_str()) {
            tx.settle_effect(&effect.id, EffectStatus::Cancelled, None, None)?;
        }
    }
    Ok(())
}
