//! Questions to people, and their answers.

use super::*;

fn asking(kinds: &[(&str, &str, &str)]) -> Session {
    let mut session = Session::plain();
    let list: Vec<_> = kinds.iter().map(|(id, tool, _)| (*id, *tool, json!({"n": 1}))).collect();
    session.journal.says(calls(&list));
    for (_, tool, kind) in kinds {
        session.journal.tool(tool, question(kind));
    }
    session.settle(OutputStatus::Paused);
    session
}

fn interaction(n: u32) -> String {
    format!("T:0:interaction:invocation_T_0_{n}")
}

#[test]
fn a_question_pauses_the_turn_under_an_id_of_the_engine() {
    let mut session = Session::plain();
    session.journal.says(calls(&[("c1", "ask", json!({})), ("c2", "add", json!({"n": 1}))]));
    session.journal.tool("ask", question("approval"));
    session.journal.tool("add", Does::Answers(json!(2)));
    let end = session.settle(OutputStatus::Paused);
    let pending = end.pending.unwrap();
    assert_eq!(pending.as_array().unwrap().len(), 1);
    assert_eq!(
        pending[0]["interaction"],
        json!({"id": interaction(2), "kind": "approval", "prompt": "Really?"})
    );
    assert_eq!(
        (&pending[0]["interactionPhase"], &pending[0]["status"]),
        (&json!("execute"), &json!("interaction"))
    );
    assert_eq!(pending[0]["token"], json!({"t": 1}));
    assert_eq!(session.kinds(), ["input", "candidate"]);
    end.state.check().unwrap();
}

#[test]
fn an_approval_runs_the_call_again_as_a_new_effect_that_carries_the_answer() {
    let mut session = asking(&[("c1", "ask", "approval")]);
    session.journal.tool("ask", Does::Answers(json!("done")));
    session.journal.says(text("ok"));
    session.next(json!({"kind": "approve", "interactionId": interaction(2), "approved": true}));
    session.settle(OutputStatus::Completed);
    let effect = session.journal.effect("T:1:tool:invocation_T_0_2");
    assert_eq!(
        effect.intent.context["resume"],
        json!({"interactionId": interaction(2), "kind": "approval", "approved": true, "token": {"t": 1}})
    );
    assert_eq!(session.kinds(), ["input", "candidate", "input", "tool-results", "candidate", "final"]);
    assert_eq!(
        *session.entries[2],
        json!({"kind": "input", "turnId": "turn_T_0_1", "event": {"kind": "approve", "interactionId": interaction(2), "approved": true}})
    );
    assert_eq!(session.entries[4]["stepId"], "step_T_1_1");
}

#[test]
fn a_rejection_is_a_denied_result_and_the_tool_does_not_run() {
    let mut session = asking(&[("c1", "ask", "approval")]);
    session.journal.says(text("ok"));
    let before = session.journal.executed().len();
    session.next(json!({"kind": "approve", "interactionId": interaction(2), "approved": false}));
    session.settle(OutputStatus::Completed);
    assert_eq!(session.entries[3]["results"][0]["kind"], "denied");
    assert_eq!(session.journal.executed()[before..], ["T:1:model:invocation_T_1_1"]);
}

#[test]
fn several_questions_are_answered_one_segment_each() {
    let mut session = asking(&[("c1", "ask", "approval"), ("c2", "add", "response")]);
    session.journal.tool("add", Does::Answers(json!("answered")));
    session.next(json!({"kind": "respond", "interactionId": interaction(3), "value": {"deep": null}}));
    let end = session.settle(OutputStatus::Paused);
    assert_eq!(end.pending.unwrap().as_array().unwrap().len(), 1);
    let resume = session.journal.effect("T:1:tool:invocation_T_0_3").intent.context["resume"].clone();
    assert_eq!((&resume["kind"], &resume["value"]), (&json!("response"), &json!({"deep": null})));
    session.journal.tool("ask", Does::Answers(json!("approved")));
    session.journal.says(text("ok"));
    session.next(json!({"kind": "approve", "interactionId": interaction(2), "approved": true}));
    session.settle(OutputStatus::Completed);
    let results = session.entries.iter().find(|entry| entry["kind"] == "tool-results").unwrap();
    assert_eq!(
        (&results["results"][0]["output"], &results["results"][1]["output"]),
        (&json!("approved"), &json!("answered"))
    );
}

