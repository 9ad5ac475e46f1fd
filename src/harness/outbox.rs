//! Frames on their way to core, bounded: who sends a request waits for room here (spec: harness-api, section 5;
//! weak spot 14).
//!
//! Aborts and refusals take no room, since whoever sends them cannot wait. Aborts are no more than requests in flight;
//! refusals are counted, and a core that asks and asks without reading the answers is given up.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Frames of requests that wait for the transport.
pub(crate) const OUTBOX_FRAMES: usize = 8;

/// Refusals that wait for the transport.
pub(crate) const OUTBOX_REFUSALS: usize = 1024;

/// What the transport does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// Send this text message.
    Text(String),
    /// Everything is sent: close with this code and reason.
    Close {
        /// The close code.
        code: u16,
        /// In words.
        reason: String,
    },
}

/// Room for one frame.
pub(super) type Room = OwnedSemaphorePermit;

struct Queued {
    text: String,
    refusal: bool,
    /// Given back when the transport takes the frame.
    _room: Option<Room>,
}

/// Frames that wait for the transport, in order.
pub(super) struct Outbox {
    frames: RefCell<VecDeque<Queued>>,
    refusals: Cell<usize>,
    close: RefCell<Option<(u16, String)>>,
    room: Arc<Semaphore>,
    ready: Notify,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self {
            frames: RefCell::default(),
            refusals: Cell::new(0),
            close: RefCell::default(),
            room: Arc::new(Semaphore::new(OUTBOX_FRAMES)),
            ready: Notify::new(),
        }
    }

    /// Waits for room, first come first served. `None` once it is closed.
    pub(super) async fn room(&self) -> Option<Room> {
        Arc::clone(&self.room).acquire_owned().await.ok()
    }

    /// Queues a frame that waited for its room.
    pub(super) fn push(&self, text: String, room: Room) {
        self.queue(Queued { text, refusal: false, _room: Some(room) });
    }

    /// Queues an abort.
    pub(super) fn push_abort(&self, text: String) {
        self.queue(Queued { text, refusal: false, _room: None });
    }

    /// Queues an answer to core; false when too many wait.
    pub(super) fn push_refusal(&self, text: String) -> bool {
        if self.refusals.get() >= OUTBOX_REFUSALS {
            return false;
        }
        self.refusals.set(self.refusals.get() + 1);
        self.queue(Queued { text, refusal: true, _room: None });
        true
    }

    fn queue(&self, queued: Queued) {
        if self.close.borrow().is_none() {
            self.frames.borrow_mut().push_back(queued);
            self.ready.notify_one();
        }
    }

    /// Takes nothing more. What is queued still goes out, then the close.
    pub(super) fn close(&self, code: u16, reason: &str) {
        self.room.close();
        let mut close = self.close.borrow_mut();
        if close.is_none() {
            *close = Some((code, reason.to_owned()));
            self.ready.notify_one();
        }
    }

    /// A further text, if one waits.
    pub(super) fn next_text(&self) -> Option<String> {
        let queued = self.frames.borrow_mut().pop_front()?;
        if queued.refusal {
            self.refusals.set(self.refusals.get() - 1);
        }
        Some(queued.text)
    }

    /// The next thing to do. Cancel safe: what was not answered is answered next time. One transport waits at a time.
    pub(super) async fn next(&self) -> Outgoing {
        loop {
            if let Some(text) = self.next_text() {
                return Outgoing::Text(text);
            }
            if let Some((code, reason)) = self.close.borrow().clone() {
                return Outgoing::Close { code, reason };
            }
            self.ready.notified().await;
        }
    }
}
