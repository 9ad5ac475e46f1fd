//! The port to the bytes of artifacts (spec: http-api, section 12; durability, section 3.1).
//!
//! A blob has a random key and never changes. It counts once a committed row of the store names it; until then, and
//! after the last such row is gone, it is nobody's, and the sweep removes it when it is old enough.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

/// Why bytes could not be kept or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// No room for them.
    #[error("the disk that holds artifacts is full")]
    Full,
    /// There is no such blob.
    #[error("the blob {0} is missing")]
    Missing(String),
    /// Anything else the place of the bytes said.
    #[error("artifacts cannot be stored or read: {0}")]
    Failed(String),
}

/// A blob that was written whole and will survive a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Where it is.
    pub key: String,
    /// Bytes.
    pub size: i64,
    /// Of its bytes, lowercase hexadecimal.
    pub sha256: String,
    /// CRC-32 of its bytes, as archives have it.
    pub crc32: u32,
}

/// A blob that is being written. Dropped before its end it leaves nothing behind.
pub trait BlobWriter: Send {
    /// Adds bytes.
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), BlobError>>;

    /// Ends it: all bytes are on the disk (or with the service) when this answers.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Blob, BlobError>>;
}

/// A blob that was found by a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBlob {
    /// Where it is.
    pub key: String,
    /// Time since it was written.
    pub age: Duration,
}

/// Bytes of a blob, in pieces.
pub type BlobStream = BoxStream<'static, Result<Bytes, BlobError>>;

/// Where the bytes of artifacts are.
pub trait Blobs: Send + Sync + 'static {
    /// Begins a blob under a fresh random key.
    fn create(&self) -> BoxFuture<'static, Result<Box<dyn BlobWriter>, BlobError>>;

    /// Opens a blob from byte `from` on, for `len` bytes. A blob that is missing is known before the first piece.
    fn read(&self, key: &str, from: u64, len: u64) -> BoxFuture<'static, Result<BlobStream, BlobError>>;

    /// Removes a blob; nothing happens when it is not there.
    fn delete(&self, key: &str) -> BoxFuture<'static, Result<(), BlobError>>;

    /// All blobs, in pieces of some hundred.
    fn list(&self) -> BoxStream<'static, Result<Vec<FoundBlob>, BlobError>>;
}
