//! Tools of sandboxes in turns of the harness inside `serve`: what they do, what is left of them after every way to end.

use std::time::{Duration, Instant};

use nylorun_actors::model::json::Json;
use serde_json::json;

use super::common::{Options, Server};
use super::support::{Box, bash, call, groups_of, marker, payloads, processes, tools, until};

/// Writes a program, runs it, looks at what it wrote.
fn works() -> Json {
    json!({"steps": [
        call("write", json!({"path": "src/prog.sh", "content": "echo made by $0\necho answer: $((6*7)) >out.txt\n"})),
        bash("sh src/prog.sh"),
        call("read", json!({"path": "/workspace/out.txt"})),
        call("grep", json!({"pattern": "answer: [0-9]+"})),
        call("glob", json!({"pattern": "*.txt"})),
        call("edit", json!({"path": "out.txt", "old_string": "42", "new_string": "43"})),
        {"text": "done"},
    ], "cases": [{"when": {"contains": "again"}, "steps": [bash("cat out.txt; ls /tmp"), {"text": "seen"}]}]})
}

#[test]
fn a_turn_writes_runs_reads_and_searches_in_its_sandbox_and_all_of_it_is_recorded() {
    let it = Box::start();
    it.agent("worker", works());
    it.open("s", "worker", json!({}));
    let events = it.turn("s", "go");
    let expected = [
        ("write", json!({"path": "/workspace/src/prog.sh", "bytes": 47})),
        ("bash", json!({"exitCode": 0, "stdout": "made by src/prog.sh\n", "stderr": ""})),
        ("read", json!("1\tanswer: 42")),
        ("grep", json!("./out.txt:1:answer: 42")),
        ("glob", json!("/workspace/out.txt")),
        ("edit", json!({"path": "/workspace/out.txt", "replacements": 1})),
    ];
    assert_eq!(tools(&events), expected.map(|(tool, said)| (tool.to_owned(), said)));
    let states: Vec<_> = payloads(&events, "sandbox.state").iter().map(|p| p["state"].clone()).collect();
    assert_eq!(states, ["creating", "running"]);
    let execs = payloads(&events, "sandbox.exec");
    let ran: Vec<_> = execs.iter().map(|p| (p["tool"].as_str().unwrap(), p["outcome"].clone())).collect();
    assert_eq!(ran, ["write", "bash", "read", "grep", "glob", "edit"].map(|tool| (tool, json!("completed"))));
    assert_eq!((&execs[1]["command"], &execs[1]["exitCode"]), (&json!("sh src/prog.sh"), &json!(0)));
    // What is in core's record is what the manager has.
    let status = it.get("/v1/tenant");
    assert_eq!(status["sandbox"], json!({"backend": "virtual", "retained": 1}));
    // Between turns its files are reached over the route, and a turn later by the agent.
    let (code, read) = it.tool("s", "read", json!({"path": "out.txt"}));
    assert_eq!((code, &read["output"]), (200, &json!("1\tanswer: 43")));
    let again = it.turn("s", "again");
    assert_eq!(tools(&again)[0].1["stdout"], "answer: 43\n");
}

#[test]
fn commands_and_their_output_are_in_no_log() {
    let options = Options::default().args(&["--log", "json", "--log-filter", "debug"]);
    let it = Box::of(Server::start_with(options));
    it.agent("worker", json!({"steps": [bash("echo sesame-$((40+2))-open"), {"text": "ok"}]}));
    it.open("s", "worker", json!({}));
    let events = it.turn("s", "go");
    assert_eq!(tools(&events)[0].1["stdout"], "sesame-42-open\n");
    assert_eq!(it.tool("s", "bash", json!({"command": "echo sesame-$((40+3))"})).0, 200);
    let log = it.server.log().join("\n");
    assert!(log.contains("sandboxes are served"), "there is a log");
    assert!(!log.contains("sesame"), "{log}");
}

