//! Rows to test with.

use super::{Subject, tx};
use crate::model::Micros;
use crate::model::effect::{EffectKind, EffectStatus};
use crate::model::event::EventKind;
use crate::model::ids::{SessionId, TurnId};
use crate::model::json::{JsonText, parse};
use crate::model::session::{SessionDoc, SessionHead, SessionPin, SessionStatus};
use crate::ports::store::EffectRow;

/// Strings that have broken stores: NUL, quotes, escapes, patterns, what is kept of a lone surrogate, far characters.
pub(super) fn odd_strings() -> Vec<String> {
    let lone = parse(br#""a\ud800b\udc00""#).unwrap();
    [
        "",
        "nul\0inside",
        "\0",
        "'; DROP TABLE sessions; --",
        "\"quoted\" \\u0000 \\",
        "100%_*?[a]",
        "line\nbreak\ttab\r",
        "caf\u{e9} e\u{301} \u{1F600}",
        "\u{FFFF}\u{10FFFF}",
        lone.as_str().unwrap(),
    ]
    .map(str::to_owned)
    .to_vec()
}

pub(super) fn json(text: &str) -> JsonText {
    JsonText::of(&parse(text.as_bytes()).unwrap())
}

pub(super) fn sid(id: &str) -> SessionId {
    SessionId::from(id)
}

pub(super) fn turn(id: &str) -> TurnId {
    TurnId::from(id)
}

pub(super) fn head(id: &str) -> SessionHead {
    SessionHead {
        id: sid(id),
        agent_id: "agent".into(),
        owner_user_id: "ada".to_owned(),
        sandbox_id: None,
        manifest_hash: "h".to_owned(),
        status: SessionStatus::Idle,
        active_turn_id: None,
        last_turn_id: None,
        owner: None,
        epoch: 0,
        owner_expires_at: None,
    }
}

pub(super) fn pin() -> SessionPin {
    SessionPin { creation: "{}".to_owned(), created_at: Micros(7), ..SessionPin::default() }
}

/// Writes an idle session.
pub(super) async fn open(subject: &dyn Subject, id: &str) {
    open_with(subject, head(id)).await;
}

/// Writes a session.
pub(super) async fn open_with(subject: &dyn Subject, head: SessionHead) {
    tx(subject, move |t| t.insert_session(&head, &pin(), &SessionDoc::default())).await.unwrap();
}

/// Appends events without a payload to speak of.
pub(super) async fn append(subject: &dyn Subject, id: &str, kinds: &'static [EventKind]) -> Vec<i64> {
    let id = sid(id);
    tx(subject, move |t| kinds.iter().map(|kind| t.event(&id, Some(&turn("t")), *kind, "{}")).collect())
        .await
        .unwrap()
}

pub(super) fn effect(session: &str, id: &str, kind: EffectKind, status: EffectStatus) -> EffectRow {
    EffectRow {
        id: id.into(),
        session_id: sid(session),
        turn_id: turn(id.split(':').next().unwrap()),
        kind,
        status,
        request_hash: format!("hash of {id}"),
        request: json(r#"{"input":[1,2]}"#),
        outcome: (status == EffectStatus::Completed).then(|| json(r#"{"value":1}"#)),
        error: None,
        attempts: 1,
        slimmed: false,
    }
}
