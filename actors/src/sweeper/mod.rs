//! Sweeper: one; on a timer. It finds what no message brings: wakes left in the outbox, Actions that wait for
//! their endpoint, sessions that a dead worker left behind (spec: durability, sections 11.4 and 18).
//!
//! Each item stands alone: one that fails is counted and set aside, and neither stops the pass nor hides the rest.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use serde_json::json;
use tokio::time::Instant;

use crate::artifacts;
use crate::limits::{
    BLOB_SWEEP_EVERY_MS, SWEEP_BUDGET_MS, SWEEP_PAGE, WAKE_PARK_AFTER, WORKSPACE_SWEEP_EVERY_MS,
};
use crate::messages::Observe;
use crate::messages::supervisor::{NudgeEndpoints, WakeSessions};
use crate::messages::sweeper::Sweep;
use crate::model::ids::SessionId;
use crate::ports::store::StoreError;
use crate::rules::delivery;
use crate::tenant::tree::{ChildGuard, Tree};
use crate::workspaces::{self, Missing};

/// Age from which a wake that was never handed over is due, ms. The process that wrote it hands it over at once.
const WAKE_GRACE_MS: i64 = 30_000;
/// Pause before a failed hand-over is tried again, doubling up to ten minutes.
const WAKE_RETRY_MS: i64 = 5_000;
const WAKE_RETRY_MAX_MS: i64 = 600_000;
/// Time between two looks at orphans after the first pass, ms.
const ORPHANS_EVERY_MS: u64 = 10_000;

/// The sweeper of a Tenant.
pub struct Sweeper {
    tree: Arc<Tree>,
    /// Held for its `Drop`: the supervisor learns that the sweeper is gone.
    _guard: ChildGuard,
    passes: u64,
    sweeping: bool,
    orphans_from: Option<SessionId>,
    orphans_at: Option<Instant>,
    /// A sweep of workspaces is on its way; it may wait for harnesses, so the passes do not wait for it.
    sweeping_workspaces: bool,
    workspaces_at: Option<Instant>,
    missing: Arc<Missing>,
    /// A look for bytes that no artifact names is on its way.
    sweeping_blobs: bool,
    blobs_at: Option<Instant>,
    last_error: Option<String>,
}

/// What one pass did.
#[derive(Debug, Default)]
struct Pass {
    resume: Option<SessionId>,
    looked_for_orphans: bool,
    error: Option<String>,
}

impl Sweeper {
    /// The sweeper of a tree.
    #[must_use]
    pub fn new(tree: Arc<Tree>, guard: ChildGuard) -> Self {
        Self {
            tree,
            _guard: guard,
            passes: 0,
            sweeping: false,
            orphans_from: None,
            orphans_at: None,
            sweeping_workspaces: false,
            workspaces_at: None,
            missing: Arc::default(),
            sweeping_blobs: false,
            blobs_at: None,
            last_error: None,
        }
    }

    /// Sweeps workspaces now and then, beside the passes.
    fn sweep_workspaces(&mut self, ctx: &mut Context<Self>) {
        let every = Duration::from_millis(WORKSPACE_SWEEP_EVERY_MS);
        let began = *self.workspaces_at.get_or_insert_with(Instant::now);
        if self.sweeping_workspaces || began.elapsed() < every {
            return;
        }
        self.workspaces_at = Some(Instant::now());
        self.sweeping_workspaces = true;
        let (tree, missing) = (Arc::clone(&self.tree), Arc::clone(&self.missing));
        let swept = async move { workspaces::sweep(&tree, &missing).await };
        ctx.spawn(wrap_future::<_, Self>(swept).map(|swept, act, _| {
            act.sweeping_workspaces = false;
            if let Err(error) = swept {
                tracing::warn!(step = "workspaces", %error, "a sweep step failed");
                act.last_error = Some(format!("workspaces: {error}"));
            }
        }));
    }
}

impl Sweeper {
    /// Looks for bytes that no artifact names: at the start, then now and then, beside the passes.
    fn sweep_blobs(&mut self, ctx: &mut Context<Self>) {
        let every = Duration::from_millis(BLOB_SWEEP_EVERY_MS);
        if self.sweeping_blobs || self.blobs_at.is_some_and(|at| at.elapsed() < every) {
            return;
        }
        self.blobs_at = Some(Instant::now());
        self.sweeping_blobs = true;
        let artifacts = self.tree.artifacts().clone();
        let swept = async move { artifacts::sweep::run(&artifacts).await };
        ctx.spawn(wrap_future::<_, Self>(swept).map(|swept, act, _| {
            act.sweeping_blobs = false;
            match swept {
                Ok(0) => {}
                Ok(count) => tracing::info!(count, "bytes that no artifact names were removed"),
                Err(error) => {
                    tracing::warn!(step = "blobs", %error, "a sweep step failed");
                    act.last_error = Some(format!("blobs: {error}"));
                }
            }
        }));
    }
}

impl Actor for Sweeper {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.notify(Sweep);
    }
}

impl Handler<Sweep> for Sweeper {
    type Result = ();

