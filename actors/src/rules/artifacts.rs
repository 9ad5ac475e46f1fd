//! Artifacts: who reaches which, what a new version costs, what is left when one goes (spec: http-api, section 12;
//! durability, section 3.1).
//!
//! Bytes are written before the transaction that names them. Each function here locks in the order session, quota,
//! artifact, and says which blobs are nobody's afterwards.

use serde_json::json;

use super::event::write;
use super::{Refusal, sessions};
use crate::limits::{ARTIFACT_FILE_BYTES, ARTIFACT_TOTAL_BYTES};
use crate::model::artifact::{ARTIFACT_PREFIX, ArtifactKind, ArtifactSource, VersionAt};
use crate::model::event::EventKind;
use crate::model::ids::{SessionId, TurnId, ulid};
use crate::model::json::{Json, JsonMap, JsonText};
use crate::ports::Blob;
use crate::ports::store::{
    ArtifactContentRow, ArtifactFilter, ArtifactRow, ArtifactVersionRow, Page, Reads, StoreError,
    StoreResult, Tx,
};
use crate::tenant::Reach;

/// Setting: JSON text of the limits that were set.
const LIMITS: &str = "artifacts.limits";

/// How large artifacts may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArtifactLimits {
    /// Bytes of one file.
    pub file_bytes: i64,
    /// Bytes of all of them.
    pub total_bytes: i64,
}

impl Default for ArtifactLimits {
    fn default() -> Self {
        Self { file_bytes: ARTIFACT_FILE_BYTES, total_bytes: ARTIFACT_TOTAL_BYTES }
    }
}

/// What may be stored, and what is.
///
/// # Errors
/// The store's.
pub fn limits(reads: &mut dyn Reads) -> StoreResult<ArtifactLimits> {
    let mut limits = ArtifactLimits::default();
    if let Some(text) = reads.setting(LIMITS)? {
        let corrupt = |e: serde_json::Error| StoreError::Corrupt(format!("the limits of artifacts: {e}"));
        let set: Json = JsonText::from_trusted(text).decode().map_err(corrupt)?;
        limits.file_bytes = set["fileBytes"].as_i64().unwrap_or(limits.file_bytes);
        limits.total_bytes = set["totalBytes"].as_i64().unwrap_or(limits.total_bytes);
    }
    Ok(limits)
}

/// Replaces the limits: `{fileBytes?, totalBytes?}`, what is absent is the default.
///
/// # Errors
/// The store's.
pub fn put_limits(tx: &mut dyn Tx, limits: &JsonMap, actor: &str) -> StoreResult<Json> {
    tx.put_setting(LIMITS, JsonText::of(limits).as_str())?;
    super::settings::audit(tx, actor, "artifacts.limits.put", None)?;
    settings_view(tx)
}

/// `GET /v1/tenant/artifacts`.
///
/// # Errors
/// The store's.
pub fn settings_view(reads: &mut dyn Reads) -> StoreResult<Json> {
    let limits = limits(reads)?;
    let used = reads.artifact_bytes()?;
    let limits = json!({"fileBytes": limits.file_bytes, "totalBytes": limits.total_bytes});
    Ok(json!({"limits": limits, "usedBytes": used}))
}

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

/// The refusal of bytes past a limit.
#[must_use]
pub fn too_large(limit: i64, what: &str) -> Refusal {
    Refusal::TooLarge { message: format!("{what} may have at most {limit} bytes"), limit }
}

/// What a limit of one file says.
pub const ONE_FILE: &str = "One artifact";
/// What the limit of the Tenant says.
pub const ALL_FILES: &str = "All artifacts together";

/// What an upload may write, before it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The limits.
    pub limits: ArtifactLimits,
    /// What is used.
    pub used: i64,
}

impl Room {
    /// Whether a file of so many bytes fits.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`] with the limit that it passes.
    pub fn fits(&self, bytes: i64) -> Result<(), Refusal> {
        if bytes > self.limits.file_bytes {
            return Err(too_large(self.limits.file_bytes, ONE_FILE));
        }
        if bytes > self.limits.total_bytes.saturating_sub(self.used) {
            return Err(too_large(self.limits.total_bytes, ALL_FILES));
        }
        Ok(())
    }
}

/// Whether a caller may write there, the name that the bytes will have, and the room.
///
/// # Errors
/// [`Refusal::NotFound`] out of reach, [`Refusal::Invalid`] for a file into a folder.
pub fn prepare(reads: &mut dyn Reads, target: &Target, reach: &Reach) -> Result<(String, Room), Refusal> {
    let name = match target {
        Target::New { session, name, .. } => {
            owner(reads, session.as_ref(), reach)?;
            name.clone()
        }
        Target::Version { id } => {
            let row = reachable(reads, id, reach)?;
            must_be(&row, ArtifactKind::File)?;
            row.name
        }
    };
    Ok((name, Room { limits: limits(reads)?, used: reads.artifact_bytes()? }))
}

/// A person writes into a session of theirs; whoever else into any, or into none.
fn owner(reads: &mut dyn Reads, session: Option<&SessionId>, reach: &Reach) -> Result<(), Refusal> {
    match (session, reach) {
        (Some(id), _) => sessions::reachable(reads, id, reach).map(|_| ()),
        (None, Reach::All) => Ok(()),
        (None, Reach::Person { .. }) => Err(Refusal::invalid("sessionId is needed when acting for a person")),
    }
}

