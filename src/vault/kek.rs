//! The key encryption key and its file (spec: security, section 6).

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nylorun_actors::model::canonical::sha256_hex;
use zeroize::Zeroizing;

use super::VaultError;

/// The key's file below the home directory.
pub const KEK_FILE: &str = "keys/vault-kek";

/// 32 secret bytes that wrap every data key.
pub struct Kek {
    bytes: Zeroizing<[u8; 32]>,
    id: String,
}

impl fmt::Debug for Kek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kek")
    }
}

impl Kek {
    /// A key of these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self { id: sha256_hex(&bytes), bytes: Zeroizing::new(bytes) }
    }

    /// Hex SHA-256 of the bytes: which key wraps a row.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The key of a home directory; `None` when there is no file.
    ///
    /// # Errors
    /// [`VaultError::File`] and [`VaultError::Malformed`].
    pub fn load(home: &Path) -> Result<Option<Self>, VaultError> {
        let path = home.join(KEK_FILE);
        match fs::read(&path) {
            Ok(text) => {
                parse(&Zeroizing::new(text)).map(Some).ok_or_else(|| VaultError::Malformed(shown(&path)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(VaultError::File { path: shown(&path), source }),
        }
    }

    /// The key of a home directory, made when there is no file. Of several processes that make it at once, one wins
    /// and the others read its key.
    ///
    /// # Errors
    /// [`VaultError::File`] and [`VaultError::Malformed`].
    pub fn load_or_create(home: &Path) -> Result<Self, VaultError> {
        if let Some(kek) = Self::load(home)? {
            return Ok(kek);
        }
        let path = home.join(KEK_FILE);
        let file = |source| VaultError::File { path: shown(&path), source };
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(file)?;
        write_new(&folder, &path).map_err(file)?;
        Self::load(home)?.ok_or_else(|| file(ErrorKind::NotFound.into()))
    }
}

/// Writes a fresh key beside `path` and links it there, so that nobody ever reads half a key and no key is replaced.
fn write_new(folder: &Path, path: &Path) -> std::io::Result<()> {
    let bytes = Zeroizing::new(rand::random::<[u8; 32]>());
    let mut text = Zeroizing::new(STANDARD.encode(bytes.as_slice()));
    text.push('\n');
    let draft: PathBuf = folder.join(format!(".vault-kek.{}", uuid::Uuid::new_v4()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::hard_link(&draft, path));
    let removed = fs::remove_file(&draft);
    match written {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        // The key must survive a power cut as surely as the rows it wraps.
        Ok(()) => removed.and_then(|()| fs::File::open(folder)?.sync_all()),
    }
}

fn parse(text: &[u8]) -> Option<Kek> {
    let decoded = Zeroizing::new(STANDARD.decode(text.trim_ascii()).ok()?);
    Some(Kek::from_bytes(decoded.as_slice().try_into().ok()?))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_first_start_makes_a_key_that_the_owner_alone_may_read_and_later_starts_find_it() {
        let home = tempfile::tempdir().expect("a folder");
        assert!(Kek::load(home.path()).expect("no error").is_none());
        let made = Kek::load_or_create(home.path()).expect("a key");
        let found = Kek::load(home.path()).expect("no error").expect("a key");
        assert_eq!(made.id(), found.id());
        let path = home.path().join(KEK_FILE);
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(path).expect("a file");
        assert!(text.ends_with('\n') && text.trim().len() == 44, "{}", text.len());
        let left: Vec<_> = fs::read_dir(home.path().join("keys")).expect("a folder").collect();
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn processes_that_make_the_key_at_once_agree_on_one() {
        let home = tempfile::tempdir().expect("a folder");
        let ids: Vec<String> = std::thread::scope(|scope| {
            let make = || Kek::load_or_create(home.path()).expect("a key").id().to_owned();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|t| t.join().expect("a thread")).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]));
    }

    #[test]
    fn white_space_around_the_key_is_ignored_and_any_other_length_is_an_error() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join(KEK_FILE);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, format!(" {}\r\n\n", STANDARD.encode([3; 32]))).expect("written");
        let kek = Kek::load(home.path()).expect("no error").expect("a key");
        assert_eq!(kek.id(), sha256_hex(&[3; 32]));
        for bad in [STANDARD.encode([3; 31]), STANDARD.encode([3; 33]), String::new(), "!!".to_owned()] {
            fs::write(&path, bad).expect("written");
            assert!(matches!(Kek::load(home.path()), Err(VaultError::Malformed(_))));
            assert!(matches!(Kek::load_or_create(home.path()), Err(VaultError::Malformed(_))));
        }
    }
}
