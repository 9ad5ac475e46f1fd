//! The process in the cage: builds what is around it as far as it can be built before its work is known, waits, completes
//! the cage, gives up what let it do so, works (spec: sandbox, section 12).

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::SigSet;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, Uid, dup2_stderr, dup2_stdin, dup2_stdout, setsid};

use super::control::{Said, hear, say};
use super::files::{Place, WORKSPACE};
use super::job::{Cage, Ground, Job, Work};
use super::landlock;
use super::namespaces;
use super::rights;
use super::seccomp::Filters;
use super::stem::Request;
use super::system::Seen;
use super::way_out;

/// Exit code of a helper whose cage could not be built; it has said why.
const NO_CAGE: i32 = 125;

/// What is done before the work is known.
enum Half {
    Nothing,
    Namespaces,
    Landlock(landlock::Rules),
}

fn told<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Begins the cage, waits until it is given work, completes the cage and does it; the exit code.
pub fn wait(from: &UnixStream, ground: &Ground, filters: &Filters) -> i32 {
    let (seen, half) = (Seen::now(), begin(ground, filters));
    Job::rehearse();
    // Its keeper has gone without a word.
    let Ok(Some(descriptors)) = rights::receive(from) else { return NO_CAGE };
    let Some(mut given) = Request::of(descriptors) else { return NO_CAGE };
    let control = UnixStream::from(given.control);
    let done = hear::<(u32, Job)>(from).map_err(told("the job cannot be read")).and_then(|(keeper, job)| {
        let changed = || if Seen::now() == seen { Ok(()) } else { Err("the system has changed".to_owned()) };
        let half = match half.and_then(|half| changed().map(|()| half)) {
            Ok(half) => half,
            Err(why) => {
                say(&control, &Said::Stale(why)).map_err(told("nobody listens"))?;
                return Ok(NO_CAGE);
            }
        };
        // The workspace's two are the last.
        let directories = (ground.cage == Cage::Namespaces)
            .then(|| given.doors.pop().zip(given.doors.pop()).map(|(tmp, workspace)| (workspace, tmp)))
            .flatten();
        let outlets = Outlets { stdout: given.stdout, stderr: given.stderr, doors: given.doors };
        let ready = complete(ground, &job, half, directories, outlets, filters)?;
        say(&control, &Said::Ready(keeper)).map_err(told("nobody listens"))?;
        ready.work(&control)
    });
    done.unwrap_or_else(|why| {
        // Nobody may listen any more.
        let _ = say(&control, &Said::NoCage(why));
        NO_CAGE
    })
}

/// Where what comes out of a cage goes.
struct Outlets {
    stdout: OwnedFd,
    stderr: OwnedFd,
    /// As in [`Request::doors`].
    doors: Vec<OwnedFd>,
}

/// A process in a cage that stands.
struct Ready<'a> {
    cage: Cage,
    job: &'a Job,
    place: Place,
    tmp: PathBuf,
    /// What the cage has to say of itself.
    version: Option<String>,
}

fn begin(ground: &Ground, filters: &Filters) -> Result<Half, String> {
    // The socket of the stem is none of a cage's.
    let null = File::open("/dev/null").map_err(told("standard input cannot be closed"))?;
    dup2_stdin(null).map_err(told("standard input cannot be closed"))?;
    // A group of its own: a signal to the group reaches all of it, whatever namespaces lie between.
    setsid().map_err(told("a session of its own cannot be made"))?;
    SigSet::empty().thread_set_mask().map_err(told("signals cannot be let through"))?;
    match ground.cage {
        Cage::Namespaces => {
            namespaces::die_with_parent()?;
            namespaces::begin()?;
            Ok(Half::Namespaces)
        }
        Cage::Landlock => {
            let rules = landlock::begin(ground.host_uid, filters)?;
            namespaces::die_with_parent()?;
            Ok(Half::Landlock(rules))
        }
        Cage::None => {
            namespaces::die_with_parent()?;
            Ok(Half::Nothing)
        }
    }
}

fn complete<'a>(
    ground: &Ground,
    job: &'a Job,
    half: Half,
    directories: Option<(OwnedFd, OwnedFd)>,
    outlets: Outlets,
    filters: &Filters,
) -> Result<Ready<'a>, String> {
    let Outlets { stdout, stderr, doors } = outlets;
    let mut doors = doors.into_iter();
    let way_out = if job.hosts.is_empty() { None } else { doors.next() };
    for door in doors {
        File::from(door).write_all(b"0").map_err(told("the limits cannot be set"))?;
    }
    dup2_stdout(&stdout).map_err(told("standard output is gone"))?;
    dup2_stderr(&stderr).map_err(told("standard error is gone"))?;
    drop((stdout, stderr));
    let mut version = None;
    let folder = ground.root.join(&job.folder);
    let (mut workspace, mut tmp) = (folder.join("workspace"), folder.join("tmp"));
    match half {
        Half::Namespaces => {
            let directories = directories.ok_or("the workspace is not there")?;
            namespaces::complete(&directories.0, &directories.1)?;
            // Here the loopback of this cage is up, and nothing that is not ours runs yet.
            if let Some(door) = way_out {
                way_out::hand_over(door).map_err(told("the way out cannot be made"))?;
            }
            (workspace, tmp) = (WORKSPACE.into(), "/tmp".into());
            limit(ground, job)?;
            namespaces::give_up(filters)?;
            namespaces::die_with_parent()?;
        }
        Half::Landlock(rules) => {
            if let Some(shown) = rules.shown() {
                (workspace, tmp) = shown;
            }
            limit(ground, job)?;
            version = Some(rules.restrict(&workspace, &tmp)?);
        }
        Half::Nothing => limit(ground, job)?,
    }
    Ok(Ready { cage: ground.cage, job, place: Place { root: workspace }, tmp, version })
}