    fn handle(&mut self, _msg: Sweep, ctx: &mut Self::Context) {
        if self.sweeping || self.tree.is_closing() {
            return;
        }
        self.sweep_workspaces(ctx);
        self.sweep_blobs(ctx);
        self.sweeping = true;
        let first = self.passes == 0;
        let due = self.orphans_at.is_none_or(|at| at.elapsed() >= Duration::from_millis(ORPHANS_EVERY_MS));
        let look_for_orphans = first || due || self.orphans_from.is_some();
        let pass = pass(Arc::clone(&self.tree), first, look_for_orphans, self.orphans_from.take());
        ctx.spawn(wrap_future::<_, Self>(pass).map(|pass, act, ctx| {
            act.sweeping = false;
            act.passes += 1;
            act.orphans_from = pass.resume;
            if pass.looked_for_orphans {
                act.orphans_at = Some(Instant::now());
            }
            act.last_error = pass.error;
            let pause = Duration::from_millis(act.tree.config.sweep_interval_ms.max(1));
            ctx.notify_later(Sweep, pause);
        }));
    }
}

/// One pass. Every step stands alone.
async fn pass(tree: Arc<Tree>, first: bool, orphans: bool, from: Option<SessionId>) -> Pass {
    let mut pass = Pass { looked_for_orphans: orphans, ..Pass::default() };
    if let Err(error) = wakes(&tree, first).await {
        tracing::warn!(step = "wakes", %error, "a sweep step failed");
        pass.error = Some(format!("wakes: {error}"));
    }
    if let Err(error) = deliveries(&tree).await {
        tracing::warn!(step = "deliveries", %error, "a sweep step failed");
        pass.error = Some(format!("deliveries: {error}"));
    }
    if orphans {
        match find_orphans(&tree, from).await {
            Ok(resume) => pass.resume = resume,
            Err(error) => {
                tracing::warn!(step = "orphans", %error, "a sweep step failed");
                pass.error = Some(format!("orphans: {error}"));
            }
        }
    }
    pass
}

/// Hands over wakes that are left in the outbox. The take that a wake leads to deletes it.
async fn wakes(tree: &Arc<Tree>, first: bool) -> Result<(), StoreError> {
    let grace = if first { 0 } else { WAKE_GRACE_MS };
    let began = Instant::now();
    let mut seen = HashSet::new();
    while i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX) < SWEEP_BUDGET_MS {
        let due = tree.ports.store.read(move |r| r.due_wakes(grace, SWEEP_PAGE)).await?;
        let fresh: Vec<_> = due.into_iter().filter(|w| seen.insert(w.id.clone())).collect();
        if fresh.is_empty() {
            break;
        }
        let sessions = fresh.iter().map(|w| w.session_id.clone()).collect();
        wake(tree, sessions).await;
        // Each hand-over counts as an attempt until the session's take removes the wake; one that is never removed
        // backs off and ends up with an operator.
        tree.ports
            .store
            .tx(move |tx| {
                for wake in &fresh {
                    let park = wake.attempts + 1 >= WAKE_PARK_AFTER;
                    let retry = WAKE_RETRY_MS.saturating_mul(1 << wake.attempts.min(16)).min(WAKE_RETRY_MAX_MS);
                    if park {
                        tracing::error!(session = %wake.session_id, wake = %wake.id, "a wake was parked: it never led to an advance");
                    }
                    tx.fail_wake(&wake.id, retry, park)?;
                }
                Ok::<_, StoreError>(())
            })
            .await?;
    }
    Ok(())
}

/// Has the endpoints look that have something to deliver, or a delivery that may be past its deadline.
async fn deliveries(tree: &Arc<Tree>) -> Result<(), StoreError> {
    let agents = tree.ports.store.read(|r| delivery::busy(r)).await?;
    if let (false, Some(supervisor)) = (agents.is_empty(), tree.supervisor()) {
        // A supervisor that is gone is started again, and the next pass finds the same endpoints.
        let _ = supervisor.send(NudgeEndpoints { agents }).await;
    }
    Ok(())
}

/// Wakes sessions that nobody works on, page by page; answers where the time ran out.
async fn find_orphans(tree: &Arc<Tree>, from: Option<SessionId>) -> Result<Option<SessionId>, StoreError> {
    let began = Instant::now();
    let mut after = from;
    loop {
        let (worker, alone) = (tree.config.worker.clone(), tree.ports.store.store().is_exclusive());
        let page = after.clone();
        let found =
            tree.ports.store.read(move |r| r.orphans(&worker, alone, page.as_ref(), SWEEP_PAGE)).await?;
        let (full, last) = (found.len() == SWEEP_PAGE, found.last().cloned());
        wake(tree, found).await;
        if !full {
            return Ok(None);
        }
        if i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX) >= SWEEP_BUDGET_MS {
            return Ok(last);
        }
        after = last;
    }
}

async fn wake(tree: &Arc<Tree>, sessions: Vec<SessionId>) {
    if sessions.is_empty() {
        return;
    }
    if let Some(supervisor) = tree.supervisor() {
        // A supervisor that is gone is started again, and the next pass finds the same sessions.
        let _ = supervisor.send(WakeSessions { sessions }).await;
    }
}

impl Handler<Observe> for Sweeper {
    type Result = MessageResult<Observe>;

    fn handle(&mut self, _msg: Observe, _ctx: &mut Self::Context) -> Self::Result {
        MessageResult(json!({
            "kind": "sweeper", "id": "sweeper",
            "state": {
                "passes": self.passes, "sweeping": self.sweeping, "lastError": self.last_error,
                "orphansResumeAfter": self.orphans_from.as_ref().map(SessionId::as_str),
            },
        }))
    }
}

#[cfg(any(test, feature = "testing"))]
impl Handler<crate::messages::Panic> for Sweeper {
    type Result = ();

    #[allow(clippy::panic)]
    fn handle(&mut self, _msg: crate::messages::Panic, _ctx: &mut Self::Context) {
        panic!("a test asked the sweeper to panic");
    }
}
