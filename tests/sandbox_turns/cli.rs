//! `nylorun sandboxes`, `run --sandbox`, and the part of `quickstart` that works in a sandbox.

use std::io::Write as _;
use std::process::{Output, Stdio};

use nylorun_actors::model::json::{self, Json};
use serde_json::json;

use super::common::{Options, Server, stderr, stdout};
use super::support::{Box, bash, tools};

fn run(it: &Box, args: &[&str]) -> Output {
    it.server.run(args)
}

/// Runs a command with these lines as its input.
fn typed(it: &Box, args: &[&str], lines: &str) -> Output {
    let mut command = it.server.command(args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn with_session() -> Box {
    let it = Box::start();
    it.agent("plain", json!({"steps": [{"text": "hi"}], "repeat": true}));
    it.open("s", "plain", json!({}));
    it
}

#[test]
fn sandboxes_are_put_listed_shown_and_deleted() {
    let it = Box::start();
    assert!(stdout(&run(&it, &["sandboxes", "list"])).starts_with("SANDBOX"));
    let put = ["sandboxes", "put", "team/build", "--label", "team=a", "--cpus", "1", "--memory", "256MiB"];
    let made = it.server.json(&put);
    assert_eq!((&made["id"], &made["spec"]["resources"]["cpus"]), (&json!("team/build"), &json!(1)));
    let said = stdout(&run(&it, &put));
    assert!(said.contains("has       1 CPUs, 256MiB") && said.contains("network   none"), "{said}");
    let other = run(&it, &["sandboxes", "put", "team/build", "--cpus", "2"]);
    assert_eq!(other.status.code(), Some(1), "what it has is fixed");
    assert!(stderr(&other).contains("HTTP 409"), "{}", stderr(&other));
    it.server.json(&["sandboxes", "put", "other"]);
    let list = it.server.json(&["sandboxes", "list", "--label", "team=a"]);
    assert_eq!(list["sandboxes"].as_array().unwrap().len(), 1);
    assert_eq!(it.server.json(&["sandboxes", "list"])["sandboxes"].as_array().unwrap().len(), 2);
    it.agent("plain", json!({"steps": [{"text": "hi"}]}));
    it.open("s", "plain", json!({"id": "team/build"}));
    let shown = stdout(&run(&it, &["sandboxes", "show", "team/build"]));
    assert!(shown.contains("session   s") && shown.contains("labels    team=a"), "{shown}");
    let events = stdout(&run(&it, &["sandboxes", "events", "team/build", "--from", "1"]));
    assert!(events.contains("sandbox.attached") && !events.contains("sandbox.created"), "{events}");
    for pods_only in ["stop", "reset"] {
        let refused = run(&it, &["sandboxes", pods_only, "team/build"]);
        assert_eq!(refused.status.code(), Some(1), "{pods_only}: {}", stderr(&refused));
    }
    assert!(stdout(&run(&it, &["sandboxes", "rm", "team/build"])).contains("deleted team/build"));
    assert!(stdout(&run(&it, &["sandboxes", "rm", "team/build"])).contains("there was no"));
    let missing = run(&it, &["sandboxes", "show", "team/build"]);
    assert_eq!(missing.status.code(), Some(1));
}

#[test]
fn exec_prints_both_outputs_and_exits_with_the_commands_code() {
    let it = with_session();
    let exec = |words: &[&str]| run(&it, &[&["sandboxes", "exec", "s", "--"], words].concat());
    let ran = exec(&["echo out; echo err >&2; exit 7"]);
    assert_eq!((ran.status.code(), stdout(&ran), stderr(&ran)), (Some(7), "out\n".into(), "err\n".into()));
    let words = exec(&["printf", "%s|", "a  b", "$HOME", "it's"]);
    assert_eq!(stdout(&words), "a  b|$HOME|it's|");
    let late = run(&it, &["sandboxes", "exec", "s", "--timeout", "1", "--", "sleep", "60"]);
    assert_eq!(late.status.code(), Some(124), "{}", stderr(&late));
    let json = it.server.run(&["sandboxes", "exec", "s", "--json", "--", "exit 3"]);
    let output: Json = json::parse(&json.stdout).unwrap();
    assert_eq!((json.status.code(), &output["exitCode"]), (Some(3), &json!(3)));
    let nobody = run(&it, &["sandboxes", "exec", "nothing", "--", "true"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stderr(&nobody).contains("no session and no sandbox"), "{}", stderr(&nobody));
    it.open("bare", "plain", json!(false));
    let bare = run(&it, &["sandboxes", "exec", "bare", "--", "true"]);
    assert_eq!(bare.status.code(), Some(1));
    assert!(stderr(&bare).contains("without a sandbox"), "{}", stderr(&bare));
}

#[test]
fn the_shell_keeps_directory_and_variables_and_goes_on_after_a_failure() {
    let it = with_session();
    let lines =
        "mkdir -p sub; cd sub\nname='a  b'\npwd; echo \"$name\"\nfalse\necho $?; exit 4\npwd >&2\nexit 9\n";
    let ran = typed(&it, &["sandboxes", "shell", "s"], lines);
    assert_eq!(stdout(&ran), "/workspace/sub\na  b\n0\n", "{}", stderr(&ran));
    assert!(stderr(&ran).contains("/workspace/sub"));
    assert_eq!(ran.status.code(), Some(9));
    let last = typed(&it, &["sandboxes", "shell", "s"], "pwd\nfalse\n");
    assert_eq!(
        (stdout(&last), last.status.code()),
        ("/workspace\n".into(), Some(1)),
        "another shell begins anew"
    );
    let left = it.tool("s", "bash", json!({"command": "ls -A /tmp"})).1;
    assert_eq!(left["output"]["stdout"], "", "it cleans up");
}

#[test]
fn a_sandbox_is_reached_by_its_own_id_through_a_session_that_is_attached() {
    let it = Box::start();
    it.agent("slow", json!({"steps": [bash("sleep 3"), {"text": "done"}]}));
    it.server.json(&["sandboxes", "put", "team/build"]);
    let alone = run(&it, &["sandboxes", "exec", "team/build", "--", "true"]);
    assert!(stderr(&alone).contains("no session is attached"), "{}", stderr(&alone));
    it.open("s", "slow", json!({"id": "team/build"}));
    let ran = run(&it, &["sandboxes", "exec", "team/build", "--", "echo here >a; cat a"]);
    assert_eq!(stdout(&ran), "here\n", "{}", stderr(&ran));
    it.say("s", "go");
    let busy = run(&it, &["sandboxes", "exec", "team/build", "--", "true"]);
    assert_eq!(busy.status.code(), Some(1), "the turn has the sandbox");
    it.until("s", "completed");
}

#[test]
fn run_opens_a_session_with_the_sandbox_that_is_wanted() {
    let it = Box::start();
    it.agent("worker", json!({"steps": [bash("echo hi >>f; cat f"), {"text": "done"}], "repeat": true}));
    let ran = run(&it, &["run", "worker", "go", "--session", "own", "--sandbox"]);
    assert!(ran.status.success(), "{}", stderr(&ran));
    assert!(stderr(&ran).contains("· $ echo hi >>f; cat f ("), "{}", stderr(&ran));
    let shared = run(&it, &["run", "worker", "go", "--session", "second", "--sandbox=session:own"]);
    assert!(shared.status.success(), "{}", stderr(&shared));
    assert_eq!(tools(&it.events("second"))[0].1["stdout"], "hi\nhi\n");
    it.server.json(&["sandboxes", "put", "team"]);
    assert!(run(&it, &["run", "worker", "go", "--session", "third", "--sandbox=team"]).status.success());
    assert_eq!(it.get("/v1/sessions/third")["sandboxId"], "team");
    for (session, told) in [("own", "its own"), ("second", "that of session own"), ("third", "team")] {
        let shown = stdout(&run(&it, &["sessions", "show", session]));
        assert!(shown.contains(&format!("sandbox   {told}\n")), "{shown}");
    }
    let again = run(&it, &["run", "worker", "go", "--session", "own", "--sandbox=none"]);
    assert_eq!(again.status.code(), Some(2), "a session keeps what it was opened with");
    let missing = run(&it, &["run", "worker", "go", "--sandbox=nothing"]);
    assert!(stderr(&missing).contains("andbox"), "{}", stderr(&missing));
    let plain = run(&it, &["run", "worker", "go", "--session", "plain", "--sandbox=none"]);
    assert_eq!(it.get("/v1/sessions/plain")["sandbox"], Json::Null, "{}", stderr(&plain));
}

#[test]
fn quickstart_shows_a_file_that_was_made_in_a_sandbox_or_says_why_not() {
    let it = Box::start();
    let output = run(&it, &["quickstart"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("1\t2 3 5 7 11 13 17 19 23 29"), "{said}");
    assert!(said.contains("sandboxes exec"), "{said}");
    drop(it);
    let options = Options::default()
        .env("NYLORUN_SANDBOX_BACKEND", "docker")
        .env("DOCKER_HOST", "unix:///nonexistent/docker.sock");
    let server = Server::start_with(options);
    let output = server.run(&["quickstart"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("are left out: no backend works here"), "{}", stderr(&output));
}
