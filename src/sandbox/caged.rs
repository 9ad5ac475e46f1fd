//! The process in the cage: builds what is around it, gives up what let it do so, works (spec: sandbox, section 12).

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::SigSet;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, Uid, dup2_stderr, dup2_stdout, setsid};

use super::control::{Said, say};
use super::files::Place;
use super::job::{Cage, Job, Work};
use super::keeper::{Directories, Doors, Outlets};
use super::landlock;
use super::namespaces;
use super::seccomp::Filters;
use super::way_out;

/// Exit code of a helper whose cage could not be built; it has said why.
const NO_CAGE: i32 = 125;

/// What a process in a cage is given.
pub struct Given<'a> {
    pub job: &'a Job,
    pub place: Place,
    pub tmp: PathBuf,
    pub directories: Directories,
    pub doors: Doors,
    pub control: &'a UnixStream,
    pub outlets: Outlets,
    pub filters: &'a Filters,
}

fn told<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Builds the cage and works in it; the exit code.
pub fn run(given: Given<'_>) -> i32 {
    let control = given.control;
    let done = build(given).and_then(|ready| {
        say(control, &Said::Ready).map_err(told("nobody listens"))?;
        ready.work(control)
    });
    done.unwrap_or_else(|why| {
        // Nobody may listen any more.
        let _ = say(control, &Said::NoCage(why));
        NO_CAGE
    })
}

/// A process in a cage that stands.
struct Ready<'a> {
    job: &'a Job,
    place: Place,
    tmp: PathBuf,
    /// What the cage has to say of itself.
    version: Option<String>,
}

fn build(given: Given<'_>) -> Result<Ready<'_>, String> {
    let Given { job, place, tmp, directories, doors, outlets, filters, .. } = given;
    let Outlets { stdout, stderr, door } = outlets;
    for mut door in doors {
        door.write_all(b"0").map_err(told("the limits cannot be set"))?;
    }
    // A group of its own: a signal to the group reaches all of it, whatever namespaces lie between.
    setsid().map_err(told("a session of its own cannot be made"))?;
    SigSet::empty().thread_set_mask().map_err(told("signals cannot be let through"))?;
    dup2_stdout(&stdout).map_err(told("standard output is gone"))?;
    dup2_stderr(&stderr).map_err(told("standard error is gone"))?;
    drop((stdout, stderr));
    let mut version = None;
    match (job.cage, directories) {
        (Cage::Namespaces, Some((workspace, tmp))) => {
            namespaces::die_with_parent()?;
            namespaces::build(&workspace, &tmp)?;
            // Here the loopback of this cage is up, and nothing that is not ours runs yet.
            if let Some(door) = door {
                way_out::hand_over(door).map_err(told("the way out cannot be made"))?;
            }
            limit(job)?;
            namespaces::give_up(filters)?;
            namespaces::die_with_parent()?;
        }
        (Cage::Landlock, _) => {
            limit(job)?;
            version = Some(landlock::restrict(job.host_uid, &place.root, &tmp, filters)?);
            namespaces::die_with_parent()?;
        }
        (Cage::None, _) => {
            limit(job)?;
            namespaces::die_with_parent()?;
        }
        (Cage::Namespaces, None) => return Err("the workspace is not there".to_owned()),
    }
    Ok(Ready { job, place, tmp, version })
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
        if self.job.cage != Cage::Namespaces {
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
fn limit(job: &Job) -> Result<(), String> {
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
    match job.cage {
        // Counted in the namespace of its own.
        Cage::Namespaces => lower(Resource::RLIMIT_NPROC, limits.processes)?,
        // Counted for the user, whoever else's processes are there; the keeper counts better, this is the backstop.
        Cage::Landlock | Cage::None if !job.kernel.processes => {
            let user = if job.cage == Cage::Landlock && Uid::effective().is_root() {
                job.host_uid
            } else {
                Uid::effective().as_raw()
            };
            lower(Resource::RLIMIT_NPROC, tasks_of(user) + limits.processes)?;
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
    let from = usize::try_from(nix::unistd::getppid().as_raw()).unwrap_or(0) + job.folder.as_os_str().len();
    for n in 0..wanted {
        cpus.set(there[(from + n) % there.len()]).map_err(told("CPUs cannot be chosen"))?;
    }
    sched_setaffinity(this, &cpus).map_err(told("CPUs cannot be chosen"))
}

/// Processes and threads of a user.
fn tasks_of(user: u32) -> u64 {
    let mut tasks = 0;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else { continue };
        let of = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse::<u64>().ok())
        };
        if of("Uid:") == Some(u64::from(user)) {
            tasks += of("Threads:").unwrap_or(1);
        }
    }
    tasks
}
