//! Tools of sandboxes in a run: where they work, what they come to, what becomes of them when the run is told to stop.

use std::sync::Mutex;

use futures_util::future::BoxFuture;
use nylorun_actors::model::turn::SandboxRoute;
use nylorun_actors::model::workspace::{
    BytesAnswer, Claim, ListAnswer, Removal, ToolOutcome, WorkspaceBytes, WorkspaceCall, WorkspaceList,
    WorkspaceRecord, WorkspaceReport,
};
use nylorun_actors::ports::workspaces::{Claims, WorkspaceManager};
use nylorun_actors::testing::FakeWorkspaces;

use super::*;

/// What was claimed, as `session turn what`.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Claims for Heard {
    fn claim(&self, claim: Claim) -> BoxFuture<'static, ()> {
        let turn = claim.turn_id.as_ref().map_or("-", TurnId::as_str);
        let what = ["state", "tool"].iter().find_map(|key| claim.payload[*key].as_str()).unwrap_or("?");
        self.0.lock().unwrap().push(format!("{} {turn} {what}", claim.session_id));
        async {}.boxed()
    }
}

/// Whose workspaces always fail as infrastructure does.
struct Broken(ApiCode);

impl WorkspaceManager for Broken {
    fn call(
        &self,
        _: WorkspaceCall,
        _: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<ToolOutcome, ApiError>> {
        let error = ApiError::new(self.0, "broken");
        async move { Err(error) }.boxed()
    }

    fn list(&self, _: WorkspaceList, _: Arc<dyn Claims>) -> BoxFuture<'static, Result<ListAnswer, ApiError>> {
        unreachable!()
    }

    fn bytes(
        &self,
        _: WorkspaceBytes,
        _: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<BytesAnswer, ApiError>> {
        unreachable!()
    }

    fn report(&self) -> BoxFuture<'static, WorkspaceReport> {
        unreachable!()
    }

    fn sweep(
        &self,
        _: Option<f64>,
        _: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<Vec<WorkspaceRecord>, ApiError>> {
        unreachable!()
    }

    fn remove(&self, _: Removal) -> BoxFuture<'static, Result<(), ApiError>> {
        unreachable!()
    }

    fn close(&self, _: Option<Arc<dyn Claims>>) -> BoxFuture<'static, ()> {
        unreachable!()
    }
}

/// A capability with a sandbox, as a session's pinned manifest has it.
fn sandbox() -> Json {
    let tools = ["bash", "read", "write", "edit", "grep", "glob"]
        .map(|name| json!({"name": name, "description": "d", "inputSchema": {"type": "object"}}));
    json!({"id": "nylorun.sandbox", "type": "agent", "sandbox": {"network": {"preset": "none"}}, "tools": tools})
}

fn with(capabilities: Json) -> TurnStart {
    let mut start = start();
    let manifest = json!({"manifestSchemaVersion": 4, "id": "bot", "capabilities": capabilities});
    start.checkpoint.manifest_hash = manifest_hash(&manifest);
    start.manifest = Arc::new(manifest.clone());
    start.routing.root_manifest = Arc::new(manifest);
    start.routing.sandbox =
        Some(SandboxRoute { owner_id: SessionId::from("owner"), sandbox_id: None, spec: None });
    start
}

fn engine() -> AgentEngine {
    engine_with(vec![Arc::new(SandboxTools)])
}

/// A run that may use workspaces, and what they are told.
fn served() -> (Rc<Link>, Arc<FakeWorkspaces>, Arc<Heard>) {
    let (link, manager, heard) =
        (Link::new(), FakeWorkspaces::of("tn_test".into()), Arc::new(Heard::default()));
    let (manager_, claims): (Arc<dyn WorkspaceManager>, Arc<dyn Claims>) = (manager.clone(), heard.clone());
    *link.workspaces.borrow_mut() = Some(RunWorkspaces { manager: manager_, claims });
    *link.tool.borrow_mut() = Ok(IntentAnswer::Execute { rejoin: false });
    (link, manager, heard)
}

fn bash(command: &str) -> Model {
    calls_with("bash", json!({"command": command}))
}

fn read() -> Model {
    calls_with("read", json!({"path": "a"}))
}

/// What the model was told of the first call.
fn told(output: &TurnOutput) -> Json {
    output.transcript.as_ref().unwrap()[0].entries[2]["results"][0].clone()
}

#[tokio::test]
async fn a_call_works_in_the_workspace_of_the_sessions_owner_for_this_turn() {
    let (link, manager, heard) = served();
    script(vec![bash("echo"), says("done")]);
    let output = output(engine().run(grant("r"), with(json!([sandbox()])), link.clone()).await);
    assert_eq!(output.status, Some(OutputStatus::Completed));
    assert_eq!(told(&output)["output"], json!({"exitCode": 0, "stdout": "echo", "stderr": ""}));
    let value = match &link.reports.borrow()[1].1 {
        EffectReport::Value(value) => Arc::clone(value),
        EffectReport::Error(text) => panic!("{text}"),
    };
    assert_eq!(value["kind"], "completed", "the effect's value is a tagged outcome");
    assert_eq!(*heard.0.lock().unwrap(), ["owner T creating", "owner T running", "owner T bash"]);
    assert_eq!(manager.keys().len(), 1);
}

#[tokio::test]
async fn without_anybody_who_serves_workspaces_the_tool_fails_and_the_turn_goes_on() {
    let (link, _, _) = served();
    *link.workspaces.borrow_mut() = None;
    script(vec![bash("echo"), says("done")]);
    let output = output(engine().run(grant("r"), with(json!([sandbox()])), link).await);
    assert_eq!(output.status, Some(OutputStatus::Completed));
    assert_eq!(told(&output)["code"], "sandbox.unavailable");
}