#[test]
fn a_question_open_before_execution_keeps_answered_calls_from_running() {
    let mut session = asking(&[("c1", "ask", "approval"), ("c2", "add", "approval")]);
    let mut state = session.checkpoint.state.as_deref().unwrap().clone();
    state["plan"]["calls"][1]["interactionPhase"] = json!("before");
    session.checkpoint.state = Some(Arc::new(state));
    let before = session.journal.ids().len();
    session.next(json!({"kind": "approve", "interactionId": interaction(2), "approved": true}));
    let end = session.settle(OutputStatus::Paused);
    assert_eq!(session.journal.ids().len(), before);
    assert_eq!(serde_json::to_value(end.state.plan.unwrap().calls[0].status).unwrap(), json!("pending"));
}

#[test]
fn a_deferred_call_pauses_until_it_is_settled() {
    for (outcome, kind) in [
        (json!({"kind": "completed", "output": 5}), "completed"),
        (json!({"kind": "failed", "code": "c", "message": "m"}), "failed"),
        (json!({"kind": "denied", "reason": "r"}), "denied"),
    ] {
        let mut session = Session::plain();
        session.journal.says(calls(&[("c1", "ask", json!({}))]));
        session.journal.tool("ask", Does::Answers(json!({"kind": "deferred", "token": 1})));
        let end = session.settle(OutputStatus::Paused);
        assert_eq!(end.pending.unwrap()[0]["status"], "deferred");
        session.journal.says(text("ok"));
        session.next(json!({"kind": "settle", "invocationId": "invocation_T_0_2", "outcome": outcome}));
        session.settle(OutputStatus::Completed);
        assert_eq!(session.kinds()[2], "tool-results");
        assert_eq!(session.entries[2]["results"][0]["kind"], kind);
    }
}

#[test]
fn an_answer_must_fit_an_open_question() {
    let session = asking(&[("c1", "ask", "approval")]);
    for input in [
        json!({"kind": "approve", "interactionId": "other", "approved": true}),
        json!({"kind": "respond", "interactionId": interaction(2), "value": 1}),
        json!({"kind": "settle", "invocationId": "invocation_T_0_2", "outcome": {"kind": "completed", "output": 1}}),
        json!({"kind": "continue"}),
        json!("a message"),
    ] {
        let mut again = Session::plain();
        again.entries = session.entries.clone();
        again.checkpoint = session.checkpoint.clone();
        again.next(input.clone());
        assert_eq!(thrown(again.run()), "execution.invalid-input", "{input}");
    }
    for input in [
        json!({"kind": "approve", "interactionId": "i", "approved": true}),
        json!({"kind": "continue"}),
        json!(7),
    ] {
        let mut fresh = Session::plain();
        fresh.checkpoint.input = input.clone();
        assert_eq!(thrown(fresh.run()), "execution.invalid-input", "{input}");
    }
}

#[test]
fn a_pending_call_beside_a_question_suspends_first_and_pauses_on_replay() {
    let mut session = Session::plain();
    session.journal.says(calls(&[("c1", "ask", json!({})), ("c2", "add", json!({"n": 1}))]));
    session.journal.tool("ask", question("approval"));
    session.journal.tool("add", Does::Waits);
    assert_eq!(suspended(session.run()).0, ["T:0:tool:invocation_T_0_3"]);
    session.journal.record("T:0:tool:invocation_T_0_3", json!(1));
    session.settle(OutputStatus::Paused);
}
