//! The decision on a session's sandbox, its place and its turns, over the in-memory store.

use std::sync::Arc;

use super::*;
use crate::model::command::{Command, CommandBody, MessageInput, Receipt};
use crate::model::sandbox::capability::{ARTIFACTS, SANDBOX};
use crate::model::sandbox::{SandboxResource, SandboxSpec};
use crate::ports::StoreHandle;
use crate::ports::store::{DefinitionRow, StoreError};
use crate::rules::commands::{self, Prepared};
use crate::rules::{definitions, sandboxes, sessions};
use crate::tenant::SessionView;
use crate::testing::{ManualClock, MemoryStore, SeededEntropy};

struct World(StoreHandle);

fn person(subject: &str, grants: Option<&[&str]>) -> Reach {
    Reach::Person {
        subject: subject.to_owned(),
        agents: None,
        token: grants.is_some(),
        sandboxes: grants.map(|grants| grants.iter().map(|grant| (*grant).to_owned()).collect()),
    }
}

fn agent(id: &str) -> Json {
    json!({"manifestSchemaVersion": 4, "id": id, "capabilities": []})
}

impl World {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let world = Self(MemoryStore::new(clock, Arc::new(SeededEntropy::new(1))).handle());
        world.define("a", agent("a")).await;
        world
    }

    async fn define(&self, id: &'static str, manifest: Json) {
        let put = self.0.tx(move |tx| {
            let row = DefinitionRow {
                id: id.into(),
                manifest_hash: crate::model::canonical::manifest_hash(&manifest),
                implementation_version: "1".into(),
                plugin_roots: None,
            };
            definitions::put(tx, &row, &JsonText::of(&manifest))
        });
        put.await.unwrap();
    }

    async fn config(&self, stored: Json) {
        let put = self.0.tx(move |tx| tx.put_setting(settings::SANDBOX_CONFIG, &stored.to_string()));
        put.await.unwrap();
    }

    async fn sandbox(&self, id: &'static str) -> SandboxResource {
        let put = self.0.tx(move |tx| {
            let put = sandboxes::PutSandbox { id: id.to_owned(), ..sandboxes::PutSandbox::default() };
            sandboxes::put(tx, &put, &Reach::All)
        });
        put.await.unwrap();
        let row: Result<_, StoreError> = self.0.read(move |reads| reads.sandbox(id)).await;
        row.unwrap().unwrap()
    }

    async fn open_as(
        &self,
        reach: &Reach,
        id: &str,
        agent: &str,
        owner: &str,
        sandbox: Option<Json>,
    ) -> Result<SessionView, Refusal> {
        let open = OpenSession {
            id: id.into(),
            agent_id: agent.into(),
            owner_user_id: owner.to_owned(),
            info: None,
            vault_ids: Vec::new(),
            credential_selections: Vec::new(),
            creation: json!({"sandbox": sandbox}).to_string(),
            sandbox,
        };
        let reach = reach.clone();
        self.0.tx(move |tx| sessions::open(tx, &open, &reach)).await
    }

    async fn open(&self, id: &str, sandbox: Option<Json>) -> Result<SessionView, Refusal> {
        self.open_as(&Reach::All, id, "a", "ada", sandbox).await
    }

    async fn say(&self, id: &str, reach: &Reach) -> Result<Receipt, Refusal> {
        let sent = json!({"requestId": "r", "idempotencyKey": "k", "type": "message", "content": "hi"});
        let input = MessageInput::Content("hi".into());
        let prepared = Prepared::new(Command {
            request_id: "r".into(),
            idempotency_key: format!("k{}", id.len()),
            body: CommandBody::Message { input, manifest: None },
            sent: sent.as_object().unwrap().clone(),
        });
        let (id, reach) = (SessionId::from(id), reach.clone());
        self.0.tx(move |tx| commands::apply(tx, &id, &prepared, &reach).map(|(receipt, _)| receipt)).await
    }

    async fn workspace(&self, id: &str) -> Option<(String, Option<String>)> {
        let id = SessionId::from(id);
        let found: Result<_, StoreError> = self.0.read(move |reads| workspaces::of_session(reads, &id)).await;
        let workspace = found.unwrap().unwrap().workspace?;
        Some((workspace.session.owner_id.to_string(), workspace.session.sandbox_id))
    }

    /// Opens a session as only older versions could: with an owner of its choice.
    async fn chain(&self, id: &'static str, to: &'static str) {
        let put = self.0.tx(move |tx| {
            let mut pin = tx.session_pin(&id.into())?.unwrap();
            pin.sandbox_owner_id = Some(to.into());
            tx.put_session_pin(&id.into(), &pin)
        });
        put.await.unwrap();
    }
}