#[test]
fn sub_agents_work_in_the_sandbox_of_their_turn() {
    let it = Box::start();
    let task = json!({"type": "object", "properties": {"task": {"type": "string", "minLength": 1}},
        "required": ["task"], "additionalProperties": false});
    let child =
        json!({"manifestSchemaVersion": 4, "id": "writer", "description": "Writes.", "capabilities": []});
    let tool = json!({"name": "writer", "description": "Writes.", "inputSchema": task, "agent": child});
    let script = json!({
        "steps": [call("writer", json!({"task": "write"})), bash("cat note"), {"text": "done"}],
        "agents": {"writer": {"steps": [
            call("write", json!({"path": "note", "content": "of the child\n"})), {"text": "written"},
        ]}},
    });
    it.register(json!({"manifestSchemaVersion": 4, "id": "boss",
        "capabilities": [{"id": "agent", "type": "agent", "tools": [tool]}], "metadata": {"nylorun.fixture": script}}));
    it.open("s", "boss", json!({}));
    let events = it.turn("s", "go");
    let all = tools(&events);
    assert_eq!(all.last().unwrap().1["stdout"], "of the child\n", "{all:?}");
}

#[test]
fn files_survive_a_stop_and_a_kill_and_what_ran_is_on_record_as_stopped() {
    let mut it = Box::start();
    it.agent("worker", works());
    it.open("s", "worker", json!({}));
    it.turn("s", "go");
    assert_eq!(it.tool("s", "bash", json!({"command": "touch /tmp/scratch"})).0, 200);
    assert!(it.server.terminate().success());
    it.server.restart();
    let states = |it: &Box| -> Vec<String> {
        let events = it.events("s");
        let states = payloads(&events, "sandbox.state");
        states
            .iter()
            .map(|p| {
                format!("{}{}", p["state"].as_str().unwrap(), if p["reattach"] == true { "+" } else { "" })
            })
            .collect()
    };
    assert_eq!(states(&it), ["creating", "running", "stopped"], "an orderly stop is recorded");
    let again = it.turn("s", "again");
    assert_eq!(
        tools(&again)[0].1["stdout"],
        "answer: 43\n",
        "the files are there, those of /tmp went with the stop"
    );
    assert_eq!(states(&it)[3..], ["creating+", "running"]);
    it.ok("PUT", "/v1/sandboxes/team", json!({"requestId": "r"}));
    it.open("of-team", "worker", json!({"id": "team"}));
    assert_eq!(it.tool("of-team", "bash", json!({"command": "true"})).0, 200);
    assert_eq!(it.get("/v1/sandboxes/team")["state"], "running");
    it.server.kill9();
    it.server.restart();
    until("the record to say that nothing runs", || {
        (it.get("/v1/sandboxes/team")["state"] == "stopped").then_some(())
    });
    let again = it.turn("s", "again");
    assert!(tools(&again)[0].1["stdout"].as_str().unwrap().starts_with("answer: 43\n"));
    // Nothing more than the two workspaces, the file of their records, and what is ready for the next.
    let names = std::fs::read_dir(it.server.home().join("sandboxes")).unwrap().flatten();
    let ready = |path: &std::path::PathBuf| path.to_string_lossy().contains("/.ready-");
    let mut names: Vec<_> = names.map(|entry| entry.path()).filter(|path| !ready(path)).collect();
    names.sort();
    let (folder, team) = (it.folder("s"), it.sandbox_folder("team"));
    let record = ["records.changes", "records.json"].map(|name| folder.with_file_name(name));
    let mut expected = [record.as_slice(), &[folder, team]].concat();
    expected.sort();
    assert_eq!(names, expected);
    assert_eq!(it.get("/v1/tenant")["sandbox"]["retained"], 2);
}

#[test]
fn a_workspace_without_use_stops_and_its_next_turn_has_the_files() {
    let it = Box::start();
    it.ok("PUT", "/v1/tenant/sandbox", json!({"limits": {"idle": "1s"}}));
    it.agent("worker", works());
    it.open("s", "worker", json!({}));
    it.turn("s", "go");
    until("the idle stop", || {
        let events = it.events("s");
        payloads(&events, "sandbox.state").iter().any(|p| p["state"] == "stopped").then_some(())
    });
    let again = it.turn("s", "again");
    assert_eq!(tools(&again)[0].1["stdout"], "answer: 43\n");
    assert_eq!(payloads(&again, "sandbox.state")[0]["reattach"], true);
}

