//! Binding the listeners (spec: http-api, section 1.1): loopback unless more was permitted, and never half of them.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};

use super::settings::Listen;

/// Why a listener is not there. The process does not start.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Exit code 98.
    #[error("{listen} is in use by another process")]
    InUse {
        /// Where.
        listen: String,
    },
    /// Exit code 99.
    #[error("{listen} can be reached from other machines, and that was not permitted")]
    NotLoopback {
        /// Where.
        listen: String,
    },
    /// Anything else.
    #[error("cannot listen on {listen}: {why}")]
    Other {
        /// Where.
        listen: String,
        /// What the system says.
        why: String,
    },
}

/// A bound listener and the names it is served under.
#[derive(Debug)]
pub struct Bound {
    /// The socket.
    pub socket: TcpListener,
    /// Where it really listens.
    pub address: SocketAddr,
    /// Allowed values of the `Host` header, lower case.
    pub names: Vec<String>,
}

impl Bound {
    /// URL by which this machine reaches it.
    #[must_use]
    pub fn url(&self) -> String {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
            ip => ip,
        };
        format!("http://{}", SocketAddr::new(ip, self.address.port()))
    }
}

/// Binds one listener. `permitted`: it may be reached from other machines. `extra`: configured names.
///
/// # Errors
/// [`ListenError`].
pub fn bind(listen: &Listen, permitted: bool, extra: &[String]) -> Result<Bound, ListenError> {
    let shown = listen.to_string();
    let other = |why: String| ListenError::Other { listen: shown.clone(), why };
    let addresses: Vec<SocketAddr> = (listen.host.as_str(), listen.port)
        .to_socket_addrs()
        .map_err(|error| other(error.to_string()))?
        .collect();
    // Names off loopback need a list of what they are called, or the explicit permission.
    if addresses.iter().any(|a| !a.ip().is_loopback()) && !permitted && extra.is_empty() {
        return Err(ListenError::NotLoopback { listen: shown });
    }
    let socket = TcpListener::bind(addresses.as_slice()).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => ListenError::InUse { listen: shown.clone() },
        _ => other(error.to_string()),
    })?;
    let address = socket.local_addr().map_err(|error| other(error.to_string()))?;
    let port = address.port();
    let mut names = vec![format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")];
    if permitted && !address.ip().is_unspecified() {
        names.push(Listen { host: listen.host.clone(), port }.to_string().to_ascii_lowercase());
    }
    names.extend(extra.iter().map(|name| name.to_ascii_lowercase()));
    names.sort();
    names.dedup();
    Ok(Bound { socket, address, names })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(text: &str) -> Listen {
        text.parse().expect(text)
    }

    #[test]
    fn a_taken_port_and_a_wide_address_are_refused_by_name() {
        let first = bind(&listen("127.0.0.1:0"), false, &[]).expect("a free port");
        let taken = format!("127.0.0.1:{}", first.address.port());
        assert!(matches!(bind(&listen(&taken), false, &[]), Err(ListenError::InUse { .. })));
        assert!(matches!(bind(&listen("0.0.0.0:0"), false, &[]), Err(ListenError::NotLoopback { .. })));
    }

    #[test]
    fn the_loopback_names_of_the_bound_port_are_served_with_the_configured_ones() {
        let bound = bind(&listen("0.0.0.0:0"), false, &["API.example:443".to_owned()]).expect("permitted");
        let port = bound.address.port();
        assert!(bound.names.contains(&format!("localhost:{port}")));
        assert!(bound.names.contains(&"api.example:443".to_owned()));
        assert!(!bound.names.contains(&format!("0.0.0.0:{port}")));
        assert_eq!(bound.url(), format!("http://127.0.0.1:{port}"));
    }
}
