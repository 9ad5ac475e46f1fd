//! The stem: the one helper process that is started as a program, and from which each piece of work gets a copy.
//!
//! Starting this program takes longer than everything that a cage needs, so it is done once. The stem is one thread, holds
//! nothing of the Runtime's (no variable, no descriptor but its socket), and does nothing but copy itself: a [`keeper`]
//! gets the descriptors that came with the request and reads its job from them. It ends when the Runtime's end of its
//! socket closes.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, close, dup2_stdin, fork, setsid};

use super::keeper;
use super::rights;
use super::seccomp::Filters;

/// Descriptors that come with a request.
pub struct Request {
    /// The socket of the helper.
    pub control: OwnedFd,
    /// Its standard output.
    pub stdout: OwnedFd,
    /// Its standard error.
    pub stderr: OwnedFd,
    /// The socket over which the way out of a cage is handed to the Runtime; only where there is to be one.
    pub door: Option<OwnedFd>,
}

impl Request {
    /// In the order in which they travel.
    #[must_use]
    pub fn descriptors(self) -> Vec<OwnedFd> {
        [self.control, self.stdout, self.stderr].into_iter().chain(self.door).collect()
    }

    fn of(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut all = descriptors.into_iter();
        Some(Self { control: all.next()?, stdout: all.next()?, stderr: all.next()?, door: all.next() })
    }
}

/// Serves requests until the Runtime is gone. Standard input is the socket.
///
/// # Errors
/// In words; nobody reads them but a person who starts it by hand.
pub fn serve() -> Result<(), String> {
    let told = |what: &'static str| move |error: Errno| format!("{what}: {error}");
    close_all()?;
    // A terminal's signals are the Runtime's, which ends its helpers in order.
    let _ = setsid();
    let filters = Filters::compile()?;
    let mut child = SigSet::empty();
    child.add(Signal::SIGCHLD);
    child.thread_block().map_err(told("signals cannot be held back"))?;
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let ended = SignalFd::with_flags(&child, flags).map_err(told("signals cannot be read"))?;
    let socket = std::io::stdin();
    loop {
        let mut ready =
            [PollFd::new(socket.as_fd(), PollFlags::POLLIN), PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(told("nothing can be waited for")(error)),
        }
        let (asked, gone) = (ready[0].any() == Some(true), ready[1].any() == Some(true));
        if gone {
            // Who has ended is of no interest here: a keeper has told it.
            while let Ok(Some(_)) = ended.read_signal() {}
            while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive)
            {
            }
        }
        if !asked {
            continue;
        }
        let Some(request) = request(&socket)? else { return Ok(()) };
        // SAFETY: this process is one thread, so the copy holds no lock of another's and may do whatever this one may.
        #[allow(unsafe_code)]
        let copied = unsafe { fork() };
        match copied {
            Ok(ForkResult::Parent { .. }) => {}
            Ok(ForkResult::Child) => {
                drop(ended);
                // The socket of the stem is none of a keeper's.
                let null = fs::File::open("/dev/null").map_err(|error| error.to_string())?;
                dup2_stdin(null).map_err(told("standard input cannot be closed"))?;
                keeper::keep(request, &filters);
                std::process::exit(0);
            }
            // The socket of the request closes, which tells.
            Err(_) => {}
        }
    }
}

/// The next request; `None` when nobody asks any more.
fn request(socket: impl AsFd) -> Result<Option<Request>, String> {
    loop {
        match rights::receive(&socket) {
            Ok(None) => return Ok(None),
            Ok(Some(descriptors)) => {
                if let Some(request) = Request::of(descriptors) {
                    return Ok(Some(request));
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(format!("requests cannot be read: {error}")),
        }
    }
}

/// Closes every descriptor but the three standard ones, whatever the Runtime was started with.
fn close_all() -> Result<(), String> {
    let open: Vec<RawFd> = fs::read_dir("/proc/self/fd")
        .map_err(|error| format!("descriptors cannot be listed: {error}"))?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in open {
        // The listing's own descriptor has closed already.
        let _ = close(fd);
    }
    Ok(())
}