/// Status as the API has it, and words.
fn refused<T: std::fmt::Debug>(answer: Result<T, Refusal>) -> (u16, String) {
    let refusal = answer.unwrap_err();
    let status = match &refusal {
        Refusal::NotFound(_) => 404,
        Refusal::Conflict { .. } | Refusal::Placement { .. } | Refusal::Limit { .. } => 409,
        Refusal::Sandbox { why: SandboxRefusal::NotGranted, .. } | Refusal::Forbidden(_) => 403,
        Refusal::Sandbox { .. } => 409,
        Refusal::Invalid { .. } => 400,
        other => panic!("{other:?}"),
    };
    (status, refusal.to_string())
}

#[tokio::test]
async fn false_is_none_and_nothing_is_the_tenants_default() {
    let world = World::new().await;
    for (id, sandbox) in [("false", Some(json!(false))), ("unset", None)] {
        let view = world.open(id, sandbox).await.unwrap();
        assert_eq!((view.sandbox, view.sandbox_source, view.sandbox_owner_id), (Json::Null, None, None));
    }
    world.config(json!({"default": "virtual"})).await;
    let view = world.open("virtual", None).await.unwrap();
    let spec =
        json!({"network": {"preset": "none"}, "resources": {"cpus": 2, "memory": "1024MiB"}, "idle": "15m"});
    assert_eq!((&view.sandbox, view.sandbox_source.as_deref()), (&spec, Some("default")));
    assert_eq!((view.sandbox_owner_id, view.sandbox_id), (None, None));
    world.config(json!({"default": {"resources": {"cpus": 1}}})).await;
    // A person gets the default, too: only an inline one is the application's alone.
    let view = world.open_as(&person("ada", None), "inline", "a", "ada", None).await.unwrap();
    assert_eq!(view.sandbox["resources"]["cpus"], 1);
    assert_eq!(world.open("no", Some(json!(false))).await.unwrap().sandbox, Json::Null);
}

#[tokio::test]
async fn an_inline_sandbox_is_the_applications_and_all_its_problems_are_told() {
    let world = World::new().await;
    let view = world.open("s", Some(json!({"resources": {"memory": "300MiB"}}))).await.unwrap();
    assert_eq!(
        (view.sandbox_source.as_deref(), &view.sandbox["resources"]["memory"]),
        (Some("inline"), &json!("300MiB"))
    );
    let asked = json!({"image": "i", "network": {"allow": ["a.example"]}, "resources": {"cpus": 9}});
    let (status, words) = refused(world.open("t", Some(asked.clone())).await);
    assert_eq!(status, 400);
    for part in ["image", "a.example", "9 CPUs"] {
        assert!(words.contains(part), "{words}");
    }
    for reach in [person("ada", None), person("ada", Some(&["*"]))] {
        // That it could not be resolved either is not told.
        let (status, words) = refused(world.open_as(&reach, "t", "a", "ada", Some(asked.clone())).await);
        assert_eq!(status, 403, "{words}");
        assert!(!words.contains("a.example"));
    }
}

