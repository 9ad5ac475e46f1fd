//! The manager: order, events, idle time, restarts, removal (spec: sandbox, section 11).

use std::sync::Arc;
use std::time::Duration;

use nylorun::sandbox::choice::Kind;
use nylorun::sandbox::job::Limits;
use nylorun::sandbox::records::FILE;
use nylorun_actors::model::workspace::{
    BytesAnswer, BytesOf, FilesOf, ListAnswer, Removal, Tool, ToolOutcome, WorkspaceBytes, WorkspaceList,
    WorkspaceState, session_key,
};
use nylorun_actors::ports::engine::ApiCode;
use nylorun_actors::ports::workspaces::WorkspaceManager as _;
use serde_json::json;

use super::support::{Heard, Spaces, TENANT, manager, of};

fn spaces() -> Spaces {
    Spaces::new(Kind::Process)
}

const STATE: [&str; 3] = ["state", "reattach", "lost"];

#[tokio::test]
async fn what_happens_is_claimed_in_order_with_the_record() {
    let spaces = spaces();
    spaces.says("s", "echo hi").await;
    let _ = spaces.call("s", Tool::Read, json!({"path": "none"})).await.unwrap();
    let told = spaces.heard.told(&["state", "tool", "command", "path", "exitCode", "outcome", "code"]);
    assert_eq!(
        told,
        [
            "creating - - - - - -",
            "running - - - - - -",
            "- bash echo hi - 0 completed -",
            "- read - none - failed sandbox.not_found",
        ]
    );
    let claims = spaces.heard.0.lock().unwrap();
    let key = session_key(&TENANT.into(), &"s".into());
    let records: Vec<_> = claims.iter().filter_map(|claim| claim.record.as_ref()).collect();
    assert!(records.iter().all(|record| record.key == key && record.backend == "virtual"));
    assert_eq!(records[0].created_at, records[1].created_at);
    assert!(claims.iter().all(|claim| claim.session_id.as_str() == "s" && claim.turn_id.is_none()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_command_at_a_time_in_the_order_they_came() {
    let spaces = spaces();
    let calls: Vec<_> = (0..5)
        .map(|n| {
            let command = format!("echo begin {n} >> log; sleep 0.05; echo end {n} >> log");
            tokio::spawn(spaces.start("s", Tool::Bash, json!({"command": command})))
        })
        .collect();
    // Another workspace is not held up.
    spaces.says("other", "true").await;
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let log = std::fs::read_to_string(spaces.folder("s").join("log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    for pair in lines.chunks(2) {
        assert_eq!(pair[0].replace("begin", "end"), pair[1], "{log}");
    }
    assert_eq!(lines.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_work_in_the_order_in_which_they_were_made_whatever_they_are() {
    let spaces = spaces();
    for round in 0..5 {
        // Not one of them is waited for: their places are taken as they are made.
        let mut calls = Vec::new();
        for n in 0..20 {
            let append = json!({"command": format!("echo {round}-{n} >> log")});
            calls.push(tokio::spawn(spaces.start("s", Tool::Bash, append)));
            calls.push(tokio::spawn(spaces.start("s", Tool::Read, json!({"path": "log"}))));
        }
        let mut seen = Vec::new();
        for call in calls {
            seen.push(call.await.unwrap().unwrap());
        }
        for (n, outcome) in seen.iter().skip(1).step_by(2).enumerate() {
            let ToolOutcome::Completed { output } = outcome else { panic!("{outcome:?}") };
            let last = output.as_str().unwrap().lines().last().unwrap();
            assert!(last.ends_with(&format!("\t{round}-{n}")), "{n}: {last}");
        }
    }
}

#[tokio::test]
async fn a_listing_waits_for_what_was_asked_before_it_also_for_the_first() {
    let spaces = spaces();
    let first = tokio::spawn(spaces.start("s", Tool::Write, json!({"path": "outputs/a", "content": "x"})));
    let list = FilesOf { dir: "/workspace/outputs".into(), max_entries: 10 };
    let list = WorkspaceList { session: of("s"), spec: json!({}), list };
    let listed = spaces.manager.list(list, spaces.heard.clone()).await.unwrap();
    first.await.unwrap().unwrap();
    assert!(matches!(listed, ListAnswer::Listed { listing, .. } if listing.entries.len() == 1));
}

#[tokio::test]
async fn an_idle_workspace_stops_keeps_its_files_and_comes_back() {
    let mut spaces = spaces();
    spaces.spec = json!({"idle": "1m"});
    spaces.says("s", "echo kept > file; echo gone > \"$TMPDIR/t\"").await;
    let at = |ms: f64| {
        use nylorun_actors::ports::Clock as _;
        nylorun_actors::ports::clock::SystemClock.now().0 as f64 / 1_000.0 + ms
    };
    let heard: Arc<Heard> = spaces.heard.clone();
    let sweep = |ms: f64| spaces.manager.sweep(Some(at(ms)), heard.clone());
    assert_eq!(sweep(30_000.0).await.unwrap()[0].state, WorkspaceState::Running);
    assert_eq!(sweep(61_000.0).await.unwrap()[0].state, WorkspaceState::Stopped);
    assert_eq!(spaces.says("s", "cat file; ls \"$TMPDIR\"").await, "kept");
    let told = spaces.heard.told(&STATE);
    let told: Vec<&str> = told.iter().map(String::as_str).filter(|told| *told != "- - -").collect();
    assert_eq!(told, ["creating - -", "running - -", "stopped - -", "creating true -", "running - -"]);
}

#[tokio::test]
async fn a_restart_finds_its_workspaces_and_says_when_files_are_gone() {
    let spaces = spaces();
    spaces.says("s", "echo kept > file").await;
    std::fs::create_dir_all(
        spaces.dir.path().join("sandboxes").join(format!("nylorun-{TENANT}-0011223344556677")),
    )
    .unwrap();
    let next = Spaces {
        manager: manager(&spaces.dir, Kind::Process, Limits::default()),
        heard: Arc::default(),
        ..spaces
    };
    // Its record said that it runs, and nothing of it does; a folder that nobody knows is removed.
    let swept = next.manager.sweep(None, next.heard.clone()).await.unwrap();
    assert_eq!((swept.len(), swept[0].state), (1, WorkspaceState::Stopped));
    assert_eq!(super::figures::folders(&next.dir.path().join("sandboxes")).len(), 1);
    assert_eq!(next.says("s", "cat file").await, "kept");
    std::fs::remove_dir_all(next.folder("s")).unwrap();
    let last = Spaces {
        manager: manager(&next.dir, Kind::Process, Limits::default()),
        heard: Arc::default(),
        ..next
    };
    assert_eq!(last.says("s", "ls").await, "");
    assert!(last.heard.told(&STATE).contains(&"running - true".to_owned()));
}

#[tokio::test]
async fn removal_waits_for_what_runs_and_leaves_nothing() {
    let spaces = spaces();
    spaces.says("s", "mkdir -p closed/in; touch closed/in/file; chmod 000 closed/in closed").await;
    let call = tokio::spawn(spaces.start("s", Tool::Bash, json!({"command": "sleep 0.5; echo done"})));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let key = session_key(&TENANT.into(), &"s".into());
    spaces.manager.remove(Removal::keys(vec![key])).await.unwrap();
    let outcome = call.await.unwrap().unwrap();
    assert!(matches!(outcome, ToolOutcome::Completed { output } if output["stdout"] == "done\n"));
    assert!(!spaces.folder("s").parent().unwrap().exists());
    assert!(spaces.manager.sweep(None, spaces.heard.clone()).await.unwrap().is_empty());
    let foreign = spaces.manager.remove(Removal::keys(vec!["nylorun-tn_other-x".into()])).await;
    assert_eq!(foreign.unwrap_err().code, ApiCode::Invalid);
    spaces.says("a", "true").await;
    spaces.says("b", "true").await;
    spaces.manager.remove(Removal::everything()).await.unwrap();
    assert!(spaces.manager.sweep(None, spaces.heard.clone()).await.unwrap().is_empty());
}

#[tokio::test]
async fn artifacts_are_read_and_a_workspace_that_never_was_is_not_made() {
    let spaces = spaces();
    let list = |session: &str| {
        let list = FilesOf { dir: "/workspace/outputs".into(), max_entries: 10 };
        spaces
            .manager
            .list(WorkspaceList { session: of(session), spec: json!({}), list }, spaces.heard.clone())
    };
    assert_eq!(list("s").await.unwrap(), ListAnswer::Missing { path: "/workspace/outputs".into() });
    assert!(spaces.heard.0.lock().unwrap().is_empty(), "nothing was started for it");
    spaces.says("s", "mkdir outputs; printf abc > outputs/a").await;
    let ListAnswer::Listed { listing, .. } = list("s").await.unwrap() else { panic!() };
    assert_eq!((listing.entries[0].path.as_str(), listing.entries[0].size), ("a", 3));
    let bytes = |most| {
        let bytes = BytesOf { path: "/workspace/outputs/a".into(), max_bytes: most };
        spaces
            .manager
            .bytes(WorkspaceBytes { session: of("s"), spec: json!({}), bytes }, spaces.heard.clone())
    };
    assert!(matches!(bytes(3).await.unwrap(), BytesAnswer::Read { base64, .. } if base64 == "YWJj"));
    assert!(
        matches!(bytes(2).await.unwrap(), BytesAnswer::Failed { code, .. } if code == "artifact.too_large")
    );
}

#[tokio::test]
async fn a_spec_that_cannot_be_had_and_a_closed_manager_run_nothing() {
    let mut spaces = spaces();
    spaces.spec = json!({"network": {"preset": "none", "allow": ["example.org"]}});
    let outcome = spaces.call("s", Tool::Bash, json!({"command": "true"})).await.unwrap();
    assert!(matches!(outcome, ToolOutcome::Failed { code, .. } if code == "sandbox.unavailable"));
    spaces.spec = json!({});
    spaces.says("s", "true").await;
    spaces.manager.close(Some(spaces.heard.clone())).await;
    assert_eq!(spaces.heard.told(&["state"]).last().unwrap(), "stopped", "whoever can be told is told");
    let refused = spaces.call("s", Tool::Bash, json!({"command": "true"})).await;
    assert_eq!(refused.unwrap_err().code, ApiCode::Unavailable);
}

#[tokio::test]
async fn a_cage_that_does_not_stand_is_told_and_nothing_ran() {
    let spaces = Spaces::new(Kind::Namespaces);
    spaces.says("s", "true").await;
    // The workspace's folder becomes a file under a manager that thinks it open.
    std::fs::remove_dir_all(spaces.folder("s")).unwrap();
    std::fs::write(spaces.folder("s"), "").unwrap();
    let outcome = spaces.call("s", Tool::Bash, json!({"command": "true"})).await;
    assert!(outcome.is_ok_and(
        |outcome| matches!(outcome, ToolOutcome::Failed { code, .. } if code == "sandbox.start_failed")
    ));
}

#[tokio::test]
async fn a_workspace_whose_record_was_lost_keeps_its_files_when_somebody_else_has_it_on_record() {
    let spaces = spaces();
    spaces.says("known", "echo kept >file").await;
    spaces.says("unknown", "echo gone >file").await;
    let all = spaces.manager.sweep(None, spaces.heard.clone()).await.unwrap();
    spaces.manager.close(None).await;
    std::fs::write(spaces.dir.path().join("sandboxes").join(FILE), "no record").unwrap();
    let again = manager(&spaces.dir, Kind::Process, Limits::default());
    let known = all.into_iter().filter(|record| record.session_id == "known".into()).collect();
    again.adopt(known).await;
    let left = again.sweep(None, spaces.heard.clone()).await.unwrap();
    let left: Vec<_> = left.iter().map(|record| (record.session_id.as_str(), record.state)).collect();
    assert_eq!(left, [("known", WorkspaceState::Stopped)]);
    assert_eq!(std::fs::read_to_string(spaces.folder("known").join("file")).unwrap(), "kept\n");
    assert!(!spaces.folder("unknown").exists(), "nobody knows whose it is");
}

/// Where a claim was made.
#[derive(Default)]
struct Where(std::sync::Mutex<Vec<String>>);

impl nylorun_actors::ports::workspaces::Claims for Where {
    fn claim(
        &self,
        _: nylorun_actors::model::workspace::Claim,
    ) -> futures_util::future::BoxFuture<'static, ()> {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        self.0.lock().unwrap().push(name);
        Box::pin(async {})
    }
}

/// A harness has one thread for its connection: a slow disk must not keep its leases from being renewed.
#[tokio::test(flavor = "current_thread")]
async fn the_work_of_a_workspace_is_not_done_on_the_thread_that_asks_for_it() {
    let spaces = spaces();
    let threads = Arc::new(nylorun::sandbox::threads::Threads::start().unwrap());
    let served = nylorun::sandbox::threads::OnThreads::new(spaces.manager.clone(), &threads).unwrap();
    let seen = Arc::new(Where::default());
    let call = nylorun_actors::model::workspace::WorkspaceCall {
        session: of("s"),
        spec: json!({}),
        tool: Tool::Bash,
        input: json!({"command": "true"}),
    };
    served.call(call, seen.clone()).await.unwrap();
    assert_eq!(*seen.0.lock().unwrap(), ["sandboxes"; 3], "creating, running, the command");
    served.close(None).await;
}
