//! Blobs as files of the home directory.
//!
//! `blobs/incoming/KEY` while it is written, `blobs/KE/KEY` once it is whole: synced, renamed, and the directory synced.
//! One process has a home, so what lies in `incoming` at the start is of a process that died. Nothing here blocks a
//! thread of the runtime.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use nylorun_actors::ports::blobs::FoundBlob;
use nylorun_actors::ports::{Blob, BlobError, BlobStream, BlobWriter, Blobs};

use super::{Sums, fresh_key, is_key};

/// The directory below the home.
pub const BLOBS_DIR: &str = "blobs";
const INCOMING: &str = "incoming";
/// Bytes of one piece that is read.
pub const PIECE_BYTES: usize = 128 * 1024;

/// Blobs in a directory.
pub struct FileBlobs {
    root: Arc<Path>,
}

impl FileBlobs {
    /// Those of a home; the directory is made, and what a dead process left half written is removed. Blocks.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn open(home: &Path) -> io::Result<Self> {
        let root = home.join(BLOBS_DIR);
        let incoming = root.join(INCOMING);
        make_dir(&root)?;
        make_dir(&incoming)?;
        for entry in fs::read_dir(&incoming)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(Self { root: root.into() })
    }

    fn path(&self, key: &str) -> Result<PathBuf, BlobError> {
        path(&self.root, key)
    }
}

fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn path(root: &Path, key: &str) -> Result<PathBuf, BlobError> {
    if is_key(key) {
        Ok(root.join(&key[..2]).join(key))
    } else {
        Err(BlobError::Missing("of another store".to_owned()))
    }
}

fn failed(error: &io::Error) -> BlobError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => BlobError::Full,
        _ => BlobError::Failed(error.to_string()),
    }
}

/// Does blocking work on a thread for such.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, BlobError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| BlobError::Failed(error.to_string()))
}

struct Open {
    file: File,
    sums: Sums,
}

/// A file that is being written.
struct FileWriter {
    root: Arc<Path>,
    key: String,
    /// Absent while a thread writes, and after an error.
    open: Option<Open>,
    /// What a writer that is dropped leaves to be removed.
    incoming: Incoming,
}

/// A file in `incoming`, removed unless it was renamed.
struct Incoming(Option<PathBuf>);

impl Drop for Incoming {
    fn drop(&mut self) {
        let Some(path) = self.0.take() else { return };
        let remove = move || {
            // The next start removes what cannot be removed now.
            let _ = fs::remove_file(path);
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

impl BlobWriter for FileWriter {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), BlobError>> {
        async move {
            let Some(mut open) = self.open.take() else {
                return Err(BlobError::Failed("an earlier write failed".to_owned()));
            };
            let (open, written) = blocking(move || {
                let written = open.file.write_all(&bytes);
                open.sums.add(&bytes);
                (open, written)
            })
            .await?;
            written.map_err(|error| failed(&error))?;
            self.open = Some(open);
            Ok(())
        }
        .boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Blob, BlobError>> {
        async move {
            let Self { root, key, open, mut incoming } = *self;
            let (Some(Open { file, sums }), Some(from)) = (open, incoming.0.clone()) else {
                return Err(BlobError::Failed("an earlier write failed".to_owned()));
            };
            let to = path(&root, &key)?;
            let moved = blocking(move || {
                file.sync_all()?;
                let folder = to.parent().unwrap_or(&root);
                make_dir(folder)?;
                fs::rename(&from, &to)?;
                File::open(folder)?.sync_all()?;
                File::open(&root)?.sync_all()
            });
            moved.await?.map_err(|error| failed(&error))?;
            incoming.0 = None;
            Ok(sums.blob(key))
        }
        .boxed()
    }
}

impl Blobs for FileBlobs {
    fn create(&self) -> BoxFuture<'static, Result<Box<dyn BlobWriter>, BlobError>> {
        let root = Arc::clone(&self.root);
        async move {
            let key = fresh_key();
            let path = root.join(INCOMING).join(&key);
            let incoming = Incoming(Some(path.clone()));
            let opened =
                blocking(move || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path));
            let file = opened.await?.map_err(|error| failed(&error))?;
            let open = Some(Open { file, sums: Sums::new() });
            Ok(Box::new(FileWriter { root, key, open, incoming }) as Box<dyn BlobWriter>)
        }
        .boxed()
    }

    fn read(&self, key: &str, from: u64, len: u64) -> BoxFuture<'static, Result<BlobStream, BlobError>> {
        let (path, key) = (self.path(key), key.to_owned());
        async move {
            let path = path?;
            let opened = blocking(move || {
                let file = File::open(path)?;
                let size = file.metadata()?.len();
                Ok::<_, io::Error>((file, size))
            });
            let (file, size) = opened.await?.map_err(|error| match error.kind() {
                ErrorKind::NotFound => BlobError::Missing(key.clone()),
                _ => failed(&error),
            })?;
            if from.checked_add(len).is_none_or(|end| end > size) {
                return Err(BlobError::Failed(format!("the blob {key} is shorter than it was")));
            }
            Ok(pieces(Arc::new(file), from, len))
        }
        .boxed()
    }

