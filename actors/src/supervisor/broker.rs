//! The lease broker: brings segments that look for a harness together with harnesses that have room
//! (spec: harness-api, section 8). Waiting is an event, never a loop.
//!
//! Offers are served oldest first, each by the oldest parked lease that may take it. A session goes back to the
//! harness that has its workspace, or that ran it last, while that one is connected, for as long as an offer waits; one
//! with a sandbox goes to a harness that serves sandboxes, if there is one; pods are apart. A session without a workspace whose run was lost goes rather to another harness: the one that had it may
//! hang, and answers pings all the same.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use actix::Addr;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::harness::HarnessActor;
use crate::limits::AFFINITIES;
use crate::messages::harness::Unplaced;
use crate::messages::supervisor::Offer;
use crate::model::ids::SessionId;

/// How long a session waits for the harness that ran it last before any other may take it.
pub const PREFER_FOR: Duration = Duration::from_secs(10);

/// A harness that takes a run, and the lease it takes it with (0: its standing one, as in memory). Dropped before the
/// run was handed over, it tells the harness, so that its lease is parked again: the session may have died or been
/// cancelled meanwhile, or this supervisor.
#[derive(Debug)]
pub struct Placement {
    harness: Addr<HarnessActor>,
    lease: u64,
    used: bool,
}

impl Placement {
    /// A place.
    #[must_use]
    pub fn new(harness: Addr<HarnessActor>, lease: u64) -> Self {
        Self { harness, lease, used: false }
    }

    /// The harness.
    #[must_use]
    pub fn harness(&self) -> &Addr<HarnessActor> {
        &self.harness
    }

    /// Its lease request's number.
    #[must_use]
    pub fn lease(&self) -> u64 {
        self.lease
    }

    /// The harness has answered: the lease is used up, or is known to be.
    pub fn used(mut self) {
        self.used = true;
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        if !self.used && self.lease != 0 {
            // One for each lease: bounded by how many a connection may park.
            self.harness.do_send(Unplaced { lease: self.lease });
        }
    }
}

/// A connected harness.
struct Attached {
    addr: Addr<HarnessActor>,
    /// The pod sandbox that it hosts, if it is a pod's engine.
    pod: Option<String>,
    /// The arbiter whose sessions it always has room for, if it is in this process.
    standing: Option<usize>,
    workspace: bool,
}

struct Parked {
    harness: u64,
    lease: u64,
}

struct Queued {
    session: SessionId,
    arbiter: usize,
    pod: Option<String>,
    lost: bool,
    /// Whether its session has a sandbox.
    sandboxed: bool,
    /// The harness that has its workspace.
    has: Option<u64>,
    since: Instant,
    placed: oneshot::Sender<Placement>,
}

/// The broker of one Tenant.
#[derive(Default)]
pub struct Broker {
    harnesses: BTreeMap<u64, Attached>,
    parked: VecDeque<Parked>,
    queue: VecDeque<Queued>,
    last: HashMap<SessionId, u64>,
    closed: bool,
}

impl Broker {
    /// A harness has come.
    pub fn attach(
        &mut self,
        id: u64,
        addr: Addr<HarnessActor>,
        pod: Option<String>,
        standing: Option<usize>,
    ) {
        self.harnesses.insert(id, Attached { addr, pod, standing, workspace: false });
        self.match_all();
    }

    /// A harness is gone: its parked leases with it.
    pub fn detach(&mut self, id: u64) -> bool {
        self.parked.retain(|p| p.harness != id);
        let was = self.harnesses.remove(&id).is_some();
        self.match_all();
        was
    }

    /// A harness serves workspaces, or not.
    pub fn set_workspace(&mut self, id: u64, serves: bool) {
        if let Some(harness) = self.harnesses.get_mut(&id) {
            harness.workspace = serves;
        }
    }

    /// A harness has room for one run.
    pub fn park(&mut self, harness: u64, lease: u64) {
        if self.harnesses.contains_key(&harness) {
            self.parked.push_back(Parked { harness, lease });
            self.match_all();
        }
    }

    /// A harness took a lease request back.
    pub fn withdraw(&mut self, harness: u64, lease: u64) {
        self.parked.retain(|p| p.harness != harness || p.lease != lease);
    }

