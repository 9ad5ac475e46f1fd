//! Whose workspace a session uses, whether its owner is still there, and how the record of workspaces follows what is
//! there (spec: sandbox, sections 3, 10, 15; harness-api, section 15).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::event::write;
use crate::model::Micros;
use crate::model::event::EventKind;
use crate::model::ids::{SessionId, TenantId, TurnId};
use crate::model::json::Json;
use crate::model::sandbox::SandboxKind;
use crate::model::sandbox::capability::declared;
use crate::model::session::SessionHead;
use crate::model::workspace::{
    Claim, ClaimKind, WorkspaceRecord, WorkspaceSession, WorkspaceState, key_prefix, sandbox_key,
};
use crate::ports::store::{Reads, StoreError, StoreResult, Tx};
use crate::ports::workspaces::WorkspaceOf;

/// Longest chain of sessions that share one workspace: nobody builds one, and a cycle must end.
const LONGEST_CHAIN: usize = 64;
/// Longest key of a workspace.
const KEY_CHARS: usize = 512;
/// Records of one read.
const PAGE: usize = 500;

/// What a tool route asks of a session before anything else.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionWorkspace {
    /// Its turn in progress.
    pub active_turn: Option<TurnId>,
    /// Its workspace, if it was opened with a sandbox.
    pub workspace: Option<WorkspaceOf>,
    /// Whether that is of a sandbox resource that is no more.
    pub deleted: bool,
    /// The sandbox resource that it is of, while a turn of another session is in it.
    pub busy: Option<String>,
}

/// A session's workspace. `None`: no such session.
///
/// # Errors
/// The store's.
pub fn of_session(reads: &mut dyn Reads, id: &SessionId) -> StoreResult<Option<SessionWorkspace>> {
    let Some(head) = reads.session(id)? else { return Ok(None) };
    let active_turn = head.active_turn_id.clone();
    let Some(spec) = spec_of(reads, &head)? else {
        return Ok(Some(SessionWorkspace { active_turn, workspace: None, deleted: false, busy: None }));
    };
    let (owner_id, sandbox_id) = owner(reads, id)?;
    let resource = match &sandbox_id {
        Some(sandbox) => reads.sandbox(sandbox)?,
        None => None,
    };
    let deleted = sandbox_id.is_some() && resource.is_none();
    let mut busy = None;
    if let Some(resource) = &resource
        && reads.busy_on_sandbox(&resource.id)?.iter().any(|other| other != id)
    {
        busy = Some(resource.id.clone());
    }
    let pod = resource.filter(|resource| resource.kind == SandboxKind::Pod).map(|resource| resource.id);
    let session = WorkspaceSession { owner_id, sandbox_id, active_turn_id: active_turn.clone() };
    let workspace = Some(WorkspaceOf { session, spec, pod });
    Ok(Some(SessionWorkspace { active_turn, workspace, deleted, busy }))
}

/// The spec of a session: what it pinned, else what its manifest declares itself, as some older ones do.
///
/// # Errors
/// The store's; [`StoreError::Corrupt`] for a document that does not parse.
pub fn spec_of(reads: &mut dyn Reads, head: &SessionHead) -> StoreResult<Option<Json>> {
    let odd = |e: serde_json::Error| StoreError::Corrupt(format!("the sandbox of {}: {e}", head.id));
    if let Some(spec) = reads.session_pin(&head.id)?.and_then(|pin| pin.sandbox) {
        return spec.decode().map(Some).map_err(odd);
    }
    let Some(manifest) = reads.manifest(&head.manifest_hash)? else { return Ok(None) };
    let manifest: Json = manifest.decode().map_err(odd)?;
    Ok(declared(&manifest).cloned())
}

/// The session at the end of the chain of owners, and the sandbox resource that it is attached to. A cycle, or an owner
/// that is gone, leaves the session on its own.
///
/// # Errors
/// The store's.
pub fn owner(reads: &mut dyn Reads, id: &SessionId) -> StoreResult<(SessionId, Option<String>)> {
    let mut at = id.clone();
    for _ in 0..LONGEST_CHAIN {
        let next = reads.session_pin(&at)?.and_then(|pin| pin.sandbox_owner_id);
        match next.filter(|next| *next != at) {
            None => {
                let sandbox = reads.session(&at)?.and_then(|head| head.sandbox_id);
                return Ok((at, sandbox));
            }
            Some(next) if reads.session(&next)?.is_none() => return Ok((next, None)),
            Some(next) => at = next,
        }
    }
    let sandbox = reads.session(id)?.and_then(|head| head.sandbox_id);
    Ok((id.clone(), sandbox))
}

/// Whether a claim's record may be taken: it comes with the right claim, names the claim's session and a workspace of
/// this Tenant, and from a pod's engine its own (spec: harness-api, section 15.4).
///
/// # Errors
/// What is wrong, in words.
pub fn check_record(tenant: &TenantId, claim: &Claim, pod: Option<&str>) -> Result<(), &'static str> {
    let Some(record) = &claim.record else { return Ok(()) };
    if claim.kind != ClaimKind::State {
        return Err("a record comes only with sandbox.state");
    }
    if record.session_id != claim.session_id {
        return Err("the record names another session than the claim");
    }
    if !record.key.starts_with(&key_prefix(tenant)) || record.key.chars().count() > KEY_CHARS {
        return Err("the record's key is none of this Tenant's");
    }
    match pod {
        Some(pod) if record.key != sandbox_key(tenant, pod) => {
            Err("a pod's engine claims its own workspace only")
        }
        _ => Ok(()),
    }
}

