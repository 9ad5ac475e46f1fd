//! The workspaces of `nylorun serve`: the manager beside the in-process harness, below `<home>/sandboxes`
//! (spec: sandbox, sections 1, 10 and 11).
//!
//! It has threads of its own. What runs in a workspace then ends in order, whichever arbiter or connection asked for it
//! and is gone, and the little that a manager writes by itself holds nobody up. Nothing is tried before the Host is
//! ready: the backend is chosen behind its back, or by the first who needs it.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nylorun_actors::model::ids::TenantId;
use nylorun_actors::model::workspace::{
    BytesAnswer, ListAnswer, Removal, ToolOutcome, WorkspaceBytes, WorkspaceCall, WorkspaceList,
    WorkspaceRecord, WorkspaceReport,
};
use nylorun_actors::ports::clock::SystemClock;
use nylorun_actors::ports::engine::ApiError;
use nylorun_actors::ports::store::StoreHandle;
use nylorun_actors::ports::workspaces::{Claims, WorkspaceManager};
use nylorun_actors::rules::workspaces;
use nylorun_actors::tenant::Tenant;
use nylorun_actors::workspaces::local::RecordedClaims;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::sandbox::choice::{Choice, Means, Preference};
use crate::sandbox::docker::DockerMeans;
use crate::sandbox::host::Nowhere;
use crate::sandbox::manager::{Manager, Parts};

/// The folder of workspaces in the home.
pub const FOLDER: &str = "sandboxes";

/// Threads that wait for commands and move their output.
const THREADS: usize = 2;

/// How long workspaces may take to stop when the Host does. Their commands have been told to end before.
pub(crate) const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// The workspaces of this process.
pub struct Sandboxes {
    /// `None`: they cannot be kept, which every call is told.
    manager: Option<Manager>,
    served: Arc<dyn WorkspaceManager>,
    preference: Preference,
    store: StoreHandle,
    threads: Option<Runtime>,
}

impl Drop for Sandboxes {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            // Whoever drops this may be a thread that must not wait.
            threads.shutdown_background();
        }
    }
}

impl Sandboxes {
    /// Workspaces below a folder, which is made when it is not there. Where it cannot be, there are none, and the log
    /// and every call say why. Reads and makes folders.
    #[must_use]
    pub fn open(
        root: PathBuf,
        tenant: TenantId,
        preference: Preference,
        docker: DockerMeans,
        store: StoreHandle,
    ) -> Self {
        let opened = open(root.clone(), tenant, preference, docker);
        let (manager, served, threads) = match opened {
            Ok((manager, threads)) => {
                let inner = manager.clone();
                let served: Arc<dyn WorkspaceManager> =
                    Arc::new(OnThreads { inner, threads: threads.handle().clone() });
                (Some(manager), served, Some(threads))
            }
            Err(why) => {
                tracing::error!(root = %root.display(), why, "sandboxes cannot be kept there");
                let nowhere = Nowhere(format!("sandboxes cannot be kept: {why}"));
                (None, Arc::new(nowhere) as Arc<dyn WorkspaceManager>, None)
            }
        };
        Self { manager, served, preference, store, threads }
    }

    /// The manager, for whoever uses it.
    #[must_use]
    pub fn manager(&self) -> Arc<dyn WorkspaceManager> {
        Arc::clone(&self.served)
    }

    /// Once the Host is ready: sets the record straight after whatever end the process before had, then chooses the
    /// backend and tells the log.
    pub fn settle(&self, tenant: Tenant) {
        let (Some(manager), Some(threads)) = (self.manager.clone(), &self.threads) else { return };
        if let Preference::Only(kind) = self.preference
            && let Some(warning) = kind.warning()
        {
            tracing::warn!("{warning}");
        }
        let store = self.store.clone();
        threads.spawn(async move {
            match store.read(|reads| workspaces::all(reads)).await {
                Ok(known) => {
                    manager.adopt(known).await;
                    if let Err(error) = tenant.sweep_workspaces().await {
                        tracing::warn!(%error, "the sandboxes of the last run could not be looked at");
                    }
                }
                Err(error) => tracing::warn!(%error, "the record of sandboxes could not be read"),
            }
            let chosen = manager.selection().await;
            let reason = &chosen.report.reason;
            match &chosen.backend {
                Some(backend) => {
                    tracing::info!(backend = backend.kind().name(), reason, "sandboxes are served")
                }
                None => tracing::warn!(reason, "no sandboxes are served"),
            }
        });
    }

    /// Stops every workspace, within a bound; what is left is told by the next start.
    pub async fn close(self) {
        let claims: Arc<dyn Claims> = Arc::new(RecordedClaims(self.store.clone()));
        if tokio::time::timeout(CLOSE_WAIT, self.served.close(Some(claims))).await.is_err() {
            tracing::warn!("some sandboxes did not stop in time; their commands end with this process");
        }
    }
}

fn open(
    root: PathBuf,
    tenant: TenantId,
    preference: Preference,
    docker: DockerMeans,
) -> Result<(Manager, Runtime), String> {
    let program =
        crate::sandbox::helper::program().map_err(|error| format!("this program is not found: {error}"))?;
    let means = Means { docker, ..Means::new(program, root.clone()) };
    let choice = Arc::new(Choice::new(preference, means));
    let parts = Parts { tenant, root, choice, clock: Arc::new(SystemClock) };
    let manager = Manager::new(parts).map_err(|error| error.to_string())?;
    let threads = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("sandboxes")
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    Ok((manager, threads))
}

/// A manager whose work is done on the threads of its own.
struct OnThreads {
    inner: Manager,
    threads: Handle,
}

impl OnThreads {
    /// Has work begun there.
    fn on<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Manager) -> BoxFuture<'static, Result<T, ApiError>>,
    ) -> BoxFuture<'static, Result<T, ApiError>> {
        // A manager spawns its work where it is asked.
        let _here = self.threads.enter();
        work(&self.inner)
    }

    /// The same for what a manager does without a task of its own.
    fn spawned<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> BoxFuture<'static, Option<T>> {
        let task = self.threads.spawn(work);
        async move { task.await.ok() }.boxed()
    }
}

impl WorkspaceManager for OnThreads {
    fn call(
        &self,
        call: WorkspaceCall,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<ToolOutcome, ApiError>> {
        self.on(|manager| manager.call(call, claims))
    }

    fn list(
        &self,
        list: WorkspaceList,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<ListAnswer, ApiError>> {
        self.on(|manager| manager.list(list, claims))
    }

    fn bytes(
        &self,
        bytes: WorkspaceBytes,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<BytesAnswer, ApiError>> {
        self.on(|manager| manager.bytes(bytes, claims))
    }

    fn report(&self) -> BoxFuture<'static, WorkspaceReport> {
        let report = self.spawned(self.inner.report());
        async move { report.await.unwrap_or_else(|| WorkspaceReport::none("auto", "sandboxes are closing")) }
            .boxed()
    }

    fn sweep(
        &self,
        now: Option<f64>,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<Vec<WorkspaceRecord>, ApiError>> {
        self.on(|manager| WorkspaceManager::sweep(manager, now, claims))
    }

    fn remove(&self, what: Removal) -> BoxFuture<'static, Result<(), ApiError>> {
        self.on(|manager| WorkspaceManager::remove(manager, what))
    }

    fn close(&self, claims: Option<Arc<dyn Claims>>) -> BoxFuture<'static, ()> {
        self.spawned(self.inner.close(claims)).map(|_| ()).boxed()
    }
}
