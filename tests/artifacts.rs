//! Artifacts in the real program: what survives a stop and a crash, what a large upload costs, and the commands.

// Helpers of a test may stop at the first surprise too.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Server, stderr, stdout};
use nylorun_actors::model::json::{self, Json};

/// Files below `blobs/`, half written ones too.
fn blobs(server: &Server) -> usize {
    let count = |folder: std::fs::DirEntry| std::fs::read_dir(folder.path()).map_or(0, Iterator::count);
    std::fs::read_dir(server.home().join("blobs")).unwrap().map(|folder| count(folder.unwrap())).sum()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The head of an upload on a connection of its own.
fn upload_head(server: &Server, query: &str, length: usize) -> TcpStream {
    let address = server.url.strip_prefix("http://").unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /v1/artifacts?{query} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\nnylorun-protocol: 7\r\ncontent-length: {length}\r\n\r\n",
        server.key
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket
}

fn answer(socket: &mut TcpStream) -> String {
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    while !text.windows(4).any(|four| four == b"\r\n\r\n") || !text.ends_with(b"}") {
        match socket.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(n) => text.extend_from_slice(&piece[..n]),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn put(server: &Server, path: &Path, more: &[&str]) -> String {
    let path = path.display().to_string();
    let mut args = vec!["artifacts", "put", &path];
    args.extend(more);
    let answer = server.json(&args);
    answer["artifact"]["artifactId"].as_str().unwrap().to_owned()
}

#[test]
fn artifacts_survive_a_stop_and_a_crash() {
    let mut server = Server::start();
    let file = server.home().join("a.txt");
    std::fs::write(&file, "kept").unwrap();
    let id = put(&server, &file, &["--label", "k=v"]);
    server.kill9();
    server.restart();
    let got = server.run(&["artifacts", "get", &id]);
    assert_eq!(stdout(&got), "kept", "{}", stderr(&got));
    std::fs::write(&file, "second").unwrap();
    let second = server.json(&["artifacts", "put", &file.display().to_string(), "--artifact", &id]);
    assert_eq!(second["version"]["version"], 2);
    server.terminate();
    server.restart();
    let shown = server.json(&["artifacts", "show", &id]);
    assert_eq!((&shown["latestVersion"], &shown["labels"]["k"]), (&Json::from(2), &Json::from("v")));
    let got = server.run(&["artifacts", "get", &id, "--version", "1"]);
    assert_eq!(stdout(&got), "kept");
    assert_eq!(blobs(&server), 2);
}

#[test]
fn kill_9_in_the_middle_of_an_upload_leaves_no_row_and_no_bytes() {
    let mut server = Server::start();
    let mut socket = upload_head(&server, "name=half", 1_000_000);
    socket.write_all(&vec![1; 500_000]).unwrap();
    until("the upload has begun", || blobs(&server) == 1);
    server.kill9();
    assert_eq!(blobs(&server), 1);
    server.restart();
    assert_eq!(blobs(&server), 0);
    let list = server.json(&["artifacts", "list"]);
    assert_eq!(list["artifacts"], Json::Array(Vec::new()));
}

/// Peak of the resident memory of a process, KiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_hundred_mebibytes_go_up_and_down_in_little_memory() {
    let server = Server::start();
    let small = server.home().join("small");
    std::fs::write(&small, "x").unwrap();
    put(&server, &small, &[]);
    let before = peak(server.pid());
    let size = 100 * 1024 * 1024;
    let mut socket = upload_head(&server, "name=large", size);
    let piece = vec![7u8; 1024 * 1024];
    let begun = Instant::now();
    for _ in 0..100 {
        socket.write_all(&piece).unwrap();
    }
    let text = answer(&mut socket);
    let up = begun.elapsed();
    assert!(text.starts_with("HTTP/1.1 201 "), "{text}");
    let body = json::parse(text.split("\r\n\r\n").nth(1).unwrap().as_bytes()).unwrap();
    let id = body["artifact"]["artifactId"].as_str().unwrap();
    let begun = Instant::now();
    let copy = server.home().join("copy");
    let got = server.run(&["artifacts", "get", id, "--output", &copy.display().to_string()]);
    assert!(got.status.success(), "{}", stderr(&got));
    let down = begun.elapsed();
    assert_eq!(std::fs::metadata(&copy).unwrap().len(), size as u64);
    let grown = peak(server.pid()).saturating_sub(before);
    println!("100 MiB up in {up:?}, down in {down:?}; peak memory {before} KiB and {grown} KiB more");
    assert!(grown < 24 * 1024, "the peak grew by {grown} KiB");
}

#[test]
fn the_commands_do_what_the_routes_do() {
    let server = Server::start();
    let file = server.home().join("näme.csv");
    std::fs::write(&file, "1,2\n").unwrap();
    let id = put(&server, &file, &[]);
    let list = server.run(&["artifacts", "list"]);
    assert!(stdout(&list).contains("näme.csv"), "{}", stdout(&list));
    let show = server.run(&["artifacts", "show", &id]);
    assert!(stdout(&show).contains("text/csv"), "{}", stdout(&show));
    let link = server.json(&["artifacts", "link", &id, "--expires", "60"]);
    let url = link["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("{}/v1/artifact-links/", server.url)), "{url}");
    let copy = server.home().join("copy.csv");
    let copied = server.json(&["artifacts", "get", &id, "--output", &copy.display().to_string()]);
    assert_eq!(
        (&copied["bytes"], std::fs::read_to_string(&copy).unwrap().as_str()),
        (&Json::from(4), "1,2\n")
    );
    for (args, exit, code) in [
        (vec!["artifacts", "get", &id, "--json"], 2, "output"),
        (vec!["artifacts", "tree", &id], 1, "request_rejected"),
        (vec!["artifacts", "show", "af_none"], 1, "request_rejected"),
        (vec!["artifacts", "get", &id, "--version", "x"], 1, "request_rejected"),
        (vec!["artifacts", "put", "/nowhere/at/all"], 1, "file"),
        (vec!["artifacts", "put", "/"], 2, "file"),
        (vec!["artifacts", "put", "-"], 2, "file"),
        (vec!["artifacts", "link", &id, "--expires", "901"], 2, ""),
    ] {
        let output = server.run(&args);
        assert_eq!(output.status.code(), Some(exit), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(code), "{args:?}: {}", stderr(&output));
    }
    let limits = |args: &[&str]| stdout(&server.run(&[&["artifacts", "limits"], args].concat()));
    assert_eq!(
        limits(&[]),
        "one artifact: 104857600 bytes\nall together: 10737418240 bytes\nused: 4 bytes\n"
    );
    assert!(
        limits(&["--file", "1KiB"])
            .starts_with("one artifact: 1024 bytes\nall together: 10737418240 bytes\n")
    );
    // What is left out is the default again.
    assert!(limits(&["--total", "5"]).starts_with("one artifact: 104857600 bytes\nall together: 5 bytes\n"));
    let full = server.run(&["artifacts", "put", &file.display().to_string()]);
    assert_eq!(full.status.code(), Some(1));
    assert!(stderr(&full).contains("limit_exceeded"), "{}", stderr(&full));
    assert_eq!(limits(&["--reset"]), limits(&[]));
    let rm = server.run(&["artifacts", "rm", &id]);
    assert_eq!(stdout(&rm), format!("deleted {id}\n"));
    assert_eq!(blobs(&server), 0);
}