#[test]
fn files_that_nobody_used_for_longer_than_they_are_kept_go_and_the_sandbox_is_there_again_empty() {
    let options = Options::default().env("NYLORUN_SANDBOX_RETENTION", "2s");
    let mut it = Box::of(Server::start_with(options));
    it.agent("worker", works());
    it.open("s", "worker", json!({}));
    it.turn("s", "go");
    it.ok("PUT", "/v1/sandboxes/team", json!({"requestId": "r"}));
    it.open("of-team", "worker", json!({"id": "team"}));
    assert_eq!(it.tool("of-team", "bash", json!({"command": "touch file"})).0, 200);
    let folders = [it.folder("s"), it.sandbox_folder("team")];
    assert!(it.server.terminate().success());
    assert!(folders.iter().all(|folder| folder.exists()));
    // What a start finds is what the last end has left, however long ago.
    std::thread::sleep(Duration::from_millis(2_500));
    it.server.restart();
    until("the end of the files", || folders.iter().all(|folder| !folder.exists()).then_some(()));
    until("the record to follow", || (it.get("/v1/tenant")["sandbox"]["retained"] == 0).then_some(()));
    let events = it.events("s");
    let told = payloads(&events, "sandbox.state");
    let told = told.last().unwrap();
    assert_eq!(told["state"], "stopped");
    assert!(told["note"].as_str().unwrap().contains("nobody had used them"), "{told}");
    assert_eq!(it.get("/v1/sandboxes/team")["state"], "ready");
    assert_eq!(it.tool("of-team", "bash", json!({"command": "ls -A"})).1["output"]["stdout"], "");
    let again = it.turn("s", "again");
    assert_eq!(tools(&again)[0].1["stdout"], "", "the file is gone");
}

/// Starts a turn whose command writes `began` and sleeps; answers the sleep's marker once it runs.
fn sleeping(it: &Box, session: &str) -> String {
    let time = marker();
    let script = json!({
        "steps": [bash(&format!("echo began >>log; sleep {time}; echo ended >>log")), {"text": "woke"}],
        "cases": [{"when": {"contains": "again"}, "steps": [bash("cat log"), {"text": "seen"}]}],
    });
    it.agent("sleeper", script);
    it.open(session, "sleeper", json!({}));
    it.say(session, "go");
    let began = it.folder(session).join("workspace/log");
    until("the command", || std::fs::read_to_string(&began).ok().filter(|text| !text.is_empty()));
    assert!(!processes(&time).is_empty());
    time
}

#[test]
fn kill_9_in_a_command_ends_it_leaves_it_uncertain_and_it_is_never_repeated() {
    let mut it = Box::start();
    let time = sleeping(&it, "s");
    let (home, process) = (it.server.home().display().to_string(), it.server.pid());
    it.server.kill9();
    until("the end of the command", || processes(&time).is_empty().then_some(()));
    it.server.restart();
    until("uncertain", || (it.status("s") == "uncertain").then_some(()));
    let effects = it.get("/v1/sessions/s/effects?status=uncertain");
    let effect = &effects["effects"][0];
    assert_eq!((effects["effects"].as_array().unwrap().len(), &effect["toolName"]), (1, &json!("bash")));
    let log = it.folder("s").join("workspace/log");
    // A person decides; the turn goes on, and the command was run once.
    let id = effect["effectId"].as_str().unwrap().replace(':', "%3A").replace('/', "%2F");
    let body = json!({"requestId": "r", "idempotencyKey": "d", "resolution": "failed",
        "error": {"code": "sandbox.error", "message": "cut by a crash"}});
    it.ok("POST", &format!("/v1/sessions/s/effects/{id}/resolve"), body);
    until("the end of the turn", || (it.status("s") == "completed").then_some(()));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "began\n");
    assert_eq!(tools(&it.turn("s", "again"))[0].1["stdout"], "began\n");
    // Nothing of it is left on this machine.
    assert!(processes(&time).is_empty());
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(&home), "{mounts}");
    until("the end of its control groups", || groups_of(process).is_empty().then_some(()));
}

#[test]
fn a_cancel_kills_the_command_and_the_next_turn_has_the_sandbox() {
    let it = Box::start();
    let time = sleeping(&it, "s");
    let began = Instant::now();
    it.cancel("s");
    until("the end of the command", || processes(&time).is_empty().then_some(()));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(tools(&it.turn("s", "again"))[0].1["stdout"], "began\n");
}

