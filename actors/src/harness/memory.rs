//! The channel of an in-process harness: a run is a task beside its session, values travel by reference.
//!
//! Each run is a task of its own, so that an engine that panics takes only its run with it.

use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::HarnessActor;
use super::holds::Holds;
use super::memory_link::MemoryLink;
use super::resolved::Resolved;
use crate::messages::harness::{GrantRun, RunEnded};
use crate::messages::session::{Before, Loss, Output, ReleaseRun, RenewLease, Report, RunLost};
use crate::model::effect::Outcome;
use crate::model::ids::{EffectId, RunId};
use crate::model::turn::{Abort, AbortKind};
use crate::ports::engine::{AbortSignal, ApiCode, EffectReport, RunEnd, RunLink};
use crate::ports::workspaces::RunWorkspaces;
use crate::session::SessionActor;
use crate::tenant::tree::Tree;
use crate::workspaces::local::RecordedClaims;

/// A run of an in-process harness.
pub(super) struct MemoryRun {
    pub(super) session: Addr<SessionActor>,
    pub(super) session_id: String,
    abort: watch::Sender<Option<Abort>>,
    resolved: Rc<Resolved>,
    task: JoinHandle<()>,
    renewing: bool,
    /// What it waits for.
    pub(super) holds: Holds,
}

impl Drop for MemoryRun {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Tells the session when a run's task ends without an output: a panic of the engine, or the harness's own end.
struct RunGuard {
    run: RunId,
    session: Addr<SessionActor>,
    harness: Addr<HarnessActor>,
    link: Rc<MemoryLink>,
    ended: bool,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        // One for each run: bounded by the runs there are.
        if !self.ended {
            let why = "its task ended without an output".to_owned();
            let before = self.link.take_deferred();
            let (run, loss) = (self.run.clone(), Loss::Attempt);
            self.session.do_send(RunLost { run, why, loss, before });
        }
        self.harness.do_send(RunEnded { run: self.run.clone() });
    }
}

impl MemoryRun {
    /// Starts a run's task.
    pub(super) fn start(tree: &Arc<Tree>, msg: GrantRun, harness: Addr<HarnessActor>) -> Self {
        let GrantRun { grant, start, session, .. } = msg;
        let session_id = grant.session_id.to_string();
        let (abort, signal) = AbortSignal::channel();
        let resolved = Rc::new(Resolved::default());
        let feeds = Arc::clone(&tree.feeds);
        // What happens in a workspace is recorded as it comes: it is of the workspace, whoever owns the session by then.
        let workspaces = tree.ports.workspaces.clone().map(|manager| RunWorkspaces {
            manager,
            claims: Arc::new(RecordedClaims(tree.ports.store.clone())),
        });
        let link = MemoryLink::new(&grant, session.clone(), signal, Rc::clone(&resolved), feeds, workspaces);
        let link = Rc::new(link);
        let engine = Arc::clone(&tree.ports.engine);
        let guard = RunGuard {
            run: grant.run_id.clone(),
            session: session.clone(),
            harness,
            link: Rc::clone(&link),
            ended: false,
        };
        let settles = session.clone();
        let task = tokio::task::spawn_local(async move {
            // Moved in whole: a closure that names only its field would copy that and drop the guard at once.
            let mut guard = guard;
            let shown: Rc<dyn RunLink> = link.clone();
            let end = engine.run(grant.clone(), start, shown).await;
            let before = link.take_deferred();
            match end {
                RunEnd::Output(output) => {
                    let answer = settles.send(Output { output, before }).await;
                    engine.settled(&grant, answer.ok().and_then(Result::ok).flatten());
                }
                RunEnd::Released(reason) => {
                    engine.settled(&grant, None);
                    if let Some(Before { effect, value }) = before {
                        let (run, report) = (grant.run_id.clone(), EffectReport::Value(value));
                        // A value in hand is kept for whoever resumes, if there is still somebody to take it.
                        let _ = settles.send(Report { run, effect, report }).await;
                    }
                    // A session whose actor is gone has released by its death.
                    let _ = settles.send(ReleaseRun { run: grant.run_id.clone(), reason }).await;
                }
            }
            guard.ended = true;
        });
        Self { session, session_id, abort, resolved, task, renewing: false, holds: Holds::default() }
    }

    /// The abort it was told, if any.
    pub(super) fn aborted(&self) -> Option<AbortKind> {
        self.abort.borrow().as_ref().map(|a| a.kind)
    }

    /// Tells it to stop.
    pub(super) fn cancel(&self, abort: Abort) {
        self.abort.send_replace(Some(abort));
    }

    /// Hands it an outcome that it may wait for.
    pub(super) fn resolve(&mut self, effect: EffectId, outcome: Outcome) {
        self.holds.end(&effect);
        self.resolved.put(effect, outcome);
    }

    fn lose(&self, message: &str) {
        self.cancel(Abort { kind: AbortKind::OwnershipLost, message: message.to_owned() });
    }
}

impl HarnessActor {
    /// Renews the lease of every run in this process: one renewal at a time, and none for a run that was told to stop.
    pub(super) fn renew_memory_runs(&mut self, ctx: &mut Context<Self>) {
        for (id, run) in self.memory_runs() {
            if run.renewing || run.aborted().is_some() {
                continue;
            }
            run.renewing = true;
            let id = id.clone();
            let asked = run.session.send(RenewLease { run: id.clone() });
            ctx.spawn(fut::wrap_future::<_, Self>(asked).map(move |answer, act, _| {
                let Some(run) = act.memory_run(&id) else { return };
                run.renewing = false;
                match answer {
                    Ok(Ok(true)) => {}
                    Ok(Ok(false)) => run.lose("the lease was lost"),
                    // Its output is in hand: then this is no news.
                    Ok(Err(error)) if error.code == ApiCode::RunNotHeld => {
                        tracing::debug!(run = %id, %error, "a lease was not renewed");
                    }
                    Ok(Err(error)) => tracing::warn!(run = %id, %error, "a lease was not renewed"),
                    Err(_) => run.lose("the session's actor is gone"),
                }
            }));
        }
    }
}
