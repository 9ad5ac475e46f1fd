//! The record, fold snapshots, the outbox of wakes.

use super::samples::{append, effect, head, json, odd_strings, open, open_with, pin, sid, turn};
use super::{Subject, both, tx};
use crate::model::Micros;
use crate::model::effect::{EffectKind, EffectStatus};
use crate::model::event::{EventKind, cursor};
use crate::model::ids::SessionId;
use crate::model::json::{encode, parse};
use crate::model::session::{SessionDoc, SessionHead};
use crate::ports::Clock as _;
use crate::ports::store::{CommandRow, FoldSnapshotRow, RecordRow, StoreError, StoreResult, WakeRow};

fn seqs(rows: &[RecordRow]) -> Vec<i64> {
    rows.iter().map(|row| row.seq).collect()
}

pub async fn the_record_numbers_each_session_from_zero(s: &mut dyn Subject) {
    open(s, "a").await;
    open(s, "b").await;
    assert_eq!(both(s, |r| r.head(&sid("a"))).await, 0);
    assert_eq!(append(s, "a", &[EventKind::CommandMessage, EventKind::ToolCompleted]).await, [0, 1]);
    assert_eq!(append(s, "b", &[EventKind::CommandMessage]).await, [0]);
    assert_eq!(append(s, "a", &[EventKind::TurnCompleted]).await, [2]);
    assert_eq!(
        both(s, |r| Ok((r.head(&sid("a"))?, r.head(&sid("b"))?, r.head(&sid("c"))?))).await,
        (3, 1, 0)
    );
    s.reopen();
    assert_eq!(append(s, "a", &[EventKind::TurnCompleted]).await, [3]);
}