    /// A segment looks for a harness; `has` is the one that has its workspace. The answer comes when one takes it; it
    /// never comes once the Tenant closes.
    pub fn offer(&mut self, offer: Offer, has: Option<u64>) -> oneshot::Receiver<Placement> {
        let Offer { session, arbiter, pod, lost, workspace } = offer;
        let sandboxed = workspace.is_some();
        let (placed, answer) = oneshot::channel();
        if !self.closed {
            let since = Instant::now();
            self.queue.push_back(Queued { session, arbiter, pod, lost, sandboxed, has, since, placed });
            self.match_all();
        }
        answer
    }

    /// Walks the queue, oldest first. An offer that finds nothing does not hold up those behind it.
    pub fn match_all(&mut self) {
        let waiting = std::mem::take(&mut self.queue);
        for queued in waiting {
            if queued.placed.is_closed() {
                continue;
            }
            match self.place(&queued) {
                Some((id, placement)) => {
                    if self.last.len() >= AFFINITIES {
                        self.last.clear();
                    }
                    self.last.insert(queued.session.clone(), id);
                    // The session may stop waiting this very moment: the placement is dropped then.
                    let _ = queued.placed.send(placement);
                }
                None => self.queue.push_back(queued),
            }
        }
    }

    fn place(&mut self, queued: &Queued) -> Option<(u64, Placement)> {
        let standing = self
            .harnesses
            .iter()
            .find(|(_, h)| h.standing == Some(queued.arbiter) && h.pod == queued.pod && h.addr.connected());
        if let Some((id, harness)) = standing {
            return Some((*id, Placement::new(harness.addr.clone(), 0)));
        }
        let patient = queued.since.elapsed() < PREFER_FOR;
        // Where none serves sandboxes any will do: its tools say that there is no sandbox.
        let serves = queued.sandboxed && patient && self.serving(queued.pod.as_deref()).next().is_some();
        let suits = |id: &u64| {
            self.harnesses.get(id).is_some_and(|h| h.pod == queued.pod && (h.workspace || !serves))
        };
        let last = self.last.get(&queued.session).copied().filter(suits);
        let connected = |id: &u64| self.harnesses.contains_key(id);
        let waits_for = queued.has.filter(connected).or(last.filter(|_| !queued.lost));
        let waits_for = waits_for.filter(|_| patient);
        let fits = |parked: &&Parked| suits(&parked.harness);
        let all = || self.parked.iter().enumerate().filter(|(_, parked)| fits(parked));
        let at = match waits_for {
            Some(id) => all().find(|(_, parked)| parked.harness == id),
            None if queued.lost => all().find(|(_, p)| Some(p.harness) != last).or_else(|| all().next()),
            None => all().next(),
        };
        let (at, _) = at?;
        let parked = self.parked.remove(at)?;
        let harness = self.harnesses.get(&parked.harness)?;
        Some((parked.harness, Placement::new(harness.addr.clone(), parked.lease)))
    }

    /// The Tenant closes: every waiting offer ends without a harness.
    pub fn close(&mut self) {
        self.closed = true;
        self.queue.clear();
    }

    /// Offers that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Lease requests that wait.
    #[must_use]
    pub fn parked(&self) -> usize {
        self.parked.len()
    }

    /// Whether a connected harness that hosts no pod serves workspaces.
    #[must_use]
    pub fn serves_workspaces(&self) -> bool {
        self.serving(None).next().is_some()
    }

    /// Connected harnesses that serve workspaces, in the order they came: those that host this pod, or none.
    pub fn serving<'a>(
        &'a self,
        pod: Option<&'a str>,
    ) -> impl Iterator<Item = (u64, &'a Addr<HarnessActor>)> + 'a {
        let serves = move |h: &&Attached| h.workspace && h.pod.as_deref() == pod && h.addr.connected();
        self.harnesses.iter().filter(move |(_, h)| serves(h)).map(|(id, h)| (*id, &h.addr))
    }

    /// The harness that ran a session last.
    #[must_use]
    pub fn last_of(&self, session: &SessionId) -> Option<u64> {
        self.last.get(session).copied()
    }
}
