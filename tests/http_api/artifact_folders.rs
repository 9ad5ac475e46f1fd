//! Folder artifacts, made by the export of a completed turn: tree, files, diff, archive (spec: http-api, section 12;
//! sandbox, section 14).

use std::time::Duration;

use nylorun_actors::model::Json;
use nylorun_actors::testing::FakeWorkspaces;
use nylorun_actors::testing::engine::Step;
use serde_json::json;

use super::artifacts::{events, uploaded};
use super::sandbox::pin;
use super::support::{Api, message};

const VERSION: &str = "/v1/artifacts/{artifactId}/versions/{version}";

/// A session whose workspace has files, with turns that complete at once.
pub async fn with_outputs(files: &[(&str, &str)]) -> Api {
    let api = Api::opening(false);
    let workspaces = FakeWorkspaces::of(api.tenant_id().await.as_str().into());
    api.open_serving(vec![Step::Model(0)], workspaces).await;
    api.session("s", "ada").await;
    pin(&api, "s").await;
    write(&api, files).await;
    api
}

async fn write(api: &Api, files: &[(&str, &str)]) {
    for (path, content) in files {
        let body = json!({"path": format!("/workspace/outputs/{path}"), "content": content});
        let wrote = api.app("POST", "/v1/sessions/s/sandbox/write").json(&body).send().await;
        assert_eq!(wrote.json()["kind"], "completed", "{}", wrote.text);
    }
}

