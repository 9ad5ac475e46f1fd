//! The registry of Action endpoints and their health (spec: http-api, section 10.2).

use serde_json::json;

use super::Refusal;
use crate::model::action::{Health, Served};
use crate::model::ids::AgentId;
use crate::model::json::{Json, JsonText};
use crate::ports::store::{EndpointRow, Page, Reads, StoreError, StoreResult, Tx};

/// An endpoint as an application registers it; shapes and bounds are checked already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Whose Actions it does.
    pub agent_id: AgentId,
    /// Where it listens.
    pub url: String,
    /// Version of its code.
    pub implementation_version: String,
    /// The manifest that it was built for.
    pub manifest_hash: Option<String>,
    /// How long an answer is waited for.
    pub timeout_ms: i64,
    /// Deliveries at once.
    pub max_concurrent: i64,
}

/// Health of a row.
///
/// # Errors
/// [`StoreError::Corrupt`] when it does not parse.
pub fn health(row: &EndpointRow) -> StoreResult<Health> {
    row.health.decode().map_err(|e| {
        StoreError::Corrupt(format!("the health of endpoint {} does not parse: {e}", row.agent_id))
    })
}

/// Registers a batch, all or nothing. The same URL keeps its health; waiting Actions are due at once.
///
/// # Errors
/// The store's.
pub fn register(tx: &mut dyn Tx, batch: &[Registration]) -> StoreResult<Vec<EndpointRow>> {
    let now = tx.now();
    let mut rows = Vec::with_capacity(batch.len());
    for registration in batch {
        let known = tx.endpoint(&registration.agent_id)?.filter(|old| old.url == registration.url);
        let row = EndpointRow {
            agent_id: registration.agent_id.clone(),
            url: registration.url.clone(),
            implementation_version: registration.implementation_version.clone(),
            manifest_hash: registration.manifest_hash.clone(),
            timeout_ms: registration.timeout_ms,
            max_concurrent: registration.max_concurrent,
            health: known.map_or_else(|| JsonText::of(&Health::default()), |old| old.health),
            updated_at: now,
        };
        tx.put_endpoint(&row)?;
        tx.revive_actions(&row.agent_id, now)?;
        rows.push(row);
    }
    Ok(rows)
}

/// Takes an endpoint out; its pending Actions wait for the next registration.
///
/// # Errors
/// 404 when there is none.
pub fn remove(tx: &mut dyn Tx, agent: &AgentId) -> Result<(), Refusal> {
    if tx.delete_endpoint(agent)? { Ok(()) } else { Err(Refusal::not_found("endpoint")) }
}

/// Endpoints by agent id.
///
/// # Errors
/// The store's.
pub fn list(reads: &mut dyn Reads, page: &Page) -> StoreResult<Vec<EndpointRow>> {
    reads.endpoints(page)
}

/// An endpoint as clients see it.
///
/// # Errors
/// [`StoreError::Corrupt`].
pub fn view(row: &EndpointRow) -> StoreResult<Json> {
    let mut view = json!({
        "agentId": row.agent_id.as_str(), "url": row.url, "implementationVersion": row.implementation_version,
        "timeoutMs": row.timeout_ms, "maxConcurrent": row.max_concurrent, "health": health(row)?,
        "updatedAt": row.updated_at.to_iso(),
    });
    if let Some(hash) = &row.manifest_hash {
        view["manifestHash"] = json!(hash);
    }
    Ok(view)
}

fn change_health(tx: &mut dyn Tx, agent: &AgentId, change: impl FnOnce(&mut Health)) -> StoreResult<u32> {
    // It may have been deleted while a delivery was on its way.
    let Some(row) = tx.endpoint(agent)? else { return Ok(0) };
    let mut health = health(&row)?;
    change(&mut health);
    tx.put_endpoint_health(agent, &JsonText::of(&health))?;
    Ok(health.consecutive_failures)
}

/// The endpoint of an agent answered.
///
/// # Errors
/// The store's.
pub fn note_success(tx: &mut dyn Tx, agent: &AgentId) -> StoreResult<()> {
    let now = tx.now();
    change_health(tx, agent, |health| health.success(now))?;
    Ok(())
}

/// The endpoint of an agent failed; answers its failures in a row, 0 when it is not registered any more.
///
/// # Errors
/// The store's.
pub fn note_failure(tx: &mut dyn Tx, agent: &AgentId, code: &str, message: &str) -> StoreResult<u32> {
    let now = tx.now();
    change_health(tx, agent, |health| health.failure(now, code, message))
}

/// A ping was answered well: what is served is noted, parked Actions are tried anew.
///
/// # Errors
/// The store's.
pub fn pinged(tx: &mut dyn Tx, agent: &AgentId, served: &Served) -> StoreResult<()> {
    let now = tx.now();
    change_health(tx, agent, |health| {
        health.success(now);
        health.served = Some(served.clone());
    })?;
    tx.revive_actions(agent, now)?;
    Ok(())
}
