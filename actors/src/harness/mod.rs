//! HarnessActor: one for each connected harness, whatever its channel (spec: harness-api, sections 7 and 16).
//!
//! | File | Has |
//! |---|---|
//! | `mod.rs` | the actor: its runs, what core tells it |
//! | [`memory`] | the in-process channel: runs as tasks, values by reference |
//! | [`wire`], [`ordered`] | the channel of another process: frames; values and what must not overtake them |
//! | [`holds`] | the Actions that runs keep their lease and wait for |
//! | [`asked`], [`claim`] | what core asks of such a channel's peer, and what that peer claims |
//! | [`frame`], [`methods`] | the closed shapes of frames, params and results; both ends use them |
//! | [`resolved`] | outcomes that arrive for a held run; both ends use it |

mod asked;
mod claim;
pub mod frame;
mod holds;
mod memory;
mod memory_link;
pub mod methods;
mod ordered;
pub mod resolved;
pub mod wire;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use serde_json::json;

use self::memory::MemoryRun;
use self::wire::{FrameSink, Wire, WireRun};
use crate::limits::HARNESS_MAILBOX;
use crate::messages::Observe;
use crate::messages::harness::{
    CancelRun, Closed, DropRun, EffectResolved, GrantRefused, GrantRun, Heard, Hold, Incoming, Introduce,
    RunEnded, Unplaced,
};
use crate::messages::session::{Loss, RunLost};
use crate::model::Json;
use crate::model::ids::RunId;
use crate::supervisor::TenantSupervisor;
use crate::tenant::tree::{ChildGuard, Tree};

/// A connected harness.
pub struct HarnessActor {
    tree: Arc<Tree>,
    guard: ChildGuard,
    channel: Channel,
}

enum Channel {
    Memory { arbiter: usize, runs: HashMap<RunId, MemoryRun> },
    Wire { wire: Box<Wire>, runs: BTreeMap<RunId, WireRun> },
}

impl HarnessActor {
    /// The in-process harness of an arbiter.
    #[must_use]
    pub fn in_process(tree: Arc<Tree>, guard: ChildGuard, arbiter: usize) -> Self {
        Self { tree, guard, channel: Channel::Memory { arbiter, runs: HashMap::new() } }
    }

    /// A harness at the other end of a connection. `peer` names it in logs; `pod` is the sandbox whose engine it is.
    #[must_use]
    pub fn connected(
        tree: Arc<Tree>,
        guard: ChildGuard,
        sink: Box<dyn FrameSink>,
        peer: String,
        pod: Option<String>,
    ) -> Self {
        let wire = Box::new(Wire::new(sink, peer, pod));
        Self { tree, guard, channel: Channel::Wire { wire, runs: BTreeMap::new() } }
    }

    fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    fn generation(&self) -> u64 {
        self.guard.generation()
    }

    fn stops_in_order(&mut self) {
        self.guard.stops_in_order();
    }

    fn tell_supervisor<M>(&self, message: M)
    where
        M: Message + Send + 'static,
        M::Result: Send,
        TenantSupervisor: Handler<M>,
    {
        if let Some(supervisor) = self.tree.supervisor() {
            // Rare control: one for each hello and lease request, and a peer's requests are bounded.
            supervisor.do_send(message);
        }
    }

    fn memory_runs(&mut self) -> impl Iterator<Item = (&RunId, &mut MemoryRun)> {
        match &mut self.channel {
            Channel::Memory { runs, .. } => Some(runs.iter_mut()),
            Channel::Wire { .. } => None,
        }
        .into_iter()
        .flatten()
    }

    fn memory_run(&mut self, run: &RunId) -> Option<&mut MemoryRun> {
        match &mut self.channel {
            Channel::Memory { runs, .. } => runs.get_mut(run),
            Channel::Wire { .. } => None,
        }
    }

    fn wire_mut(&mut self) -> Option<&mut Wire> {
        match &mut self.channel {
            Channel::Wire { wire, .. } => Some(wire),
            Channel::Memory { .. } => None,
        }
    }

    fn pod(&self) -> Option<&str> {
        match &self.channel {
            Channel::Wire { wire, .. } => wire.pod.as_deref(),
            Channel::Memory { .. } => None,
        }
    }

    fn wire_run(&self, run: &RunId) -> Option<&WireRun> {
        match &self.channel {
            Channel::Wire { runs, .. } => runs.get(run),
            Channel::Memory { .. } => None,
        }
    }

    fn wire_run_mut(&mut self, run: &RunId) -> Option<&mut WireRun> {
        match &mut self.channel {
            Channel::Wire { runs, .. } => runs.get_mut(run),
            Channel::Memory { .. } => None,
        }
    }

    fn put_wire_run(&mut self, run: RunId, held: WireRun) {
        if let Channel::Wire { runs, .. } = &mut self.channel {
            runs.insert(run, held);
        }
    }

    fn drop_wire_run(&mut self, run: &RunId) -> Option<WireRun> {
        match &mut self.channel {
            Channel::Wire { runs, .. } => runs.remove(run),
            Channel::Memory { .. } => None,
        }
    }

    fn take_wire_runs(&mut self) -> BTreeMap<RunId, WireRun> {
        match &mut self.channel {
            Channel::Wire { runs, .. } => std::mem::take(runs),
            Channel::Memory { .. } => BTreeMap::new(),
        }
    }
}

impl Actor for HarnessActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(HARNESS_MAILBOX);
        match &self.channel {
            Channel::Memory { .. } => {
                let every = (self.tree.config.owner_lease_ms / 3).max(10);
                let every = Duration::from_millis(u64::try_from(every).unwrap_or(10));
                ctx.run_interval(every, Self::renew_memory_runs);
            }
            Channel::Wire { .. } => {
                let every = self.tree.config.harness_ping_ms.min(self.tree.config.harness_silence_ms).max(1);
                ctx.run_interval(Duration::from_millis(every), Self::check_liveness);
            }
        }
    }
}

