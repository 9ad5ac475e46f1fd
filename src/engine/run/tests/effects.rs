//! Effects over the link: declared, executed, held, recorded.

use super::*;

const MODEL: &str = "T:0:model:invocation_T_0_1";
const TOOL: &str = "T:0:tool:invocation_T_0_2";

#[tokio::test]
async fn a_models_prompt_stays_here_and_its_value_is_reported() {
    let link = Link::new();
    script(vec![says("Hi.")]);
    let output = output(engine().run(grant("r"), start(), link.clone()).await);
    assert_eq!(output.status, Some(OutputStatus::Completed));
    assert_eq!(output.output.as_deref(), Some(&json!("Hi.")));
    assert_eq!(output.state.as_deref().unwrap()["transcript"], json!([]));
    assert_eq!(output.transcript.as_deref().unwrap()[0].length, 3);
    assert_eq!(link.ids(), [MODEL]);
    assert_eq!(link.intents.borrow()[0].input, None);
    assert!(matches!(&link.reports.borrow()[0], (id, EffectReport::Value(_)) if id == MODEL));
    assert_eq!((link.previews.get(), link.reads.get()), (1, 0));
}

#[tokio::test]
async fn recorded_outcomes_ask_core_nothing_and_a_wrong_hash_is_a_drift() {
    let link = Link::new();
    script(vec![says("Hi.")]);
    let first = engine().run(grant("r"), start(), link.clone()).await;
    let mut again = start();
    again.outcomes = vec![recorded(&link, MODEL, json!({"output": [{"type": "text", "text": "Hi."}]}))];
    let quiet = Link::new();
    assert_eq!(engine().run(grant("r"), again.clone(), quiet.clone()).await, first);
    assert!(quiet.ids().is_empty() && quiet.reports.borrow().is_empty());

    again.outcomes[0].request_hash = "0".repeat(64);
    let drifted = output(engine().run(grant("r"), again, quiet.clone()).await);
    assert_eq!(drifted.status, Some(OutputStatus::Failed));
    assert_eq!(drifted.error.unwrap()["code"], "effect_drift");
}

#[tokio::test]
async fn without_a_hold_a_pending_action_ends_the_segment_and_its_outcome_finishes_it_by_replay() {
    let link = Link::new();
    script(vec![calls("act")]);
    let mut once = start();
    once.options.hold_ms = Some(0);
    let waiting = output(engine().run(grant("r"), once.clone(), link.clone()).await);
    assert_eq!(waiting.status, Some(OutputStatus::Waiting));
    assert_eq!(waiting.effect_ids.as_deref(), Some(&[TOOL.to_owned()][..]));
    assert!(waiting.state.is_none() && waiting.transcript.is_none());

    let call = json!({"output": [{"type": "tool-call", "id": "c1", "name": "act", "args": {}}]});
    once.outcomes = vec![recorded(&link, MODEL, call), recorded(&link, TOOL, json!("acted"))];
    let again = Link::new();
    script(vec![says("done")]);
    let done = output(engine().run(grant("r2"), once, again.clone()).await);
    assert_eq!(done.status, Some(OutputStatus::Completed));
    assert_eq!(again.ids(), ["T:0:model:invocation_T_0_3"]);
}

