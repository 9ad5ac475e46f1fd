//! Agents as tools: their life, ids and contexts, and what their ends mean for the caller.

use super::*;
use crate::engine::agent::delegate::EVIDENCE_CHARS;

/// The delegation's id: the caller's invocation.
const D: &str = "invocation_T_0_2";
/// Stands before each counted id of the child.
const CHILD: &str = "T_0_invocation_T_0_2";

fn task(id: &str, agent: &str, task: &str) -> (String, String, Json) {
    (id.to_owned(), agent.to_owned(), json!({"task": task}))
}

/// The root's model calls these agents.
fn delegates(session: &Session, list: &[(String, String, Json)]) {
    let list: Vec<_> =
        list.iter().map(|(id, name, args)| (id.as_str(), name.as_str(), args.clone())).collect();
    session.journal.says(calls(&list));
}

/// Lets the finder do what it does and the root end; the result that the root's model reads.
fn result(session: &mut Session) -> Json {
    delegates(session, &[task("c1", "finder", "find it")]);
    session.journal.says(text("done"));
    session.settle(OutputStatus::Completed);
    session.entries[2]["results"][0].clone()
}

#[test]
fn a_childs_effects_carry_its_name_and_stand_between_the_points_of_its_life() {
    let mut session = Session::delegating(json!({}));
    session.checkpoint.info = json!({"user": "ada"}).as_object().cloned();
    session.journal.tool("look", Does::Patches(json!("seen"), json!({"looked": true})));
    session.journal.child_says("finder", calls(&[("k1", "look", json!({"at": 1}))]));
    session.journal.child_says("finder", text("It is here."));
    let result = result(&mut session);
    assert_eq!(
        result,
        json!({"callId": "c1", "toolName": "finder", "kind": "completed", "output": "It is here."})
    );
    let (first, look, second) = (1, 2, 3);
    assert_eq!(
        session.journal.ids(),
        [
            "T:0:model:invocation_T_0_1".to_owned(),
            format!("T:0:delegation:{D}:started"),
            format!("T:0:model:{D}/invocation_{CHILD}_{first}"),
            format!("T:0:tool:{D}/invocation_{CHILD}_{look}"),
            format!("T:0:model:{D}/invocation_{CHILD}_{second}"),
            format!("T:0:delegation:{D}:settled"),
            "T:0:model:invocation_T_0_3".to_owned(),
        ]
    );
    for id in &session.journal.ids()[1..6] {
        let intent = session.journal.effect(id).intent;
        assert_eq!(
            serde_json::to_value(&intent.agent).unwrap(),
            json!({"id": "finder", "path": "bot/finder", "delegationId": D}),
            "{id}"
        );
        assert_eq!(
            (intent.agent_id.as_str(), &intent.manifest_hash),
            ("bot", &session.definition.hash),
            "{id}"
        );
    }
    let started = session.journal.effect(&format!("T:0:delegation:{D}:started"));
    assert_eq!(started.intent.input.as_deref(), Some(&json!({"task": "find it"})));
    assert_eq!(Json::Object(started.intent.context.clone()), json!({"callId": "c1"}));
    assert_eq!(started.request_hash, nylorun_actors::model::canonical::request_hash(&started.intent));
    let settled = session.journal.effect(&format!("T:0:delegation:{D}:settled")).intent;
    assert_eq!(
        settled.input.as_deref(),
        Some(&json!({"status": "completed", "outcome": {"kind": "completed", "output": "It is here."}}))
    );
    let tool = session.journal.effect(&format!("T:0:tool:{D}/invocation_{CHILD}_{look}"));
    assert_eq!(
        Json::Object(tool.intent.context.clone()),
        json!({"executionId": format!("s-1/{D}"), "turnId": format!("turn_{CHILD}_1"), "stepId": format!("step_{CHILD}_1"),
            "callId": "k1", "invocationId": format!("invocation_{CHILD}_{look}"), "idempotencyKey": format!("{D}/k1"),
            "info": {"user": "ada"}, "state": {}})
    );
    let child = session.definition.toolset(&[]).unwrap().get("finder").unwrap().agent.clone().unwrap();
    assert_eq!(tool.manifest, Some(child.manifest.clone()), "who runs its tools looks into its manifest");
    assert_eq!(
        session.checkpoint.state.as_deref().unwrap()["state"],
        json!({}),
        "its memory is its own and is gone"
    );
}

