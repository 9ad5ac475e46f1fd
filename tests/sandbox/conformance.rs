//! The six tools, the same in every backend (spec: sandbox, sections 12 and 13).

use std::time::{Duration, Instant};

use nylorun::sandbox::choice::Kind;
use nylorun_actors::model::workspace::{Tool, ToolOutcome};
use serde_json::json;

use super::support::Spaces;

fn code(outcome: ToolOutcome) -> String {
    match outcome {
        ToolOutcome::Failed { code, .. } => code,
        ToolOutcome::Completed { output } => panic!("{output}"),
    }
}

async fn the_tools_work_together(kind: Kind) {
    let spaces = Spaces::new(kind);
    let written = spaces.output("s", Tool::Write, json!({"path": "src/a.py", "content": "print(1)\n"})).await;
    assert_eq!(written, json!({"path": "/workspace/src/a.py", "bytes": 9}));
    assert_eq!(spaces.says("s", "cat src/a.py").await, "print(1)");
    assert_eq!(spaces.output("s", Tool::Read, json!({"path": "/workspace/src/a.py"})).await, "1\tprint(1)");
    let edit = json!({"path": "src/a.py", "old_string": "1", "new_string": "2"});
    assert_eq!(spaces.output("s", Tool::Edit, edit).await["replacements"], 1);
    assert_eq!(spaces.output("s", Tool::Grep, json!({"pattern": "print"})).await, "./src/a.py:1:print(2)");
    assert_eq!(spaces.output("s", Tool::Glob, json!({"pattern": "*.py"})).await, "/workspace/src/a.py");
    spaces.says("s", "mkdir made && echo hi > made/file && echo tmp > \"$TMPDIR/t\"").await;
    assert_eq!(spaces.output("s", Tool::Read, json!({"path": "made/file"})).await, "1\thi");
    assert_eq!(spaces.says("s", "cat \"$TMPDIR/t\"").await, "tmp", "it lives until the workspace stops");
    // Another session's workspace is another.
    assert_eq!(
        code(spaces.call("other", Tool::Read, json!({"path": "src/a.py"})).await.unwrap()),
        "sandbox.not_found"
    );
    assert_eq!(code(spaces.call("s", Tool::Bash, json!({"cmd": "x"})).await.unwrap()), "tool.invalid-input");
}

async fn a_command_that_fails_has_run(kind: Kind) {
    let spaces = Spaces::new(kind);
    let output = spaces.bash("s", "echo out; echo err >&2; exit 3").await;
    assert_eq!(output, json!({"exitCode": 3, "stdout": "out\n", "stderr": "err\n"}));
    assert_eq!(spaces.bash("s", "kill -9 $$").await["exitCode"], 137);
    assert_eq!(spaces.bash("s", "no-such-command-here").await["exitCode"], 127);
    assert_eq!(spaces.says("s", "read -r line; echo \"[$line]\"").await, "[]", "standard input is closed");
}

async fn nothing_of_the_environment_is_seen(kind: Kind) {
    let spaces = Spaces::new(kind);
    let names = spaces.says("s", "env | cut -d= -f1 | sort | tr '\\n' ' '").await;
    for name in names.split(' ').filter(|name| !name.is_empty()) {
        let known = ["PATH", "HOME", "TMPDIR", "LANG", "TERM", "PWD", "OLDPWD", "SHLVL", "_"].contains(&name);
        assert!(known, "{name} in {names}");
    }
    assert!(std::env::var_os("CARGO").is_some(), "this test has an environment to leak");
}

async fn time_is_kept(kind: Kind) {
    let spaces = Spaces::new(kind);
    let began = Instant::now();
    let input = json!({"command": "echo begun; (sleep 300 &) ; sleep 300", "timeout": 0.7});
    let output = spaces.output("s", Tool::Bash, input).await;
    assert_eq!((&output["exitCode"], &output["timedOut"]), (&json!(124), &json!(true)));
    assert_eq!(output["stdout"], "begun\n");
    assert!(output["stderr"].as_str().unwrap().contains("killed"), "{output}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

async fn a_call_that_is_given_up_is_killed(kind: Kind) {
    let spaces = Spaces::new(kind);
    let call = spaces.start("s", Tool::Bash, json!({"command": "touch begun; sleep 300; touch done"}));
    let call = tokio::spawn(call);
    for _ in 0..1_000 {
        if spaces.folder("s").join("begun").exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!call.is_finished());
    call.abort();
    let began = Instant::now();
    // The next one waits for its turn only.
    assert_eq!(spaces.says("s", "ls").await, "begun");
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(
        spaces.heard.told(&["tool", "exitCode", "killed"]).iter().filter(|t| *t == "bash 130 true").count(),
        1
    );
}

async fn a_flood_is_cut_in_its_middle(kind: Kind) {
    let spaces = Spaces::new(kind);
    let output =
        spaces.bash("s", "echo first; head -c 30000000 /dev/zero | tr '\\0' x; echo; echo last").await;
    let text = output["stdout"].as_str().unwrap();
    assert_eq!((output["exitCode"].as_i64(), &output["truncated"]), (Some(0), &json!(true)));
    assert!(text.starts_with("first\nx") && text.ends_with("x\nlast\n"), "{}", text.len());
    assert!(text.chars().count() < 30_100 && text.contains("characters left out"));
}

async fn what_is_left_in_the_background_ends_with_its_command(kind: Kind) {
    let spaces = Spaces::new(kind);
    let began = Instant::now();
    spaces.says("s", "sleep 300 & echo started").await;
    assert!(began.elapsed() < Duration::from_secs(10));
    spaces.says("s", "(while true; do date +%s%N > alive; sleep 0.1; done) & sleep 0.3").await;
    let alive = || std::fs::read(spaces.folder("s").join("alive")).unwrap();
    let before = alive();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(alive(), before);
}

super::support::for_each_backend! {
    every:
    the_tools_work_together
    a_command_that_fails_has_run
    nothing_of_the_environment_is_seen
    time_is_kept
    a_call_that_is_given_up_is_killed
    a_flood_is_cut_in_its_middle
    what_is_left_in_the_background_ends_with_its_command
}
