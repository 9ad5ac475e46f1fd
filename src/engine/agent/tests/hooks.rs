//! Hooks: what they are told, what their answers do, and that a turn with them replays.

use super::*;

const ALL: [&str; 4] = ["before-turn", "before-step", "after-step", "after-turn"];

pub fn input(session: &Session, id: &str) -> Json {
    session.journal.effect(id).intent.input.as_deref().cloned().unwrap()
}

/// The names of the tools that the n-th model call was offered.
fn offered(session: &Session, n: usize) -> Vec<String> {
    let asked = session.journal.asked.borrow();
    let call = asked.iter().filter_map(|effect| effect.call.as_ref()).nth(n).unwrap();
    call.tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// The system prompt of the n-th model call.
fn told(session: &Session, n: usize) -> String {
    let asked = session.journal.asked.borrow();
    let call = asked.iter().filter_map(|effect| effect.call.as_ref()).nth(n).unwrap();
    call.prompt.iter().next().unwrap()["content"][0]["text"].as_str().unwrap().to_owned()
}

pub fn state(session: &Session) -> Json {
    session.checkpoint.state.as_deref().cloned().unwrap()
}

fn code_and_scope(session: &mut Session) -> (String, String) {
    let error = session.settle(OutputStatus::Failed).error.unwrap();
    (error["code"].as_str().unwrap().to_owned(), error["scope"].as_str().unwrap_or("").to_owned())
}

#[test]
fn one_effect_asks_all_capabilities_of_a_point_in_manifest_order() {
    let mut session = Session::guarded(&ALL);
    let mut manifest = session.definition.manifest.as_ref().clone();
    manifest["capabilities"][0]["hooks"] = json!([{"at": "before", "scope": "step"}]);
    session.define(manifest);
    session.checkpoint.info = json!({"user": "ada"}).as_object().cloned();
    session.journal.says(text("Hi."));
    session.settle(OutputStatus::Completed);
    assert_eq!(
        session.journal.ids(),
        [
            "T:0:hook:before-turn",
            "T:0:hook:before-step:step_T_0_1",
            "T:0:model:invocation_T_0_1",
            "T:0:hook:after-step:step_T_0_1",
            "T:0:hook:after-turn:step_T_0_1"
        ]
    );
    let effect = session.journal.effect("T:0:hook:before-step:step_T_0_1");
    let hook = effect.intent.hook.clone().unwrap();
    assert_eq!((hook.at.as_str(), hook.scope.as_str()), ("before", "step"));
    assert_eq!(hook.capability_ids, ["agent", "guard"]);
    assert_eq!(Json::Object(effect.intent.context.clone()), json!({"info": {"user": "ada"}}));
    assert_eq!(
        (&effect.intent.capability_id, &effect.intent.tool_name, effect.intent.agent.is_none()),
        (&None, &None, true)
    );
    assert_eq!(effect.request_hash, nylorun_actors::model::canonical::request_hash(&effect.intent));
}

#[test]
fn each_point_is_told_what_the_section_lists() {
    let mut session = Session::guarded(&ALL);
    session.checkpoint.info = json!({"user": "ada"}).as_object().cloned();
    session.journal.tool("add", Does::Patches(json!(2), json!({"sum": 2})));
    session.journal.says(json!({"output": [{"type": "text", "text": "Let me add."},
        {"type": "tool-call", "id": "c1", "name": "add", "args": {"n": 1}, "raw": "{}"}]}));
    session.journal.says(text("done"));
    session.settle(OutputStatus::Completed);
    let user = json!({"kind": "message", "role": "user", "content": [{"type": "text", "text": "hello"}]});
    let info = json!({"user": "ada"});
    assert_eq!(
        input(&session, "T:0:hook:before-turn"),
        json!({"input": "hello", "info": info, "messages": [user], "state": {}})
    );
    assert_eq!(
        input(&session, "T:0:hook:before-step:step_T_0_1"),
        json!({"input": "hello", "info": info, "messages": [user], "state": {}, "step": 0})
    );
    assert_eq!(
        input(&session, "T:0:hook:after-step:step_T_0_1"),
        json!({"text": "Let me add.", "toolCalls": [{"id": "c1", "name": "add", "args": {"n": 1}}], "info": info,
            "state": {}, "step": 0, "attempt": 0})
    );
    let second = input(&session, "T:0:hook:before-step:step_T_0_2");
    assert_eq!((&second["step"], &second["state"]), (&json!(1), &json!({"sum": 2})));
    assert_eq!(second["messages"].as_array().unwrap().len(), 3);
    assert_eq!(
        input(&session, "T:0:hook:after-turn:step_T_0_2"),
        json!({"text": "done", "output": "done", "info": info, "state": {"sum": 2}, "attempt": 0})
    );
    assert_eq!(
        input(&session, "T:0:hook:after-step:step_T_0_2"),
        json!({"text": "done", "toolCalls": [], "info": info, "state": {"sum": 2}, "step": 1, "attempt": 0})
    );
}

#[test]
fn before_turn_is_asked_once_and_holds_for_the_whole_turn_in_later_segments_too() {
    let mut session = Session::guarded(&["before-turn"]);
    session.yield_after = Some(YieldAfter { steps: Some(1), ms: None });
    session.journal.guard(
        "before-turn",
        &[json!({"instructions": ["Be kind."], "active": false, "state": {"seen": 1}})],
    );
    session.journal.tool("add", Does::Patches(json!(2), json!({"seen": 2})));
    session.journal.tool("ask", question("approval"));
    for call in [("c1", "add", json!({"n": 1})), ("c2", "ask", json!({})), ("c3", "add", json!({"n": 1}))] {
        session.journal.says(calls(&[call]));
    }
    session.journal.says(text("done"));
    let end = session.settle(OutputStatus::Yielded);
    let turn = serde_json::to_value(end.state.turn.unwrap()).unwrap();
    assert_eq!(
        turn,
        json!({"turnId": "turn_T_0_1", "input": "hello", "patch": {"capabilities": {"guard": false}, "instructions": ["Be kind."]},
            "attempts": {"afterStep": 0, "afterTurn": 0}})
    );
    session.next(json!({"kind": "continue"}));
    session.settle(OutputStatus::Paused);
    assert_eq!(state(&session)["turn"], turn, "a pause keeps it");
    session.journal.tool("ask", Does::Answers(json!("ok")));
    session.next(
        json!({"kind": "approve", "interactionId": "T:1:interaction:invocation_T_1_2", "approved": true}),
    );
    session.settle(OutputStatus::Yielded);
    session.next(json!({"kind": "continue"}));
    session.settle(OutputStatus::Completed);
    for n in 0..4 {
        assert_eq!(told(&session, n), "Be brief.\n\nBe kind.");
        assert_eq!(offered(&session, n), ["add", "get", "ask"]);
    }
    let hooks = session.journal.ids().iter().filter(|id| id.contains(":hook:")).count();
    assert_eq!(
        (hooks, &state(&session)["state"]),
        (1, &json!({"seen": 2})),
        "what it wrote is not written again"
    );
    assert!(state(&session).get("turn").is_none(), "the turn is over");
    session.turn("U", json!("next"));
    session.journal.says(text("ok"));
    session.settle(OutputStatus::Completed);
    assert!(session.journal.ids().contains(&"U:0:hook:before-turn".to_owned()), "the next turn asks again");
}

#[test]
fn a_step_is_laid_over_the_turn_and_hides_tools_for_that_call_only() {
    let mut session = Session::guarded(&["before-turn", "before-step"]);
    session.journal.guard("before-turn", &[json!({"tools": {"own": false}, "instructions": ["one"]})]);
    session.journal.guard(
        "before-step",
        &[json!({"tools": {"own": true}, "instructions": ["two"]}), json!({"active": false}), json!({})],
    );
    session.journal.tool("own", Does::Answers(json!(1)));
    session.journal.says(calls(&[("c1", "own", json!({}))]));
    session.journal.says(calls(&[("c2", "own", json!({}))]));
    session.journal.says(text("done"));
    session.settle(OutputStatus::Completed);
    assert_eq!(offered(&session, 0), ["add", "get", "ask", "own"]);
    assert_eq!(told(&session, 0), "Be brief.\n\none\n\ntwo");
    assert_eq!((offered(&session, 1), told(&session, 1)), (offered(&session, 2), told(&session, 2)));
    assert_eq!(offered(&session, 1), ["add", "get", "ask"]);
    assert_eq!(session.entries[2]["results"][0]["output"], 1);
    assert_eq!(session.entries[4]["results"][0]["code"], "tool.unknown", "what is hidden cannot be called");
}

#[test]
fn what_a_hook_writes_is_memory_for_tools_and_later_hooks() {
    let mut session = Session::guarded(&["before-step", "after-step"]);
    session.journal.guard("before-step", &[json!({"state": {"a": 1}}), json!({"state": {"b": 2}})]);
    session.journal.tool("add", Does::Answers(json!(2)));
    session.journal.says(calls(&[("c1", "add", json!({"n": 1}))]));
    session.journal.says(text("done"));
    session.settle(OutputStatus::Completed);
    assert_eq!(session.journal.effect("T:0:tool:invocation_T_0_2").intent.context["state"], json!({"a": 1}));
    assert_eq!(input(&session, "T:0:hook:after-step:step_T_0_2")["state"], json!({"a": 1, "b": 2}));
    assert_eq!(state(&session)["state"], json!({"a": 1, "b": 2}));
}

#[test]
fn a_block_fails_the_turn_with_the_scope_of_its_point() {
    let scopes = ["execution", "step", "step", "execution"];
    for (point, scope) in ALL.into_iter().zip(scopes) {
        let mut session = Session::guarded(&ALL);
        session.journal.guard(point, &[json!({"block": "not here"})]);
        session.journal.says(text("Hi."));
        let end = session.settle(OutputStatus::Failed);
        assert_eq!(
            end.error,
            Some(json!({"code": "dynamics.blocked", "message": "not here", "scope": scope})),
            "{point}"
        );
        assert!(end.state.turn.is_none());
    }
}

#[test]
fn an_answer_of_another_kind_is_configuration_invalid() {
    for (point, wrong) in [
        ("before-turn", json!({"retry": "x"})),
        ("before-step", json!({"deny": []})),
        ("before-step", json!({"tools": {"nope": false}})),
        ("after-step", json!({"instructions": ["x"]})),
        ("after-turn", json!({"deny": []})),
        ("after-turn", json!({"output": 1})),
    ] {
        let mut session = Session::guarded(&ALL);
        session.journal.guard(point, std::slice::from_ref(&wrong));
        session.journal.says(text("Hi."));
        assert_eq!(code_and_scope(&mut session).0, "configuration.invalid", "{point}: {wrong}");
    }
    let mut session = Session::guarded(&ALL);
    session
        .journal
        .hooks
        .borrow_mut()
        .insert("before-turn".to_owned(), VecDeque::from([Does::Answers(json!("odd"))]));
    assert_eq!(code_and_scope(&mut session), ("configuration.invalid".to_owned(), "execution".to_owned()));
}

#[test]
fn a_denied_call_is_a_result_and_the_others_run() {
    let mut session = Session::guarded(&["after-step"]);
    session.journal.guard(
        "after-step",
        &[json!({"deny": [{"id": "c1", "reason": "too big"}, {"id": "c3", "reason": "no"}]}), json!({})],
    );
    session.journal.tool("ask", Does::Answers(json!("ok")));
    session.journal.says(calls(&[
        ("c1", "add", json!({"n": 1})),
        ("c2", "ask", json!({})),
        ("c3", "add", json!({"n": "x"})),
    ]));
    session.journal.says(text("done"));
    session.settle(OutputStatus::Completed);
    let results = &session.entries[2]["results"];
    assert_eq!(results[0], json!({"callId": "c1", "toolName": "add", "kind": "denied", "reason": "too big"}));
    assert_eq!(
        (&results[1]["output"], &results[2]["code"]),
        (&json!("ok"), &json!("tool.invalid-arguments"))
    );
    assert!(
        session.journal.ids().contains(&"T:0:tool:invocation_T_0_2".to_owned()),
        "a denied call has no invocation"
    );
}

#[test]
fn an_approval_is_asked_before_anything_of_the_step_runs() {
    for approved in [true, false] {
        let mut session = Session::guarded(&["after-step"]);
        session
            .journal
            .guard("after-step", &[json!({"approve": [{"id": "c1", "prompt": "Spend 7?"}]}), json!({})]);
        session.journal.tool("add", Does::Answers(json!(2)));
        session.journal.tool("ask", Does::Answers(json!("ok")));
        session.journal.says(calls(&[("c1", "add", json!({"n": 7})), ("c2", "ask", json!({}))]));
        let end = session.settle(OutputStatus::Paused);
        let pending = end.pending.unwrap();
        let id = "T:0:interaction:invocation_T_0_2";
        assert_eq!(pending.as_array().unwrap().len(), 1);
        assert_eq!(pending[0]["interaction"], json!({"id": id, "kind": "approval", "prompt": "Spend 7?"}));
        assert_eq!(pending[0]["interactionPhase"], "before");
        assert_eq!(session.journal.ids().len(), 2, "nothing was dispatched");
        end.state.check().unwrap();
        session.next(json!({"kind": "approve", "interactionId": id, "approved": approved}));
        session.journal.says(text("done"));
        session.settle(OutputStatus::Completed);
        let results = &session.entries[3]["results"];
        assert_eq!(results[1]["output"], "ok");
        if approved {
            assert_eq!(results[0]["output"], 2);
            let resume = session.journal.effect("T:1:tool:invocation_T_0_2").intent.context["resume"].clone();
            assert_eq!(resume, json!({"interactionId": id, "kind": "approval", "approved": true}));
        } else {
            assert_eq!(results[0]["kind"], "denied");
        }
    }
}

#[test]
fn a_pending_hook_suspends_and_its_outcome_finishes_the_turn_by_replay() {
    for point in ALL {
        let session = Session::guarded(&ALL);
        session.journal.hooks.borrow_mut().insert(point.to_owned(), VecDeque::from([Does::Waits]));
        session.journal.says(text("Hi."));
        let (ids, uncertain) = suspended(session.run());
        assert!(ids.len() == 1 && ids[0].starts_with(&format!("T:0:hook:{point}")) && !uncertain, "{ids:?}");
        assert_eq!(suspended(session.run()).0, ids);
        session.journal.record(&ids[0], json!({"results": {}}));
        assert_eq!(ended(session.run()).status, OutputStatus::Completed);
        session.journal.hooks.borrow_mut().clear();
        let models = session.journal.executed().iter().filter(|id| id.contains(":model:")).count();
        assert_eq!(models, 1);
    }
    let session = Session::guarded(&ALL);
    session.journal.hooks.borrow_mut().insert("before-turn".to_owned(), VecDeque::from([Does::IsLost]));
    assert!(suspended(session.run()).1);
}

#[test]
fn a_hook_that_could_not_be_asked_fails_the_turn_with_its_code() {
    let mut session = Session::guarded(&["after-step"]);
    let failed = json!({"kind": "failed", "code": "endpoint.rejected", "message": "404 agent_not_served"});
    session
        .journal
        .hooks
        .borrow_mut()
        .insert("after-step".to_owned(), VecDeque::from([Does::Answers(failed)]));
    session.journal.says(text("Hi."));
    assert_eq!(code_and_scope(&mut session), ("endpoint.rejected".to_owned(), "step".to_owned()));
}
