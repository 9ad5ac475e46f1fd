//! Threads for workspaces. What runs in a workspace ends in order, whichever arbiter or connection asked for it and is
//! gone, and the little that a manager writes by itself holds no actor up.

use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nylorun_actors::model::workspace::{
    BytesAnswer, ListAnswer, Removal, ToolOutcome, WorkspaceBytes, WorkspaceCall, WorkspaceList,
    WorkspaceRecord, WorkspaceReport,
};
use nylorun_actors::ports::engine::ApiError;
use nylorun_actors::ports::workspaces::{Claims, WorkspaceManager};
use tokio::runtime::{Builder, Handle, Runtime};

use super::manager::Manager;

/// How many: they wait for commands and move their output.
const THREADS: usize = 2;

/// The threads. They end with this.
pub struct Threads(Option<Runtime>);

impl Threads {
    /// Starts them.
    ///
    /// # Errors
    /// The system's.
    pub fn start() -> std::io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(THREADS).thread_name("sandboxes").enable_all();
        builder.build().map(|runtime| Self(Some(runtime)))
    }

    /// Where work is given to them.
    ///
    /// # Errors
    /// They have ended, which nobody who has them sees.
    pub fn handle(&self) -> std::io::Result<&Handle> {
        self.0.as_ref().map(Runtime::handle).ok_or_else(|| std::io::Error::other("the threads have ended"))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Whoever drops this may be a thread that must not wait.
            runtime.shutdown_background();
        }
    }
}

/// A manager whose work is done on the threads of its own.
pub struct OnThreads {
    inner: Manager,
    threads: Handle,
    /// They live as long as who uses them.
    _threads: Arc<Threads>,
}

impl OnThreads {
    /// Has a manager work there.
    ///
    /// # Errors
    /// The threads have ended.
    pub fn new(inner: Manager, threads: &Arc<Threads>) -> std::io::Result<Self> {
        Ok(Self { inner, threads: threads.handle()?.clone(), _threads: Arc::clone(threads) })
    }

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
