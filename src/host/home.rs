//! The home directory and its files: `host.json`, `host-credentials.json`, `credentials.json` and `link.json`
//! (spec: http-api, section 19; security, sections 2 and 13; DESIGN.md, section 8).
//!
//! The directory is 0700, files with secrets are 0600 from their first byte. A file is written under another name,
//! synced, and renamed: a crash leaves the old one or the new one.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nylorun_actors::model::ids::is_key;
use nylorun_actors::model::json;
use rand::TryRngCore;
use rand::rngs::OsRng;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What is wrong with a home. The process refuses to start, or the command refuses to go on.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// Another process lives there.
    #[error("the home {} is in use by process {}", home.display(), pid.map_or_else(|| "(unknown)".to_owned(), |pid| pid.to_string()))]
    InUse {
        /// The home.
        home: PathBuf,
        /// Who holds it.
        pid: Option<u32>,
    },
    /// It may not be written.
    #[error("the home is not writable: {}: {why}", path.display())]
    ReadOnly {
        /// What could not be written.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// Another failure of the file system.
    #[error("{}: {why}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A file is there and makes no sense.
    #[error("{} is malformed: {why}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl HomeError {
    /// The code that messages name.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "home-in-use",
            Self::ReadOnly { .. } => "home-read-only",
            Self::Io { .. } => "home-unusable",
            Self::Malformed { .. } => "home-malformed",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn repair(&self) -> String {
        match self {
            Self::InUse { pid: Some(pid), .. } => {
                format!("stop process {pid} first, or start with another --home")
            }
            Self::InUse { pid: None, .. } => {
                "stop the process that runs there, or start with another --home".to_owned()
            }
            Self::ReadOnly { path, .. } => format!(
                "make {} writable for this user, or start with another --home",
                path.parent().unwrap_or(path).display()
            ),
            Self::Io { .. } => "make sure that the home is a directory of this user".to_owned(),
            Self::Malformed { path, .. } => {
                format!("restore {} from a backup, or move it away to have it made again", path.display())
            }
        }
    }

    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Self {
        let (path, why) = (path.to_owned(), error.to_string());
        match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path, why },
            _ => Self::Io { path, why },
        }
    }
}

/// `host.json`: who this Host is. No secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostFile {
    /// Chosen on the first start, never changed.
    pub host_id: String,
    /// Where it listens.
    pub host: String,
    /// The port it was bound to last.
    pub port: u16,
    /// Whether it may be reached from other machines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_non_loopback: bool,
}

/// `link.json`: how clients on this machine find the Host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkFile {
    /// 3.
    #[serde(default)]
    pub format: u32,
    /// The Tenant, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Base URL of the API.
    pub host_url: String,
    /// The Host's id, so that a client notices another Host on the same port.
    pub host_id: String,
    /// Base URL of the operator API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_url: Option<String>,
}

/// `credentials.json`: an application key.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsFile {
    /// 64 hexadecimal digits.
    #[serde(deserialize_with = "secret")]
    pub application_key: SecretString,
    /// Whose key it is.
    #[serde(default)]
    pub principal_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdminFile {
    #[serde(deserialize_with = "secret")]
    admin_key: SecretString,
}

/// A home directory.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
}

/// Name of the operator key that every home has.
pub const LOCAL_KEY: &str = "local";

