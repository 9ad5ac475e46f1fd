//! The helper process: reads its job, builds its cage, works (spec: sandbox, section 12).
//!
//! It is started by [`super::run`], is one thread, and knows nothing of the Runtime. A cage of namespaces takes two
//! processes: the first makes the namespaces, since only a child is in a new process namespace; the second, which is
//! process 1 in there, builds the system around it and gives up what let it do so.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use nix::fcntl::{OFlag, open};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, Uid, chdir};
use nylorun_actors::model::json::encode;
use serde::{Deserialize, Serialize};

use super::files::{Place, WORKSPACE};
use super::job::{ARGUMENT, Cage, INSIDE, Job, Limits, READY, Work};
use super::namespaces;

/// Exit of a helper whose cage could not be built; it has said why on standard error.
const NO_CAGE: u8 = 125;

/// A job on its way into the cage: directories by descriptor, since their paths are not there any more.
#[derive(Serialize, Deserialize)]
struct Handed {
    job: Job,
    workspace: i32,
    tmp: i32,
}

/// Whether this process is a helper; then it works and exits with this.
#[must_use]
pub fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let inside = arguments.next().is_some_and(|argument| argument == INSIDE);
    let done = if inside { in_the_cage() } else { outside() };
    Some(done.unwrap_or_else(|why| {
        // The parent reads it; there is nobody else to tell.
        let _ = writeln!(std::io::stderr(), "{why}");
        ExitCode::from(NO_CAGE)
    }))
}

fn told<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

fn input<T: for<'a> Deserialize<'a>>() -> Result<T, String> {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text).map_err(told("the job cannot be read"))?;
    serde_json::from_slice(&text).map_err(told("the job cannot be read"))
}

fn outside() -> Result<ExitCode, String> {
    let job: Job = input()?;
    if job.cage == Cage::None {
        limit(&job.limits)?;
        return work(&job.work, &Place { root: job.folder.join("workspace") }, &job.folder.join("tmp"));
    }
    let own = File::open("/proc/self/exe").map_err(told("this program cannot be opened again"))?;
    // Entered while its path can be walked: the user whom we become may not. A descriptor would stay in the old mount
    // namespace; the working directory goes along into the new one.
    chdir(&job.folder).map_err(told("the workspace is not there"))?;
    if Uid::effective().is_root() {
        namespaces::become_user(job.host_uid)?;
    }
    namespaces::enter()?;
    // Not before: whoever gets other rights is forgotten by its parent's end.
    namespaces::die_with_parent()?;
    let directory = |name: &str| {
        open(name, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty())
            .map_err(told("the workspace is not there"))
    };
    let (workspace, tmp) = (directory("workspace")?, directory("tmp")?);
    // The descriptor closes itself when the program has been started from it.
    let mut child = Command::new(format!("/proc/self/fd/{}", own.as_raw_fd()))
        .args([ARGUMENT, INSIDE])
        .env_clear()
        .stdin(Stdio::piped())
        .spawn()
        .map_err(told("the helper cannot be started in its namespaces"))?;
    let handed = Handed { job, workspace: workspace.as_raw_fd(), tmp: tmp.as_raw_fd() };
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(encode(&handed).as_bytes()).map_err(told("the job cannot be handed on"))?;
    }
    let status = child.wait().map_err(told("the helper was lost"))?;
    Ok(exit(status))
}

fn in_the_cage() -> Result<ExitCode, String> {
    namespaces::die_with_parent()?;
    let Handed { job, workspace, tmp } = input()?;
    namespaces::build(workspace, tmp)?;
    limit(&job.limits)?;
    namespaces::give_up()?;
    work(&job.work, &Place { root: WORKSPACE.into() }, Path::new("/tmp"))
}

fn exit(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

fn work(work: &Work, place: &Place, tmp: &Path) -> Result<ExitCode, String> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{READY}").and_then(|()| stdout.flush()).map_err(told("standard output is gone"))?;
    if let Work::Command(command) = work {
        return shell(command, place, tmp);
    }
    if let Some(answer) = work.run(place) {
        stdout.write_all(encode(&answer).as_bytes()).map_err(told("standard output is gone"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command and waits for it; what it has left in the background ends with this process. As process 1 of its
/// namespace this one takes in orphans, too.
fn shell(command: &str, place: &Place, tmp: &Path) -> Result<ExitCode, String> {
    let shell =
        ["/bin/bash", "/bin/sh"].into_iter().find(|path| Path::new(path).exists()).unwrap_or("/bin/sh");
    let started = Command::new(shell)
        .arg("-c")
        .arg(command)
        .current_dir(&place.root)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin")
        .env("HOME", &place.root)
        .env("TMPDIR", tmp)
        .env("LANG", "C.UTF-8")
        .env("TERM", "dumb")
        .stdin(Stdio::null())
        .spawn()
        .map_err(told("the shell cannot be started"))?;
    let shell = Pid::from_raw(i32::try_from(started.id()).map_err(told("no process id"))?);
    loop {
        let code = match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == shell => code,
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == shell => 128 + signal as i32,
            Ok(_) | Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => return Err(format!("the command was lost: {error}")),
        };
        return Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)));
    }
}

/// Lowers what this process and its children may use.
fn limit(limits: &Limits) -> Result<(), String> {
    let lower = |resource, most: u64| {
        let (_, hard) = getrlimit(resource).map_err(told("limits cannot be read"))?;
        let most = rlim_t::min(most, hard);
        setrlimit(resource, most, most).map_err(told("limits cannot be set"))
    };
    lower(Resource::RLIMIT_CORE, 0)?;
    lower(Resource::RLIMIT_DATA, limits.memory_bytes)?;
    lower(Resource::RLIMIT_NPROC, limits.processes)?;
    lower(Resource::RLIMIT_NOFILE, limits.open_files)?;
    lower(Resource::RLIMIT_FSIZE, limits.disk_bytes)?;
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).map_err(told("CPUs cannot be read"))?;
    let mut cpus = CpuSet::new();
    // From a place that differs between helpers, so that they do not all share the first CPUs.
    let there: Vec<usize> =
        (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).collect();
    let from = usize::try_from(std::process::id()).unwrap_or(0);
    for n in 0..usize::try_from(limits.cpus.max(1)).unwrap_or(1).min(there.len()) {
        cpus.set(there[(from + n) % there.len()]).map_err(told("CPUs cannot be chosen"))?;
    }
    sched_setaffinity(this, &cpus).map_err(told("CPUs cannot be chosen"))
}

/// Where the helper's program is: this one.
///
/// # Errors
/// The system's.
pub fn program() -> std::io::Result<PathBuf> {
    std::env::current_exe()
}
