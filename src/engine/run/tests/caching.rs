//! Transcripts kept between runs.

use super::*;

/// Runs a turn of the session and settles it at `cursor`.
async fn turn(
    engine: &AgentEngine,
    link: &Rc<Link>,
    start: &mut TurnStart,
    n: u32,
    cursor: Option<i64>,
) -> TurnOutput {
    start.checkpoint.turn_id = TurnId::from(format!("T{n}"));
    script(vec![says(&format!("answer {n}"))]);
    let grant = grant(&format!("r{n}"));
    let output = output(engine.run(grant.clone(), start.clone(), link.clone()).await);
    if output.status == Some(OutputStatus::Completed) {
        fold(link, &output);
        start.checkpoint.state = output.state.clone();
    }
    engine.settled(&grant, cursor);
    output
}

#[tokio::test]
async fn a_transcript_at_the_settled_cursor_is_not_read_and_at_another_is_read_once() {
    let (engine, link, mut start) = (engine(), Link::new(), start());
    turn(&engine, &link, &mut start, 1, Some(10)).await;
    start.transcript.cursor = 10;
    turn(&engine, &link, &mut start, 2, Some(20)).await;
    assert_eq!(link.reads.get(), 0);
    assert_eq!(link.entries.borrow().len(), 6);
    start.transcript.cursor = 21;
    let output = turn(&engine, &link, &mut start, 3, Some(30)).await;
    assert_eq!(link.reads.get(), 1);
    assert_eq!((output.transcript.as_deref().unwrap()[0].keep, link.entries.borrow().len()), (6, 9));
}

#[tokio::test]
async fn a_run_that_core_did_not_settle_is_forgotten() {
    let (engine, link, mut start) = (engine(), Link::new(), start());
    turn(&engine, &link, &mut start, 1, None).await;
    start.transcript.cursor = 10;
    turn(&engine, &link, &mut start, 2, Some(20)).await;
    assert_eq!(link.reads.get(), 1);
}

#[tokio::test]
async fn after_a_wait_the_start_stays_at_its_cursor() {
    let (engine, link, mut start) = (engine(), Link::new(), start());
    turn(&engine, &link, &mut start, 1, Some(10)).await;
    start.transcript.cursor = 10;
    start.options.hold_ms = Some(0);
    start.checkpoint.turn_id = TurnId::from("T2");
    script(vec![calls("act")]);
    let waiting = output(engine.run(grant("r2"), start.clone(), link.clone()).await);
    engine.settled(&grant("r2"), None);
    assert_eq!(waiting.status, Some(OutputStatus::Waiting));
    *link.tool.borrow_mut() =
        Ok(IntentAnswer::Completed(Outcome { value: Arc::new(json!(1)), state_patch: None }));
    script(vec![calls("act"), says("done")]);
    let done = output(engine.run(grant("r3"), start, link.clone()).await);
    assert_eq!(done.status, Some(OutputStatus::Completed));
    assert_eq!((link.reads.get(), done.transcript.unwrap()[0].keep), (0, 3));
}

#[tokio::test]
async fn a_failed_turn_is_read_again() {
    let (engine, link, mut start) = (engine(), Link::new(), start());
    turn(&engine, &link, &mut start, 1, Some(10)).await;
    start.transcript.cursor = 10;
    start.checkpoint.turn_id = TurnId::from("T2");
    script(vec![Model::Says(json!({"kind": "failed", "code": "auth", "message": "m", "retryable": false}))]);
    let failed = output(engine.run(grant("r2"), start.clone(), link.clone()).await);
    engine.settled(&grant("r2"), None);
    assert_eq!(failed.error.unwrap()["code"], "model.auth");
    turn(&engine, &link, &mut start, 3, Some(30)).await;
    assert_eq!(link.reads.get(), 1);
}
