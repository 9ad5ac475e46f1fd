//! The way out of a container: a socket in its network, made by a thread of this process that goes there and ends.

use std::fs::File;
use std::net::TcpListener;

use nix::sched::{CloneFlags, setns};
use nix::unistd::Uid;

use super::container::{Container, holds};
use crate::sandbox::way_out;

/// Why no container has a way out here.
pub(super) fn unmet() -> Option<String> {
    (!Uid::effective().is_root()).then(|| {
        "The sandbox asks for a network, and only root can give a container a way out that is checked."
            .to_owned()
    })
}

/// Makes the proxy's socket in the network of a workspace's container.
pub(super) async fn bind(container: &Container, key: &str) -> Result<TcpListener, String> {
    let pid = container.pid.ok_or("its processes are not seen from here, as the daemon's own are not")?;
    let key = key.to_owned();
    let bound = tokio::task::spawn_blocking(move || {
        let network = File::open(format!("/proc/{pid}/ns/net")).map_err(|error| error.to_string())?;
        // Looked at while the network is held: its number may have become another's in between.
        if !holds(pid, &key) {
            return Err("its first process is gone".to_owned());
        }
        // A thread of its own, that serves nobody afterwards: it does not come back.
        let there = std::thread::spawn(move || {
            setns(network, CloneFlags::CLONE_NEWNET)?;
            way_out::bind()
        });
        let bound = there.join().map_err(|_| "the thread that went there was lost".to_owned())?;
        bound.map_err(|error| error.to_string())
    });
    bound.await.unwrap_or_else(|error| Err(error.to_string()))
}
