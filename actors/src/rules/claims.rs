//! What a harness says of things that only it sees: workspaces and MCP servers (spec: harness-api, sections 7.5 and 15.4).

use serde_json::json;

use super::effects::RunScope;
use super::event::write;
use super::ownership::{RunRefusal, fence};
use crate::model::event::EventKind;
use crate::model::json::{Json, JsonMap, JsonText};
use crate::model::workspace::{Claim, ClaimKind};
use crate::ports::store::{StoreError, StoreResult, Tx};

/// Appends a claimed event and keeps the workspace's record that came with it. It is not fenced: the claim is of a workspace, whoever owns the session by now.
///
/// # Errors
/// The store's.
pub fn record(tx: &mut dyn Tx, claim: &Claim) -> StoreResult<()> {
    let kind = match claim.kind {
        ClaimKind::State => EventKind::SandboxState,
        ClaimKind::Exec => EventKind::SandboxExec,
    };
    let payload = match &claim.payload {
        Json::Object(map) => map.clone(),
        _ => JsonMap::new(),
    };
    write(tx, &claim.session_id, claim.turn_id.as_ref(), kind, &payload)?;
    claim.record.as_ref().map_or(Ok(()), |record| tx.put_workspace(record))
}

/// Pins what a harness discovered: the first snapshot wins, diagnostics replace those of the same server.
/// Answers `{snapshot?, sessionTools}` as stored.
///
/// # Errors
/// [`RunRefusal::Invalid`] for a snapshot of another shape; the fence's. Nothing is written then.
pub fn discovered(
    tx: &mut dyn Tx,
    scope: &RunScope,
    snapshot: Option<&Json>,
    diagnostics: &[Json],
) -> Result<Json, RunRefusal> {
    fence(tx, &scope.session, scope.epoch)?;
    if let Some(snapshot) = snapshot {
        check(snapshot)?;
    }
    let corrupt = |e: serde_json::Error| StoreError::Corrupt(e.to_string());
    let mut pin = tx.session_pin(&scope.session)?.unwrap_or_default();
    let mut stored: Vec<Json> = match &pin.mcp_diagnostics {
        Some(text) => text.decode().map_err(corrupt)?,
        None => Vec::new(),
    };
    if pin.mcp_snapshot.is_none() && snapshot.is_some() {
        pin.mcp_snapshot = snapshot.map(JsonText::of);
        stored = diagnostics.to_vec();
    } else {
        for said in diagnostics {
            let same =
                |old: &Json| ["agentId", "capabilityId", "serverName"].iter().all(|k| old[k] == said[k]);
            match stored.iter_mut().find(|old| same(old)) {
                Some(old) => *old = said.clone(),
                None => stored.push(said.clone()),
            }
        }
    }
    pin.mcp_diagnostics = Some(JsonText::of(&stored));
    tx.put_session_pin(&scope.session, &pin)?;
    let mut answer = JsonMap::new();
    let mut tools = Vec::new();
    if let Some(text) = &pin.mcp_snapshot {
        let snapshot: Json = text.decode().map_err(corrupt)?;
        tools = session_tools(&snapshot);
        answer.insert("snapshot".into(), snapshot);
    }
    answer.insert("sessionTools".into(), Json::Array(tools));
    Ok(Json::Object(answer))
}

fn check(snapshot: &Json) -> Result<(), RunRefusal> {
    let good = snapshot.get("snapshotSchemaVersion") == Some(&json!(1))
        && snapshot.get("manifestHash").is_some_and(Json::is_string)
        && snapshot.get("mcpTools").is_some_and(Json::is_array);
    if good { Ok(()) } else { Err(RunRefusal::Invalid("malformed MCP snapshot".into())) }
}

/// The tools that a snapshot offers to the model, without what only the executor needs.
#[must_use]
pub fn session_tools(snapshot: &Json) -> Vec<Json> {
    let pick = |tool: &Json| {
        let mut out = JsonMap::new();
        for key in ["agentId", "capabilityId", "name", "description", "inputSchema", "outputSchema"] {
            if let Some(value) = tool.get(key) {
                out.insert(key.into(), value.clone());
            }
        }
        Json::Object(out)
    };
    let tools = snapshot.get("mcpTools").and_then(Json::as_array);
    tools.map_or(&[][..], Vec::as_slice).iter().map(pick).collect()
}
