//! Workspaces in memory, for tests of whoever reaches them: files in a map, a command that is its own output, one
//! (`wait`) that runs until its call is given up, and one (`wait a second`) that does.

// These stand in for what a test would otherwise set up: they may panic.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;

use crate::model::Json;
use crate::model::ids::TenantId;
use crate::model::workspace::{
    BytesAnswer, Claim, ClaimKind, FileEntry, FileStamp, ListAnswer, Listing, Removal, Tool, ToolOutcome,
    WorkspaceBytes, WorkspaceCall, WorkspaceList, WorkspaceRecord, WorkspaceReport, WorkspaceSession,
    WorkspaceState, sandbox_key,
};
use crate::ports::engine::ApiError;
use crate::ports::workspaces::{Claims, WorkspaceManager};

/// Workspaces in memory.
pub struct FakeWorkspaces(Arc<Inner>);

struct Inner {
    tenant: TenantId,
    records: Mutex<BTreeMap<String, WorkspaceRecord>>,
    files: Mutex<BTreeMap<(String, String), File>>,
    /// Of files that were read for artifacts.
    reads: AtomicUsize,
    stamps: AtomicUsize,
    given_up: AtomicUsize,
    /// Held while something is removed.
    removals: Arc<tokio::sync::Mutex<()>>,
}

struct File {
    content: String,
    stamp: Option<FileStamp>,
}

impl File {
    fn new(content: &str) -> Self {
        Self { content: content.to_owned(), stamp: None }
    }
}

/// Counts a call that was dropped before it ended.
struct Running<'a>(&'a AtomicUsize, bool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl FakeWorkspaces {
    /// None yet, of this Tenant.
    #[must_use]
    pub fn of(tenant: TenantId) -> Arc<Self> {
        Arc::new(Self(Arc::new(Inner {
            tenant,
            records: Mutex::default(),
            files: Mutex::default(),
            reads: AtomicUsize::new(0),
            stamps: AtomicUsize::new(0),
            given_up: AtomicUsize::new(0),
            removals: Arc::default(),
        })))
    }

    /// Puts a file into a workspace, as a command in it would.
    pub fn put(&self, key: &str, path: &str, content: &str) {
        self.0.files.lock().unwrap().insert((key.to_owned(), path.to_owned()), File::new(content));
    }

    /// Removes a file.
    pub fn take(&self, key: &str, path: &str) {
        self.0.files.lock().unwrap().remove(&(key.to_owned(), path.to_owned()));
    }

    /// Time passes: files that have none get a stamp, which they keep until they are put again.
    pub fn settle(&self) {
        for file in self.0.files.lock().unwrap().values_mut().filter(|file| file.stamp.is_none()) {
            let changed = i64::try_from(self.0.stamps.fetch_add(1, Ordering::SeqCst)).unwrap();
            file.stamp = Some(FileStamp { device: 1, inode: 1, modified: 1, changed });
        }
    }

    /// Files whose bytes were read so far.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.0.reads.load(Ordering::SeqCst)
    }

    /// Calls that were given up.
    #[must_use]
    pub fn given_up(&self) -> usize {
        self.0.given_up.load(Ordering::SeqCst)
    }

    /// Removals wait until the answer is dropped, as behind a command that runs.
    pub async fn hold_removals(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.0.removals).lock_owned().await
    }

    /// Keys of the workspaces that are there.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.0.records.lock().unwrap().keys().cloned().collect()
    }
}

impl Inner {
    async fn open(&self, session: &WorkspaceSession, claims: &dyn Claims) -> String {
        let key = session.key(&self.tenant);
        for state in [WorkspaceState::Creating, WorkspaceState::Running] {
            let known = self.records.lock().unwrap().get(&key).map(|record| record.state);
            if known == Some(WorkspaceState::Running) {
                break;
            }
            let at = "2026-01-01T00:00:00.000Z".to_owned();
            let record = WorkspaceRecord {
                key: key.clone(),
                session_id: session.owner_id.clone(),
                sandbox_id: session.sandbox_id.clone(),
                backend: "virtual".to_owned(),
                image: "python:3.13-slim".to_owned(),
                state,
                created_at: at.clone(),
                updated_at: at,
            };
            self.records.lock().unwrap().insert(key.clone(), record.clone());
            let payload = json!({"state": state.as_str(), "backend": "virtual"});
            claims.claim(claim(session, ClaimKind::State, payload, Some(record))).await;
        }
        key
    }

