//! What the host has before and after: processes, mounts, control groups, folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Processes of the host whose command line has a mark in it.
pub fn alive(mark: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(mark)).count()
}

/// Waits until there is none; what the kernel still has to do takes it a moment.
pub fn gone(mark: &str) {
    let until = Instant::now() + Duration::from_secs(5);
    while alive(mark) > 0 {
        assert!(Instant::now() < until, "{} processes of {mark:?} are left", alive(mark));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Control groups of ours that a process has made.
pub fn groups(pid: u32) -> Vec<PathBuf> {
    fn search(path: &Path, depth: u32, name: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(path).into_iter().flatten().flatten().filter(|e| e.path().is_dir()) {
            let ours = path.parent().is_some_and(|parent| parent.ends_with("nylorun"));
            if ours && entry.file_name().to_string_lossy().starts_with(name) {
                found.push(entry.path());
            } else if depth > 0 {
                search(&entry.path(), depth - 1, name, found);
            }
        }
    }
    let mut found = Vec::new();
    search(Path::new("/sys/fs/cgroup"), 6, &format!("{pid}-"), &mut found);
    found
}

/// What may not change. `processes`: below this one, which a helper that waits for work counts among.
#[derive(Debug, PartialEq, Eq)]
pub struct Host {
    mounts: usize,
    groups: usize,
    zombies: usize,
}

/// Control groups that wait for the next command: one for each controller.
const READY: usize = 3;

impl Host {
    /// Groups of commands that have ended go on the side: they have a moment for it.
    pub fn now() -> Self {
        let until = Instant::now() + Duration::from_secs(5);
        let groups = loop {
            let more = groups(std::process::id()).len().saturating_sub(READY);
            if more == 0 || Instant::now() > until {
                break more;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        Self { mounts: mounts(), groups, zombies: zombies() }
    }
}

/// Mounts of this machine, but for those of the daemon that other tests have containers with at the same time.
fn mounts() -> usize {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|line| !line.contains(super::dockerd::FOLDER)).count()
}

/// Processes below this one that nobody has taken in.
fn zombies() -> usize {
    let mut next = vec![std::process::id()];
    let mut zombies = 0;
    while let Some(pid) = next.pop() {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for list in tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok()) {
            for child in list.split_whitespace().filter_map(|child| child.parse().ok()) {
                let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
                zombies += usize::from(stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')));
                next.push(child);
            }
        }
    }
    zombies
}

/// Bytes that this process has in memory.
pub fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

/// Children of a process whose command line has a mark in it.
pub fn children(of: u32, mark: &str) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{of}/task")).unwrap().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let all = lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>());
    let has = |pid: &i32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(mark))
    };
    all.filter(has).collect()
}

/// Folders of workspaces, but for the one that is ready for the next.
pub fn folders(root: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(root).unwrap().flatten().map(|entry| entry.path());
    let ready =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".ready-"));
    all.filter(|path| path.is_dir() && !ready(path)).collect()
}
