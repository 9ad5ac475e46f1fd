//! Rows as they come from the database, and what they are for the port.

use std::sync::Arc;

use diesel::prelude::*;
use nylorun_actors::model::Micros;
use nylorun_actors::model::effect::{EffectKind, EffectStatus};
use nylorun_actors::model::event::EventKind;
use nylorun_actors::model::json::JsonText;
use nylorun_actors::model::session::{SessionDoc, SessionHead, SessionPin, SessionStatus};
use nylorun_actors::ports::StoreError;
use nylorun_actors::ports::store::{
    CredentialRow, DefinitionRow, EffectRow, PrincipalRow, RecordRow, StoreResult, UsageRow, WakeRow,
};

use super::schema::{
    credentials, definitions, effects, events, model_usage, principals, session_docs, session_pins, sessions,
    wakes,
};

pub(super) fn json(text: Option<String>) -> Option<JsonText> {
    text.map(JsonText::from_trusted)
}

pub(super) fn unknown(what: &str, name: &str) -> StoreError {
    StoreError::Corrupt(format!("unknown {what} {name:?}"))
}

pub(super) fn count(n: i64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = sessions)]
pub(super) struct Session {
    pub no: i64,
    id: String,
    agent_id: String,
    owner_user_id: String,
    sandbox_id: Option<String>,
    manifest_hash: String,
    status: String,
    active_turn_id: Option<String>,
    last_turn_id: Option<String>,
    owner: Option<String>,
    epoch: i64,
    owner_expires_at: Option<i64>,
}

impl Session {
    pub fn head(self) -> StoreResult<SessionHead> {
        Ok(SessionHead {
            id: self.id.into(),
            agent_id: self.agent_id.into(),
            owner_user_id: self.owner_user_id,
            sandbox_id: self.sandbox_id,
            manifest_hash: self.manifest_hash,
            status: SessionStatus::from_name(&self.status).ok_or_else(|| unknown("status", &self.status))?,
            active_turn_id: self.active_turn_id.map(Into::into),
            last_turn_id: self.last_turn_id.map(Into::into),
            owner: self.owner.map(Into::into),
            epoch: self.epoch,
            owner_expires_at: self.owner_expires_at.map(Micros),
        })
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = session_pins)]
pub(super) struct Pin {
    implementation_version: String,
    plugin_roots: Option<String>,
    info: Option<String>,
    creation: String,
    vault_ids: Option<String>,
    credential_selections: Option<String>,
    sandbox_owner_id: Option<String>,
    sandbox: Option<String>,
    sandbox_source: Option<String>,
    mcp_snapshot: Option<String>,
    mcp_diagnostics: Option<String>,
    created_at: i64,
}

