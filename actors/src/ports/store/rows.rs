//! The rows of the store.

use std::sync::Arc;

use crate::model::Micros;
use crate::model::effect::{EffectKind, EffectStatus};
use crate::model::event::EventKind;
use crate::model::ids::{AgentId, EffectId, SessionId, TenantId, TurnId};
use crate::model::json::JsonText;

/// A page of a list ordered by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Ids strictly after this one.
    pub after: Option<String>,
    /// At most so many; `None` is all.
    pub limit: Option<usize>,
}

/// A definition as registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionRow {
    /// The manifest's id.
    pub id: AgentId,
    /// Hash of the manifest, whose text is in the manifests table.
    pub manifest_hash: String,
    /// Version of the application's code.
    pub implementation_version: String,
    /// `{name: absolutePath}`.
    pub plugin_roots: Option<JsonText>,
}

/// A recorded command: the digest of what was asked, and what was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRow {
    /// SHA-256 of the canonical command without its request id, lowercase hex.
    pub digest: String,
    /// The stored answer.
    pub response: JsonText,
}

/// A row of the effect journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectRow {
    /// Deterministic id.
    pub id: EffectId,
    /// Its session.
    pub session_id: SessionId,
    /// Its turn.
    pub turn_id: TurnId,
    /// What it does.
    pub kind: EffectKind,
    /// Where it stands.
    pub status: EffectStatus,
    /// Hash of the full request.
    pub request_hash: String,
    /// The request; a model's without its input.
    pub request: JsonText,
    /// `{value, statePatch?}` once completed.
    pub outcome: Option<JsonText>,
    /// Why its fate is unknown.
    pub error: Option<String>,
    /// How often it was handed out for execution.
    pub attempts: u32,
    /// Its request's input and its answer were dropped when the turn ended.
    pub slimmed: bool,
}

/// A stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRow {
    /// Its place in the session's record.
    pub seq: i64,
    /// Its type.
    pub kind: EventKind,
    /// Its turn.
    pub turn_id: Option<TurnId>,
    /// The whole envelope as JSON text.
    pub body: Arc<str>,
}

/// A wake that waits to be handed over (the outbox).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WakeRow {
    /// Sortable id.
    pub id: String,
    /// Who is woken.
    pub session_id: SessionId,
    /// `message`, `approve`, `respond`, `recover`, `rollover`, `linked`, `flow`, `action_result`.
    pub reason: String,
    /// Same session and key: one advance.
    pub dedupe_key: Option<String>,
    /// When it was written.
    pub created_at: Micros,
    /// Failed hand-overs.
    pub attempts: u32,
    /// Not before.
    pub retry_at: Option<Micros>,
    /// Given up for an operator.
    pub parked_at: Option<Micros>,
}

/// A key's holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalRow {
    /// Operator key name or principal id.
    pub id: String,
    /// `application` or `studio`.
    pub role: String,
    /// SHA-256 of the key, lowercase hex.
    pub token_hash: String,
    /// When it was created or rotated.
    pub created_at: Micros,
}

/// A sealed credential (spec: security, section 6).
#[derive(Clone, PartialEq, Eq)]
pub struct CredentialRow {
    /// Its id, `host-model:<provider>` for a model provider.
    pub id: String,
    /// Its vault, `host` for the Tenant's own.
    pub vault_id: String,
    /// In words.
    pub name: String,
    /// `bearer`, `oauth` or `model`.
    pub kind: String,
    /// What it is bound to; for a model `{provider, model, baseUrl?, settings?, authType}`.
    pub binding: JsonText,
    /// ISO instant.
    pub expires_at: Option<String>,
    /// When it was stored.
    pub created_at: Micros,
    /// When it was replaced last.
    pub rotated_at: Option<Micros>,
    /// Hex SHA-256 of the KEK that wraps it.
    pub kek_id: String,
    /// 12 bytes.
    pub nonce: Vec<u8>,
    /// Body and tag.
    pub ciphertext: Vec<u8>,
    /// 60 bytes.
    pub wrapped_dek: Vec<u8>,
}

impl std::fmt::Debug for CredentialRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CredentialRow")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// A stored answer of an idempotent vault or model write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyRow {
    /// SHA-256 of the canonical body, lowercase hex.
    pub body_hash: String,
    /// What was answered.
    pub response: JsonText,
}

/// One line of the append-only audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// A UUID.
    pub id: String,
    /// When.
    pub at: Micros,
    /// Who: `application:<id>`, `operator`, …
    pub actor: String,
    /// What: `model.put`, `key.put`, …
    pub action: String,
    /// On what.
    pub target: Option<String>,
    /// `ok` or `refused`.
    pub outcome: String,
}

/// One answered model call.
#[derive(Clone, Debug, PartialEq)]
pub struct UsageRow {
    /// A UUID.
    pub id: String,
    /// The effect.
    pub effect_key: String,
    /// Its session.
    pub session_id: SessionId,
    /// Its turn.
    pub turn_id: TurnId,
    /// The root agent.
    pub agent_id: AgentId,
    /// Provider, if the answer names it.
    pub provider: Option<String>,
    /// Model, if the answer names it.
    pub model: Option<String>,
    /// input, output, total, cached, cache write, reasoning.
    pub tokens: [i64; 6],
    /// US dollars.
    pub cost_usd: f64,
    /// A second call of one effect: money spent twice.
    pub duplicate: bool,
    /// When.
    pub created_at: Micros,
}

/// A written-down piece of a session's fold: what `entries` a transcript has beyond `keep` of the piece before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldSnapshotRow {
    /// The session.
    pub session_id: SessionId,
    /// Cursor of the fold after this piece.
    pub cursor: i64,
    /// Cursor of the piece before it, -1 for none.
    pub base: i64,
    /// Entries kept of the piece before it.
    pub keep: i64,
    /// JSON array of entries.
    pub entries: JsonText,
}

/// The Tenant of this store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRow {
    /// `tn_…`.
    pub id: TenantId,
    /// In words.
    pub name: String,
    /// When it was created.
    pub created_at: Micros,
    /// When it was changed last.
    pub updated_at: Micros,
    /// Migrations applied.
    pub schema_version: i64,
    /// Generation of the record; one more on each reset of sessions.
    pub generation: i64,
}

/// Figures of the Tenant's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All sessions.
    pub sessions: i64,
    /// Sessions that are `running` or `runnable`.
    pub running_sessions: i64,
    /// Effects that wait for somebody else.
    pub pending_effects: i64,
    /// Effects whose fate is unknown.
    pub uncertain_effects: i64,
    /// Definitions.
    pub definitions: i64,
    /// Wakes given up for an operator.
    pub parked_wakes: i64,
    /// Actions whose deliveries were given up for an operator.
    pub parked_actions: i64,
    /// Actions that an endpoint has.
    pub delivering_actions: i64,
}