impl Drop for HarnessActor {
    /// A connection's actor that dies by a panic takes its runs with it; in memory each run's own guard says so.
    fn drop(&mut self) {
        for (run, held) in self.take_wire_runs() {
            let why = "its connection's actor died".to_owned();
            held.session.do_send(RunLost { run, why, loss: Loss::Attempt, before: None });
        }
        let closing = self.tree.is_closing();
        if let Some(wire) = self.wire_mut() {
            let (code, reason) = if closing { (1001, "core is stopping") } else { (1011, "internal error") };
            wire.sink.close(code, reason);
        }
    }
}

impl Handler<GrantRun> for HarnessActor {
    type Result = Result<(), GrantRefused>;

    fn handle(&mut self, msg: GrantRun, ctx: &mut Self::Context) -> Self::Result {
        match &mut self.channel {
            Channel::Memory { runs, .. } => {
                let run = msg.grant.run_id.clone();
                runs.insert(run, MemoryRun::start(&self.tree, msg, ctx.address()));
                Ok(())
            }
            Channel::Wire { .. } => self.grant(msg, ctx),
        }
    }
}

impl Handler<CancelRun> for HarnessActor {
    type Result = ();

    fn handle(&mut self, msg: CancelRun, ctx: &mut Self::Context) {
        match &mut self.channel {
            Channel::Memory { runs, .. } => {
                if let Some(run) = runs.get(&msg.run) {
                    run.cancel(msg.abort);
                }
            }
            Channel::Wire { .. } => self.send_cancel(msg, ctx),
        }
    }
}

impl Handler<DropRun> for HarnessActor {
    type Result = ();

    fn handle(&mut self, msg: DropRun, _ctx: &mut Self::Context) {
        match &mut self.channel {
            Channel::Memory { runs, .. } => drop(runs.remove(&msg.run)),
            Channel::Wire { runs, .. } => drop(runs.remove(&msg.run)),
        }
    }
}

impl Handler<Hold> for HarnessActor {
    type Result = ();

    fn handle(&mut self, msg: Hold, _ctx: &mut Self::Context) {
        let holds = match &mut self.channel {
            Channel::Memory { runs, .. } => runs.get_mut(&msg.run).map(|run| &mut run.holds),
            Channel::Wire { runs, .. } => runs.get_mut(&msg.run).map(|run| &mut run.holds),
        };
        // A run that has ended since holds nothing.
        if let Some(holds) = holds {
            holds.begin(msg.effect);
        }
    }
}

impl Handler<EffectResolved> for HarnessActor {
    type Result = ();

    fn handle(&mut self, msg: EffectResolved, ctx: &mut Self::Context) {
        match &mut self.channel {
            Channel::Memory { runs, .. } => {
                if let Some(run) = runs.get_mut(&msg.run) {
                    run.resolve(msg.effect, msg.outcome);
                }
            }
            Channel::Wire { .. } => self.send_resolved(msg, ctx),
        }
    }
}

impl Handler<RunEnded> for HarnessActor {
    type Result = ();

    fn handle(&mut self, msg: RunEnded, _ctx: &mut Self::Context) {
        if let Channel::Memory { runs, .. } = &mut self.channel {
            runs.remove(&msg.run);
        }
    }
}

impl Handler<Introduce> for HarnessActor {
    type Result = ();

    fn handle(&mut self, _msg: Introduce, _ctx: &mut Self::Context) {
        self.introduce();
    }
}

impl Handler<Unplaced> for HarnessActor {
    type Result = ();

    fn handle(&mut self, msg: Unplaced, _ctx: &mut Self::Context) {
        self.park_again(msg.lease);
    }
}

impl Handler<Incoming> for HarnessActor {
    type Result = ();

    fn handle(&mut self, msg: Incoming, ctx: &mut Self::Context) {
        self.frame(&msg.text, msg.more, ctx);
    }
}

impl Handler<Heard> for HarnessActor {
    type Result = ();

    fn handle(&mut self, _msg: Heard, _ctx: &mut Self::Context) {
        self.heard();
    }
}

impl Handler<Closed> for HarnessActor {
    type Result = ();

    fn handle(&mut self, msg: Closed, ctx: &mut Self::Context) {
        self.end(msg.code, &msg.reason, ctx);
    }
}

impl Handler<Observe> for HarnessActor {
    type Result = MessageResult<Observe>;

    fn handle(&mut self, _msg: Observe, _ctx: &mut Self::Context) -> Self::Result {
        let (id, mut state, runs) = match &self.channel {
            Channel::Memory { arbiter, runs } => {
                let runs: Vec<Json> = runs
                    .iter()
                    .map(|(id, run)| {
                        let abort = run.aborted().map(crate::model::turn::AbortKind::as_str);
                        let holds = run.holds.observe();
                        json!({ "runId": id.as_str(), "sessionId": run.session_id, "abort": abort, "holds": holds })
                    })
                    .collect();
                let state = json!({ "channel": "memory", "arbiter": arbiter });
                (format!("in-process-{arbiter}"), state, runs)
            }
            Channel::Wire { wire, runs } => {
                let runs = runs
                    .iter()
                    .map(|(id, run)| {
                        let holds = run.holds.observe();
                        json!({ "runId": id.as_str(), "sessionId": run.session_id.as_str(), "holds": holds })
                    })
                    .collect();
                (format!("connection-{}", self.generation()), wire.observe(), runs)
            }
        };
        state["runs"] = Json::Array(runs);
        MessageResult(json!({ "kind": "harness", "id": id, "state": state }))
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
