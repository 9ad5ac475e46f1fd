//! The workspaces of `nylorun serve`: the manager beside the in-process harness, below `<home>/sandboxes`
//! (spec: sandbox, sections 1, 10 and 11).
//!
//! It has threads of its own. What runs in a workspace then ends in order, whichever arbiter or connection asked for it
//! and is gone, and the little that a manager writes by itself holds nobody up. Nothing is tried before the Host is
//! ready: the backend is chosen behind its back, or by the first who needs it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nylorun_actors::model::ids::TenantId;
use nylorun_actors::ports::clock::SystemClock;
use nylorun_actors::ports::store::StoreHandle;
use nylorun_actors::ports::workspaces::{Claims, WorkspaceManager};
use nylorun_actors::rules::workspaces;
use nylorun_actors::tenant::Tenant;
use nylorun_actors::workspaces::local::RecordedClaims;

use crate::sandbox::choice::{Choice, Means, Preference};
use crate::sandbox::docker::DockerMeans;
use crate::sandbox::host::Nowhere;
use crate::sandbox::manager::{Manager, Parts};
use crate::sandbox::threads::{OnThreads, Threads};

/// The folder of workspaces in the home.
pub const FOLDER: &str = "sandboxes";

/// How long workspaces may take to stop when the Host does. Their commands have been told to end before.
pub(crate) const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// The workspaces of this process.
pub struct Sandboxes {
    /// `None`: they cannot be kept, which every call is told.
    manager: Option<Manager>,
    served: Arc<dyn WorkspaceManager>,
    preference: Preference,
    store: StoreHandle,
    threads: Option<Arc<Threads>>,
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
            Ok((manager, served, threads)) => {
                (Some(manager), Arc::new(served) as Arc<dyn WorkspaceManager>, Some(threads))
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
        let threads = self.threads.as_ref().and_then(|threads| threads.handle().ok());
        let (Some(manager), Some(threads)) = (self.manager.clone(), threads) else { return };
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
) -> Result<(Manager, OnThreads, Arc<Threads>), String> {
    let program =
        crate::sandbox::helper::program().map_err(|error| format!("this program is not found: {error}"))?;
    let means = Means { docker, ..Means::new(program, root.clone()) };
    let choice = Arc::new(Choice::new(preference, means));
    let parts = Parts { tenant, root, choice, clock: Arc::new(SystemClock) };
    let manager = Manager::new(parts).map_err(|error| error.to_string())?;
    let threads = Arc::new(Threads::start().map_err(|error| error.to_string())?);
    let served = OnThreads::new(manager.clone(), &threads).map_err(|error| error.to_string())?;
    Ok((manager, served, threads))
}
