//! The way out of sandboxes: an HTTP proxy that connects to the hosts of a sandbox's list and to nothing else
//! (spec: sandbox, section 17; security, section 9).
//!
//! | File | Has |
//! |---|---|
//! | [`allow`] | the hosts of a sandbox; where a request wants to go |
//! | [`head`] | the request, read within bounds; what is answered instead of a tunnel |
//! | [`network`] | names and addresses, the seam for tests; which addresses are never dialled |
//! | [`pipe`] | bytes both ways, until it is quiet |
//!
//! Here are the checks, in the order of the specification. Who may ask at all is the [`Door`]'s to say: a sandbox on this
//! machine has a socket of its own that nobody else reaches; a gate for many sandboxes looks at a token first.
//!
//! What passes a tunnel is neither looked at nor logged.

pub mod allow;
pub mod head;
pub mod network;
pub mod pipe;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::allow::{Allow, Target};
use self::head::{Head, Refusal};
use self::network::Network;

/// Tunnels that a sandbox may have open at once.
pub const TUNNELS: usize = 64;
/// Connections of one socket at once: its tunnels, and as many that have not said yet where they go.
pub const CONNECTIONS: usize = 2 * TUNNELS;
/// How long the head of a request may take.
pub const HEAD_WAIT: Duration = Duration::from_secs(10);
/// How long a name may take to resolve, and one address to connect.
pub const DIAL_WAIT: Duration = Duration::from_secs(10);
/// A tunnel without traffic is closed after this.
pub const IDLE: Duration = Duration::from_secs(5 * 60);

/// Requests that are passed on without a tunnel, where plain HTTP is served.
const PLAIN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];

/// What one sandbox may do.
#[derive(Debug)]
pub struct Grant {
    /// The sandbox, for the log.
    pub sandbox: String,
    /// The hosts it may reach.
    pub allow: Allow,
    tunnels: Arc<Semaphore>,
}

impl Grant {
    /// A sandbox without tunnels yet.
    #[must_use]
    pub fn new(sandbox: impl Into<String>, allow: Allow) -> Self {
        Self { sandbox: sandbox.into(), allow, tunnels: Arc::new(Semaphore::new(TUNNELS)) }
    }
}

/// Who may use the proxy.
pub trait Door: Send + Sync {
    /// Whether plain `http://` requests are passed on; otherwise only `CONNECT` is served.
    fn plain(&self) -> bool;

    /// The sandbox that asks.
    ///
    /// # Errors
    /// [`Refusal::unauthorized`]: it is not known, or not any more.
    fn admit<'a>(&'a self, head: &'a Head) -> BoxFuture<'a, Result<Arc<Grant>, Refusal>>;
}

/// The socket of one sandbox: whoever reaches it is that sandbox.
pub struct Own(pub Arc<Grant>);

impl Door for Own {
    fn plain(&self) -> bool {
        true
    }

    fn admit<'a>(&'a self, _: &'a Head) -> BoxFuture<'a, Result<Arc<Grant>, Refusal>> {
        let grant = Arc::clone(&self.0);
        Box::pin(async move { Ok(grant) })
    }
}

/// The proxy. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Egress {
    network: Network,
}

/// A connection that every check has let through.
struct Way {
    peer: TcpStream,
    /// Held as long as the tunnel is open.
    tunnel: OwnedSemaphorePermit,
}

impl Egress {
    /// A proxy that finds and dials addresses over this.
    #[must_use]
    pub fn over(network: Network) -> Self {
        Self { network }
    }

    /// Serves what connects, until this future is dropped; all tunnels end with it.
    pub async fn serve(self, listener: TcpListener, door: Arc<dyn Door>) {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let mut open = JoinSet::new();
        loop {
            // Reaped as they end, so that the set does not grow.
            while open.try_join_next().is_some() {}
            // Never closed.
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (egress, door) = (self.clone(), Arc::clone(&door));
                    open.spawn(async move {
                        egress.connection(stream, door.as_ref()).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the egress proxy cannot accept a connection");
                    // Out of descriptors: they come back as tunnels end.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn connection(&self, mut stream: TcpStream, door: &dyn Door) {
        // A connection without Nagle's wait; if the system refuses, it is merely slower.
        let _ = stream.set_nodelay(true);
        let head = match timeout(HEAD_WAIT, Head::read(&mut stream)).await {
            Ok(Ok(Some(head))) => head,
            // Nobody waits for an answer.
            Ok(Ok(None)) => return,
            Ok(Err(refusal)) => return refusal.answer(&mut stream).await,
            Err(_) => return Refusal::HEAD_TIMEOUT.answer(&mut stream).await,
        };
        let mut sandbox = String::new();
        let mut target = None;
        match self.way(&head, door, &mut sandbox, &mut target).await {
            Ok(Way { mut peer, tunnel }) => {
                if open(&head, &mut stream, &mut peer, target.as_ref()).await.is_ok() {
                    pipe::both(stream, peer, IDLE).await;
                }
                drop(tunnel);
            }
            Err(refusal) => {
                let (host, port) =
                    target.map_or((None, None), |target| (Some(target.host), Some(target.port)));
                let (status, reason) = (refusal.status, refusal.reason);
                tracing::warn!(sandbox, status, reason, host, port, "egress_refused");
                refusal.answer(&mut stream).await;
            }
        }
    }

    /// Makes every check, in order, and connects. What is known of the request is left for the log.
    async fn way(
        &self,
        head: &Head,
        door: &dyn Door,
        sandbox: &mut String,
        target: &mut Option<Target>,
    ) -> Result<Way, Refusal> {
        let connect = head.method == "CONNECT";
        let served = connect || (door.plain() && PLAIN.contains(&head.method.as_str()));
        if !served {
            return Err(if door.plain() { Refusal::METHOD } else { Refusal::ONLY_CONNECT });
        }
        let grant = door.admit(head).await?;
        sandbox.clone_from(&grant.sandbox);
        let found = if connect { Target::authority(&head.target) } else { Target::url(&head.target) };
        let there = target.insert(found.ok_or(Refusal::TARGET_INVALID)?);
        if !matches!(there.port, 443 | 80) {
            return Err(Refusal::PORT);
        }
        if !there.is_name() {
            return Err(Refusal::NOT_A_HOST_NAME);
        }
        if !grant.allow.has(&there.host) {
            return Err(Refusal::HOST_NOT_ALLOWED);
        }
        let tunnel = Arc::clone(&grant.tunnels).try_acquire_owned().map_err(|_| Refusal::TOO_MANY_TUNNELS)?;
        let peer = self.network.dial(&there.host, there.port).await?;
        Ok(Way { peer, tunnel })
    }
}

/// Says to both sides that they are connected.
async fn open(
    head: &Head,
    stream: &mut TcpStream,
    peer: &mut TcpStream,
    target: Option<&Target>,
) -> std::io::Result<()> {
    if head.method == "CONNECT" {
        stream.write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n").await?;
    } else if let Some(target) = target {
        peer.write_all(&head.forwarded(target)).await?;
    }
    // What was sent in the same breath.
    peer.write_all(&head.rest).await
}

#[cfg(test)]
mod tests;
