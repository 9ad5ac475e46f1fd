//! A sandbox resource and its events (spec: sandbox, sections 6 and 23; http-api, section 11).

use std::fmt::Write as _;

use super::id::Labels;
use super::spec::SandboxSpec;
use crate::model::ids::TenantId;
use crate::model::json::encode;
use crate::model::time::Micros;

/// What a sandbox is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SandboxKind {
    /// A workspace of whoever serves workspaces.
    #[default]
    Virtual,
    /// A pod with an engine of its own.
    Pod,
}

impl SandboxKind {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Pod => "pod",
        }
    }

    /// The kind of a wire name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Virtual, Self::Pod].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// A sandbox that outlives sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxResource {
    /// Chosen by the client.
    pub id: String,
    /// What it is.
    pub kind: SandboxKind,
    /// What it was made with.
    pub spec: SandboxSpec,
    /// For lists.
    pub labels: Labels,
    /// When it was made.
    pub created_at: Micros,
    /// When its row was changed last.
    pub updated_at: Micros,
}

macro_rules! kinds {
    ($($variant:ident = $name:literal,)*) => {
        /// The types of the events of a sandbox.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum SandboxEventKind {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl SandboxEventKind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The wire name.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

kinds! {
    Created = "sandbox.created",
    Attached = "sandbox.attached",
    Detached = "sandbox.detached",
    Deleted = "sandbox.deleted",
    Running = "sandbox.running",
    Suspended = "sandbox.suspended",
    Expired = "sandbox.expired",
    Relaunched = "sandbox.relaunched",
    Lost = "sandbox.lost",
    Reset = "sandbox.reset",
    Failed = "sandbox.failed",
}

/// What the envelope of a sandbox's event is made of.
#[derive(Clone, Copy, Debug)]
pub struct SandboxEnvelope<'a> {
    /// A random UUID.
    pub event_id: &'a str,
    /// The Tenant.
    pub tenant: &'a TenantId,
    /// The sandbox.
    pub sandbox: &'a str,
    /// Its place among the sandbox's events, from 0.
    pub seq: i64,
    /// When.
    pub time: Micros,
    /// Its type.
    pub kind: SandboxEventKind,
    /// JSON text of the payload.
    pub payload: &'a str,
}

impl SandboxEnvelope<'_> {
    /// The event as JSON text: what is kept and what is served.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::with_capacity(self.payload.len() + 300);
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            r#"{{"schema":"nylorun.sandbox-event/1","eventId":"{}","tenantId":{},"sandboxId":{},"seq":{},"time":"{}","type":"{}","payload":{}}}"#,
            self.event_id,
            encode(self.tenant.as_str()),
            encode(self.sandbox),
            self.seq,
            self.time.to_iso(),
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
    use serde_json::json;

    #[test]
    fn an_event_has_exactly_the_members_of_its_schema() {
        let text = SandboxEnvelope {
            event_id: "e",
            tenant: &TenantId::from("tn_x"),
            sandbox: "team/box",
            seq: 4,
            time: Micros(0),
            kind: SandboxEventKind::Attached,
            payload: r#"{"sessionId":"s"}"#,
        };
        assert_eq!(
            parse(text.to_text().as_bytes()).unwrap(),
            json!({
                "schema": "nylorun.sandbox-event/1", "eventId": "e", "tenantId": "tn_x", "sandboxId": "team/box", "seq": 4,
                "time": "1970-01-01T00:00:00.000Z", "type": "sandbox.attached", "payload": {"sessionId": "s"},
            })
        );
    }
}
