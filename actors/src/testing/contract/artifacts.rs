//! Artifacts, their versions and contents, and the total of their bytes.

use super::samples::{head, json, odd_strings, open, open_with, sid};
use super::{Subject, both, read, tx};
use crate::model::Micros;
use crate::model::artifact::{ArtifactKind, ArtifactSource};
use crate::model::session::SessionHead;
use crate::ports::store::{
    ArtifactContentRow, ArtifactFilter, ArtifactRow, ArtifactVersionRow, Page, StoreError, StoreResult, Tx,
};

fn artifact(id: &str, kind: ArtifactKind, session: Option<&str>) -> ArtifactRow {
    ArtifactRow {
        id: id.to_owned(),
        kind,
        name: "outputs".to_owned(),
        content_type: "text/plain".to_owned(),
        session_id: session.map(sid),
        latest_version: 1,
        labels: Some(json(r#"{"a":"b"}"#)),
        created_at: Micros(1),
        updated_at: Micros(2),
    }
}

fn version(id: &str, version: i64, bytes: i64) -> ArtifactVersionRow {
    ArtifactVersionRow {
        artifact_id: id.to_owned(),
        version,
        blob_key: format!("{id}.{version}"),
        blob_size: bytes,
        size: bytes + 1000,
        sha256: format!("hash of {id}"),
        content_type: "text/plain".to_owned(),
        source: ArtifactSource::Engine,
        created_at: Micros(3),
    }
}

fn content(id: &str, version: i64, hash: &str, bytes: i64) -> ArtifactContentRow {
    ArtifactContentRow {
        artifact_id: id.to_owned(),
        version,
        sha256: hash.to_owned(),
        blob_key: format!("bytes of {hash}"),
        size: bytes,
        crc32: u32::MAX,
    }
}

fn file(tx: &mut dyn Tx, id: &str, session: Option<&str>) -> StoreResult<()> {
    tx.insert_artifact(&artifact(id, ArtifactKind::File, session))?;
    tx.insert_artifact_version(&version(id, 1, 10))
}

pub async fn artifacts_and_their_versions_come_back_as_written(s: &mut dyn Subject) {
    open(s, "s").await;
    tx(s, |t| file(t, "a", Some("s"))).await.unwrap();
    assert_eq!(both(s, |r| r.artifact("a")).await, Some(artifact("a", ArtifactKind::File, Some("s"))));
    assert_eq!(both(s, |r| r.artifact("z")).await, None);
    assert_eq!(both(s, |r| r.artifact_version("a", 1)).await, Some(version("a", 1, 10)));
    assert_eq!(both(s, |r| r.artifact_version("a", 2)).await, None);
    for (n, again) in ["a", "b"].into_iter().enumerate() {
        let answer = tx(s, move |t| file(t, again, None)).await;
        assert_eq!(matches!(answer, Err(StoreError::Conflict(_))), n == 0, "{answer:?}");
    }
    let newer = ArtifactRow {
        latest_version: 2,
        content_type: "image/png".to_owned(),
        updated_at: Micros(9),
        ..artifact("a", ArtifactKind::File, Some("s"))
    };
    // Only what a new version changes is written.
    let put = ArtifactRow { name: "other".to_owned(), labels: None, session_id: None, ..newer.clone() };
    tx(s, move |t| {
        t.insert_artifact_version(&version("a", 2, 5))?;
        t.put_artifact_latest(&put)
    })
    .await
    .unwrap();
    assert_eq!(both(s, |r| r.artifact("a")).await, Some(newer));
    assert_eq!(both(s, |r| r.artifact_versions("a")).await, [version("a", 1, 10), version("a", 2, 5)]);
    let twice = tx(s, |t| t.insert_artifact_version(&version("a", 2, 5))).await;
    assert!(matches!(twice, Err(StoreError::Conflict(_))), "{twice:?}");
    let missing = tx(s, |t| t.put_artifact_latest(&artifact("z", ArtifactKind::File, None))).await;
    assert!(matches!(missing, Err(StoreError::Missing(_))), "{missing:?}");
    for (n, text) in odd_strings().into_iter().enumerate() {
        let odd = ArtifactRow {
            name: text.clone(),
            content_type: text.clone(),
            session_id: Some(text.into()),
            labels: None,
            ..artifact(&format!("odd {n}"), ArtifactKind::Folder, None)
        };
        let written = odd.clone();
        tx(s, move |t| t.insert_artifact(&written)).await.unwrap();
        let id = odd.id.clone();
        assert_eq!(both(s, move |r| r.artifact(&id)).await, Some(odd));
    }
    assert_eq!(both(s, |r| r.last_artifact_id()).await.as_deref(), Some("odd 9"));
    s.reopen();
    assert_eq!(both(s, |r| r.artifact_versions("a")).await.len(), 2);
}

pub async fn artifacts_are_listed_by_id_filtered_and_in_pages(s: &mut dyn Subject) {
    open(s, "ada-1").await;
    open_with(s, SessionHead { agent_id: "other".into(), ..head("ada-2") }).await;
    open_with(s, SessionHead { owner_user_id: "bob".to_owned(), ..head("bob-1") }).await;
    tx(s, |t| {
        file(t, "d", Some("ada-1"))?;
        file(t, "b", Some("bob-1"))?;
        file(t, "c", None)?;
        file(t, "a", Some("ada-2"))?;
        file(t, "e", Some("gone"))
    })
    .await
    .unwrap();
    let ids = |filter: ArtifactFilter, page: Page| {
        both(s, move |r| Ok(r.artifacts(&filter, &page)?.into_iter().map(|a| a.id).collect::<Vec<_>>()))
    };
    let all = ArtifactFilter::default();
    assert_eq!(ids(all.clone(), Page::default()).await, ["a", "b", "c", "d", "e"]);
    assert_eq!(ids(all, Page { after: Some("b".to_owned()), limit: Some(2) }).await, ["c", "d"]);
    let of = |session: &str| ArtifactFilter { session: Some(sid(session)), person: None };
    assert_eq!(ids(of("ada-1"), Page::default()).await, ["d"]);
    assert!(ids(of("nobody"), Page::default()).await.is_empty());
    let person = |name: &str, agents: Option<&[&str]>| ArtifactFilter {
        session: None,
        person: Some((name.to_owned(), agents.map(|list| list.iter().map(|id| (*id).into()).collect()))),
    };
    assert_eq!(ids(person("ada", None), Page::default()).await, ["a", "d"]);
    assert_eq!(ids(person("ada", Some(&["other", "x"])), Page::default()).await, ["a"]);
    assert!(ids(person("ada", Some(&[])), Page::default()).await.is_empty());
    assert!(ids(person("eve", None), Page::default()).await.is_empty());
    let both_filters = ArtifactFilter { session: Some(sid("bob-1")), ..person("ada", None) };
    assert!(ids(both_filters, Page::default()).await.is_empty());
}

pub async fn a_folders_contents_are_shared_and_counted_once(s: &mut dyn Subject) {
    assert_eq!(both(s, |r| r.artifact_bytes()).await, 0);
    tx(s, |t| {
        for id in ["a", "b"] {
            t.insert_artifact(&artifact(id, ArtifactKind::Folder, Some("s")))?;
        }
        for (id, n) in [("a", 1), ("a", 2), ("b", 1)] {
            t.insert_artifact_version(&version(id, n, 100))?;
            t.insert_artifact_content(&content(id, n, "shared", 7))?;
        }
        t.insert_artifact_content(&content("a", 1, "old", 20))?;
        t.insert_artifact_content(&content("a", 2, "old", 20))?;
        t.insert_artifact_content(&content("a", 2, "new", 3))
    })
    .await
    .unwrap();
    assert_eq!(both(s, |r| r.artifact_bytes()).await, 300 + 7 + 20 + 3);
    let hashes = |rows: Vec<ArtifactContentRow>| rows.into_iter().map(|r| r.sha256).collect::<Vec<_>>();
    assert_eq!(hashes(both(s, |r| r.artifact_contents("a", 2)).await), ["new", "old", "shared"]);
    assert_eq!(both(s, |r| r.artifact_content("a", 1, "old")).await, Some(content("a", 1, "old", 20)));
    assert_eq!(both(s, |r| r.artifact_content("b", 1, "old")).await, None);
    assert_eq!(
        both(s, |r| r.content_of_hash("old")).await.map(|c| c.blob_key),
        Some("bytes of old".to_owned())
    );
    assert_eq!(both(s, |r| r.content_of_hash("none")).await, None);
    assert_eq!(hashes(both(s, |r| r.contents_of_one("a")).await), ["new", "old"]);
    assert!(both(s, |r| r.contents_of_one("b")).await.is_empty());
    let twice = tx(s, |t| t.insert_artifact_content(&content("a", 1, "old", 20))).await;
    assert!(matches!(twice, Err(StoreError::Conflict(_))), "{twice:?}");
    assert_eq!(both(s, |r| r.artifact_bytes()).await, 330, "what failed is not counted");
    assert_eq!(both(s, |r| r.session_folder(&sid("s"), "outputs")).await.map(|f| f.id), Some("a".to_owned()));
    assert_eq!(both(s, |r| r.session_folder(&sid("s"), "x")).await, None);
    assert_eq!(both(s, |r| r.session_folder(&sid("t"), "outputs")).await, None);

    let keys: Vec<String> = ["a.1", "bytes of new", "stray", "bytes of shared"].map(str::to_owned).to_vec();
    let asked = keys.clone();
    assert_eq!(both(s, move |r| r.unnamed_blobs(&asked)).await, ["stray"]);
    tx(s, |t| {
        t.delete_artifact("a")?;
        t.delete_artifact("nobody")
    })
    .await
    .unwrap();
    assert_eq!(both(s, move |r| r.unnamed_blobs(&keys)).await, ["a.1", "bytes of new", "stray"]);
    assert_eq!(both(s, |r| r.artifact_bytes()).await, 107);
    assert!(both(s, |r| r.artifact_versions("a")).await.is_empty());
    assert!(both(s, |r| r.artifact_contents("a", 1)).await.is_empty());
    s.reopen();
    assert_eq!(both(s, |r| r.artifact_bytes()).await, 107);
}

async fn ids(s: &dyn Subject) -> Vec<String> {
    let (filter, page) = (ArtifactFilter::default(), Page::default());
    let rows = read(s, move |r| r.artifacts(&filter, &page)).await.unwrap();
    rows.into_iter().map(|row| row.id).collect()
}

pub async fn artifacts_go_with_their_session(s: &mut dyn Subject) {
    for id in ["s", "t"] {
        open(s, id).await;
    }
    tx(s, |t| {
        file(t, "1", Some("s"))?;
        file(t, "2", Some("t"))?;
        file(t, "3", None)
    })
    .await
    .unwrap();
    tx(s, |t| t.delete_session(&sid("s"))).await.unwrap();
    assert_eq!(ids(s).await, ["2", "3"]);
    let undone: StoreResult<()> = tx(s, |t| {
        t.reset_sessions()?;
        Err(StoreError::Full)
    })
    .await;
    assert_eq!(undone, Err(StoreError::Full));
    assert_eq!((ids(s).await.len(), both(s, |r| r.artifact_bytes()).await), (2, 20));
    tx(s, |t| t.reset_sessions()).await.unwrap();
    assert_eq!((ids(s).await, both(s, |r| r.artifact_bytes()).await), (vec!["3".to_owned()], 10));
}
