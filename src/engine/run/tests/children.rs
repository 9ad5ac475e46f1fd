//! Agents used as tools over the link: what a cancel does to them, who runs their tools, what observers see.

use std::rc::Weak;

use super::*;

fn delegating(children: &[&str]) -> TurnStart {
    let mut start = start();
    let mut manifest = start.manifest.as_ref().clone();
    let task = json!({"type": "object", "properties": {"task": {"type": "string", "minLength": 1}},
        "required": ["task"], "additionalProperties": false});
    for id in children {
        let child = json!({"manifestSchemaVersion": 4, "id": id, "description": "d", "capabilities": [
            {"id": "agent", "type": "agent", "tools": [{"name": "local", "inputSchema": {}}, {"name": "act", "inputSchema": {}}]}]});
        let tool = json!({"name": id, "description": "d", "inputSchema": task, "agent": child});
        manifest["capabilities"][0]["tools"].as_array_mut().unwrap().push(tool);
    }
    start.checkpoint.manifest_hash = manifest_hash(&manifest);
    start.manifest = Arc::new(manifest.clone());
    start.routing.root_manifest = Arc::new(manifest);
    start
}

fn delegates(children: &[&str]) -> Model {
    let call =
        |id: &&str| json!({"type": "tool-call", "id": format!("c-{id}"), "name": id, "args": {"task": "go"}});
    Model::Says(json!({"output": children.iter().map(call).collect::<Vec<_>>()}))
}

/// A model whose calls by sub-agents go on until they are dropped.
#[derive(Clone)]
struct Spending {
    alive: Rc<RefCell<Vec<Weak<()>>>>,
}

impl ModelAdapter for Spending {
    fn call(&self, call: ModelCall, cx: CallContext) -> LocalBoxFuture<'static, Result<Arc<Json>, Abort>> {
        if cx.child_id.is_none() {
            return Scripted.call(call, cx);
        }
        let spends = Rc::new(());
        self.alive.borrow_mut().push(Rc::downgrade(&spends));
        async move {
            pending::<()>().await;
            drop(spends);
            unreachable!("it never answers")
        }
        .boxed_local()
    }
}

thread_local! {
    static SPENDING: Spending = Spending { alive: Rc::default() };
}

/// The pain of others: "parent aborted, the sub-agent keeps spending for minutes".
#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_model_calls_of_every_child_at_once_and_nothing_is_asked_after_it() {
    let kits: Arc<KitFor> =
        Arc::new(|_, _| Kit { models: Rc::new(SPENDING.with(Spending::clone)), tools: None });
    let engine = AgentEngine::new(EngineConfig::new(kits));
    let alive = SPENDING.with(|spending| Rc::clone(&spending.alive));
    let link = Link::new();
    script(vec![delegates(&["finder", "writer"])]);
    let began = Instant::now();
    let run = engine.run(grant("r"), delegating(&["finder", "writer"]), link.clone());
    let cancel = async {
        tokio::time::sleep(tokio::time::Duration::from_secs(60)).await;
        assert_eq!(alive.borrow().iter().filter(|call| call.upgrade().is_some()).count(), 2, "both talk");
        link.abort_with(AbortKind::Cancel);
    };
    let (end, ()) = futures_util::join!(run, cancel);
    assert_eq!(began.elapsed().as_secs(), 60, "in the instant of the cancel");
    assert!(alive.borrow().iter().all(|call| call.upgrade().is_none()), "the calls are gone, not waited for");
    let output = output(end);
    assert_eq!(output.status, Some(OutputStatus::Cancelled));
    let results = &output.transcript.unwrap()[0].entries[2]["results"];
    assert_eq!(
        (&results[0]["code"], &results[1]["code"]),
        (&json!("tool.cancelled"), &json!("tool.cancelled"))
    );
    // The root's call, the two that began, and the models of both: nothing after the cancel.
    assert_eq!(link.ids().len(), 5, "{:?}", link.ids());
    assert_eq!(link.errors().len(), 2, "core is told that both were cut");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_what_children_hold_and_execute() {
    let link = Link::new();
    // Answers are taken in the order of the calls: the finder's, then the writer's.
    script(vec![delegates(&["finder", "writer"]), calls("act"), calls("local")]);
    let engine = engine_with(vec![Arc::new(Local::default())]);
    let began = Instant::now();
    let run = engine.run(grant("r"), delegating(&["finder", "writer"]), link.clone());
    let cancel = async {
        tokio::time::sleep(tokio::time::Duration::from_secs(10)).await;
        link.abort_with(AbortKind::Cancel);
    };
    let (end, ()) = futures_util::join!(run, cancel);
    assert_eq!(output(end).status, Some(OutputStatus::Cancelled));
    assert_eq!(began.elapsed().as_secs(), 10);
    assert_eq!(link.errors(), ["cut by cancel"], "the tool that ran is reported, the held Action is core's");
}

#[tokio::test(start_paused = true)]
async fn an_action_of_a_child_is_held_and_its_outcome_goes_on_in_the_same_run() {
    let link = Link::new();
    script(vec![delegates(&["finder"]), calls("act"), says("found"), says("done")]);
    let id = "T:0:tool:invocation_T_0_2/invocation_T_0_invocation_T_0_2_2";
    let (sender, receiver) = oneshot::channel();
    link.resolved.borrow_mut().insert(id.to_owned(), receiver);
    let engine = engine();
    let run = engine.run(grant("r"), delegating(&["finder"]), link.clone());
    let resolve = async {
        tokio::time::sleep(tokio::time::Duration::from_secs(200)).await;
        sender.send(Outcome { value: Arc::new(json!("acted")), state_patch: None }).unwrap();
    };
    let (end, ()) = futures_util::join!(run, resolve);
    let output = output(end);
    assert_eq!(output.output.as_deref(), Some(&json!("done")));
    assert_eq!(output.transcript.unwrap()[0].entries[2]["results"][0]["output"], "found");
    assert_eq!(link.previews.get(), 2, "only what the root says is shown while it is written");
}

/// Runs `local`, and keeps the ids of the manifests it was asked about.
#[derive(Default)]
struct Manifests(Mutex<Vec<String>>);

impl ToolExecutor for Manifests {
    fn can(&self, manifest: &Json, tool: &str) -> bool {
        tool == "local" && manifest["id"] == "finder"
    }

    fn run(&self, call: ToolCall) -> LocalBoxFuture<'static, Result<Arc<Json>, String>> {
        let agent = call.intent.agent.as_ref().map_or("", |agent| agent.path.as_str());
        self.0.lock().unwrap().push(format!("{} {agent}", call.manifest["id"].as_str().unwrap()));
        ready(Ok(Arc::new(json!("ran")))).boxed_local()
    }
}

#[tokio::test]
async fn a_tool_of_a_child_is_run_with_the_childs_manifest() {
    let executor = Arc::new(Manifests::default());
    script(vec![delegates(&["finder"]), calls("local"), says("found"), says("done")]);
    let engine = engine_with(vec![executor.clone()]);
    let output = output(engine.run(grant("r"), delegating(&["finder"]), Link::new()).await);
    assert_eq!(output.output.as_deref(), Some(&json!("done")));
    assert_eq!(*executor.0.lock().unwrap(), ["finder bot/finder"]);
}