#[tokio::test]
async fn the_pinned_manifest_has_the_tools_and_a_hash_of_its_own() {
    let world = World::new().await;
    let plain = world.open("plain", None).await.unwrap();
    let boxed = world.open("boxed", Some(json!({}))).await.unwrap();
    assert_ne!(plain.manifest_hash, boxed.manifest_hash);
    let hash = boxed.manifest_hash.clone();
    let text: Result<_, StoreError> = world.0.read(move |reads| reads.manifest(&hash)).await;
    let pinned: Json = text.unwrap().unwrap().decode().unwrap();
    let ids: Vec<_> =
        pinned["capabilities"].as_array().unwrap().iter().map(|c| c["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [SANDBOX, ARTIFACTS]);
    assert_eq!(pinned["capabilities"][0]["sandbox"], boxed.sandbox);
    let tool = json!({"name": "bash", "inputSchema": {"type": "object"}});
    world
        .define("b", json!({"manifestSchemaVersion": 4, "id": "b", "capabilities": [{"id": "agent", "type": "agent", "tools": [tool]}]}))
        .await;
    let (status, words) = refused(world.open_as(&Reach::All, "clash", "b", "ada", Some(json!({}))).await);
    assert_eq!(status, 400);
    assert!(words.contains("\"bash\"") && words.contains("sandbox: false"), "{words}");
    assert!(world.open_as(&Reach::All, "clash", "b", "ada", Some(json!(false))).await.is_ok());
}

#[tokio::test]
async fn an_attached_session_pins_the_resources_spec_and_both_streams_say_so() {
    let world = World::new().await;
    assert_eq!(refused(world.open("s", Some(json!({"id": "team/box"}))).await).0, 404);
    let row = world.sandbox("team/box").await;
    let of_pod = SandboxSpec { storage: Some("5GiB".into()), ..row.spec.clone() };
    let changed = SandboxResource { spec: of_pod, ..row.clone() };
    world.0.tx(move |tx| tx.put_sandbox(&changed)).await.unwrap();
    let view = world.open("s", Some(json!({"id": "team/box"}))).await.unwrap();
    assert_eq!(view.sandbox, row.spec.to_json(), "without storage");
    assert_eq!(
        (view.sandbox_source.as_deref(), view.sandbox_id.as_deref()),
        (Some("sandbox"), Some("team/box"))
    );
    let read: Result<_, StoreError> = world
        .0
        .read(|reads| Ok((reads.record(&"s".into(), 0, 9)?, reads.sandbox_events("team/box", 0, 9)?)))
        .await;
    let (record, events) = read.unwrap();
    assert_eq!(record.iter().map(|row| row.kind).collect::<Vec<_>>(), [EventKind::SandboxAttached]);
    assert!(record[0].body.contains(r#""payload":{"sandboxId":"team/box"}"#));
    assert!(events[1].contains(r#""type":"sandbox.attached","payload":{"sessionId":"s"}"#), "{events:?}");
    // Opened again it stays as it is, and nothing is said twice.
    world.open("s", Some(json!({"id": "team/box"}))).await.unwrap();
    assert_eq!(refused(world.open("s", Some(json!({}))).await).0, 409);
    let again: Result<_, StoreError> = world.0.read(|reads| reads.sandbox_events("team/box", 0, 9)).await;
    assert_eq!(again.unwrap().len(), 2);
    assert_eq!(world.workspace("s").await, Some(("s".into(), Some("team/box".into()))));
}

#[tokio::test]
async fn grants_are_asked_at_attach_and_at_each_turn() {
    let world = World::new().await;
    world.sandbox("p/box").await;
    let attach = json!({"id": "p/box"});
    for (id, grants) in [("exact", &["p/box"][..]), ("below", &["x", "p/*"])] {
        assert!(
            world.open_as(&person("ada", Some(grants)), id, "a", "ada", Some(attach.clone())).await.is_ok(),
            "{id}"
        );
    }
    for grants in [&["p"][..], &["p/bo"], &["q/*"], &[]] {
        let reach = person("ada", Some(grants));
        assert_eq!(
            refused(world.open_as(&reach, "none", "a", "ada", Some(attach.clone())).await).0,
            404,
            "{grants:?}"
        );
        assert_eq!(
            refused(world.say("exact", &reach).await).0,
            403,
            "the session is the person's own: {grants:?}"
        );
    }
    // An application's key reaches all, also for a person.
    assert!(world.open_as(&person("ada", None), "key", "a", "ada", Some(attach)).await.is_ok());
    assert!(world.say("exact", &person("ada", Some(&["p/*"]))).await.is_ok());
}

#[tokio::test]
async fn a_shared_sandbox_is_its_owners_to_the_end_of_the_chain() {
    let world = World::new().await;
    let owner = world.open("owner", Some(json!({"resources": {"cpus": 3}}))).await.unwrap();
    let share = |of: &str| Some(json!({"session": of}));
    let first = world.open("first", share("owner")).await.unwrap();
    assert_eq!((&first.sandbox, first.sandbox_source.as_deref()), (&owner.sandbox, Some("shared")));
    assert_eq!(first.sandbox_owner_id, Some("owner".into()));
    assert_eq!(first.manifest_hash, owner.manifest_hash, "the same agent with the same sandbox");
    let second = world.open("second", share("first")).await.unwrap();
    assert_eq!(second.sandbox_owner_id, Some("owner".into()));
    assert_eq!(world.workspace("second").await, Some(("owner".into(), None)));
    world.open("plain", Some(json!(false))).await.unwrap();
    assert_eq!(refused(world.open("x", share("plain")).await).0, 400);
    assert_eq!(refused(world.open("x", share("missing")).await).0, 404);
    assert_eq!(refused(world.open_as(&Reach::All, "x", "a", "bob", share("owner")).await).0, 403);
    assert_eq!(refused(world.open_as(&person("bob", None), "x", "a", "bob", share("owner")).await).0, 404);
    assert!(world.open_as(&person("ada", None), "x", "a", "ada", share("owner")).await.is_ok());
}

#[tokio::test]
async fn who_shares_an_attached_session_is_told_to_attach() {
    let world = World::new().await;
    world.sandbox("box").await;
    world.open("attached", Some(json!({"id": "box"}))).await.unwrap();
    let share = Some(json!({"session": "attached"}));
    for reach in [Reach::All, person("ada", None)] {
        let (status, words) = refused(world.open_as(&reach, "x", "a", "ada", share.clone()).await);
        assert_eq!(status, 400);
        assert!(words.contains(r#"{"id":"box"}"#), "{words}");
    }
    assert_eq!(refused(world.open_as(&Reach::All, "x", "a", "bob", share.clone()).await).0, 400);
    assert_eq!(refused(world.open_as(&person("bob", None), "x", "a", "bob", share).await).0, 404);
}

#[tokio::test]
async fn a_chain_that_bites_its_tail_leaves_each_session_on_its_own() {
    let world = World::new().await;
    for id in ["a", "b"] {
        world.open(id, Some(json!({}))).await.unwrap();
    }
    world.chain("a", "b").await;
    world.chain("b", "a").await;
    assert_eq!(world.workspace("a").await, Some(("a".into(), None)));
    world.chain("a", "a").await;
    assert_eq!(world.workspace("b").await, Some(("a".into(), None)), "one that names itself is an end");
}

#[tokio::test]
async fn sessions_of_an_owner_that_is_attached_work_in_the_resource() {
    let world = World::new().await;
    world.sandbox("box").await;
    world.open("owner", Some(json!({"id": "box"}))).await.unwrap();
    world.open("linked", Some(json!({}))).await.unwrap();
    world.chain("linked", "owner").await;
    assert_eq!(world.workspace("linked").await, Some(("owner".into(), Some("box".into()))));
}

#[tokio::test]
async fn a_definition_that_declares_a_sandbox_keeps_its_own() {
    let world = World::new().await;
    let spec =
        json!({"network": {"preset": "none"}, "resources": {"cpus": 2, "memory": "1024MiB"}, "idle": "15m"});
    let own =
        json!({"manifestSchemaVersion": 4, "id": "old", "capabilities": [{"id": "x", "sandbox": spec}]});
    world.define("old", own).await;
    world.sandbox("box").await;
    let open = |id: &'static str, sandbox| world.open_as(&Reach::All, id, "old", "ada", sandbox);
    for sandbox in [json!({"id": "box"}), json!({"id": "missing"}), json!(false), json!({})] {
        assert_eq!(refused(open("x", Some(sandbox.clone())).await).0, 400, "{sandbox}");
    }
    let kept = open("kept", None).await.unwrap();
    assert_eq!(
        (kept.sandbox, kept.sandbox_source),
        (Json::Null, None),
        "nothing is pinned beside the manifest"
    );
    assert_eq!(world.workspace("kept").await, Some(("kept".into(), None)));
    world.open("same", Some(json!({}))).await.unwrap();
    let shared = open("shared", Some(json!({"session": "same"}))).await.unwrap();
    assert_eq!((shared.sandbox, shared.sandbox_owner_id), (Json::Null, Some("same".into())));
    world.open("other", Some(json!({"resources": {"cpus": 1}}))).await.unwrap();
    assert_eq!(refused(open("x", Some(json!({"session": "other"}))).await).0, 409);
}

#[tokio::test]
async fn a_host_that_the_tenant_does_not_allow_refuses_new_sessions_only() {
    let world = World::new().await;
    world.sandbox("box").await;
    world.open("before", Some(json!({}))).await.unwrap();
    world.config(json!({"placement": {"nylorun": {"hosts": ["sandbox"]}}})).await;
    for sandbox in [None, Some(json!(false)), Some(json!({})), Some(json!({"id": "box"}))] {
        let Err(Refusal::Placement { details, .. }) = world.open("x", sandbox.clone()).await else {
            panic!("{sandbox:?}")
        };
        assert_eq!(
            details,
            json!({"harness": "nylorun", "host": "harness-container", "allowed": ["sandbox"]})
        );
    }
    assert!(
        world.open("before", Some(json!({}))).await.is_ok() && world.say("before", &Reach::All).await.is_ok()
    );
    // The sandbox comes first: what is missing is 404.
    assert_eq!(refused(world.open("x", Some(json!({"id": "missing"}))).await).0, 404);
    world
        .config(
            json!({"placement": {"nylorun": {"hosts": ["harness-container"]}, "*": {"hosts": ["sandbox"]}}}),
        )
        .await;
    assert!(world.open("x", None).await.is_ok());
}

#[tokio::test]
async fn a_pod_is_not_had_on_a_runtime_without_pods() {
    let world = World::new().await;
    let row = world.sandbox("box").await;
    let pod = SandboxResource { id: "pod".into(), kind: SandboxKind::Pod, ..row };
    world.0.tx(move |tx| tx.insert_sandbox(&pod)).await.unwrap();
    let unavailable = world.open("s", Some(json!({"id": "pod"}))).await;
    assert!(matches!(
        unavailable,
        Err(Refusal::Sandbox { why: SandboxRefusal::Unavailable, retry_after_s: None, .. })
    ));
    world.config(json!({"placement": {"*": {"hosts": ["harness-container"]}}})).await;
    let placed = world.open("s", Some(json!({"id": "pod"}))).await;
    assert!(matches!(placed, Err(Refusal::Placement { .. })), "where it may be comes first: {placed:?}");
}

#[tokio::test]
async fn turns_of_one_sandbox_come_one_after_the_other() {
    let world = World::new().await;
    world.sandbox("box").await;
    for id in ["s", "t2", "alone"] {
        let sandbox = if id == "alone" { json!({}) } else { json!({"id": "box"}) };
        world.open(id, Some(sandbox)).await.unwrap();
    }
    world.say("s", &Reach::All).await.unwrap();
    let busy = world.say("t2", &Reach::All).await;
    assert!(matches!(busy, Err(Refusal::Sandbox { why: SandboxRefusal::Busy, retry_after_s: Some(5), .. })));
    let own = world.say("alone", &Reach::All).await;
    assert!(own.is_ok(), "a sandbox of its own is free: {own:?}");
    let free = world
        .0
        .tx(|tx| tx.put_status(&"s".into(), crate::model::session::SessionStatus::Completed, None, None));
    free.await.unwrap();
    assert!(world.say("t2", &Reach::All).await.is_ok());
}

#[tokio::test]
async fn a_session_of_a_deleted_sandbox_is_refused_until_there_is_one_again() {
    let world = World::new().await;
    world.sandbox("box").await;
    world.open("s", Some(json!({"id": "box"}))).await.unwrap();
    world.0.tx(|tx| sandboxes::delete(tx, "box", &Reach::All)).await.unwrap();
    let gone = world.say("s", &Reach::All).await;
    assert!(matches!(gone, Err(Refusal::Sandbox { why: SandboxRefusal::Unavailable, .. })), "{gone:?}");
    // Grants come before what is there.
    assert_eq!(refused(world.say("s", &person("ada", Some(&[]))).await).0, 403);
    world.0.tx(|tx| workspaces::removed_sandbox(tx, "box")).await.unwrap();
    world.sandbox("box").await;
    assert!(world.say("s", &Reach::All).await.is_ok());
}

#[tokio::test]
async fn files_are_unused_when_they_are_old_and_no_turn_is_in_them() {
    use crate::model::Micros;
    use crate::model::session::SessionStatus;
    use crate::model::workspace::{WorkspaceRecord, WorkspaceState, sandbox_key, session_key};

    let world = World::new().await;
    world.sandbox("box").await;
    world.open("own", Some(json!({}))).await.unwrap();
    world.open("sharing", Some(json!({"session": "own"}))).await.unwrap();
    world.open("attached", Some(json!({"id": "box"}))).await.unwrap();
    let tenant = crate::model::ids::TenantId::from("tn_x");
    let record = |session: &str, sandbox: Option<&str>, state, updated: &str| WorkspaceRecord {
        key: sandbox.map_or_else(|| session_key(&tenant, &session.into()), |id| sandbox_key(&tenant, id)),
        session_id: session.into(),
        sandbox_id: sandbox.map(str::to_owned),
        backend: "virtual".into(),
        image: "i".into(),
        state,
        created_at: "2026-01-01T00:00:00.000Z".into(),
        updated_at: updated.into(),
    };
    let (old, new) = ("2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.001Z");
    let records = vec![
        record("own", None, WorkspaceState::Stopped, old),
        record("attached", Some("box"), WorkspaceState::Stopped, old),
        record("young", None, WorkspaceState::Stopped, new),
        record("runs", None, WorkspaceState::Running, old),
        record("timeless", None, WorkspaceState::Stopped, "yesterday"),
    ];
    let unused = || {
        let (records, since) = (records.clone(), Micros::from_iso("2026-01-02T00:00:00.000Z").unwrap());
        let found = world.0.read(move |reads| workspaces::unused_since(reads, &records, since));
        async move {
            let found: Result<_, StoreError> = found.await;
            found.unwrap().into_iter().map(|record| record.session_id.to_string()).collect::<Vec<_>>()
        }
    };
    assert_eq!(unused().await, ["own", "attached"]);
    // A turn of the session itself, of one that shares its files, or of one that is attached: they stay.
    for (session, left) in [("own", "attached"), ("sharing", "attached"), ("attached", "own")] {
        world.say(session, &Reach::All).await.unwrap();
        assert_eq!(unused().await, [left], "{session}");
        let end = world.0.tx(move |tx| tx.put_status(&session.into(), SessionStatus::Completed, None, None));
        end.await.unwrap();
    }
    let removed = vec![records[0].clone(), records[2].clone()];
    let key = records[0].key.clone();
    let told = world.0.tx(move |tx| {
        tx.put_workspace(&removed[0])?;
        workspaces::removed_unused(tx, &removed)?;
        let last = tx.record(&"own".into(), 0, 100)?.pop();
        Ok::<_, StoreError>((tx.workspace(&key)?, last.map(|row| row.body.to_string())))
    });
    let (left, event) = told.await.unwrap();
    assert_eq!(left, None);
    let event = event.unwrap();
    assert!(event.contains("sandbox.state") && event.contains("nobody had used them"), "{event}");
}
