//! A keeper: the process outside of one cage. It begins the cage before it is needed, waits for a request, has the process
//! in the cage do it, and ends all of it when the work is done, when it is told to, or when the Runtime is gone.

use std::fs;
use std::io::{Read as _, Stdin, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::MsgFlags;
use nix::sys::stat::Mode;
use nix::unistd::{ForkResult, Pid, Uid, chdir, dup2_stdin, fork, getpid, setsid};

use super::caged;
use super::control::{Ended, Over, Said, hear, say};
use super::family;
use super::job::{Cage, Ground, Job};
use super::landlock;
use super::namespaces;
use super::rights;
use super::seccomp::Filters;
use super::stem::{self, Request};

/// Exit code of what was killed because it went over a limit.
const KILLED: i32 = 137;
/// Time between two looks at what the processes take, where the kernel does not limit it.
const LOOK: Duration = Duration::from_millis(50);
/// How long is waited for processes that are killed: one may sit in the kernel.
const END_WAIT: Duration = Duration::from_secs(5);

fn told<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Builds what can be built of a cage without knowing for which workspace, and waits for its turn and for a request.
/// `socket`: where requests come; `stem`: where it hears that it has its turn, and tells that one was taken. Ends when either
/// of them does.
pub fn wait(socket: &Stdin, mut stem: UnixStream, ground: &Ground, filters: &Filters) {
    // Not in the group of the stem, nor of other keepers.
    let _ = setsid();
    let begun = Begun::make(ground, filters);
    Job::rehearse();
    if !matches!(stem.read(&mut [0]), Ok(1)) {
        return;
    }
    loop {
        let mut ready =
            [PollFd::new(socket.as_fd(), PollFlags::POLLIN), PollFd::new(stem.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
        let [asked, alone] = ready.map(|ready| ready.any() == Some(true));
        if alone {
            return;
        }
        if asked {
            break;
        }
    }
    let Ok(Some(request)) = stem::request(socket) else { return };
    // The socket of the stem is none of a keeper's that works.
    if fs::File::open("/dev/null").is_ok_and(|null| dup2_stdin(null).is_ok()) {
        keep(request, begun, ground, stem);
    }
}

/// Does one job to its end.
fn keep(request: Request, begun: Result<Begun, String>, ground: &Ground, mut stem: UnixStream) {
    let Request { control, stdout, stderr, doors } = request;
    let control = UnixStream::from(control);
    let done = hear::<Job>(&control)
        .map_err(|error| Said::NoCage(told("the job cannot be read")(error)))
        .and_then(|job| {
            let descriptors = [stdout, stderr].into_iter().chain(doors);
            let begun = begun.and_then(|begun| {
                begun.hand_over(&job, &control, descriptors, ground)?;
                Ok(begun)
            });
            // Once the work goes on; one that is gone needs no other.
            let _ = stem.write_all(b"t");
            drop(stem);
            // Nothing has run.
            let begun = begun.map_err(Said::Stale)?;
            watch(&job, ground.cage, &control, &begun.signals, begun.child).map_err(Said::NoCage)
        });
    let said = done.map_or_else(|said| said, Said::Ended);
    // Nobody may listen any more.
    let _ = say(&control, &said);
}

/// A cage as far as it stands without a workspace: what is done from outside is done, and the process in it has begun.
struct Begun {
    signals: SignalFd,
    child: Pid,
    /// Over which the process in the cage is given its work.
    speaks: UnixStream,
}

impl Begun {
    /// What is done from outside of the cage. Afterwards this process may no longer do what only the Runtime may.
    fn make(ground: &Ground, filters: &Filters) -> Result<Self, String> {
        // Entered while its path can be walked: the user whom we become may not. A descriptor would stay in the old mount
        // namespace; the working directory goes along into the new one.
        chdir(&ground.root).map_err(told("the folder of the workspaces is not there"))?;
        match ground.cage {
            Cage::None | Cage::Landlock => {
                set_child_subreaper(true).map_err(told("orphans cannot be taken in"))?;
                if ground.cage == Cage::Landlock && Uid::effective().is_root() {
                    landlock::hide()?;
                }
            }
            Cage::Namespaces => {
                if Uid::effective().is_root() {
                    namespaces::become_user(ground.host_uid)?;
                }
                namespaces::enter()?;
            }
        }
        let signals = children_signals()?;
        let (speaks, hears) = UnixStream::pair().map_err(told("the helper cannot be spoken to"))?;
        // SAFETY: this process is one thread, so the copy holds no lock of another's and may do whatever this one may.
        #[allow(unsafe_code)]
        let copied = unsafe { fork() }.map_err(told("the helper cannot be started"))?;
        match copied {
            ForkResult::Child => {
                drop((signals, speaks));
                std::process::exit(caged::wait(&hears, ground, filters))
            }
            ForkResult::Parent { child } => Ok(Self { signals, child, speaks }),
        }
    }

    /// Gives the process in the cage its work, and leaves the folder of the workspaces.
    fn hand_over(
        &self,
        job: &Job,
        control: &UnixStream,
        descriptors: impl Iterator<Item = OwnedFd>,
        ground: &Ground,
    ) -> Result<(), String> {
        let gone = told("the workspace is not there");
        let mut all =
            vec![OwnedFd::from(control.try_clone().map_err(told("the job cannot be handed over"))?)];
        all.extend(descriptors);
        if ground.cage == Cage::Landlock && Uid::effective().is_root() {
            landlock::show(&job.folder)?;
        }
        if ground.cage == Cage::Namespaces {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            for name in ["workspace", "tmp"] {
                all.push(open(&Path::new(&job.folder).join(name), flags, Mode::empty()).map_err(&gone)?);
            }
        }
        // Once the cage stands its `/proc` is this process's, too; what is entered before stays.
        chdir(family::PROC).map_err(told("/proc is not there"))?;
        let number = u32::try_from(getpid().as_raw()).unwrap_or(0);
        rights::send(&self.speaks, &all, MsgFlags::empty())
            .and_then(|()| say(&self.speaks, &(number, job)))
            .map_err(told("the job cannot be handed over"))
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
fn watch(
    job: &Job,
    cage: Cage,
    control: &UnixStream,
    signals: &SignalFd,
    caged: Pid,
) -> Result<Ended, String> {
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
    let code = end(cage, caged, code);
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
fn end(cage: Cage, caged: Pid, code: Option<i32>) -> i32 {
    if cage == Cage::Namespaces && code.is_none() {
        // With the first process of a namespace all others end.
        let _ = kill(caged, Signal::SIGKILL);
    }
    let (mut code, until) = (code, Instant::now() + END_WAIT);
    if cage != Cage::Namespaces {
        code = code.or(family::end(caged));
    }
    while code.is_none() && Instant::now() < until {
        code = family::reap(caged);
        std::thread::sleep(Duration::from_micros(200));
    }
    code.unwrap_or(KILLED)
}
