//! Control groups: CPU time, memory and processes of a command with everything that it starts, limited by the kernel.
//!
//! Used where this process may make groups: version 2 with the controllers handed down to it, or version 1 as root. Each
//! command has a group of its own, `<where this process is>/nylorun/<instance>/<process>-<n>`. The next one is made before
//! it is needed, and one whose command has ended is removed while its answer is already on the way: neither is waited for.
//! What a process that was killed has left is removed by the next one of the same instance, which is the folder of the
//! workspaces; groups of others are not touched.

mod place;

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::iter;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::family;
use super::job::Limits;
use super::later::later;

/// Microseconds over which CPU time is counted.
const PERIOD_US: u64 = 100_000;
/// The folder of all groups of ours.
const FOLDER: &str = "nylorun";

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Controller {
    Memory,
    Pids,
    Cpu,
}

impl Controller {
    const ALL: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }

    /// Which files say it, and whether they have to be there.
    fn values(self, version: Version, limits: &Limits) -> Vec<(&'static str, String, bool)> {
        let memory = limits.memory_bytes.to_string();
        let quota = u64::from(limits.cpus.max(1)) * PERIOD_US;
        match (self, version) {
            (Self::Memory, Version::One) => vec![
                ("memory.limit_in_bytes", memory.clone(), true),
                ("memory.memsw.limit_in_bytes", memory, false),
            ],
            (Self::Memory, Version::Two) => {
                vec![("memory.max", memory, true), ("memory.swap.max", "0".to_owned(), false)]
            }
            // One more for the helper.
            (Self::Pids, _) => vec![("pids.max", (limits.processes + 1).to_string(), true)],
            (Self::Cpu, Version::One) => vec![
                ("cpu.cfs_period_us", PERIOD_US.to_string(), true),
                ("cpu.cfs_quota_us", quota.to_string(), true),
            ],
            (Self::Cpu, Version::Two) => vec![("cpu.max", format!("{quota} {PERIOD_US}"), true)],
        }
    }
}

impl Version {
    /// The file that says how many processes of a group were killed for their memory.
    fn kills(self) -> &'static str {
        match self {
            Self::One => "memory.oom_control",
            Self::Two => "memory.events",
        }
    }

    /// The file through which a process of one thread goes into a group. In version 1 moving a thread waits for nobody;
    /// moving a process waits until nothing on the machine forks, which takes ten milliseconds on a busy one.
    fn door(self) -> &'static str {
        match self {
            Self::One => "tasks",
            Self::Two => "cgroup.procs",
        }
    }
}

/// Of the kernel's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// How long is waited for groups that are being removed when no more are needed.
const REMOVAL_WAIT: Duration = Duration::from_secs(5);

/// Groups that this process may make. Cheap to clone; the clones share the one that is ready.
#[derive(Clone, Debug)]
pub struct Cgroups {
    version: Version,
    /// The instance's folder for each controller. In version 2 they are the same.
    bases: Vec<(Controller, PathBuf)>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    next: Mutex<Next>,
    /// Groups that commands have, and those that are being removed.
    there: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Next {
    number: u64,
    ready: Option<Made>,
    closed: bool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let next = self.next.get_mut().unwrap_or_else(PoisonError::into_inner);
        next.ready.take().iter().for_each(Made::remove);
    }
}

