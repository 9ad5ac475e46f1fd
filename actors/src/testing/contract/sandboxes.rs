//! Sandbox resources.

use super::samples::{head, odd_strings, open_with, sid, turn};
use super::{Subject, both, tx};
use crate::model::Micros;
use crate::model::json::{Json, parse};
use crate::model::sandbox::{SandboxEventKind, SandboxKind, SandboxResource, SandboxSpec};
use crate::model::session::{SessionHead, SessionStatus};
use crate::ports::store::{Page, StoreError, StoreResult};

fn sandbox(id: &str) -> SandboxResource {
    SandboxResource {
        id: id.to_owned(),
        kind: SandboxKind::Virtual,
        spec: SandboxSpec { idle: "15m".to_owned(), ..SandboxSpec::default() },
        labels: [("app".to_owned(), "a b".to_owned())].into(),
        created_at: Micros(5),
        updated_at: Micros(6),
    }
}

pub async fn sandboxes_are_written_once_replaced_listed_and_deleted(s: &mut dyn Subject) {
    assert_eq!(both(s, |r| r.count_sandboxes()).await, 0);
    for id in ["b", "team/x", "a"] {
        tx(s, move |t| t.insert_sandbox(&sandbox(id))).await.unwrap();
    }
    assert!(matches!(tx(s, |t| t.insert_sandbox(&sandbox("a"))).await, Err(StoreError::Conflict(_))));
    assert_eq!(both(s, |r| r.sandbox("a")).await, Some(sandbox("a")));
    assert_eq!(both(s, |r| r.sandbox("z")).await, None);
    let changed = SandboxResource {
        labels: odd_strings().into_iter().map(|text| (text.clone(), text)).collect(),
        spec: SandboxSpec { image: Some("i".to_owned()), ..sandbox("b").spec },
        updated_at: Micros(9),
        ..sandbox("b")
    };
    // Kind and creation are never written again.
    let written = SandboxResource { kind: SandboxKind::Pod, created_at: Micros(8), ..changed.clone() };
    tx(s, move |t| t.put_sandbox(&written)).await.unwrap();
    assert_eq!(both(s, |r| r.sandbox("b")).await, Some(changed.clone()));
    assert!(matches!(tx(s, |t| t.put_sandbox(&sandbox("z"))).await, Err(StoreError::Missing(_))));
    let ids = |after: Option<&str>, limit| {
        let page = Page { after: after.map(str::to_owned), limit };
        both(s, move |r| Ok(r.sandboxes(&page)?.into_iter().map(|row| row.id).collect::<Vec<_>>()))
    };
    assert_eq!(ids(None, None).await, ["a", "b", "team/x"]);
    assert_eq!(ids(Some("a"), Some(1)).await, ["b"]);
    let answer: StoreResult<()> = tx(s, |t| {
        t.delete_sandbox("b")?;
        t.insert_sandbox(&sandbox("c"))?;
        Err(StoreError::Full)
    })
    .await;
    assert_eq!(answer, Err(StoreError::Full));
    s.reopen();
    assert_eq!(both(s, |r| r.sandbox("b")).await, Some(changed));
    assert_eq!(tx(s, |t| t.delete_sandbox("b")).await, Ok(true));
    assert_eq!(tx(s, |t| t.delete_sandbox("b")).await, Ok(false));
    assert_eq!(both(s, |r| r.count_sandboxes()).await, 2);
}