#[test]
fn a_child_begins_with_its_task_and_its_transcript_is_nobody_elses() {
    let mut session = Session::delegating(json!({}));
    session.journal.child_says("finder", text("Here."));
    result(&mut session);
    let id = format!("T:0:model:{D}/invocation_{CHILD}_1");
    let effect = session.journal.effect(&id);
    let call = effect.call.clone().unwrap();
    let said: Vec<_> = call.prompt.iter().map(|item| item["content"][0]["text"].clone()).collect();
    assert_eq!(said, [json!("You are finder."), json!("find it")]);
    let offered: Vec<_> = call.tools.iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(offered, [json!("look"), json!("ask")]);
    assert_eq!(call.execution_id, format!("s-1/{D}"));
    assert_eq!(
        Json::Object(effect.intent.context.clone()),
        json!({"invocationId": format!("invocation_{CHILD}_1")})
    );
    let mut whole = effect.intent.clone();
    whole.input = Some(Arc::new(call.to_json()));
    assert_eq!(effect.request_hash, nylorun_actors::model::canonical::request_hash(&whole));
    assert_eq!(session.kinds(), ["input", "candidate", "tool-results", "candidate", "final"]);
    assert!(session.entries.iter().all(|entry| entry["turnId"] == "turn_T_0_1"));
}

