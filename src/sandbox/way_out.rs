//! The way out of a sandbox that may reach hosts: a listening socket in its network, which is otherwise empty, and the
//! egress proxy behind it in this process (spec: sandbox, sections 2 and 17).
//!
//! A socket belongs to the network in which it was made, whoever holds it. So no process stands between a command and
//! the proxy, and nothing of the host's network is seen from inside.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use nix::sys::socket::MsgFlags;
use nylorun_actors::model::json::Json;
use nylorun_actors::model::sandbox::network::DEV_HOSTS;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::rights;
use crate::gates::egress::allow::Allow;
use crate::gates::egress::{Egress, Grant, Own};

/// Where the proxy listens inside.
pub const PORT: u16 = 3128;

/// The hosts that a spec lets its commands reach. A spec without a preset has none but those it names: what a session is
/// given says `none`, and what is older had no network either.
///
/// # Errors
/// In words: what it asks for cannot be had.
pub fn allow(spec: &Json) -> Result<Allow, String> {
    let network = &spec["network"];
    let preset: &[&str] = match network["preset"].as_str() {
        None | Some("none") => &[],
        Some("dev") => &DEV_HOSTS,
        Some("open") => {
            return Err(
                "The sandbox asks for the network preset `open`, which has no list of hosts.".to_owned()
            );
        }
        Some(other) => return Err(format!("The sandbox asks for the network preset `{other}`.")),
    };
    let hosts = network["allow"].as_array().into_iter().flatten().filter_map(Json::as_str);
    Ok(Allow::of(preset.iter().copied().chain(hosts)))
}

/// What tells programs of the proxy, in both spellings that they look for; nothing where there is none.
#[must_use]
pub fn variables(allow: &Allow) -> Vec<(&'static str, String)> {
    if allow.is_empty() {
        return Vec::new();
    }
    let proxy = ["HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"];
    let proxy = proxy.map(|name| (name, format!("http://127.0.0.1:{PORT}")));
    let direct = ["NO_PROXY", "no_proxy"].map(|name| (name, "localhost,127.0.0.1".to_owned()));
    proxy.into_iter().chain(direct).collect()
}

/// Makes the socket, in the network of the calling thread.
///
/// # Errors
/// The system's.
pub fn bind() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))
}

/// Makes the socket, and hands it to the Runtime. In a cage: whatever runs there later does not have it.
///
/// # Errors
/// The system's.
pub fn hand_over(door: OwnedFd) -> io::Result<()> {
    rights::send(door, &[bind()?.into()], MsgFlags::empty())
}

/// The socket that a cage hands over. `None`: its cage does not stand.
///
/// # Errors
/// The system's.
pub async fn handed_over(door: &UnixStream) -> io::Result<Option<TcpListener>> {
    let descriptors = door.async_io(Interest::READABLE, || rights::receive(door.as_fd())).await?;
    Ok(descriptors.into_iter().flatten().next().map(TcpListener::from))
}

/// A proxy at work for one sandbox. It ends with this, and all tunnels with it.
#[derive(Debug)]
pub struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves what connects to a socket, for a sandbox with these hosts.
///
/// # Errors
/// The system's.
pub fn serve(egress: &Egress, listener: TcpListener, sandbox: &str, allow: Allow) -> io::Result<Serving> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let door = Arc::new(Own(Arc::new(Grant::new(sandbox, allow))));
    Ok(Serving(tokio::spawn(egress.clone().serve(listener, door))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_list_is_had_with_its_patterns_and_a_preset_without_one_is_not() {
        let of = |network: Json| allow(&json!({"network": network}));
        let both = of(json!({"preset": "none", "allow": ["A.test", "*.b.test"]})).unwrap();
        assert!(both.has("a.test") && both.has("x.b.test") && !both.has("b.test"));
        assert!(allow(&json!({})).unwrap().is_empty() && of(json!({"allow": []})).unwrap().is_empty());
        let dev = of(json!({"preset": "dev", "allow": ["a.test"]})).unwrap();
        assert!(DEV_HOSTS.iter().all(|host| dev.has(host)) && dev.has("a.test") && !dev.has("b.test"));
        assert!(of(json!({"preset": "open"})).unwrap_err().contains("`open`"));
    }

    #[test]
    fn programs_are_told_of_the_proxy_only_where_there_is_one() {
        assert!(variables(&Allow::default()).is_empty());
        let told = variables(&Allow::of(["a.test"]));
        assert!(told.contains(&("https_proxy", "http://127.0.0.1:3128".to_owned())));
        assert!(told.contains(&("NO_PROXY", "localhost,127.0.0.1".to_owned())));
    }
}