pub async fn sessions_are_found_by_their_sandbox_and_by_their_turn(s: &mut dyn Subject) {
    let on =
        |id: &str, sandbox: Option<&str>| SessionHead { sandbox_id: sandbox.map(str::to_owned), ..head(id) };
    for (id, sandbox) in [("c", Some("x")), ("a", Some("x")), ("b", None), ("d", Some("y"))] {
        open_with(s, on(id, sandbox)).await;
    }
    let ids = |id: &'static str| {
        both(s, move |r| {
            let heads = r.sessions_on_sandbox(id)?;
            Ok(heads.into_iter().map(|head| head.id.to_string()).collect::<Vec<_>>())
        })
    };
    assert_eq!(ids("x").await, ["a", "c"]);
    assert!(ids("none").await.is_empty());
    assert!(both(s, |r| r.busy_on_sandbox("x")).await.is_empty());
    // A turn that this very transaction has begun is seen.
    let seen = tx(s, |t| {
        t.put_status(&sid("c"), SessionStatus::Running, Some(&turn("t")), None)?;
        t.put_status(&sid("d"), SessionStatus::Running, Some(&turn("u")), None)?;
        Ok((t.busy_on_sandbox("x")?, t.sessions_on_sandbox("x")?[1].active_turn_id.clone()))
    });
    assert_eq!(seen.await.unwrap(), (vec![sid("c")], Some(turn("t"))));
    assert_eq!(both(s, |r| r.busy_on_sandbox("x")).await, [sid("c")]);
    tx(s, |t| t.put_status(&sid("c"), SessionStatus::Completed, None, Some(&turn("t")))).await.unwrap();
    assert!(both(s, |r| r.busy_on_sandbox("x")).await.is_empty());
    tx(s, |t| t.delete_session(&sid("a"))).await.unwrap();
    assert_eq!(ids("x").await, ["c"]);
    // Those that share the workspace of a session.
    let shared = tx(s, |t| {
        for id in ["b", "c", "d"] {
            let mut pin = t.session_pin(&sid(id))?.unwrap_or_default();
            pin.sandbox_owner_id = (id != "c").then(|| sid("c"));
            t.put_session_pin(&sid(id), &pin)?;
        }
        t.busy_sharing(&sid("c"))
    });
    assert_eq!(shared.await.unwrap(), [sid("d")], "b has no turn");
    assert!(both(s, |r| r.busy_sharing(&sid("b"))).await.is_empty());
    tx(s, |t| t.put_status(&sid("d"), SessionStatus::Completed, None, Some(&turn("u")))).await.unwrap();
    assert!(both(s, |r| r.busy_sharing(&sid("c"))).await.is_empty());
}

pub async fn events_of_a_sandbox_count_from_zero_and_outlive_it(s: &mut dyn Subject) {
    tx(s, |t| t.insert_sandbox(&sandbox("x"))).await.unwrap();
    let first = tx(s, |t| {
        let created = t.sandbox_event("x", SandboxEventKind::Created, r#"{"kind":"virtual"}"#)?;
        Ok((created, t.sandbox_event("x", SandboxEventKind::Attached, r#"{"sessionId":"s"}"#)?))
    });
    assert_eq!(first.await, Ok((0, 1)));
    assert_eq!(tx(s, |t| t.sandbox_event("x/y", SandboxEventKind::Created, "{}")).await, Ok(0));
    let failed: StoreResult<()> = tx(s, |t| {
        t.sandbox_event("x", SandboxEventKind::Deleted, "{}")?;
        Err(StoreError::Full)
    })
    .await;
    assert_eq!(failed, Err(StoreError::Full));
    tx(s, |t| t.delete_sandbox("x")).await.unwrap();
    s.reopen();
    assert_eq!(tx(s, |t| t.sandbox_event("x", SandboxEventKind::Deleted, "{}")).await, Ok(2));
    let read = |from, limit| {
        both(s, move |r| {
            let texts = r.sandbox_events("x", from, limit)?;
            Ok(texts.iter().map(|text| parse(text.as_bytes()).unwrap()).collect::<Vec<Json>>())
        })
    };
    let events = read(0, 9).await;
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["sandbox.created", "sandbox.attached", "sandbox.deleted"]);
    assert_eq!(events[1]["payload"]["sessionId"], "s");
    assert_eq!((&events[1]["seq"], &events[1]["sandboxId"]), (&1.into(), &"x".into()));
    assert_eq!(read(1, 1).await, [events[1].clone()]);
    assert!(read(3, 9).await.is_empty());
}

pub async fn removals_wait_until_they_are_done(s: &mut dyn Subject) {
    for id in ["b", "a"] {
        tx(s, move |t| t.put_sandbox_removal(id)).await.unwrap();
        s.clock().advance_ms(1);
    }
    // Noted once, and it keeps its place.
    tx(s, |t| t.put_sandbox_removal("b")).await.unwrap();
    s.reopen();
    assert_eq!(both(s, |r| r.sandbox_removals(9)).await, ["b", "a"]);
    assert_eq!(both(s, |r| r.sandbox_removals(1)).await, ["b"]);
    assert!(both(s, |r| r.is_sandbox_removal("a")).await);
    tx(s, |t| t.delete_sandbox_removal("b")).await.unwrap();
    tx(s, |t| t.delete_sandbox_removal("b")).await.unwrap();
    assert!(!both(s, |r| r.is_sandbox_removal("b")).await);
    assert_eq!(both(s, |r| r.sandbox_removals(9)).await, ["a"]);
}
