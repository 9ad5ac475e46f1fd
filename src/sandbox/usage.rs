//! What a workspace has on disk: counted while commands run, and between them (DESIGN.md, section 8).
//!
//! Quotas of file systems cannot be had by ordinary users, so files are counted: blocks as the file system says, each
//! inode once, folders too, temporary files too, and files that are deleted and still open while a command runs. A
//! command may overshoot by what it writes between two looks; large trees are looked at less often.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::unistd::Pid;

use super::control::{Over, size};
use super::family;
use super::job::Limits;
use super::later::later;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// How much longer than a look takes is waited until the next.
const EASE: u32 = 8;
/// What a workspace that is over its limit may grow by, so that commands can still delete: bytes.
const SLACK_BYTES: u64 = 1024 * 1024;
/// See [`SLACK_BYTES`]: files.
const SLACK_INODES: u64 = 64;
/// Files of a workspace with folders that no path reaches.
const TOO_DEEP: u64 = 1 << 40;

/// What is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes.
    pub bytes: u64,
    /// Files and folders.
    pub inodes: u64,
}

impl Usage {
    /// Which limit it is over.
    #[must_use]
    pub fn over(&self, limits: &Limits) -> Option<Over> {
        if self.bytes > limits.disk_bytes {
            return Some(Over::Disk(limits.disk_bytes));
        }
        (self.inodes > limits.inodes).then_some(Over::Inodes(limits.inodes))
    }

    /// What is said to a command that finds the workspace full.
    #[must_use]
    pub fn is_full(&self) -> String {
        format!(
            "The workspace is full ({}): nothing can be written until files are deleted.",
            self.in_words()
        )
    }

    /// For whoever reads it.
    #[must_use]
    pub fn in_words(&self) -> String {
        if self.inodes >= TOO_DEEP {
            return "it has folders that are too deep to be counted".to_owned();
        }
        format!("{} in {} files", size(self.bytes), self.inodes)
    }
}

/// Counts what is below a workspace's folder. A folder that a command has closed is opened again: it would hide what is
/// in it. So would one that is too deep for a path: it counts as more than anybody may have. Commands run meanwhile, so
/// nothing is followed that they may have put where a folder was.
#[must_use]
pub fn count(folder: &Path) -> Usage {
    let (mut usage, mut linked) = (Usage::default(), HashSet::new());
    let Ok(top) = File::open(folder) else { return usage };
    let mut folders: Vec<PathBuf> = vec!["workspace".into(), "tmp".into()];
    while let Some(below) = folders.pop() {
        let opened = match inside(&top, &below, OFlag::O_RDONLY) {
            Err(Errno::EACCES) => open_up(&top, &below).and_then(|()| inside(&top, &below, OFlag::O_RDONLY)),
            opened => opened,
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(Errno::ENAMETOOLONG) => return Usage { inodes: TOO_DEEP, ..usage },
            // What is gone takes nothing.
            Err(_) => continue,
        };
        // What is listed and looked at by a descriptor is in this folder, wherever that is by now.
        let entries = fs::read_dir(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        for entry in entries.into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if !meta.is_dir() && meta.nlink() > 1 && !linked.insert((meta.dev(), meta.ino())) {
                continue;
            }
            usage.bytes += meta.blocks() * 512;
            usage.inodes += 1;
            if meta.is_dir() {
                folders.push(below.join(entry.file_name()));
            }
        }
    }
    usage
}

/// Opens a folder below another one without following a link on the way.
fn inside(top: &File, below: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let flags = flags | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    openat2(top, below, OpenHow::new().flags(flags).resolve(resolve))
}

/// Gives the owner of a folder back what a command has taken.
fn open_up(top: &File, below: &Path) -> nix::Result<()> {
    let folder = inside(top, below, OFlag::O_PATH)?;
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(|_| Errno::EACCES)
}

/// Bytes of files that no folder has and that are still open in a family of processes: deleted ones on the file system of
/// a folder, and those that were made in memory, which no process of its own seems to take.
fn deleted(folder: &Path, keeper: Pid) -> u64 {
    let Ok(dev) = fs::metadata(folder).map(|meta| meta.dev()) else { return 0 };
    let (mut seen, mut bytes) = (HashSet::new(), 0);
    for pid in family::below(family::PROC, keeper) {
        for fd in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(meta) = fs::metadata(fd.path()) else { continue };
            let here = || {
                meta.dev() == dev
                    || fs::read_link(fd.path()).is_ok_and(|of| of.to_string_lossy().starts_with("/memfd:"))
            };
            if meta.is_file() && meta.nlink() == 0 && here() && seen.insert((meta.dev(), meta.ino())) {
                bytes += meta.blocks() * 512;
            }
        }
    }
    bytes
}

