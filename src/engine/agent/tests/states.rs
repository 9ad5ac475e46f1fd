//! Checkpoints and states that cannot be opened.

use super::*;

/// A paused session: one call asks for approval, one is settled, one failed at once.
fn paused() -> Session {
    let mut session = Session::plain();
    let list = [
        ("c1", "ask", json!({})),
        ("c2", "add", json!({"n": 1})),
        ("c3", "nope", json!({})),
        ("c4", "get", json!({})),
    ];
    session.journal.says(calls(&list));
    session.journal.tool("ask", question("approval"));
    session.journal.tool("add", Does::Answers(json!(2)));
    session.journal.tool("get", question("response"));
    session.settle(OutputStatus::Paused);
    session.next(
        json!({"kind": "approve", "interactionId": "T:0:interaction:invocation_T_0_2", "approved": false}),
    );
    session
}

fn with_state(session: &mut Session, change: impl FnOnce(&mut Json)) {
    let mut state = session.checkpoint.state.as_deref().unwrap().clone();
    change(&mut state);
    session.checkpoint.state = Some(Arc::new(state));
}

#[test]
fn a_checkpoint_of_another_kind_is_incompatible() {
    let changes: [fn(&mut Session); 7] = [
        |session| session.checkpoint.version = 2,
        |session| session.checkpoint.engine_version = "hosted-2".to_owned(),
        |session| session.checkpoint.manifest_hash = "other".to_owned(),
        |session| with_state(session, |state| state["manifestHash"] = json!("other")),
        |session| with_state(session, |state| state["agentId"] = json!("other")),
        |session| with_state(session, |state| state["executionId"] = json!("other")),
        |session| with_state(session, |state| state["outputContract"] = json!({"type": "object"})),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut session = paused();
        change(&mut session);
        assert_eq!(thrown(session.run()), "execution.incompatible", "change {n}");
    }
}

#[test]
fn saved_arguments_that_no_longer_validate_are_incompatible() {
    let mut session = paused();
    with_state(&mut session, |state| state["plan"]["calls"][1]["rawArgs"] = json!({"n": "x"}));
    assert_eq!(thrown(session.run()), "execution.incompatible");
    let mut session = paused();
    with_state(&mut session, |state| state["plan"]["calls"][1]["rawArgs"] = json!({"n": 7}));
    assert_eq!(thrown(session.run()), "execution.incompatible");
}

#[test]
fn a_state_that_breaks_an_invariant_is_invalid() {
    type Change = fn(&mut Json);
    let changes: &[(&str, Change)] = &[
        ("version", |s| s["version"] = json!(2)),
        ("unknown member", |s| s["x"] = json!(1)),
        ("negative revision", |s| s["revision"] = json!(-1)),
        ("own transcript", |s| s["transcript"] = json!([{}])),
        ("paused without a plan", |s| {
            s.as_object_mut().unwrap().remove("plan");
        }),
        ("paused with an active call", |s| {
            s["plan"]["calls"][1]["status"] = json!("active");
            s["plan"]["calls"][1].as_object_mut().unwrap().remove("result");
        }),
        ("nothing to wait for", |s| {
            for n in [0, 2] {
                s["plan"]["calls"][n]["status"] = json!("pending");
            }
        }),
        ("plan of another turn", |s| s["turn"] = json!({"turnId": "other"})),
        ("step number 0", |s| s["plan"]["stepNumber"] = json!(0)),
        ("order misses a call", |s| {
            s["plan"]["order"].as_array_mut().unwrap().pop();
        }),
        ("order lists a call twice", |s| s["plan"]["order"][1] = json!({"callId": "c1", "toolName": "ask"})),
        ("order names another tool", |s| s["plan"]["order"][0]["toolName"] = json!("add")),
        ("call id twice", |s| {
            s["plan"]["calls"][1] = s["plan"]["calls"][0].clone();
        }),
        ("invocation twice", |s| s["plan"]["calls"][1]["invocationId"] = json!("invocation_T_0_2")),
        ("interaction twice", |s| {
            s["plan"]["calls"][2]["interaction"]["id"] = json!("T:0:interaction:invocation_T_0_2");
        }),
        ("settled without a result", |s| {
            s["plan"]["calls"][1].as_object_mut().unwrap().remove("result");
        }),
        ("a result without being settled", |s| s["plan"]["calls"][1]["status"] = json!("pending")),
        ("a result of another call", |s| s["plan"]["calls"][1]["result"]["callId"] = json!("c1")),
        ("interaction without a question", |s| {
            s["plan"]["calls"][0].as_object_mut().unwrap().remove("interaction");
        }),
        ("interaction without a phase", |s| {
            s["plan"]["calls"][0].as_object_mut().unwrap().remove("interactionPhase");
        }),
        ("reference names another tool", |s| s["plan"]["calls"][0]["reference"]["toolName"] = json!("add")),
        ("descriptor names another tool", |s| {
            s["plan"]["calls"][0]["reference"]["descriptor"]["name"] = json!("add")
        }),
        ("malformed immediate result", |s| {
            s["plan"]["immediate"][0].as_object_mut().unwrap().remove("code");
        }),
    ];
    for (name, change) in changes {
        let mut session = paused();
        with_state(&mut session, change);
        assert_eq!(thrown(session.run()), "execution.invalid-state", "{name}");
    }
    ended(paused().run());
}

#[test]
fn a_message_cannot_begin_a_turn_while_one_is_in_flight() {
    let mut session = Session::plain();
    session.yield_after = Some(YieldAfter { steps: Some(1), ms: None });
    session.journal.says(calls(&[("c1", "add", json!({"n": 1}))]));
    session.journal.tool("add", Does::Answers(json!(2)));
    session.settle(OutputStatus::Yielded);
    session.turn("U", json!("another"));
    assert_eq!(thrown(session.run()), "execution.invalid-state");
}

#[test]
fn an_active_plan_left_by_a_crash_is_dispatched_on_continue() {
    let mut session = paused();
    with_state(&mut session, |state| {
        state["status"] = json!("active");
        state["plan"]["calls"][0]["status"] = json!("active");
        for n in [0, 2] {
            let call = state["plan"]["calls"][n].as_object_mut().unwrap();
            call.remove("interaction");
            call.remove("interactionPhase");
            call.remove("token");
            call.insert("status".to_owned(), json!("pending"));
        }
    });
    session.checkpoint.input = json!({"kind": "continue"});
    session.journal.tool("ask", Does::Answers(json!("ok")));
    session.journal.tool("get", Does::Answers(json!({"v": 1})));
    session.journal.says(text("done"));
    session.settle(OutputStatus::Completed);
    assert_eq!(session.journal.ids()[4..6], ["T:1:tool:invocation_T_0_2", "T:1:tool:invocation_T_0_4"]);
}