    async fn run(&self, call: WorkspaceCall, claims: &dyn Claims) -> ToolOutcome {
        let key = self.open(&call.session, claims).await;
        let text = |name: &str| call.input[name].as_str().unwrap_or_default().to_owned();
        let outcome = match call.tool {
            Tool::Bash if text("command") == "wait" => std::future::pending().await,
            Tool::Bash if text("command") == "wait a second" => {
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                ToolOutcome::Completed { output: json!({"exitCode": 0, "stdout": "waited", "stderr": ""}) }
            }
            Tool::Bash => ToolOutcome::Completed {
                output: json!({"exitCode": 0, "stdout": text("command"), "stderr": ""}),
            },
            Tool::Write => {
                let (path, content) = (text("path"), text("content"));
                let output = json!({"path": path, "bytes": content.len()});
                self.files.lock().unwrap().insert((key, path), File::new(&content));
                ToolOutcome::Completed { output }
            }
            Tool::Read => match self.files.lock().unwrap().get(&(key, text("path"))) {
                Some(file) => ToolOutcome::Completed { output: json!(file.content) },
                None => ToolOutcome::failed("sandbox.not_found", "no such file"),
            },
            Tool::Edit | Tool::Grep | Tool::Glob => ToolOutcome::failed("sandbox.unsupported", "not here"),
        };
        let said = if matches!(outcome, ToolOutcome::Completed { .. }) { "completed" } else { "failed" };
        let payload = json!({"tool": call.tool.as_str(), "outcome": said, "durationMs": 1});
        claims.claim(claim(&call.session, ClaimKind::Exec, payload, None)).await;
        outcome
    }
}

fn claim(
    session: &WorkspaceSession,
    kind: ClaimKind,
    payload: Json,
    record: Option<WorkspaceRecord>,
) -> Claim {
    let (session_id, turn_id) = (session.owner_id.clone(), session.active_turn_id.clone());
    Claim { run_id: None, session_id, turn_id, kind, payload, record }
}

impl WorkspaceManager for FakeWorkspaces {
    fn call(
        &self,
        call: WorkspaceCall,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<ToolOutcome, ApiError>> {
        let inner = Arc::clone(&self.0);
        async move {
            let mut running = Running(&inner.given_up, false);
            let outcome = inner.run(call, &*claims).await;
            running.1 = true;
            Ok(outcome)
        }
        .boxed()
    }

    fn list(
        &self,
        list: WorkspaceList,
        _claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<ListAnswer, ApiError>> {
        let key = list.session.key(&self.0.tenant);
        let files = self.0.files.lock().unwrap();
        let below = format!("{}/", list.list.dir);
        let entries = files.iter().filter(|((of, _), _)| *of == key).filter_map(|((_, path), file)| {
            let path = path.strip_prefix(&below)?.to_owned();
            Some(FileEntry { path, size: file.content.len() as u64, stamp: file.stamp })
        });
        let most = usize::try_from(list.list.max_entries).unwrap_or(usize::MAX);
        let mut entries: Vec<FileEntry> = entries.collect();
        let truncated = entries.len() > most;
        entries.truncate(most);
        let path = list.list.dir;
        let answer = if entries.is_empty() {
            ListAnswer::Missing { path }
        } else {
            ListAnswer::Listed { path, listing: Listing { entries, truncated } }
        };
        async move { Ok(answer) }.boxed()
    }

    fn bytes(
        &self,
        bytes: WorkspaceBytes,
        _claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<BytesAnswer, ApiError>> {
        let (key, path) = (bytes.session.key(&self.0.tenant), bytes.bytes.path);
        let most = usize::try_from(bytes.bytes.max_bytes).unwrap_or(usize::MAX);
        self.0.reads.fetch_add(1, Ordering::SeqCst);
        let files = self.0.files.lock().unwrap();
        let found = files.get(&(key, path.clone())).map(|file| file.content.clone());
        async move {
            Ok(match found {
                Some(text) if text.len() > most => {
                    let message = format!("{path} has more than {most} bytes.");
                    BytesAnswer::Failed { code: "artifact.too_large".to_owned(), message }
                }
                Some(text) => BytesAnswer::Read { path, base64: STANDARD.encode(text) },
                None => BytesAnswer::Missing { path },
            })
        }
        .boxed()
    }

    fn report(&self) -> BoxFuture<'static, WorkspaceReport> {
        let mut report = WorkspaceReport::none("auto", "in memory, for tests");
        report.backend = Some("virtual".to_owned());
        report.isolation = Some("process".to_owned());
        async move { report }.boxed()
    }

    fn sweep(
        &self,
        _now: Option<f64>,
        _claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<Vec<WorkspaceRecord>, ApiError>> {
        let records = self.0.records.lock().unwrap().values().cloned().collect();
        async move { Ok(records) }.boxed()
    }

    fn remove(&self, what: Removal) -> BoxFuture<'static, Result<(), ApiError>> {
        let of_sandboxes = what.sandbox_ids.iter().flatten().map(|id| sandbox_key(&self.0.tenant, id));
        let keys: Vec<String> = what.keys.iter().flatten().cloned().chain(of_sandboxes).collect();
        let inner = Arc::clone(&self.0);
        async move {
            let _turn = inner.removals.lock().await;
            let stays = |key: &String| !what.all && !keys.contains(key);
            inner.records.lock().unwrap().retain(|key, _| stays(key));
            inner.files.lock().unwrap().retain(|(key, _), _| stays(key));
            Ok(())
        }
        .boxed()
    }

    fn close(&self, _claims: Option<Arc<dyn Claims>>) -> BoxFuture<'static, ()> {
        async {}.boxed()
    }
}