impl Home {
    /// A home that may not exist yet. Nothing is touched.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Makes the directory when it is missing, and closes it to others. An existing directory that is no home and
    /// holds other things keeps its mode: closing somebody's `/tmp` would do harm, and the secrets have modes of their own.
    ///
    /// # Errors
    /// [`HomeError`] with what to do.
    pub fn prepare(root: impl Into<PathBuf>) -> Result<Self, HomeError> {
        let home = Self::at(root);
        let told = |error: std::io::Error| HomeError::io(&home.root, &error);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&home.root).map_err(told)?;
        let ours = ["host.json", "nylorun.toml"].iter().any(|name| home.path(name).is_file());
        if ours || fs::read_dir(&home.root).map_err(told)?.next().is_none() {
            fs::set_permissions(&home.root, Permissions::from_mode(0o700)).map_err(told)?;
        }
        Ok(home)
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Path of a file of the home.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// `host.json`, made on the first start. `host`, `port` and the permission are those of this start.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn host_file(&self, host: &str, port: u16, allow_non_loopback: bool) -> Result<HostFile, HomeError> {
        let path = self.path("host.json");
        let stored: Option<HostFile> = read(&path)?;
        let host_id = stored.as_ref().map_or_else(|| uuid::Uuid::new_v4().to_string(), |f| f.host_id.clone());
        let file = HostFile { host_id, host: host.to_owned(), port, allow_non_loopback };
        if stored.as_ref() != Some(&file) {
            write(&path, &file, 0o644)?;
        }
        Ok(file)
    }

    /// The admin key, made on the first start.
    ///
    /// # Errors
    /// When the file cannot be read or written, or holds no key.
    pub fn admin_key(&self) -> Result<SecretString, HomeError> {
        if let Some(key) = self.stored_admin_key()? {
            return Ok(key);
        }
        let path = self.path("host-credentials.json");
        let key = new_key(&path)?;
        write(&path, &serde_json::json!({ "adminKey": key.expose_secret() }), 0o600)?;
        Ok(key)
    }

    /// The admin key, if there is one.
    ///
    /// # Errors
    /// When the file cannot be read, or holds no key.
    pub fn stored_admin_key(&self) -> Result<Option<SecretString>, HomeError> {
        let path = self.path("host-credentials.json");
        let Some(file) = read::<AdminFile>(&path)? else { return Ok(None) };
        checked(&path, file.admin_key).map(Some)
    }

    /// The local application key, and whether it was made just now.
    ///
    /// # Errors
    /// When the file cannot be read or written, or holds no key.
    pub fn local_key(&self) -> Result<(SecretString, bool), HomeError> {
        if let Some(file) = self.stored_credentials()? {
            return Ok((file.application_key, false));
        }
        let key = new_key(&self.path("credentials.json"))?;
        self.write_credentials(key.expose_secret(), LOCAL_KEY)?;
        Ok((key, true))
    }

    /// The harness token, and whether it was made just now. The file has the token alone, so that a harness can be given
    /// it with `NYLORUN_HARNESS_TOKEN=$(cat …)` or as a mounted secret.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn harness_token(&self) -> Result<(SecretString, bool), HomeError> {
        let path = self.path(HARNESS_TOKEN);
        match fs::read_to_string(&path) {
            Ok(token) => Ok((SecretString::from(token.trim().to_owned()), false)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let token = new_key(&path)?;
                write_bytes(&path, format!("{}\n", token.expose_secret()).as_bytes(), 0o600)?;
                Ok((token, true))
            }
            Err(error) => Err(HomeError::Io { path, why: error.to_string() }),
        }
    }

    /// The application key, if there is one.
    ///
    /// # Errors
    /// When the file cannot be read, or holds no key.
    pub fn stored_credentials(&self) -> Result<Option<CredentialsFile>, HomeError> {
        let path = self.path("credentials.json");
        let Some(file) = read::<CredentialsFile>(&path)? else { return Ok(None) };
        let application_key = checked(&path, file.application_key)?;
        Ok(Some(CredentialsFile { application_key, principal_id: file.principal_id }))
    }

    /// Replaces `credentials.json`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_credentials(&self, key: &str, principal: &str) -> Result<(), HomeError> {
        let body = serde_json::json!({ "format": 1, "applicationKey": key, "principalId": principal });
        write(&self.path("credentials.json"), &body, 0o600)
    }

    /// `link.json`, if there is one of a format that counts as a link.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn link(&self) -> Result<Option<LinkFile>, HomeError> {
        Ok(read::<LinkFile>(&self.path("link.json"))?.filter(|link| link.format >= LINK_FORMAT))
    }

    /// Replaces `link.json`. Nothing waits for the disk: each start writes it anew.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_link(&self, link: &LinkFile) -> Result<(), HomeError> {
        let text = format!("{}\n", json::encode(link));
        replace(&self.path("link.json"), text.as_bytes(), 0o644, false)
    }
}

/// Name of the file with the harness token.
pub const HARNESS_TOKEN: &str = "harness-token";

/// Formats below this one count as no link.
pub const LINK_FORMAT: u32 = 3;

/// SHA-256 of a key as lowercase hexadecimal: what the store keeps of it.
#[must_use]
pub fn key_hash(key: &str) -> String {
    hex::encode(Sha256::digest(key.as_bytes()))
}

fn secret<'de, D: serde::Deserializer<'de>>(from: D) -> Result<SecretString, D::Error> {
    String::deserialize(from).map(SecretString::from)
}

fn new_key(path: &Path) -> Result<SecretString, HomeError> {
    let mut bytes = [0_u8; 32];
    OsRng.try_fill_bytes(&mut bytes).map_err(|error| HomeError::Io {
        path: path.to_owned(),
        why: format!("the system has no randomness: {error}"),
    })?;
    Ok(SecretString::from(hex::encode(bytes)))
}

