//! Blobs as objects of an S3 bucket, `TENANT/KEY`.
//!
//! The crate's own HTTP client and cryptography would bring a second TLS stack: requests go through reqwest as everywhere
//! else, and its digests are those of `sha2`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::BodyExt as _;
use nylorun_actors::ports::blobs::FoundBlob;
use nylorun_actors::ports::{Blob, BlobError, BlobStream, BlobWriter, Blobs};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    ClientOptions, CryptoProvider, DigestAlgorithm, DigestContext, HmacContext, HttpClient, HttpConnector,
    HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService, Signer,
    SigningAlgorithm,
};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt as _, PutPayload, RetryConfig,
};
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};

use super::{S3Settings, Sums, fresh_key, is_key};

/// Bytes of one part of a large blob: the least that S3 takes.
pub const PART_BYTES: usize = 5 * 1024 * 1024;
/// Blobs of one piece of a listing.
const LISTED: usize = 500;
/// How long a connection may take, and a silence.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_secs(30);
/// How long a request that fails in passing is tried again.
const RETRIES: usize = 4;
const RETRY_WAIT: Duration = Duration::from_secs(20);

/// Blobs in a bucket.
pub struct S3Blobs {
    store: Arc<AmazonS3>,
    tenant: Path,
}

impl S3Blobs {
    /// Those of a Tenant. Asks the service once whether the bucket is there.
    ///
    /// # Errors
    /// The settings make no sense to it, or the bucket cannot be used.
    pub async fn open(settings: &S3Settings, tenant: &str) -> Result<Self, BlobError> {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_WAIT)
            .read_timeout(SILENCE)
            .no_proxy()
            .build()
            .map_err(|error| BlobError::Failed(error.to_string()))?;
        let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_WAIT, ..RetryConfig::default() };
        let store = AmazonS3Builder::new()
            .with_endpoint(&settings.endpoint)
            .with_access_key_id(settings.access_key.expose_secret())
            .with_secret_access_key(settings.secret_key.expose_secret())
            .with_bucket_name(&settings.bucket)
            .with_region(&settings.region)
            .with_allow_http(settings.endpoint.starts_with("http://"))
            .with_virtual_hosted_style_request(false)
            .with_retry(retry)
            .with_http_connector(Connector(client))
            .with_crypto_provider(Arc::new(Digests))
            .build()
            .map_err(failed)?;
        let blobs = Self { store: Arc::new(store), tenant: Path::from(tenant) };
        match blobs.store.list(Some(&blobs.tenant)).next().await {
            Some(Err(error)) => Err(failed(error)),
            _ => Ok(blobs),
        }
    }

    fn path(&self, key: &str) -> Result<Path, BlobError> {
        if is_key(key) {
            Ok(self.tenant.clone().join(key))
        } else {
            Err(BlobError::Missing("of another store".to_owned()))
        }
    }
}

fn failed(error: Error) -> BlobError {
    // The text of a request's failure may hold its URL, which has no secrets: signatures are in headers.
    BlobError::Failed(error.to_string())
}

/// A blob that is being written: in one request when it is small, else part by part.
struct S3Writer {
    store: Arc<AmazonS3>,
    path: Path,
    key: String,
    /// Absent while a thread computes, and after an error.
    sums: Option<Sums>,
    held: Vec<Bytes>,
    held_bytes: usize,
    upload: Unfinished,
}

/// Parts that were sent. Dropped before their end they are given up.
struct Unfinished(Option<Box<dyn MultipartUpload>>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let Some(mut upload) = self.0.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = upload.abort().await {
                    tracing::warn!(%error, "parts of an upload that was given up stay in the bucket");
                }
            });
        }
    }
}

impl S3Writer {
    /// What is held, with its sums added.
    async fn take(&mut self) -> Result<PutPayload, BlobError> {
        let Some(mut sums) = self.sums.take() else {
            return Err(BlobError::Failed("an earlier write failed".to_owned()));
        };
        let held = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        let adding = tokio::task::spawn_blocking(move || {
            held.iter().for_each(|bytes| sums.add(bytes));
            (sums, held)
        });
        let (sums, held) = adding.await.map_err(|error| BlobError::Failed(error.to_string()))?;
        self.sums = Some(sums);
        Ok(held.into_iter().collect())
    }

    async fn send_part(&mut self) -> Result<(), BlobError> {
        let payload = self.take().await?;
        let upload = match &mut self.upload.0 {
            Some(upload) => upload,
            none => none.insert(self.store.put_multipart(&self.path).await.map_err(failed)?),
        };
        upload.put_part(payload).await.map_err(failed)
    }
}

impl BlobWriter for S3Writer {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), BlobError>> {
        async move {
            self.held_bytes += bytes.len();
            self.held.push(bytes);
            if self.held_bytes < PART_BYTES { Ok(()) } else { self.send_part().await }
        }
        .boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<Blob, BlobError>> {
        async move {
            if self.upload.0.is_none() {
                let payload = self.take().await?;
                self.store.put(&self.path, payload).await.map_err(failed)?;
            } else {
                if self.held_bytes > 0 {
                    self.send_part().await?;
                }
                if let Some(upload) = &mut self.upload.0 {
                    upload.complete().await.map_err(failed)?;
                }
                self.upload.0 = None;
            }
            let sums = self.sums.take();
            let sums = sums.ok_or_else(|| BlobError::Failed("an earlier write failed".to_owned()))?;
            Ok(sums.blob(self.key.clone()))
        }
        .boxed()
    }
}

