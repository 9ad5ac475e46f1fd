//! Workspaces of this process: every call goes to the manager, and what it claims goes into the record.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::model::Json;
use crate::model::workspace::{
    BytesAnswer, BytesOf, Claim, FilesOf, ListAnswer, Removal, Tool, ToolOutcome, WorkspaceBytes,
    WorkspaceCall, WorkspaceList, WorkspaceReport,
};
use crate::ports::WorkspaceError;
use crate::ports::store::{StoreError, StoreHandle};
use crate::ports::workspaces::{Claims, Swept, WorkspaceManager, WorkspaceOf, Workspaces};
use crate::rules::claims;

/// Workspaces of a manager in this process.
pub struct LocalWorkspaces {
    manager: Arc<dyn WorkspaceManager>,
    claims: Arc<dyn Claims>,
}

impl LocalWorkspaces {
    /// Over a manager; claims go to the store.
    #[must_use]
    pub fn new(manager: Arc<dyn WorkspaceManager>, store: StoreHandle) -> Self {
        Self { manager, claims: Arc::new(RecordedClaims(store)) }
    }
}

/// Claims that are recorded as they come.
pub struct RecordedClaims(pub StoreHandle);

impl Claims for RecordedClaims {
    fn claim(&self, claim: Claim) -> BoxFuture<'static, ()> {
        let store = self.0.clone();
        async move {
            let session = claim.session_id.clone();
            let recorded: Result<(), StoreError> = store.tx(move |tx| claims::record(tx, &claim)).await;
            if let Err(error) = recorded {
                tracing::warn!(%session, %error, "a workspace's claim was not recorded");
            }
        }
        .boxed()
    }
}

impl Workspaces for LocalWorkspaces {
    fn call(
        &self,
        of: WorkspaceOf,
        tool: Tool,
        input: Json,
    ) -> BoxFuture<'static, Result<ToolOutcome, WorkspaceError>> {
        if of.pod.is_some() {
            return async { Err(WorkspaceError::PodAway) }.boxed();
        }
        let call = WorkspaceCall { session: of.session, spec: of.spec, tool, input };
        self.manager.call(call, Arc::clone(&self.claims)).map(|r| r.map_err(Into::into)).boxed()
    }

    fn list(
        &self,
        of: WorkspaceOf,
        files: FilesOf,
    ) -> BoxFuture<'static, Result<ListAnswer, WorkspaceError>> {
        if of.pod.is_some() {
            return async move { Ok(ListAnswer::Missing { path: files.dir }) }.boxed();
        }
        let list = WorkspaceList { session: of.session, spec: of.spec, list: files };
        self.manager.list(list, Arc::clone(&self.claims)).map(|r| r.map_err(Into::into)).boxed()
    }

    fn bytes(
        &self,
        of: WorkspaceOf,
        file: BytesOf,
    ) -> BoxFuture<'static, Result<BytesAnswer, WorkspaceError>> {
        if of.pod.is_some() {
            return async { Err(WorkspaceError::PodAway) }.boxed();
        }
        let bytes = WorkspaceBytes { session: of.session, spec: of.spec, bytes: file };
        self.manager.bytes(bytes, Arc::clone(&self.claims)).map(|r| r.map_err(Into::into)).boxed()
    }

    fn report(&self) -> BoxFuture<'static, WorkspaceReport> {
        self.manager.report()
    }

    fn sweep(&self) -> BoxFuture<'static, Result<Swept, WorkspaceError>> {
        let swept = self.manager.sweep(None, Arc::clone(&self.claims));
        async move { Ok(Swept { records: swept.await?, complete: true }) }.boxed()
    }

    fn remove(&self, what: Removal) -> BoxFuture<'static, Result<(), WorkspaceError>> {
        self.manager.remove(what).map(|r| r.map_err(Into::into)).boxed()
    }
}
