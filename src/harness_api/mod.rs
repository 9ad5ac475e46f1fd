//! The listener of the Harness API: a port of its own where harnesses of other processes connect
//! (spec: harness-api, sections 2, 4 and 5).
//!
//! | File | Has |
//! |---|---|
//! | `mod.rs` | the server, its start and its end |
//! | [`upgrade`] | the checks of an upgrade, in their order, and every refusal |
//! | [`tokens`] | the harness tokens, compared in constant time |
//! | [`socket`] | `HarnessSocket`: the thin actor between a socket and its `HarnessActor` |
//! | [`messages`] | the WebSocket's reading half: frames to messages, each bound checked before memory is taken |
//! | [`link`] | its writing half: the bounded queue that is the peer's `FrameSink`, and the body that drains it |
//! | [`registry`] | all open sockets: the cap, the shutdown, the end of those that do not close |
//! | [`limits`] | every bound of this module |

pub mod limits;
mod link;
pub mod messages;
mod registry;
mod socket;
pub mod tokens;
mod upgrade;

use std::any::Any;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::dev::{Extensions, ServerHandle};
use actix_web::rt::net::TcpStream;
use actix_web::{App, HttpServer, web};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

pub use self::tokens::{HarnessTokens, TokenError};

use self::limits::{CLOSE_WITHIN, HANDSHAKE_WITHIN, HANDSHAKES, LOOK_EVERY, STOP_WITHIN, STRANGERS, WORKERS};
use self::registry::{Handle, Registry};
use crate::api::{ApiState, HostNames};
use crate::host::listen::Bound;

/// Where a harness connects.
pub const PATH: &str = "/nylorun/harness/v1";

/// Header of a successful upgrade that says: nothing of a run overtakes a value of it, so a harness need not wait for the
/// answer to one before it says the next thing (`docs/adr/0015-values-travel-over-wires.md`).
pub const ORDERED: &str = "nylorun-harness-ordered";

/// What a listener is told.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// The tokens that open it.
    pub tokens: HarnessTokens,
    /// Most connections at once.
    pub connections: usize,
    /// Pause between two pings of a connection.
    pub ping_every: Duration,
}

/// What every request of the listener shares.
struct Shared {
    state: ApiState,
    names: HostNames,
    config: ListenerConfig,
    closing: AtomicBool,
    registry: Arc<Registry>,
    handshakes: Semaphore,
}

/// A running listener.
pub struct HarnessListener {
    shared: Arc<Shared>,
    server: ServerHandle,
    looking: JoinHandle<()>,
}

impl HarnessListener {
    /// Serves a bound socket until [`HarnessListener::stop`]. The Tenant is found in `state`'s slot. Must be called on
    /// an actix arbiter.
    ///
    /// # Errors
    /// When the socket cannot be listened on.
    pub fn start(bound: Bound, state: ApiState, config: ListenerConfig) -> std::io::Result<Self> {
        let registry = Arc::new(Registry::new(config.connections));
        let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(WORKERS);
        // Of each worker: no peer can take every file descriptor of the process.
        let most = (config.connections + STRANGERS).div_ceil(workers);
        let shared = Arc::new(Shared {
            state,
            names: HostNames::listed(&bound.names),
            config,
            closing: AtomicBool::new(false),
            registry: Arc::clone(&registry),
            handshakes: Semaphore::new(HANDSHAKES),
        });
        let data = web::Data::from(Arc::clone(&shared));
        let server = HttpServer::new(move || {
            App::new().app_data(data.clone()).default_service(web::to(upgrade::serve))
        })
        .on_connect(connected)
        .disable_signals()
        .client_request_timeout(HANDSHAKE_WITHIN)
        .client_disconnect_timeout(STOP_WITHIN)
        .shutdown_timeout(STOP_WITHIN.as_secs())
        .workers(workers)
        .max_connections(most)
        .listen(bound.socket)?
        .run();
        let handle = server.handle();
        actix_web::rt::spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "harness_listener_error");
            }
        });
        let looking = actix_web::rt::spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                registry.end_overdue(CLOSE_WITHIN);
            }
        });
        Ok(Self { shared, server: handle, looking })
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.registry.len()
    }

    /// Tells every peer that core is stopping, takes no new one, and ends the sockets that are still open a second later.
    pub async fn stop(self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.registry.close_all(1001, "core is stopping");
        self.server.stop(true).await;
        self.shared.registry.end_overdue(Duration::ZERO);
        self.looking.abort();
    }
}

/// Keeps a handle on each new connection: a peer that does not read freezes what serves it, and only the socket itself
/// can be ended then.
fn connected(connection: &dyn Any, extensions: &mut Extensions) {
    let Some(stream) = connection.downcast_ref::<TcpStream>() else { return };
    // Small frames are answered at once; a socket that does not know the option works without.
    let _ = stream.set_nodelay(true);
    if let Ok(copy) = stream.as_fd().try_clone_to_owned() {
        extensions.insert(Handle::new(copy.into()));
    }
}
