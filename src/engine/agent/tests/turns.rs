//! Whole turns: replay, ids, prompts, rollover, model failures, structured output.

use super::*;

#[test]
fn a_turn_without_tools_completes_with_the_models_text() {
    let mut session = Session::plain();
    session.journal.says(json!("Hi."));
    let end = session.settle(OutputStatus::Completed);
    assert_eq!(end.output.as_deref(), Some(&json!("Hi.")));
    assert_eq!(session.kinds(), ["input", "candidate", "final"]);
    assert_eq!(
        *session.entries[0],
        json!({"kind": "input", "turnId": "turn_T_0_1", "event": {"kind": "user-message", "text": "hello"}})
    );
    assert_eq!(
        *session.entries[2],
        json!({"kind": "final", "turnId": "turn_T_0_1", "stepId": "step_T_0_1", "output": "Hi."})
    );
    let state = session.checkpoint.state.as_deref().unwrap();
    assert_eq!(
        (&state["status"], &state["turnCount"], &state["transcript"]),
        (&json!("completed"), &json!(1), &json!([]))
    );
    assert_eq!((&state["agentId"], &state["executionId"]), (&json!("bot"), &json!("s-1")));
}

#[test]
fn a_model_effect_is_the_wire_definition_and_its_hash_covers_the_prompt() {
    let session = Session::plain();
    session.journal.says(text("Hi."));
    ended(session.run());
    let effect = session.journal.effect("T:0:model:invocation_T_0_1");
    assert_eq!(effect.intent.input, None);
    assert_eq!(Json::Object(effect.intent.context.clone()), json!({"invocationId": "invocation_T_0_1"}));
    let call = effect.call.unwrap();
    assert_eq!(
        call.to_json(),
        json!({
            "prompt": [
                {"kind": "instructions", "role": "system", "content": [{"type": "text", "text": "Be brief."}]},
                {"kind": "message", "role": "user", "content": [{"type": "text", "text": "hello"}]},
            ],
            "tools": [
                {"name": "add", "description": "Adds.", "inputSchema": {"type": "object", "required": ["n"],
                    "properties": {"n": {"type": "integer"}}, "additionalProperties": false}},
                {"name": "get", "inputSchema": {"type": "object"}},
                {"name": "ask", "inputSchema": {"type": "object"}},
            ],
            "executionId": "s-1",
        })
    );
    let mut whole = effect.intent.clone();
    whole.input = Some(Arc::new(call.to_json()));
    assert_eq!(effect.request_hash, nylorun_actors::model::canonical::request_hash(&whole));
}

#[test]
fn the_hash_of_a_structured_call_covers_its_output_schema() {
    let session = Session::new(json!({"outputSchema": {"type": "object"}}));
    session.journal.says(json!({"output": [{"type": "json", "value": {}}]}));
    ended(session.run());
    let effect = session.journal.effect("T:0:model:invocation_T_0_1");
    let mut whole = effect.intent.clone();
    whole.input = Some(Arc::new(effect.call.unwrap().to_json()));
    assert_eq!(effect.request_hash, nylorun_actors::model::canonical::request_hash(&whole));
}

#[test]
fn a_pending_tool_leaves_the_start_untouched_and_replay_adds_no_executions() {
    let session = Session::plain();
    session.journal.says(calls(&[("c1", "add", json!({"n": 1}))]));
    session.journal.tool("add", Does::Waits);
    let start = Projection::of(&session.entries, session.mode);
    let (first, view) = session.run_over(start);
    assert!(view.entries().is_empty(), "the starting transcript comes back");
    let executed = session.journal.executed();
    assert_eq!(executed, ["T:0:model:invocation_T_0_1"]);
    let (again, _) = session.run_over(view);
    assert_eq!(again, first);
    assert_eq!(suspended(again), (vec!["T:0:tool:invocation_T_0_2".to_owned()], false));
    assert_eq!(session.journal.executed(), executed);

    session.journal.record("T:0:tool:invocation_T_0_2", json!({"kind": "completed", "output": 2}));
    session.journal.says(text("done"));
    let end = ended(session.run());
    assert_eq!(end.status, OutputStatus::Completed);
    assert_eq!(session.journal.executed()[1..], ["T:0:model:invocation_T_0_3"]);
    assert_eq!(ended(session.run()), end);
    assert_eq!(session.journal.executed().len(), 2);
}

