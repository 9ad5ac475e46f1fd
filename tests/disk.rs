//! A disk that fills up under the real binary: commands are refused with 503 and nothing is lost; once there is room
//! the Runtime goes on by itself.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Options, Server};
use nylorun_actors::model::json::Json;
use serde_json::json;

/// A small file system of its own, gone with the test.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// `None` where this test may not mount (it is then skipped, and says so).
    fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        let option = format!("size={size}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &option, "tmpfs"]).arg(dir.path()).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self { dir })
    }

    fn path(&self) -> PathBuf {
        self.dir.path().to_owned()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the server may still be closing its files.
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

fn call(server: &Server, method: &str, path: &str, body: &Json) -> (u16, Json) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let answer = reqwest::Client::new()
            .request(method.parse().expect("a method"), format!("{}{path}", server.url))
            .header("nylorun-protocol", "7")
            .header("content-type", "application/json")
            .bearer_auth(&server.key)
            .timeout(Duration::from_secs(30))
            .body(if body.is_null() { String::new() } else { body.to_string() })
            .send()
            .await
            .expect("an answer");
        let status = answer.status().as_u16();
        (
            status,
            nylorun_actors::model::json::parse(&answer.bytes().await.expect("a body")).unwrap_or_default(),
        )
    })
}

fn say(server: &Server, session: &str, key: &str, text: &str) -> (u16, Json) {
    let body = json!({ "type": "message", "requestId": "r", "idempotencyKey": key, "content": text });
    call(server, "POST", &format!("/v1/sessions/{session}/commands"), &body)
}

fn open(server: &Server, session: &str) {
    let body = json!({ "requestId": "r", "agentId": "assistant", "ownerUserId": "u" });
    assert_eq!(call(server, "PUT", &format!("/v1/sessions/{session}"), &body).0, 200);
}

fn completes(server: &Server, session: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let view = call(server, "GET", &format!("/v1/sessions/{session}"), &Json::Null).1;
        if view["status"] == "completed" {
            return;
        }
        assert!(Instant::now() < until, "{view}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn fill(home: &Path) -> PathBuf {
    let filler = home.join("filler");
    let block = vec![0u8; 4096];
    let mut file = std::fs::File::create(&filler).expect("a file");
    // Until there is no room for even one block more.
    while std::io::Write::write_all(&mut file, &block).is_ok() {}
    filler
}

#[test]
fn a_full_disk_refuses_commands_with_503_and_goes_on_once_there_is_room() {
    let Some(disk) = SmallDisk::mount("24m") else {
        println!("skipped: this user may not mount a file system");
        return;
    };
    let home = disk.path().join("home");
    std::fs::create_dir(&home).expect("a home");
    let mut server = Server::start_in(&home, Options::default().arg("--sample"));
    open(&server, "s");
    assert_eq!(say(&server, "s", "before", "hello").0, 200);
    completes(&server, "s");
    for n in 0..40 {
        open(&server, &format!("t{n}"));
    }
    let filler = fill(&home);
    let mut refused = None;
    let mut accepted = Vec::new();
    for n in 0..40 {
        let (status, body) = say(&server, &format!("t{n}"), "k", &"x".repeat(900_000));
        match status {
            200 => accepted.push(format!("t{n}")),
            503 => {
                refused = Some(body);
                break;
            }
            other => panic!("{other}: {body}"),
        }
    }
    let refused = refused.expect("the disk never filled up");
    assert_eq!(refused["code"], "request_rejected");
    std::fs::remove_file(filler).expect("removed");
    let until = Instant::now() + Duration::from_secs(60);
    while say(&server, "s", "after", "hello again").0 != 200 {
        assert!(Instant::now() < until, "it did not recover: {}", server.log().join("\n"));
        std::thread::sleep(Duration::from_millis(100));
    }
    completes(&server, "s");
    for session in &accepted {
        completes(&server, session);
    }
    assert!(server.terminate().success());
    server.restart();
    let items = call(&server, "GET", "/v1/sessions/s/items", &Json::Null).1;
    let kinds: Vec<&str> =
        items["items"].as_array().expect("items").iter().filter_map(|e| e["type"].as_str()).collect();
    assert_eq!(kinds.iter().filter(|k| **k == "turn.completed").count(), 2);
}
