//! Artifacts of a Tenant: bytes in the blob store, rows in the store, and what core does with them by itself
//! (spec: http-api, section 12; sandbox, section 14).
//!
//! | File | Has |
//! |---|---|
//! | this file | uploads, reading, deleting |
//! | [`save`] | the tool `save_artifact` |
//! | [`export`] | the export at the end of a turn |
//! | [`exported`] | what exports have read already |
//! | [`sweep`] | blobs that nobody names |

pub(crate) mod export;
mod exported;
pub(crate) mod save;
pub(crate) mod sweep;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::exported::Exported;
use crate::limits::{FOLDER_MANIFEST_BYTES, UPLOADS};
use crate::model::artifact::{ArtifactSource, VersionAt, upload_type};
use crate::model::folder::{FolderEntry, FolderManifest};
use crate::model::ids::SessionId;
use crate::model::json::{Json, JsonMap};
use crate::ports::store::{
    ArtifactContentRow, ArtifactRow, ArtifactVersionRow, Page, Reads, StoreError, StoreHandle,
};
use crate::ports::{Blob, BlobError, BlobStream, BlobWriter, Blobs};
use crate::rules::Refusal;
use crate::rules::artifacts::{self as rules, NewVersion, NotStored, Room, Stored, Target};
use crate::tenant::Reach;

impl From<BlobError> for Refusal {
    fn from(error: BlobError) -> Self {
        Self::Store(match error {
            BlobError::Full => StoreError::Full,
            // A row names it, so it must be there.
            BlobError::Missing(key) => StoreError::Corrupt(format!("the blob {key} is missing")),
            BlobError::Failed(why) => StoreError::Unavailable(why),
        })
    }
}

/// Artifacts of a Tenant. Cheap to clone.
#[derive(Clone)]
pub struct Artifacts {
    store: StoreHandle,
    blobs: Arc<dyn Blobs>,
    uploads: Arc<Semaphore>,
    exported: Arc<Exported>,
}

impl Artifacts {
    /// Rows in this store, bytes in these blobs.
    #[must_use]
    pub fn new(store: StoreHandle, blobs: Arc<dyn Blobs>) -> Self {
        Self { store, blobs, uploads: Arc::new(Semaphore::new(UPLOADS)), exported: Arc::default() }
    }