/// What was found, when, and how long it took.
#[derive(Clone, Copy, Debug)]
struct Found {
    usage: Usage,
    at: Instant,
    took: Duration,
}

/// What workspaces were found to have, by key. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Usages(Arc<Mutex<HashMap<String, Found>>>);

impl Usages {
    fn with<T>(&self, work: impl FnOnce(&mut HashMap<String, Found>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What was found last.
    #[must_use]
    pub fn last(&self, key: &str) -> Option<Usage> {
        self.with(|all| all.get(key).map(|found| found.usage))
    }

    /// What a workspace has that is full. A command in it can delete and can not write.
    pub async fn full(&self, key: &str, folder: &Path, limits: &Limits) -> Option<Usage> {
        let over = |usage: &Usage| usage.over(limits).is_some();
        self.last(key).filter(over)?;
        // It may have been emptied since it was counted.
        Some(self.look(key, folder).await.0).filter(over)
    }

    /// Adds what a tool of ours has written, until it is counted.
    pub fn add(&self, key: &str, bytes: u64) {
        self.with(|all| {
            if let Some(Found { usage, .. }) = all.get_mut(key) {
                usage.bytes += bytes;
                usage.inodes += 1;
            }
        });
    }

    /// A workspace that is new has nothing.
    pub fn begin(&self, key: &str) {
        let nothing = Found { usage: Usage::default(), at: Instant::now(), took: Duration::ZERO };
        self.with(|all| all.insert(key.to_owned(), nothing));
    }

    /// Forgets a workspace.
    pub fn forget(&self, key: &str) {
        self.with(|all| all.remove(key));
    }

    /// Counts, and keeps what was found; with how long it took.
    pub async fn look(&self, key: &str, folder: &Path) -> (Usage, Duration) {
        self.look_with(key, folder, None).await
    }

    /// Counts on the side what a command has left, unless a large tree was counted a short while ago.
    pub fn look_soon(&self, key: &str, folder: &Path) {
        let fresh = self.with(|all| all.get(key).is_some_and(|found| found.at.elapsed() < found.took * EASE));
        if !fresh {
            let (usages, key, folder) = (self.clone(), key.to_owned(), folder.to_owned());
            later(move || {
                usages.find(&key, &folder, None);
            });
        }
    }

    async fn look_with(&self, key: &str, folder: &Path, keeper: Option<Pid>) -> (Usage, Duration) {
        let (usages, key, folder) = (self.clone(), key.to_owned(), folder.to_owned());
        let found = tokio::task::spawn_blocking(move || usages.find(&key, &folder, keeper));
        // A task that panics has said so, and has kept nothing.
        found.await.unwrap_or_default()
    }

    /// The same on this thread.
    fn find(&self, key: &str, folder: &Path, keeper: Option<Pid>) -> (Usage, Duration) {
        let began = Instant::now();
        let usage = count(folder);
        let deleted = keeper.map_or(0, |keeper| deleted(&folder.join("workspace"), keeper));
        let took = began.elapsed();
        self.with(|all| all.insert(key.to_owned(), Found { usage, at: Instant::now(), took }));
        (Usage { bytes: usage.bytes + deleted, ..usage }, took)
    }

    /// Looks at a workspace in which a command runs, for as long as it is polled; ends with the limit that it has gone
    /// over. One that was over it before may still shrink.
    pub async fn watch(&self, key: &str, folder: PathBuf, limits: Limits, keeper: Option<Pid>) -> Over {
        let before = self.last(key).unwrap_or_default();
        let most = Limits {
            disk_bytes: limits.disk_bytes.max(before.bytes + SLACK_BYTES),
            inodes: limits.inodes.max(before.inodes + SLACK_INODES),
            ..limits
        };
        let most = if before.over(&limits).is_some() { most } else { limits };
        let mut wait = LOOK;
        loop {
            tokio::time::sleep(wait).await;
            let (usage, took) = self.look_with(key, &folder, keeper).await;
            if usage.over(&most).is_some() {
                return usage.over(&limits).unwrap_or(Over::Disk(limits.disk_bytes));
            }
            wait = LOOK.max(took * EASE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn space() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in ["workspace", "tmp"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        dir
    }

    #[test]
    fn every_inode_counts_once_and_nothing_outside() {
        let dir = space();
        assert_eq!(count(dir.path()), Usage::default());
        let (workspace, tmp) = (dir.path().join("workspace"), dir.path().join("tmp"));
        fs::create_dir(workspace.join("d")).unwrap();
        fs::write(workspace.join("d/a"), vec![1; 100_000]).unwrap();
        fs::hard_link(workspace.join("d/a"), tmp.join("b")).unwrap();
        symlink("/usr", workspace.join("link")).unwrap();
        let usage = count(dir.path());
        assert_eq!(usage.inodes, 3, "a folder, a file with two names, a link that is not followed");
        assert!((100_000..200_000).contains(&usage.bytes), "{usage:?}");
        fs::set_permissions(workspace.join("d"), fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(count(dir.path()).inodes, 3, "a closed folder hides nothing");
    }

    #[test]
    fn what_is_swapped_for_a_link_is_not_followed_and_what_is_too_deep_for_a_path_is_too_much() {
        let (dir, outside) = (space(), tempfile::tempdir().unwrap());
        fs::create_dir_all(outside.path().join("a/closed")).unwrap();
        fs::set_permissions(outside.path().join("a/closed"), fs::Permissions::from_mode(0o500)).unwrap();
        symlink(outside.path(), dir.path().join("workspace/swapped")).unwrap();
        // As if it had been a folder when its parent was listed.
        let top = File::open(dir.path()).unwrap();
        for below in
            ["workspace/swapped", "workspace/swapped/a", "workspace/../../x", "workspace/swapped/a/closed"]
        {
            assert!(inside(&top, below.as_ref(), OFlag::O_RDONLY).is_err(), "{below}");
            assert!(open_up(&top, below.as_ref()).is_err(), "{below}");
        }
        let mode = fs::metadata(outside.path().join("a/closed")).unwrap().mode() & 0o777;
        assert_eq!((mode, count(dir.path()).inodes), (0o500, 1));
        let limits = Limits::default();
        let deep = std::process::Command::new("bash")
            .args([
                "-c",
                "n=$(printf 'd%.0s' {1..200}); for i in {1..30}; do mkdir $n && cd $n; done; echo hidden > f",
            ])
            .current_dir(dir.path().join("workspace"))
            .status();
        assert!(deep.unwrap().success());
        let usage = count(dir.path());
        assert!(usage.over(&limits).is_some() && usage.is_full().contains("too deep"), "{usage:?}");
        // Nothing but the removal of it reaches it by its parts.
        assert!(crate::sandbox::folders::delete(dir.path()).is_ok() && !dir.path().exists());
    }

    #[tokio::test]
    async fn a_workspace_that_grows_over_its_limit_is_told_and_one_that_was_over_it_may_shrink() {
        let (dir, usages) = (space(), Usages::default());
        let limits = Limits { disk_bytes: 50_000, inodes: 10, ..Limits::default() };
        let watch = |usages: Usages| {
            let folder = dir.path().to_owned();
            async move {
                let watched = usages.watch("k", folder, limits, None);
                tokio::time::timeout(Duration::from_secs(1), watched).await.ok()
            }
        };
        assert_eq!(watch(usages.clone()).await, None);
        fs::write(dir.path().join("workspace/a"), vec![1; 100_000]).unwrap();
        assert_eq!(watch(usages.clone()).await, Some(Over::Disk(50_000)));
        assert_eq!(watch(usages.clone()).await, None, "it was over it before");
        fs::write(dir.path().join("workspace/b"), vec![1; 2_000_000]).unwrap();
        assert_eq!(watch(usages.clone()).await, Some(Over::Disk(50_000)), "it grows");
        for name in ["a", "b"] {
            fs::remove_file(dir.path().join("workspace").join(name)).unwrap();
        }
        usages.look("k", dir.path()).await;
        (0..12).for_each(|n| fs::write(dir.path().join(format!("tmp/{n}")), "").unwrap());
        assert_eq!(watch(usages).await, Some(Over::Inodes(10)));
    }

    #[test]
    fn a_file_that_is_deleted_and_open_counts() {
        let dir = space();
        let folder = dir.path().join("workspace");
        let mut child = std::process::Command::new("sh")
            .args(["-c", "exec 3>f; rm f; head -c 300000 /dev/zero >&3; echo; read -r _"])
            .current_dir(&folder)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        assert_eq!(count(dir.path()).inodes, 0);
        // This process stands in for the keeper.
        assert!(deleted(&folder, Pid::this()) >= 300_000);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(deleted(&folder, Pid::this()), 0);
    }
}