pub async fn an_event_is_the_envelope_that_is_served(s: &mut dyn Subject) {
    open_with(s, SessionHead { epoch: 4, ..head("s") }).await;
    append(s, "s", &[EventKind::CommandMessage]).await;
    s.clock().advance_ms(1_234);
    tx(s, |t| {
        // The epoch is the one at the moment of the event.
        t.put_owner(&sid("s"), Some(&"w".into()), 5, None)?;
        t.event(&sid("s"), Some(&turn("t1")), EventKind::TurnCompleted, r#"{"output":"\u0000\ud800"}"#)
    })
    .await
    .unwrap();
    let tenant = both(s, |r| r.tenant()).await;
    let rows = both(s, |r| r.record(&sid("s"), 0, 9)).await;
    assert_eq!((rows[1].kind, rows[1].turn_id.clone()), (EventKind::TurnCompleted, Some(turn("t1"))));
    let first = parse(rows[0].body.as_bytes()).unwrap();
    let second = parse(rows[1].body.as_bytes()).unwrap();
    assert_eq!((&first["epoch"], &second["epoch"]), (&4.into(), &5.into()));
    assert_eq!(second["seq"], 1);
    assert_eq!(second["cursor"], cursor(&sid("s"), 1));
    assert_eq!(second["tenantId"], tenant.id.as_str());
    assert_eq!(second["sessionId"], "s");
    assert_eq!(second["turnId"], "t1");
    assert_eq!(second["type"], "turn.completed");
    assert_eq!(second["time"], s.clock().now().to_iso());
    assert_eq!(encode(&second["payload"]), r#"{"output":"\u0000\ud800"}"#);
    assert_ne!(first["eventId"], second["eventId"]);
    assert_eq!(second["eventId"].as_str().unwrap().len(), 36);
}

pub async fn a_seq_that_was_rolled_back_is_used_again(s: &mut dyn Subject) {
    open(s, "s").await;
    append(s, "s", &[EventKind::CommandMessage]).await;
    let failed: StoreResult<()> = tx(s, |t| {
        assert_eq!(t.event(&sid("s"), None, EventKind::ToolCompleted, "{}"), Ok(1));
        assert_eq!(t.event(&sid("s"), None, EventKind::ToolCompleted, "{}"), Ok(2));
        Err(StoreError::Full)
    })
    .await;
    assert_eq!(failed, Err(StoreError::Full));
    assert_eq!(append(s, "s", &[EventKind::TurnCompleted]).await, [1]);
    let rows = both(s, |r| r.record(&sid("s"), 0, 9)).await;
    assert_eq!(
        rows.iter().map(|r| r.kind).collect::<Vec<_>>(),
        [EventKind::CommandMessage, EventKind::TurnCompleted]
    );
}

pub async fn the_record_is_read_in_pages(s: &mut dyn Subject) {
    open(s, "s").await;
    open(s, "s2").await;
    for _ in 0..5 {
        append(s, "s", &[EventKind::ToolCompleted, EventKind::TranscriptUpdated]).await;
        append(s, "s2", &[EventKind::ToolCompleted]).await;
    }
    let page = |from, limit| both(s, move |r| r.record(&sid("s"), from, limit));
    assert_eq!(seqs(&page(0, 4).await), [0, 1, 2, 3]);
    assert_eq!(seqs(&page(4, 4).await), [4, 5, 6, 7]);
    assert_eq!(seqs(&page(8, 4).await), [8, 9]);
    assert_eq!(seqs(&page(10, 4).await), [0; 0]);
    assert_eq!(seqs(&page(0, 0).await), [0; 0]);
    assert_eq!(seqs(&both(s, |r| r.record(&sid("nobody"), 0, 4)).await), [0; 0]);
}

pub async fn the_fold_reads_only_its_own_types(s: &mut dyn Subject) {
    open(s, "s").await;
    append(s, "s", EventKind::ALL).await;
    let expected: Vec<EventKind> = EventKind::ALL.iter().copied().filter(|k| k.is_fold_step()).collect();
    assert_eq!(expected.len(), 4);
    let steps = both(s, |r| r.fold_record(&sid("s"), 0, 99)).await;
    assert_eq!(steps.iter().map(|r| r.kind).collect::<Vec<_>>(), expected);
    let second = steps[1].seq;
    assert_eq!(seqs(&both(s, move |r| r.fold_record(&sid("s"), second, 2)).await), seqs(&steps[1..3]));
    assert_eq!(both(s, |r| r.record(&sid("s"), 0, 999)).await.len(), EventKind::ALL.len());
}

pub async fn odd_strings_survive_everywhere(s: &mut dyn Subject) {
    for (i, odd) in odd_strings().into_iter().enumerate() {
        let document = json(&encode(&serde_json::json!({ odd.as_str(): [odd] })));
        // An empty id is no id.
        let id = SessionId::from(if odd.is_empty() { "empty".to_owned() } else { odd.clone() });
        let mut row = head(id.as_str());
        (row.owner_user_id, row.agent_id) = (odd.clone(), odd.as_str().into());
        let doc = SessionDoc {
            state: Some(document.clone()),
            error: Some(odd.clone()),
            variants: vec![odd.clone()],
            ..SessionDoc::default()
        };
        let mut fx = effect(id.as_str(), &format!("t{i}:0:{odd}"), EffectKind::Tool, EffectStatus::Completed);
        (fx.request, fx.outcome, fx.error) = (document.clone(), Some(document.clone()), Some(odd.clone()));
        let command = CommandRow { digest: odd.clone(), response: document.clone() };
        let written = (row, doc, fx, command);
        {
            let ((row, doc, fx, command), odd, document) = (written.clone(), odd.clone(), document.clone());
            tx(s, move |t| {
                t.insert_session(&row, &pin(), &doc)?;
                t.insert_effect(&fx)?;
                t.put_command(&row.id, &odd, &command)?;
                t.put_setting(&format!("k{odd}"), &odd)?;
                t.put_manifest(&format!("m{odd}"), &document)?;
                t.put_wake(&row.id, &odd, Some(&odd))?;
                t.event(&row.id, Some(&odd.as_str().into()), EventKind::CommandMessage, document.as_str())
            })
            .await
            .unwrap();
        }
        s.reopen();
        let (row, _, fx, _) = &written;
        let (session, effect_id, key) = (row.id.clone(), fx.id.clone(), odd.clone());
        let read = both(s, move |r| {
            assert_eq!(r.setting(&format!("k{key}"))?.as_ref(), Some(&key));
            assert_eq!(r.sessions(Some(&key.as_str().into()), Some(&key), &Default::default())?.len(), 1);
            let wake = r.due_wakes(0, 99)?.into_iter().find(|w| w.session_id == session).unwrap();
            assert_eq!((wake.reason.as_str(), wake.dedupe_key.as_ref()), (key.as_str(), Some(&key)));
            let event = r.record(&session, 0, 1)?.remove(0);
            assert_eq!(event.turn_id, Some(key.as_str().into()));
            let envelope = parse(event.body.as_bytes()).unwrap();
            assert_eq!(envelope["sessionId"], session.as_str());
            assert_eq!(envelope["turnId"], key.as_str());
            assert_eq!(json(&encode(&envelope["payload"])), r.manifest(&format!("m{key}"))?.unwrap());
            Ok((
                r.session(&session)?.unwrap(),
                r.session_doc(&session)?.unwrap(),
                r.effect(&effect_id)?.unwrap(),
                r.command(&session, &key)?.unwrap(),
            ))
        })
        .await;
        assert_eq!(read, written);
    }
}

pub async fn fold_snapshots_are_kept_by_cursor(s: &mut dyn Subject) {
    open(s, "s").await;
    open(s, "s2").await;
    let row = |session: &str, cursor, base| FoldSnapshotRow {
        session_id: sid(session),
        cursor,
        base,
        keep: cursor * 2,
        entries: json(&format!("[{cursor},{base}]")),
    };
    let rows = [row("s", 30, 20), row("s", 10, -1), row("s", 20, 10), row("s2", 15, -1)];
    tx(s, move |t| rows.iter().try_for_each(|row| t.put_fold_snapshot(row))).await.unwrap();
    let list = |from, to| both(s, move |r| r.fold_snapshots(&sid("s"), from, to));
    assert_eq!(list(0, 99).await, [row("s", 10, -1), row("s", 20, 10), row("s", 30, 20)]);
    assert_eq!(list(10, 20).await, [row("s", 10, -1), row("s", 20, 10)]);
    assert_eq!(list(11, 29).await, [row("s", 20, 10)]);
    assert_eq!(list(31, 99).await, []);
    assert_eq!(list(20, 10).await, []);
    let again = row("s", 20, -1);
    tx(s, move |t| t.put_fold_snapshot(&again)).await.unwrap();
    assert_eq!(list(20, 20).await, [row("s", 20, -1)]);
    assert_eq!(both(s, |r| r.fold_snapshots(&sid("nobody"), 0, 99)).await, []);
}

async fn due(s: &dyn Subject, grace_ms: i64) -> Vec<WakeRow> {
    both(s, move |r| r.due_wakes(grace_ms, 99)).await
}

fn reasons(wakes: &[WakeRow]) -> Vec<&str> {
    wakes.iter().map(|w| w.reason.as_str()).collect()
}

pub async fn wakes_are_due_after_their_grace_oldest_first(s: &mut dyn Subject) {
    open(s, "z").await;
    open(s, "a").await;
    let start = s.clock().now();
    for (session, reason) in [("z", "first"), ("a", "second")] {
        tx(s, move |t| t.put_wake(&sid(session), reason, Some("k"))).await.unwrap();
    }
    // In one transaction, at one instant.
    tx(s, |t| (3..9).try_for_each(|i| t.put_wake(&sid("a"), &format!("w{i}"), None))).await.unwrap();
    s.clock().advance_ms(1_000);
    tx(s, |t| t.put_wake(&sid("z"), "late", None)).await.unwrap();
    let all = due(s, 0).await;
    assert_eq!(reasons(&all), ["first", "second", "w3", "w4", "w5", "w6", "w7", "w8", "late"]);
    assert!(all.is_sorted_by(|a, b| a.id < b.id), "ids sort by age");
    assert_eq!(
        all[0],
        WakeRow {
            id: all[0].id.clone(),
            session_id: sid("z"),
            reason: "first".to_owned(),
            dedupe_key: Some("k".to_owned()),
            created_at: start,
            attempts: 0,
            retry_at: None,
            parked_at: None,
        }
    );
    assert_eq!(due(s, 1_000).await.len(), 8, "an age of exactly the grace is due");
    assert_eq!(due(s, 1_001).await, []);
    assert_eq!(reasons(&both(s, |r| r.due_wakes(0, 2)).await), ["first", "second"]);
}

pub async fn a_failed_wake_waits_and_a_parked_one_stays(s: &mut dyn Subject) {
    open(s, "s").await;
    tx(s, |t| {
        t.put_wake(&sid("s"), "one", None)?;
        t.put_wake(&sid("s"), "two", None)
    })
    .await
    .unwrap();
    let now = s.clock().now();
    let first = due(s, 0).await.remove(0);
    let fail = |park| {
        let id = first.id.clone();
        tx(s, move |t| t.fail_wake(&id, 5_000, park))
    };
    fail(false).await.unwrap();
    assert_eq!(reasons(&due(s, 0).await), ["two"]);
    s.clock().set(Micros(now.0 + 5_000_000 - 1));
    assert_eq!(reasons(&due(s, 0).await), ["two"]);
    s.clock().set(now.plus_ms(5_000));
    // Its grace no longer matters.
    let again = due(s, 60_000).await;
    assert_eq!(again, [WakeRow { attempts: 1, retry_at: Some(now.plus_ms(5_000)), ..first.clone() }]);
    assert_eq!(reasons(&due(s, 0).await), ["one", "two"]);
    fail(true).await.unwrap();
    s.clock().advance_ms(86_400_000);
    assert_eq!(reasons(&due(s, 0).await), ["two"]);
    assert_eq!(both(s, |r| r.counts()).await.parked_wakes, 1);
    tx(s, |t| t.delete_wakes(&sid("s"))).await.unwrap();
    assert_eq!(both(s, |r| r.counts()).await.parked_wakes, 0);
}

pub async fn wakes_of_a_session_go_together(s: &mut dyn Subject) {
    open(s, "a").await;
    open(s, "b").await;
    tx(s, |t| {
        t.put_wake(&sid("a"), "a1", None)?;
        t.put_wake(&sid("b"), "b1", None)?;
        t.put_wake(&sid("a"), "a2", None)
    })
    .await
    .unwrap();
    let stale = due(s, 0).await.remove(0).id;
    tx(s, |t| t.delete_wakes(&sid("a"))).await.unwrap();
    assert_eq!(reasons(&due(s, 0).await), ["b1"]);
    // A number is never used again, so a late failure of a taken wake hits nobody.
    tx(s, |t| t.delete_wakes(&sid("b"))).await.unwrap();
    s.reopen();
    tx(s, |t| t.put_wake(&sid("a"), "a3", None)).await.unwrap();
    let fresh = due(s, 0).await.remove(0);
    assert_ne!(fresh.id, stale);
    tx(s, move |t| t.fail_wake(&stale, 60_000, true)).await.unwrap();
    assert_eq!(due(s, 0).await, [fresh]);
}
