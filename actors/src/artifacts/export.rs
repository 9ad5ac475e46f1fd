//! The export at the end of a turn: what is in `/workspace/outputs` is kept as a version of the session's folder `outputs`
//! (spec: sandbox, section 14; durability, section 8.4). It never fails a turn. What it has read it does not read again until
//! the listing says that it has changed ([`exported`](super::exported)); a listing over the wire says nothing of that.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::exported::{ReadFile, ReadFiles};
use super::{Artifacts, is_unknown};
use crate::limits::{EXPORT_BYTES, EXPORT_FILES, EXPORT_MS};
use crate::model::artifact::{ArtifactKind, ArtifactSource, OUTPUTS, media_type_of};
use crate::model::event::EventKind;
use crate::model::folder::{FOLDER_TYPE, FolderEntry, FolderManifest, is_inner_path};
use crate::model::ids::{SessionId, TurnId};
use crate::model::json::JsonMap;
use crate::model::workspace::{BytesAnswer, BytesOf, FileEntry, FilesOf, ListAnswer};
use crate::ports::store::{ArtifactContentRow, ArtifactRow, ArtifactVersionRow, Reads, StoreError};
use crate::ports::workspaces::{WorkspaceOf, Workspaces};
use crate::ports::{BlobError, WorkspaceError};
use crate::rules::Refusal;
use crate::rules::artifacts::{
    self as rules, ArtifactLimits, NewContent, NewVersion, NotStored, Stored, Target,
};
use crate::rules::event::write;
use crate::rules::workspaces::of_session;
use crate::tenant::Reach;
use crate::tenant::tree::Tree;

/// Where a sandbox's commands leave what is to be kept.
const OUTPUTS_DIR: &str = "/workspace/outputs";