    fn delete(&self, key: &str) -> BoxFuture<'static, Result<(), BlobError>> {
        let path = self.path(key);
        async move {
            let path = path?;
            match blocking(move || fs::remove_file(path)).await? {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&error)),
                _ => Ok(()),
            }
        }
        .boxed()
    }

    fn list(&self) -> BoxStream<'static, Result<Vec<FoundBlob>, BlobError>> {
        let root = Arc::clone(&self.root);
        stream::iter(0..=u8::MAX)
            .then(move |prefix| {
                let folder = root.join(format!("{prefix:02x}"));
                async move { blocking(move || found_in(&folder)).await?.map_err(|error| failed(&error)) }
            })
            .boxed()
    }
}

/// The bytes from `from` on, in pieces.
fn pieces(file: Arc<File>, from: u64, len: u64) -> BlobStream {
    stream::try_unfold((file, from, len), |(file, at, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let take = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let source = Arc::clone(&file);
        let read = blocking(move || {
            let mut piece = vec![0; take];
            source.read_exact_at(&mut piece, at).map(|()| Bytes::from(piece))
        });
        let piece = read.await?.map_err(|error| failed(&error))?;
        let step = u64::try_from(take).unwrap_or(0);
        Ok(Some((piece, (file, at + step, left - step))))
    })
    .boxed()
}

