//! Artifacts in an S3 bucket, against a server that speaks S3: `make test-s3` starts one and says where it is.
#![cfg(feature = "s3")]
// Helpers of a test may stop at the first surprise too.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{Options, Server, stderr, stdout};
use futures_util::StreamExt as _;
use nylorun::blobs::S3Settings;
use nylorun::blobs::s3::{PART_BYTES, S3Blobs};
use nylorun_actors::ports::{Blob, BlobError, Blobs as _};

/// Where the server is.
fn endpoint() -> String {
    std::env::var("NYLORUN_TEST_S3").expect("NYLORUN_TEST_S3 names an S3 server; `make test-s3` starts one")
}

/// A bucket of its own.
async fn bucket() -> S3Settings {
    let bucket = format!("b{}", uuid::Uuid::new_v4().simple());
    let url = format!("{}/{bucket}", endpoint());
    let made = reqwest::Client::new().put(url).send().await.unwrap();
    assert!(made.status().is_success(), "{}", made.status());
    S3Settings {
        endpoint: endpoint(),
        access_key: "key".into(),
        secret_key: "secret".into(),
        bucket,
        region: "us-east-1".to_owned(),
    }
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
#[ignore = "needs an S3 server: make test-s3"]
async fn a_blob_is_read_back_whole_and_in_part_listed_and_deleted() {
    let settings = bucket().await;
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
#[ignore = "needs an S3 server: make test-s3"]
async fn a_large_blob_goes_in_parts_and_one_that_is_given_up_leaves_none() {
    let settings = bucket().await;
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
        reqwest::get(url).await.unwrap().text().await.unwrap().matches("<UploadId>").count()
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
#[ignore = "needs an S3 server: make test-s3"]
async fn a_bucket_that_is_not_there_is_told_at_the_start() {
    let settings = S3Settings { bucket: "nobody-made-this".to_owned(), ..bucket().await };
    assert!(matches!(S3Blobs::open(&settings, "tn_a").await, Err(BlobError::Failed(_))));
}

#[test]
#[ignore = "needs an S3 server: make test-s3"]
fn the_program_keeps_artifacts_in_the_bucket_and_none_at_home() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let settings = runtime.block_on(bucket());
    let options = Options::default()
        .env("NYLORUN_OBJECT_STORE_ENDPOINT", &settings.endpoint)
        .env("NYLORUN_OBJECT_STORE_ACCESS_KEY", "key")
        .env("NYLORUN_OBJECT_STORE_SECRET_KEY", "very-secret")
        .env("NYLORUN_OBJECT_STORE_BUCKET", &settings.bucket);
    let mut server = Server::start_with(options);
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
