//! The lease broker: brings segments that look for a harness together with harnesses that have room. Waiting is an
//! event, never a loop.

use std::collections::VecDeque;

use actix::Addr;
use tokio::sync::oneshot;

use crate::harness::HarnessActor;

/// Offers that wait for a harness. An in-process harness always has room, so its coming answers all of its arbiter.
#[derive(Default)]
pub struct Broker {
    queue: VecDeque<Queued>,
    closed: bool,
}

struct Queued {
    arbiter: usize,
    placed: oneshot::Sender<Addr<HarnessActor>>,
}

impl Broker {
    /// An offer: answered at once when the harness beside it lives, else when one comes.
    pub fn offer(
        &mut self,
        arbiter: usize,
        beside: Option<Addr<HarnessActor>>,
    ) -> oneshot::Receiver<Addr<HarnessActor>> {
        let (placed, answer) = oneshot::channel();
        match beside {
            Some(harness) => {
                // The session may have stopped waiting.
                let _ = placed.send(harness);
            }
            None if self.closed => {}
            None => {
                self.queue.retain(|q| !q.placed.is_closed());
                self.queue.push_back(Queued { arbiter, placed });
            }
        }
        answer
    }

    /// A harness has come: the oldest offers of its arbiter are answered, in order.
    pub fn harness_came(&mut self, arbiter: usize, harness: &Addr<HarnessActor>) {
        let waiting = std::mem::take(&mut self.queue);
        for queued in waiting {
            if queued.arbiter == arbiter {
                let _ = queued.placed.send(harness.clone());
            } else {
                self.queue.push_back(queued);
            }
        }
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
}