fn found_in(folder: &Path) -> io::Result<Vec<FoundBlob>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let now = SystemTime::now();
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Some(key) = entry.file_name().to_str().filter(|name| is_key(name)).map(str::to_owned) else {
            continue;
        };
        let written = match entry.metadata() {
            // It was deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            metadata => metadata?.modified()?,
        };
        found.push(FoundBlob { key, age: now.duration_since(written).unwrap_or(Duration::ZERO) });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    async fn put(blobs: &FileBlobs, pieces: &[&'static [u8]]) -> Blob {
        let mut writer = blobs.create().await.expect("a writer");
        for piece in pieces {
            writer.write(Bytes::from_static(piece)).await.expect("written");
        }
        writer.finish().await.expect("whole")
    }

    async fn read(blobs: &FileBlobs, key: &str, from: u64, len: u64) -> Result<Vec<u8>, BlobError> {
        let mut stream = blobs.read(key, from, len).await?;
        let mut all = Vec::new();
        while let Some(piece) = stream.next().await {
            all.extend_from_slice(&piece?);
        }
        Ok(all)
    }

    fn files(home: &Path) -> Vec<PathBuf> {
        let folders = fs::read_dir(home.join(BLOBS_DIR)).expect("a directory");
        let inner =
            folders.flat_map(|folder| fs::read_dir(folder.expect("an entry").path()).expect("a directory"));
        inner.map(|file| file.expect("an entry").path()).collect()
    }

    #[tokio::test]
    async fn a_blob_is_read_back_whole_and_in_part_and_is_its_owners_alone() {
        let home = tempfile::tempdir().expect("a directory");
        let blobs = FileBlobs::open(home.path()).expect("opened");
        let blob = put(&blobs, &[b"hello ", b"", b"world"]).await;
        assert_eq!((blob.size, blob.crc32), (11, 0x0d4a_1185));
        assert_eq!(blob.sha256, "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9");
        assert_eq!(read(&blobs, &blob.key, 0, 11).await.as_deref(), Ok(&b"hello world"[..]));
        assert_eq!(read(&blobs, &blob.key, 6, 3).await.as_deref(), Ok(&b"wor"[..]));
        assert_eq!(read(&blobs, &blob.key, 11, 0).await.as_deref(), Ok(&b""[..]));
        assert!(matches!(read(&blobs, &blob.key, 6, 6).await, Err(BlobError::Failed(_))));
        let [file] = &files(home.path())[..] else { panic!("one file") };
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(file), mode(file.parent().expect("a parent"))), (0o600, 0o700));
        let found: Vec<FoundBlob> = blobs.list().map(|batch| batch.expect("listed")).concat().await;
        assert_eq!(found.iter().map(|f| f.key.as_str()).collect::<Vec<_>>(), [blob.key.as_str()]);
        for _ in 0..2 {
            assert_eq!(blobs.delete(&blob.key).await, Ok(()));
        }
        assert_eq!(read(&blobs, &blob.key, 0, 1).await, Err(BlobError::Missing(blob.key)));
    }

    #[tokio::test]
    async fn a_large_blob_comes_in_pieces() {
        let home = tempfile::tempdir().expect("a directory");
        let blobs = FileBlobs::open(home.path()).expect("opened");
        let bytes: Vec<u8> = (0..PIECE_BYTES * 2 + 5).map(|n| u8::try_from(n % 251).unwrap_or(0)).collect();
        let mut writer = blobs.create().await.expect("a writer");
        writer.write(Bytes::from(bytes.clone())).await.expect("written");
        let blob = writer.finish().await.expect("whole");
        let len = u64::try_from(bytes.len()).expect("small");
        assert_eq!(blobs.read(&blob.key, 0, len).await.expect("opened").count().await, 3);
        assert_eq!(read(&blobs, &blob.key, 3, len - 3).await.as_deref(), Ok(&bytes[3..]));
    }

    #[tokio::test]
    async fn a_writer_that_is_dropped_and_a_process_that_died_leave_nothing() {
        let home = tempfile::tempdir().expect("a directory");
        let blobs = FileBlobs::open(home.path()).expect("opened");
        let mut writer = blobs.create().await.expect("a writer");
        writer.write(Bytes::from_static(b"half")).await.expect("written");
        assert_eq!(files(home.path()).len(), 1);
        drop(writer);
        for _ in 0..100 {
            if files(home.path()).is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(files(home.path()).len(), 0);
        let mut writer = blobs.create().await.expect("a writer");
        writer.write(Bytes::from_static(b"half")).await.expect("written");
        std::mem::forget(writer);
        assert_eq!(files(home.path()).len(), 1);
        FileBlobs::open(home.path()).expect("opened again");
        assert_eq!(files(home.path()).len(), 0);
    }

    #[tokio::test]
    async fn nothing_but_a_key_becomes_a_path() {
        let home = tempfile::tempdir().expect("a directory");
        let blobs = FileBlobs::open(home.path()).expect("opened");
        for key in ["", "../../../etc/passwd", &"g".repeat(32), &"é".repeat(16), &"A".repeat(32)] {
            assert!(matches!(blobs.read(key, 0, 0).await, Err(BlobError::Missing(_))), "{key}");
            assert!(blobs.delete(key).await.is_err(), "{key}");
        }
    }
}
