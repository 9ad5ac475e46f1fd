//! Artifacts in an S3 bucket, against a server that speaks S3. `make test` installs one into `target/tmp/s3-server`; where it
//! cannot be had these tests are skipped, and say so. `NYLORUN_TEST_S3` names another, whose buckets anybody may make.
// Helpers of a test may stop at the first surprise too.
#![allow(clippy::unwrap_used)]

mod common;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Options, Server, stderr, stdout};
use futures_util::StreamExt as _;
use nylorun::blobs::S3Settings;
use nylorun::blobs::s3::{PART_BYTES, S3Blobs};
use nylorun_actors::ports::{Blob, BlobError, Blobs as _};

/// Where `make test` installs it, below the folder of tests' files.
const SERVER: &str = "s3-server";

/// A server that speaks S3, until it is dropped.
struct S3 {
    url: String,
    process: Option<Child>,
}

impl S3 {
    /// One that is there already, or one of this test's own. `None` where there is none, which is said loudly.
    fn get() -> Option<Self> {
        if let Ok(url) = std::env::var("NYLORUN_TEST_S3") {
            return Some(Self { url: url.trim_end_matches('/').to_owned(), process: None });
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::at(port)
    }

    /// One of this test's own on this port.
    fn at(port: u16) -> Option<Self> {
        let packages: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(SERVER);
        if !packages.is_dir() {
            eprintln!(
                "\n*** SKIPPED, nothing was tested: there is no {} (`make test`) ***\n",
                packages.display()
            );
            return None;
        }
        let mut command = Command::new("python3");
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
        // What it has in memory goes with it; what this machine says of a cloud is not its business.
        command.env("PYTHONPATH", packages).env_remove("AWS_PROFILE");
        let process =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut it = Self { url: format!("http://127.0.0.1:{port}"), process: Some(process) };
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = it.process.as_mut().and_then(|process| process.try_wait().unwrap());
            assert_eq!(
                ended, None,
                "the server that speaks S3 does not start; remove {SERVER} in target/tmp"
            );
            assert!(begun.elapsed() < common::PATIENCE, "the server that speaks S3 never listened");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(it)
    }

    /// A bucket of its own.
    async fn bucket(&self) -> S3Settings {
        let settings = S3Settings {
            endpoint: self.url.clone(),
            access_key: "key".into(),
            secret_key: "secret".into(),
            bucket: format!("b{}", uuid::Uuid::new_v4().simple()),
            region: "us-east-1".to_owned(),
        };
        make(&settings).await;
        settings
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

async fn make(settings: &S3Settings) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let made = http.put(format!("{}/{}", settings.endpoint, settings.bucket)).send().await.unwrap();
    assert!(made.status().is_success(), "{}", made.status());
}

/// The server with its artifacts in the bucket.
fn options(settings: &S3Settings) -> Options {
    Options::default()
        .env("NYLORUN_OBJECT_STORE_ENDPOINT", &settings.endpoint)
        .env("NYLORUN_OBJECT_STORE_ACCESS_KEY", "key")
        .env("NYLORUN_OBJECT_STORE_SECRET_KEY", "very-secret")
        .env("NYLORUN_OBJECT_STORE_BUCKET", &settings.bucket)
}

async fn put(blobs: &S3Blobs, pieces: &[Bytes]) -> Blob {
    let mut writer = blobs.create().await.unwrap();
    for piece in pieces {
        writer.write(piece.clone()).await.unwrap();
    }
    writer.finish().await.unwrap()
}

async fn read(blobs: &S3Blobs, key: &str, from: u64, len: u64) -> Result<Vec<u8>, BlobError> {
    let mut stream = blobs.read(key, from, len).await?;
    let mut all = Vec::new();
    while let Some(piece) = stream.next().await {
        all.extend_from_slice(&piece?);
    }
    Ok(all)
}

async fn keys(blobs: &S3Blobs) -> Vec<String> {
    let mut keys = Vec::new();
    let mut listing = blobs.list();
    while let Some(batch) = listing.next().await {
        for found in batch.unwrap() {
            assert!(found.age < Duration::from_secs(60));
            keys.push(found.key);
        }
    }
    keys
}

#[tokio::test]
async fn a_blob_is_read_back_whole_and_in_part_listed_and_deleted() {
    let Some(s3) = S3::get() else { return };
    let settings = s3.bucket().await;
    let blobs = S3Blobs::open(&settings, "tn_a").await.unwrap();
    let blob = put(&blobs, &[Bytes::from_static(b"hello "), Bytes::from_static(b"world")]).await;
    assert_eq!((blob.size, blob.crc32), (11, 0x0d4a_1185));
    assert_eq!(read(&blobs, &blob.key, 0, 11).await.as_deref(), Ok(&b"hello world"[..]));
    assert_eq!(read(&blobs, &blob.key, 6, 3).await.as_deref(), Ok(&b"wor"[..]));
    assert_eq!(read(&blobs, &blob.key, 11, 0).await.as_deref(), Ok(&b""[..]));
    assert!(matches!(read(&blobs, &blob.key, 6, 6).await, Err(BlobError::Failed(_))));
    let empty = put(&blobs, &[]).await;
    assert_eq!((empty.size, read(&blobs, &empty.key, 0, 0).await.as_deref()), (0, Ok(&b""[..])));
    // Another Tenant in the same bucket sees nothing of it.
    let other = S3Blobs::open(&settings, "tn_b").await.unwrap();
    assert!(keys(&other).await.is_empty());
    assert!(matches!(read(&other, &blob.key, 0, 1).await, Err(BlobError::Missing(_))));
    let mut expected = vec![blob.key.clone(), empty.key.clone()];
    expected.sort_unstable();
    assert_eq!(keys(&blobs).await, expected);
    for _ in 0..2 {
        assert_eq!(blobs.delete(&blob.key).await, Ok(()));
    }
    assert_eq!(read(&blobs, &blob.key, 0, 1).await, Err(BlobError::Missing(blob.key)));
}

#[tokio::test]
async fn a_large_blob_goes_in_parts_and_one_that_is_given_up_leaves_none() {
    let Some(s3) = S3::get() else { return };
    let settings = s3.bucket().await;
    let blobs = S3Blobs::open(&settings, "tn_a").await.unwrap();
    let piece: Bytes = (0..1_000_000u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let pieces = vec![piece.clone(); 12];
    let blob = put(&blobs, &pieces).await;
    assert_eq!(blob.size, 12_000_000);
    let whole: Vec<u8> = pieces.concat();
    assert!(read(&blobs, &blob.key, 0, 12_000_000).await.unwrap() == whole);
    let at = PART_BYTES - 10;
    assert!(read(&blobs, &blob.key, at as u64, 20).await.unwrap() == whole[at..at + 20]);

    let mut writer = blobs.create().await.unwrap();
    for piece in &pieces[..6] {
        writer.write(piece.clone()).await.unwrap();
    }
    let uploads = async || {
        let url = format!("{}/{}?uploads", settings.endpoint, settings.bucket);
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        http.get(url).send().await.unwrap().text().await.unwrap().matches("<UploadId>").count()
    };
    assert_eq!(uploads().await, 1);
    drop(writer);
    for _ in 0..100 {
        if uploads().await == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!((uploads().await, keys(&blobs).await.len()), (0, 1));
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_told_at_the_start() {
    let Some(s3) = S3::get() else { return };
    let settings = S3Settings { bucket: "nobody-made-this".to_owned(), ..s3.bucket().await };
    assert!(matches!(S3Blobs::open(&settings, "tn_a").await, Err(BlobError::Failed(_))));
}

#[test]
fn the_program_keeps_artifacts_in_the_bucket_and_none_at_home() {
    let Some(s3) = S3::get() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let settings = runtime.block_on(s3.bucket());
    let mut server = Server::start_with(options(&settings));
    let file = server.home().join("large.bin");
    let bytes: Vec<u8> = (0..11_000_000u32).map(|n| u8::try_from(n % 253).unwrap()).collect();
    std::fs::write(&file, &bytes).unwrap();
    let answer = server.json(&["artifacts", "put", &file.display().to_string()]);
    let id = answer["artifact"]["artifactId"].as_str().unwrap().to_owned();
    server.kill9();
    server.restart();
    let copy = server.home().join("copy");
    let got = server.run(&["artifacts", "get", &id, "--output", &copy.display().to_string()]);
    assert!(got.status.success(), "{}", stderr(&got));
    assert!(std::fs::read(&copy).unwrap() == bytes);
    assert!(!server.home().join("blobs").exists());
    let listed = runtime.block_on(async {
        let tenant =
            server.json(&["status"])["tenant"]["tenant"]["id"].as_str().unwrap_or_default().to_owned();
        let blobs = S3Blobs::open(&settings, &tenant).await.unwrap();
        keys(&blobs).await.len()
    });
    assert_eq!(listed, 1, "{}", stdout(&server.run(&["status", "--json"])));
    assert!(server.run(&["artifacts", "rm", &id]).status.success());
    assert!(!server.log().join("\n").contains("very-secret"));
}

/// The bytes of the newest version, or of a range of them, with the status.
async fn content(server: &Server, id: &str, range: Option<&str>) -> (u16, Vec<u8>) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = http
        .get(format!("{}/v1/artifacts/{id}/versions/latest/content", server.url))
        .bearer_auth(&server.key)
        .header("nylorun-protocol", "7");
    let request = match range {
        Some(range) => request.header("range", range),
        None => request,
    };
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.bytes().await.unwrap().to_vec())
}

#[test]
fn ranges_of_an_artifact_in_the_bucket_are_read_as_they_are_at_home() {
    let Some(s3) = S3::get() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let settings = runtime.block_on(s3.bucket());
    let server = Server::start_with(options(&settings));
    let put = |text: &str| {
        let file = server.home().join("a.txt");
        std::fs::write(&file, text).unwrap();
        let answer = server.json(&["artifacts", "put", &file.display().to_string()]);
        answer["artifact"]["artifactId"].as_str().unwrap().to_owned()
    };
    let id = put("0123456789");
    for (range, status, text) in [
        (None, 200, "0123456789"),
        (Some("bytes=2-5"), 206, "2345"),
        (Some("bytes=7-"), 206, "789"),
        (Some("bytes=-3"), 206, "789"),
        (Some("bytes=0-99"), 206, "0123456789"),
        (Some("bytes=0-0"), 206, "0"),
        (Some("bytes=0-1,4-5"), 200, "0123456789"),
    ] {
        let (answered, bytes) = runtime.block_on(content(&server, &id, range));
        assert_eq!((answered, String::from_utf8(bytes).unwrap().as_str()), (status, text), "{range:?}");
    }
    assert_eq!(runtime.block_on(content(&server, &id, Some("bytes=10-"))).0, 416);
    let empty = put("");
    assert_eq!(runtime.block_on(content(&server, &empty, None)), (200, Vec::new()));
    let link = server.json(&["artifacts", "link", &id]);
    let followed = runtime.block_on(async {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer =
            http.get(link["url"].as_str().unwrap()).header("range", "bytes=-2").send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    });
    assert_eq!(followed, (206, "89".to_owned()));
}

#[test]
fn while_the_bucket_is_away_an_upload_is_refused_whole_and_a_later_one_is_kept() {
    let Some(mut s3) = S3::get() else { return };
    if s3.process.is_none() {
        eprintln!("\n*** SKIPPED, nothing was tested: this takes a server that the test may end ***\n");
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let settings = runtime.block_on(s3.bucket());
    let server = Server::start_with(options(&settings));
    let file = server.home().join("a.txt");
    std::fs::write(&file, "kept").unwrap();
    let put =
        |args: &[&str]| server.run(&[&["artifacts", "put", &file.display().to_string()], args].concat());
    assert!(put(&["--name", "before"]).status.success());
    let before =
        server.json(&["artifacts", "list"])["artifacts"][0]["artifactId"].as_str().unwrap().to_owned();
    let port: u16 = s3.url.rsplit(':').next().unwrap().parse().unwrap();
    let mut process = s3.process.take().unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    let refused = put(&["--name", "meanwhile"]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert_eq!(server.json(&["artifacts", "list"])["artifacts"].as_array().unwrap().len(), 1);
    assert_eq!(runtime.block_on(content(&server, &before, None)).0, 503);
    // It comes back, and what it had in memory is gone.
    let _s3 = S3::at(port).unwrap();
    runtime.block_on(make(&settings));
    let kept = put(&["--name", "after"]);
    assert!(kept.status.success(), "{}", stderr(&kept));
    assert_eq!(runtime.block_on(content(&server, &before, None)).0, 500);
    let after =
        server.json(&["artifacts", "list"])["artifacts"][1]["artifactId"].as_str().unwrap().to_owned();
    assert_eq!(runtime.block_on(content(&server, &after, None)), (200, b"kept".to_vec()));
    assert!(server.run(&["artifacts", "rm", &before]).status.success());
}
