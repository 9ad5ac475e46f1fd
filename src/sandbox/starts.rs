//! The Runtime's side of the [`stem`](super::stem): starts it when it is needed, asks it for helpers, starts it again when
//! it is gone.

use std::io::IoSlice;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use super::job::ARGUMENT;
use super::stem::DESCRIPTORS;

/// A pause while the stem has too many requests before it.
const PAUSE: Duration = Duration::from_millis(1);

/// The stem, from outside.
#[derive(Debug)]
pub struct Stem {
    program: PathBuf,
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
    pub fn new(program: PathBuf) -> Self {
        Self { program, running: Mutex::new(None) }
    }

    /// Asks for a helper with these descriptors.
    ///
    /// # Errors
    /// The system's.
    pub async fn ask(&self, descriptors: [OwnedFd; DESCRIPTORS]) -> std::io::Result<()> {
        let raw: Vec<RawFd> = descriptors.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
        let mut running = self.running.lock().await;
        let mut again = true;
        loop {
            let stem = match &*running {
                Some(stem) => stem,
                None => running.insert(self.start()?),
            };
            let (rights, byte) = ([ControlMessage::ScmRights(&raw)], [IoSlice::new(b"h")]);
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            match sendmsg::<()>(stem.socket.as_raw_fd(), &byte, &rights, flags, None) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => tokio::time::sleep(PAUSE).await,
                // Somebody has ended it.
                Err(_) if again => {
                    again = false;
                    *running = None;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn start(&self) -> std::io::Result<Running> {
        let (own, its) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let process = Command::new(&self.program)
            .arg(ARGUMENT)
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