#[test]
fn an_uncertain_effect_suspends_as_uncertain_and_is_not_run() {
    let session = Session::plain();
    session.journal.says(calls(&[("c1", "add", json!({"n": 1})), ("c2", "get", json!({}))]));
    session.journal.tool("add", Does::IsLost);
    session.journal.tool("get", Does::Waits);
    let open = vec!["T:0:tool:invocation_T_0_2".to_owned(), "T:0:tool:invocation_T_0_3".to_owned()];
    assert_eq!(suspended(session.run()), (open, true));
    let session = Session::plain();
    session.journal.models.borrow_mut().push_back(Does::IsLost);
    assert_eq!(suspended(session.run()), (vec!["T:0:model:invocation_T_0_1".to_owned()], true));
}

#[test]
fn ids_are_allocated_step_then_model_then_valid_calls_in_call_order() {
    let mut session = Session::plain();
    let list = [("c1", "add", json!({"n": 1})), ("c2", "nope", json!({})), ("c3", "get", json!({}))];
    session.journal.says(calls(&list));
    session.journal.tool("add", Does::Answers(json!(2)));
    session.journal.tool("get", Does::Answers(json!({"v": 1})));
    session.journal.says(text("done"));
    session.settle(OutputStatus::Completed);
    assert_eq!(
        session.journal.ids(),
        [
            "T:0:model:invocation_T_0_1",
            "T:0:tool:invocation_T_0_2",
            "T:0:tool:invocation_T_0_3",
            "T:0:model:invocation_T_0_4"
        ]
    );
    let steps: Vec<_> = session.entries.iter().filter_map(|entry| entry["stepId"].as_str()).collect();
    assert_eq!(steps, ["step_T_0_1", "step_T_0_1", "step_T_0_2", "step_T_0_2"]);
}

#[test]
fn another_request_under_a_recorded_id_fails_the_turn() {
    let mut session = Session::plain();
    session.journal.says(calls(&[("c1", "add", json!({"n": 1}))]));
    session.journal.tool("add", Does::Waits);
    suspended(session.run());
    session.checkpoint.input = json!("another question");
    let end = ended(session.run());
    assert_eq!((end.status, error_code(&end)), (OutputStatus::Failed, "effect_drift"));
}

#[test]
fn a_drifted_tool_fails_the_turn_instead_of_telling_the_model() {
    let session = Session::plain();
    session.journal.says(calls(&[("c1", "add", json!({"n": 1}))]));
    session.journal.tool("add", Does::Fails(PortError::Drift("d".to_owned())));
    assert_eq!(error_code(&ended(session.run())), "effect_drift");
}

#[test]
fn a_model_failure_fails_the_turn_with_its_code_and_leaves_no_candidate() {
    for code in ["overloaded", "context_overflow"] {
        let mut session = Session::plain();
        session.journal.says(json!({"kind": "failed", "code": code, "message": "m", "retryable": true}));
        let end = session.settle(OutputStatus::Failed);
        assert_eq!(
            end.error,
            Some(json!({"code": format!("model.{code}"), "message": "m", "scope": "step"}))
        );
        assert_eq!(session.kinds(), ["input"]);
    }
}

#[test]
fn a_refused_model_intent_and_an_invalid_candidate_fail_the_turn() {
    let session = Session::plain();
    session.journal.models.borrow_mut().push_back(Does::Fails(PortError::Refused("no".to_owned())));
    assert_eq!(error_code(&ended(session.run())), "execution.failed");
    for (value, code) in
        [(json!({"out": 1}), "model.invalid-candidate"), (Json::Null, "model.candidate-missing")]
    {
        let session = Session::plain();
        session.journal.says(value);
        assert_eq!(error_code(&ended(session.run())), code);
    }
}

#[test]
fn structured_output_is_the_json_and_an_invalid_one_fails_but_stands_in_the_transcript() {
    let schema = json!({"outputSchema": {"type": "object", "required": ["ok"]}});
    let mut session = Session::new(schema.clone());
    session.journal.says(json!({"output": [{"type": "json", "value": {"ok": 1}}]}));
    let end = session.settle(OutputStatus::Completed);
    assert_eq!(end.output.as_deref(), Some(&json!({"ok": 1})));
    assert_eq!(session.last()["output"], json!({"ok": 1}));
    assert_eq!(end.state.output_contract.as_deref(), Some(&schema["outputSchema"]));

    let mut session = Session::new(schema);
    session.journal.says(text("no json"));
    let end = session.settle(OutputStatus::Failed);
    assert_eq!(error_code(&end), "output.invalid");
    assert_eq!(session.kinds(), ["input", "candidate"]);
}

