//! Artifacts in the store (spec: durability, section 3.1).
//!
//! Lock order, where rows are locked: session, then the quota ([`ArtifactReads::artifact_bytes`]), then the artifact. All
//! who write take the quota's lock, so what a transaction reads of artifacts after it stays as it is until its commit.

use super::{Page, StoreResult};
use crate::model::Micros;
use crate::model::artifact::{ArtifactKind, ArtifactSource};
use crate::model::ids::{AgentId, SessionId};
use crate::model::json::JsonText;

/// An artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactRow {
    /// `af_…`; ids grow with each artifact that is made.
    pub id: String,
    /// What it is.
    pub kind: ArtifactKind,
    /// Its name.
    pub name: String,
    /// Media type of the newest version.
    pub content_type: String,
    /// The session that it belongs to; a Tenant's own has none.
    pub session_id: Option<SessionId>,
    /// Number of the newest version.
    pub latest_version: i64,
    /// `{key: value}`, if it has labels.
    pub labels: Option<JsonText>,
    /// When it was made.
    pub created_at: Micros,
    /// When it got its newest version.
    pub updated_at: Micros,
}

/// A version of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactVersionRow {
    /// Whose.
    pub artifact_id: String,
    /// From 1.
    pub version: i64,
    /// Its bytes: the file, or a folder's manifest.
    pub blob_key: String,
    /// Bytes of that blob.
    pub blob_size: i64,
    /// Bytes of the file, or of all files of a folder.
    pub size: i64,
    /// Of the blob, lowercase hexadecimal.
    pub sha256: String,
    /// Media type.
    pub content_type: String,
    /// Where it came from.
    pub source: ArtifactSource,
    /// When it was made.
    pub created_at: Micros,
}

/// The bytes of some files of a folder's version. Rows with the same hash name the same blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactContentRow {
    /// Whose.
    pub artifact_id: String,
    /// Of which version.
    pub version: i64,
    /// Of the bytes, lowercase hexadecimal.
    pub sha256: String,
    /// The bytes.
    pub blob_key: String,
    /// How many.
    pub size: i64,
    /// Their CRC-32, as archives have it.
    pub crc32: u32,
}

/// Which artifacts a list has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArtifactFilter {
    /// Only of this session.
    pub session: Option<SessionId>,
    /// Only of this person's sessions, and with a list only of those of these agents.
    pub person: Option<(String, Option<Vec<AgentId>>)>,
}

/// What can be read of artifacts.
pub trait ArtifactReads {
    /// An artifact.
    fn artifact(&mut self, id: &str) -> StoreResult<Option<ArtifactRow>>;
    /// Artifacts by id, which is their order of creation.
    fn artifacts(&mut self, filter: &ArtifactFilter, page: &Page) -> StoreResult<Vec<ArtifactRow>>;
    /// The id of the newest artifact that is there.
    fn last_artifact_id(&mut self) -> StoreResult<Option<String>>;
    /// The oldest folder of this name that a session has.
    fn session_folder(&mut self, session: &SessionId, name: &str) -> StoreResult<Option<ArtifactRow>>;
    /// A version.
    fn artifact_version(&mut self, id: &str, version: i64) -> StoreResult<Option<ArtifactVersionRow>>;
    /// All versions, oldest first.
    fn artifact_versions(&mut self, id: &str) -> StoreResult<Vec<ArtifactVersionRow>>;
    /// The content of a folder's version that has this hash.
    fn artifact_content(
        &mut self,
        id: &str,
        version: i64,
        sha256: &str,
    ) -> StoreResult<Option<ArtifactContentRow>>;
    /// The contents of a folder's version, by hash.
    fn artifact_contents(&mut self, id: &str, version: i64) -> StoreResult<Vec<ArtifactContentRow>>;
    /// A row that names bytes of this hash.
    fn content_of_hash(&mut self, sha256: &str) -> StoreResult<Option<ArtifactContentRow>>;
    /// The contents that only this artifact names, each once.
    fn contents_of_one(&mut self, id: &str) -> StoreResult<Vec<ArtifactContentRow>>;
    /// Bytes of all blobs that rows name, each once. In a transaction this locks the quota.
    fn artifact_bytes(&mut self) -> StoreResult<i64>;
    /// Those of some keys that no row names.
    fn unnamed_blobs(&mut self, keys: &[String]) -> StoreResult<Vec<String>>;
}

/// What is written of artifacts. The rows of a session's artifacts go with the session.
pub trait ArtifactTx {
    /// Writes a new artifact.
    ///
    /// # Errors
    /// [`StoreError::Conflict`](super::StoreError::Conflict) when the id exists.
    fn insert_artifact(&mut self, row: &ArtifactRow) -> StoreResult<()>;
    /// Notes the newest version: its number, its type and when it came.
    ///
    /// # Errors
    /// [`StoreError::Missing`](super::StoreError::Missing) without the artifact.
    fn put_artifact_latest(&mut self, row: &ArtifactRow) -> StoreResult<()>;
    /// Writes a new version of an artifact that is there.
    ///
    /// # Errors
    /// [`StoreError::Conflict`](super::StoreError::Conflict) when it has that version.
    fn insert_artifact_version(&mut self, row: &ArtifactVersionRow) -> StoreResult<()>;
    /// Writes a content of a version that is there.
    ///
    /// # Errors
    /// [`StoreError::Conflict`](super::StoreError::Conflict) when the version has one of this hash.
    fn insert_artifact_content(&mut self, row: &ArtifactContentRow) -> StoreResult<()>;
    /// Deletes an artifact with its versions and contents; nothing when it is not there.
    fn delete_artifact(&mut self, id: &str) -> StoreResult<()>;
}
