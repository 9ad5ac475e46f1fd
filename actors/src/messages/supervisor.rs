//! What the [`TenantSupervisor`](crate::supervisor::TenantSupervisor) is told.

use actix::{Addr, Message};
use tokio::sync::oneshot;

use crate::endpoint::EndpointActor;
use crate::harness::HarnessActor;
use crate::harness::wire::FrameSink;
use crate::model::Json;
use crate::model::ids::{AgentId, SessionId};
use crate::session::SessionActor;
use crate::supervisor::Placement;

/// Which child.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Child {
    /// A session's actor.
    Session(SessionId),
    /// The in-process harness of an arbiter.
    Harness(usize),
    /// A connected harness; its generation tells it apart.
    Connection,
    /// The endpoint of an agent.
    Endpoint(AgentId),
    /// The sweeper.
    Sweeper,
}

/// A session is needed: find its actor or start one.
#[derive(Debug, Message)]
#[rtype(result = "Option<Addr<SessionActor>>")]
pub struct StartSession {
    /// Which.
    pub id: SessionId,
}

/// An agent's endpoint is needed: find its actor or start one.
#[derive(Debug, Message)]
#[rtype(result = "Option<Addr<EndpointActor>>")]
pub struct StartEndpoint {
    /// Whose.
    pub agent: AgentId,
}

/// Agents whose endpoint may have something to deliver.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NudgeEndpoints {
    /// Which.
    pub agents: Vec<AgentId>,
}

/// A child has left memory, orderly or not. Sent by the guard that every child holds.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Gone {
    /// Which.
    pub child: Child,
    /// Which instance of it: an old one never cleans up a newer one.
    pub generation: u64,
    /// Whether it stopped by itself in order.
    pub clean: bool,
}

/// A segment looks for a harness. Answered when one takes it; waits as long as there is none.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Option<Placement>")]
pub struct Offer {
    /// Whose segment.
    pub session: SessionId,
    /// The arbiter that the session lives on.
    pub arbiter: usize,
    /// The pod sandbox whose engine must run it.
    pub pod: Option<String>,
    /// Key of the workspace that it uses: best where that is.
    pub workspace: Option<String>,
    /// Its last run was lost: rather another harness than the one that had it.
    pub lost: bool,
}

/// A harness has connected; answered with its actor.
#[derive(Message)]
#[rtype(result = "Option<Addr<HarnessActor>>")]
pub struct AttachHarness {
    /// Where its frames go.
    pub sink: Box<dyn FrameSink>,
    /// For logs: `harness@<address>`.
    pub peer: String,
    /// The pod sandbox that it hosts.
    pub pod: Option<String>,
}

/// What a connected harness said of itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct HarnessSays {
    /// Generation of its actor.
    pub harness: u64,
    /// Whether it serves workspaces.
    pub workspace: bool,
}

/// A connected harness has room for one run.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ParkLease {
    /// Generation of its actor.
    pub harness: u64,
    /// Its request's number.
    pub lease: u64,
}

/// A connected harness takes a lease request back.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WithdrawLease {
    /// Generation of its actor.
    pub harness: u64,
    /// Its request's number.
    pub lease: u64,
}

/// Connected harnesses, and whether one of them serves workspaces.
#[derive(Debug, Message)]
#[rtype(result = "(usize, bool)")]
pub struct CountHarnesses;

/// Sessions that the sweeper found work for.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WakeSessions {
    /// Which.
    pub sessions: Vec<SessionId>,
}

/// Stop the Tenant: no new work, every advance aborted with `shutdown`; answers when all are idle.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DrainAll {
    /// Answered when done.
    pub done: oneshot::Sender<()>,
}

/// The observable states of all actors below.
#[derive(Debug, Message)]
#[rtype(result = "Vec<Json>")]
pub struct ObserveAll;