#[test]
fn session_tools_that_name_the_child_are_the_childs() {
    let mut session = Session::delegating(json!({}));
    session.session_tools = vec![
        json!({"agentId": "finder", "capabilityId": "agent", "name": "gh__list", "inputSchema": {}}),
        json!({"agentId": "bot", "capabilityId": "agent", "name": "db__read", "inputSchema": {}}),
        json!({"capabilityId": "agent", "name": "db__write", "inputSchema": {}}),
    ];
    session.journal.child_says("finder", text("Here."));
    result(&mut session);
    let offered = |id: &str| {
        let call = session.journal.effect(id).call.unwrap();
        call.tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(offered(&format!("T:0:model:{D}/invocation_{CHILD}_1")), ["look", "ask", "gh__list"]);
    let root = offered("T:0:model:invocation_T_0_1");
    assert_eq!(root, ["add", "get", "ask", "finder", "writer", "db__read", "db__write"]);
}

#[test]
fn a_structured_answer_of_a_child_is_json_for_the_caller() {
    let mut session = Session::delegating(json!({"outputSchema": {"type": "object", "required": ["at"]}}));
    session.journal.child_says("finder", json!({"output": [{"type": "json", "value": {"at": 7}}]}));
    assert_eq!(result(&mut session)["output"], json!({"at": 7}));
}

#[test]
fn an_output_that_looks_like_an_outcome_is_an_output() {
    let mut session = Session::delegating(json!({"outputSchema": {"type": "object"}}));
    let value = json!({"kind": "failed", "code": "x", "message": "y"});
    session.journal.child_says("finder", json!({"output": [{"type": "json", "value": value}]}));
    let result = result(&mut session);
    assert_eq!((&result["kind"], &result["output"]), (&json!("completed"), &value));
}

#[test]
fn a_blank_answer_is_a_failure() {
    for blank in [text(""), text(" \n"), json!({"output": []})] {
        let mut session = Session::delegating(json!({}));
        session.journal.child_says("finder", blank);
        assert_eq!(result(&mut session)["code"], "delegation.empty-output");
        let settled = session.journal.effect(&format!("T:0:delegation:{D}:settled")).intent.input.unwrap();
        assert_eq!(
            (&settled["status"], &settled["outcome"]["code"]),
            (&json!("failed"), &json!("delegation.empty-output"))
        );
    }
    let mut session = Session::delegating(json!({"outputSchema": {}}));
    session.journal.child_says("finder", json!({"output": [{"type": "json", "value": null}]}));
    assert_eq!(result(&mut session)["code"], "delegation.empty-output");
}

#[test]
fn a_failed_child_names_its_code_and_its_last_text_as_evidence() {
    let mut session = Session::delegating(json!({}));
    session.journal.tool("look", Does::Answers(json!("seen")));
    let long = "ä".repeat(EVIDENCE_CHARS + 1);
    session.journal.child_says(
        "finder",
        json!({"output": [{"type": "text", "text": long}, {"type": "tool-call", "id": "k", "name": "look", "args": {}}]}),
    );
    session.journal.child_says(
        "finder",
        json!({"kind": "failed", "code": "overloaded", "message": "busy", "retryable": true}),
    );
    let result = result(&mut session);
    assert_eq!(result["code"], "delegation.failed");
    let message = result["message"].as_str().unwrap();
    let (head, tail) = message.split_once("\n\n").unwrap();
    assert_eq!(head, "Agent finder failed with model.overloaded: busy");
    assert!(tail.starts_with("Evidence, not an answer; its last text:\nää"), "{tail}");
    assert_eq!(tail.chars().filter(|c| *c == 'ä').count(), EVIDENCE_CHARS);
    assert!(tail.ends_with('…'));
}

#[test]
fn what_failed_inside_the_engine_is_named_without_its_text() {
    let mut session = Session::delegating(json!({}));
    session.journal.child("finder", Does::Fails(PortError::Refused("a secret of the store".to_owned())));
    assert_eq!(result(&mut session)["message"], "Agent finder failed with execution.failed");
}

#[test]
fn a_child_that_cannot_begin_is_a_failure_with_both_points_of_its_life() {
    let servers = json!([{"id": "x", "type": "agent", "mcpServers": {"s": {"name": "s", "type": "sse", "url": "http://127.0.0.1/"}}}]);
    let mut refused = Session::delegating(json!({"capabilities": servers}));
    let mut twice = Session::delegating(json!({}));
    twice.session_tools =
        vec![json!({"agentId": "finder", "capabilityId": "agent", "name": "look", "inputSchema": {}})];
    let mut malformed = Session::delegating(json!({}));
    malformed.session_tools = vec![json!({"agentId": "finder", "capabilityId": "agent", "name": "x"})];
    for (session, code) in [
        (&mut refused, "execution.failed"),
        (&mut twice, "configuration.duplicate-tool-name"),
        (&mut malformed, "configuration.invalid"),
    ] {
        assert_eq!(result(session)["code"], code);
        let ids = session.journal.ids();
        assert_eq!(ids[1..3], [format!("T:0:delegation:{D}:started"), format!("T:0:delegation:{D}:settled")]);
    }
}

#[test]
fn what_would_wait_inside_a_child_is_a_failed_result_and_the_child_goes_on() {
    let deferred = json!({"kind": "deferred", "token": 1, "wait": {"kind": "sleep", "waitId": "w"}});
    for asks in [question("approval"), question("response"), Does::Answers(deferred)] {
        let mut session = Session::delegating(json!({}));
        session.journal.tool("ask", asks);
        session.journal.tool("look", Does::Answers(json!("seen")));
        session.journal.child_says("finder", calls(&[("k1", "ask", json!({})), ("k2", "look", json!({}))]));
        session.journal.child_says("finder", text("Without it."));
        assert_eq!(result(&mut session)["output"], "Without it.");
        let call = session.journal.effect(&format!("T:0:model:{D}/invocation_{CHILD}_4")).call.unwrap();
        let told: Vec<_> = call.prompt.iter().filter(|item| item["kind"] == "tool-result").collect();
        assert!(
            told[0]["content"][0]["text"].as_str().unwrap().contains("delegation.interaction-unsupported")
        );
        assert_eq!(told[1]["content"][0]["text"], "\"seen\"");
    }
}

#[test]
fn an_approval_that_a_childs_hook_wants_is_a_failed_result_too() {
    let hooks = json!([{"at": "before", "scope": "turn"}, {"at": "after", "scope": "step"}]);
    let tools = json!([{"name": "look", "inputSchema": {"type": "object"}}]);
    let guard = json!([{"id": "guard", "type": "agent", "tools": tools, "hooks": hooks}]);
    let mut session = Session::delegating(json!({"capabilities": guard}));
    let approve = json!({"approve": [{"id": "k1", "prompt": "Sure?"}]});
    session.journal.guard("finder/after-step", &[approve, json!({})]);
    session.journal.tool("look", Does::Answers(json!("seen")));
    session.journal.child_says("finder", calls(&[("k1", "look", json!({})), ("k2", "look", json!({}))]));
    session.journal.child_says("finder", text("Half of it."));
    assert_eq!(result(&mut session)["output"], "Half of it.");
    let ids = session.journal.ids();
    assert_eq!(ids[2], format!("T:0:hook:{D}/before-turn"));
    assert_eq!(ids[4], format!("T:0:hook:{D}/after-step:step_{CHILD}_1"));
    assert_eq!(ids[5], format!("T:0:tool:{D}/invocation_{CHILD}_3"), "only the call that needs nobody runs");
    let hook = session.journal.effect(&ids[2]).intent;
    assert_eq!(
        (hook.input.unwrap()["input"].clone(), hook.agent.unwrap().id),
        (json!("find it"), "finder".to_owned())
    );
}

#[test]
fn several_delegations_of_one_answer_run_at_the_same_time() {
    let session = Session::delegating(json!({}));
    delegates(&session, &[task("c1", "finder", "a"), task("c2", "writer", "b"), task("c3", "finder", "c")]);
    session.journal.tool("look", Does::Waits);
    for child in ["finder", "writer", "finder"] {
        session.journal.child_says(child, calls(&[("k", "look", json!({}))]));
    }
    let (ids, uncertain) = suspended(session.run());
    let look = |d: u32| format!("T:0:tool:invocation_T_0_{d}/invocation_T_0_invocation_T_0_{d}_2");
    assert_eq!((ids, uncertain), (vec![look(2), look(3), look(4)], false), "each has come to its own call");
}

#[test]
fn a_suspension_inside_a_child_suspends_the_caller_and_replays() {
    let session = Session::delegating(json!({}));
    delegates(&session, &[task("c1", "finder", "a"), task("c2", "writer", "b")]);
    session.journal.tool("look", Does::Waits);
    session.journal.child_says("finder", calls(&[("k", "look", json!({}))]));
    session.journal.child_says("writer", text("Written."));
    let first = session.run();
    let (ids, _) = suspended(first.clone());
    assert_eq!(ids, [format!("T:0:tool:{D}/invocation_{CHILD}_2")]);
    let executed = session.journal.executed();
    assert!(
        executed.contains(&"T:0:delegation:invocation_T_0_3:settled".to_owned()),
        "the other came to its end"
    );
    assert_eq!(session.run(), first);
    assert_eq!(session.journal.executed(), executed, "a replay executes nothing");
    session.journal.record(&ids[0], json!("seen"));
    session.journal.child_says("finder", text("Found."));
    session.journal.says(text("done"));
    let end = ended(session.run());
    let results = &end.edits[0].entries[2]["results"];
    assert_eq!((&results[0]["output"], &results[1]["output"]), (&json!("Found."), &json!("Written.")));
    let lost = Session::delegating(json!({}));
    delegates(&lost, &[task("c1", "finder", "a")]);
    lost.journal.child("finder", Does::IsLost);
    assert!(suspended(lost.run()).1, "of unknown fate inside is of unknown fate outside");
}

#[test]
fn a_child_does_not_roll_over_and_its_steps_are_not_the_callers() {
    let mut session = Session::delegating(json!({}));
    session.yield_after = Some(YieldAfter { steps: Some(1), ms: Some(0) });
    session.journal.tool("look", Does::Answers(json!("seen")));
    for n in 0..5 {
        session.journal.child_says("finder", calls(&[(&format!("k{n}"), "look", json!({}))]));
    }
    session.journal.child_says("finder", text("Here."));
    delegates(&session, &[task("c1", "finder", "a")]);
    session.settle(OutputStatus::Yielded);
    assert_eq!(session.entries[2]["results"][0]["output"], "Here.");
}

#[test]
fn a_cancel_reaches_every_child_and_their_calls_are_cancelled() {
    let mut session = Session::delegating(json!({}));
    delegates(&session, &[task("c1", "finder", "a"), task("c2", "writer", "b")]);
    for child in ["finder", "writer"] {
        session.journal.child(child, Does::Fails(PortError::Aborted(abort(AbortKind::Cancel))));
    }
    let end = session.settle(OutputStatus::Cancelled);
    let results = &session.last()["results"];
    assert_eq!(
        (&results[0]["code"], &results[1]["code"]),
        (&json!("tool.cancelled"), &json!("tool.cancelled"))
    );
    assert_eq!(end.state.cancelled_calls.unwrap().len(), 2);

    let mut session = Session::delegating(json!({}));
    delegates(&session, &[task("c1", "finder", "a")]);
    session.journal.tool("look", Does::Answers(json!("seen")));
    session.journal.child_says("finder", calls(&[("k", "look", json!({}))]));
    session.journal.abort_at.set(Some(4));
    session.settle(OutputStatus::Cancelled);
    assert_eq!(
        session.journal.ids().len(),
        4,
        "between two steps of a child it is seen before the next model call"
    );
}

#[test]
fn a_drift_or_a_lost_run_inside_a_child_is_the_segments() {
    let session = Session::delegating(json!({}));
    delegates(&session, &[task("c1", "finder", "a")]);
    session.journal.child("finder", Does::Fails(PortError::Drift("d".to_owned())));
    assert_eq!(error_code(&ended(session.run())), "effect_drift");
    let session = Session::delegating(json!({}));
    delegates(&session, &[task("c1", "finder", "a")]);
    session.journal.child("finder", Does::Fails(PortError::Lost(AbortKind::OwnershipLost)));
    assert_eq!(session.run(), SegmentEnd::Lost(AbortKind::OwnershipLost));
}

#[test]
fn a_delegation_that_a_person_must_allow_runs_in_the_next_segment_under_the_same_delegation_id() {
    let mut session = Session::delegating(json!({}));
    let mut manifest = session.definition.manifest.as_ref().clone();
    manifest["capabilities"][0]["hooks"] = json!([{"at": "after", "scope": "step"}]);
    session.define(manifest);
    let approve = json!({"results": {"agent": {"approve": [{"id": "c1", "prompt": "Hire?"}]}}});
    let answers = VecDeque::from([Does::Answers(approve), Does::Answers(json!({"results": {}}))]);
    session.journal.hooks.borrow_mut().insert("after-step".to_owned(), answers);
    delegates(&session, &[task("c1", "finder", "a")]);
    session.settle(OutputStatus::Paused);
    session
        .next(json!({"kind": "approve", "interactionId": format!("T:0:interaction:{D}"), "approved": true}));
    session.journal.child_says("finder", text("Here."));
    session.journal.says(text("done"));
    session.settle(OutputStatus::Completed);
    let ids = session.journal.ids();
    assert_eq!(ids[2], format!("T:1:delegation:{D}:started"));
    assert_eq!(ids[3], format!("T:1:model:{D}/invocation_T_1_{D}_1"));
}
