//! Artifacts over HTTP: uploads, versions, names, labels, types, lists, persons, ranges, limits, deletes
//! (spec: http-api, section 12). Folders and links are in files of their own.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use nylorun_actors::model::Json;
use nylorun_actors::model::artifact::is_artifact_id;
use serde_json::json;

use super::support::{Answer, Api, KEY, raw};

const ARTIFACTS: &str = "/v1/artifacts";
const ONE: &str = "/v1/artifacts/{artifactId}";
const LIMITS: &str = "/v1/tenant/artifacts";
const SHA_OF_HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

pub async fn upload(api: &Api, query: &str, body: &[u8]) -> Answer {
    api.app("POST", &format!("{ARTIFACTS}?{query}")).bytes(body).send().await
}

/// Uploads a file that is taken; answers its id.
pub async fn uploaded(api: &Api, query: &str, body: &[u8]) -> String {
    let answer = upload(api, query, body).await.created("POST", ARTIFACTS);
    answer["artifact"]["artifactId"].as_str().unwrap().to_owned()
}

async fn content(api: &Api, id: &str, version: &str, range: Option<&str>) -> Answer {
    let request = api.app("GET", &format!("{ARTIFACTS}/{id}/versions/{version}/content"));
    match range {
        Some(range) => request.header("range", range).send().await,
        None => request.send().await,
    }
}

async fn used(api: &Api) -> i64 {
    api.app("GET", LIMITS).send().await.ok("GET", LIMITS)["usedBytes"].as_i64().unwrap()
}

async fn limit(api: &Api, file: Option<i64>, total: Option<i64>) {
    let mut limits = json!({});
    for (name, value) in [("fileBytes", file), ("totalBytes", total)] {
        if let Some(value) = value {
            limits[name] = json!(value);
        }
    }
    let put = api.app("PUT", LIMITS).json(&json!({"requestId": "r", "limits": limits})).send().await;
    put.ok("PUT", LIMITS);
}

async fn listed(api: &Api, query: &str) -> Vec<String> {
    let list = api.app("GET", &format!("{ARTIFACTS}{query}")).send().await.ok("GET", ARTIFACTS);
    let rows = list["artifacts"].as_array().unwrap();
    rows.iter().map(|row| row["artifactId"].as_str().unwrap().to_owned()).collect()
}

/// Events of a session about artifacts: type and payload.
pub async fn events(api: &Api, session: &str) -> Vec<(String, Json)> {
    let items = api.app("GET", &format!("/v1/sessions/{session}/items")).send().await.json();
    let items = items["items"].as_array().unwrap().clone();
    let artifacts = items.into_iter().filter(|item| item["type"].as_str().unwrap().starts_with("artifact."));
    artifacts
        .map(|item| {
            assert_eq!(item["source"]["kind"], "api", "{item}");
            (item["type"].as_str().unwrap().to_owned(), item["payload"].clone())
        })
        .collect()
}

