//! Sandbox resources: made or found again, viewed, listed, deleted (spec: sandbox, sections 6 and 7; http-api, section
//! 11). A sandbox that the caller's grants do not reach is as good as missing.

use std::sync::Arc;

use serde_json::json;

use super::session_sandbox::require_pods;
use super::{Refusal, SandboxRefusal, settings};
use crate::model::ids::TenantId;
use crate::model::json::{Json, JsonText};
use crate::model::sandbox::id::{Labels, has_labels};
use crate::model::sandbox::resolve::resolve;
use crate::model::sandbox::spec::{memory_mib, sorted_hosts};
use crate::model::sandbox::{SandboxEventKind, SandboxKind, SandboxRequest, SandboxResource};
use crate::model::workspace::sandbox_key;
use crate::ports::store::{Page, Reads, StoreResult, Tx};
use crate::tenant::Reach;

/// `PUT /v1/sandboxes/{id}`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PutSandbox {
    /// Checked.
    pub id: String,
    /// What it shall be, when it was said.
    pub kind: Option<SandboxKind>,
    /// All of its labels, when they were said.
    pub labels: Option<Labels>,
    /// What is asked for.
    pub request: SandboxRequest,
    /// A pod's volume, a size.
    pub storage: Option<String>,
    /// Whether `lifecycle` was sent, which only pods have.
    pub has_lifecycle: bool,
}

/// Makes a sandbox, or finds the one that there is: it must be what was asked for, as far as something was.
///
/// # Errors
/// As the section says. Nothing is written then.
pub fn put(tx: &mut dyn Tx, put: &PutSandbox, reach: &Reach) -> Result<Json, Refusal> {
    check_grant(&put.id, reach)?;
    require_pods(put.kind.unwrap_or_default())?;
    let row = match tx.sandbox(&put.id)? {
        Some(row) => found(tx, row, put)?,
        None => made(tx, put)?,
    };
    let tenant = tx.tenant()?.id;
    Ok(view(tx, &tenant, &row, reach)?)
}

fn found(tx: &mut dyn Tx, mut row: SandboxResource, put: &PutSandbox) -> Result<SandboxResource, Refusal> {
    if let Some(field) = difference(&row, put) {
        return Err(Refusal::conflict(format!("The sandbox {} exists with another {field}", row.id)));
    }
    if let Some(labels) = &put.labels
        && *labels != row.labels
    {
        row.labels = labels.clone();
        row.updated_at = tx.now();
        tx.put_sandbox(&row)?;
    }
    Ok(row)
}

/// The first field that was sent and is another than the sandbox's.
fn difference(row: &SandboxResource, put: &PutSandbox) -> Option<&'static str> {
    let (spec, asked) = (&row.spec, &put.request);
    let differs = [
        ("kind", put.kind.is_some_and(|kind| kind != row.kind)),
        ("image", asked.image.is_some() && asked.image != spec.image),
        (
            "network.allow",
            asked.allow.as_ref().is_some_and(|hosts| sorted_hosts(hosts) != spec.network.allow),
        ),
        ("resources.cpus", asked.cpus.is_some_and(|cpus| cpus != spec.resources.cpus)),
        (
            "resources.memory",
            asked.memory_mib.is_some() && asked.memory_mib != memory_mib(&spec.resources.memory),
        ),
        ("storage", put.storage.is_some() && put.storage != spec.storage),
    ];
    differs.into_iter().find(|(_, differs)| *differs).map(|(field, _)| field)
}

fn made(tx: &mut dyn Tx, put: &PutSandbox) -> Result<SandboxResource, Refusal> {
    if tx.is_sandbox_removal(&put.id)? {
        let message = format!("The files of the deleted sandbox {} are still being removed", put.id);
        return Err(Refusal::sandbox_for_now(SandboxRefusal::Busy, message));
    }
    let config = settings::sandbox_config(tx)?;
    let kind = put.kind.unwrap_or_default();
    let mut problems: Vec<String> = Vec::new();
    for (field, sent) in [("storage", put.storage.is_some()), ("lifecycle", put.has_lifecycle)] {
        if sent {
            problems.push(format!("Only a sandbox of the kind pod has {field}."));
        }
    }
    let spec = resolve(&put.request, kind, &config).map_err(|found| problems.extend(found));
    let (Ok(spec), true) = (spec, problems.is_empty()) else { return Err(Refusal::problems(&problems)) };
    let max = config.limits.sandboxes;
    if tx.count_sandboxes()? >= max {
        let message = format!("The Tenant has its {max} sandboxes");
        return Err(Refusal::Limit { limit: "sandboxes", max, message });
    }
    let now = tx.now();
    let labels = put.labels.clone().unwrap_or_default();
    let row = SandboxResource { id: put.id.clone(), kind, spec, labels, created_at: now, updated_at: now };
    tx.insert_sandbox(&row)?;
    let payload = JsonText::of(&json!({"kind": kind.as_str(), "labels": row.labels}));
    tx.sandbox_event(&row.id, SandboxEventKind::Created, payload.as_str())?;
    Ok(row)
}

