//! Sessions: rows, lists, orphans, deletion, reset.

use super::samples::{append, effect, head, json, open, open_with, pin, sid, turn};
use super::{Subject, both, tx};
use crate::model::Micros;
use crate::model::effect::{EffectKind, EffectStatus};
use crate::model::event::EventKind;
use crate::model::ids::{AgentId, SessionId, WorkerId};
use crate::model::session::{SessionDoc, SessionHead, SessionPin, SessionStatus};
use crate::ports::Clock as _;
use crate::ports::store::{
    CommandRow, Counts, DefinitionRow, FoldSnapshotRow, Page, StoreError, StoreResult,
};

fn full_head(id: &str) -> SessionHead {
    SessionHead {
        sandbox_id: Some("sb".to_owned()),
        status: SessionStatus::Running,
        active_turn_id: Some(turn("t2")),
        last_turn_id: Some(turn("t1")),
        owner: Some("w".into()),
        epoch: 1 << 40,
        owner_expires_at: Some(Micros(123)),
        ..head(id)
    }
}

fn full_pin() -> SessionPin {
    SessionPin {
        implementation_version: "1.2".to_owned(),
        plugin_roots: Some(json(r#"{"p":"/x"}"#)),
        info: Some(json(r#"{"a":"\u0000\ud800"}"#)),
        creation: r#"{"agentId":"a"}"#.to_owned(),
        vault_ids: Some(json(r#"["v"]"#)),
        credential_selections: Some(json("[]")),
        sandbox_owner_id: Some(sid("other")),
        sandbox: Some(json("{}")),
        sandbox_source: Some("shared".to_owned()),
        mcp_snapshot: Some(json(r#"{"m":1}"#)),
        mcp_diagnostics: Some(json("[1]")),
        created_at: Micros(42),
    }
}

fn full_doc() -> SessionDoc {
    SessionDoc {
        checkpoint: Some(json(r#"{"segment":0}"#)),
        state: Some(json(r#"{"s":"\udc00"}"#)),
        turn_start_state: Some(json("{}")),
        history_from: Some(3),
        history_snapshot: Some(5),
        waits: Some(json("[]")),
        error: Some("no\0".to_owned()),
        last_output: Some(json("null")),
        variants: vec!["h1".to_owned(), "h2".to_owned()],
    }
}

async fn rows(s: &dyn Subject, id: &'static str) -> (SessionHead, SessionPin, SessionDoc) {
    both(s, move |r| {
        let id = sid(id);
        Ok((r.session(&id)?.unwrap(), r.session_pin(&id)?.unwrap(), r.session_doc(&id)?.unwrap()))
    })
    .await
}

pub async fn a_session_is_three_rows_that_come_back_as_written(s: &mut dyn Subject) {
    tx(s, |t| t.insert_session(&full_head("full"), &full_pin(), &full_doc())).await.unwrap();
    tx(s, |t| t.insert_session(&head("bare"), &SessionPin::default(), &SessionDoc::default())).await.unwrap();
    for _ in 0..2 {
        assert_eq!(rows(s, "full").await, (full_head("full"), full_pin(), full_doc()));
        assert_eq!(rows(s, "bare").await, (head("bare"), SessionPin::default(), SessionDoc::default()));
        s.reopen();
    }
    let nobody = both(s, |r| {
        let id = sid("nobody");
        Ok((r.session(&id)?, r.session_pin(&id)?, r.session_doc(&id)?))
    })
    .await;
    assert_eq!(nobody, (None, None, None));
}

pub async fn a_session_id_is_used_once(s: &mut dyn Subject) {
    open(s, "s").await;
    s.reopen();
    let again = tx(s, |t| t.insert_session(&full_head("s"), &pin(), &SessionDoc::default())).await;
    assert!(matches!(again, Err(StoreError::Conflict(_))), "{again:?}");
    assert_eq!(both(s, |r| r.session(&sid("s"))).await, Some(head("s")));
}

pub async fn status_and_ownership_are_written_apart(s: &mut dyn Subject) {
    open_with(s, full_head("s")).await;
    tx(s, |t| t.put_status(&sid("s"), SessionStatus::Paused, None, Some(&turn("t2")))).await.unwrap();
    let mut expected = full_head("s");
    (expected.status, expected.active_turn_id, expected.last_turn_id) =
        (SessionStatus::Paused, None, Some(turn("t2")));
    assert_eq!(both(s, |r| r.session(&sid("s"))).await.as_ref(), Some(&expected));

    tx(s, |t| t.put_owner(&sid("s"), None, 9, None)).await.unwrap();
    (expected.owner, expected.epoch, expected.owner_expires_at) = (None, 9, None);
    s.reopen();
    assert_eq!(both(s, |r| r.session(&sid("s"))).await.as_ref(), Some(&expected));

    let worker = WorkerId::from("w2");
    tx(s, move |t| t.put_owner(&sid("s"), Some(&worker), 10, Some(Micros(77)))).await.unwrap();
    (expected.owner, expected.epoch, expected.owner_expires_at) = (Some("w2".into()), 10, Some(Micros(77)));
    assert_eq!(both(s, |r| r.session(&sid("s"))).await, Some(expected));
}

pub async fn pin_and_documents_are_replaced(s: &mut dyn Subject) {
    open(s, "s").await;
    tx(s, |t| {
        t.put_session_pin(&sid("s"), &full_pin())?;
        t.put_session_doc(&sid("s"), &full_doc())
    })
    .await
    .unwrap();
    s.reopen();
    assert_eq!(rows(s, "s").await, (head("s"), full_pin(), full_doc()));
    tx(s, |t| {
        t.put_session_doc(&sid("s"), &SessionDoc::default())?;
        t.put_session_pin(&sid("s"), &SessionPin::default())
    })
    .await
    .unwrap();
    assert_eq!(rows(s, "s").await, (head("s"), SessionPin::default(), SessionDoc::default()));
    s.reopen();
    assert_eq!(rows(s, "s").await, (head("s"), SessionPin::default(), SessionDoc::default()));
}

pub async fn writes_to_what_is_missing_say_so(s: &mut dyn Subject) {
    let answers: Vec<StoreResult<()>> = tx(s, |t| {
        let id = sid("nobody");
        let fold =
            FoldSnapshotRow { session_id: id.clone(), cursor: 0, base: -1, keep: 0, entries: json("[]") };
        let command = CommandRow { digest: "d".to_owned(), response: json("{}") };
        Ok(vec![
            t.put_status(&id, SessionStatus::Idle, None, None),
            t.put_owner(&id, None, 1, None),
            t.put_session_pin(&id, &pin()),
            t.put_session_doc(&id, &SessionDoc::default()),
            t.put_command(&id, "k", &command),
            t.event(&id, None, EventKind::TurnCompleted, "{}").map(|_| ()),
            t.put_fold_snapshot(&fold),
            t.put_wake(&id, "message", None),
            t.insert_effect(&effect("nobody", "t:0:a", EffectKind::Tool, EffectStatus::Pending)),
            t.settle_effect(&"t:0:b".into(), EffectStatus::Completed, None, None),
            t.settle_effect(&"t:0:b".into(), EffectStatus::Uncertain, None, None),
            t.reinvoke_effect(&"t:0:b".into()),
        ])
    })
    .await
    .unwrap();
    for (i, answer) in answers.iter().enumerate() {
        assert!(matches!(answer, Err(StoreError::Missing(_))), "{i}: {answer:?}");
    }
    // These have nothing to do.
    tx(s, |t| {
        t.delete_session(&sid("nobody"))?;
        t.delete_wakes(&sid("nobody"))?;
        t.fail_wake("nothing", 1, true)?;
        t.fail_wake("00000000000000000001", 1, true)?;
        t.slim_model_effects(&sid("nobody"), &turn("t"))
    })
    .await
    .unwrap();
    assert_eq!(both(s, |r| r.counts()).await, Counts::default());
}

fn ids(heads: &[SessionHead]) -> Vec<&str> {
    heads.iter().map(|h| h.id.as_str()).collect()
}

pub async fn sessions_are_listed_by_id_filtered_and_in_pages(s: &mut dyn Subject) {
    for (id, agent, user) in [("c", "x", "ada"), ("B", "x", "bob"), ("a", "y", "ada"), ("d", "x", "ada")] {
        open_with(s, SessionHead { agent_id: agent.into(), owner_user_id: user.to_owned(), ..head(id) })
            .await;
    }
    let list = |agent: Option<&'static str>, user: Option<&'static str>, page: Page| {
        both(s, move |r| r.sessions(agent.map(AgentId::from).as_ref(), user, &page))
    };
    let page = |after: &str, limit| Page { after: Some(after.to_owned()), limit: Some(limit) };
    assert_eq!(ids(&list(None, None, Page::default()).await), ["B", "a", "c", "d"]);
    assert_eq!(ids(&list(Some("x"), None, Page::default()).await), ["B", "c", "d"]);
    assert_eq!(ids(&list(None, Some("ada"), Page::default()).await), ["a", "c", "d"]);
    assert_eq!(ids(&list(Some("x"), Some("ada"), Page::default()).await), ["c", "d"]);
    assert_eq!(ids(&list(Some("z"), None, Page::default()).await), [""; 0]);
    assert_eq!(ids(&list(None, None, Page { after: None, limit: Some(2) }).await), ["B", "a"]);
    assert_eq!(ids(&list(None, None, page("a", 1)).await), ["c"]);
    assert_eq!(ids(&list(None, Some("ada"), page("a", 5)).await), ["c", "d"]);
    assert_eq!(ids(&list(None, None, page("d", 5)).await), [""; 0]);
    assert_eq!(ids(&list(None, None, page("", 0)).await), [""; 0]);
}

async fn orphans(s: &dyn Subject, dead_others: bool) -> Vec<String> {
    let found = both(s, move |r| r.orphans(&"me".into(), dead_others, None, 100)).await;
    found.iter().map(ToString::to_string).collect()
}

pub async fn orphans_have_no_owner_or_a_lapsed_lease(s: &mut dyn Subject) {
    let now = s.clock().now();
    let works = |id: &str, status, owner: Option<&str>, expires: Option<Micros>| SessionHead {
        status,
        owner: owner.map(Into::into),
        owner_expires_at: expires,
        ..head(id)
    };
    use SessionStatus::{Completed, Paused, Runnable, Running, Uncertain, Waiting};
    for row in [
        works("free-runnable", Runnable, None, None),
        works("free-running", Running, None, None),
        works("exactly-now", Running, Some("other"), Some(now)),
        works("just-alive", Running, Some("other"), Some(Micros(now.0 + 1))),
        works("mine-lapsed", Runnable, Some("me"), Some(Micros(now.0 - 1))),
        works("mine-alive", Running, Some("me"), Some(now.plus_ms(9))),
        works("not-working", Completed, None, None),
        works("waits", Waiting, None, None),
        works("paused", Paused, Some("other"), Some(Micros(0))),
        works("uncertain", Uncertain, None, None),
    ] {
        open_with(s, row).await;
    }
    assert_eq!(orphans(s, false).await, ["exactly-now", "free-runnable", "free-running", "mine-lapsed"]);
    s.clock().set(Micros(now.0 + 1));
    assert_eq!(
        orphans(s, false).await,
        ["exactly-now", "free-runnable", "free-running", "just-alive", "mine-lapsed"]
    );
    tx(s, |t| t.put_status(&sid("free-running"), Completed, None, None)).await.unwrap();
    tx(s, |t| t.put_status(&sid("waits"), Runnable, None, None)).await.unwrap();
    assert_eq!(
        orphans(s, false).await,
        ["exactly-now", "free-runnable", "just-alive", "mine-lapsed", "waits"]
    );
}

pub async fn orphans_of_dead_workers_are_found_at_once(s: &mut dyn Subject) {
    let later = s.clock().now().plus_ms(30_000);
    for (id, owner) in [("a", "other"), ("b", "me"), ("c", "another")] {
        let row = SessionHead {
            status: SessionStatus::Running,
            owner: Some(owner.into()),
            owner_expires_at: Some(later),
            ..head(id)
        };
        open_with(s, row).await;
    }
    assert_eq!(orphans(s, false).await, [""; 0]);
    assert_eq!(orphans(s, true).await, ["a", "c"]);
    s.clock().advance_ms(30_000);
    assert_eq!(orphans(s, true).await, ["a", "b", "c"]);
}

pub async fn orphans_come_in_pages_by_id(s: &mut dyn Subject) {
    for i in 0..7 {
        open_with(s, SessionHead { status: SessionStatus::Runnable, ..head(&format!("s{i}")) }).await;
    }
    let mut pages = Vec::new();
    let mut after: Option<SessionId> = None;
    loop {
        let from = after.clone();
        let page = both(s, move |r| r.orphans(&"me".into(), true, from.as_ref(), 3)).await;
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        pages.push(page.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    }
    assert_eq!(pages, ["s0 s1 s2", "s3 s4 s5", "s6"]);
}

/// A session with one of everything.
async fn furnish(s: &dyn Subject, id: &'static str) {
    open_with(s, SessionHead { status: SessionStatus::Running, epoch: 3, ..head(id) }).await;
    tx(s, move |t| {
        let session = sid(id);
        t.event(&session, Some(&turn("t")), EventKind::CommandMessage, "{}")?;
        t.event(&session, Some(&turn("t")), EventKind::TurnCompleted, "{}")?;
        t.put_wake(&session, "message", Some("k"))?;
        t.put_command(&session, "k", &CommandRow { digest: "d".to_owned(), response: json("{}") })?;
        t.insert_effect(&effect(id, &format!("{id}-t:0:m"), EffectKind::Model, EffectStatus::Completed))?;
        t.insert_effect(&effect(id, &format!("{id}-t:0:x"), EffectKind::Tool, EffectStatus::Pending))?;
        let entries = json("[]");
        t.put_fold_snapshot(&FoldSnapshotRow { session_id: session, cursor: 1, base: -1, keep: 0, entries })
    })
    .await
    .unwrap();
}

/// What is left of a furnished session: head, command, effects, fold snapshots, wakes, record, head of the record.
async fn left(s: &dyn Subject, id: &'static str) -> (bool, bool, usize, usize, usize, usize, i64) {
    both(s, move |r| {
        let session = sid(id);
        let done = r.effect(&format!("{id}-t:0:m").into())?.is_some();
        Ok((
            r.session(&session)?.is_some(),
            r.command(&session, "k")?.is_some(),
            usize::from(done) + r.open_effects(&session, &[EffectStatus::Pending])?.len(),
            r.fold_snapshots(&session, 0, 9)?.len(),
            r.due_wakes(0, 99)?.iter().filter(|w| w.session_id == session).count(),
            r.record(&session, 0, 99)?.len(),
            r.head(&session)?,
        ))
    })
    .await
}

const ALL_LEFT: (bool, bool, usize, usize, usize, usize, i64) = (true, true, 2, 1, 1, 2, 2);

pub async fn a_deleted_session_leaves_its_record_and_numbering(s: &mut dyn Subject) {
    furnish(s, "gone").await;
    furnish(s, "kept").await;
    assert_eq!(left(s, "gone").await, ALL_LEFT);
    tx(s, |t| t.delete_session(&sid("gone"))).await.unwrap();
    assert_eq!(left(s, "gone").await, (false, false, 0, 0, 0, 2, 2));
    assert_eq!(left(s, "kept").await, ALL_LEFT);
    let event = tx(s, |t| t.event(&sid("gone"), None, EventKind::TurnCompleted, "{}")).await;
    assert!(matches!(event, Err(StoreError::Missing(_))), "{event:?}");
    s.reopen();
    open(s, "gone").await;
    assert_eq!(both(s, |r| r.session_doc(&sid("gone"))).await, Some(SessionDoc::default()));
    assert_eq!(append(s, "gone", &[EventKind::TurnCompleted]).await, [2]);
    let body = both(s, |r| r.record(&sid("gone"), 2, 1)).await[0].body.clone();
    assert!(body.contains(r#""epoch":0,"seq":2,"#), "{body}");
    // And all of it in one transaction.
    tx(s, |t| {
        t.delete_session(&sid("gone"))?;
        t.insert_session(&head("gone"), &pin(), &SessionDoc::default())?;
        assert_eq!(t.event(&sid("gone"), None, EventKind::TurnCompleted, "{}"), Ok(3));
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(both(s, |r| r.head(&sid("gone"))).await, 4);
}

pub async fn a_rolled_back_delete_keeps_everything(s: &mut dyn Subject) {
    furnish(s, "s").await;
    let answer: StoreResult<()> = tx(s, |t| {
        t.delete_session(&sid("s"))?;
        t.insert_session(&head("s"), &pin(), &SessionDoc::default())?;
        Err(StoreError::Full)
    })
    .await;
    assert_eq!(answer, Err(StoreError::Full));
    assert_eq!(left(s, "s").await, ALL_LEFT);
    assert_eq!(both(s, |r| r.session(&sid("s"))).await.unwrap().epoch, 3);
}

pub async fn a_reset_deletes_sessions_and_starts_a_generation(s: &mut dyn Subject) {
    furnish(s, "a").await;
    furnish(s, "b").await;
    let definition = DefinitionRow {
        id: "agent".into(),
        manifest_hash: "h".to_owned(),
        implementation_version: "1".to_owned(),
        plugin_roots: None,
    };
    tx(s, move |t| {
        t.put_definition(&definition)?;
        t.put_setting("kept", "1")
    })
    .await
    .unwrap();
    let before = both(s, |r| r.tenant()).await;
    s.clock().advance_ms(10);
    tx(s, |t| t.reset_sessions()).await.unwrap();
    for id in ["a", "b"] {
        assert_eq!(left(s, id).await, (false, false, 0, 0, 0, 0, 0));
    }
    let after = both(s, |r| r.tenant()).await;
    assert_eq!((after.generation, after.id), (before.generation + 1, before.id));
    assert_eq!(after.updated_at, before.updated_at.plus_ms(10));
    assert_eq!(both(s, |r| r.setting("kept")).await, Some("1".to_owned()));
    assert_eq!(both(s, |r| r.counts()).await, Counts { definitions: 1, ..Counts::default() });
    open(s, "a").await;
    assert_eq!(append(s, "a", &[EventKind::TurnCompleted]).await, [0]);
    // Within one transaction too.
    tx(s, |t| {
        t.reset_sessions()?;
        t.insert_session(&head("b"), &pin(), &SessionDoc::default())?;
        assert_eq!(t.event(&sid("b"), None, EventKind::TurnCompleted, "{}"), Ok(0));
        t.event(&sid("b"), None, EventKind::TurnCompleted, "{}").map(|_| ())
    })
    .await
    .unwrap();
    s.reopen();
    assert_eq!(both(s, |r| Ok((r.head(&sid("a"))?, r.head(&sid("b"))?))).await, (0, 2));
}

pub async fn a_rolled_back_reset_changes_nothing(s: &mut dyn Subject) {
    furnish(s, "a").await;
    let before = both(s, |r| r.tenant()).await;
    let answer: StoreResult<()> = tx(s, |t| {
        t.reset_sessions()?;
        t.insert_session(&head("a"), &pin(), &SessionDoc::default())?;
        t.event(&sid("a"), None, EventKind::TurnCompleted, "{}")?;
        Err(StoreError::Full)
    })
    .await;
    assert_eq!(answer, Err(StoreError::Full));
    assert_eq!(left(s, "a").await, ALL_LEFT);
    assert_eq!(both(s, |r| r.tenant()).await, before);
    assert_eq!(append(s, "a", &[EventKind::TurnCompleted]).await, [2]);
}

pub async fn counts_count(s: &mut dyn Subject) {
    use SessionStatus::{Idle, Runnable, Running, Waiting};
    for (id, status) in [("a", Idle), ("b", Runnable), ("c", Running), ("d", Waiting)] {
        open_with(s, SessionHead { status, ..head(id) }).await;
    }
    tx(s, |t| {
        let statuses = [
            EffectStatus::Queued,
            EffectStatus::Pending,
            EffectStatus::Pending,
            EffectStatus::Invoking,
            EffectStatus::Completed,
            EffectStatus::Uncertain,
            EffectStatus::Cancelled,
        ];
        for (i, status) in statuses.into_iter().enumerate() {
            t.insert_effect(&effect("a", &format!("t:0:{i}"), EffectKind::Tool, status))?;
        }
        for agent in ["x", "y"] {
            t.put_definition(&DefinitionRow {
                id: agent.into(),
                manifest_hash: "h".to_owned(),
                implementation_version: "1".to_owned(),
                plugin_roots: None,
            })?;
        }
        t.put_wake(&sid("a"), "message", None)?;
        t.put_wake(&sid("b"), "message", None)?;
        let wakes = t.due_wakes(0, 9)?;
        t.fail_wake(&wakes[0].id, 0, true)
    })
    .await
    .unwrap();
    let expected = Counts {
        sessions: 4,
        running_sessions: 2,
        pending_effects: 2,
        uncertain_effects: 1,
        definitions: 2,
        parked_wakes: 1,
        parked_actions: 0,
        delivering_actions: 0,
    };
    assert_eq!(both(s, |r| r.counts()).await, expected);
}
