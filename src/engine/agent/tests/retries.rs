//! Hooks that send an answer back or change it.

use super::hooks::{input, state};
use super::*;
use crate::engine::agent::hooks::RETRIES;

#[test]
fn a_retry_of_an_answer_with_calls_denies_them_all_with_the_feedback() {
    let mut session = Session::guarded(&["after-step"]);
    session.journal.guard("after-step", &[json!({"retry": "Ask first."}), json!({})]);
    session.journal.says(calls(&[("c1", "add", json!({"n": 1})), ("c2", "nope", json!({}))]));
    session.journal.says(text("done"));
    session.settle(OutputStatus::Completed);
    assert_eq!(session.kinds(), ["input", "candidate", "tool-results", "candidate", "final"]);
    let results = &session.entries[2]["results"];
    assert_eq!((&results[0]["reason"], &results[1]["code"]), (&json!("Ask first."), &json!("tool.unknown")));
    assert_eq!(input(&session, "T:0:hook:after-step:step_T_0_2")["attempt"], 1);
}

#[test]
fn a_retry_of_a_text_gives_the_model_its_answer_and_the_feedback() {
    for point in ["after-step", "after-turn"] {
        let mut session = Session::guarded(&["after-step", "after-turn"]);
        session.journal.guard(point, &[json!({"retry": "Shorter."}), json!({})]);
        session.journal.says(text("A long story"));
        session.journal.says(text("Done."));
        let end = session.settle(OutputStatus::Completed);
        assert_eq!(end.output.as_deref(), Some(&json!("Done.")));
        assert_eq!(session.kinds(), ["input", "candidate", "input", "candidate", "final"]);
        let feedback =
            json!({"kind": "user-message", "text": "Shorter.", "metadata": {"source": "hook.retry"}});
        assert_eq!(session.entries[2]["event"], feedback);
        let call = session.journal.effect("T:0:model:invocation_T_0_2").call.unwrap();
        let said: Vec<_> = call.prompt.iter().map(|item| item["content"][0]["text"].clone()).collect();
        assert_eq!(said, [json!("Be brief."), json!("hello"), json!("A long story"), json!("Shorter.")]);
        let asked = session.journal.ids().iter().filter(|id| id.contains("hook:after-turn")).count();
        assert_eq!(
            asked,
            if point == "after-turn" { 2 } else { 1 },
            "an answer that was sent back ends no turn"
        );
        let attempt =
            |point: &str| input(&session, &format!("T:0:hook:{point}:step_T_0_2"))["attempt"].clone();
        let counted = (attempt("after-step"), attempt("after-turn"));
        assert_eq!(counted, if point == "after-step" { (json!(1), json!(0)) } else { (json!(0), json!(1)) });
    }
}

#[test]
fn retries_are_counted_over_pauses_and_rollovers() {
    let mut session = Session::guarded(&["after-step"]);
    session.yield_after = Some(YieldAfter { steps: Some(1), ms: None });
    session.journal.guard("after-step", &[json!({"retry": "once"}), json!({"retry": "twice"}), json!({})]);
    for _ in 0..3 {
        session.journal.says(text("again"));
    }
    session.settle(OutputStatus::Yielded);
    session.next(json!({"kind": "continue"}));
    session.settle(OutputStatus::Yielded);
    assert_eq!(state(&session)["turn"]["attempts"], json!({"afterStep": 2, "afterTurn": 0}));
    session.next(json!({"kind": "continue"}));
    session.settle(OutputStatus::Completed);
    let last = input(&session, "T:2:hook:after-step:step_T_2_1");
    assert_eq!((&last["step"], &last["attempt"]), (&json!(2), &json!(2)));
}

#[test]
fn a_hook_that_never_is_content_fails_the_turn_at_the_bound() {
    for (point, scope, answer) in [
        ("after-step", "step", text("again")),
        ("after-step", "step", calls(&[("c", "add", json!({"n": 1}))])),
        ("after-turn", "execution", text("again")),
    ] {
        let mut session = Session::guarded(&[point]);
        session.journal.guard(point, &[json!({"retry": "no"})]);
        for _ in 0..=RETRIES {
            session.journal.says(answer.clone());
        }
        let error = session.settle(OutputStatus::Failed).error.unwrap();
        assert_eq!((&error["code"], &error["scope"]), (&json!("dynamics.exhausted"), &json!(scope)));
        assert!(error["message"].as_str().unwrap().contains("25 times"), "{error}");
        let models = session.journal.ids().iter().filter(|id| id.contains(":model:")).count();
        assert_eq!(models, 26, "the first answer and 25 more");
    }
}

#[test]
fn a_text_of_a_hook_is_the_answer() {
    for point in ["after-step", "after-turn"] {
        let mut session = Session::guarded(&[point]);
        session.journal.guard(point, &[json!({"text": "[redacted]"})]);
        session.journal.says(text("The key is 123."));
        let end = session.settle(OutputStatus::Completed);
        assert_eq!(end.output.as_deref(), Some(&json!("[redacted]")));
        assert_eq!(session.last()["output"], "[redacted]");
        let block = json!([{"type": "text", "text": "[redacted]"}]);
        assert_eq!(session.entries[1]["candidate"]["output"], block, "the model reads what was said");
    }
}

#[test]
fn an_output_of_a_hook_needs_a_schema_and_must_fit_it() {
    let run = |decision: Json| {
        let mut session = Session::guarded(&["after-turn"]);
        let mut manifest = session.definition.manifest.as_ref().clone();
        manifest["outputSchema"] = json!({"type": "object", "required": ["ok"]});
        session.define(manifest);
        session.journal.guard("after-turn", &[decision]);
        session.journal.says(json!({"output": [{"type": "json", "value": {"ok": 1}}]}));
        (ended(session.run()), session)
    };
    let (end, session) = run(json!({"output": {"ok": 2}}));
    assert_eq!((end.status, end.output.as_deref()), (OutputStatus::Completed, Some(&json!({"ok": 2}))));
    assert_eq!(input(&session, "T:0:hook:after-turn:step_T_0_1")["output"], json!({"ok": 1}));
    assert_eq!(end.edits[0].entries[1]["candidate"]["output"][0]["value"], json!({"ok": 2}));
    assert_eq!(error_code(&run(json!({"output": {}})).0), "output.invalid");
    assert_eq!(error_code(&run(json!({"text": "t"})).0), "configuration.invalid");
}
