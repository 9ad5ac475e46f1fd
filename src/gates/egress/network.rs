//! Names and addresses as the proxy reaches them: resolved once, judged, and only what was judged is dialled
//! (spec: sandbox, section 17).

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::DIAL_WAIT;
use super::head::Refusal;
use crate::gates::address::{AddressClass, classify};
use crate::gates::outbound::{Lookup, system_lookup};

/// Connects to an address.
pub type Connect = dyn Fn(SocketAddr) -> BoxFuture<'static, io::Result<TcpStream>> + Send + Sync;

/// The network that the proxy sees. Tests put one of their own here; which addresses are refused is decided above it.
#[derive(Clone)]
pub struct Network {
    lookup: Arc<Lookup>,
    connect: Arc<Connect>,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

impl Default for Network {
    /// The machine's.
    fn default() -> Self {
        let connect = |address| TcpStream::connect(address).boxed();
        Self { lookup: Arc::new(system_lookup), connect: Arc::new(connect) }
    }
}

impl Network {
    /// Another one.
    #[must_use]
    pub fn new(lookup: Arc<Lookup>, connect: Arc<Connect>) -> Self {
        Self { lookup, connect }
    }

    /// Connects to a host, at an address that may be dialled.
    ///
    /// # Errors
    /// [`Refusal::RESOLVE_FAILED`], [`Refusal::ADDRESS_REFUSED`], [`Refusal::CONNECT_FAILED`].
    pub(super) async fn dial(&self, host: &str, port: u16) -> Result<TcpStream, Refusal> {
        let found = match timeout(DIAL_WAIT, (self.lookup)(host.to_owned())).await {
            Ok(Ok(found)) if !found.is_empty() => found,
            _ => return Err(Refusal::RESOLVE_FAILED),
        };
        let open: Vec<IpAddr> = found.into_iter().filter(|address| may_be_dialled(*address)).collect();
        if open.is_empty() {
            return Err(Refusal::ADDRESS_REFUSED);
        }
        for address in open {
            let connecting = (self.connect)(SocketAddr::new(address, port));
            if let Ok(Ok(stream)) = timeout(DIAL_WAIT, connecting).await {
                // Merely slower if the system refuses.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
        }
        Err(Refusal::CONNECT_FAILED)
    }
}

/// Whether a sandbox may reach an address: ordinary ones of the internet alone, whatever any setting says.
#[must_use]
pub fn may_be_dialled(address: IpAddr) -> bool {
    // The way through NAT64 is closed whatever is behind it.
    let nat64 = matches!(address, IpAddr::V6(v6) if v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0]);
    !nat64 && classify(address) == AddressClass::Public
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_that_the_specification_blocks_is_blocked_and_mapped_ones_by_their_inner_address() {
        let blocked = [
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.0.1",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "64:ff9b::1.1.1.1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:101:101::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
        ];
        for address in blocked {
            assert!(!may_be_dialled(address.parse().unwrap()), "{address}");
        }
        for address in ["1.1.1.1", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1"] {
            assert!(may_be_dialled(address.parse().unwrap()), "{address}");
        }
    }
}
