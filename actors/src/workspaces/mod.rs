//! Workspaces as core reaches them (spec: sandbox, section 15; harness-api, section 15).
//!
//! | File | Has |
//! |---|---|
//! | [`local`] | those of this process: calls go to the manager that it was given |
//! | [`remote`] | those of connected harnesses: calls become requests of their connections |
//! | this file | which of the two a Tenant has, and the sweep over either |

pub mod local;
pub mod remote;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::limits::{SANDBOX_REMOVAL_MS, SWEEP_PAGE, WORKSPACE_AWAIT_MS};
use crate::model::Micros;
use crate::model::workspace::{Removal, sandbox_key};
use crate::ports::WorkspaceError;
use crate::ports::store::{Reads, StoreError};
use crate::ports::workspaces::{Swept, Workspaces};
use crate::rules::workspaces::{self as rules, Orphaned};
use crate::tenant::HarnessMode;
use crate::tenant::tree::Tree;

/// The workspaces of a Tenant: of this process where its harness is in it, else of connected harnesses.
#[must_use]
pub fn of(tree: &Arc<Tree>) -> Arc<dyn Workspaces> {
    match (tree.config.harness, &tree.ports.workspaces) {
        (HarnessMode::InProcess, Some(manager)) => {
            Arc::new(local::LocalWorkspaces::new(Arc::clone(manager), tree.ports.store.clone()))
        }
        _ => Arc::new(remote::RemoteWorkspaces::new(Arc::clone(tree))),
    }
}

/// What a sweep remembers from one pass to the next.
#[derive(Debug, Default)]
pub struct Missing(Mutex<HashMap<String, Instant>>);

impl Missing {
    /// Keys on record that have been nowhere for long enough to be given up.
    fn nowhere(&self, recorded: &HashSet<String>, there: &HashSet<&str>) -> Vec<String> {
        let now = Instant::now();
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.retain(|key, _| recorded.contains(key) && !there.contains(key.as_str()));
        for key in recorded.iter().filter(|key| !there.contains(key.as_str())) {
            since.entry(key.clone()).or_insert(now);
        }
        let long = Duration::from_millis(WORKSPACE_AWAIT_MS);
        let given_up = since.iter().filter(|(_, at)| now.duration_since(**at) >= long);
        let mut given_up: Vec<String> = given_up.map(|(key, _)| key.clone()).collect();
        given_up.sort_unstable();
        since.retain(|key, _| given_up.binary_search(key).is_err());
        given_up
    }
}

/// Removes the files of a deleted sandbox, after what runs in them, and what is on record of them. Dropping this leaves the
/// rest to the sweep.
///
/// # Errors
/// Whatever stopped it.
pub async fn remove_sandbox(tree: &Arc<Tree>, id: &str) -> Result<(), WorkspaceError> {
    of(tree).remove(Removal::sandbox(id)).await?;
    let id = id.to_owned();
    tree.ports.store.tx(move |tx| rules::removed_sandbox(tx, &id)).await?;
    Ok(())
}

/// Removes the files of sandboxes that were deleted and whose removal was cut short; answers which are done. One that
/// something still runs in waits for the next pass.
async fn removals(tree: &Arc<Tree>) -> Result<Vec<String>, WorkspaceError> {
    let waiting = tree.ports.store.read(|reads| reads.sandbox_removals(SWEEP_PAGE)).await?;
    let each = Duration::from_millis(SANDBOX_REMOVAL_MS);
    let removing = waiting.iter().map(|id| tokio::time::timeout(each, remove_sandbox(tree, id)));
    let mut done = Vec::new();
    for (removed, id) in join_all(removing).await.into_iter().zip(&waiting) {
        match removed {
            Ok(Ok(())) => done.push(id.clone()),
            Ok(Err(error)) => {
                tracing::warn!(sandbox = id, %error, "the files of a deleted sandbox are still there")
            }
            Err(_) => tracing::info!(sandbox = id, "something still runs in a deleted sandbox"),
        }
    }
    Ok(done)
}

/// One sweep: idle workspaces stop, those without an owner are removed and those that were not used for longer than they
/// are kept, the record follows what is there.
///
/// # Errors
/// Whatever stopped it; the next one begins anew.
pub async fn sweep(tree: &Arc<Tree>, missing: &Missing) -> Result<(), WorkspaceError> {
    let workspaces = of(tree);
    let Swept { records, complete } = workspaces.sweep().await?;
    if records.is_empty() && !complete {
        return Ok(());
    }
    let store = &tree.ports.store;
    let tenant = &tree.tenant;
    let kept_since = tree
        .config
        .workspace_max_age_ms
        .map(|ms| Micros(tree.ports.clock.now().0.saturating_sub(ms.saturating_mul(1_000))));
    let read = move |reads: &mut dyn Reads| {
        let gone = rules::without_owner(reads, &records)?;
        let unused = match kept_since {
            Some(since) => rules::unused_since(reads, &records, since)?,
            None => Vec::new(),
        };
        let recorded: HashSet<String> = rules::all(reads)?.into_iter().map(|record| record.key).collect();
        Ok::<_, StoreError>((records, gone, unused, recorded))
    };
    let (listed, Orphaned { keys: mut gone, sandboxes }, mut unused, recorded) = store.read(read).await?;
    if !gone.is_empty() {
        workspaces.remove(Removal::keys(gone.clone())).await?;
        tracing::info!(count = gone.len(), "workspaces without an owner were removed");
    }
    unused.retain(|record| !gone.contains(&record.key));
    if !unused.is_empty() {
        let keys: Vec<String> = unused.iter().map(|record| record.key.clone()).collect();
        workspaces.remove(Removal::keys(keys.clone())).await?;
        tracing::info!(count = keys.len(), "files of workspaces that nobody had used were removed");
        store.tx(move |tx| rules::removed_unused(tx, &unused)).await?;
        gone.extend(keys);
    }
    if !sandboxes.is_empty() {
        store.tx(move |tx| rules::note_removals(tx, &sandboxes)).await?;
    }
    gone.extend(removals(tree).await?.iter().map(|id| sandbox_key(tenant, id)));
    let there: HashSet<&str> = listed.iter().map(|record| record.key.as_str()).collect();
    // While somebody has not answered, what is missing may be theirs.
    let nowhere = if complete { missing.nowhere(&recorded, &there) } else { Vec::new() };
    if listed.is_empty() && nowhere.is_empty() {
        return Ok(());
    }
    store.tx(move |tx| rules::follow(tx, &listed, &gone, &nowhere)).await?;
    Ok(())
}