impl Blobs for S3Blobs {
    fn create(&self) -> BoxFuture<'static, Result<Box<dyn BlobWriter>, BlobError>> {
        let key = fresh_key();
        let writer = self.path(&key).map(|path| S3Writer {
            store: Arc::clone(&self.store),
            path,
            key,
            sums: Some(Sums::new()),
            held: Vec::new(),
            held_bytes: 0,
            upload: Unfinished(None),
        });
        async move { writer.map(|writer| Box::new(writer) as Box<dyn BlobWriter>) }.boxed()
    }

    fn read(&self, key: &str, from: u64, len: u64) -> BoxFuture<'static, Result<BlobStream, BlobError>> {
        let (store, path, key) = (Arc::clone(&self.store), self.path(key), key.to_owned());
        async move {
            let path = path?;
            // A range of nothing cannot be asked for; whether the blob is there can.
            let options = match len {
                0 => GetOptions { head: true, ..GetOptions::default() },
                _ => GetOptions { range: Some(GetRange::Bounded(from..from + len)), ..GetOptions::default() },
            };
            let found = store.get_opts(&path, options).await.map_err(|error| match error {
                Error::NotFound { .. } => BlobError::Missing(key.clone()),
                other => failed(other),
            })?;
            if len == 0 {
                return Ok(stream::empty().boxed());
            }
            if found.range != (from..from + len) {
                return Err(BlobError::Failed(format!("the blob {key} is shorter than it was")));
            }
            Ok(found.into_stream().map(|piece| piece.map_err(failed)).boxed())
        }
        .boxed()
    }

    fn delete(&self, key: &str) -> BoxFuture<'static, Result<(), BlobError>> {
        let (store, path) = (Arc::clone(&self.store), self.path(key));
        async move {
            match store.delete(&path?).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(failed(error)),
            }
        }
        .boxed()
    }

    fn list(&self) -> BoxStream<'static, Result<Vec<FoundBlob>, BlobError>> {
        let objects = self.store.list(Some(&self.tenant)).chunks(LISTED);
        let found = |object: object_store::ObjectMeta| {
            let key = object.location.filename().filter(|name| is_key(name))?.to_owned();
            let written = SystemTime::from(object.last_modified);
            let age = SystemTime::now().duration_since(written).unwrap_or(Duration::ZERO);
            Some(FoundBlob { key, age })
        };
        objects
            .map(move |batch| {
                let batch: Result<Vec<_>, Error> = batch.into_iter().collect();
                Ok(batch.map_err(failed)?.into_iter().filter_map(found).collect())
            })
            .boxed()
    }
}

/// Requests through the HTTP client that this program has already.
#[derive(Debug)]
struct Connector(reqwest::Client);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service(self.0.clone())))
    }
}

#[derive(Debug)]
struct Service(reqwest::Client);

impl HttpService for Service {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let url: reqwest::Url = parts
                .uri
                .to_string()
                .parse()
                .map_err(|error| HttpError::new(HttpErrorKind::Unknown, Unparsable(error)))?;
            let mut request = reqwest::Request::new(parts.method, url);
            *request.headers_mut() = parts.headers;
            *request.body_mut() = Some(reqwest::Body::wrap(body));
            let response = self.0.execute(request).await.map_err(broken)?;
            let (parts, body) = http::Response::<reqwest::Body>::from(response).into_parts();
            Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body.map_err(broken))))
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no URL: {0}")]
struct Unparsable(<reqwest::Url as std::str::FromStr>::Err);

/// What failed, told so that a request that may be made again is.
fn broken(error: reqwest::Error) -> HttpError {
    let kind = if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_connect() {
        HttpErrorKind::Connect
    } else if error.is_request() || error.is_body() {
        HttpErrorKind::Interrupted
    } else if error.is_decode() {
        HttpErrorKind::Decode
    } else {
        HttpErrorKind::Unknown
    };
    HttpError::new(kind, error.without_url())
}

/// Digests of `sha2`.
#[derive(Debug)]
struct Digests;

fn unsupported(what: impl fmt::Debug) -> Error {
    Error::NotSupported { source: format!("{what:?}").into() }
}

impl CryptoProvider for Digests {
    fn digest(&self, algorithm: DigestAlgorithm) -> object_store::Result<Box<dyn DigestContext>> {
        match algorithm {
            DigestAlgorithm::Sha256 => Ok(Box::new(Hash(Sha256::new(), [0; 32]))),
            other => Err(unsupported(other)),
        }
    }

    fn hmac(&self, algorithm: DigestAlgorithm, secret: &[u8]) -> object_store::Result<Box<dyn HmacContext>> {
        match algorithm {
            DigestAlgorithm::Sha256 => {
                let mac = Hmac::<Sha256>::new_from_slice(secret).map_err(unsupported)?;
                Ok(Box::new(Authenticated(mac, [0; 32])))
            }
            other => Err(unsupported(other)),
        }
    }

    fn sign(&self, algorithm: SigningAlgorithm, _: &[u8]) -> object_store::Result<Box<dyn Signer>> {
        Err(unsupported(algorithm))
    }
}

struct Hash(Sha256, [u8; 32]);

impl DigestContext for Hash {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finish(&mut self) -> object_store::Result<&[u8]> {
        self.1 = self.0.finalize_reset().into();
        Ok(&self.1)
    }
}

struct Authenticated(Hmac<Sha256>, [u8; 32]);

impl HmacContext for Authenticated {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finish(&mut self) -> object_store::Result<&[u8]> {
        self.1 = self.0.clone().finalize().into_bytes().into();
        Ok(&self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_published_examples() {
        let mut hash = Digests.digest(DigestAlgorithm::Sha256).expect("known");
        hash.update(b"a");
        hash.update(b"bc");
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex::encode(hash.finish().expect("finished")), expected);
        // RFC 4231, test case 2.
        let mut mac = Digests.hmac(DigestAlgorithm::Sha256, b"Jefe").expect("known");
        mac.update(b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex::encode(mac.finish().expect("finished")), expected);
    }
}
