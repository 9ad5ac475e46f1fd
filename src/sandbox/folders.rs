//! The folders of workspaces: `<root>/<key>/workspace`, whose files live until the workspace is removed, and
//! `<root>/<key>/tmp`, whose files live until it stops.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid, chown};

use super::backend::HOST_UID;

/// Bytes of a path below a workspace's folder from where on a removal moves what is there.
const LONG: usize = 512;

/// Where workspaces are.
#[derive(Clone, Debug)]
pub struct Folders {
    root: PathBuf,
}

impl Folders {
    /// Makes the root, for nobody but this user.
    ///
    /// # Errors
    /// The system's.
    pub fn open(root: PathBuf) -> std::io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&root)?;
        let root = fs::canonicalize(root)?;
        Ok(Self { root })
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
        blocking(move || make(&folder)).await
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

/// Makes the two folders of a workspace for whoever runs in it; whether its files were not there.
///
/// # Errors
/// The system's.
pub fn make(folder: &Path) -> std::io::Result<bool> {
    let (workspace, tmp) = (folder.join("workspace"), folder.join("tmp"));
    let created = !workspace.exists();
    for (folder, mode) in [(&workspace, 0o755), (&tmp, 0o1777)] {
        fs::create_dir_all(folder)?;
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
