//! Stopping in the middle of work: streams end, nothing is lost, the next start goes on.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Options, Server, stderr, stdout};
use nix::sys::signal::Signal;
use nylorun_actors::model::json::{self, Json};
use serde_json::json;

fn manifest(id: &str, delay_ms: u64) -> Json {
    json!({
        "manifestSchemaVersion": 4,
        "id": id,
        "metadata": { "nylorun.fixture": { "steps": [{ "text": "done", "delayMs": delay_ms }] } },
        "capabilities": [{ "id": "main", "type": "agent", "instructions": ["Test."] }],
    })
}

fn put(server: &Server, manifest: &Json) {
    let path = server.home().join("manifest.json");
    std::fs::write(&path, json::encode(manifest)).expect("written");
    server.json(&["agents", "put", &path.display().to_string()]);
}

fn fixed_port() -> Options {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = socket.local_addr().expect("an address").to_string();
    Options { args: vec!["--sample".into(), "--listen".into(), listen], env: Vec::new() }
}

#[test]
fn a_graceful_stop_in_the_middle_of_a_turn_loses_nothing() {
    let mut server = Server::start_with(fixed_port());
    put(&server, &manifest("slow", 3_000));
    let mut watcher = server
        .command(&["run", "slow", "go", "--json", "--session", "s1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(watcher.stdout.take().expect("piped"));
    let mut accepted = String::new();
    lines.read_line(&mut accepted).expect("a line");
    assert!(accepted.contains("nylorun.accepted"), "{accepted}");

    assert!(server.terminate().success());
    server.restart();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("the rest");
    let output = watcher.wait_with_output().expect("ended");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(rest.contains("\"turn.completed\""), "{rest}");

    let events = stdout(&server.run(&["sessions", "events", "s1", "--json"]));
    let kinds: Vec<String> = events
        .lines()
        .map(|line| json::parse(line.as_bytes()).expect(line)["type"].as_str().expect("a type").to_owned())
        .collect();
    let count = |kind: &str| kinds.iter().filter(|k| *k == kind).count();
    assert_eq!(
        (count("command.message"), count("message.assistant"), count("turn.completed")),
        (1, 1, 1),
        "{kinds:?}"
    );
    assert_eq!((count("turn.failed"), count("effect.uncertain")), (0, 0), "{kinds:?}");
}

#[test]
fn open_streams_and_idle_connections_do_not_hold_up_a_stop() {
    let mut server = Server::start_sample();
    assert!(server.run(&["run", "assistant", "hello", "--session", "s1"]).status.success());
    let host = server.url.trim_start_matches("http://").to_owned();
    let request = |path: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\nnylorun-protocol: 7\r\nauthorization: Bearer {}\r\n\r\n",
            server.key
        )
    };
    let mut stream = TcpStream::connect(&host).expect("connected");
    stream.write_all(request("/v1/sessions/s1/events").as_bytes()).expect("sent");
    let mut idle = TcpStream::connect(&host).expect("connected");
    idle.write_all(request("/health").as_bytes()).expect("sent");
    for socket in [&mut stream, &mut idle] {
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        let mut head = [0; 12];
        socket.read_exact(&mut head).expect("an answer");
        assert_eq!(&head, b"HTTP/1.1 200");
    }

    // The replay has arrived: what follows is the live part.
    let mut replay = Vec::new();
    while !String::from_utf8_lossy(&replay).contains("event: turn.completed") {
        let mut piece = [0; 1024];
        let read = stream.read(&mut piece).expect("the replay");
        assert!(read > 0, "{}", String::from_utf8_lossy(&replay));
        replay.extend_from_slice(&piece[..read]);
    }

    let began = Instant::now();
    assert!(server.terminate().success());
    // Closing what is left by force would take 10 s.
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    stream.read_to_end(&mut replay).expect("the stream ends");
}

#[test]
fn logs_are_one_json_object_a_line_and_hold_no_secret() {
    let mut server = Server::start_with(
        Options::default().arg("--sample").arg("--log").arg("json").env("NYLORUN_LOG", "debug"),
    );
    let output = server.run(&["run", "assistant", "a-message-nobody-may-log"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let (key, admin_key) = (server.key.clone(), server.admin_key.clone());
    server.run(&["keys", "list"]);
    server.terminate();
    // The thread that reads the log ends with the process.
    std::thread::sleep(Duration::from_millis(200));
    let log = server.log();
    assert!(log.len() > 5, "{log:?}");
    for line in &log {
        let value = json::parse(line.as_bytes()).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(value["level"].is_string(), "{line}");
        for secret in [key.as_str(), admin_key.as_str(), "a-message-nobody-may-log", "Hello from the fixture"]
        {
            assert!(!line.contains(secret), "{line}");
        }
    }
}

#[test]
fn a_second_signal_ends_a_stop_that_waits_for_a_request() {
    let mut server = Server::start_sample();
    let host = server.url.trim_start_matches("http://").to_owned();
    let mut slow = TcpStream::connect(&host).expect("connected");
    let head = format!(
        "PUT /v1/agents/slow HTTP/1.1\r\nhost: {host}\r\nnylorun-protocol: 7\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        server.key
    );
    slow.write_all(head.as_bytes()).expect("sent");
    std::thread::sleep(Duration::from_millis(300));
    server.signal(Signal::SIGTERM);
    std::thread::sleep(Duration::from_millis(500));
    assert!(server.is_running(), "the first signal waits for the request");
    let asked = Instant::now();
    server.signal(Signal::SIGTERM);
    let status = server.wait();
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    assert_eq!(status.code(), Some(143));
    // What it cut short is whole all the same.
    server.restart();
    assert!(server.run(&["run", "assistant", "hello", "--session", "s1"]).status.success());
}
