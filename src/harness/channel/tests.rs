//! The channel against a core that a test plays by hand.

use std::time::Duration;

use nylorun_actors::model::json::parse;
use serde_json::json;

use super::*;

type Heard = Rc<RefCell<Vec<String>>>;

fn channel() -> (Channel, Heard) {
    let heard = Heard::default();
    let told = Rc::clone(&heard);
    let channel = Channel::new(move |message| told.borrow_mut().push(format!("{message:?}")));
    (channel, heard)
}

/// The next frame that goes to core.
async fn sent(channel: &Channel) -> Json {
    match tokio::time::timeout(Duration::from_secs(5), channel.next()).await.unwrap() {
        Outgoing::Text(text) => parse(text.as_bytes()).unwrap(),
        close => panic!("{close:?}"),
    }
}

fn answer(channel: &Channel, frame: Json) {
    channel.take(&encode(&frame)).unwrap();
}

async fn local<F: Future>(test: F) -> F::Output {
    tokio::task::LocalSet::new().run_until(test).await
}

fn ask(channel: &Channel, method: &'static str) -> tokio::task::JoinHandle<Result<Json, ApiError>> {
    let channel = channel.clone();
    tokio::task::spawn_local(async move { channel.request(method, &json!({})).await })
}

#[tokio::test]
async fn requests_are_numbered_from_1_and_answered_in_any_order() {
    local(async {
        let (channel, _) = channel();
        let (first, second) = (ask(&channel, "a"), ask(&channel, "b"));
        assert_eq!(sent(&channel).await, json!({"t": "req", "id": 1, "m": "a", "p": {}}));
        assert_eq!(sent(&channel).await, json!({"t": "req", "id": 2, "m": "b", "p": {}}));
        answer(&channel, json!({"t": "res", "id": 2, "ok": true, "r": {"n": 2}}));
        answer(
            &channel,
            json!({"t": "res", "id": 1, "ok": false, "e": {"code": "effect_drift", "message": "m"}}),
        );
        assert_eq!(second.await.unwrap(), Ok(json!({"n": 2})));
        assert_eq!(first.await.unwrap(), Err(ApiError::new(ApiCode::EffectDrift, "m")));
        assert_eq!(channel.in_flight(), 0);
    })
    .await;
}

#[tokio::test]
async fn answers_to_unknown_numbers_are_ignored() {
    let (channel, _) = channel();
    answer(&channel, json!({"t": "res", "id": 7, "ok": true}));
    answer(&channel, json!({"t": "abort", "id": 7}));
    answer(&channel, json!({"t": "ping"}));
    assert!(!channel.is_closed());
}

#[tokio::test]
async fn a_result_of_the_wrong_shape_is_invalid_here() {
    local(async {
        let (channel, _) = channel();
        let asked = channel.clone();
        let task = tokio::task::spawn_local(async move {
            asked.request::<_, methods::Renewed>("lease.renew", &json!({})).await
        });
        sent(&channel).await;
        answer(&channel, json!({"t": "res", "id": 1, "ok": true, "r": {"ok": true, "more": 1}}));
        assert_eq!(task.await.unwrap().unwrap_err().code, ApiCode::Invalid);
    })
    .await;
}