/// A turn from its message to the end of its export; answers the session's events about artifacts.
pub async fn turn(api: &Api, key: &str) -> Vec<(String, Json)> {
    let sent = api.app("POST", "/v1/sessions/s/commands").json(&message(key, "hi")).send().await;
    assert_eq!(sent.status, 200, "{}", sent.text);
    for _ in 0..400 {
        // The lease goes back after the export.
        let owner = api.store.handle().read(|r| r.session(&"s".into())).await;
        let head: nylorun_actors::ports::store::StoreResult<_> = owner;
        let head = head.unwrap().unwrap();
        if head.active_turn_id.is_none() && head.owner.is_none() {
            return events(api, "s").await;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the turn never ended");
}

pub fn folder_id(events: &[(String, Json)]) -> String {
    events[0].1["artifactId"].as_str().unwrap().to_owned()
}

#[actix_web::test]
async fn a_completed_turn_keeps_its_outputs_as_a_version_of_one_folder() {
    let api = with_outputs(&[("b/c.csv", "1,2"), ("a.txt", "hello")]).await;
    let told = turn(&api, "1").await;
    let id = folder_id(&told);
    let sha = told[0].1["sha256"].clone();
    let expected = json!({
        "artifactId": id, "kind": "folder", "name": "outputs",
        "contentType": "application/vnd.nylorun.folder+json", "version": 1, "size": 8, "sha256": sha,
        "source": "export", "fileCount": 2, "claimed": true,
    });
    assert_eq!(told, [("artifact.created".to_owned(), expected)]);
    let base = format!("/v1/artifacts/{id}/versions");
    let tree = api.app("GET", &format!("{base}/1/tree")).send().await.ok("GET", &format!("{VERSION}/tree"));
    let entry = |path: &str, size: i64, kind: &str, hash: &Json| json!({"path": path, "size": size, "sha256": hash, "contentType": kind});
    let hashes: Vec<Json> = tree["entries"].as_array().unwrap().iter().map(|e| e["sha256"].clone()).collect();
    let entries = [entry("a.txt", 5, "text/plain", &hashes[0]), entry("b/c.csv", 3, "text/csv", &hashes[1])];
    assert_eq!(tree, json!({"artifactId": id, "version": 1, "entries": entries}));

    // The same files are no new version; other files are one.
    assert_eq!(turn(&api, "2").await.len(), 1);
    write(&api, &[("a.txt", "hello!"), ("d", "")]).await;
    let told = turn(&api, "3").await;
    assert_eq!((told.len(), told[1].0.as_str()), (2, "artifact.version.created"));
    assert_eq!((&told[1].1["version"], &told[1].1["fileCount"]), (&json!(2), &json!(3)));

    let diff =
        api.app("GET", &format!("{base}/latest/diff")).send().await.ok("GET", &format!("{VERSION}/diff"));
    assert_eq!((&diff["from"], &diff["to"]), (&json!(1), &json!(2)));
    assert_eq!(diff["added"][0]["path"], "d");
    assert_eq!(diff["removed"], json!([]));
    assert_eq!(
        (&diff["changed"][0]["path"], &diff["changed"][0]["from"]["size"]),
        (&json!("a.txt"), &json!(5))
    );
    let back = api.app("GET", &format!("{base}/1/diff?from=2")).send().await.json();
    assert_eq!((back["removed"][0]["path"].as_str(), &back["to"]), (Some("d"), &json!(1)));
    let first = api.app("GET", &format!("{base}/1/diff")).send().await.ok("GET", &format!("{VERSION}/diff"));
    assert_eq!((first.get("from"), first["added"].as_array().unwrap().len()), (None, 2));
    for (query, status) in [("from=0", 400), ("from=x", 400), ("from=9", 404)] {
        assert_eq!(api.app("GET", &format!("{base}/1/diff?{query}")).send().await.status, status, "{query}");
    }
}

#[actix_web::test]
async fn a_file_of_a_folder_is_read_by_its_path_in_one_segment() {
    let api = with_outputs(&[("b/c d.csv", "1,2"), ("a.txt", "hello")]).await;
    let id = folder_id(&turn(&api, "1").await);
    let get = |path: &str| api.app("GET", &format!("/v1/artifacts/{id}/versions/1/files/{path}"));
    let read = get("b%2Fc%20d.csv").send().await;
    assert_eq!((read.status, read.text.as_str(), read.header("content-type")), (200, "1,2", "text/csv"));
    assert!(read.header("content-disposition").starts_with("inline; filename=\"c d.csv\""));
    let part = get("a.txt").header("range", "bytes=1-2").send().await;
    assert_eq!((part.status, part.text.as_str(), part.header("content-range")), (206, "el", "bytes 1-2/5"));
    for missing in ["b", "c", "b%2F", "..%2Fa.txt", "b%2Fc%2Fd"] {
        assert_eq!(get(missing).send().await.refusal(), (404, "request_rejected".to_owned()), "{missing}");
    }
    let content = api.app("GET", &format!("/v1/artifacts/{id}/versions/1/content")).send().await;
    assert_eq!(content.refusal(), (400, "request_rejected".to_owned()));
    let upload = api.app("POST", &format!("/v1/artifacts/{id}/versions")).bytes(b"x").send().await;
    assert_eq!(upload.refusal(), (400, "request_rejected".to_owned()));
    let file = uploaded(&api, "name=f", b"x").await;
    for what in ["tree", "diff", "zip", "files/x"] {
        let answer = api.app("GET", &format!("/v1/artifacts/{file}/versions/1/{what}")).send().await;
        assert_eq!(answer.refusal(), (400, "request_rejected".to_owned()), "{what}");
    }
}

#[actix_web::test]
async fn a_folders_archive_has_every_file_whole_and_its_length_beforehand() {
    let large = "0123456789".repeat(30_000);
    let api = with_outputs(&[("a.txt", "hello"), ("b/ü.bin", &large), ("empty", "")]).await;
    let id = folder_id(&turn(&api, "1").await);
    let response = api.app("GET", &format!("/v1/artifacts/{id}/versions/latest/zip")).stream().await;
    assert_eq!(response.status(), 200);
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/zip");
    assert_eq!(
        header("content-disposition"),
        "attachment; filename=\"outputs-v1.zip\"; filename*=UTF-8''outputs-v1.zip"
    );
    let length: usize = header("content-length").parse().unwrap();
    let bytes = response.bytes().await.unwrap();
    assert_eq!(bytes.len(), length);
    let files = unzip(&bytes);
    let expected = [("a.txt", "hello"), ("b/ü.bin", large.as_str()), ("empty", "")];
    assert!(files == expected.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())));
}