fn check_grant(id: &str, reach: &Reach) -> Result<(), Refusal> {
    if reach.grants(id) { Ok(()) } else { Err(Refusal::not_found("sandbox")) }
}

/// A sandbox within reach.
fn reachable(reads: &mut dyn Reads, id: &str, reach: &Reach) -> Result<SandboxResource, Refusal> {
    check_grant(id, reach)?;
    reads.sandbox(id)?.ok_or_else(|| Refusal::not_found("sandbox"))
}

/// One sandbox.
///
/// # Errors
/// 404 without it.
pub fn get(reads: &mut dyn Reads, id: &str, reach: &Reach) -> Result<Json, Refusal> {
    let row = reachable(reads, id, reach)?;
    let tenant = reads.tenant()?.id;
    Ok(view(reads, &tenant, &row, reach)?)
}

/// Sandboxes within reach that have all these labels, by id.
///
/// # Errors
/// The store's.
pub fn list(
    reads: &mut dyn Reads,
    labels: &[(String, String)],
    reach: &Reach,
    page: &Page,
) -> StoreResult<Vec<(String, Json)>> {
    let tenant = reads.tenant()?.id;
    let (mut out, mut page) = (Vec::new(), page.clone());
    // Labels and grants filter after a page was read, so pages are read until one is full.
    loop {
        let rows = reads.sandboxes(&page)?;
        let (read, last) = (rows.len(), rows.last().map(|row| row.id.clone()));
        for row in rows {
            if page.limit.is_some_and(|limit| out.len() == limit) {
                return Ok(out);
            }
            if reach.grants(&row.id) && has_labels(&row.labels, labels) {
                let shown = view(reads, &tenant, &row, reach)?;
                out.push((row.id, shown));
            }
        }
        match page.limit {
            Some(limit) if read == limit && out.len() < limit => page.after = last,
            _ => return Ok(out),
        }
    }
}

fn view(reads: &mut dyn Reads, tenant: &TenantId, row: &SandboxResource, reach: &Reach) -> StoreResult<Json> {
    let state =
        reads.workspace(&sandbox_key(tenant, &row.id))?.map_or("ready", |record| record.state.as_str());
    let sessions: Vec<Json> = reads
        .sessions_on_sandbox(&row.id)?
        .iter()
        .filter(|head| reach.includes(&head.owner_user_id, &head.agent_id))
        .map(|head| json!({"id": head.id.as_str(), "activeTurnId": head.active_turn_id.as_ref().map(|t| t.as_str())}))
        .collect();
    Ok(json!({
        "id": row.id,
        "kind": row.kind.as_str(),
        "labels": row.labels,
        "spec": row.spec.to_json(),
        "state": state,
        "sessions": sessions,
        "createdAt": row.created_at.to_iso(),
        "updatedAt": row.updated_at.to_iso(),
    }))
}

/// Events of a sandbox from `from` on, as JSON text. Whether it is there does not matter.
///
/// # Errors
/// 404 when it is out of reach.
pub fn events(
    reads: &mut dyn Reads,
    id: &str,
    from: i64,
    limit: usize,
    reach: &Reach,
) -> Result<Vec<Arc<str>>, Refusal> {
    check_grant(id, reach)?;
    Ok(reads.sandbox_events(id, from, limit)?)
}

/// Deletes a sandbox; whether it was there. Its files are to be removed after the commit.
///
/// # Errors
/// 409 `sandbox_busy` while a session has a turn in it; 404 out of reach.
pub fn delete(tx: &mut dyn Tx, id: &str, reach: &Reach) -> Result<bool, Refusal> {
    check_grant(id, reach)?;
    if tx.sandbox(id)?.is_none() {
        return Ok(false);
    }
    if !tx.busy_on_sandbox(id)?.is_empty() {
        let message = format!("A session has a turn in the sandbox {id}");
        return Err(Refusal::sandbox(SandboxRefusal::Busy, message));
    }
    tx.sandbox_event(id, SandboxEventKind::Deleted, "{}")?;
    tx.put_sandbox_removal(id)?;
    Ok(tx.delete_sandbox(id)?)
}

/// Stops or resets a sandbox, which only a pod can be.
///
/// # Errors
/// 404 without it, 400 for a virtual one.
pub fn stop_or_reset(reads: &mut dyn Reads, id: &str, reach: &Reach) -> Result<Json, Refusal> {
    let row = reachable(reads, id, reach)?;
    match row.kind {
        SandboxKind::Virtual => Err(Refusal::invalid(
            "A virtual sandbox is neither stopped nor reset: it stops by itself when it is idle",
        )),
        SandboxKind::Pod => {
            Err(require_pods(row.kind).err().unwrap_or_else(|| Refusal::not_found("sandbox")))
        }
    }
}

#[cfg(test)]
#[path = "sandboxes_tests.rs"]
mod tests;
