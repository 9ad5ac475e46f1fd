//! The same in `nylorun harness --root`: its workspaces are below its own folder, what happens there is in core's record.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nylorun_actors::model::json::Json;
use serde_json::json;
use tempfile::TempDir;

use super::common::{self, Options, Server};
use super::support::{Box, bash, call, marker, payloads, processes, tools, until};

const TOKEN: &str = "f00df00df00df00df00df00df00df00df00df00df00df00df00df00df00df00d";

/// A harness process.
struct Process(Option<Child>);

impl Process {
    fn start(core: &Server, root: Option<&Path>) -> Self {
        let url = core.ready.split(' ').find_map(|word| word.strip_prefix("harness=")).unwrap();
        let home = tempfile::tempdir().unwrap();
        let mut command = common::nylorun(home.path());
        command.args(["harness", "--url", url, "--health-port", "0"]).env("NYLORUN_HARNESS_TOKEN", TOKEN);
        if let Some(root) = root {
            command.arg("--root").arg(root);
        }
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("nylorun harness ready"), "{line}");
        Self(Some(child))
    }

    fn end(mut self, signal: Signal) {
        let child = self.0.take().unwrap();
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        common::wait(child);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn core() -> Box {
    let options = Options::default()
        .args(&["--harness", "remote", "--harness-listen", "127.0.0.1:0"])
        .env("NYLORUN_HARNESS_TOKEN", TOKEN);
    Box::of(Server::start_with(options))
}

/// A core with a harness that serves workspaces below a folder.
fn served() -> (Box, Process, TempDir) {
    let (core, root) = (core(), tempfile::tempdir().unwrap());
    let harness = Process::start(&core.server, Some(root.path()));
    connected(&core, 1, true);
    (core, harness, root)
}

fn connected(core: &Box, many: u64, workspace: bool) {
    until("the harness", || {
        let harness = core.get("/v1/tenant")["harness"].clone();
        (harness["connected"] == many && harness["workspace"] == workspace).then_some(())
    });
}

/// What is below the harness's folder, but for records.
fn workspaces(root: &TempDir) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(root.path().join("sandboxes")).unwrap().flatten();
    // One is ready for the next workspace.
    let ready = |path: &std::path::PathBuf| path.to_string_lossy().contains("/.ready-");
    entries.map(|entry| entry.path()).filter(|path| path.is_dir() && !ready(path)).collect()
}

#[test]
fn a_turn_works_in_the_harnesss_folder_and_core_has_its_record() {
    let (it, _harness, root) = served();
    it.agent(
        "worker",
        json!({"steps": [
            call("write", json!({"path": "a", "content": "one\n"})), bash("cat a; echo two >>a; exit 4"),
            call("read", json!({"path": "a"})), {"text": "done"},
        ]}),
    );
    it.open("s", "worker", json!({}));
    let events = it.turn("s", "go");
    let all = tools(&events);
    assert_eq!(all[1].1, json!({"exitCode": 4, "stdout": "one\n", "stderr": ""}));
    assert_eq!(all[2].1, "1\tone\n2\ttwo");
    // Each claim of the run is in the session's record, with its turn.
    let states: Vec<_> = payloads(&events, "sandbox.state").iter().map(|p| p["state"].clone()).collect();
    assert_eq!(states, ["creating", "running"]);
    let ran: Vec<_> = payloads(&events, "sandbox.exec").iter().map(|p| p["tool"].clone()).collect();
    assert_eq!(ran, ["write", "bash", "read"]);
    assert_eq!(it.get("/v1/tenant")["sandbox"], json!({"backend": "virtual", "retained": 1}));
    assert_eq!(workspaces(&root).len(), 1);
    assert!(!it.server.home().join("sandboxes").exists());
    // The route reaches the same workspace.
    assert_eq!(it.tool("s", "bash", json!({"command": "wc -l <a"})).1["output"]["stdout"], "2\n");
}

#[test]
fn a_session_with_a_sandbox_goes_to_the_harness_that_serves_one_and_elsewhere_its_tools_fail() {
    let it = core();
    let without = Process::start(&it.server, None);
    connected(&it, 1, false);
    it.agent("worker", json!({"steps": [bash("echo here"), {"text": "done"}]}));
    it.open("s", "worker", json!({}));
    assert_eq!(tools(&it.turn("s", "go")), [("bash".to_owned(), json!("sandbox.unavailable"))]);
    let root = tempfile::tempdir().unwrap();
    let with = Process::start(&it.server, Some(root.path()));
    connected(&it, 2, true);
    for n in 0..4 {
        let session = format!("s{n}");
        it.open(&session, "worker", json!({}));
        assert_eq!(tools(&it.turn(&session, "go"))[0].1["stdout"], "here\n");
    }
    drop((without, with));
}

/// A turn whose command sleeps: the sleep's marker, once it runs.
fn sleeping(it: &Box, root: &TempDir) -> String {
    let time = marker();
    it.agent(
        "sleeper",
        json!({
            "steps": [bash(&format!("echo began >>log; sleep {time}; echo ended >>log")), {"text": "woke"}],
            "cases": [{"when": {"contains": "again"}, "steps": [bash("cat log"), {"text": "seen"}]}],
        }),
    );
    it.open("s", "sleeper", json!({}));
    it.say("s", "go");
    until("the command", || {
        (root.path().join("sandboxes").exists() && log(root).is_some_and(|text| !text.is_empty()))
            .then_some(())
    });
    time
}

fn log(root: &TempDir) -> Option<String> {
    let folder = workspaces(root).pop()?;
    std::fs::read_to_string(folder.join("workspace/log")).ok()
}

#[test]
fn a_harness_killed_in_a_command_leaves_it_uncertain_and_nobody_repeats_it() {
    let (it, harness, root) = served();
    let time = sleeping(&it, &root);
    harness.end(Signal::SIGKILL);
    until("the end of the command", || processes(&time).is_empty().then_some(()));
    // The one that comes has the same folder.
    let _again = Process::start(&it.server, Some(root.path()));
    until("uncertain", || (it.status("s") == "uncertain").then_some(()));
    connected(&it, 1, true);
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(log(&root).unwrap(), "began\n");
    assert_eq!(it.status("s"), "uncertain");
}

#[test]
fn a_cancel_kills_the_command_at_the_harness() {
    let (it, _harness, root) = served();
    let time = sleeping(&it, &root);
    let began = std::time::Instant::now();
    it.cancel("s");
    until("the end of the command", || processes(&time).is_empty().then_some(()));
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    assert_eq!(tools(&it.turn("s", "again"))[0].1["stdout"], "began\n");
}

#[test]
fn a_core_killed_in_a_command_of_a_harness_leaves_it_uncertain() {
    let (mut it, _harness, root) = served();
    let time = sleeping(&it, &root);
    // Its harness gives the command a moment, then ends it: nobody could take what it comes to.
    it.server.kill9();
    until("the end of the command", || processes(&time).is_empty().then_some(()));
    it.server.restart();
    until("uncertain", || (it.status("s") == "uncertain").then_some(()));
    assert_eq!(log(&root).unwrap(), "began\n");
    let effects: Json = it.get("/v1/sessions/s/effects?status=uncertain");
    assert_eq!(effects["effects"][0]["toolName"], "bash");
}
