//! The record of workspaces.

use super::samples::odd_strings;
use super::{Subject, both, tx};
use crate::model::workspace::{WorkspaceRecord, WorkspaceState};
use crate::ports::store::{StoreError, StoreResult};

fn record(key: &str, state: WorkspaceState) -> WorkspaceRecord {
    WorkspaceRecord {
        key: key.to_owned(),
        session_id: "not there".into(),
        sandbox_id: None,
        backend: "virtual".to_owned(),
        image: "python:3.13-slim".to_owned(),
        state,
        created_at: "2026-01-01T00:00:00.000Z".to_owned(),
        updated_at: "2026-01-01T00:00:01.000Z".to_owned(),
    }
}

pub async fn workspaces_are_written_replaced_listed_and_deleted(s: &mut dyn Subject) {
    use WorkspaceState::{Creating, Running, Stopped};
    assert_eq!(both(s, |r| r.count_workspaces()).await, 0);
    for (key, state) in [("b", Creating), ("c", Stopped), ("a", Running)] {
        tx(s, move |t| t.put_workspace(&record(key, state))).await.unwrap();
    }
    assert_eq!(both(s, |r| r.workspace("b")).await, Some(record("b", Creating)));
    assert_eq!(both(s, |r| r.workspace("z")).await, None);
    let moved = WorkspaceRecord { sandbox_id: Some("team/box".to_owned()), ..record("b", Running) };
    let written = moved.clone();
    tx(s, move |t| t.put_workspace(&written)).await.unwrap();
    assert_eq!(both(s, |r| r.workspace("b")).await, Some(moved));
    let keys = |after: Option<&'static str>, limit| {
        both(s, move |r| Ok(r.workspaces(after, limit)?.into_iter().map(|w| w.key).collect::<Vec<_>>()))
    };
    assert_eq!(keys(None, 9).await, ["a", "b", "c"]);
    assert_eq!(keys(None, 2).await, ["a", "b"]);
    assert_eq!(keys(Some("a"), 1).await, ["b"]);
    assert!(keys(Some("c"), 9).await.is_empty());
    assert_eq!(tx(s, |t| t.delete_workspace("a")).await, Ok(true));
    assert_eq!(tx(s, |t| t.delete_workspace("a")).await, Ok(false));
    let answer: StoreResult<()> = tx(s, |t| {
        t.delete_workspace("b")?;
        t.put_workspace(&record("d", Creating))?;
        Err(StoreError::Full)
    })
    .await;
    assert_eq!(answer, Err(StoreError::Full));
    assert_eq!(both(s, |r| r.count_workspaces()).await, 2);
    for (n, text) in odd_strings().into_iter().enumerate() {
        let odd = WorkspaceRecord {
            sandbox_id: Some(text.clone()),
            image: text.clone(),
            backend: text.clone(),
            session_id: text.into(),
            ..record(&format!("odd {n}"), Stopped)
        };
        let written = odd.clone();
        tx(s, move |t| t.put_workspace(&written)).await.unwrap();
        let key = odd.key.clone();
        assert_eq!(both(s, move |r| r.workspace(&key)).await, Some(odd));
    }
    s.reopen();
    assert_eq!(both(s, |r| r.workspace("c")).await, Some(record("c", Stopped)));
}
