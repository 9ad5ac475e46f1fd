//! The event catalog and the envelope `nylorun.event/2` (spec: durability, section 11; http-api, section 8).

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::ids::{SessionId, TenantId, TurnId};
use super::json::encode;
use super::time::Micros;

macro_rules! catalog {
    ($($variant:ident = $name:literal, $source:literal;)*) => {
        /// Every type that is ever written. There is no other.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum EventKind {
            $(#[doc = concat!("`", $name, "`, written by `", $source, "`.")] $variant,)*
        }

        impl EventKind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The wire name.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// `source.kind` of its envelope.
            #[must_use]
            pub fn source(self) -> &'static str {
                match self { $(Self::$variant => $source,)* }
            }

            /// The kind of a wire name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

catalog! {
    CommandMessage = "command.message", "api";
    CommandApprove = "command.approve", "api";
    CommandRespond = "command.respond", "api";
    TurnCompleted = "turn.completed", "loop";
    TurnPaused = "turn.paused", "loop";
    TurnFailed = "turn.failed", "loop";
    TurnCancelled = "turn.cancelled", "api";
    MessageAssistant = "message.assistant", "loop";
    ModelFailed = "model.failed", "loop";
    ContextCompacted = "context.compacted", "loop";
    ToolCompleted = "tool.completed", "loop";
    ActionPending = "action.pending", "loop";
    ActionDelivered = "action.delivered", "loop";
    ActionDeliveryFailed = "action.delivery_failed", "loop";
    ActionCompleted = "action.completed", "api";
    ActionUncertain = "action.uncertain", "loop";
    EffectUncertain = "effect.uncertain", "loop";
    EffectReconciled = "effect.reconciled", "operator";
    DelegationStarted = "delegation.started", "loop";
    DelegationCompleted = "delegation.completed", "loop";
    SandboxState = "sandbox.state", "loop";
    SandboxExec = "sandbox.exec", "loop";
    SandboxAttached = "sandbox.attached", "api";
    NodeStarted = "node.started", "loop";
    NodeAgent = "node.agent", "loop";
    LoopIteration = "loop.iteration", "loop";
    LoopVerified = "loop.verified", "api";
    LoopDecided = "loop.decided", "api";
    ArtifactCreated = "artifact.created", "api";
    ArtifactVersionCreated = "artifact.version.created", "api";
    ArtifactDeleted = "artifact.deleted", "api";
    ArtifactExportSkipped = "artifact.export.skipped", "api";
    ArtifactExportFailed = "artifact.export.failed", "api";
    TranscriptUpdated = "transcript.updated", "loop";
}

impl EventKind {
    /// Recorded but never served: it takes a `seq`, so clients see a gap.
    #[must_use]
    pub fn is_internal(self) -> bool {
        matches!(self, Self::TranscriptUpdated)
    }

    /// Whether the transcript's fold reads it.
    #[must_use]
    pub fn is_fold_step(self) -> bool {
        matches!(self, Self::TranscriptUpdated | Self::TurnCancelled | Self::TurnFailed | Self::TurnCompleted)
    }

    /// Whether a turn ends with it.
    #[must_use]
    pub fn ends_turn(self) -> bool {
        matches!(self, Self::TurnCancelled | Self::TurnFailed | Self::TurnCompleted)
    }
}

/// The cursor of an event: base64url without padding of `<sessionId>:<seq>`.
#[must_use]
pub fn cursor(session: &SessionId, seq: i64) -> String {
    URL_SAFE_NO_PAD.encode(format!("{session}:{seq}"))
}

/// The `seq` of a cursor of this session, `None` when it is not one.
#[must_use]
pub fn seq_of_cursor(session: &SessionId, cursor: &str) -> Option<i64> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let digits = text.strip_prefix(session.as_str())?.strip_prefix(':')?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// What an envelope is made of.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// A random UUID.
    pub event_id: &'a str,
    /// The Tenant.
    pub tenant: &'a TenantId,
    /// The session.
    pub session: &'a SessionId,
    /// The turn, if it belongs to one.
    pub turn: Option<&'a TurnId>,
    /// The session's epoch when it was written.
    pub epoch: i64,
    /// Its place in the session's record, from 0.
    pub seq: i64,
    /// When.
    pub time: Micros,
    /// Its type.
    pub kind: EventKind,
    /// JSON text of the payload.
    pub payload: &'a str,
}

impl Envelope<'_> {
    /// The event as JSON text: what the record keeps and what is served.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::with_capacity(self.payload.len() + 480);
        let turn = self.turn.map_or_else(|| "null".to_owned(), |t| encode(t.as_str()));
        let visibility = if self.kind.is_internal() { "internal" } else { "public" };
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            concat!(
                r#"{{"schema":"nylorun.event/2","eventId":"{}","tenantId":{},"sessionId":{},"runId":null,"#,
                r#""turnId":{},"incarnation":0,"epoch":{},"seq":{},"cursor":"{}","time":"{}","schemaVersion":1,"#,
                r#""source":{{"kind":"{}","id":"runtime"}},"evidence":"observed","visibility":"{}","#,
                r#""retention":"full","type":"{}","payload":{}}}"#
            ),
            self.event_id,
            encode(self.tenant.as_str()),
            encode(self.session.as_str()),
            turn,
            self.epoch,
            self.seq,
            cursor(self.session, self.seq),
            self.time.to_iso(),
            self.kind.source(),
            visibility,
            self.kind.as_str(),
            self.payload
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::json::parse;

    #[test]
    fn a_cursor_names_its_session_and_its_seq() {
        let id = SessionId::from("s:1");
        assert_eq!(seq_of_cursor(&id, &cursor(&id, 42)), Some(42));
        assert_eq!(seq_of_cursor(&SessionId::from("other"), &cursor(&id, 42)), None);
        for bad in ["", "!!", "czoxOg", &URL_SAFE_NO_PAD.encode("s:1:-1"), &URL_SAFE_NO_PAD.encode("s:1:1x")]
        {
            assert_eq!(seq_of_cursor(&id, bad), None, "{bad}");
        }
    }

    #[test]
    fn an_envelope_is_nylorun_event_2_with_every_member() {
        let (tenant, session) = (TenantId::from("tn_x"), SessionId::from("s\"1"));
        let text = Envelope {
            event_id: "e",
            tenant: &tenant,
            session: &session,
            turn: None,
            epoch: 3,
            seq: 7,
            time: Micros(0),
            kind: EventKind::TranscriptUpdated,
            payload: r#"{"keep":0}"#,
        }
        .to_text();
        let value = parse(text.as_bytes()).unwrap();
        assert_eq!(value["schema"], "nylorun.event/2");
        assert_eq!(value["sessionId"], "s\"1");
        assert_eq!(value["turnId"], serde_json::Value::Null);
        assert_eq!(value["visibility"], "internal");
        assert_eq!(value["cursor"], cursor(&session, 7));
        assert_eq!(value["source"]["kind"], "loop");
        assert_eq!(value["payload"]["keep"], 0);
        assert_eq!(value.as_object().unwrap().len(), 18);
    }

    #[test]
    fn every_type_has_one_name_and_one_source_of_the_closed_list() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_name(kind.as_str()), Some(*kind));
            assert!(["api", "loop", "operator"].contains(&kind.source()));
        }
    }
}