#[test]
fn rollover_yields_between_steps_and_goes_on_under_the_same_engine_turn() {
    let mut session = Session::plain();
    session.yield_after = Some(YieldAfter { steps: Some(2), ms: None });
    session.journal.tool("add", Does::Answers(json!(2)));
    for n in 0..3 {
        session.journal.says(calls(&[(&format!("c{n}"), "add", json!({"n": n}))]));
    }
    session.journal.says(text("done"));
    let end = session.settle(OutputStatus::Yielded);
    assert_eq!(end.state.turn.as_ref().map(|turn| turn.turn_id.as_str()), Some("turn_T_0_1"));
    assert_eq!(serde_json::to_value(end.state.status).unwrap(), json!("active"));
    session.next(json!({"kind": "continue"}));
    let end = session.settle(OutputStatus::Completed);
    assert_eq!((end.state.turn, end.state.turn_count), (None, 1));
    assert!(session.entries.iter().all(|entry| entry["turnId"] == "turn_T_0_1"));
    assert_eq!(
        session.journal.ids()[4..],
        ["T:1:model:invocation_T_1_1", "T:1:tool:invocation_T_1_2", "T:1:model:invocation_T_1_3"]
    );
}

#[test]
fn time_rolls_over_only_after_a_step_of_the_segment() {
    let mut session = Session::plain();
    session.yield_after = Some(YieldAfter { steps: None, ms: Some(10) });
    session.journal.elapsed.set(1000);
    session.journal.tool("add", Does::Answers(json!(2)));
    session.journal.says(calls(&[("c", "add", json!({"n": 1}))]));
    session.settle(OutputStatus::Yielded);
    assert_eq!(session.kinds(), ["input", "candidate", "tool-results"]);
    session.journal.elapsed.set(0);
    session.journal.says(text("done"));
    session.next(json!({"kind": "continue"}));
    session.settle(OutputStatus::Completed);
}

#[test]
fn a_second_turn_sees_the_first_and_counts_on() {
    let mut session = Session::plain();
    session.journal.says(text("one"));
    session.settle(OutputStatus::Completed);
    session.turn("U", json!({"text": "again", "metadata": {"m": 1}}));
    session.journal.says(text("two"));
    let end = session.settle(OutputStatus::Completed);
    assert_eq!(end.state.turn_count, 2);
    assert_eq!(session.entries[3]["turnId"], "turn_U_0_1");
    let call = session.journal.effect("U:0:model:invocation_U_0_1").call.unwrap();
    let texts: Vec<_> = call.prompt.iter().map(|item| item["content"][0]["text"].clone()).collect();
    assert_eq!(texts, [json!("Be brief."), json!("hello"), json!("one"), json!("again")]);
    assert_eq!((end.edits[0].keep, end.edits[0].length), (3, 6));
}

#[test]
fn a_long_chained_hash_is_the_same_on_replay_and_another_for_another_prompt() {
    let long = "x".repeat(300 * 1024);
    let hash = |mode, input: &str, view: Option<Projection>| {
        let mut session = Session::plain();
        session.mode = mode;
        session.entries = vec![Arc::new(
            json!({"kind": "input", "turnId": "old", "event": {"kind": "user-message", "text": long}}),
        )];
        session.checkpoint.input = json!(input);
        session.journal.says(text("Hi."));
        let view = view.unwrap_or_else(|| Projection::of(&session.entries, mode));
        let (end, view) = session.run_over(view);
        ended(end);
        (session.journal.effect("T:0:model:invocation_T_0_1").request_hash, view)
    };
    let (chained, _) = hash(PromptHash::Chained, "a", None);
    assert_eq!(hash(PromptHash::Chained, "a", None).0, chained);
    assert_ne!(hash(PromptHash::Chained, "b", None).0, chained);
    assert_ne!(hash(PromptHash::Exact, "a", None).0, chained);
}

#[test]
fn a_short_chained_hash_is_the_exact_one() {
    let hash = |mode| {
        let mut session = Session::plain();
        session.mode = mode;
        session.journal.says(text("Hi."));
        ended(session.run());
        session.journal.effect("T:0:model:invocation_T_0_1").request_hash
    };
    assert_eq!(hash(PromptHash::Chained), hash(PromptHash::Exact));
}

#[test]
fn what_this_engine_does_not_do_is_a_failed_turn_without_any_effect() {
    let servers = json!({"s": {"name": "s", "type": "sse", "url": "http://127.0.0.1/"}});
    let session =
        Session::new(json!({"capabilities": [{"id": "x", "type": "agent", "mcpServers": servers}]}));
    let end = ended(session.run());
    assert_eq!((end.status, error_code(&end)), (OutputStatus::Failed, "execution.failed"));
    assert!(session.journal.ids().is_empty());
}