/// Workspaces whose owner is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphaned {
    /// Keys of those of sessions.
    pub keys: Vec<String>,
    /// Sandbox resources that are no more.
    pub sandboxes: Vec<String>,
}

/// Finds them. The workspace of a sandbox resource is the resource's, whichever session's log has its events.
///
/// # Errors
/// The store's.
pub fn without_owner(reads: &mut dyn Reads, records: &[WorkspaceRecord]) -> StoreResult<Orphaned> {
    let mut gone = Orphaned::default();
    for record in records {
        match &record.sandbox_id {
            Some(id) if reads.sandbox(id)?.is_none() => gone.sandboxes.push(id.clone()),
            None if reads.session(&record.session_id)?.is_none() => gone.keys.push(record.key.clone()),
            _ => {}
        }
    }
    Ok(gone)
}

/// Workspaces that have stopped and were not used since an instant, and in which no session has a turn: one that waits
/// for somebody has its files as long as it waits. A record whose time cannot be read is none.
///
/// # Errors
/// The store's.
pub fn unused_since(
    reads: &mut dyn Reads,
    records: &[WorkspaceRecord],
    since: Micros,
) -> StoreResult<Vec<WorkspaceRecord>> {
    let mut unused = Vec::new();
    for record in records.iter().filter(|record| record.state == WorkspaceState::Stopped) {
        let old = Micros::from_iso(&record.updated_at).is_some_and(|used| used < since);
        if old && !in_turn(reads, record)? {
            unused.push(record.clone());
        }
    }
    Ok(unused)
}

fn in_turn(reads: &mut dyn Reads, record: &WorkspaceRecord) -> StoreResult<bool> {
    if let Some(sandbox) = &record.sandbox_id {
        return Ok(!reads.busy_on_sandbox(sandbox)?.is_empty());
    }
    let owner = reads.session(&record.session_id)?;
    Ok(owner.is_some_and(|head| head.active_turn_id.is_some())
        || !reads.busy_sharing(&record.session_id)?.is_empty())
}

/// The files of workspaces that nobody has used were removed: nothing is on record of them, and their sessions say so.
///
/// # Errors
/// The store's.
pub fn removed_unused(tx: &mut dyn Tx, removed: &[WorkspaceRecord]) -> StoreResult<()> {
    for record in removed {
        tx.delete_workspace(&record.key)?;
        if tx.session(&record.session_id)?.is_some() {
            let payload = json!({
                "state": WorkspaceState::Stopped.as_str(),
                "backend": record.backend,
                "note": "its files were removed, since nobody had used them for a long time",
            });
            let payload = payload.as_object().cloned().unwrap_or_default();
            write(tx, &record.session_id, None, EventKind::SandboxState, &payload)?;
        }
    }
    Ok(())
}

/// Notes that the files of sandboxes are to be removed, unless one was made again meanwhile. From here on none is, until
/// they are.
///
/// # Errors
/// The store's.
pub fn note_removals(tx: &mut dyn Tx, sandboxes: &[String]) -> StoreResult<()> {
    for id in sandboxes {
        if tx.sandbox(id)?.is_none() {
            tx.put_sandbox_removal(id)?;
        }
    }
    Ok(())
}

/// The files of a deleted sandbox are removed, so its workspace is on record no more.
///
/// # Errors
/// The store's.
pub fn removed_sandbox(tx: &mut dyn Tx, id: &str) -> StoreResult<()> {
    let key = sandbox_key(&tx.tenant()?.id, id);
    tx.delete_workspace(&key)?;
    tx.delete_sandbox_removal(id)
}

/// Every record.
///
/// # Errors
/// The store's.
pub fn all(reads: &mut dyn Reads) -> StoreResult<Vec<WorkspaceRecord>> {
    let mut records: Vec<WorkspaceRecord> = Vec::new();
    loop {
        let after = records.last().map(|record| record.key.clone());
        let page = reads.workspaces(after.as_deref(), PAGE)?;
        let full = page.len() == PAGE;
        records.extend(page);
        if !full {
            return Ok(records);
        }
    }
}

/// Makes the record follow what a sweep has found: `listed` are there, `removed` and `nowhere` are not.
///
/// # Errors
/// The store's.
pub fn follow(
    tx: &mut dyn Tx,
    listed: &[WorkspaceRecord],
    removed: &[String],
    nowhere: &[String],
) -> StoreResult<()> {
    let removed: BTreeSet<&str> = removed.iter().chain(nowhere).map(String::as_str).collect();
    let mut newest: BTreeMap<&str, &WorkspaceRecord> = BTreeMap::new();
    for record in listed.iter().filter(|record| !removed.contains(record.key.as_str())) {
        let known = newest.entry(&record.key).or_insert(record);
        if known.updated_at < record.updated_at {
            *known = record;
        }
    }
    for (key, record) in newest {
        // A claim that came since the list was made knows more.
        let known = tx.workspace(key)?;
        if known.is_none_or(|known| known.state != record.state && known.updated_at <= record.updated_at) {
            tx.put_workspace(record)?;
        }
    }
    for key in removed {
        tx.delete_workspace(key)?;
    }
    Ok(())
}
