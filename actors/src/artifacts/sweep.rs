//! Blobs that nobody names: of uploads whose process died, of deletes that could not remove their bytes, of sessions that
//! are gone. They are removed once they are so old that no upload in progress can still be about to name them.

use std::time::Duration;

use futures_util::StreamExt as _;

use super::Artifacts;
use crate::limits::BLOB_GRACE_MS;
use crate::ports::BlobError;
use crate::ports::store::{Reads, StoreError};

/// Why a sweep stopped; the next one begins anew.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SweepError {
    #[error(transparent)]
    Blobs(#[from] BlobError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// One sweep. Answers how many blobs were removed.
pub(crate) async fn run(artifacts: &Artifacts) -> Result<usize, SweepError> {
    let grace = Duration::from_millis(BLOB_GRACE_MS);
    let mut removed = 0;
    let mut listing = artifacts.blobs.list();
    while let Some(found) = listing.next().await {
        let old = found?.into_iter().filter(|blob| blob.age >= grace);
        let keys: Vec<String> = old.map(|blob| blob.key).collect();
        if keys.is_empty() {
            continue;
        }
        let read = move |reads: &mut dyn Reads| reads.unnamed_blobs(&keys);
        for key in artifacts.store.read::<_, StoreError, _>(read).await? {
            artifacts.blobs.delete(&key).await?;
            removed += 1;
        }
    }
    Ok(removed)
}
