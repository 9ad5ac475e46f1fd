//! HarnessActor: one for each connected harness. This one is the in-process harness of an arbiter: its channel is
//! memory, its messages are those of a remote one (spec: harness-api, sections 7 and 16).
//!
//! Each run is a task of its own, so that an engine that panics takes only its run with it.

mod link;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::link::{MemoryLink, Resolved};
use crate::limits::HARNESS_MAILBOX;
use crate::messages::Observe;
use crate::messages::harness::{CancelRun, DropRun, EffectResolved, GrantRun, RunEnded};
use crate::messages::session::{Output, ReleaseRun, RenewLease, RunLost};
use crate::model::Json;
use crate::model::ids::RunId;
use crate::model::turn::{Abort, AbortKind};
use crate::ports::engine::{AbortSignal, RunEnd};
use crate::session::SessionActor;
use crate::tenant::tree::{ChildGuard, Tree};

/// The in-process harness of one arbiter.
pub struct HarnessActor {
    tree: Arc<Tree>,
    /// Held for its `Drop`: the supervisor learns that this harness is gone.
    _guard: ChildGuard,
    arbiter: usize,
    runs: HashMap<RunId, Run>,
}

struct Run {
    session: Addr<SessionActor>,
    session_id: String,
    abort: watch::Sender<Option<Abort>>,
    resolved: Rc<Resolved>,
    task: JoinHandle<()>,
    renewing: bool,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HarnessActor {
    /// The harness of an arbiter.
    #[must_use]
    pub fn new(tree: Arc<Tree>, guard: ChildGuard, arbiter: usize) -> Self {
        Self { tree, _guard: guard, arbiter, runs: HashMap::new() }
    }

    /// Time between two renewals of a lease of this length.
    fn renew_every(&self) -> Duration {
        let ms = (self.tree.config.owner_lease_ms / 3).max(10);
        Duration::from_millis(u64::try_from(ms).unwrap_or(10))
    }

    fn renew(&mut self, ctx: &mut Context<Self>) {
        for (id, run) in &mut self.runs {
            // One renewal at a time, and none for a run that was told to stop.
            if run.renewing || run.abort.borrow().is_some() {
                continue;
            }
            run.renewing = true;
            let id = id.clone();
            let asked = run.session.send(RenewLease { run: id.clone() });
            ctx.spawn(fut::wrap_future::<_, Self>(asked).map(move |answer, act, _| {
                let Some(run) = act.runs.get_mut(&id) else { return };
                run.renewing = false;
                match answer {
                    Ok(Ok(true)) => {}
                    Ok(Ok(false)) => {
                        let message = "the lease was lost".to_owned();
                        run.abort.send_replace(Some(Abort { kind: AbortKind::OwnershipLost, message }));
                    }
                    Ok(Err(error)) => tracing::warn!(run = %id, %error, "a lease was not renewed"),
                    Err(_) => {
                        let message = "the session's actor is gone".to_owned();
                        run.abort.send_replace(Some(Abort { kind: AbortKind::OwnershipLost, message }));
                    }
                }
            }));
        }
    }
}

impl Actor for HarnessActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(HARNESS_MAILBOX);
        ctx.run_interval(self.renew_every(), Self::renew);
    }
}

/// Tells the session when a run's task ends without an output: a panic of the engine, or the harness's own end.
struct RunGuard {
    run: RunId,
    session: Addr<SessionActor>,
    harness: Addr<HarnessActor>,
    ended: bool,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        // One for each run: bounded by the runs there are.
        if !self.ended {
            let why = "its task ended without an output".to_owned();
            self.session.do_send(RunLost { run: self.run.clone(), why });
        }
        self.harness.do_send(RunEnded { run: self.run.clone() });
    }
}

impl Handler<GrantRun> for HarnessActor {
    type Result = ();

    fn handle(&mut self, msg: GrantRun, ctx: &mut Self::Context) {
        let GrantRun { grant, start, session } = msg;
        let run = grant.run_id.clone();
        let session_id = grant.session_id.to_string();
        let (abort, signal) = AbortSignal::channel();
        let resolved = Rc::new(Resolved::default());
        let link = MemoryLink::new(
            run.clone(),
            grant.session_id.clone(),
            grant.turn_id.clone(),
            session.clone(),
            signal,
            Rc::clone(&resolved),
            Arc::clone(&self.tree.feeds),
        );
        let engine = Arc::clone(&self.tree.ports.engine);
        let guard =
            RunGuard { run: run.clone(), session: session.clone(), harness: ctx.address(), ended: false };
        let settles = session.clone();
        let task = async move {
            // Moved in whole: a closure that names only its field would copy that and drop the guard at once.
            let mut guard = guard;
            match engine.run(grant.clone(), start, Rc::new(link)).await {
                RunEnd::Output(output) => {
                    let answer = settles.send(Output { output }).await;
                    engine.settled(&grant, answer.ok().and_then(Result::ok).flatten());
                }
                RunEnd::Released(reason) => {
                    engine.settled(&grant, None);
                    // A session whose actor is gone has released by its death.
                    let _ = settles.send(ReleaseRun { run: grant.run_id.clone(), reason }).await;
                }
            }
            guard.ended = true;
        };
        let task = tokio::task::spawn_local(task);
        self.runs.insert(run, Run { session, session_id, abort, resolved, task, renewing: false });
    }
}

impl Handler<CancelRun> for HarnessActor {
    type Result = ();

    fn handle(&mut self, msg: CancelRun, _ctx: &mut Self::Context) {
        if let Some(run) = self.runs.get(&msg.run) {
            run.abort.send_replace(Some(msg.abort));
        }
    }
}

impl Handler<DropRun> for HarnessActor {
    type Result = ();

    fn handle(&mut self, msg: DropRun, _ctx: &mut Self::Context) {
        self.runs.remove(&msg.run);
    }
}

impl Handler<EffectResolved> for HarnessActor {
    type Result = ();

    fn handle(&mut self, msg: EffectResolved, _ctx: &mut Self::Context) {
        if let Some(run) = self.runs.get(&msg.run) {
            run.resolved.put(msg.effect, msg.outcome);
        }
    }
}

impl Handler<RunEnded> for HarnessActor {
    type Result = ();

    fn handle(&mut self, msg: RunEnded, _ctx: &mut Self::Context) {
        self.runs.remove(&msg.run);
    }
}

impl Handler<Observe> for HarnessActor {
    type Result = MessageResult<Observe>;

    fn handle(&mut self, _msg: Observe, _ctx: &mut Self::Context) -> Self::Result {
        let runs: Vec<Json> = self
            .runs
            .iter()
            .map(|(id, run)| {
                let abort = run.abort.borrow().as_ref().map(|a| a.kind.as_str());
                json!({ "runId": id.as_str(), "sessionId": run.session_id, "abort": abort })
            })
            .collect();
        MessageResult(json!({
            "kind": "harness", "id": format!("in-process-{}", self.arbiter),
            "state": { "channel": "memory", "arbiter": self.arbiter, "runs": runs },
        }))
    }
}

#[cfg(any(test, feature = "testing"))]
impl Handler<crate::messages::Panic> for HarnessActor {
    type Result = ();

    #[allow(clippy::panic)]
    fn handle(&mut self, _msg: crate::messages::Panic, _ctx: &mut Self::Context) {
        panic!("a test asked this harness to panic");
    }
}
