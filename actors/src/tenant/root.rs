//! What stands above the TenantSupervisor: the arbiters, and the task that starts a successor when it dies.

use std::sync::{Arc, Mutex, PoisonError};

use actix::prelude::*;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::tree::Tree;
use crate::supervisor::TenantSupervisor;

/// The arbiters of a tree and the watch over its supervisor.
pub(super) struct Root {
    arbiters: Mutex<Vec<Arbiter>>,
    watch: Mutex<Option<JoinHandle<()>>>,
}

impl Root {
    /// Starts arbiters (none when the configuration says 0: everything lives on this one) and the supervisor.
    pub(super) fn start(tree: Arc<Tree>) -> Arc<Self> {
        let arbiters: Vec<Arbiter> = (0..tree.config.arbiters).map(|_| Arbiter::new()).collect();
        let handles = Arc::new(arbiters.iter().map(Arbiter::handle).collect::<Vec<ArbiterHandle>>());
        let alive = launch(&tree, &handles);
        let watch = actix::spawn(watch(tree, handles, alive));
        Arc::new(Self { arbiters: Mutex::new(arbiters), watch: Mutex::new(Some(watch)) })
    }

    /// Stops the arbiters with everything on them.
    pub(super) fn stop(&self) {
        if let Some(watch) = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take() {
            watch.abort();
        }
        for arbiter in self.arbiters.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            arbiter.stop();
        }
    }
}

fn launch(tree: &Arc<Tree>, arbiters: &Arc<Vec<ArbiterHandle>>) -> oneshot::Receiver<()> {
    let (alive, gone) = oneshot::channel();
    let addr = TenantSupervisor::new(Arc::clone(tree), Arc::clone(arbiters), alive).start();
    // Also set here: the actor itself starts a moment later, and callers may come before that.
    tree.set_supervisor(addr);
    gone
}

/// Starts a successor whenever a supervisor dies. Its children live on: the directory is shared.
async fn watch(tree: Arc<Tree>, arbiters: Arc<Vec<ArbiterHandle>>, mut alive: oneshot::Receiver<()>) {
    loop {
        // The sender is never used: it is dropped with its actor.
        let _ = (&mut alive).await;
        if tree.is_closing() {
            return;
        }
        tracing::error!("the TenantSupervisor died and is started again");
        alive = launch(&tree, &arbiters);
    }
}
