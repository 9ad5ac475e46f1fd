//! Runs that are told to stop, by kind and by what is in flight.

use super::*;

/// Runs until `kind` fires one second in.
async fn aborted(script_: Vec<Model>, tool: IntentAnswer, kind: AbortKind) -> (RunEnd, Rc<Link>) {
    let link = Link::new();
    *link.tool.borrow_mut() = Ok(tool);
    script(script_);
    let engine = engine_with(vec![Arc::new(Local::default())]);
    let run = engine.run(grant("r"), start(), link.clone());
    let fire = async {
        tokio::time::sleep(tokio::time::Duration::from_secs(1)).await;
        link.abort_with(kind);
    };
    let (end, ()) = futures_util::join!(run, fire);
    (end, link)
}

#[tokio::test(start_paused = true)]
async fn a_model_call_cut_by_a_shutdown_reports_nothing_and_releases() {
    for kind in [AbortKind::Shutdown, AbortKind::OwnershipLost] {
        let (end, link) = aborted(vec![Model::Hangs], IntentAnswer::Pending, kind).await;
        assert_eq!(end, RunEnd::Released(kind));
        assert!(link.reports.borrow().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_call_cut_by_the_deadline_is_uncertain_and_settles() {
    let (end, link) = aborted(vec![Model::Hangs], IntentAnswer::Pending, AbortKind::Deadline).await;
    assert_eq!(output(end).status, Some(OutputStatus::Uncertain));
    assert_eq!(link.errors(), ["stop"]);
}

#[tokio::test(start_paused = true)]
async fn a_model_call_cut_by_a_cancel_is_reported_and_the_turn_is_cancelled() {
    let (end, link) = aborted(vec![Model::Hangs], IntentAnswer::Pending, AbortKind::Cancel).await;
    assert_eq!(output(end).status, Some(OutputStatus::Cancelled));
    assert_eq!(link.errors(), ["stop"]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_cut_by_a_shutdown_is_reported_and_the_run_is_released() {
    let execute = IntentAnswer::Execute { rejoin: false };
    let (end, link) = aborted(vec![calls("local")], execute.clone(), AbortKind::Shutdown).await;
    assert_eq!(end, RunEnd::Released(AbortKind::Shutdown));
    assert_eq!(link.errors(), ["cut by shutdown"]);
    let (end, link) = aborted(vec![calls("local")], execute, AbortKind::OwnershipLost).await;
    assert_eq!(end, RunEnd::Released(AbortKind::OwnershipLost));
    assert!(link.errors().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_abort_ends_a_hold_at_once() {
    let began = Instant::now();
    let (end, _) = aborted(vec![calls("act")], IntentAnswer::Pending, AbortKind::Cancel).await;
    let output = output(end);
    assert_eq!(output.status, Some(OutputStatus::Cancelled));
    assert_eq!(output.transcript.unwrap()[0].entries[2]["results"][0]["code"], "tool.cancelled");
    let (end, _) = aborted(vec![calls("act")], IntentAnswer::Pending, AbortKind::Shutdown).await;
    assert_eq!(end, RunEnd::Released(AbortKind::Shutdown));
    assert_eq!(began.elapsed().as_secs(), 2);
}

#[tokio::test]
async fn a_run_that_is_aborted_before_it_starts_declares_nothing() {
    for (kind, released) in [(AbortKind::Shutdown, true), (AbortKind::Cancel, false)] {
        let link = Link::new();
        link.abort_with(kind);
        let end = engine().run(grant("r"), start(), link.clone()).await;
        assert_eq!(end == RunEnd::Released(kind), released);
        assert!(link.ids().is_empty());
    }
}
