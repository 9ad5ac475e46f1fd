//! All open sockets of the listener: how many there may be, and the end of those that do not close by themselves.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::link::Link;

/// A second hold on a connection's socket.
#[derive(Clone)]
pub(super) struct Handle(Arc<TcpStream>);

impl Handle {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    /// Nothing more is sent; what is on its way arrives.
    pub(super) fn finish(&self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// Ends the connection in both directions; whoever serves it finds that out at once.
    pub(super) fn end(&self) {
        // It may have ended already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// The open sockets.
pub(super) struct Registry {
    most: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    links: HashMap<u64, Arc<Link>>,
}

impl Registry {
    pub(super) fn new(most: usize) -> Self {
        Self { most, open: Mutex::default() }
    }

    /// A place for a new connection; none when all are taken.
    pub(super) fn enter(self: &Arc<Self>, handle: Handle) -> Option<Place> {
        let mut open = self.open();
        if open.links.len() >= self.most {
            return None;
        }
        let id = open.next;
        open.next += 1;
        let link = Arc::new(Link::new(handle));
        open.links.insert(id, Arc::clone(&link));
        Some(Place { id, link, registry: Arc::clone(self) })
    }

    pub(super) fn len(&self) -> usize {
        self.open().links.len()
    }

    /// Begins to close every connection.
    pub(super) fn close_all(&self, code: u16, reason: &str) {
        for link in self.links() {
            link.close(code, reason);
        }
    }

    /// Ends the connections that began to close at least this long ago.
    pub(super) fn end_overdue(&self, after: Duration) {
        for link in self.links() {
            if link.closing_since().is_some_and(|since| since.elapsed() >= after) {
                link.end();
            }
        }
    }

    fn links(&self) -> Vec<Arc<Link>> {
        self.open().links.values().cloned().collect()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Nothing panics while it is held.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection; it is free again when this is dropped.
pub(super) struct Place {
    id: u64,
    link: Arc<Link>,
    registry: Arc<Registry>,
}

impl Place {
    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.registry.open().links.remove(&self.id);
        // The socket itself may still send its last bytes; nothing more comes from here.
        self.link.forget();
    }
}
