//! Sandbox resources over the in-memory store.

use super::*;
use crate::model::workspace::{WorkspaceRecord, WorkspaceState};
use crate::ports::StoreHandle;
use crate::ports::store::StoreError;
use crate::rules::workspaces::{self, Orphaned};
use crate::testing::{ManualClock, MemoryStore, SeededEntropy};

struct World {
    clock: Arc<ManualClock>,
    store: StoreHandle,
}

fn asked(id: &str, body: &Json) -> PutSandbox {
    let map = body.as_object().unwrap();
    let labels = map.get("labels").and_then(Json::as_object);
    PutSandbox {
        id: id.to_owned(),
        kind: body["kind"].as_str().and_then(SandboxKind::from_name),
        labels: labels.map(|l| l.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned())).collect()),
        request: SandboxRequest::read(map),
        storage: body["storage"].as_str().map(str::to_owned),
        has_lifecycle: map.contains_key("lifecycle"),
    }
}

fn token(grants: &[&str]) -> Reach {
    let grants = grants.iter().map(|grant| (*grant).to_owned()).collect();
    Reach::Person { subject: "ada".into(), agents: None, token: true, sandboxes: Some(grants) }
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(clock.clone(), Arc::new(SeededEntropy::new(1))).handle();
        Self { clock, store }
    }

    async fn put_as(&self, reach: &Reach, id: &str, body: Json) -> Result<Json, Refusal> {
        let (put_, reach) = (asked(id, &body), reach.clone());
        self.store.tx(move |tx| put(tx, &put_, &reach)).await
    }

    async fn put(&self, id: &str, body: Json) -> Result<Json, Refusal> {
        self.put_as(&Reach::All, id, body).await
    }

    async fn config(&self, stored: Json) {
        let put = self.store.tx(move |tx| tx.put_setting(settings::SANDBOX_CONFIG, &stored.to_string()));
        put.await.unwrap();
    }

    async fn ids(&self, labels: &[&str], reach: &Reach, limit: Option<usize>) -> Vec<String> {
        let labels: Vec<_> =
            labels.iter().filter_map(|text| crate::model::sandbox::id::label_filter(text)).collect();
        let (reach, page) = (reach.clone(), Page { after: None, limit });
        let rows: Result<_, StoreError> =
            self.store.read(move |reads| list(reads, &labels, &reach, &page)).await;
        rows.unwrap().into_iter().map(|(id, _)| id).collect()
    }
}