    /// Begins an upload: who may write there, whether a declared length fits, and which type it will have. `header` is the
    /// type that the client names.
    ///
    /// # Errors
    /// As spec http-api, section 12 says. Nothing is stored.
    pub async fn upload(
        &self,
        target: Target,
        header: Option<&str>,
        declared: Option<u64>,
        reach: &Reach,
    ) -> Result<Upload, Refusal> {
        let (wanted, of) = (target.clone(), reach.clone());
        let (name, room) =
            self.store.read(move |reads: &mut dyn Reads| rules::prepare(reads, &wanted, &of)).await?;
        let content_type =
            upload_type(header, &name).ok_or_else(|| Refusal::invalid("Content-Type is no media type"))?;
        room.fits(declared.map_or(0, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)))?;
        let busy = || Refusal::Busy("Too many uploads at once".to_owned());
        let permit = Arc::clone(&self.uploads).try_acquire_owned().map_err(|_| busy())?;
        let writer = self.blobs.create().await?;
        let reach = reach.clone();
        Ok(Upload {
            of: self.clone(),
            writer,
            written: 0,
            room,
            target,
            content_type,
            reach,
            _permit: permit,
        })
    }

    /// An artifact with its versions.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], also when it is out of reach.
    pub async fn get(
        &self,
        id: &str,
        reach: &Reach,
    ) -> Result<(ArtifactRow, Vec<ArtifactVersionRow>), Refusal> {
        let (id, reach) = (id.to_owned(), reach.clone());
        let read = move |reads: &mut dyn Reads| {
            let row = rules::reachable(reads, &id, &reach)?;
            let versions = reads.artifact_versions(&id)?;
            Ok::<_, Refusal>((row, versions))
        };
        self.store.read(read).await
    }

    /// Artifacts within reach, oldest first.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for a session out of reach.
    pub async fn list(
        &self,
        session: Option<SessionId>,
        reach: &Reach,
        page: Page,
    ) -> Result<Vec<ArtifactRow>, Refusal> {
        let reach = reach.clone();
        self.store.read(move |reads: &mut dyn Reads| rules::list(reads, session, &reach, &page)).await
    }

    /// A version of an artifact within reach.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub async fn version(
        &self,
        id: &str,
        at: VersionAt,
        reach: &Reach,
    ) -> Result<(ArtifactRow, ArtifactVersionRow), Refusal> {
        let (id, reach) = (id.to_owned(), reach.clone());
        self.store.read(move |reads: &mut dyn Reads| rules::version(reads, &id, at, &reach)).await
    }

    /// Deletes an artifact, then its bytes as far as they can be.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub async fn delete(&self, id: &str, reach: &Reach) -> Result<(), Refusal> {
        let (id, reach) = (id.to_owned(), reach.clone());
        let freed = self.store.tx(move |tx| rules::delete(tx, &id, &reach)).await?;
        self.discard(freed).await;
        Ok(())
    }

    /// Limits and what is used.
    ///
    /// # Errors
    /// The store's.
    pub async fn settings(&self) -> Result<Json, Refusal> {
        Ok(self.store.read(|reads: &mut dyn Reads| rules::settings_view(reads)).await?)
    }

    /// Replaces the limits: `{fileBytes?, totalBytes?}`.
    ///
    /// # Errors
    /// The store's.
    pub async fn put_settings(&self, limits: JsonMap, actor: String) -> Result<Json, Refusal> {
        Ok(self.store.tx(move |tx| rules::put_limits(tx, &limits, &actor)).await?)
    }

    /// Bytes of a blob that a row names.
    ///
    /// # Errors
    /// The blob store's.
    pub async fn open(&self, key: &str, from: u64, len: u64) -> Result<BlobStream, Refusal> {
        Ok(self.blobs.read(key, from, len).await?)
    }

    /// The manifest of a folder's version.
    ///
    /// # Errors
    /// The blob store's; corrupt when it is none.
    pub async fn manifest(&self, version: &ArtifactVersionRow) -> Result<FolderManifest, Refusal> {
        let corrupt = || StoreError::Corrupt(format!("the manifest of folder {}", version.artifact_id));
        let size = usize::try_from(version.blob_size).unwrap_or(usize::MAX);
        if size > FOLDER_MANIFEST_BYTES {
            return Err(corrupt().into());
        }
        let mut text = Vec::with_capacity(size);
        let mut pieces = self.open(&version.blob_key, 0, u64::try_from(size).unwrap_or(0)).await?;
        while let Some(piece) = pieces.next().await {
            text.extend_from_slice(&piece?);
        }
        Ok(FolderManifest::read(&text).ok_or_else(corrupt)?)
    }

    /// A file of a folder's version, with where its bytes are.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] when the folder has no such file.
    pub async fn file(
        &self,
        version: &ArtifactVersionRow,
        path: &str,
    ) -> Result<(FolderEntry, ArtifactContentRow), Refusal> {
        let manifest = self.manifest(version).await?;
        let entry = manifest.file(path).cloned().ok_or_else(|| Refusal::not_found("file"))?;
        let (id, number, hash) = (version.artifact_id.clone(), version.version, entry.sha256.clone());
        let read = move |reads: &mut dyn Reads| reads.artifact_content(&id, number, &hash);
        let content: Option<ArtifactContentRow> = self.store.read::<_, StoreError, _>(read).await?;
        let missing = || StoreError::Corrupt(format!("a file of folder {}", version.artifact_id));
        Ok((entry, content.ok_or_else(missing)?))
    }

    /// The contents of a folder's version.
    ///
    /// # Errors
    /// The store's.
    pub async fn contents(&self, version: &ArtifactVersionRow) -> Result<Vec<ArtifactContentRow>, Refusal> {
        let (id, number) = (version.artifact_id.clone(), version.version);
        let read = move |reads: &mut dyn Reads| reads.artifact_contents(&id, number);
        Ok(self.store.read::<_, StoreError, _>(read).await?)
    }

    /// Writes bytes that are in memory.
    async fn keep(&self, bytes: Bytes) -> Result<Blob, BlobError> {
        let mut writer = self.blobs.create().await?;
        writer.write(bytes).await?;
        writer.finish().await
    }

    /// Removes blobs that nobody names. What stays behind the sweep finds.
    async fn discard(&self, keys: Vec<String>) {
        for key in keys {
            if let Err(error) = self.blobs.delete(&key).await {
                tracing::warn!(%error, "bytes of a deleted artifact stay until the sweep");
            }
        }
    }

    /// Has a transaction name a blob that was written; a failed one leaves none.
    async fn name<E>(
        &self,
        blob: Blob,
        transaction: impl Future<Output = Result<Stored, E>>,
        lasts: impl Fn(&E) -> bool,
    ) -> Result<Stored, E> {
        let key = blob.key;
        match transaction.await {
            Ok(stored) => {
                self.discard(stored.spare.clone()).await;
                Ok(stored)
            }
            Err(error) => {
                // Of a store that has closed nobody knows what it has committed.
                if !lasts(&error) {
                    self.discard(vec![key]).await;
                }
                Err(error)
            }
        }
    }
}

/// Whether it is unknown what a transaction that answered so has written.
fn is_unknown(error: &StoreError) -> bool {
    matches!(error, StoreError::Closed | StoreError::Panicked)
}

/// An upload in progress. Dropped before its end it leaves nothing behind.
pub struct Upload {
    of: Artifacts,
    writer: Box<dyn BlobWriter>,
    written: i64,
    room: Room,
    target: Target,
    content_type: String,
    reach: Reach,
    _permit: OwnedSemaphorePermit,
}

impl Upload {
    /// Adds bytes.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`] at the limit; the blob store's.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), Refusal> {
        let written = self.written.saturating_add(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        self.room.fits(written)?;
        self.written = written;
        Ok(self.writer.write(bytes).await?)
    }

    /// Ends it: the bytes are safe, then the rows are written. To be run to its end even when the client has gone.
    ///
    /// # Errors
    /// Whatever was refused meanwhile; nothing is stored then.
    pub async fn finish(self) -> Result<Stored, Refusal> {
        let Self { of, writer, target, content_type, reach, .. } = self;
        let blob = writer.finish().await?;
        let new = NewVersion {
            size: blob.size,
            blob: blob.clone(),
            content_type,
            source: ArtifactSource::Upload,
            turn: None,
            call_id: None,
            file_count: None,
            contents: Vec::new(),
        };
        let storing = of.store.tx(move |tx| {
            rules::store(tx, &target, &new, &reach).map_err(|not| match not {
                NotStored::Refused(refusal) => refusal,
                NotStored::Stale => StoreError::Corrupt("a file without bytes".to_owned()).into(),
            })
        });
        of.name(blob, storing, |refusal| matches!(refusal, Refusal::Store(error) if is_unknown(error))).await
    }
}