#[tokio::test]
async fn a_sub_agents_tools_work_in_the_same_workspace() {
    let (link, manager, heard) = served();
    let child =
        json!({"manifestSchemaVersion": 4, "id": "child", "description": "d", "capabilities": [sandbox()]});
    let task = json!({"type": "object", "properties": {"task": {"type": "string", "minLength": 1}},
        "required": ["task"], "additionalProperties": false});
    let tool = json!({"name": "child", "description": "d", "inputSchema": task, "agent": child});
    let root = json!([{"id": "agent", "type": "agent", "tools": [tool]}, sandbox()]);
    let write = calls_with("write", json!({"path": "a", "content": "of the child"}));
    script(vec![calls_with("child", json!({"task": "t"})), write, says("written"), read(), says("done")]);
    let output = output(engine().run(grant("r"), with(root), link).await);
    assert_eq!(output.status, Some(OutputStatus::Completed), "{output:?}");
    assert_eq!(output.transcript.as_ref().unwrap()[0].entries[4]["results"][0]["output"], "of the child");
    assert_eq!(manager.keys().len(), 1);
    assert_eq!(heard.0.lock().unwrap()[2..], ["owner T write", "owner T read"]);
}

#[tokio::test]
async fn a_tool_of_the_same_name_without_a_sandbox_is_not_run_here() {
    let (link, manager, _) = served();
    let tool = json!({"name": "bash", "description": "d", "inputSchema": {"type": "object"}});
    let root = json!([{"id": "agent", "type": "agent", "tools": [tool]}]);
    script(vec![bash("echo"), says("done")]);
    let output = output(engine().run(grant("r"), with(root), link).await);
    assert_eq!(told(&output)["code"], "tool.execution-failed");
    assert!(manager.keys().is_empty());
}

#[tokio::test]
async fn a_tool_that_writes_and_broke_is_uncertain_one_that_reads_has_failed_and_one_that_never_began_too() {
    let run = async |model: Model, code: ApiCode| {
        let (link, _, heard) = served();
        let manager: Arc<dyn WorkspaceManager> = Arc::new(Broken(code));
        *link.workspaces.borrow_mut() = Some(RunWorkspaces { manager, claims: heard });
        script(vec![model, says("done")]);
        let output = output(engine().run(grant("r"), with(json!([sandbox()])), link.clone()).await);
        let errors = link.errors();
        (output, errors)
    };
    let write = calls_with("write", json!({"path": "a", "content": ""}));
    let edit = calls_with("edit", json!({"path": "a", "old_string": "a", "new_string": "b"}));
    for writes in [bash("x"), write, edit] {
        let (output, errors) = run(writes, ApiCode::Internal).await;
        assert_eq!((output.status, errors), (Some(OutputStatus::Uncertain), vec!["broken".to_owned()]));
    }
    let grep = calls_with("grep", json!({"pattern": "a"}));
    let glob = calls_with("glob", json!({"pattern": "a"}));
    for reads in [read(), grep, glob] {
        let (output, errors) = run(reads, ApiCode::Internal).await;
        assert_eq!((told(&output)["code"].as_str(), errors.len()), (Some("sandbox.error"), 0));
    }
    let (output, errors) = run(bash("x"), ApiCode::Unavailable).await;
    assert_eq!((told(&output)["code"].as_str(), errors.len()), (Some("sandbox.unavailable"), 0));
}

/// Runs until `kind` fires a moment in: how it ended, and how many calls were given up.
async fn stopped(command: &str, kind: AbortKind) -> (RunEnd, Rc<Link>, usize) {
    let (link, manager, _) = served();
    script(vec![bash(command), says("done")]);
    let engine = engine();
    let run = engine.run(grant("r"), with(json!([sandbox()])), link.clone());
    let fire = async {
        tokio::time::sleep(tokio::time::Duration::from_millis(500)).await;
        link.abort_with(kind);
    };
    let (end, ()) = futures_util::join!(run, fire);
    (end, link, manager.given_up())
}

#[tokio::test(start_paused = true)]
async fn a_cancel_gives_the_command_up_at_once() {
    let began = Instant::now();
    let (end, link, given_up) = stopped("wait", AbortKind::Cancel).await;
    assert_eq!(output(end).status, Some(OutputStatus::Cancelled));
    assert_eq!((given_up, link.errors()), (1, vec!["stop".to_owned()]));
    assert_eq!(began.elapsed().as_millis(), 500);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_gives_the_command_up_and_reports_nothing() {
    let (end, link, given_up) = stopped("wait", AbortKind::OwnershipLost).await;
    assert_eq!(end, RunEnd::Released(AbortKind::OwnershipLost));
    assert_eq!((given_up, link.errors().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_leaves_a_command_a_moment_to_end_and_its_outcome_counts() {
    let (end, link, given_up) = stopped("wait a second", AbortKind::Shutdown).await;
    assert_eq!(end, RunEnd::Released(AbortKind::Shutdown));
    assert_eq!((given_up, link.errors().len()), (0, 0));
    assert!(
        matches!(&link.reports.borrow()[1].1, EffectReport::Value(value) if value["kind"] == "completed")
    );

    let began = Instant::now();
    let (end, link, given_up) = stopped("wait", AbortKind::Shutdown).await;
    assert_eq!(end, RunEnd::Released(AbortKind::Shutdown));
    assert_eq!((given_up, link.errors()), (1, vec!["stop".to_owned()]));
    assert_eq!(began.elapsed().as_millis(), 500 + 3_000);
}
