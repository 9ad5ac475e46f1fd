//! Commands against a real server: what they answer, and what they say when something is wrong.

mod common;

use std::io::Read;
use std::process::Stdio;

use common::{Options, Server, nylorun, stderr, stdout};
use nylorun_actors::model::json::{self, Json};
use serde_json::json;

#[test]
fn a_turn_streams_to_its_output_and_the_session_goes_on() {
    let server = Server::start_sample();
    let first = server.run(&["run", "assistant", "hello", "--session", "s1"]);
    assert!(first.status.success(), "{}", stderr(&first));
    assert_eq!(stdout(&first), "Hello from the fixture model.\n");
    let second = server.run(&["run", "assistant", "and now?", "--session", "s1"]);
    assert!(second.status.success(), "{}", stderr(&second));
    assert_eq!(stdout(&second), "I remember: hello\n");
}

#[test]
fn a_turn_in_json_is_one_event_a_line_and_a_result_at_the_end() {
    let server = Server::start_sample();
    let output = server.run(&["run", "assistant", "hello", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let lines: Vec<Json> = text.lines().map(|line| json::parse(line.as_bytes()).expect(line)).collect();
    assert_eq!(lines[0]["type"], "nylorun.accepted");
    assert!(lines.iter().any(|line| line["type"] == "message.assistant"), "{text}");
    let last = lines.last().expect("lines");
    assert_eq!((&last["type"], &last["status"]), (&json!("nylorun.result"), &json!("completed")));
    assert_eq!(last["result"]["output"], "Hello from the fixture model.");
}

#[test]
fn a_failed_turn_names_its_code_and_exits_with_1() {
    let server = Server::start_sample();
    put(
        &server,
        "failing",
        json!({ "steps": [{ "failure": { "code": "invalid_request", "message": "no" } }] }),
    );
    let output = server.run(&["run", "failing", "hello"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("error[model.invalid_request]"), "{}", stderr(&output));
}

fn put(server: &Server, id: &str, script: Json) {
    let manifest = json!({
        "manifestSchemaVersion": 4,
        "id": id,
        "metadata": { "nylorun.fixture": script },
        "capabilities": [{ "id": "main", "type": "agent", "instructions": ["Test."] }],
    });
    let path = server.home().join(format!("{id}.json"));
    std::fs::write(&path, json::encode(&manifest)).expect("written");
    let answer = server.json(&["agents", "put", &path.display().to_string()]);
    assert_eq!(answer["agentId"], id);
}

#[test]
fn a_turn_goes_on_through_kill_9_and_its_watcher_sees_the_end() {
    let mut server = Server::start_with(Options {
        // A fixed port, so that the watcher finds the Runtime again.
        args: vec!["--sample".into(), "--listen".into(), free_port()],
        env: Vec::new(),
    });
    put(&server, "slow", json!({ "steps": [{ "text": "done", "delayMs": 3000 }] }));
    let mut watcher = server
        .command(&["run", "slow", "go", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    // The first line says that the turn was accepted.
    let mut first = [0; 1];
    watcher.stdout.as_mut().expect("piped").read_exact(&mut first).expect("a line begins");
    server.kill9();
    server.restart();
    let output = watcher.wait_with_output().expect("ended");
    assert!(output.status.success(), "{}", stderr(&output));
    let last = stdout(&output).lines().last().map(str::to_owned).expect("lines");
    let last = json::parse(last.as_bytes()).expect("JSON");
    assert_eq!((&last["status"], &last["result"]["output"]), (&json!("completed"), &json!("done")));
}

fn free_port() -> String {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("an address").to_string()
}

#[test]
fn agents_and_sessions_are_listed_and_shown() {
    let server = Server::start_sample();
    assert!(server.run(&["run", "assistant", "hello", "--session", "s1"]).status.success());
    let agents = server.json(&["agents", "list"]);
    assert!(agents["agents"].as_array().expect("a list").iter().any(|agent| agent["agentId"] == "assistant"));
    assert!(stdout(&server.run(&["agents", "list"])).contains("assistant"));

    let sessions = server.json(&["sessions", "list", "--agent", "assistant"]);
    assert_eq!(sessions["sessions"][0]["id"], "s1");
    assert_eq!(server.json(&["sessions", "list", "--agent", "other"])["sessions"], json!([]));
    let view = server.json(&["sessions", "show", "s1"]);
    assert_eq!((&view["status"], &view["ownerUserId"]), (&json!("completed"), &json!("local")));
    let events = server.run(&["sessions", "events", "s1"]);
    let text = stdout(&events);
    assert!(text.contains("command.message") && text.contains("turn.completed"), "{text}");
    let missing = server.run(&["sessions", "show", "s2"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("error["), "{}", stderr(&missing));
}

#[test]
fn a_running_turn_is_cancelled() {
    let server = Server::start_sample();
    put(&server, "slow", json!({ "steps": [{ "text": "done", "delayMs": 60000 }] }));
    let mut watcher = server
        .command(&["run", "slow", "go", "--json", "--session", "s1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let mut first = [0; 1];
    watcher.stdout.as_mut().expect("piped").read_exact(&mut first).expect("a line begins");
    assert!(server.run(&["cancel", "s1", "--reason", "enough"]).status.success());
    let output = watcher.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("\"cancelled\""), "{}", stdout(&output));
}

#[test]
fn a_manifest_with_mistakes_is_refused_with_all_of_them() {
    let server = Server::start();
    let path = server.home().join("bad.json");
    std::fs::write(&path, r#"{"id":"bad","manifestSchemaVersion":4,"capabilities":7,"extra":1}"#)
        .expect("written");
    let output = server.run(&["agents", "put", &path.display().to_string()]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("capabilities") && said.contains("extra"), "{said}");
}

#[test]
fn a_wrong_key_says_where_it_came_from() {
    let server = Server::start();
    let wrong = "0".repeat(64);
    let output = server.run(&["status", "--url", &server.url, "--key", &wrong]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("error[not_found]") && said.contains("--key") && said.contains("keys put"),
        "{said}"
    );

    let json = server.run(&["status", "--json", "--url", &server.url, "--key", &wrong]);
    let fault = json::parse(&json.stderr).expect("one line of JSON");
    assert_eq!((&fault["code"], &fault["exitCode"]), (&json!("not_found"), &json!(1)));
}

#[test]
fn a_runtime_that_does_not_run_is_told_apart_from_one_that_is_nowhere() {
    let mut server = Server::start();
    server.terminate();
    let stopped = server.run(&["status"]);
    assert_eq!(stopped.status.code(), Some(3));
    assert!(stderr(&stopped).contains("nylorun serve"), "{}", stderr(&stopped));

    let empty = tempfile::tempdir().expect("a directory");
    let never = nylorun(empty.path()).args(["run", "assistant", "hello"]).output().expect("ran");
    assert_eq!(never.status.code(), Some(3));
    assert!(stderr(&never).contains("connection_missing"), "{}", stderr(&never));

    let key = "0".repeat(64);
    let nowhere = nylorun(empty.path())
        .arg("status")
        .env("NYLORUN_RUNTIME_URL", &server.url)
        .env("NYLORUN_SERVER_KEY", key)
        .output()
        .expect("ran");
    assert_eq!(nowhere.status.code(), Some(6));
}

#[test]
fn half_a_connection_is_a_usage_error() {
    let empty = tempfile::tempdir().expect("a directory");
    let half = nylorun(empty.path())
        .arg("status")
        .env("NYLORUN_RUNTIME_URL", "http://127.0.0.1:1")
        .output()
        .expect("ran");
    assert_eq!(half.status.code(), Some(2));
    assert!(stderr(&half).contains("NYLORUN_SERVER_KEY"), "{}", stderr(&half));
}

#[test]
fn another_host_on_the_port_of_a_link_is_noticed() {
    let (mut gone, other) = (Server::start(), Server::start());
    gone.terminate();
    let link = std::fs::read_to_string(gone.home().join("link.json")).expect("a link");
    std::fs::write(gone.home().join("link.json"), link.replace(&gone.url, &other.url)).expect("written");
    let output = gone.run(&["agents", "list"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
}

#[test]
fn a_project_link_above_the_working_directory_is_found() {
    let server = Server::start();
    let project = tempfile::tempdir().expect("a directory");
    let (link, below) = (project.path().join(".nylorun"), project.path().join("a/b"));
    std::fs::create_dir_all(&below).expect("made");
    std::fs::create_dir(&link).expect("made");
    for name in ["link.json", "credentials.json"] {
        std::fs::copy(server.home().join(name), link.join(name)).expect("copied");
    }
    let elsewhere = tempfile::tempdir().expect("a directory");
    let output = nylorun(elsewhere.path()).arg("status").current_dir(&below).output().expect("ran");
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn keys_come_and_go_and_rotating_the_local_one_keeps_commands_working() {
    let server = Server::start();
    let made = server.json(&["keys", "put", "ci"]);
    let key = made["key"].as_str().expect("a key").to_owned();
    let with = |key: &str| server.run(&["status", "--url", &server.url, "--key", key]).status.success();
    assert!(with(&key));
    assert!(server.run(&["keys", "rm", "ci"]).status.success());
    assert!(!with(&key), "a deleted key stops at once");
    assert!(server.run(&["keys", "put", "local"]).status.success());
    assert!(!with(&server.key), "the old one is gone");
    assert!(server.run(&["status"]).status.success(), "the home has the new one");
    assert_eq!(server.run(&["keys", "put", "Bad Name"]).status.code(), Some(1));
}

#[test]
fn signing_keys_are_listed_rotated_and_revoked() {
    let server = Server::start();
    let states = |answer: &Json| {
        let keys = answer["keys"].as_array().expect("keys").clone();
        keys.into_iter().map(|key| (key["id"].clone(), key["state"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(server.json(&["signing-keys", "list"])["keys"], json!([]));
    let rotated = states(&server.json(&["signing-keys", "rotate"]));
    assert_eq!(rotated.len(), 3);
    let early = server.run(&["signing-keys", "rotate"]);
    assert_eq!(early.status.code(), Some(1));
    assert!(stderr(&early).contains("error[request_rejected]"), "{}", stderr(&early));
    assert_eq!(states(&server.json(&["signing-keys", "rotate", "--force"])).len(), 4);
    let listed = states(&server.json(&["signing-keys", "list"]));
    let previous = listed.iter().find(|(_, state)| state == "previous").expect("a previous key");
    let id = previous.0.as_str().expect("an id");
    assert_eq!(server.json(&["signing-keys", "revoke", id])["state"], "revoked");
    let table = stdout(&server.run(&["signing-keys", "list"]));
    assert!(table.contains("KEY") && table.contains(id) && table.contains("standby"), "{table}");
    assert_eq!(stdout(&server.run(&["signing-keys", "revoke", id])), format!("revoked {id}\n"));
    assert_eq!(server.run(&["signing-keys", "revoke", "sk_1"]).status.code(), Some(1));
}

#[test]
fn signing_keys_outlive_a_restart_and_are_not_replaced_when_their_seal_is_lost() {
    let mut server = Server::start();
    let before = server.json(&["signing-keys", "rotate"]);
    server.terminate();
    server.restart();
    assert_eq!(server.json(&["signing-keys", "list"]), before);
    server.terminate();
    let kek = server.home().join("keys/vault-kek");
    std::fs::rename(&kek, server.home().join("kek-elsewhere")).expect("moved");
    let port = free_port();
    let mut child = nylorun(server.home())
        .args(["serve", "--listen", &port])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let mut said = String::new();
    for _ in 0..100 {
        let status = nylorun(server.home()).arg("status").output().expect("ran");
        said = stderr(&status);
        if said.contains("error[kek-missing]") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let _ = child.kill();
    let _ = child.wait();
    assert!(said.contains("error[kek-missing]"), "{said}");
    assert!(!kek.exists());
}

#[test]
fn a_deleted_local_key_stays_deleted_after_a_restart() {
    let mut server = Server::start();
    assert!(server.run(&["keys", "rm", "local"]).status.success());
    server.terminate();
    server.restart();
    assert_eq!(server.run(&["status"]).status.code(), Some(1));
    assert!(server.run(&["keys", "put", "local"]).status.success());
    assert!(server.run(&["status"]).status.success());
}

#[test]
fn a_model_is_set_shown_and_listed_without_its_key() {
    let server = Server::start();
    assert_eq!(server.json(&["model", "show"]), json!({ "configured": false }));
    let mut set = server.command(&["model", "set", "openai", "gpt-4o-mini", "--key-env", "A_KEY"]);
    let output = set.env("A_KEY", "sk-very-secret").output().expect("ran");
    assert!(output.status.success(), "{}", stderr(&output));
    let shown = server.json(&["model", "show"]);
    assert_eq!((&shown["provider"], &shown["model"]), (&json!("openai"), &json!("gpt-4o-mini")));
    let listed = server.run(&["model", "list", "--json"]);
    assert!(!stdout(&listed).contains("sk-very-secret"));
    let missing = server.run(&["model", "set", "openai", "gpt-4o-mini", "--key-env", "NO_SUCH_KEY"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("NO_SUCH_KEY"));
}

#[test]
fn status_tells_the_figures_of_the_tenant() {
    let server = Server::start_sample();
    assert!(server.run(&["run", "assistant", "hello"]).status.success());
    let status = server.json(&["status"]);
    assert_eq!(status["tenant"]["counts"]["sessions"], 1);
    assert_eq!(status["health"]["pid"], server.pid());
    assert_eq!(status["ready"]["status"], "ready");
    let text = stdout(&server.run(&["status"]));
    assert!(text.contains("sessions  1"), "{text}");
}

#[test]
fn quickstart_plants_what_is_missing_and_runs_a_turn() {
    let server = Server::start();
    let output = server.run(&["quickstart"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("Hello from the fixture model.\n"), "{}", stdout(&output));
    assert!(stderr(&output).contains("sessions events"), "{}", stderr(&output));
    assert!(server.run(&["quickstart"]).status.success(), "and again");
}

#[test]
fn documents_and_completions_need_no_server() {
    let empty = tempfile::tempdir().expect("a directory");
    let document = nylorun(empty.path()).arg("openapi").output().expect("ran");
    assert!(document.status.success(), "{}", stderr(&document));
    let document = json::parse(&document.stdout).expect("JSON");
    assert!(document["openapi"].as_str().expect("a version").starts_with("3."));
    assert!(document["paths"]["/v1/agents/{agentId}"].is_object());
    for shell in ["bash", "zsh", "fish"] {
        let script = nylorun(empty.path()).args(["completions", shell]).output().expect("ran");
        assert!(script.status.success() && stdout(&script).contains("quickstart"), "{shell}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let empty = tempfile::tempdir().expect("a directory");
    for args in [&["config"][..], &["completions", "bash"], &["--help"], &["openapi"]] {
        let mut child = nylorun(empty.path())
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("ended");
        assert!(output.status.code().is_some_and(|code| code < 100), "{args:?}: {:?}", output.status);
        assert!(!stderr(&output).contains("panicked"), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_word_that_is_no_command_is_a_usage_error() {
    let empty = tempfile::tempdir().expect("a directory");
    let output = nylorun(empty.path()).arg("nonsense").output().expect("ran");
    assert_eq!(output.status.code(), Some(2));
}