#[actix_web::test]
async fn an_upload_is_201_with_the_artifact_and_its_first_version_and_is_read_back() {
    let api = Api::start(vec![]).await;
    let sent = upload(&api, "name=a%20b.txt&label=k=v&label=x=", b"hello").await;
    let body = sent.created("POST", ARTIFACTS);
    let artifact = &body["artifact"];
    let id = artifact["artifactId"].as_str().unwrap();
    assert!(is_artifact_id(id), "{id}");
    let shown = json!({
        "artifactId": id, "kind": "file", "name": "a b.txt", "contentType": "text/plain", "latestVersion": 1,
        "labels": {"k": "v", "x": ""}, "createdAt": artifact["createdAt"], "updatedAt": artifact["createdAt"],
    });
    assert_eq!(*artifact, shown);
    let version = json!({
        "version": 1, "size": 5, "sha256": SHA_OF_HELLO, "contentType": "text/plain", "source": "upload",
        "createdAt": artifact["createdAt"],
    });
    assert_eq!(body["version"], version);
    let read = content(&api, id, "latest", None).await;
    assert_eq!((read.status, read.text.as_str()), (200, "hello"));
    for (name, value) in [
        ("content-type", "text/plain"),
        ("content-length", "5"),
        ("accept-ranges", "bytes"),
        ("etag", &format!("\"{SHA_OF_HELLO}\"")),
        ("cache-control", "private, max-age=0"),
        ("content-disposition", "inline; filename=\"a b.txt\"; filename*=UTF-8''a%20b.txt"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'; sandbox"),
    ] {
        assert_eq!(read.header(name), value, "{name}");
    }
    let got = api.app("GET", &format!("{ARTIFACTS}/{id}")).send().await.ok("GET", ONE);
    let mut whole = shown;
    whole["versions"] = json!([version]);
    assert_eq!(got, whole);
}

#[actix_web::test]
async fn versions_are_numbered_from_1_and_each_stays_readable() {
    let api = Api::start(vec![]).await;
    api.session("s", "ada").await;
    let id = uploaded(&api, "name=a.csv&sessionId=s", b"one").await;
    let path = format!("{ARTIFACTS}/{id}/versions");
    let second = api.app("POST", &path).header("content-type", "text/x-two").bytes(b"second").send().await;
    let second = second.created("POST", "/v1/artifacts/{artifactId}/versions");
    assert_eq!((&second["version"]["version"], &second["artifact"]["latestVersion"]), (&json!(2), &json!(2)));
    assert_eq!(second["artifact"]["contentType"], "text/x-two");
    let third = api.app("POST", &path).bytes(b"").send().await;
    let third = third.created("POST", "/v1/artifacts/{artifactId}/versions");
    assert_eq!(
        (&third["version"]["contentType"], &third["version"]["size"]),
        (&json!("text/csv"), &json!(0))
    );
    for (version, text) in [("1", "one"), ("2", "second"), ("3", ""), ("latest", "")] {
        let read = content(&api, &id, version, None).await;
        assert_eq!((read.status, read.text.as_str()), (200, text), "{version}");
    }
    assert_eq!(content(&api, &id, "2", None).await.header("content-type"), "text/x-two");
    assert_eq!(content(&api, &id, "4", None).await.refusal(), (404, "request_rejected".to_owned()));
    for bad in ["0", "01", "-1", "x", "1000000000", "Latest"] {
        assert_eq!(content(&api, &id, bad, None).await.status, 400, "{bad}");
    }
    let got = api.app("GET", &format!("{ARTIFACTS}/{id}")).send().await.ok("GET", ONE);
    let numbers: Vec<_> = got["versions"].as_array().unwrap().iter().map(|v| v["version"].clone()).collect();
    assert_eq!(numbers, [json!(1), json!(2), json!(3)]);
    let events = events(&api, "s").await;
    let types: Vec<&str> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(types, ["artifact.created", "artifact.version.created", "artifact.version.created"]);
    let expected = json!({
        "artifactId": id, "kind": "file", "name": "a.csv", "contentType": "text/x-two", "version": 2, "size": 6,
        "sha256": second["version"]["sha256"], "source": "upload",
    });
    assert_eq!(events[1].1, expected);
}

#[actix_web::test]
async fn a_bad_name_label_session_or_type_is_a_400_and_nothing_is_stored() {
    let api = Api::start(vec![]).await;
    let (long, key) = ("x".repeat(256), "k".repeat(64));
    let many: String = (0..33).map(|n| format!("&label=k{n}=v")).collect();
    for query in [
        "",
        "name=",
        "name=%20",
        "name=.",
        "name=..",
        "name=a%2Fb",
        "name=a%5Cb",
        "name=a%00b",
        "name=a%0Ab",
        &format!("name={long}"),
        "name=a&label=x",
        "name=a&label==x",
        &format!("name=a&label={key}=x"),
        &format!("name=a&label=k={}", "v".repeat(257)),
        "name=a&label=k=1&label=k=2",
        &format!("name=a{many}"),
        "name=a&sessionId=",
    ] {
        assert_eq!(
            upload(&api, query, b"x").await.refusal(),
            (400, "request_rejected".to_owned()),
            "{query}"
        );
    }
    for kind in ["nonsense", "text/", "", "text/plain; x", "é/a"] {
        let sent =
            api.app("POST", "/v1/artifacts?name=a").header("content-type", kind).bytes(b"x").send().await;
        assert_eq!(sent.refusal(), (400, "request_rejected".to_owned()), "{kind}");
    }
    let twice =
        api.app("POST", "/v1/artifacts?name=a").header("content-type", "a/b").header("content-type", "a/c");
    assert_eq!(twice.bytes(b"x").send().await.status, 400);
    let gone = upload(&api, "name=a&sessionId=nobody", b"x").await;
    assert_eq!(gone.refusal(), (404, "request_rejected".to_owned()));
    let no_artifact = api.app("POST", "/v1/artifacts/af_none/versions").bytes(b"x").send().await;
    assert_eq!(no_artifact.refusal(), (404, "request_rejected".to_owned()));
    assert!(listed(&api, "").await.is_empty());
    assert_eq!((used(&api).await, api.blobs().len()), (0, 0));
}

#[actix_web::test]
async fn the_type_is_the_headers_or_else_the_names() {
    let api = Api::start(vec![]).await;
    let kind = async |name: &str, header: Option<&str>| {
        let request = api.app("POST", &format!("{ARTIFACTS}?name={name}"));
        let request = match header {
            Some(header) => request.header("content-type", header),
            None => request,
        };
        let body = request.bytes(b"x").send().await.created("POST", ARTIFACTS);
        body["version"]["contentType"].as_str().unwrap().to_owned()
    };
    assert_eq!(kind("a.png", None).await, "image/png");
    assert_eq!(kind("a.json", Some("application/octet-stream")).await, "application/json");
    assert_eq!(kind("a.png", Some("text/csv; charset=utf-8")).await, "text/csv; charset=utf-8");
    assert_eq!(kind("a.png", Some("application/json")).await, "application/json");
    assert_eq!(kind("noext", None).await, "application/octet-stream");
}

#[actix_web::test]
async fn each_form_of_a_range_is_answered_as_the_table_says() {
    let api = Api::start(vec![]).await;
    let id = uploaded(&api, "name=a.txt", b"0123456789").await;
    for (range, text, shown) in [
        ("bytes=2-5", "2345", "bytes 2-5/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=0-99", "0123456789", "bytes 0-9/10"),
        ("bytes=-99", "0123456789", "bytes 0-9/10"),
    ] {
        let read = content(&api, &id, "1", Some(range)).await;
        assert_eq!((read.status, read.text.as_str()), (206, text), "{range}");
        assert_eq!(read.header("content-range"), shown);
        assert_eq!(read.header("content-length"), text.len().to_string());
        assert!(!read.header("etag").is_empty());
    }
    for range in ["bytes=0-1,4-5", "items=0-1", "bytes=5-2", "nonsense"] {
        let read = content(&api, &id, "1", Some(range)).await;
        assert_eq!((read.status, read.text.as_str()), (200, "0123456789"), "{range}");
        assert_eq!(read.header("content-range"), "");
    }
    for range in ["bytes=10-", "bytes=10-12", "bytes=-0"] {
        let read = content(&api, &id, "1", Some(range)).await;
        assert_eq!(read.refusal(), (416, "request_rejected".to_owned()), "{range}");
        assert_eq!(read.header("content-range"), "bytes */10");
    }
    let empty = uploaded(&api, "name=empty", b"").await;
    assert_eq!(content(&api, &empty, "1", None).await.status, 200);
    for range in ["bytes=-1", "bytes=0-"] {
        let read = content(&api, &empty, "1", Some(range)).await;
        assert_eq!((read.status, read.header("content-range")), (416, "bytes */0"), "{range}");
    }
    // Conditions are not honoured.
    let path = format!("{ARTIFACTS}/{id}/versions/1/content");
    let etag = content(&api, &id, "1", None).await.header("etag").to_owned();
    assert_eq!(api.app("GET", &path).header("if-none-match", &etag).send().await.status, 200);
    let if_range =
        api.app("GET", &path).header("if-range", "\"x\"").header("range", "bytes=0-0").send().await;
    assert_eq!(if_range.status, 206);
}

#[actix_web::test]
async fn artifacts_are_listed_oldest_first_by_session_and_in_pages() {
    let api = Api::start(vec![]).await;
    for session in ["s", "t"] {
        api.session(session, "ada").await;
    }
    let mut ids = Vec::new();
    for query in ["name=1&sessionId=s", "name=2", "name=3&sessionId=t", "name=4&sessionId=s"] {
        ids.push(uploaded(&api, query, b"x").await);
    }
    assert_eq!(listed(&api, "").await, ids);
    assert_eq!(listed(&api, "?sessionId=s").await, [ids[0].clone(), ids[3].clone()]);
    let page = api.app("GET", "/v1/artifacts?limit=3").send().await.ok("GET", ARTIFACTS);
    assert_eq!(page["artifacts"].as_array().unwrap().len(), 3);
    let cursor = page["nextCursor"].as_str().unwrap();
    assert_eq!(listed(&api, &format!("?limit=3&cursor={cursor}")).await, [ids[3].clone()]);
    let gone = api.app("GET", "/v1/artifacts?sessionId=nobody").send().await;
    assert_eq!(gone.refusal(), (404, "request_rejected".to_owned()));
}

#[actix_web::test]
async fn a_person_reaches_the_artifacts_of_their_own_sessions_and_no_others() {
    let api = Api::start(vec![]).await;
    api.session("hers", "ada").await;
    api.session("his", "bob").await;
    let hers = uploaded(&api, "name=1&sessionId=hers", b"x").await;
    let his = uploaded(&api, "name=2&sessionId=his", b"x").await;
    let tenants = uploaded(&api, "name=3", b"x").await;
    let ada = |method: &str, path: &str| api.app(method, path).subject("ada", "sessions:own");
    let list = ada("GET", ARTIFACTS).send().await.ok("GET", ARTIFACTS);
    assert_eq!(list["artifacts"].as_array().unwrap().len(), 1);
    assert_eq!(ada("GET", &format!("{ARTIFACTS}/{hers}")).send().await.status, 200);
    assert_eq!(ada("GET", "/v1/artifacts?sessionId=his").send().await.status, 404);
    let missing = ada("GET", &format!("{ARTIFACTS}/af_none")).send().await.text;
    for other in [&his, &tenants] {
        let path = format!("{ARTIFACTS}/{other}");
        for (method, path) in [
            ("GET", path.clone()),
            ("DELETE", path.clone()),
            ("GET", format!("{path}/versions/1/content")),
            ("GET", format!("{path}/versions/1/tree")),
            ("GET", format!("{path}/versions/1/files/a")),
            ("GET", format!("{path}/versions/1/diff")),
            ("GET", format!("{path}/versions/1/zip")),
        ] {
            let answer = ada(method, &path).send().await;
            assert_eq!((answer.status, answer.text.as_str()), (404, missing.as_str()), "{method} {path}");
        }
        let answer = ada("POST", &format!("{path}/versions")).bytes(b"x").send().await;
        assert_eq!((answer.status, answer.text.as_str()), (404, missing.as_str()));
        let answer = ada("POST", &format!("{path}/links")).json(&json!({})).send().await;
        assert_eq!((answer.status, answer.text.as_str()), (404, missing.as_str()));
    }
    let path = |query: &str| format!("{ARTIFACTS}?name=n{query}");
    assert_eq!(
        ada("POST", &path("")).bytes(b"x").send().await.refusal(),
        (400, "request_rejected".to_owned())
    );
    assert_eq!(ada("POST", &path("&sessionId=his")).bytes(b"x").send().await.status, 404);
    assert_eq!(ada("POST", &path("&sessionId=hers")).bytes(b"x").send().await.status, 201);
    let scopeless = api.app("GET", ARTIFACTS).subject("ada", "agents:read").send().await;
    assert_eq!(scopeless.refusal(), (403, "scope_required".to_owned()));
    assert_eq!(ada("DELETE", &format!("{ARTIFACTS}/{hers}")).send().await.status, 200);
}

fn too_large(answer: &Answer, limit: i64) {
    assert_eq!(answer.refusal(), (413, "limit_exceeded".to_owned()), "{}", answer.text);
    assert_eq!(answer.json()["details"], json!({"limitBytes": limit}));
}

#[actix_web::test]
async fn a_declared_length_past_a_limit_is_refused_before_a_byte_is_stored() {
    let api = Api::start(vec![]).await;
    limit(&api, Some(10), Some(15)).await;
    // The body never comes: the answer does not wait for it.
    let head = |length: usize| {
        format!(
            "POST /v1/artifacts?name=a HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {KEY}\r\nnylorun-protocol: 7\r\ncontent-length: {length}\r\n\r\n",
            api.public
        )
    };
    let answer = raw(api.public, head(11)).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains(r#""details":{"limitBytes":10}"#), "{answer}");
    too_large(&upload(&api, "name=a", &[1; 11]).await, 10);
    uploaded(&api, "name=a", &[1; 10]).await;
    too_large(&upload(&api, "name=b", &[1; 6]).await, 15);
    let answer = raw(api.public, head(6)).await;
    assert!(answer.contains(r#""details":{"limitBytes":15}"#), "{answer}");
    assert_eq!((used(&api).await, api.blobs().len()), (10, 1));
    uploaded(&api, "name=b", &[1; 5]).await;
    assert_eq!(used(&api).await, 15);
    too_large(&upload(&api, "name=c", &[1; 1]).await, 15);
}

/// Sends a chunked body until the server has answered; what it answered, and how many bytes it had taken by then.
fn stream_until_refused(api: &Api, most: usize) -> (String, usize) {
    let mut socket = TcpStream::connect(api.public).unwrap();
    let head = format!(
        "POST /v1/artifacts?name=a HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {KEY}\r\nnylorun-protocol: 7\r\ntransfer-encoding: chunked\r\n\r\n",
        api.public
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let (mut sent, mut answer) = (0, Vec::new());
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(4096));
    while sent < most {
        let mut piece = [0; 4096];
        match socket.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => {
                answer.extend_from_slice(&piece[..n]);
                break;
            }
            Err(_) => {}
        }
        if socket.write_all(chunk.as_bytes()).is_err() {
            break;
        }
        sent += 4096;
    }
    let _ = socket.shutdown(Shutdown::Write);
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let _ = socket.read_to_end(&mut answer);
    (String::from_utf8_lossy(&answer).into_owned(), sent)
}

#[actix_web::test]
async fn a_streamed_body_is_cut_at_the_limit_and_nothing_is_stored() {
    let api = std::sync::Arc::new(Api::start(vec![]).await);
    limit(&api, Some(20_000), None).await;
    let streaming = api.clone();
    let (answer, sent) =
        tokio::task::spawn_blocking(move || stream_until_refused(&streaming, 4_000_000)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains(r#""details":{"limitBytes":20000}"#), "{answer}");
    assert!(sent < 200_000, "{sent} bytes were taken");
    limit(&api, None, Some(10_000)).await;
    let streaming = api.clone();
    let (answer, _) =
        tokio::task::spawn_blocking(move || stream_until_refused(&streaming, 4_000_000)).await.unwrap();
    assert!(answer.contains(r#""details":{"limitBytes":10000}"#), "{answer}");
    assert!(listed(&api, "").await.is_empty());
    api.until_blobs(0).await;
}

#[actix_web::test]
async fn a_client_that_leaves_in_the_middle_leaves_nothing() {
    let api = Api::start(vec![]).await;
    let mut socket = TcpStream::connect(api.public).unwrap();
    let head = format!(
        "POST /v1/artifacts?name=a HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {KEY}\r\nnylorun-protocol: 7\r\ncontent-length: 100000\r\n\r\n",
        api.public
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(&[1; 50_000]).unwrap();
    api.until_blobs(1).await;
    drop(socket);
    api.until_blobs(0).await;
    assert!(listed(&api, "").await.is_empty());
    assert_eq!(used(&api).await, 0);
}

#[actix_web::test]
async fn of_two_uploads_at_once_past_the_total_exactly_one_is_kept() {
    let api = Api::start(vec![]).await;
    limit(&api, None, Some(150_000)).await;
    for _ in 0..5 {
        let body = vec![7u8; 100_000];
        let (one, other) = tokio::join!(upload(&api, "name=a", &body), upload(&api, "name=b", &body));
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 413], "{} {}", one.text, other.text);
        assert_eq!(used(&api).await, 100_000);
        api.until_blobs(1).await;
        for id in listed(&api, "").await {
            assert_eq!(api.app("DELETE", &format!("{ARTIFACTS}/{id}")).send().await.status, 200);
        }
        api.until_blobs(0).await;
    }
}

#[actix_web::test]
async fn a_delete_takes_versions_and_bytes_and_is_told_in_the_record() {
    let api = Api::start(vec![]).await;
    api.session("s", "ada").await;
    let id = uploaded(&api, "name=a.txt&sessionId=s", b"one").await;
    api.app("POST", &format!("{ARTIFACTS}/{id}/versions")).bytes(b"two").send().await;
    assert_eq!((used(&api).await, api.blobs().len()), (6, 2));
    let path = format!("{ARTIFACTS}/{id}");
    let deleted = api.app("DELETE", &path).send().await.ok("DELETE", ONE);
    assert_eq!(deleted, json!({"artifactId": id, "deleted": true}));
    assert_eq!((used(&api).await, api.blobs().len()), (0, 0));
    for path in [path.clone(), format!("{path}/versions/1/content")] {
        assert_eq!(api.app("GET", &path).send().await.refusal(), (404, "request_rejected".to_owned()));
    }
    assert_eq!(api.app("DELETE", &path).send().await.status, 404);
    let told = events(&api, "s").await.pop().unwrap();
    assert_eq!(told, ("artifact.deleted".to_owned(), json!({"artifactId": id, "name": "a.txt"})));
}

#[actix_web::test]
async fn the_limits_are_read_and_replaced() {
    let api = Api::start(vec![]).await;
    let defaults = json!({"fileBytes": 104_857_600, "totalBytes": 10_737_418_240i64});
    let read = api.app("GET", LIMITS).send().await.ok("GET", LIMITS);
    assert_eq!(read, json!({"limits": defaults, "usedBytes": 0}));
    let put = async |body: Json| api.app("PUT", LIMITS).json(&body).send().await;
    let one = put(json!({"requestId": "r", "limits": {"fileBytes": 7}})).await.ok("PUT", LIMITS);
    assert_eq!(one["limits"], json!({"fileBytes": 7, "totalBytes": 10_737_418_240i64}));
    let other = put(json!({"limits": {"totalBytes": 9}})).await.ok("PUT", LIMITS);
    assert_eq!(other["limits"], json!({"fileBytes": 104_857_600, "totalBytes": 9}));
    assert_eq!(put(json!({})).await.ok("PUT", LIMITS)["limits"], defaults);
    for bad in [
        json!({"limits": {"fileBytes": 0}}),
        json!({"limits": {"fileBytes": -1}}),
        json!({"limits": {"totalBytes": 1.5}}),
        json!({"limits": {"totalBytes": "1"}}),
        json!({"limits": {"other": 1}}),
        json!({"other": 1}),
        json!({"limits": 1}),
    ] {
        assert_eq!(put(bad.clone()).await.refusal(), (400, "request_rejected".to_owned()), "{bad}");
    }
    assert_eq!(api.app("GET", LIMITS).send().await.ok("GET", LIMITS)["limits"], defaults);
}
