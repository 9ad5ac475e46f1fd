//! A new version whose bytes are written: its rows, the contents that it shares with others, its event.

use serde_json::json;

use super::{ALL_FILES, Room, limits, must_be, owner, reachable, too_large};
use crate::model::artifact::{ARTIFACT_PREFIX, ArtifactKind, ArtifactSource};
use crate::model::event::EventKind;
use crate::model::ids::{SessionId, TurnId, ulid};
use crate::model::json::{JsonMap, JsonText};
use crate::ports::Blob;
use crate::ports::store::{ArtifactContentRow, ArtifactRow, ArtifactVersionRow, StoreError, StoreResult, Tx};
use crate::rules::Refusal;
use crate::rules::event::write;
use crate::tenant::Reach;

/// Where a new version goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A new artifact.
    New {
        /// What it is.
        kind: ArtifactKind,
        /// Its name, checked.
        name: String,
        /// Whose; `None` is the Tenant's own.
        session: Option<SessionId>,
        /// `{key: value}`.
        labels: Option<JsonText>,
    },
    /// An artifact that is there.
    Version {
        /// Which.
        id: String,
    },
}

/// The bytes of some files of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewContent {
    /// Lowercase hexadecimal.
    pub sha256: String,
    /// How many.
    pub size: i64,
    /// Their CRC-32.
    pub crc32: u32,
    /// The blob that was written for them; `None` when a row named such bytes already.
    pub blob_key: Option<String>,
}

/// A new version whose bytes are written.
#[derive(Clone, Debug, PartialEq)]
pub struct NewVersion {
    /// The file, or a folder's manifest.
    pub blob: Blob,
    /// Bytes of the file, or of all files.
    pub size: i64,
    /// Media type.
    pub content_type: String,
    /// Where it came from.
    pub source: ArtifactSource,
    /// The turn that its event belongs to.
    pub turn: Option<TurnId>,
    /// The tool call that made it.
    pub call_id: Option<String>,
    /// How many files a folder has.
    pub file_count: Option<usize>,
    /// A folder's contents, each once.
    pub contents: Vec<NewContent>,
}

/// A version that stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Its artifact.
    pub artifact: ArtifactRow,
    /// The version.
    pub version: ArtifactVersionRow,
    /// Blobs that were written for nothing: somebody was faster with the same bytes.
    pub spare: Vec<String>,
}

/// Why a version was not stored.
#[derive(Clone, Debug, PartialEq)]
pub enum NotStored {
    /// Not allowed, too large, or the store's.
    Refused(Refusal),
    /// Bytes that were there when they were looked for are gone: they must be written after all.
    Stale,
}

