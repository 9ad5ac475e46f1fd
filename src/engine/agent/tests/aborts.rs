//! Runs that are told to stop.

use super::*;

#[test]
fn an_abort_between_steps_cancels_the_turn() {
    let session = Session::plain();
    *session.journal.abort.borrow_mut() = Some(abort(AbortKind::Deadline));
    let end = ended(session.run());
    assert_eq!((end.status, end.error), (OutputStatus::Cancelled, None));
    assert_eq!(serde_json::to_value(end.state.status).unwrap(), json!("cancelled"));
    assert!(session.journal.ids().is_empty());
}

#[test]
fn a_cancel_with_an_open_plan_gives_unfinished_calls_a_result_and_keeps_them() {
    let mut session = Session::plain();
    session.journal.says(calls(&[
        ("c1", "add", json!({"n": 1})),
        ("c2", "ask", json!({})),
        ("c3", "nope", json!({})),
    ]));
    session.journal.tool("add", Does::Answers(json!(2)));
    session.journal.tool("ask", Does::Fails(PortError::Aborted(abort(AbortKind::Cancel))));
    let end = session.settle(OutputStatus::Cancelled);
    assert_eq!(session.kinds(), ["input", "candidate", "tool-results"]);
    let results = &session.last()["results"];
    assert_eq!(
        (&results[0]["output"], &results[1]["code"], &results[2]["code"]),
        (&json!(2), &json!("tool.cancelled"), &json!("tool.unknown"))
    );
    let kept = end.state.cancelled_calls.unwrap();
    assert_eq!(kept.iter().map(|call| call.call_id.as_str()).collect::<Vec<_>>(), ["c2"]);
    assert!(end.state.plan.is_none());
    session.turn("U", json!("next"));
    session.journal.says(text("ok"));
    let end = session.settle(OutputStatus::Completed);
    assert_eq!(end.state.cancelled_calls.map(|calls| calls.len()), Some(1), "kept, never dispatched again");
}

#[test]
fn a_paused_turn_is_cancelled_by_a_continue_under_an_abort() {
    let mut session = Session::plain();
    session.journal.says(calls(&[("c1", "ask", json!({}))]));
    session.journal.tool("ask", question("approval"));
    session.settle(OutputStatus::Paused);
    session.next(json!({"kind": "continue"}));
    *session.journal.abort.borrow_mut() = Some(abort(AbortKind::Cancel));
    let end = session.settle(OutputStatus::Cancelled);
    assert_eq!(session.last()["results"][0]["code"], "tool.cancelled");
    assert_eq!(end.state.cancelled_calls.unwrap().len(), 1);
}

#[test]
fn a_cancel_during_a_model_call_cancels_and_keeps_no_candidate() {
    let mut session = Session::plain();
    session.journal.models.borrow_mut().push_back(Does::Fails(PortError::Aborted(abort(AbortKind::Cancel))));
    session.settle(OutputStatus::Cancelled);
    assert_eq!(session.kinds(), ["input"]);
}

#[test]
fn an_abort_that_fires_while_tools_run_is_seen_before_the_next_model_call() {
    let mut session = Session::plain();
    session.journal.says(calls(&[("c1", "add", json!({"n": 1}))]));
    session.journal.tool("add", Does::Answers(json!(2)));
    session.journal.abort_at.set(Some(2));
    session.settle(OutputStatus::Cancelled);
    assert_eq!(session.journal.ids().len(), 2);
    assert_eq!(session.kinds(), ["input", "candidate", "tool-results"]);
}

#[test]
fn a_lost_run_goes_before_a_cancel_and_that_before_an_uncertain_effect() {
    let run = |first: Does, second: Does| {
        let session = Session::plain();
        session.journal.says(calls(&[("c1", "add", json!({"n": 1})), ("c2", "ask", json!({}))]));
        session.journal.tool("add", first);
        session.journal.tool("ask", second);
        session.run()
    };
    let lost = Does::Fails(PortError::Lost(AbortKind::OwnershipLost));
    let cancel = Does::Fails(PortError::Aborted(abort(AbortKind::Cancel)));
    let deadline = Does::Fails(PortError::Aborted(abort(AbortKind::Deadline)));
    assert_eq!(run(cancel.clone(), lost), SegmentEnd::Lost(AbortKind::OwnershipLost));
    assert_eq!(ended(run(Does::IsLost, cancel)).status, OutputStatus::Cancelled);
    assert!(suspended(run(deadline.clone(), Does::IsLost)).1);
    assert_eq!(ended(run(deadline, Does::Waits)).status, OutputStatus::Cancelled);
}

#[test]
fn a_failed_turn_drops_its_plan_and_its_turn() {
    let session = Session::plain();
    session.journal.says(calls(&[("c1", "add", json!({"n": 1}))]));
    session.journal.tool("add", Does::Fails(PortError::Drift("d".to_owned())));
    let (end, view) = session.run_over(Projection::new(PromptHash::Exact));
    let end = ended(end);
    assert!(end.state.plan.is_none() && end.state.turn.is_none());
    assert!(view.entries().is_empty(), "core takes a failed turn's entries back too");
}