impl Cgroups {
    /// Finds what this process may use and removes what its instance has left behind.
    ///
    /// # Errors
    /// In words: why there is nothing.
    pub fn find(instance: &str) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let two = place::two(&mounts, &own).ok_or("no cgroup v2 is mounted".to_owned());
        let found = match two.and_then(|own| place::handed_down(&own, instance)) {
            Ok(bases) => Ok((Version::Two, bases)),
            Err(not_two) => place::writable(place::one(&mounts, &own), instance)
                .map(|bases| (Version::One, bases))
                .map_err(|not_one| format!("v2: {not_two}; v1: {not_one}")),
        };
        let (version, bases) = found?;
        let groups = Self::of(version, bases);
        tidy(&groups.places());
        Ok(groups)
    }

    fn of(version: Version, bases: Vec<(Controller, PathBuf)>) -> Self {
        let shared = Shared { next: Mutex::default(), there: watch::channel(0).0 };
        Self { version, bases, shared: Arc::new(shared) }
    }

    /// How it is called where limits are told.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.version {
            Version::One => "cgroup v1",
            Version::Two => "cgroup v2",
        }
    }

    /// Whether memory is limited, processes, CPU time.
    #[must_use]
    pub fn limits(&self) -> (bool, bool, bool) {
        let has = |controller| self.bases.iter().any(|(is, _)| *is == controller);
        (has(Controller::Memory), has(Controller::Pids), has(Controller::Cpu))
    }

    /// A group for one command.
    ///
    /// # Errors
    /// The system's.
    pub async fn group(&self, limits: &Limits) -> std::io::Result<Group> {
        let (ready, limits) = (self.with(|next| next.ready.take()), *limits);
        let made = match ready {
            Some(ready) if ready.limits == limits => ready,
            // Of other limits, which the next may have, too. Whoever finds none makes it, and is told why it cannot be made.
            other => {
                let groups = self.clone();
                let make = move || {
                    other.iter().for_each(Made::remove);
                    groups.make(limits)
                };
                spawn_blocking(make).await.map_err(std::io::Error::other)??
            }
        };
        self.shared.there.send_modify(|there| *there += 1);
        Ok(Group { made: Some(made), of: self.clone() })
    }

    /// A command is over: its group goes, and now there is time for the next one's.
    fn over(&self, made: &Made) {
        made.remove();
        self.prepare(made.limits);
        self.shared.there.send_modify(|there| *there -= 1);
    }

    fn with<T>(&self, work: impl FnOnce(&mut Next) -> T) -> T {
        work(&mut self.shared.next.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the one for the next command, if there is none.
    fn prepare(&self, limits: Limits) {
        if self.with(|next| next.ready.is_some() || next.closed) {
            return;
        }
        if let Ok(made) = self.make(limits) {
            let useless = self.with(|next| {
                let none = next.ready.is_none() && !next.closed;
                if none { next.ready.replace(made) } else { Some(made) }
            });
            useless.iter().for_each(Made::remove);
        }
    }

    fn make(&self, limits: Limits) -> std::io::Result<Made> {
        let number = self.with(|next| {
            next.number += 1;
            next.number
        });
        let name = format!("{}-{number}", std::process::id());
        let mut made = Made { limits, dirs: Vec::new(), doors: Vec::new(), kills: None };
        match self.fill(&mut made, &name) {
            Ok(()) => Ok(made),
            Err(error) => {
                made.remove();
                Err(error)
            }
        }
    }

    fn fill(&self, made: &mut Made, name: &str) -> std::io::Result<()> {
        for (controller, base) in &self.bases {
            let path = base.join(name);
            if !made.dirs.contains(&path) {
                fs::create_dir_all(&path)?;
                made.dirs.push(path.clone());
                made.doors.push(File::options().write(true).open(path.join(self.version.door()))?);
            }
            if *controller == Controller::Memory {
                made.kills = Some(path.join(self.version.kills()));
            }
            for (name, value, must) in controller.values(self.version, &made.limits) {
                match put(&path.join(name), &value) {
                    Err(error) if must => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Removes what there is, once nothing runs any more. Groups that are asked for afterwards are made one by one.
    pub async fn forget(&self) {
        let ready = self.with(|next| {
            next.closed = true;
            next.ready.take()
        });
        if let Some(ready) = ready {
            // What cannot be removed is told by it.
            let _ = spawn_blocking(move || ready.remove()).await;
        }
        let mut there = self.shared.there.subscribe();
        let gone = tokio::time::timeout(REMOVAL_WAIT, there.wait_for(|there| *there == 0)).await.is_ok();
        if !gone {
            tracing::warn!("some control groups are not removed; the next start removes them");
        }
        let places = self.places();
        // A task that panics has said so.
        let _ = spawn_blocking(move || leave(&places)).await;
    }

    /// The folders in which groups are made.
    #[must_use]
    pub fn places(&self) -> Vec<PathBuf> {
        self.bases.iter().map(|(_, base)| base.clone()).collect()
    }
}

/// Removes groups whose process has ended, or is this one, of which nothing runs yet.
pub fn tidy(places: &[PathBuf]) {
    let own = std::process::id();
    for place in places {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(pid) = name.split('-').next().and_then(|pid| pid.parse::<u32>().ok()) else {
                continue;
            };
            if pid == own || family::ended(pid) {
                remove(&entry.path());
            }
        }
    }
}

/// Removes folders in which no groups are made any more. One that is in use stays.
pub fn leave(places: &[PathBuf]) {
    for place in places {
        let all = place.parent().filter(|all| all.ends_with(FOLDER));
        for folder in iter::once(place.as_path()).chain(all) {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// A group that there is.
#[derive(Debug)]
struct Made {
    limits: Limits,
    dirs: Vec<PathBuf>,
    /// The files through which a process goes in.
    doors: Vec<File>,
    /// Where it is told how many were killed for their memory.
    kills: Option<PathBuf>,
}

impl Made {
    fn remove(&self) {
        self.dirs.iter().for_each(|dir| remove(dir));
    }
}

/// A group of one command. It goes with this, on the side, with whatever still runs in it.
#[derive(Debug)]
pub struct Group {
    /// Until it goes.
    made: Option<Made>,
    of: Cgroups,
}

impl Group {
    /// The files through which a process goes in: who writes `0` into all of them is in it.
    ///
    /// # Errors
    /// The system's.
    pub fn doors(&self) -> std::io::Result<Vec<OwnedFd>> {
        let doors = self.made.iter().flat_map(|made| &made.doors);
        doors.map(|door| door.try_clone().map(OwnedFd::from)).collect()
    }

    /// Removes it with whatever still runs in it, and waits for that.
    pub async fn end(mut self) {
        if let Some(made) = self.made.take() {
            let groups = self.of.clone();
            // A task that panics has said so.
            let _ = spawn_blocking(move || groups.over(&made)).await;
        }
    }

    /// Whether something in it was killed for its memory. The kernel says so at once; no disk is asked.
    #[must_use]
    pub fn starved(&self) -> bool {
        let kills = self.made.as_ref().and_then(|made| made.kills.as_ref());
        let told = kills.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        told.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|n| n.trim() != "0"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let (Some(made), groups) = (self.made.take(), self.of.clone()) else { return };
        later(move || groups.over(&made));
    }
}

/// Removes a group with what runs in it.
fn remove(path: &Path) {
    for round in 0..400_u32 {
        match fs::remove_dir(path) {
            Ok(()) => return,
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(_) => {}
        }
        for pid in fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default().lines() {
            if let Some(pid) = pid.parse().ok().filter(|pid| *pid > 1) {
                // It may have ended this very moment.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        std::thread::sleep(Duration::from_micros(u64::from(round.min(50)) * 200 + 100));
    }
    tracing::warn!(path = %path.display(), "a control group cannot be removed");
}

fn put(path: &Path, value: &str) -> std::io::Result<()> {
    File::options().write(true).open(path)?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_group_is_ready_before_it_is_asked_for_and_none_is_left_when_all_is_over() {
        // Where this process may make none there is nothing to see; the backends say so.
        let Ok(groups) = Cgroups::find(&format!("test-{}", std::process::id())) else { return };
        let there = |groups: &Cgroups| {
            let folders = fs::read_dir(&groups.bases[0].1).into_iter().flatten().flatten();
            folders.filter(|entry| entry.path().is_dir()).count()
        };
        drop(groups.group(&Limits::default()).await.unwrap());
        for _ in 0..500 {
            if groups.with(|next| next.ready.is_some()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(there(&groups), 1, "the first is gone, the second is ready");
        let group = groups.group(&Limits::default()).await.unwrap();
        assert!(group.made.as_ref().unwrap().dirs[0].ends_with(format!("{}-2", std::process::id())));
        let other = groups.group(&Limits::default()).await.unwrap();
        assert_eq!(there(&groups), 2);
        let less = Limits { processes: 9, ..Limits::default() };
        let pids = groups.group(&less).await.unwrap();
        let limit = pids
            .made
            .as_ref()
            .unwrap()
            .dirs
            .iter()
            .find_map(|dir| fs::read_to_string(dir.join("pids.max")).ok());
        assert!(limit.is_none_or(|limit| limit.trim() == "10"), "one of other limits is not used");
        assert!(!group.starved());
        drop((group, other, pids));
        groups.forget().await;
        assert!(groups.bases.iter().all(|(_, base)| !base.exists()));
    }
}