#[actix_web::test]
async fn odd_names_of_files_are_the_same_in_tree_file_and_archive() {
    let mut names = [
        " space ",
        "%2e%2e",
        "-dash",
        "...",
        "a b/\u{65e5}\u{672c}.txt",
        "back\\slash",
        "con:col",
        "new\nline",
        "q\"uote",
    ];
    let files: Vec<(&str, &str)> = names.iter().map(|name| (*name, *name)).collect();
    let api = with_outputs(&files).await;
    let id = folder_id(&turn(&api, "1").await);
    names.sort_unstable();
    let base = format!("/v1/artifacts/{id}/versions/1");
    let tree = api.app("GET", &format!("{base}/tree")).send().await.ok("GET", &format!("{VERSION}/tree"));
    let paths: Vec<&str> =
        tree["entries"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect();
    assert_eq!(paths, names);
    for name in names {
        let segment: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let read = api.app("GET", &format!("{base}/files/{segment}")).send().await;
        assert_eq!((read.status, read.text.as_str()), (200, name));
    }
    // A range is of no use for an archive, which is whole.
    let request = api.app("GET", &format!("{base}/zip")).header("range", "bytes=0-3");
    let response = request.stream().await;
    assert_eq!((response.status().as_u16(), response.headers().get("accept-ranges")), (200, None));
    let files = unzip(&response.bytes().await.unwrap());
    assert_eq!(files, names.map(|name| (name.to_owned(), name.as_bytes().to_vec())));
}

/// Names and bytes of an archive whose files are stored as they are, found as readers find them: from its end, by its
/// directory. Everything that is said twice must be the same, and every checksum right.
pub fn unzip(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let u16_at = |at: usize| usize::from(u16::from_le_bytes(archive[at..at + 2].try_into().unwrap()));
    let u32_at = |at: usize| u32::from_le_bytes(archive[at..at + 4].try_into().unwrap());
    let end = archive.len() - 22;
    assert_eq!(&archive[end..end + 4], b"PK\x05\x06");
    let count = u16_at(end + 10);
    let mut at = u32_at(end + 16) as usize;
    assert_eq!(at + u32_at(end + 12) as usize, end, "the directory is what is before the end");
    let mut files = Vec::new();
    for _ in 0..count {
        assert_eq!(&archive[at..at + 4], b"PK\x01\x02");
        let (size, name_len) = (u32_at(at + 24) as usize, u16_at(at + 28));
        let local = u32_at(at + 42) as usize;
        assert_eq!(&archive[local..local + 4], b"PK\x03\x04");
        // From the version that is needed to the length of the name, a file's two headers say the same.
        assert_eq!(archive[local + 4..local + 28], archive[at + 6..at + 30]);
        assert_eq!(u16_at(at + 10), 0, "stored as it is");
        let name = &archive[at + 46..at + 46 + name_len];
        assert_eq!(name, &archive[local + 30..local + 30 + name_len]);
        let start = local + 30 + name_len;
        let bytes = archive[start..start + size].to_vec();
        assert_eq!(crc32fast::hash(&bytes), u32_at(at + 16));
        files.push((String::from_utf8(name.to_vec()).unwrap(), bytes));
        at += 46 + name_len;
    }
    assert_eq!(at, end);
    files
}

#[actix_web::test]
async fn the_same_bytes_are_kept_once_and_for_as_long_as_somebody_names_them() {
    let api = with_outputs(&[("a", "same bytes"), ("b", "same bytes")]).await;
    let id = folder_id(&turn(&api, "1").await);
    // The file once, and the manifest.
    assert_eq!(api.blobs().len(), 2);
    write(&api, &[("c", "same bytes")]).await;
    turn(&api, "2").await;
    assert_eq!(api.blobs().len(), 3);
    assert_eq!(api.app("DELETE", &format!("/v1/artifacts/{id}")).send().await.status, 200);
    assert_eq!(api.blobs().len(), 0);
    let used = api.app("GET", "/v1/tenant/artifacts").send().await.json();
    assert_eq!(used["usedBytes"], 0);
}

#[actix_web::test]
async fn outputs_past_a_limit_are_skipped_with_the_reason_and_nothing_is_stored() {
    let api = with_outputs(&[("a", "12345"), ("b", "123")]).await;
    let limits = async |limits: Json| {
        let put = api.app("PUT", "/v1/tenant/artifacts").json(&json!({"limits": limits})).send().await;
        assert_eq!(put.status, 200, "{}", put.text);
    };
    limits(json!({"fileBytes": 4})).await;
    let told = turn(&api, "1").await.pop().unwrap();
    assert_eq!(told.0, "artifact.export.skipped");
    let mut payload = told.1;
    assert!(payload["message"].is_string());
    payload.as_object_mut().unwrap().shift_remove("message");
    assert_eq!(payload, json!({"name": "outputs", "reason": "file_too_large", "limit": 4, "path": "a"}));
    limits(json!({"totalBytes": 7})).await;
    let told = turn(&api, "2").await.pop().unwrap().1;
    assert_eq!((&told["reason"], &told["limit"]), (&json!("too_large"), &json!(7)));
    limits(json!({})).await;
    uploaded(&api, "name=x", &[1; 100]).await;
    limits(json!({"totalBytes": 105})).await;
    let told = turn(&api, "3").await.pop().unwrap().1;
    assert_eq!((&told["reason"], &told["limit"]), (&json!("tenant_total"), &json!(105)));
    assert_eq!(api.blobs().len(), 1);
    limits(json!({})).await;
    assert_eq!(turn(&api, "4").await.pop().unwrap().0, "artifact.created");
    let session = api.app("GET", "/v1/sessions/s").send().await.json();
    assert_eq!(session["status"], "completed");
}