fn checked(path: &Path, key: SecretString) -> Result<SecretString, HomeError> {
    if is_key(key.expose_secret()) {
        return Ok(key);
    }
    let why = "the key is not 64 lowercase hexadecimal digits".to_owned();
    Err(HomeError::Malformed { path: path.to_owned(), why })
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, HomeError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(HomeError::Io { path: path.to_owned(), why: error.to_string() }),
    };
    json::decode(&bytes).map(Some).map_err(|error| {
        // serde's text may quote the document, which may hold a key: only the place is told.
        let why = format!("line {}, column {}", error.line(), error.column());
        HomeError::Malformed { path: path.to_owned(), why }
    })
}

fn write<T: Serialize>(path: &Path, value: &T, mode: u32) -> Result<(), HomeError> {
    write_bytes(path, format!("{}\n", json::encode(value)).as_bytes(), mode)
}

/// Writes a file so that a crash leaves the old one or the new one.
///
/// # Errors
/// When one of the steps fails.
pub fn write_bytes(path: &Path, bytes: &[u8], mode: u32) -> Result<(), HomeError> {
    replace(path, bytes, mode, true)
}

/// `durable`: a power cut leaves the old file or the new one too.
fn replace(path: &Path, bytes: &[u8], mode: u32, durable: bool) -> Result<(), HomeError> {
    let told = |error: std::io::Error| HomeError::io(path, &error);
    let directory = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("file");
    let draft = directory.join(format!(".{name}.{}", uuid::Uuid::new_v4().simple()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
        file.write_all(bytes)?;
        if durable {
            file.sync_all()?;
        }
        fs::rename(&draft, path)?;
        if durable { File::open(directory)?.sync_all() } else { Ok(()) }
    })();
    written.map_err(|error| {
        let _ = fs::remove_file(&draft);
        told(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("metadata").permissions().mode() & 0o777
    }

    #[test]
    fn keys_are_made_once_and_closed_to_others() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::prepare(dir.path().join("home")).expect("prepared");
        assert_eq!(mode(home.root()), 0o700);
        let admin = home.admin_key().expect("made");
        let (local, fresh) = home.local_key().expect("made");
        assert!(fresh && is_key(local.expose_secret()) && is_key(admin.expose_secret()));
        assert_eq!(home.admin_key().expect("read").expose_secret(), admin.expose_secret());
        let (again, fresh) = home.local_key().expect("read");
        assert!(!fresh && again.expose_secret() == local.expose_secret());
        assert_eq!(mode(&home.path("host-credentials.json")), 0o600);
        assert_eq!(mode(&home.path("credentials.json")), 0o600);
    }

    #[test]
    fn the_harness_token_is_made_once_and_its_file_has_nothing_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::prepare(dir.path().join("home")).expect("prepared");
        let (token, fresh) = home.harness_token().expect("made");
        assert!(fresh && is_key(token.expose_secret()));
        assert_eq!(mode(&home.path(HARNESS_TOKEN)), 0o600);
        let kept = fs::read_to_string(home.path(HARNESS_TOKEN)).expect("read");
        assert_eq!(kept.trim(), token.expose_secret());
        let (again, fresh) = home.harness_token().expect("read");
        assert!(!fresh && again.expose_secret() == token.expose_secret());
    }

    #[test]
    fn a_directory_of_somebody_else_keeps_its_mode() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("set");
        fs::write(dir.path().join("letter.txt"), "").expect("written");
        let home = Home::prepare(dir.path()).expect("prepared");
        assert_eq!(mode(home.root()), 0o755);
        home.host_file("127.0.0.1", 1, false).expect("made");
        Home::prepare(dir.path()).expect("prepared");
        assert_eq!(mode(home.root()), 0o700, "now it is a home");
    }

    #[test]
    fn the_host_keeps_its_id_when_its_port_changes() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::prepare(dir.path()).expect("prepared");
        let first = home.host_file("127.0.0.1", 1, false).expect("made");
        let second = home.host_file("127.0.0.1", 2, false).expect("changed");
        assert_eq!((first.host_id, second.port), (second.host_id, 2));
    }

    #[test]
    fn a_malformed_file_is_named_without_its_content() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::prepare(dir.path()).expect("prepared");
        fs::write(home.path("host-credentials.json"), "{\"adminKey\":\"top secret\"}").expect("written");
        let error = home.admin_key().expect_err("no key").to_string();
        assert!(error.contains("host-credentials.json") && !error.contains("top secret"), "{error}");
    }

    #[test]
    fn links_of_older_formats_count_as_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::prepare(dir.path()).expect("prepared");
        fs::write(home.path("link.json"), r#"{"format":2,"hostUrl":"x","hostId":"y"}"#).expect("written");
        assert!(home.link().expect("read").is_none());
    }
}
