//! A keeper: the process outside of one cage. It makes what the cage needs from outside, starts the process in it, and
//! ends all of it when the work is done, when it is told to, or when the Runtime is gone.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::Mode;
use nix::unistd::{ForkResult, Pid, Uid, chdir, fork, getpid, setsid};

use super::caged::{self, Given};
use super::control::{Ended, Over, Said, hear, say};
use super::family;
use super::files::{Place, WORKSPACE};
use super::job::{Cage, Job};
use super::landlock;
use super::namespaces;
use super::seccomp::Filters;
use super::stem::Request;

/// Exit code of what was killed because it went over a limit.
const KILLED: i32 = 137;
/// Time between two looks at what the processes take, where the kernel does not limit it.
const LOOK: Duration = Duration::from_millis(50);
/// How long is waited for processes that are killed: one may sit in the kernel.
const END_WAIT: Duration = Duration::from_secs(5);

fn told<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Does one job to its end.
pub fn keep(request: Request, filters: &Filters) {
    let Request { control, stdout, stderr, door } = request;
    let control = UnixStream::from(control);
    // Not in the group of the stem, nor of other keepers.
    let _ = setsid();
    let number = u32::try_from(getpid().as_raw()).unwrap_or(0);
    let done = say(&control, &Said::Here(number))
        .and_then(|()| hear::<Job>(&control))
        .map_err(told("the job cannot be read"))
        .and_then(|job| work(&job, &control, Outlets { stdout, stderr, door }, filters));
    let said = match done {
        Ok(ended) => Said::Ended(ended),
        Err(why) => Said::NoCage(why),
    };
    // Nobody may listen any more.
    let _ = say(&control, &said);
}

/// Where what comes out of a cage goes.
pub struct Outlets {
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    /// Over which its way out is handed to the Runtime.
    pub door: Option<OwnedFd>,
}

fn work(job: &Job, control: &UnixStream, outlets: Outlets, filters: &Filters) -> Result<Ended, String> {
    let doors = job.group.make().map_err(told("the limits cannot be set"))?;
    let (place, tmp, directories) = prepare(job)?;
    // Once the cage stands its `/proc` is this process's, too; what is entered before stays.
    chdir(family::PROC).map_err(told("/proc is not there"))?;
    let signals = children_signals()?;
    // SAFETY: this process is one thread, so the copy holds no lock of another's and may do whatever this one may.
    #[allow(unsafe_code)]
    let copied = unsafe { fork() }.map_err(told("the helper cannot be started"))?;
    match copied {
        ForkResult::Child => {
            drop(signals);
            let given = Given { job, place, tmp, directories, doors, control, outlets, filters };
            std::process::exit(caged::run(given))
        }
        ForkResult::Parent { child } => {
            drop((doors, outlets, directories));
            watch(job, control, &signals, child)
        }
    }
}

/// A cage's directories, by descriptor where their paths are not in it.
pub type Directories = Option<(OwnedFd, OwnedFd)>;

/// What is done from outside of the cage. Afterwards this process may no longer do what only the Runtime may.
fn prepare(job: &Job) -> Result<(Place, PathBuf, Directories), String> {
    let (workspace, tmp) = (job.folder.join("workspace"), job.folder.join("tmp"));
    match job.cage {
        Cage::None => {
            set_child_subreaper(true).map_err(told("orphans cannot be taken in"))?;
            Ok((Place { root: workspace }, tmp, None))
        }
        Cage::Landlock => {
            set_child_subreaper(true).map_err(told("orphans cannot be taken in"))?;
            let (workspace, tmp) = landlock::show(&job.folder)?;
            Ok((Place { root: workspace }, tmp, None))
        }
        Cage::Namespaces => {
            // Entered while its path can be walked: the user whom we become may not. A descriptor would stay in the old
            // mount namespace; the working directory goes along into the new one.
            chdir(&job.folder).map_err(told("the workspace is not there"))?;
            if Uid::effective().is_root() {
                namespaces::become_user(job.host_uid)?;
            }
            namespaces::enter()?;
            let directory = |name: &str| {
                let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
                open(name, flags, Mode::empty()).map_err(told("the workspace is not there"))
            };
            let directories = (directory("workspace")?, directory("tmp")?);
            Ok((Place { root: WORKSPACE.into() }, "/tmp".into(), Some(directories)))
        }
    }
}

/// Signals of children, held back and readable.
fn children_signals() -> Result<SignalFd, String> {
    let mut child = SigSet::empty();
    child.add(Signal::SIGCHLD);
    child.thread_block().map_err(told("signals cannot be held back"))?;
    SignalFd::with_flags(&child, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(told("signals cannot be read"))
}

/// Waits until the process in the cage has ended, for whatever reason, and leaves nothing of it behind.
fn watch(job: &Job, control: &UnixStream, signals: &SignalFd, caged: Pid) -> Result<Ended, String> {
    let (own, mut over) = (getpid(), None);
    let wait = if job.watched() {
        PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO)
    } else {
        PollTimeout::NONE
    };
    let code = loop {
        let mut ready = [
            PollFd::new(control.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut ready, wait) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(format!("nothing can be waited for: {error}")),
        }
        if ready[1].any() == Some(true) {
            while let Ok(Some(_)) = signals.read_signal() {}
            if let Some(code) = family::reap(caged) {
                break Some(code);
            }
        }
        // Whatever comes, and the end of who would say it, means the same.
        if ready[0].any() == Some(true) {
            break None;
        }
        if job.watched() {
            over = too_much(job, own);
            if over.is_some() {
                break None;
            }
        }
    };
    let code = end(job, caged, code);
    Ok(Ended { code: if over.is_some() { KILLED } else { code }, over })
}

fn too_much(job: &Job, own: Pid) -> Option<Over> {
    let takes = family::takes(family::HERE, own);
    if !job.kernel.memory && takes.memory > job.limits.memory_bytes {
        return Some(Over::Memory(job.limits.memory_bytes));
    }
    // One more for the helper.
    (!job.kernel.processes && takes.tasks > job.limits.processes + 1)
        .then_some(Over::Processes(job.limits.processes))
}

/// Ends everything below this process; the exit code of the one in the cage.
fn end(job: &Job, caged: Pid, code: Option<i32>) -> i32 {
    if job.cage == Cage::Namespaces && code.is_none() {
        // With the first process of a namespace all others end.
        let _ = kill(caged, Signal::SIGKILL);
    }
    let (mut code, until) = (code, Instant::now() + END_WAIT);
    if job.cage != Cage::Namespaces {
        code = code.or(family::end(caged));
    }
    while code.is_none() && Instant::now() < until {
        code = family::reap(caged);
        std::thread::sleep(Duration::from_micros(200));
    }
    code.unwrap_or(KILLED)
}

/// The files through which a process goes into its group.
pub type Doors = Vec<File>;