/// Why nothing was stored.
enum NotExported {
    /// Nothing is there, or nothing has changed.
    Nothing,
    /// The Tenant closes.
    Aborted,
    /// Past a limit.
    Skipped { reason: &'static str, message: String, limit: Option<i64>, path: Option<String> },
    /// Anything else, in words.
    Failed(String),
    /// Bytes that somebody had are gone: once more.
    Stale,
}

impl From<StoreError> for NotExported {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => Self::Aborted,
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<BlobError> for NotExported {
    fn from(error: BlobError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<WorkspaceError> for NotExported {
    fn from(error: WorkspaceError) -> Self {
        Self::Failed(error.to_string())
    }
}

fn skipped(reason: &'static str, message: impl Into<String>, limit: i64, path: Option<&str>) -> NotExported {
    NotExported::Skipped {
        reason,
        message: message.into(),
        limit: Some(limit),
        path: path.map(str::to_owned),
    }
}

/// Keeps a session's outputs after a completed turn. What it comes to is recorded; it answers nothing.
pub(crate) async fn outputs(tree: &Arc<Tree>, session: &SessionId, turn: &TurnId) {
    let most = Duration::from_millis(EXPORT_MS);
    let mut result = Err(NotExported::Stale);
    for _ in 0..2 {
        let Err(NotExported::Stale) = result else { break };
        let export = Export { tree, artifacts: tree.artifacts(), session, turn };
        result = tokio::time::timeout(most, export.run())
            .await
            .unwrap_or_else(|_| Err(NotExported::Failed("reading the outputs took too long".to_owned())));
    }
    let (kind, mut payload) = match result {
        Ok(_) | Err(NotExported::Nothing | NotExported::Aborted) => return,
        Err(NotExported::Skipped { reason, message, limit, path }) => {
            let mut payload = JsonMap::new();
            payload.insert("reason".into(), json!(reason));
            payload.insert("message".into(), json!(message));
            if let Some(limit) = limit {
                payload.insert("limit".into(), json!(limit));
            }
            if let Some(path) = path {
                payload.insert("path".into(), json!(path));
            }
            (EventKind::ArtifactExportSkipped, payload)
        }
        Err(NotExported::Failed(message)) => {
            tracing::warn!(%session, %turn, why = message, "a turn's outputs were not exported");
            (EventKind::ArtifactExportFailed, JsonMap::from_iter([("message".into(), json!(message))]))
        }
        Err(NotExported::Stale) => {
            let message = "files that were shared were deleted meanwhile";
            (EventKind::ArtifactExportFailed, JsonMap::from_iter([("message".into(), json!(message))]))
        }
    };
    payload.insert("name".into(), json!(OUTPUTS));
    let (session, turn) = (session.clone(), turn.clone());
    let told = tree.ports.store.tx(move |tx| write(tx, &session, Some(&turn), kind, &payload).map(|_| ()));
    let told: Result<(), StoreError> = told.await;
    if let Err(error) = told {
        tracing::warn!(%error, "that an export was skipped was not recorded");
    }
}

/// One attempt.
struct Export<'a> {
    tree: &'a Arc<Tree>,
    artifacts: &'a Artifacts,
    session: &'a SessionId,
    turn: &'a TurnId,
}

/// What is known before anything is read.
struct Before {
    workspace: Option<WorkspaceOf>,
    limits: ArtifactLimits,
    used: i64,
    folder: Option<(ArtifactRow, Option<ArtifactVersionRow>)>,
}

impl Export<'_> {
    async fn run(&self) -> Result<Stored, NotExported> {
        let before = self.before().await?;
        let workspace = before.workspace.clone().ok_or(NotExported::Nothing)?;
        let workspaces = crate::workspaces::of(self.tree);
        let max_entries = u64::try_from(EXPORT_FILES).unwrap_or(u64::MAX);
        let files = FilesOf { dir: OUTPUTS_DIR.to_owned(), max_entries };
        let listing = match workspaces.list(workspace.clone(), files).await? {
            ListAnswer::Listed { listing, .. } => listing,
            ListAnswer::Missing { .. } => return Err(NotExported::Nothing),
            ListAnswer::Failed { message, .. } => return Err(NotExported::Failed(message)),
        };
        if listing.entries.is_empty() {
            return Err(NotExported::Nothing);
        }
        if listing.truncated || listing.entries.len() > EXPORT_FILES {
            let limit = i64::try_from(EXPORT_FILES).unwrap_or(i64::MAX);
            return Err(skipped("too_many_files", format!("there are more than {limit} files"), limit, None));
        }
        let most = before.limits.total_bytes.min(EXPORT_BYTES);
        self.fits(&listing.entries, &before.limits, most)?;
        // Dropped at any point, what was written is left to the sweep; an error below removes it at once.
        let mut kept = Kept::default();
        let result = self.keep(&*workspaces, &workspace, &listing.entries, &before, most, &mut kept).await;
        if matches!(result, Ok(_) | Err(NotExported::Nothing)) {
            self.artifacts.exported.put(self.session, std::mem::take(&mut kept.read));
        }
        if result.is_err() && !kept.unknown {
            self.artifacts.discard(std::mem::take(&mut kept.written)).await;
        }
        result
    }

    async fn before(&self) -> Result<Before, NotExported> {
        let session = self.session.clone();
        let read = move |reads: &mut dyn Reads| {
            let folder = match reads.session_folder(&session, OUTPUTS)? {
                Some(row) => {
                    let latest = reads.artifact_version(&row.id, row.latest_version)?;
                    Some((row, latest))
                }
                None => None,
            };
            Ok::<_, StoreError>(Before {
                workspace: of_session(reads, &session)?.and_then(|of| of.workspace),
                limits: rules::limits(reads)?,
                used: reads.artifact_bytes()?,
                folder,
            })
        };
        Ok(self.tree.ports.store.read(read).await?)
    }

    /// Judges the listing, before a byte is read.
    fn fits(&self, entries: &[FileEntry], limits: &ArtifactLimits, most: i64) -> Result<(), NotExported> {
        let (mut sum, mut paths) = (0i64, HashSet::with_capacity(entries.len()));
        for entry in entries {
            if !paths.insert(entry.path.as_str()) {
                return Err(NotExported::Failed("a file was listed twice".to_owned()));
            }
            if !is_inner_path(&entry.path) {
                return Err(NotExported::Failed("a file has a path that cannot be kept".to_owned()));
            }
            let size = i64::try_from(entry.size).unwrap_or(i64::MAX);
            if size > limits.file_bytes {
                return Err(file_too_large(limits.file_bytes, &entry.path));
            }
            sum = sum.saturating_add(size);
        }
        if sum > most {
            return Err(together_too_large(most));
        }
        Ok(())
    }

    async fn keep(
        &self,
        workspaces: &dyn Workspaces,
        workspace: &WorkspaceOf,
        listed: &[FileEntry],
        before: &Before,
        most: i64,
        kept: &mut Kept,
    ) -> Result<Stored, NotExported> {
        let mut entries = Vec::with_capacity(listed.len());
        let (mut sum, mut added) = (0i64, 0i64);
        let earlier = self.artifacts.exported.of(self.session);
        let there = if earlier.is_empty() { HashMap::new() } else { self.contents(before).await? };
        for file in listed {
            if self.tree.is_closing() {
                return Err(NotExported::Aborted);
            }
            let known = earlier.get(&file.path).filter(|read| read.is(file));
            let (size, sha256) = match known.and_then(|read| there.get(&read.sha256)) {
                Some(content) => {
                    kept.contents.entry(content.sha256.clone()).or_insert_with(|| content.clone());
                    sum = sum.saturating_add(content.size);
                    (content.size, content.sha256.clone())
                }
                None => {
                    let Some(bytes) = self.read(workspaces, workspace, file, before).await? else { continue };
                    let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
                    sum = sum.saturating_add(size);
                    if sum > most {
                        return Err(together_too_large(most));
                    }
                    (size, self.content(bytes, kept, &mut added, before).await?)
                }
            };
            if let Some(stamp) = file.stamp {
                let read =
                    ReadFile { stamp, size: u64::try_from(size).unwrap_or(u64::MAX), sha256: sha256.clone() };
                kept.read.insert(file.path.clone(), read);
            }
            let content_type = media_type_of(&file.path).to_owned();
            entries.push(FolderEntry { content_type, path: file.path.clone(), size, sha256 });
        }
        if entries.is_empty() {
            return Err(NotExported::Nothing);
        }
        self.commit(FolderManifest::of(entries), before, kept).await
    }

    /// The contents of the folder's last version: what of them is still needed is there.
    async fn contents(&self, before: &Before) -> Result<HashMap<String, NewContent>, NotExported> {
        let Some((_, Some(version))) = &before.folder else { return Ok(HashMap::new()) };
        let (id, number) = (version.artifact_id.clone(), version.version);
        let read = move |reads: &mut dyn Reads| reads.artifact_contents(&id, number);
        let rows = self.tree.ports.store.read::<_, StoreError, _>(read).await?;
        let content = |row: ArtifactContentRow| {
            let ArtifactContentRow { sha256, size, crc32, .. } = row;
            (sha256.clone(), NewContent { sha256, size, crc32, blob_key: None })
        };
        Ok(rows.into_iter().map(content).collect())
    }

    /// The bytes of one file. `None`: it has gone since the listing.
    async fn read(
        &self,
        workspaces: &dyn Workspaces,
        workspace: &WorkspaceOf,
        file: &FileEntry,
        before: &Before,
    ) -> Result<Option<Bytes>, NotExported> {
        let path = format!("{OUTPUTS_DIR}/{}", file.path);
        let max_bytes = u64::try_from(before.limits.file_bytes).unwrap_or(0);
        match workspaces.bytes(workspace.clone(), BytesOf { path, max_bytes }).await? {
            BytesAnswer::Read { base64, .. } => {
                let odd = |_| NotExported::Failed("a file came in no base64".to_owned());
                Ok(Some(Bytes::from(STANDARD.decode(base64).map_err(odd)?)))
            }
            BytesAnswer::Missing { .. } => Ok(None),
            BytesAnswer::Failed { code, .. } if code == "artifact.too_large" => {
                Err(file_too_large(before.limits.file_bytes, &file.path))
            }
            BytesAnswer::Failed { message, .. } => Err(NotExported::Failed(message)),
        }
    }

    /// Keeps the bytes of one file, unless somebody has them. Answers their hash.
    async fn content(
        &self,
        bytes: Bytes,
        kept: &mut Kept,
        added: &mut i64,
        before: &Before,
    ) -> Result<String, NotExported> {
        let sha256 = hex::encode(Sha256::digest(&bytes));
        if kept.contents.contains_key(&sha256) {
            return Ok(sha256);
        }
        let asked = sha256.clone();
        let known = self.tree.ports.store.read(move |reads: &mut dyn Reads| reads.content_of_hash(&asked));
        let known: Option<_> = known.await.map_err(|error: StoreError| NotExported::from(error))?;
        let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        let content = match known {
            Some(row) => NewContent { sha256: sha256.clone(), size, crc32: row.crc32, blob_key: None },
            None => {
                *added = added.saturating_add(size);
                if *added > before.limits.total_bytes.saturating_sub(before.used) {
                    return Err(tenant_total(before.limits.total_bytes));
                }
                let blob = self.artifacts.keep(bytes).await?;
                kept.written.push(blob.key.clone());
                NewContent { sha256: sha256.clone(), size, crc32: blob.crc32, blob_key: Some(blob.key) }
            }
        };
        kept.contents.insert(sha256.clone(), content);
        Ok(sha256)
    }

    async fn commit(
        &self,
        manifest: FolderManifest,
        before: &Before,
        kept: &mut Kept,
    ) -> Result<Stored, NotExported> {
        let text = manifest.text();
        let sha256 = hex::encode(Sha256::digest(text.as_bytes()));
        let latest = before.folder.as_ref().and_then(|(_, version)| version.as_ref());
        if latest.is_some_and(|version| version.sha256 == sha256) {
            return Err(NotExported::Nothing);
        }
        let blob = self.artifacts.keep(Bytes::from(text)).await?;
        kept.written.push(blob.key.clone());
        let target = match &before.folder {
            Some((row, _)) => Target::Version { id: row.id.clone() },
            None => Target::New {
                kind: ArtifactKind::Folder,
                name: OUTPUTS.to_owned(),
                session: Some(self.session.clone()),
                labels: None,
            },
        };
        let mut contents: Vec<NewContent> = kept.contents.values().cloned().collect();
        contents.sort_by(|a, b| a.sha256.cmp(&b.sha256));
        let new = NewVersion {
            size: manifest.size(),
            blob: blob.clone(),
            content_type: FOLDER_TYPE.to_owned(),
            source: ArtifactSource::Export,
            turn: Some(self.turn.clone()),
            call_id: None,
            file_count: Some(manifest.entries.len()),
            contents,
        };
        let stored = self.tree.ports.store.tx(move |tx| rules::store(tx, &target, &new, &Reach::All)).await;
        match stored {
            Ok(stored) => {
                self.artifacts.discard(stored.spare.clone()).await;
                Ok(stored)
            }
            Err(NotStored::Stale) => Err(NotExported::Stale),
            Err(NotStored::Refused(Refusal::TooLarge { limit, .. })) => Err(tenant_total(limit)),
            Err(NotStored::Refused(Refusal::Store(error))) => {
                kept.unknown = is_unknown(&error);
                Err(error.into())
            }
            Err(NotStored::Refused(other)) => Err(NotExported::Failed(other.to_string())),
        }
    }
}

/// What an export has written so far.
#[derive(Default)]
struct Kept {
    contents: HashMap<String, NewContent>,
    /// Blobs that are nobody's unless the export's transaction names them.
    written: Vec<String>,
    /// Nobody knows whether it did.
    unknown: bool,
    /// The files that have a stamp.
    read: ReadFiles,
}

fn file_too_large(limit: i64, path: &str) -> NotExported {
    skipped("file_too_large", format!("a file has more than {limit} bytes"), limit, Some(path))
}

fn together_too_large(most: i64) -> NotExported {
    skipped("too_large", format!("together they have more than {most} bytes"), most, None)
}

fn tenant_total(limit: i64) -> NotExported {
    skipped("tenant_total", format!("all artifacts together may have {limit} bytes"), limit, None)
}
