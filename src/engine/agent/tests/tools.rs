//! Tool calls: contexts, results, refusals, patches.

use super::*;

/// Runs one step that calls `list`, then a text; returns the results of the step.
fn results(session: &mut Session, list: &[(&str, &str, Json)]) -> Vec<Json> {
    session.journal.says(calls(list));
    session.journal.says(text("done"));
    session.settle(OutputStatus::Completed);
    let entry = session.entries.iter().rev().find(|entry| entry["kind"] == "tool-results").unwrap();
    entry["results"].as_array().unwrap().clone()
}

#[test]
fn a_tool_effect_carries_the_whole_context() {
    let mut session = Session::plain();
    session.checkpoint.info = json!({"user": "ada"}).as_object().cloned();
    session.journal.tool("add", Does::Patches(json!({"kind": "completed", "output": 2}), json!({"seen": 1})));
    results(&mut session, &[("c1", "add", json!({"n": 1}))]);
    let effect = session.journal.effect("T:0:tool:invocation_T_0_2");
    assert_eq!(effect.intent.capability_id.as_deref(), Some("agent"));
    assert_eq!(effect.intent.tool_name.as_deref(), Some("add"));
    assert_eq!(effect.intent.input.as_deref(), Some(&json!({"n": 1})));
    assert_eq!(
        Json::Object(effect.intent.context.clone()),
        json!({"executionId": "s-1", "turnId": "turn_T_0_1", "stepId": "step_T_0_1", "callId": "c1",
            "invocationId": "invocation_T_0_2", "idempotencyKey": "c1", "info": {"user": "ada"}, "state": {}})
    );
    assert_eq!(effect.request_hash, nylorun_actors::model::canonical::request_hash(&effect.intent));
    assert_eq!(session.checkpoint.state.as_deref().unwrap()["state"], json!({"seen": 1}));
}

#[test]
fn results_come_back_in_call_order_with_failures_among_them() {
    let mut session = Session::plain();
    session.journal.tool("add", Does::Answers(json!({"kind": "completed", "output": 2})));
    session.journal.tool(
        "get",
        Does::Answers(json!({"kind": "failed", "code": "x.y", "message": "m", "retryable": true})),
    );
    session.journal.tool("ask", Does::Answers(json!({"kind": "denied", "reason": "r"})));
    let list = [
        ("1", "nope", json!({})),
        ("2", "get", json!({})),
        ("3", "add", json!({"n": "one"})),
        ("4", "add", json!({"n": 1})),
        ("5", "ask", json!({})),
    ];
    let results = results(&mut session, &list);
    assert_eq!(results[0]["code"], "tool.unknown");
    assert_eq!(
        results[1],
        json!({"callId": "2", "toolName": "get", "kind": "failed", "code": "x.y", "message": "m", "retryable": true})
    );
    assert_eq!(
        (&results[2]["code"], &results[2]["details"]["phase"]),
        (&json!("tool.invalid-arguments"), &json!("input"))
    );
    assert_eq!(results[3], json!({"callId": "4", "toolName": "add", "kind": "completed", "output": 2}));
    assert_eq!(results[4], json!({"callId": "5", "toolName": "ask", "kind": "denied", "reason": "r"}));
}

#[test]
fn an_untagged_value_is_the_output_and_an_output_is_checked() {
    let mut session = Session::plain();
    session.journal.tool("add", Does::Answers(json!({"kind": "invoice"})));
    session.journal.tool("get", Does::Answers(json!({"kind": "completed", "output": {}})));
    let results = results(&mut session, &[("1", "add", json!({"n": 1})), ("2", "get", json!({}))]);
    assert_eq!(results[0]["output"], json!({"kind": "invoice"}));
    assert_eq!(results[1]["code"], "tool.invalid-output");
    assert_eq!(results[1]["details"]["phase"], "output");
    assert!(results[1]["message"].as_str().unwrap().starts_with("(root): "));
}

#[test]
fn a_malformed_outcome_is_an_invalid_tool_result() {
    for value in [
        json!({"kind": "failed", "message": "m"}),
        json!({"kind": "denied"}),
        json!({"kind": "interaction-required"}),
        json!({"kind": "interaction-required", "interaction": {"kind": "poll", "prompt": "p"}}),
        json!({"kind": "interaction-required", "interaction": {"kind": "approval", "prompt": 5}}),
    ] {
        let mut session = Session::plain();
        session.journal.tool("ask", Does::Answers(value));
        assert_eq!(results(&mut session, &[("1", "ask", json!({}))])[0]["code"], "tool.invalid-tool-result");
    }
}

#[test]
fn a_refused_tool_intent_is_a_failed_result_for_the_model() {
    let mut session = Session::plain();
    session.journal.tool("ask", Does::Fails(PortError::Refused("store is down".to_owned())));
    let results = results(&mut session, &[("1", "ask", json!({}))]);
    assert_eq!(
        (&results[0]["code"], &results[0]["message"]),
        (&json!("tool.execution-failed"), &json!("store is down"))
    );
}

#[test]
fn patches_apply_in_plan_order_and_calls_see_the_memory_before_any() {
    let mut session = Session::plain();
    session.journal.tool("add", Does::Patches(json!(1), json!({"k": "first", "a": 1})));
    session.journal.tool("ask", Does::Patches(json!(2), json!({"k": "second"})));
    results(&mut session, &[("1", "add", json!({"n": 1})), ("2", "ask", json!({}))]);
    assert_eq!(session.checkpoint.state.as_deref().unwrap()["state"], json!({"k": "second", "a": 1}));
    assert_eq!(session.journal.effect("T:0:tool:invocation_T_0_3").intent.context["state"], json!({}));
}

#[test]
fn calls_that_share_an_id_fail_and_the_others_run() {
    let mut session = Session::plain();
    session.journal.tool("ask", Does::Answers(json!("ok")));
    let list = [("x", "ask", json!({})), ("y", "ask", json!({})), ("x", "ask", json!({}))];
    let results = results(&mut session, &list);
    let got: Vec<_> =
        results.iter().map(|r| (r["callId"].as_str().unwrap(), r["kind"].as_str().unwrap())).collect();
    assert_eq!(got, [("call_T_0_1", "failed"), ("y", "completed"), ("call_T_0_2", "failed")]);
    let blocks = session.entries[1]["candidate"]["output"].as_array().unwrap();
    assert_eq!(blocks[0]["id"], "call_T_0_1");
}

#[test]
fn all_calls_of_a_plan_are_declared_before_any_is_waited_for() {
    let session = Session::plain();
    session.journal.says(calls(&[
        ("1", "add", json!({"n": 1})),
        ("2", "ask", json!({})),
        ("3", "get", json!({})),
    ]));
    session.journal.tool("add", Does::Waits);
    session.journal.tool("ask", Does::Answers(json!(1)));
    session.journal.tool("get", Does::Waits);
    let open = vec!["T:0:tool:invocation_T_0_2".to_owned(), "T:0:tool:invocation_T_0_4".to_owned()];
    assert_eq!(suspended(session.run()), (open, false));
    assert_eq!(session.journal.ids().len(), 4);
}
