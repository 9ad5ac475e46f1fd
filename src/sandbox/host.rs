//! The workspaces of a harness in a process of its own: one manager for each Tenant that it serves
//! (spec: harness-api, section 16; sandbox, section 12).

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nylorun_actors::model::ids::TenantId;
use nylorun_actors::model::workspace::{
    BytesAnswer, ListAnswer, Removal, ToolOutcome, WorkspaceBytes, WorkspaceCall, WorkspaceList,
    WorkspaceRecord, WorkspaceReport,
};
use nylorun_actors::ports::clock::SystemClock;
use nylorun_actors::ports::engine::{ApiCode, ApiError};
use nylorun_actors::ports::workspaces::{Claims, WorkspaceManager};

use super::choice::{Choice, Means, Preference, Selection};
use super::docker::DockerMeans;
use super::manager::{Manager, Parts};
use super::threads::{OnThreads, Threads};
use crate::harness::workspaces::WorkspaceHost;

/// Workspaces below a folder, kept apart by what was found to work here.
pub struct SandboxHost {
    root: PathBuf,
    choice: Arc<Choice>,
    selection: Selection,
    threads: Arc<Threads>,
}

impl SandboxHost {
    /// Tries which backend works here.
    ///
    /// # Errors
    /// In words, when this program cannot be found again.
    pub async fn new(root: PathBuf, preference: Preference, docker: DockerMeans) -> Result<Self, String> {
        let program =
            super::helper::program().map_err(|error| format!("this program cannot be found: {error}"))?;
        let means = Means { docker, ..Means::new(program, root.clone()) };
        let choice = Arc::new(Choice::new(preference, means));
        let threads =
            Arc::new(Threads::start().map_err(|error| format!("no threads for workspaces: {error}"))?);
        let chosen = Arc::clone(&choice);
        let chosen = async move { chosen.selection().await.clone() };
        let selection = threads.handle().map_err(|error| error.to_string())?.spawn(chosen).await;
        let selection = selection.map_err(|error| error.to_string())?;
        if let Some(warning) = selection.backend.as_ref().and_then(|backend| backend.kind().warning()) {
            tracing::warn!("{warning}");
        }
        Ok(Self { root, choice, selection, threads })
    }

    /// What was found.
    #[must_use]
    pub fn selection(&self) -> &Selection {
        &self.selection
    }
}

impl WorkspaceHost for SandboxHost {
    fn backends(&self) -> Vec<String> {
        self.selection.report.backend.iter().cloned().collect()
    }

    fn open(&self, tenant: &TenantId, _preference: Option<&str>) -> Arc<dyn WorkspaceManager> {
        // `auto` and `virtual` both mean what was found here; an operator chooses among ours by this process's setting.
        let parts = Parts {
            tenant: tenant.clone(),
            root: self.root.clone(),
            choice: Arc::clone(&self.choice),
            clock: Arc::new(SystemClock),
        };
        match Manager::new(parts).and_then(|manager| OnThreads::new(manager, &self.threads)) {
            Ok(manager) => Arc::new(manager),
            Err(error) => {
                tracing::error!(root = %self.root.display(), %error, "workspaces cannot be kept there");
                Arc::new(Nowhere(format!("workspaces cannot be kept: {error}")))
            }
        }
    }
}

/// Stands where workspaces cannot be kept, and says why.
pub struct Nowhere(pub String);

impl Nowhere {
    fn error<T: Send + 'static>(&self) -> BoxFuture<'static, Result<T, ApiError>> {
        let error = ApiError::new(ApiCode::Internal, self.0.clone());
        async move { Err(error) }.boxed()
    }
}

impl WorkspaceManager for Nowhere {
    fn call(
        &self,
        _: WorkspaceCall,
        _: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<ToolOutcome, ApiError>> {
        let outcome = ToolOutcome::failed("sandbox.unavailable", self.0.clone());
        async move { Ok(outcome) }.boxed()
    }

    fn list(&self, _: WorkspaceList, _: Arc<dyn Claims>) -> BoxFuture<'static, Result<ListAnswer, ApiError>> {
        self.error()
    }

    fn bytes(
        &self,
        _: WorkspaceBytes,
        _: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<BytesAnswer, ApiError>> {
        self.error()
    }

    fn report(&self) -> BoxFuture<'static, WorkspaceReport> {
        let report = WorkspaceReport::none("auto", self.0.clone());
        async move { report }.boxed()
    }

    fn sweep(
        &self,
        _: Option<f64>,
        _: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<Vec<WorkspaceRecord>, ApiError>> {
        self.error()
    }

    fn remove(&self, _: Removal) -> BoxFuture<'static, Result<(), ApiError>> {
        self.error()
    }

    fn close(&self, _: Option<Arc<dyn Claims>>) -> BoxFuture<'static, ()> {
        async {}.boxed()
    }
}
