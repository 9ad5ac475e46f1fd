//! Blobs in memory, for tests of whoever keeps artifacts.

// These stand in for what a test would otherwise set up: they may panic.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use sha2::{Digest as _, Sha256};

use crate::ports::blobs::FoundBlob;
use crate::ports::{Blob, BlobError, BlobStream, BlobWriter, Blobs};

/// Blobs in memory.
#[derive(Default)]
pub struct MemoryBlobs {
    kept: Arc<Mutex<BTreeMap<String, (Bytes, Duration)>>>,
    next: AtomicU64,
    fails: Mutex<Option<BlobError>>,
}

impl MemoryBlobs {
    /// None yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Bytes of all blobs that are there.
    #[must_use]
    pub fn contents(&self) -> Vec<Bytes> {
        self.kept.lock().unwrap().values().map(|(bytes, _)| bytes.clone()).collect()
    }

    /// Time passes for all that are there.
    pub fn age(&self, by: Duration) {
        for (_, age) in self.kept.lock().unwrap().values_mut() {
            *age += by;
        }
    }

    /// From now on nothing new can be written; `None`: it can again.
    pub fn fail(&self, error: Option<BlobError>) {
        *self.fails.lock().unwrap() = error;
    }
}

struct MemoryWriter {
    kept: Arc<Mutex<BTreeMap<String, (Bytes, Duration)>>>,
    key: String,
    bytes: BytesMut,
}

impl BlobWriter for MemoryWriter {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), BlobError>> {
        self.bytes.extend_from_slice(&bytes);
        async { Ok(()) }.boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Blob, BlobError>> {
        let bytes = self.bytes.freeze();
        let blob = Blob {
            key: self.key.clone(),
            size: i64::try_from(bytes.len()).unwrap(),
            sha256: hex::encode(Sha256::digest(&bytes)),
            crc32: crc32fast::hash(&bytes),
        };
        self.kept.lock().unwrap().insert(self.key, (bytes, Duration::ZERO));
        async { Ok(blob) }.boxed()
    }
}

impl Blobs for MemoryBlobs {
    fn create(&self) -> BoxFuture<'static, Result<Box<dyn BlobWriter>, BlobError>> {
        if let Some(error) = self.fails.lock().unwrap().clone() {
            return async { Err(error) }.boxed();
        }
        let key = format!("blob {:08}", self.next.fetch_add(1, Ordering::SeqCst));
        let writer = MemoryWriter { kept: Arc::clone(&self.kept), key, bytes: BytesMut::new() };
        async { Ok(Box::new(writer) as Box<dyn BlobWriter>) }.boxed()
    }

    fn read(&self, key: &str, from: u64, len: u64) -> BoxFuture<'static, Result<BlobStream, BlobError>> {
        let found = self.kept.lock().unwrap().get(key).map(|(bytes, _)| bytes.clone());
        let missing = BlobError::Missing(key.to_owned());
        async move {
            let bytes = found.ok_or(missing)?;
            let (from, len) = (usize::try_from(from).unwrap(), usize::try_from(len).unwrap());
            let piece = bytes.slice(from..from + len);
            Ok(stream::once(async { Ok(piece) }).boxed())
        }
        .boxed()
    }

    fn delete(&self, key: &str) -> BoxFuture<'static, Result<(), BlobError>> {
        self.kept.lock().unwrap().remove(key);
        async { Ok(()) }.boxed()
    }

    fn list(&self) -> BoxStream<'static, Result<Vec<FoundBlob>, BlobError>> {
        let kept = self.kept.lock().unwrap();
        let found = kept.iter().map(|(key, (_, age))| FoundBlob { key: key.clone(), age: *age }).collect();
        stream::once(async { Ok(found) }).boxed()
    }
}
