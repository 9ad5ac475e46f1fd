//! The bytes of artifacts: the port `nylorun_actors::ports::blobs` over places that keep them (spec: http-api, section 12).
//!
//! | File | Keeps them |
//! |---|---|
//! | [`files`] | in the home directory |
//! | [`s3`] | in an S3 bucket |

pub mod files;
pub mod s3;

use nylorun_actors::ports::Blob;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};

pub use files::FileBlobs;
pub use s3::S3Blobs;

/// A bucket, and who may use it.
#[derive(Clone, Debug)]
pub struct S3Settings {
    /// URL of the service.
    pub endpoint: String,
    /// Id of the key.
    pub access_key: SecretString,
    /// The key.
    pub secret_key: SecretString,
    /// The bucket; it must be there.
    pub bucket: String,
    /// The service's region.
    pub region: String,
}

/// What a blob's bytes come to while they are written.
struct Sums {
    sha256: Sha256,
    crc32: crc32fast::Hasher,
    size: i64,
}

impl Sums {
    fn new() -> Self {
        Self { sha256: Sha256::new(), crc32: crc32fast::Hasher::new(), size: 0 }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        self.crc32.update(bytes);
        self.size = self.size.saturating_add(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
    }

    fn blob(self, key: String) -> Blob {
        Blob {
            key,
            size: self.size,
            sha256: hex::encode(self.sha256.finalize()),
            crc32: self.crc32.finalize(),
        }
    }
}

/// A key that nobody has had: 32 hexadecimal digits.
fn fresh_key() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// Whether a text is a key of ours; nothing else ever becomes part of a path.
fn is_key(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
