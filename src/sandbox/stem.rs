//! The stem: the one helper process that is started as a program, and from which each piece of work gets a copy.
//!
//! Starting this program takes longer than everything that a cage needs, so it is done once. The stem is one thread, holds
//! nothing of the Runtime's (no variable, no descriptor but its socket), and does nothing but copy itself: there are always
//! [`keeper`]s that have built what they can of their cages and wait, the first of them on the socket. It tells when it has
//! taken a request; the next has its turn then, and the stem makes another once nobody asks for a moment: on a small machine
//! it would be in the way of the work that has just begun. The stem ends when the Runtime's end of its socket closes, and
//! with it those that wait; what a Runtime that was killed has left goes before, see [`leftovers`](super::leftovers).

use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read as _, Stdin, Write as _};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, close, fork, getppid, setsid};

use super::job::Ground;
use super::keeper;
use super::leftovers;
use super::rights;
use super::seccomp::Filters;

/// How many wait.
const READY: usize = 2;
/// How long nothing is asked for before the next is made, where another waits still: it is made while nobody works.
const CALM: Duration = Duration::from_millis(4);
/// A pause before the next try, where no helper can be made or one has gone without having done anything.
const PAUSE: Duration = Duration::from_millis(10);

/// Descriptors that come with a request.
pub struct Request {
    /// The socket of the helper.
    pub control: OwnedFd,
    /// Its standard output.
    pub stdout: OwnedFd,
    /// Its standard error.
    pub stderr: OwnedFd,
    /// First the socket over which the way out of the cage is handed to the Runtime, where the job has hosts to reach; then
    /// the files through which a process goes into its group.
    pub doors: Vec<OwnedFd>,
}

impl Request {
    /// In the order in which they travel.
    #[must_use]
    pub fn descriptors(self) -> Vec<OwnedFd> {
        [self.control, self.stdout, self.stderr].into_iter().chain(self.doors).collect()
    }

    pub(super) fn of(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut all = descriptors.into_iter();
        Some(Self { control: all.next()?, stdout: all.next()?, stderr: all.next()?, doors: all.collect() })
    }
}

/// Serves requests until the Runtime is gone. Standard input is the socket.
///
/// # Errors
/// In words; nobody reads them but a person who starts it by hand.
pub fn serve(ground: &Ground) -> Result<(), String> {
    let told = |what: &'static str| move |error: Errno| format!("{what}: {error}");
    let runtime = getppid();
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
    // The stem's ends of their sockets; the first has its turn.
    let mut waiting = VecDeque::with_capacity(READY);
    let mut due = Some(Instant::now());
    loop {
        if due.is_some_and(|due| due <= Instant::now()) {
            let (own, its) =
                UnixStream::pair().map_err(|error| format!("no helper can be spoken to: {error}"))?;
            // SAFETY: this process is one thread, so the copy holds no lock of another's and may do whatever this one may.
            #[allow(unsafe_code)]
            match unsafe { fork() } {
                Ok(ForkResult::Parent { .. }) => {
                    waiting.push_back(own);
                    if waiting.len() == 1 {
                        give_turn(&waiting);
                    }
                    due = (waiting.len() < READY).then(|| Instant::now() + CALM);
                }
                Ok(ForkResult::Child) => {
                    drop((ended, own, waiting));
                    keeper::wait(&socket, its, ground, &filters);
                    std::process::exit(0);
                }
                Err(_) => {
                    // The socket of the request closes, which tells.
                    if waiting.is_empty() {
                        refuse(&socket)?;
                    }
                    due = Some(Instant::now() + PAUSE);
                }
            }
        }
        let wait = due.map(|due| due.saturating_duration_since(Instant::now()));
        let [gone, closed, word, spare_gone] = look(&ended, &socket, &waiting, wait)?;
        if closed {
            drop(waiting);
            leftovers::remove(ground, runtime);
            return Ok(());
        }
        if gone {
            // Who has ended is of no interest here: a keeper has told it.
            while let Ok(Some(_)) = ended.read_signal() {}
            while matches!(
                waitpid(None, Some(WaitPidFlag::WNOHANG)),
                Ok(status) if status != WaitStatus::StillAlive
            ) {}
        }
        if spare_gone {
            waiting.truncate(1);
            due = Some(Instant::now() + PAUSE);
        }
        if word {
            let taken = waiting.pop_front().is_some_and(|mut first| matches!(first.read(&mut [0]), Ok(1)));
            give_turn(&waiting);
            let pause = match (taken, waiting.is_empty()) {
                (true, true) => Duration::ZERO,
                (true, false) => CALM,
                (false, _) => PAUSE,
            };
            due = Some(Instant::now() + pause);
        }
    }
}

/// Lets the first of those that wait take the next request. One that is gone is noticed as such.
fn give_turn(waiting: &VecDeque<UnixStream>) {
    if let Some(mut first) = waiting.front() {
        let _ = first.write_all(b"t");
    }
}

/// Waits until a child has ended, the Runtime is gone, the first that waits has said something or is gone, the next is gone.
fn look(
    ended: &SignalFd,
    socket: &Stdin,
    waiting: &VecDeque<UnixStream>,
    wait: Option<Duration>,
) -> Result<[bool; 4], String> {
    let mut ready = vec![
        PollFd::new(ended.as_fd(), PollFlags::POLLIN),
        // Only its end: requests are for those that wait.
        PollFd::new(socket.as_fd(), PollFlags::empty()),
    ];
    ready.extend(waiting.iter().map(|one| PollFd::new(one.as_fd(), PollFlags::POLLIN)));
    let wait = wait.map_or(PollTimeout::NONE, |wait| {
        // A millisecond that has begun is waited for whole.
        let milliseconds = wait.as_millis() + u128::from(wait.subsec_nanos() % 1_000_000 > 0);
        PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut ready, wait) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(format!("nothing can be waited for: {error}")),
    }
    Ok([0, 1, 2, 3].map(|n| ready.get(n).and_then(PollFd::any) == Some(true)))
}

/// Takes the next request, if there is one, and lets go of it.
fn refuse(socket: &Stdin) -> Result<(), String> {
    let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    match poll(&mut ready, PollTimeout::ZERO) {
        Ok(0) | Err(_) => Ok(()),
        Ok(_) => request(socket).map(drop),
    }
}

/// The next request; `None` when nobody asks any more.
pub(super) fn request(socket: impl AsFd) -> Result<Option<Request>, String> {
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