#[tokio::test]
async fn a_requester_that_gives_up_sends_an_abort_and_its_answer_is_ignored() {
    local(async {
        let (channel, _) = channel();
        let task = ask(&channel, "a");
        sent(&channel).await;
        task.abort();
        let _ = task.await;
        assert_eq!(sent(&channel).await, json!({"t": "abort", "id": 1}));
        answer(&channel, json!({"t": "res", "id": 1, "ok": true}));
        assert_eq!(channel.in_flight(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_request_that_is_given_up_before_it_has_room_is_never_sent_and_leaves_no_gap() {
    local(async {
        let (channel, _) = channel();
        let tasks: Vec<_> = (0..super::super::OUTBOX_FRAMES).map(|_| ask(&channel, "a")).collect();
        tokio::task::yield_now().await;
        let waiting = ask(&channel, "never");
        tokio::task::yield_now().await;
        waiting.abort();
        let _ = waiting.await;
        let last = ask(&channel, "last");
        let mut methods = Vec::new();
        for n in 1..=tasks.len() + 1 {
            let frame = sent(&channel).await;
            assert_eq!(frame["id"], n);
            methods.push(frame["m"].clone());
        }
        assert_eq!(methods.last(), Some(&json!("last")));
        last.abort();
    })
    .await;
}

#[tokio::test]
async fn senders_wait_while_the_transport_takes_nothing() {
    local(async {
        let (channel, _) = channel();
        let _tasks: Vec<_> = (0..100).map(|_| ask(&channel, "a")).collect();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(channel.in_flight(), super::super::OUTBOX_FRAMES, "the rest waits for room");
    })
    .await;
}

#[tokio::test]
async fn closing_rejects_everything_as_unavailable_once() {
    local(async {
        let (channel, _) = channel();
        let task = ask(&channel, "a");
        sent(&channel).await;
        channel.close(1000, "first");
        channel.close(1001, "second");
        assert_eq!(task.await.unwrap().unwrap_err().code, ApiCode::Unavailable);
        let late = channel.request::<_, Json>("b", &json!({})).await;
        assert_eq!(late.unwrap_err().code, ApiCode::Unavailable);
        assert_eq!(channel.closed().await, "first");
        assert_eq!(channel.next().await, Outgoing::Close { code: 1000, reason: "first".into() });
    })
    .await;
}

#[tokio::test]
async fn what_is_queued_goes_out_before_the_close() {
    local(async {
        let (channel, _) = channel();
        let _task = ask(&channel, "a");
        tokio::task::yield_now().await;
        channel.close(1000, "bye");
        assert_eq!(sent(&channel).await["m"], "a");
        assert!(matches!(channel.next().await, Outgoing::Close { code: 1000, .. }));
    })
    .await;
}

#[tokio::test]
async fn an_answer_is_handed_over_before_the_next_frame_is_looked_at() {
    local(async {
        let heard = Heard::default();
        let (told, then) = (Rc::clone(&heard), Rc::clone(&heard));
        let channel = Channel::new(move |_| told.borrow_mut().push("cancel".into()));
        let params = Params::of(&json!({})).unwrap();
        let asked = channel.request_then("lease", &params, move |_| then.borrow_mut().push("lease".into()));
        asked.await.unwrap();
        answer(&channel, json!({"t": "res", "id": 1, "ok": true, "r": {}}));
        answer(&channel, json!({"t": "msg", "m": "cancel", "p": {"runId": "r", "reason": "cancel"}}));
        assert_eq!(*heard.borrow(), ["lease", "cancel"]);
    })
    .await;
}

#[tokio::test]
async fn messages_that_are_unknown_or_malformed_are_dropped() {
    let (channel, heard) = channel();
    answer(&channel, json!({"t": "msg", "m": "news", "p": {}}));
    answer(&channel, json!({"t": "msg", "m": "cancel", "p": {"runId": "r", "reason": "boredom"}}));
    answer(&channel, json!({"t": "msg", "m": "cancel", "p": {"runId": "r", "reason": "cancel", "x": 1}}));
    assert!(heard.borrow().is_empty());
    answer(
        &channel,
        json!({"t": "msg", "m": "effect.resolved",
            "p": {"runId": "r", "effectId": "e", "outcome": {"value": 1}}}),
    );
    assert_eq!(heard.borrow().len(), 1);
}

#[tokio::test]
async fn core_is_told_that_there_are_no_workspaces_here() {
    let (channel, _) = channel();
    for (id, method, params, code) in [
        (1, "workspace.exec", json!({}), "unavailable"),
        (2, "workspace.sweep", Json::Null, "unavailable"),
        (3, "workspace.exec", json!([]), "invalid"),
        (4, "workspace.other", json!({}), "invalid"),
        (5, "lease", json!({}), "invalid"),
    ] {
        answer(&channel, json!({"t": "req", "id": id, "m": method, "p": params}));
        let frame = sent(&channel).await;
        assert_eq!((&frame["id"], &frame["e"]["code"]), (&json!(id), &json!(code)), "{method}");
    }
}

#[tokio::test]
async fn a_frame_that_is_none_closes_and_a_malformed_request_is_answered() {
    let (channel, _) = channel();
    answer(&channel, json!({"t": "req", "id": 4, "m": "x", "extra": 1}));
    assert_eq!(sent(&channel).await["e"]["code"], "invalid");
    assert_eq!(channel.take("{").unwrap_err().code, 1007);
    assert!(channel.is_closed());
    let (channel, _) = self::channel();
    let fatal = channel.take(r#"{"t":"other"}"#).unwrap_err();
    assert!(fatal.reason.starts_with("invalid frame:"), "{fatal}");
    assert!(channel.is_closed());
}

#[tokio::test]
async fn a_core_that_asks_and_never_reads_is_given_up() {
    let (channel, _) = channel();
    let flood = (1..=super::super::OUTBOX_REFUSALS + 1)
        .map(|id| channel.take(&encode(&json!({"t": "req", "id": id, "m": "x"}))));
    assert_eq!(flood.filter(Result::is_err).count(), 1);
    assert!(channel.is_closed());
}

#[test]
fn params_larger_than_a_frame_are_refused_before_they_are_sent() {
    let error = Params::of(&json!({"text": "x".repeat(HARNESS_FRAME_BYTES)})).unwrap_err();
    assert_eq!(error.code, ApiCode::Invalid);
}