fn must_be(row: &ArtifactRow, kind: ArtifactKind) -> Result<(), Refusal> {
    if row.kind == kind {
        return Ok(());
    }
    Err(Refusal::invalid(match kind {
        ArtifactKind::File => "The artifact is a folder, which takes no single file",
        ArtifactKind::Folder => "The artifact is a file, not a folder",
    }))
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

/// An artifact within reach: a person's are those of their own sessions.
///
/// # Errors
/// [`Refusal::NotFound`] when it is missing or out of reach.
pub fn reachable(reads: &mut dyn Reads, id: &str, reach: &Reach) -> Result<ArtifactRow, Refusal> {
    let missing = || Refusal::not_found("artifact");
    let row = reads.artifact(id)?.ok_or_else(missing)?;
    if *reach == Reach::All {
        return Ok(row);
    }
    let session = row.session_id.as_ref().ok_or_else(missing)?;
    sessions::reachable(reads, session, reach).map_err(|refusal| match refusal {
        Refusal::NotFound(_) => missing(),
        other => other,
    })?;
    Ok(row)
}

/// A version of an artifact within reach.
///
/// # Errors
/// [`Refusal::NotFound`].
pub fn version(
    reads: &mut dyn Reads,
    id: &str,
    at: VersionAt,
    reach: &Reach,
) -> Result<(ArtifactRow, ArtifactVersionRow), Refusal> {
    let artifact = reachable(reads, id, reach)?;
    let found = reads.artifact_version(id, at.of(artifact.latest_version))?;
    Ok((artifact, found.ok_or_else(|| Refusal::not_found("version"))?))
}

/// Artifacts within reach, oldest first; with a session only its own.
///
/// # Errors
/// [`Refusal::NotFound`] for a session out of reach.
pub fn list(
    reads: &mut dyn Reads,
    session: Option<SessionId>,
    reach: &Reach,
    page: &Page,
) -> Result<Vec<ArtifactRow>, Refusal> {
    if let Some(id) = &session {
        sessions::reachable(reads, id, reach)?;
    }
    let person = match reach {
        Reach::All => None,
        Reach::Person { subject, agents, .. } => Some((subject.clone(), agents.clone())),
    };
    Ok(reads.artifacts(&ArtifactFilter { session, person }, page)?)
}

/// Deletes an artifact. Answers the blobs that nobody names any more.
///
/// # Errors
/// [`Refusal::NotFound`].
pub fn delete(tx: &mut dyn Tx, id: &str, reach: &Reach) -> Result<Vec<String>, Refusal> {
    let known = reachable(tx, id, reach)?;
    let record = match &known.session_id {
        Some(session) => tx.session(session)?.map(|head| head.id),
        None => None,
    };
    tx.artifact_bytes()?;
    let row = reachable(tx, id, reach)?;
    let mut freed: Vec<String> = tx.artifact_versions(id)?.into_iter().map(|row| row.blob_key).collect();
    freed.extend(tx.contents_of_one(id)?.into_iter().map(|row| row.blob_key));
    tx.delete_artifact(id)?;
    if let Some(session) = &record {
        let mut payload = JsonMap::new();
        payload.insert("artifactId".into(), json!(id));
        payload.insert("name".into(), json!(row.name));
        write(tx, session, None, EventKind::ArtifactDeleted, &payload)?;
    }
    Ok(freed)
}

/// An artifact as clients see it; with versions when they are asked for.
#[must_use]
pub fn view(row: &ArtifactRow, versions: Option<&[ArtifactVersionRow]>) -> Json {
    let mut view = JsonMap::new();
    view.insert("artifactId".into(), json!(row.id));
    view.insert("kind".into(), json!(row.kind.as_str()));
    view.insert("name".into(), json!(row.name));
    view.insert("contentType".into(), json!(row.content_type));
    if let Some(session) = &row.session_id {
        view.insert("sessionId".into(), json!(session.as_str()));
    }
    view.insert("latestVersion".into(), json!(row.latest_version));
    if let Some(labels) = row.labels.as_ref().and_then(|labels| labels.decode::<Json>().ok()) {
        view.insert("labels".into(), labels);
    }
    view.insert("createdAt".into(), json!(row.created_at.to_iso()));
    view.insert("updatedAt".into(), json!(row.updated_at.to_iso()));
    if let Some(versions) = versions {
        view.insert("versions".into(), versions.iter().map(version_view).collect());
    }
    Json::Object(view)
}

/// A version as clients see it.
#[must_use]
pub fn version_view(row: &ArtifactVersionRow) -> Json {
    json!({
        "version": row.version,
        "size": row.size,
        "sha256": row.sha256,
        "contentType": row.content_type,
        "source": row.source.as_str(),
        "createdAt": row.created_at.to_iso(),
    })
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

    #[test]
    fn a_file_must_fit_its_own_limit_and_the_rest_of_the_total() {
        let room = Room { limits: ArtifactLimits { file_bytes: 10, total_bytes: 15 }, used: 8 };
        let limit = |bytes| match room.fits(bytes) {
            Ok(()) => None,
            Err(Refusal::TooLarge { limit, .. }) => Some(limit),
            Err(other) => panic!("{other}"),
        };
        assert_eq!((limit(7), limit(8), limit(11)), (None, Some(15), Some(10)));
        let full = Room { used: 20, ..room };
        assert!(full.fits(1).is_err() && full.fits(0).is_err());
    }
}
