//! The processes that a keeper answers for: everything below it, whatever sessions and groups they have made. A keeper
//! is their subreaper, so that what has lost its parent is still below it.
//!
//! A keeper looks at processes from the [`PROC`] that it has entered ([`HERE`]), not by its path: the process in a cage of
//! namespaces makes its new root the keeper's, too, and `/proc` is then the one of the cage.

use std::fs;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

/// Where processes are looked at.
pub const PROC: &str = "/proc";
/// The same, for a process whose working directory it is.
pub const HERE: &str = ".";

/// What a family takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// Bytes of memory that are its own, swapped ones too.
    pub memory: u64,
    /// Processes and threads.
    pub tasks: u64,
}

/// Every process below one, parents first. `proc`: [`PROC`] or [`HERE`].
#[must_use]
pub fn below(proc: &str, of: Pid) -> Vec<Pid> {
    let mut all = Vec::new();
    let mut next = children(proc, of);
    while let Some(pid) = next.pop() {
        all.push(pid);
        next.extend(children(proc, pid));
    }
    all
}

fn children(proc: &str, of: Pid) -> Vec<Pid> {
    // One that has ended has none.
    let tasks = fs::read_dir(format!("{proc}/{of}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .map(Pid::from_raw)
        .collect()
}

/// Whether this system tells which processes are below one.
#[must_use]
pub fn told() -> bool {
    fs::exists(format!("/proc/self/task/{}/children", nix::unistd::getpid())).unwrap_or(false)
}

/// What the processes below one take, as [`below`] finds them.
#[must_use]
pub fn takes(proc: &str, of: Pid) -> Takes {
    let mut takes = Takes::default();
    for pid in below(proc, of) {
        let Ok(status) = fs::read_to_string(format!("{proc}/{pid}/status")) else { continue };
        for line in status.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let number = || value.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            match name {
                "RssAnon" | "RssShmem" | "VmSwap" => takes.memory += number() * 1024,
                "Threads" => takes.tasks += number(),
                _ => {}
            }
        }
    }
    takes
}

/// Whether a process has ended: one that its parent has not taken in yet is only a number.
#[must_use]
pub fn ended(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("{PROC}/{pid}/stat")) else {
        return !fs::exists(format!("{PROC}/{pid}")).unwrap_or(true);
    };
    // The name before it may hold anything.
    stat.rsplit_once(')').is_some_and(|(_, rest)| matches!(rest.trim_start().chars().next(), Some('Z' | 'X')))
}

/// Takes in those that have ended; the exit code of `of` if it is among them.
pub fn reap(of: Pid) -> Option<i32> {
    let mut code = None;
    loop {
        let (pid, with) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, with)) => (pid, with),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, 128 + signal as i32),
            Err(Errno::EINTR) => continue,
            Ok(WaitStatus::StillAlive) | Err(_) => return code,
            Ok(_) => continue,
        };
        if pid == of {
            code = Some(with);
        }
    }
}

/// Whether nothing is below this process, which takes in orphans: what is below it is below a child of its own.
fn alone() -> bool {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, look) == Err(Errno::ECHILD)
}

/// Ends everything below this process, which is [`HERE`] and takes in orphans. What forks on meanwhile is stopped first, so
/// that the hunt comes to an end; the exit code of `of` if it was among it.
pub fn end(of: Pid) -> Option<i32> {
    let own = nix::unistd::getpid();
    let mut code = reap(of);
    // As a rule a command leaves nothing, and the system need not be asked for a list.
    if alone() {
        return code;
    }
    // Stopped processes stay where they are; each round finds fewer that are not.
    for round in 0..200_u32 {
        let mut seen = below(HERE, own);
        if seen.is_empty() {
            break;
        }
        for _ in 0..8 {
            seen.iter().for_each(|pid| send(*pid, Signal::SIGSTOP));
            let now = below(HERE, own);
            if now.iter().all(|pid| seen.contains(pid)) {
                break;
            }
            seen = now;
        }
        // Children before their parents, so that none has a moment to itself.
        seen.iter().rev().for_each(|pid| send(*pid, Signal::SIGKILL));
        if round > 0 {
            std::thread::sleep(Duration::from_micros(u64::from(round.min(20)) * 100));
        }
        code = code.or(reap(of));
    }
    code
}

fn send(pid: Pid, signal: Signal) {
    // It may have ended this very moment.
    let _ = kill(pid, signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_nobody_has_taken_in_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!ended(child.id()) && !ended(std::process::id()));
        child.kill().unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(5);
        while !ended(child.id()) {
            assert!(std::time::Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(fs::exists(format!("{PROC}/{}", child.id())).unwrap(), "its number is still there");
        child.wait().unwrap();
        assert!(ended(child.id()));
    }
}