impl From<Pin> for SessionPin {
    fn from(row: Pin) -> Self {
        Self {
            implementation_version: row.implementation_version,
            plugin_roots: json(row.plugin_roots),
            info: json(row.info),
            creation: row.creation,
            vault_ids: json(row.vault_ids),
            credential_selections: json(row.credential_selections),
            sandbox_owner_id: row.sandbox_owner_id.map(Into::into),
            sandbox: json(row.sandbox),
            sandbox_source: row.sandbox_source,
            mcp_snapshot: json(row.mcp_snapshot),
            mcp_diagnostics: json(row.mcp_diagnostics),
            created_at: Micros(row.created_at),
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = session_docs)]
pub(super) struct Doc {
    checkpoint: Option<String>,
    state: Option<String>,
    turn_start_state: Option<String>,
    history_from: Option<i64>,
    history_snapshot: Option<i64>,
    waits: Option<String>,
    error: Option<String>,
    last_output: Option<String>,
    variants: Option<String>,
}

impl Doc {
    pub fn doc(self) -> StoreResult<SessionDoc> {
        let variants = self.variants.map_or(Ok(Vec::new()), |text| {
            nylorun_actors::model::json::decode(text.as_bytes())
                .map_err(|e| StoreError::Corrupt(format!("variants: {e}")))
        })?;
        Ok(SessionDoc {
            checkpoint: json(self.checkpoint),
            state: json(self.state),
            turn_start_state: json(self.turn_start_state),
            history_from: self.history_from,
            history_snapshot: self.history_snapshot,
            waits: json(self.waits),
            error: self.error,
            last_output: json(self.last_output),
            variants,
        })
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = definitions)]
pub(super) struct Definition {
    id: String,
    manifest_hash: String,
    implementation_version: String,
    plugin_roots: Option<String>,
}

impl From<Definition> for DefinitionRow {
    fn from(row: Definition) -> Self {
        Self {
            id: row.id.into(),
            manifest_hash: row.manifest_hash,
            implementation_version: row.implementation_version,
            plugin_roots: json(row.plugin_roots),
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = effects)]
pub(super) struct Effect {
    id: String,
    turn_id: String,
    kind: String,
    status: String,
    request_hash: String,
    request: String,
    outcome: Option<String>,
    error: Option<String>,
    attempts: i64,
    slimmed: bool,
}

impl Effect {
    pub fn row(self, session_id: &str) -> StoreResult<EffectRow> {
        Ok(EffectRow {
            id: self.id.into(),
            session_id: session_id.into(),
            turn_id: self.turn_id.into(),
            kind: EffectKind::from_name(&self.kind).ok_or_else(|| unknown("effect kind", &self.kind))?,
            status: EffectStatus::from_name(&self.status)
                .ok_or_else(|| unknown("effect status", &self.status))?,
            request_hash: self.request_hash,
            request: JsonText::from_trusted(self.request),
            outcome: json(self.outcome),
            error: self.error,
            attempts: count(self.attempts),
            slimmed: self.slimmed,
        })
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = events)]
pub(super) struct Event {
    seq: i64,
    kind: String,
    turn_id: Option<String>,
    body: String,
}

impl Event {
    pub fn row(self) -> StoreResult<RecordRow> {
        Ok(RecordRow {
            seq: self.seq,
            kind: EventKind::from_name(&self.kind).ok_or_else(|| unknown("event type", &self.kind))?,
            turn_id: self.turn_id.map(Into::into),
            body: Arc::from(self.body),
        })
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = wakes)]
pub(super) struct Wake {
    id: i64,
    reason: String,
    dedupe_key: Option<String>,
    created_at: i64,
    attempts: i64,
    retry_at: Option<i64>,
    parked_at: Option<i64>,
}

/// A wake's number as the id of the port: sorts like the number.
pub(super) fn wake_id(no: i64) -> String {
    format!("{no:020}")
}

impl Wake {
    pub fn row(self, session_id: &str) -> WakeRow {
        WakeRow {
            id: wake_id(self.id),
            session_id: session_id.into(),
            reason: self.reason,
            dedupe_key: self.dedupe_key,
            created_at: Micros(self.created_at),
            attempts: count(self.attempts),
            retry_at: self.retry_at.map(Micros),
            parked_at: self.parked_at.map(Micros),
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = principals)]
pub(super) struct Principal {
    id: String,
    role: String,
    token_hash: String,
    created_at: i64,
}

impl From<Principal> for PrincipalRow {
    fn from(row: Principal) -> Self {
        Self { id: row.id, role: row.role, token_hash: row.token_hash, created_at: Micros(row.created_at) }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = credentials)]
pub(super) struct Credential {
    vault_id: String,
    id: String,
    name: String,
    kind: String,
    binding: String,
    expires_at: Option<String>,
    created_at: i64,
    rotated_at: Option<i64>,
    kek_id: String,
    nonce: Vec<u8>,
    ciphertext: Vec<u8>,
    wrapped_dek: Vec<u8>,
}

impl From<Credential> for CredentialRow {
    fn from(row: Credential) -> Self {
        Self {
            id: row.id,
            vault_id: row.vault_id,
            name: row.name,
            kind: row.kind,
            binding: JsonText::from_trusted(row.binding),
            expires_at: row.expires_at,
            created_at: Micros(row.created_at),
            rotated_at: row.rotated_at.map(Micros),
            kek_id: row.kek_id,
            nonce: row.nonce,
            ciphertext: row.ciphertext,
            wrapped_dek: row.wrapped_dek,
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = model_usage)]
pub(super) struct Usage {
    id: String,
    effect_key: String,
    session_id: String,
    turn_id: String,
    agent_id: String,
    provider: Option<String>,
    model: Option<String>,
    input_tokens: i64,
    output_tokens: i64,
    total_tokens: i64,
    cached_tokens: i64,
    cache_write_tokens: i64,
    reasoning_tokens: i64,
    cost_usd: f64,
    duplicate: bool,
    created_at: i64,
}

impl From<Usage> for UsageRow {
    fn from(row: Usage) -> Self {
        Self {
            id: row.id,
            effect_key: row.effect_key,
            session_id: row.session_id.into(),
            turn_id: row.turn_id.into(),
            agent_id: row.agent_id.into(),
            provider: row.provider,
            model: row.model,
            tokens: [
                row.input_tokens,
                row.output_tokens,
                row.total_tokens,
                row.cached_tokens,
                row.cache_write_tokens,
                row.reasoning_tokens,
            ],
            cost_usd: row.cost_usd,
            duplicate: row.duplicate,
            created_at: Micros(row.created_at),
        }
    }
}