#[tokio::test(start_paused = true)]
async fn a_held_action_that_resolves_goes_on_in_the_same_run() {
    let link = Link::new();
    script(vec![calls("act"), says("done")]);
    let (sender, receiver) = oneshot::channel();
    link.resolved.borrow_mut().insert(TOOL.to_owned(), receiver);
    let engine = engine();
    let run = engine.run(grant("r"), start(), link.clone());
    let resolve = async {
        tokio::time::sleep(tokio::time::Duration::from_secs(200)).await;
        sender.send(Outcome { value: Arc::new(json!("acted")), state_patch: None }).unwrap();
    };
    let (end, ()) = futures_util::join!(run, resolve);
    let output = output(end);
    assert_eq!(output.status, Some(OutputStatus::Completed));
    assert_eq!(link.ids().len(), 3);
    let results = &output.transcript.unwrap()[0].entries[2]["results"];
    assert_eq!(results[0]["output"], "acted");
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_an_action_that_is_held_or_suspends_the_segment() {
    let hook = "T:0:hook:before-turn";
    let mut hooked = start();
    let mut manifest = hooked.manifest.as_ref().clone();
    manifest["capabilities"][0]["hooks"] = json!([{"at": "before", "scope": "turn"}]);
    hooked.checkpoint.manifest_hash = manifest_hash(&manifest);
    hooked.manifest = Arc::new(manifest);

    let link = Link::new();
    script(vec![says("done")]);
    let (sender, receiver) = oneshot::channel();
    link.resolved.borrow_mut().insert(hook.to_owned(), receiver);
    let engine = engine();
    let run = engine.run(grant("r"), hooked.clone(), link.clone());
    let resolve = async {
        tokio::time::sleep(tokio::time::Duration::from_secs(200)).await;
        sender.send(Outcome { value: Arc::new(json!({"results": {}})), state_patch: None }).unwrap();
    };
    let (end, ()) = futures_util::join!(run, resolve);
    assert_eq!(output(end).status, Some(OutputStatus::Completed));
    assert_eq!(link.ids(), [hook, MODEL]);

    let waiting = output(engine.run(grant("r"), hooked.clone(), Link::new()).await);
    assert_eq!(waiting.status, Some(OutputStatus::Waiting));
    assert_eq!(waiting.effect_ids.as_deref(), Some(&[hook.to_owned()][..]));
    hooked.outcomes = vec![recorded(&link, hook, json!({"results": {}}))];
    script(vec![says("done")]);
    assert_eq!(
        output(engine.run(grant("r"), hooked, Link::new()).await).status,
        Some(OutputStatus::Completed)
    );
}

#[tokio::test(start_paused = true)]
async fn a_value_beside_a_held_action_is_reported_at_once_and_a_lone_one_travels() {
    let local = Arc::new(Local::default());
    local.answers.lock().unwrap().push(Ok(json!(7)));
    let link = Link::new();
    *link.deferred.borrow_mut() = Some(Vec::new());
    let call = |id: &str, name: &str| json!({"type": "tool-call", "id": id, "name": name, "args": {}});
    script(vec![Model::Says(json!({"output": [call("c1", "local"), call("c2", "act")]}))]);
    let engine = engine_with(vec![local]);
    let run = engine.run(grant("r"), start(), link.clone());
    let look = async {
        tokio::time::sleep(tokio::time::Duration::from_secs(1)).await;
        assert_eq!(link.reports.borrow()[0].0, TOOL, "the Action is held for minutes");
    };
    let (end, ()) = futures_util::join!(run, look);
    assert_eq!(output(end).status, Some(OutputStatus::Waiting));
    assert_eq!(link.deferred.borrow().as_deref(), Some(&[MODEL.to_owned()][..]));
}

#[tokio::test(start_paused = true)]
async fn a_hold_ends_after_its_time_and_never_outlasts_the_segment() {
    for (hold, segment, lasts) in [(300_000, 1_200_000, 300), (300_000, 60_000, 60)] {
        let link = Link::new();
        script(vec![calls("act")]);
        let mut start = start();
        start.options.hold_ms = Some(hold);
        start.options.yield_after = Some(YieldAfter { steps: None, ms: Some(segment) });
        let began = Instant::now();
        let waiting = output(engine().run(grant("r"), start, link).await);
        assert_eq!(waiting.status, Some(OutputStatus::Waiting));
        assert_eq!(began.elapsed().as_secs(), lasts);
    }
}

#[tokio::test]
async fn an_uncertain_answer_ends_the_segment_as_uncertain_at_once() {
    let link = Link::new();
    *link.tool.borrow_mut() = Ok(IntentAnswer::Uncertain);
    script(vec![calls("act")]);
    let end = output(engine().run(grant("r"), start(), link).await);
    assert_eq!((end.status, end.effect_ids.map(|ids| ids.len())), (Some(OutputStatus::Uncertain), Some(1)));
}

#[tokio::test]
async fn a_tool_of_the_harness_runs_in_its_executor() {
    let local = Arc::new(Local::default());
    local.answers.lock().unwrap().push(Ok(json!({"kind": "completed", "output": 7})));
    let link = Link::new();
    *link.tool.borrow_mut() = Ok(IntentAnswer::Execute { rejoin: false });
    script(vec![calls("local"), says("done")]);
    let output = output(engine_with(vec![local]).run(grant("r"), start(), link.clone()).await);
    assert_eq!(output.transcript.unwrap()[0].entries[2]["results"][0]["output"], 7);
    assert_eq!(link.reports.borrow()[1].0, TOOL);
}

#[tokio::test]
async fn a_tool_that_nobody_here_runs_is_reported_as_failed_and_told_to_the_model() {
    let link = Link::new();
    *link.tool.borrow_mut() = Ok(IntentAnswer::Execute { rejoin: false });
    script(vec![calls("act"), says("done")]);
    let output = output(engine().run(grant("r"), start(), link).await);
    assert_eq!(output.transcript.unwrap()[0].entries[2]["results"][0]["code"], "tool.execution-failed");
}

#[tokio::test]
async fn a_refused_value_is_followed_by_an_error_and_never_sent_again() {
    let link = Link::new();
    *link.refuses_values.borrow_mut() = Some(ApiError::new(ApiCode::Internal, "store"));
    script(vec![says("Hi.")]);
    let end = output(engine().run(grant("r"), start(), link.clone()).await);
    assert_eq!(end.status, Some(OutputStatus::Uncertain));
    assert_eq!(link.errors(), ["store"]);
    assert_eq!(link.reports.borrow().len(), 2);
}

#[tokio::test]
async fn refusals_of_core_mean_what_their_code_says() {
    let run = async |code: ApiCode| {
        let link = Link::new();
        *link.tool.borrow_mut() = Err(ApiError::new(code, "no"));
        script(vec![calls("act"), says("done")]);
        engine().run(grant("r"), start(), link).await
    };
    assert_eq!(run(ApiCode::OwnershipLost).await, RunEnd::Released(AbortKind::OwnershipLost));
    assert_eq!(run(ApiCode::RunNotHeld).await, RunEnd::Released(AbortKind::OwnershipLost));
    assert_eq!(run(ApiCode::Unavailable).await, RunEnd::Released(AbortKind::Shutdown));
    assert_eq!(output(run(ApiCode::TurnCancelled).await).status, Some(OutputStatus::Cancelled));
    assert_eq!(output(run(ApiCode::EffectDrift).await).error.unwrap()["code"], "effect_drift");
    for code in [ApiCode::Invalid, ApiCode::Internal] {
        let told = output(run(code).await).transcript.unwrap()[0].entries[2].clone();
        assert_eq!(told["results"][0]["code"], "tool.execution-failed");
    }
}

#[tokio::test]
async fn flows_and_manifests_of_another_hash_are_incompatible() {
    let mut flow = start();
    flow.engine = EngineKind::Flow;
    assert_eq!(thrown(engine().run(grant("r"), flow, Link::new()).await), "execution.incompatible");
    let engine = engine();
    script(vec![says("Hi.")]);
    output(engine.run(grant("r"), start(), Link::new()).await);
    let mut other = start();
    let mut manifest = other.manifest.as_ref().clone();
    manifest["name"] = json!("other");
    other.manifest = Arc::new(manifest);
    assert_eq!(thrown(engine.run(grant("r"), other, Link::new()).await), "execution.incompatible");
}