#[test]
fn a_stop_of_the_runtime_ends_the_command_and_it_is_uncertain_for_the_next_start() {
    let mut it = Box::start();
    let time = sleeping(&it, "s");
    let began = Instant::now();
    assert!(it.server.terminate().success());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert!(processes(&time).is_empty());
    it.server.restart();
    until("uncertain", || (it.status("s") == "uncertain").then_some(()));
    assert_eq!(std::fs::read_to_string(it.folder("s").join("workspace/log")).unwrap(), "began\n");
}

/// Two turns at once, each with a command that takes a moment.
fn both(it: &Box, sessions: [&str; 2]) {
    for session in sessions {
        it.say(session, "go");
    }
    for session in sessions {
        it.until(session, "completed");
    }
}

fn slow() -> Json {
    json!({"steps": [bash("echo s >>log; sleep 0.7; echo e >>log"), bash("cat log"), {"text": "done"}]})
}

#[test]
fn sessions_that_share_a_sandbox_see_the_same_files_and_their_commands_come_one_after_the_other() {
    let it = Box::start();
    it.agent("slow", slow());
    it.open("one", "slow", json!({}));
    let view = it.open("two", "slow", json!({"session": "one"}));
    assert_eq!((&view["sandboxOwnerId"], &view["sandboxSource"]), (&json!("one"), &json!("shared")));
    both(&it, ["one", "two"]);
    let log = std::fs::read_to_string(it.folder("one").join("workspace/log")).unwrap();
    assert_eq!(log, "s\ne\ns\ne\n");
    assert!(!it.folder("two").exists());
    // What happened in the workspace is in its owner's record, under the turn of whoever did it.
    let (one, two) = (it.events("one"), it.events("two"));
    assert_eq!((payloads(&one, "sandbox.exec").len(), payloads(&two, "sandbox.exec").len()), (4, 0));
    let turn = &two.iter().find(|event| event["type"] == "turn.completed").unwrap()["turnId"];
    assert_eq!(one.iter().filter(|event| event["turnId"] == *turn).count(), 2);
}

#[test]
fn sessions_attached_to_a_sandbox_have_its_files_and_one_turn_at_a_time() {
    let it = Box::start();
    it.agent("slow", slow());
    it.ok("PUT", "/v1/sandboxes/team%2Fbuild", json!({"requestId": "r"}));
    for session in ["one", "two"] {
        assert_eq!(it.open(session, "slow", json!({"id": "team/build"}))["sandboxSource"], "sandbox");
    }
    it.say("one", "go");
    let (status, busy) = it.try_say("two", "go");
    assert_eq!((status, &busy["code"]), (409, &json!("sandbox_busy")), "{busy}");
    it.until("one", "completed");
    assert_eq!(tools(&it.turn("two", "go"))[1].1["stdout"], "s\ne\ns\ne\n");
    assert_eq!(it.get("/v1/sandboxes/team%2Fbuild")["state"], "running");
    let folder = it.sandbox_folder("team/build");
    assert!(folder.join("workspace/log").exists());
    assert_eq!(it.send("DELETE", "/v1/sandboxes/team%2Fbuild", None).0, 200);
    until("its files to go", || (!folder.exists()).then_some(()));
    let (status, gone) = it.try_say("two", "go");
    assert_eq!((status, &gone["code"]), (409, &json!("sandbox_unavailable")));
}

#[test]
fn where_no_backend_works_the_tool_fails_and_the_turn_goes_on() {
    let options = Options::default()
        .env("NYLORUN_SANDBOX_BACKEND", "docker")
        .env("DOCKER_HOST", "unix:///nonexistent/docker.sock");
    let it = Box::of(Server::start_with(options));
    it.agent("worker", json!({"steps": [bash("true"), {"text": "without"}]}));
    it.open("s", "worker", json!({}));
    let events = it.turn("s", "go");
    assert_eq!(tools(&events), [("bash".to_owned(), json!("sandbox.unavailable"))]);
    assert_eq!(it.get("/v1/tenant")["sandbox"]["backend"], Json::Null);
}
