//! Live events: one ring for each observed session, fed by the store's commits. An observer that falls behind the
//! ring reads the record again; it slows nobody and is not dropped (spec: http-api, section 24.5).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::broadcast;

use crate::limits::{FEED_QUEUE, OBSERVERS_PER_SESSION};
use crate::model::event::EventKind;
use crate::model::ids::SessionId;
use crate::ports::store::Committed;

/// What the ring holds.
#[derive(Clone, Debug)]
pub enum FeedItem {
    /// A committed event.
    Event {
        /// Its place.
        seq: i64,
        /// Its type.
        kind: EventKind,
        /// The envelope as JSON text.
        body: Arc<str>,
    },
    /// A piece of a model's answer, as JSON text.
    Preview(Arc<str>),
}

/// The rings of one Tenant.
#[derive(Default)]
pub struct Feeds(Mutex<Rings>);

#[derive(Default)]
struct Rings {
    by_session: HashMap<SessionId, broadcast::Sender<FeedItem>>,
    ended: bool,
}

/// Why nobody more may observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// The Tenant has ended its streams.
    Ended,
    /// Too many observe the session already.
    Full,
}

/// A place at a ring. Dropping the last one of a session removes its ring.
pub struct Subscription {
    /// Where items arrive; `Lagged` means: read the record.
    pub receiver: broadcast::Receiver<FeedItem>,
    session: SessionId,
    feeds: Weak<Feeds>,
}

impl Feeds {
    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place at a session's ring.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub fn subscribe(self: &Arc<Self>, session: &SessionId) -> Result<Subscription, NoPlace> {
        let mut rings = self.rings();
        if rings.ended {
            return Err(NoPlace::Ended);
        }
        let ring =
            rings.by_session.entry(session.clone()).or_insert_with(|| broadcast::Sender::new(FEED_QUEUE));
        if ring.receiver_count() >= OBSERVERS_PER_SESSION {
            return Err(NoPlace::Full);
        }
        Ok(Subscription { receiver: ring.subscribe(), session: session.clone(), feeds: Arc::downgrade(self) })
    }

    /// Hands committed events to whoever observes their sessions.
    pub fn publish(&self, events: &[Committed]) {
        let rings = self.rings();
        if rings.by_session.is_empty() {
            return;
        }
        for event in events {
            if let Some(ring) = rings.by_session.get(&event.session_id) {
                let (seq, kind, body) = (event.seq, event.kind, Arc::clone(&event.body));
                // No receiver is no failure: it has just left.
                let _ = ring.send(FeedItem::Event { seq, kind, body });
            }
        }
    }

    /// Whether anybody observes a session.
    #[must_use]
    pub fn is_observed(&self, session: &SessionId) -> bool {
        self.rings().by_session.contains_key(session)
    }

    /// Shows a preview to whoever observes a session.
    pub fn preview(&self, session: &SessionId, text: Arc<str>) {
        if let Some(ring) = self.rings().by_session.get(session) {
            let _ = ring.send(FeedItem::Preview(text));
        }
    }

    /// Ends every stream and lets no new one begin.
    pub fn end(&self) {
        let mut rings = self.rings();
        rings.ended = true;
        rings.by_session.clear();
    }

    /// Sessions that are observed.
    #[must_use]
    pub fn observed_sessions(&self) -> usize {
        self.rings().by_session.len()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some(feeds) = self.feeds.upgrade() else { return };
        let mut rings = feeds.rings();
        // This receiver still counts while it is being dropped.
        if rings.by_session.get(&self.session).is_some_and(|ring| ring.receiver_count() <= 1) {
            rings.by_session.remove(&self.session);
        }
    }
}
