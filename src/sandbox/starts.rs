//! The Runtime's side of the [`stem`](super::stem): starts it when it is needed, asks it for helpers, starts it again when
//! it is gone.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, socketpair};
use nylorun_actors::model::json::encode;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use super::job::{ARGUMENT, Ground};
use super::rights;
use super::stem::Request;

/// A pause while the stem has too many requests before it.
const PAUSE: Duration = Duration::from_millis(1);

/// The stem, from outside.
#[derive(Debug)]
pub struct Stem {
    program: PathBuf,
    ground: Ground,
    groups: OnceLock<Vec<PathBuf>>,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    socket: OwnedFd,
    /// It is awaited by the runtime when it has ended.
    _process: Child,
}

impl Stem {
    /// It is not started yet.
    #[must_use]
    pub fn new(program: PathBuf, ground: Ground) -> Self {
        Self { program, ground, groups: OnceLock::new(), running: Mutex::new(None) }
    }

    /// Adds to its ground where groups of commands are made. What was said first stays.
    pub fn groups_in(&self, places: Vec<PathBuf>) {
        // A second probe finds the same.
        let _ = self.groups.set(places);
    }

    /// Asks for a helper with these descriptors.
    ///
    /// # Errors
    /// The system's.
    pub async fn ask(&self, request: Request) -> std::io::Result<()> {
        let descriptors = request.descriptors();
        let mut running = self.running.lock().await;
        let mut again = true;
        loop {
            let stem = match &*running {
                Some(stem) => stem,
                None => running.insert(self.start()?),
            };
            match rights::send(&stem.socket, &descriptors, MsgFlags::MSG_DONTWAIT) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::time::sleep(PAUSE).await,
                // Somebody has ended it.
                Err(_) if again => {
                    again = false;
                    *running = None;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn start(&self) -> std::io::Result<Running> {
        let (own, its) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let groups = self.groups.get().cloned().unwrap_or_default();
        let process = Command::new(&self.program)
            .arg(ARGUMENT)
            .arg(encode(&Ground { groups, ..self.ground.clone() }))
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::from(its))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Running { socket: own, _process: process })
    }
}