impl Ready<'_> {
    fn work(&self, control: &UnixStream) -> Result<i32, String> {
        if let Work::Command(command) = &self.job.work {
            return self.shell(command);
        }
        if let Some(answer) = self.job.work.run(&self.place, self.version.as_deref()) {
            say(control, &Said::Answer(answer)).map_err(told("nobody listens"))?;
        }
        Ok(0)
    }

    /// Runs a command. As process 1 of its namespace this one waits for it and takes in orphans; elsewhere it becomes the
    /// command, and its keeper does that.
    fn shell(&self, command: &str) -> Result<i32, String> {
        let shell =
            ["/bin/bash", "/bin/sh"].into_iter().find(|path| Path::new(path).exists()).unwrap_or("/bin/sh");
        let mut starts = Command::new(shell);
        starts
            .arg("-c")
            .arg(command)
            .current_dir(&self.place.root)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin")
            .env("HOME", &self.place.root)
            .env("TMPDIR", &self.tmp)
            .env("LANG", "C.UTF-8")
            .env("TERM", "dumb")
            .envs(way_out::variables(&self.job.hosts))
            .stdin(Stdio::null());
        if self.cage != Cage::Namespaces {
            return Err(told("the shell cannot be started")(starts.exec()));
        }
        let started = starts.spawn().map_err(told("the shell cannot be started"))?;
        let shell = Pid::from_raw(i32::try_from(started.id()).map_err(told("no process id"))?);
        loop {
            match waitpid(None, None) {
                Ok(WaitStatus::Exited(pid, code)) if pid == shell => return Ok(code),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == shell => return Ok(128 + signal as i32),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(format!("the command was lost: {error}")),
            }
        }
    }
}

/// Lowers what this process and its children may use, where the kernel does not do it for all of them together.
fn limit(ground: &Ground, job: &Job) -> Result<(), String> {
    let limits = &job.limits;
    let lower = |resource, most: u64| {
        let (_, hard) = getrlimit(resource).map_err(told("limits cannot be read"))?;
        let most = rlim_t::min(most, hard);
        setrlimit(resource, most, most).map_err(told("limits cannot be set"))
    };
    lower(Resource::RLIMIT_CORE, 0)?;
    lower(Resource::RLIMIT_NOFILE, limits.open_files)?;
    lower(Resource::RLIMIT_FSIZE, limits.disk_bytes)?;
    if !job.kernel.memory {
        lower(Resource::RLIMIT_DATA, limits.memory_bytes)?;
    }
    match ground.cage {
        // Counted in the namespace of its own.
        Cage::Namespaces => lower(Resource::RLIMIT_NPROC, limits.processes)?,
        // Counted for the user, whoever else's processes are there; the keeper counts better, this is the backstop. Tools
        // of ours start nothing.
        Cage::Landlock | Cage::None if job.watched() && !job.kernel.processes => {
            lower(Resource::RLIMIT_NPROC, tasks_of(Uid::effective().as_raw()) + limits.processes)?;
        }
        Cage::Landlock | Cage::None => {}
    }
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).map_err(told("CPUs cannot be read"))?;
    let there: Vec<usize> =
        (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).collect();
    let wanted = usize::try_from(limits.cpus.max(1)).unwrap_or(1);
    if wanted >= there.len() {
        return Ok(());
    }
    let mut cpus = CpuSet::new();
    // From a place that differs between helpers, so that they do not all share the first CPUs.
    let from = usize::try_from(nix::unistd::getppid().as_raw()).unwrap_or(0) + job.folder.len();
    for n in 0..wanted {
        cpus.set(there[(from + n) % there.len()]).map_err(told("CPUs cannot be chosen"))?;
    }
    sched_setaffinity(this, &cpus).map_err(told("CPUs cannot be chosen"))
}

/// Processes and threads of a user. Those of others are not opened: there may be many.
fn tasks_of(user: u32) -> u64 {
    let mut tasks = 0;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        if !entry.metadata().is_ok_and(|meta| meta.uid() == user) {
            continue;
        }
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse().ok());
        // What is no process has none.
        tasks += threads.unwrap_or(0_u64);
    }
    tasks
}
