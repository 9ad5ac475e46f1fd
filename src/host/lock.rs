//! One process per home: an exclusive lock on `<home>/lock` for as long as the process lives. The file names the
//! holder, so that the second process can say whom to ask.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::home::HomeError;

/// Held until it is dropped; the kernel lets go of it when the process dies.
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
}

impl HomeLock {
    /// Takes the lock of a home.
    ///
    /// # Errors
    /// [`HomeError::InUse`] names the process that holds it; [`HomeError::Io`] when the file cannot be made.
    pub fn take(home: &Path) -> Result<Self, HomeError> {
        let path = home.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| HomeError::io(&path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Whoever holds it writes its id at once; an unreadable one is told as unknown.
                let _ = file.read_to_string(&mut holder);
                return Err(HomeError::InUse { home: home.to_owned(), pid: holder.trim().parse().ok() });
            }
            Err(TryLockError::Error(error)) => return Err(HomeError::io(&path, &error)),
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(|error| HomeError::io(&path, &error))?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_holder_is_told_who_the_first_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = HomeLock::take(dir.path()).expect("free");
        match HomeLock::take(dir.path()) {
            Err(HomeError::InUse { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(first);
        HomeLock::take(dir.path()).expect("free again");
    }
}
