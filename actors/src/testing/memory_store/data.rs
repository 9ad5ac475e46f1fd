//! What the in-memory store holds: one sorted map per table, and how a change is undone.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::Micros;
use crate::model::ids::{AgentId, EffectId, SessionId};
use crate::model::json::JsonText;
use crate::model::sandbox::SandboxResource;
use crate::model::session::{SessionDoc, SessionHead, SessionPin};
use crate::model::workspace::WorkspaceRecord;
use crate::ports::store::{
    ActionRow, ArtifactContentRow, ArtifactRow, ArtifactVersionRow, AuditRow, CommandRow, CredentialRow,
    DefinitionRow, EffectRow, EndpointRow, FoldSnapshotRow, IdempotencyRow, PrincipalRow, RecordRow,
    SigningKeyRow, UsageRow, WakeRow,
};

/// One session's three rows.
#[derive(Clone)]
pub(super) struct SessionRows {
    pub head: SessionHead,
    pub pin: SessionPin,
    pub doc: SessionDoc,
}

/// Everything.
pub(super) struct Data {
    pub name: String,
    pub created_at: Micros,
    pub updated_at: Micros,
    pub generation: i64,
    pub next_wake: u64,
    pub next_action: u64,
    pub tables: Tables,
}

/// The tables.
#[derive(Clone, Default)]
pub(super) struct Tables {
    pub sessions: BTreeMap<SessionId, SessionRows>,
    pub commands: BTreeMap<(SessionId, String), CommandRow>,
    pub effects: BTreeMap<EffectId, EffectRow>,
    pub events: BTreeMap<(SessionId, i64), RecordRow>,
    pub folds: BTreeMap<(SessionId, i64), FoldSnapshotRow>,
    pub wakes: BTreeMap<String, WakeRow>,
    pub manifests: BTreeMap<String, JsonText>,
    pub definitions: BTreeMap<AgentId, DefinitionRow>,
    pub settings: BTreeMap<String, String>,
    pub principals: BTreeMap<String, PrincipalRow>,
    pub credentials: BTreeMap<(String, String), CredentialRow>,
    pub signing_keys: BTreeMap<String, SigningKeyRow>,
    pub idempotency: BTreeMap<String, IdempotencyRow>,
    pub audit: BTreeMap<String, AuditRow>,
    pub usage: BTreeMap<String, UsageRow>,
    pub artifacts: BTreeMap<String, ArtifactRow>,
    pub artifact_versions: BTreeMap<(String, i64), ArtifactVersionRow>,
    pub artifact_content: BTreeMap<(String, i64, String), ArtifactContentRow>,
    pub workspaces: BTreeMap<String, WorkspaceRecord>,
    pub sandboxes: BTreeMap<String, SandboxResource>,
    pub sandbox_events: BTreeMap<(String, i64), Arc<str>>,
    pub sandbox_removals: BTreeMap<String, Micros>,
    /// With the order of their creation.
    pub actions: BTreeMap<EffectId, (u64, ActionRow)>,
    pub endpoints: BTreeMap<AgentId, EndpointRow>,
}

/// One step back.
pub(super) type Undo = Box<dyn FnOnce(&mut Data)>;

/// Which table.
pub(super) type Table<K, V> = fn(&mut Tables) -> &mut BTreeMap<K, V>;

impl Data {
    pub fn new(now: Micros) -> Self {
        Self {
            name: "memory".to_owned(),
            created_at: now,
            updated_at: now,
            generation: 0,
            next_wake: 0,
            next_action: 0,
            tables: Tables::default(),
        }
    }

    /// Writes or removes a row and answers how that is undone.
    pub fn set<K, V>(&mut self, table: Table<K, V>, key: K, value: Option<V>) -> Undo
    where
        K: Ord + Clone + 'static,
        V: 'static,
    {
        let map = table(&mut self.tables);
        let before = match value {
            Some(value) => map.insert(key.clone(), value),
            None => map.remove(&key),
        };
        Box::new(move |data| {
            let map = table(&mut data.tables);
            match before {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        })
    }
}
