//! The folders of workspaces: `<root>/<key>/workspace`, whose files live until the workspace is removed, and
//! `<root>/<key>/tmp`, whose files live until it stops.
//!
//! A few pairs are always ready for the next workspaces, `<root>/.ready-<process>-<random>`: a file system takes longer to
//! make folders than to rename one, on some a millisecond for each.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::unistd::{Gid, Uid, chown};

use super::backend::HOST_UID;
use super::family;
use super::later::later;

/// Bytes of a path below a workspace's folder from where on a removal moves what is there.
const LONG: usize = 512;

/// Where workspaces are. Cheap to clone; the clones share the folders that are ready.
#[derive(Clone, Debug)]
pub struct Folders {
    root: PathBuf,
    ready: Arc<Mutex<Ready>>,
}

#[derive(Debug, Default)]
struct Ready {
    folders: Vec<PathBuf>,
    /// Somebody makes another.
    making: bool,
    closed: bool,
}

impl Ready {
    fn wants(&self) -> bool {
        !self.closed && self.folders.len() < MOST_READY
    }
}

/// How many are ready when nobody asks for any.
const MOST_READY: usize = 4;

/// How folders begin that are ready for a workspace.
pub(super) const READY: &str = ".ready-";

impl Folders {
    /// Makes the root, as [`root`] does.
    ///
    /// # Errors
    /// The system's.
    pub fn open(root: PathBuf) -> std::io::Result<Self> {
        let root = self::root(&root)?;
        sweep(&root, READY);
        Ok(Self { root, ready: Arc::default() })
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A workspace. Keys are ours: a prefix and hexadecimal digits.
    #[must_use]
    pub fn of(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    /// The files of a workspace.
    #[must_use]
    pub fn workspace(&self, key: &str) -> PathBuf {
        self.root.join(key).join("workspace")
    }

    /// Its temporary files.
    #[must_use]
    pub fn tmp(&self, key: &str) -> PathBuf {
        self.root.join(key).join("tmp")
    }

    /// Makes a workspace's folders; whether they were not there.
    ///
    /// # Errors
    /// The system's.
    pub async fn make(&self, key: &str) -> std::io::Result<bool> {
        let folder = self.of(key);
        // As quick as handing it to another thread.
        if self.take(&folder) {
            return Ok(true);
        }
        let all = self.root.clone();
        let made = move || {
            // Somebody may have removed all of them.
            root(&all)?;
            make(&folder)
        };
        blocking(made).await
    }

    /// Makes pairs for the next workspaces: on the side, once there is time for it. Whoever finds none makes one, and is
    /// told why it cannot be made.
    pub fn prepare(&self) {
        let begin = self.with(|ready| ready.wants() && !std::mem::replace(&mut ready.making, true));
        if begin {
            let folders = self.clone();
            later(move || folders.make_ready());
        }
    }

    /// Takes a pair that is ready. A folder that is there is looked after, not replaced.
    fn take(&self, folder: &Path) -> bool {
        fs::symlink_metadata(folder).is_err()
            && self.with(|ready| ready.folders.pop()).is_some_and(|ready| fs::rename(ready, folder).is_ok())
    }

    fn make_ready(&self) {
        let folder = of_this_process(&self.root, READY);
        let made = make(&folder).is_ok();
        let kept = self.with(|ready| {
            ready.making = false;
            let keep = made && ready.wants();
            if keep {
                ready.folders.push(folder.clone());
            }
            keep
        });
        if kept {
            self.prepare();
        } else {
            // What is left of it goes with the next start.
            let _ = fs::remove_dir_all(&folder);
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Ready) -> T) -> T {
        work(&mut self.ready.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Removes what was made for workspaces that do not come any more.
    pub async fn close(&self) {
        let ready = self.with(|ready| {
            ready.closed = true;
            std::mem::take(&mut ready.folders)
        });
        // The next start removes them otherwise.
        let _ = blocking(move || ready.iter().try_for_each(fs::remove_dir_all)).await;
    }

    /// Removes a workspace's temporary files.
    ///
    /// # Errors
    /// The system's.
    pub async fn clear_tmp(&self, key: &str) -> std::io::Result<()> {
        let tmp = self.tmp(key);
        blocking(move || delete(&tmp)).await
    }

    /// Removes a workspace with everything in it. One that is not there is removed already.
    ///
    /// # Errors
    /// The system's.
    pub async fn remove(&self, key: &str) -> std::io::Result<()> {
        let folder = self.root.join(key);
        blocking(move || delete(&folder)).await
    }

    /// Keys that have a folder.
    pub async fn list(&self, prefix: &str) -> Vec<String> {
        let (root, prefix) = (self.root.clone(), prefix.to_owned());
        blocking(move || {
            let names = fs::read_dir(root)?.flatten().filter(|entry| entry.path().is_dir());
            let names = names.filter_map(|entry| entry.file_name().into_string().ok());
            Ok(names.filter(|name| name.starts_with(&prefix)).collect())
        })
        .await
        .unwrap_or_default()
    }
}

/// Makes the folder of all workspaces, for nobody but this user; its path without links.
///
/// # Errors
/// The system's.
pub fn root(path: &Path) -> std::io::Result<PathBuf> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    fs::canonicalize(path)
}

/// Lets helpers of root, who are somebody else, walk through the folder of all workspaces, or no more. They may not list
/// it. Only those need it who can reach nothing but their own workspace later on.
///
/// # Errors
/// The system's.
pub fn admit(root: &Path, helpers: bool) -> std::io::Result<()> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let meta = fs::metadata(root)?;
    let mode = meta.permissions().mode() & 0o7777;
    let (theirs, others) = (meta.gid() == HOST_UID, mode & 0o001 != 0);
    let wanted = match helpers {
        false if theirs => mode & !0o070,
        true if theirs => mode | 0o010,
        true if others => mode,
        // It is a group's already, which keeps it.
        true if mode & 0o070 != 0 => mode | 0o001,
        true => {
            chown(root, None, Some(Gid::from_raw(HOST_UID)))?;
            mode | 0o010
        }
        false => mode,
    };
    if mode == wanted {
        return Ok(());
    }
    fs::set_permissions(root, fs::Permissions::from_mode(wanted))
}

/// A name for a folder beside the workspaces that goes with this process: `<prefix><process>-<random>`.
#[must_use]
pub fn of_this_process(root: &Path, prefix: &str) -> PathBuf {
    root.join(format!("{prefix}{}-{:08x}", std::process::id(), rand::random::<u32>()))
}

/// Removes folders of such names whose process is gone. What cannot be removed now is looked at by the next one.
pub fn sweep(root: &Path, prefix: &str) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(prefix)?.split('-').next());
        if owner.and_then(|pid| pid.parse().ok()).is_some_and(family::ended) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Makes the two folders of a workspace for whoever runs in it; whether its files were not there. The folder of all
/// workspaces is there: whoever makes it knows for whom.
///
/// # Errors
/// The system's.
pub fn make(folder: &Path) -> std::io::Result<bool> {
    let (workspace, tmp) = (folder.join("workspace"), folder.join("tmp"));
    let created = !workspace.exists();
    one(folder)?;
    for (folder, mode) in [(&workspace, 0o755), (&tmp, 0o1777)] {
        one(folder)?;
        let meta = fs::metadata(folder)?;
        if meta.permissions().mode() & 0o7777 != mode {
            fs::set_permissions(folder, fs::Permissions::from_mode(mode))?;
        }
        if Uid::effective().is_root() {
            // Helpers of root are somebody else.
            chown(folder, Some(Uid::from_raw(HOST_UID)), Some(Gid::from_raw(HOST_UID)))?;
        }
    }
    Ok(created)
}

/// Makes one folder, if it is not there.
fn one(path: &Path) -> std::io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Removes a tree without following links; folders that a command has closed are opened first, and what lies too deep to
/// be reached is brought up. Nothing runs in it.
pub(super) fn delete(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(_) => {
            open_up(path);
            match fs::remove_dir_all(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        }
    }
}

/// Opens all folders of a tree, and moves to its top what has a long path from there: a path has an end, and a removal
/// holds a descriptor for each folder that it is in.
fn open_up(top: &Path) {
    let long = top.as_os_str().len() + LONG;
    let mut folders = vec![top.to_owned()];
    while let Some(mut folder) = folders.pop() {
        // What cannot be opened or moved makes the removal fail, which is told.
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700));
        if folder.as_os_str().len() > long {
            let up = top.join(format!("{:016x}", rand::random::<u64>()));
            if fs::rename(&folder, &up).is_ok() {
                folder = up;
            }
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn until(wanted: impl Fn() -> bool) {
        for _ in 0..500 {
            if wanted() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("it does not come");
    }

    #[tokio::test]
    async fn folders_are_ready_before_they_are_needed_and_one_that_is_there_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders::open(dir.path().join("sandboxes")).unwrap();
        let ready = || folders.with(|ready| ready.folders.clone());
        assert!(folders.make("k-1").await.unwrap());
        folders.prepare();
        until(|| ready().len() == MOST_READY).await;
        let before = ready();
        assert!(before.iter().all(|folder| folder.exists()));
        assert!(folders.make("k-2").await.unwrap());
        assert!(ready() == before[..MOST_READY - 1] && !before[MOST_READY - 1].exists(), "one was taken");
        for key in ["k-1", "k-2"] {
            let modes = [folders.workspace(key), folders.tmp(key)]
                .map(|folder| fs::metadata(folder).unwrap().permissions().mode() & 0o7777);
            assert_eq!(modes, [0o755, 0o1777], "{key}");
        }
        fs::write(folders.workspace("k-1").join("file"), "kept").unwrap();
        fs::remove_dir(folders.tmp("k-1")).unwrap();
        folders.prepare();
        until(|| ready().len() == MOST_READY).await;
        assert!(!folders.make("k-1").await.unwrap(), "its files are there");
        assert!(folders.workspace("k-1").join("file").exists() && folders.tmp("k-1").exists());
        assert_eq!(folders.list("k-").await.len(), 2);
        folders.close().await;
        let left = fs::read_dir(folders.root()).unwrap().flatten();
        assert_eq!(left.filter(|entry| entry.file_name().to_string_lossy().starts_with('.')).count(), 0);
    }

    #[tokio::test]
    async fn folders_that_are_made_ready_do_not_make_the_folder_of_all_workspaces_again() {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders::open(dir.path().join("sandboxes")).unwrap();
        fs::remove_dir_all(folders.root()).unwrap();
        folders.make_ready();
        assert!(!folders.root().exists() && folders.with(|ready| ready.folders.is_empty()));
        assert!(folders.make("k-1").await.unwrap());
        assert_eq!(fs::metadata(folders.root()).unwrap().permissions().mode() & 0o7777, 0o700);
    }

    #[test]
    fn helpers_of_root_walk_through_the_folder_of_all_workspaces_and_a_group_that_has_it_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let all = root(&dir.path().join("sandboxes")).unwrap();
        let of = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            (meta.permissions().mode() & 0o7777, meta.gid())
        };
        let before = of(&all);
        assert_eq!(before.0, 0o700);
        admit(&all, true).unwrap();
        if !Uid::effective().is_root() {
            assert_eq!(of(&all), before, "its helpers are the same user");
            return;
        }
        assert_eq!(of(&all), (0o710, HOST_UID));
        admit(&all, true).unwrap();
        assert_eq!(of(&all), (0o710, HOST_UID));
        admit(&all, false).unwrap();
        assert_eq!(of(&all), (0o700, HOST_UID));
        let shared = root(&dir.path().join("shared")).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o770)).unwrap();
        admit(&shared, true).unwrap();
        assert_eq!(of(&shared), (0o771, before.1));
        admit(&shared, false).unwrap();
        assert_eq!(of(&shared), (0o771, before.1));
    }

    #[test]
    fn what_a_process_that_was_killed_has_left_is_removed_by_the_next() {
        let root = tempfile::tempdir().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let left = root.path().join(format!("{READY}{}-00000000", ended.id()));
        let others = root.path().join(format!("{READY}1-00000000"));
        let workspace = root.path().join("nylorun-tn_x-0123");
        for folder in [&left, &others, &workspace] {
            fs::create_dir_all(folder.join("workspace")).unwrap();
        }
        Folders::open(root.path().to_owned()).unwrap();
        assert!(!left.exists() && others.exists() && workspace.exists());
    }
}