impl From<Refusal> for NotStored {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<StoreError> for NotStored {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

/// Stores a version whose bytes are written: rows and event.
///
/// # Errors
/// [`NotStored`]; nothing is written then.
pub fn store(tx: &mut dyn Tx, target: &Target, new: &NewVersion, reach: &Reach) -> Result<Stored, NotStored> {
    // Session, then quota, then artifact.
    let known = match target {
        Target::New { session, .. } => {
            owner(tx, session.as_ref(), reach)?;
            None
        }
        Target::Version { id } => {
            let row = reachable(tx, id, reach)?;
            if let Some(session) = &row.session_id {
                tx.session(session)?;
            }
            Some(id)
        }
    };
    let room = Room { limits: limits(tx)?, used: tx.artifact_bytes()? };
    let (contents, added, spare) = shared(tx, &new.contents)?;
    if new.contents.is_empty() && new.file_count.is_none() {
        room.fits(new.blob.size)?;
    } else if new.blob.size.saturating_add(added) > room.limits.total_bytes.saturating_sub(room.used) {
        return Err(too_large(room.limits.total_bytes, ALL_FILES).into());
    }
    let now = tx.now();
    let artifact = match (known, target) {
        (Some(id), _) => {
            let mut row = reachable(tx, id, reach)?;
            must_be(&row, if new.file_count.is_some() { ArtifactKind::Folder } else { ArtifactKind::File })?;
            row.latest_version += 1;
            row.content_type.clone_from(&new.content_type);
            row.updated_at = now;
            tx.put_artifact_latest(&row)?;
            row
        }
        (None, Target::New { kind, name, session, labels }) => {
            let row = ArtifactRow {
                id: fresh_id(tx)?,
                kind: *kind,
                name: name.clone(),
                content_type: new.content_type.clone(),
                session_id: session.clone(),
                latest_version: 1,
                labels: labels.clone(),
                created_at: now,
                updated_at: now,
            };
            tx.insert_artifact(&row)?;
            row
        }
        (None, Target::Version { .. }) => return Err(Refusal::not_found("artifact").into()),
    };
    let version = ArtifactVersionRow {
        artifact_id: artifact.id.clone(),
        version: artifact.latest_version,
        blob_key: new.blob.key.clone(),
        blob_size: new.blob.size,
        size: new.size,
        sha256: new.blob.sha256.clone(),
        content_type: new.content_type.clone(),
        source: new.source,
        created_at: now,
    };
    tx.insert_artifact_version(&version)?;
    for content in contents {
        let (artifact_id, version) = (artifact.id.clone(), artifact.latest_version);
        tx.insert_artifact_content(&ArtifactContentRow { artifact_id, version, ..content })?;
    }
    if let Some(session) = &artifact.session_id {
        let kind = if artifact.latest_version == 1 {
            EventKind::ArtifactCreated
        } else {
            EventKind::ArtifactVersionCreated
        };
        // A session that is gone has no record to write to.
        if tx.session(session)?.is_some() {
            write(tx, session, new.turn.as_ref(), kind, &event(&artifact, &version, new))?;
        }
    }
    Ok(Stored { artifact, version, spare })
}

/// Rows of a folder's contents (without their version), the bytes that nobody had yet, and the blobs that were written
/// although somebody had theirs.
fn shared(
    tx: &mut dyn Tx,
    contents: &[NewContent],
) -> Result<(Vec<ArtifactContentRow>, i64, Vec<String>), NotStored> {
    let (mut rows, mut added, mut spare) = (Vec::with_capacity(contents.len()), 0i64, Vec::new());
    for content in contents {
        let blob_key = match (tx.content_of_hash(&content.sha256)?, &content.blob_key) {
            (Some(row), ours) => {
                spare.extend(ours.clone());
                row.blob_key
            }
            (None, Some(ours)) => {
                added = added.saturating_add(content.size);
                ours.clone()
            }
            (None, None) => return Err(NotStored::Stale),
        };
        rows.push(ArtifactContentRow {
            artifact_id: String::new(),
            version: 0,
            sha256: content.sha256.clone(),
            blob_key,
            size: content.size,
            crc32: content.crc32,
        });
    }
    Ok((rows, added, spare))
}

/// An id that is larger than every other one, so that ids are the order of creation.
fn fresh_id(tx: &mut dyn Tx) -> StoreResult<String> {
    let hex: String = tx.uuid().chars().filter(char::is_ascii_hexdigit).collect();
    let random = u128::from_str_radix(&hex, 16).unwrap_or_default();
    let id = format!("{ARTIFACT_PREFIX}{}", ulid(tx.now().millis(), random));
    Ok(match tx.last_artifact_id()? {
        Some(last) if last >= id => after(&last),
        _ => id,
    })
}

/// The next id after one, in the alphabet of ids.
fn after(id: &str) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let mut bytes = id.as_bytes().to_vec();
    for byte in bytes.iter_mut().skip(ARTIFACT_PREFIX.len()).rev() {
        match ALPHABET.iter().position(|letter| letter == byte).and_then(|at| ALPHABET.get(at + 1)) {
            Some(next) => {
                *byte = *next;
                break;
            }
            None => *byte = ALPHABET[0],
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn event(artifact: &ArtifactRow, version: &ArtifactVersionRow, new: &NewVersion) -> JsonMap {
    let mut payload = JsonMap::new();
    payload.insert("artifactId".into(), json!(artifact.id));
    payload.insert("kind".into(), json!(artifact.kind.as_str()));
    payload.insert("name".into(), json!(artifact.name));
    payload.insert("contentType".into(), json!(version.content_type));
    payload.insert("version".into(), json!(version.version));
    payload.insert("size".into(), json!(version.size));
    payload.insert("sha256".into(), json!(version.sha256));
    payload.insert("source".into(), json!(version.source.as_str()));
    if let Some(call) = &new.call_id {
        payload.insert("callId".into(), json!(call));
    }
    if let Some(count) = new.file_count {
        payload.insert("fileCount".into(), json!(count));
    }
    if new.source == ArtifactSource::Export {
        // What is in a sandbox is what its commands say.
        payload.insert("claimed".into(), json!(true));
    }
    payload
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::artifact::is_artifact_id;

    #[test]
    fn the_id_after_another_is_larger_and_still_an_id() {
        let id = format!("{ARTIFACT_PREFIX}{}", ulid(1_700_000_000_000, u128::MAX));
        let next = after(&id);
        assert!(next > id && is_artifact_id(&next), "{id} {next}");
        assert_eq!(after("af_0z"), "af_10");
    }
}