fn conflict(answer: Result<Json, Refusal>) -> String {
    match answer {
        Err(Refusal::Conflict { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_sandbox_is_made_once_and_found_again_by_what_is_sent_alone() {
    let world = World::new();
    let body =
        json!({"labels": {"app": "x"}, "network": {"allow": ["GitHub.com"]}, "resources": {"cpus": 1}});
    let made = world.put("team/box", body.clone()).await.unwrap();
    assert_eq!(
        made,
        json!({
            "id": "team/box", "kind": "virtual", "labels": {"app": "x"}, "state": "ready", "sessions": [],
            "spec": {"network": {"preset": "none", "allow": ["github.com"]}, "resources": {"cpus": 1, "memory": "1024MiB"}, "idle": "15m"},
            "createdAt": made["createdAt"], "updatedAt": made["createdAt"],
        })
    );
    world.clock.advance_ms(1000);
    // Also when the Tenant's defaults have changed since.
    world
        .config(json!({"limits": {"defaultResources": {"memory": "256MiB"}, "network": [], "sandboxes": 0}}))
        .await;
    for same in [
        json!({}),
        body,
        json!({"kind": "virtual"}),
        json!({"network": {"allow": ["github.com", "GITHUB.com"]}}),
        json!({"resources": {"memory": "1GiB"}}),
        json!({"lifecycle": {"ttl": "1h"}}),
    ] {
        assert_eq!(world.put("team/box", same.clone()).await.unwrap(), made, "{same}");
    }
    for (other, field) in [
        (json!({"image": "i"}), "image"),
        (json!({"network": {"allow": []}}), "network.allow"),
        (json!({"resources": {"cpus": 2}}), "resources.cpus"),
        (json!({"resources": {"memory": "2GiB"}}), "resources.memory"),
        (json!({"storage": "1GiB"}), "storage"),
    ] {
        assert!(conflict(world.put("team/box", other).await).ends_with(field), "{field}");
    }
    let events = world.store.read(|reads| events(reads, "team/box", 0, 9, &Reach::All)).await.unwrap();
    assert_eq!(events.len(), 1);
    assert!(
        events[0].contains(r#""type":"sandbox.created","payload":{"kind":"virtual","labels":{"app":"x"}}"#)
    );
}

#[tokio::test]
async fn labels_that_are_sent_replace_all_labels() {
    let world = World::new();
    let made = world.put("x", json!({"labels": {"a": "1", "b": "2"}})).await.unwrap();
    world.clock.advance_ms(1000);
    let same = world.put("x", json!({"labels": {"b": "2", "a": "1"}})).await.unwrap();
    assert_eq!(same["updatedAt"], made["updatedAt"]);
    let other = world.put("x", json!({"labels": {"c": "3"}})).await.unwrap();
    assert_eq!(other["labels"], json!({"c": "3"}));
    assert_ne!(other["updatedAt"], made["updatedAt"]);
    assert_eq!(other["createdAt"], made["createdAt"]);
    assert_eq!(world.put("x", json!({})).await.unwrap()["labels"], json!({"c": "3"}));
}

#[tokio::test]
async fn what_cannot_be_made_leaves_nothing() {
    let world = World::new();
    let asked = json!({"image": "i", "storage": "1GiB", "lifecycle": {}, "resources": {"cpus": 64}});
    let Err(Refusal::Invalid { message, .. }) = world.put("x", asked).await else { panic!("made") };
    for part in ["storage", "lifecycle", "image", "64 CPUs"] {
        assert!(message.contains(part), "{message}");
    }
    let pod = world.put("x", json!({"kind": "pod"})).await;
    assert!(matches!(
        pod,
        Err(Refusal::Sandbox { why: SandboxRefusal::Unavailable, retry_after_s: None, .. })
    ));
    assert!(world.ids(&[], &Reach::All, None).await.is_empty());
    world.config(json!({"limits": {"sandboxes": 1}})).await;
    world.put("a", json!({})).await.unwrap();
    let full = world.put("b", json!({})).await;
    assert!(matches!(full, Err(Refusal::Limit { limit: "sandboxes", max: 1, .. })), "{full:?}");
    assert!(world.put("a", json!({})).await.is_ok(), "one that is there is no more");
}

#[tokio::test]
async fn twenty_at_once_make_no_more_than_the_limit() {
    let world = World::new();
    world.config(json!({"limits": {"sandboxes": 5}})).await;
    let ids: Vec<String> = (0..20).map(|n| format!("s{n}")).collect();
    let all = futures_util::future::join_all(ids.iter().map(|id| world.put(id, json!({})))).await;
    assert_eq!(all.iter().filter(|answer| answer.is_ok()).count(), 5);
    assert_eq!(world.ids(&[], &Reach::All, None).await.len(), 5);
}

#[tokio::test]
async fn lists_have_what_the_labels_and_the_grants_let_through_in_full_pages() {
    let world = World::new();
    for n in 0..9 {
        let labels = json!({"labels": {"third": (n % 3).to_string(), "all": "1"}});
        world.put(&format!("p/{n}"), labels).await.unwrap();
    }
    world.put("q/0", json!({})).await.unwrap();
    assert_eq!(world.ids(&[], &Reach::All, None).await.len(), 10);
    assert_eq!(world.ids(&["third=1", "all=1"], &Reach::All, None).await, ["p/1", "p/4", "p/7"]);
    assert!(world.ids(&["third=1", "all=2"], &Reach::All, None).await.is_empty());
    // A page is filled from as many pages of the store as it takes.
    assert_eq!(world.ids(&["third=2"], &Reach::All, Some(2)).await, ["p/2", "p/5"]);
    assert_eq!(world.ids(&[], &token(&["p/3", "q/*"]), None).await, ["p/3", "q/0"]);
    assert_eq!(world.ids(&[], &token(&["q/*"]), Some(1)).await, ["q/0"]);
    assert!(world.ids(&[], &token(&[]), None).await.is_empty());
}

#[tokio::test]
async fn without_a_grant_a_sandbox_is_as_good_as_missing_everywhere() {
    let world = World::new();
    world.put("p/box", json!({})).await.unwrap();
    for reach in [token(&["p"]), token(&["q/*"]), token(&[])] {
        let missing = |answer: Result<Json, Refusal>| {
            assert!(matches!(answer, Err(Refusal::NotFound(_))), "{answer:?}");
        };
        for id in ["p/box", "p/none"] {
            missing(world.put_as(&reach, id, json!({})).await);
            let (r, i) = (reach.clone(), id);
            missing(world.store.read(move |reads| get(reads, i, &r)).await);
            let r = reach.clone();
            missing(world.store.read(move |reads| events(reads, i, 0, 9, &r).map(|_| Json::Null)).await);
            let r = reach.clone();
            missing(world.store.tx(move |tx| delete(tx, i, &r).map(|_| Json::Null)).await);
            let r = reach.clone();
            missing(world.store.read(move |reads| stop_or_reset(reads, i, &r)).await);
        }
    }
    assert!(world.put_as(&token(&["p/*"]), "p/box", json!({})).await.is_ok());
}

#[tokio::test]
async fn a_deleted_sandbox_is_not_made_again_before_its_files_are_gone() {
    let world = World::new();
    world.put("x", json!({})).await.unwrap();
    let delete_x = || world.store.tx(|tx| delete(tx, "x", &Reach::All));
    assert_eq!(delete_x().await, Ok(true));
    assert_eq!(delete_x().await, Ok(false));
    let busy = world.put("x", json!({})).await;
    assert!(matches!(busy, Err(Refusal::Sandbox { why: SandboxRefusal::Busy, retry_after_s: Some(5), .. })));
    world.store.tx(|tx| workspaces::removed_sandbox(tx, "x")).await.unwrap();
    assert!(world.put("x", json!({})).await.is_ok());
    let events = world.store.read(|reads| events(reads, "x", 1, 9, &Reach::All)).await.unwrap();
    assert_eq!(events.len(), 2, "deleted and created: {events:?}");
    assert!(
        events[0].contains(r#""seq":1"#) && events[0].contains(r#""type":"sandbox.deleted","payload":{}"#)
    );
}

#[tokio::test]
async fn the_state_is_that_of_the_workspace_and_its_owner_is_the_resource() {
    let world = World::new();
    world.put("x", json!({})).await.unwrap();
    let tenant: Result<_, StoreError> = world.store.read(|reads| Ok(reads.tenant()?.id)).await;
    let record = |sandbox: Option<&str>, state| WorkspaceRecord {
        key: sandbox.map_or("k".to_owned(), |id| sandbox_key(tenant.as_ref().unwrap(), id)),
        session_id: "gone".into(),
        sandbox_id: sandbox.map(str::to_owned),
        backend: "virtual".into(),
        image: "i".into(),
        state,
        created_at: String::new(),
        updated_at: String::new(),
    };
    for state in [WorkspaceState::Creating, WorkspaceState::Running, WorkspaceState::Stopped] {
        let row = record(Some("x"), state);
        world.store.tx(move |tx| tx.put_workspace(&row)).await.unwrap();
        let view = world.store.read(|reads| get(reads, "x", &Reach::All)).await.unwrap();
        assert_eq!(view["state"], state.as_str());
    }
    // The session that opened it first is gone, and that does not matter.
    let stopped = WorkspaceState::Stopped;
    let records = [record(Some("x"), stopped), record(Some("y"), stopped), record(None, stopped)];
    let gone: Result<_, StoreError> =
        world.store.read(move |reads| workspaces::without_owner(reads, &records)).await;
    assert_eq!(gone.unwrap(), Orphaned { keys: vec!["k".into()], sandboxes: vec!["y".into()] });
    let noted = world.store.tx(|tx| {
        workspaces::note_removals(tx, &["x".to_owned(), "y".to_owned()])?;
        tx.sandbox_removals(9)
    });
    assert_eq!(noted.await.unwrap(), ["y"], "one that was made again meanwhile is left alone");
    world.store.tx(|tx| delete(tx, "x", &Reach::All)).await.unwrap();
    world.store.tx(|tx| workspaces::removed_sandbox(tx, "x")).await.unwrap();
    assert_eq!(world.put("x", json!({})).await.unwrap()["state"], "ready");
}

#[tokio::test]
async fn only_a_pod_is_stopped_or_reset() {
    let world = World::new();
    world.put("x", json!({})).await.unwrap();
    let stop = |id: &'static str| world.store.read(move |reads| stop_or_reset(reads, id, &Reach::All));
    assert!(matches!(stop("x").await, Err(Refusal::Invalid { .. })));
    assert!(matches!(stop("none").await, Err(Refusal::NotFound(_))));
}
