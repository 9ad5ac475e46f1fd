//! `save_artifact`, the export at the end of a turn and the sweep of bytes, under a paused clock
//! (spec: sandbox, section 14).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use nylorun_actors::limits::{BLOB_GRACE_MS, BLOB_SWEEP_EVERY_MS, EXPORT_FILES};
use nylorun_actors::model::Json;
use nylorun_actors::model::artifact::VersionAt;
use nylorun_actors::model::ids::SessionId;
use nylorun_actors::model::json::JsonText;
use nylorun_actors::model::session::SessionStatus::{Cancelled, Completed, Uncertain};
use nylorun_actors::model::workspace::session_key;
use nylorun_actors::ports::BlobError;
use nylorun_actors::ports::store::{Reads, StoreError, StoreResult, Tx};
use nylorun_actors::tenant::Reach;
use nylorun_actors::testing::FaultPoint;
use nylorun_actors::testing::engine::{FakeEngine, Step};
use serde_json::json;

use super::support::{World, sim};

async fn tx<T: Send + 'static>(
    world: &World,
    run: impl FnOnce(&mut dyn Tx) -> StoreResult<T> + Send + 'static,
) -> T {
    world.store.handle().tx(run).await.unwrap()
}

/// A session with a sandbox.
async fn sandboxed(world: &World, id: &str) -> SessionId {
    let id = world.open(id).await;
    let of = id.clone();
    tx(world, move |tx| {
        let mut pin = tx.session_pin(&of)?.unwrap();
        pin.sandbox = Some(JsonText::of(&json!({})));
        tx.put_session_pin(&of, &pin)
    })
    .await;
    id
}

fn put(world: &World, id: &SessionId, path: &str, content: &str) {
    let key = session_key(world.tenant.id(), id);
    world.workspaces.as_ref().unwrap().put(&key, path, content);
}

async fn limits(world: &World, limits: Json) {
    let limits = limits.as_object().unwrap().clone();
    world.tenant.artifacts().put_settings(limits, "test".to_owned()).await.unwrap();
}

/// Events of these types: type and payload.
async fn told(world: &World, id: &SessionId, prefix: &str) -> Vec<(String, Json)> {
    let record = world.record(id).await.into_iter();
    let of = record.filter(|event| event["type"].as_str().unwrap().starts_with(prefix));
    of.map(|event| (event["type"].as_str().unwrap().to_owned(), event["payload"].clone())).collect()
}

/// A turn that saves with these inputs, one after the other; the outcomes of its calls.
async fn saves(world: &World, id: &SessionId, key: &str) -> Vec<Json> {
    world.say(id, key).await.unwrap();
    world.until(id, &[Completed, Uncertain]).await;
    let tools = told(world, id, "tool.completed").await;
    tools.into_iter().map(|(_, payload)| payload).collect()
}

fn saving(inputs: Vec<Json>) -> Arc<FakeEngine> {
    FakeEngine::of(inputs.into_iter().map(Step::Save).collect())
}

#[test]
fn what_a_call_saves_is_an_artifact_of_its_session_and_its_outcome_says_which() {
    sim(|| async {
        let inputs = vec![
            json!({"content": "hi", "name": "note.md"}),
            json!({"content": "x"}),
            json!({"path": "/workspace/a/data.csv"}),
            json!({"path": "/workspace/a/data.csv", "name": "other", "contentType": "text/x-mine"}),
            json!({"content": "of text, whose name says nothing", "name": "notes"}),
            json!({"path": "/workspace/a/data", "name": "notes"}),
        ];
        let world = World::with_workspaces(saving(inputs)).await;
        let id = sandboxed(&world, "s").await;
        put(&world, &id, "/workspace/a/data.csv", "1,2\n");
        put(&world, &id, "/workspace/a/data", "1,2\n");
        let tools = saves(&world, &id, "1").await;
        let outputs: Vec<Json> = tools.iter().map(|tool| tool["output"].clone()).collect();
        let of = |at: usize, name: &str, kind: &str, size: i64| {
            let output = &outputs[at];
            json!({
                "artifactId": output["artifactId"], "version": 1, "name": name, "contentType": kind, "size": size,
                "sha256": output["sha256"],
            })
        };
        assert_eq!(outputs[0], of(0, "note.md", "text/markdown", 2));
        assert_eq!(outputs[1], of(1, "artifact.txt", "text/plain", 1));
        assert_eq!(outputs[2], of(2, "data.csv", "text/csv", 4));
        assert_eq!(outputs[3], of(3, "other", "text/x-mine", 4));
        assert_eq!(outputs[4], of(4, "notes", "text/plain; charset=utf-8", 32));
        assert_eq!(outputs[5], of(5, "notes", "application/octet-stream", 4));
        let events = told(&world, &id, "artifact.").await;
        assert_eq!(events.len(), 6);
        let (kind, payload) = &events[2];
        assert_eq!(kind, "artifact.created");
        let expected = json!({
            "artifactId": outputs[2]["artifactId"], "kind": "file", "name": "data.csv", "contentType": "text/csv",
            "version": 1, "size": 4, "sha256": outputs[2]["sha256"], "source": "engine", "callId": "c2",
        });
        assert_eq!(*payload, expected);
        // The event of the artifact and the outcome of the call are one commit, in this order.
        let types = world.types(&id).await;
        let at = types.iter().position(|kind| kind == "artifact.created").unwrap();
        assert_eq!(types[at + 1], "tool.completed");
        let first = outputs[0]["artifactId"].as_str().unwrap();
        let (row, version) =
            world.tenant.artifacts().version(first, VersionAt::Latest, &Reach::All).await.unwrap();
        assert_eq!((row.session_id, version.size), (Some(id), 2));
    });
}

#[test]
fn a_call_with_an_artifact_of_its_session_adds_a_version_and_another_sessions_is_not_found() {
    sim(|| async {
        let engine = FakeEngine::new(|start| {
            let input = start.checkpoint.info.clone().unwrap_or_default();
            let of = |id: &Json| json!({"content": "v2", "name": "ignored", "artifactId": id});
            match input.get("artifact") {
                Some(id) => vec![Step::Save(of(id))],
                None => vec![Step::Save(json!({"content": "v1", "name": "a.md"}))],
            }
        });
        let world = World::with_workspaces(engine).await;
        let id = world.open("s").await;
        let first = saves(&world, &id, "1").await;
        let artifact = first[0]["output"]["artifactId"].clone();
        for session in ["s", "t"] {
            let session = world.open(session).await;
            let (of, info) = (session.clone(), JsonText::of(&json!({"artifact": artifact})));
            tx(&world, move |tx| {
                let mut pin = tx.session_pin(&of)?.unwrap();
                pin.info = Some(info);
                tx.put_session_pin(&of, &pin)
            })
            .await;
        }
        // The pin is read again by an actor that starts anew.
        world.tenant.tree().session(&id).unwrap().do_send(nylorun_actors::messages::Panic);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let second = saves(&world, &id, "2").await.pop().unwrap();
        assert_eq!((&second["output"]["version"], &second["output"]["name"]), (&json!(2), &json!("a.md")));
        assert_eq!(told(&world, &id, "artifact.").await[1].0, "artifact.version.created");
        let other = SessionId::from("t");
        let refused = saves(&world, &other, "1").await.pop().unwrap();
        assert_eq!(refused["error"]["code"], "artifact.not_found");
        assert!(told(&world, &other, "artifact.").await.is_empty());
    });
}

#[test]
fn a_call_that_cannot_be_saved_fails_with_its_code_and_leaves_nothing() {
    sim(|| async {
        let engine = FakeEngine::new(|start| {
            let steps = [
                json!({}),
                json!({"path": "a", "content": "b"}),
                json!({"content": "x", "contentType": "nonsense"}),
                json!({"content": "x", "artifactId": "af_none"}),
                json!({"content": "x", "name": "a/b"}),
                json!({"content": "12345"}),
                json!({"path": "/workspace/none"}),
                json!({"path": "/workspace/large"}),
            ];
            let from = if start.checkpoint.session_id.as_str() == "plain" { 6 } else { 0 };
            steps[from..].iter().cloned().map(Step::Save).collect()
        });
        let world = World::with_workspaces(engine).await;
        let (id, plain) = (sandboxed(&world, "s").await, world.open("plain").await);
        put(&world, &id, "/workspace/large", "12345");
        limits(&world, json!({"fileBytes": 4})).await;
        let codes = |tools: Vec<Json>| {
            let codes = tools.into_iter().map(|tool| tool["error"]["code"].as_str().unwrap().to_owned());
            codes.collect::<Vec<_>>()
        };
        assert_eq!(
            codes(saves(&world, &id, "1").await),
            [
                "artifact.invalid_input",
                "artifact.invalid_input",
                "artifact.invalid_input",
                "artifact.not_found",
                "artifact.rejected",
                "artifact.too_large",
                "artifact.not_found",
                "artifact.too_large",
            ]
        );
        assert_eq!(codes(saves(&world, &plain, "1").await), ["artifact.no_sandbox", "artifact.no_sandbox"]);
        limits(&world, json!({"totalBytes": 4})).await;
        let last = saves(&world, &id, "2").await;
        assert_eq!(last[13]["error"]["code"], "artifact.too_large", "{last:?}");
        assert!(world.blobs.contents().is_empty());
        assert!(told(&world, &id, "artifact.").await.is_empty());
    });
}

#[test]
fn a_crash_in_the_middle_of_a_save_leaves_it_uncertain_and_no_artifact() {
    sim(|| async {
        let mut world = World::with_workspaces(saving(vec![json!({"content": "x"})])).await;
        let id = world.open("s").await;
        // The commit that would name the bytes never happens, and none after it: the process dies there.
        let dead = AtomicBool::new(false);
        world.store.inject(Arc::new(move |point: &FaultPoint| {
            if point.events.iter().any(|kind| kind.as_str() == "artifact.created") {
                dead.store(true, Ordering::SeqCst);
            }
            dead.load(Ordering::SeqCst).then_some(StoreError::Closed)
        }));
        world.say(&id, "1").await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.crash(saving(vec![json!({"content": "x"})])).await;
        world.until(&id, &[Uncertain]).await;
        assert!(told(&world, &id, "artifact.").await.is_empty());
        assert_eq!(world.blobs.contents().len(), 1, "nobody knew whether it was named");
        world.blobs.age(Duration::from_millis(BLOB_GRACE_MS));
        tokio::time::sleep(Duration::from_millis(BLOB_SWEEP_EVERY_MS + 10_000)).await;
        assert!(world.blobs.contents().is_empty());
    });
}

#[test]
fn bytes_that_cannot_be_written_leave_the_call_uncertain() {
    sim(|| async {
        let world = World::with_workspaces(saving(vec![json!({"content": "x"})])).await;
        let id = world.open("s").await;
        world.blobs.fail(Some(BlobError::Failed("no such disk".to_owned())));
        world.say(&id, "1").await.unwrap();
        world.until(&id, &[Uncertain]).await;
        assert_eq!(told(&world, &id, "effect.uncertain").await.len(), 1);
    });
}

#[test]
fn a_turn_that_is_cancelled_while_it_saves_keeps_no_artifact() {
    sim(|| async {
        let world = World::with_workspaces(saving(vec![json!({"content": "x"})])).await;
        let id = world.open("s").await;
        // The transaction that names the bytes is refused for a while, and the turn is cancelled meanwhile.
        world.store.inject(Arc::new(|point: &FaultPoint| {
            let names = point.events.iter().any(|kind| kind.as_str() == "artifact.created");
            names.then(|| StoreError::Unavailable("busy".to_owned()))
        }));
        world.say(&id, "1").await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        world.cancel(&id, "2").await;
        world.store.inject_nothing();
        world.until(&id, &[Cancelled]).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(told(&world, &id, "artifact.").await.is_empty());
        assert!(world.blobs.contents().is_empty());
    });
}

/// A turn to its end and to the end of its export.
async fn turn(world: &World, id: &SessionId, key: &str) -> Vec<(String, Json)> {
    world.say(id, key).await.unwrap();
    world.until(id, &[Completed]).await;
    for _ in 0..1_000 {
        let of = id.clone();
        let read = move |reads: &mut dyn Reads| reads.session(&of);
        let head = world.store.handle().read::<_, StoreError, _>(read).await.unwrap().unwrap();
        if head.owner.is_none() {
            return told(world, id, "artifact.").await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the lease was never given back");
}

#[test]
fn outputs_are_exported_once_after_a_completed_turn_and_again_when_they_differ() {
    sim(|| async {
        let world = World::with_workspaces(FakeEngine::of(vec![Step::Model(0)])).await;
        let id = sandboxed(&world, "s").await;
        // Nothing there: nothing is stored and nothing is said.
        assert!(turn(&world, &id, "1").await.is_empty());
        put(&world, &id, "/workspace/outputs/a", "one");
        let events = turn(&world, &id, "2").await;
        assert_eq!((events.len(), events[0].0.as_str()), (1, "artifact.created"));
        let record = world.record(&id).await;
        let place = |kind: &str| record.iter().rposition(|event| event["type"] == kind).unwrap();
        let (ended, made) = (place("turn.completed"), place("artifact.created"));
        assert!(ended < made, "it comes after the turn's own commit");
        assert_eq!(record[ended]["turnId"], record[made]["turnId"]);
        assert_eq!(record[ended]["epoch"], record[made]["epoch"], "under the same lease");
        assert_eq!(turn(&world, &id, "3").await.len(), 1, "the same files are no new version");
        put(&world, &id, "/workspace/outputs/a", "two");
        let events = turn(&world, &id, "4").await;
        assert_eq!((events[1].0.as_str(), &events[1].1["version"]), ("artifact.version.created", &json!(2)));
    });
}

#[test]
fn only_a_completed_turn_of_a_session_with_a_sandbox_is_exported_and_a_plain_turn_costs_nothing() {
    sim(|| async {
        let engine = FakeEngine::new(|start| match start.checkpoint.session_id.as_str() {
            "fails" => vec![Step::Fail("x")],
            "waits" => vec![Step::Approval],
            _ => vec![Step::Model(0)],
        });
        let world = World::with_workspaces(engine).await;
        let plain = world.open("plain").await;
        let key = session_key(world.tenant.id(), &plain);
        world.workspaces.as_ref().unwrap().put(&key, "/workspace/outputs/a", "one");
        let before = world.store.handle().store().health().commits;
        assert!(turn(&world, &plain, "1").await.is_empty());
        let commits = world.store.handle().store().health().commits - before;
        assert_eq!(commits, 3, "the message, the model call's intent, the end: no commit more");
        for session in ["fails", "waits"] {
            let id = sandboxed(&world, session).await;
            put(&world, &id, "/workspace/outputs/a", "one");
            world.say(&id, "1").await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert!(told(&world, &id, "artifact.").await.is_empty(), "{session}");
        }
    });
}

#[test]
fn an_export_that_cannot_be_made_says_so_and_the_turn_stands() {
    sim(|| async {
        let world = World::with_workspaces(FakeEngine::of(vec![Step::Model(0)])).await;
        let id = sandboxed(&world, "s").await;
        put(&world, &id, "/workspace/outputs/a", "one");
        world.blobs.fail(Some(BlobError::Failed("no such disk".to_owned())));
        let events = turn(&world, &id, "1").await;
        assert_eq!(events.len(), 1);
        assert_eq!(
            (events[0].0.as_str(), &events[0].1["name"]),
            ("artifact.export.failed", &json!("outputs"))
        );
        assert!(events[0].1["message"].is_string());
        world.blobs.fail(None);
        for n in 0..=EXPORT_FILES {
            put(&world, &id, &format!("/workspace/outputs/{n:05}"), "");
        }
        let events = turn(&world, &id, "2").await;
        let payload = &events[1].1;
        assert_eq!((&payload["reason"], &payload["limit"]), (&json!("too_many_files"), &json!(EXPORT_FILES)));
        assert!(world.blobs.contents().is_empty());
    });
}

#[test]
fn the_next_message_waits_for_the_export_and_is_then_taken_up() {
    sim(|| async {
        let world = World::with_workspaces(FakeEngine::of(vec![Step::Model(0)])).await;
        let id = sandboxed(&world, "s").await;
        put(&world, &id, "/workspace/outputs/a", "one");
        world.say(&id, "1").await.unwrap();
        // A message is accepted as soon as the turn has ended, whatever the export still does.
        while world.say(&id, "2").await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        world.until(&id, &[Completed]).await;
        let ended = told(&world, &id, "turn.completed").await;
        assert_eq!(ended.len(), 2);
        assert_eq!(told(&world, &id, "artifact.").await.len(), 1);
    });
}

#[test]
fn bytes_that_nobody_names_are_removed_when_they_are_old_and_named_ones_never() {
    sim(|| async {
        let world = World::with_workspaces(saving(vec![json!({"content": "kept"})])).await;
        let id = world.open("s").await;
        saves(&world, &id, "1").await;
        let mut stray = nylorun_actors::ports::Blobs::create(&*world.blobs).await.unwrap();
        stray.write(bytes::Bytes::from_static(b"stray")).await.unwrap();
        stray.finish().await.unwrap();
        tokio::time::sleep(Duration::from_millis(BLOB_SWEEP_EVERY_MS + 10_000)).await;
        assert_eq!(world.blobs.contents().len(), 2, "a young one may be about to be named");
        world.blobs.age(Duration::from_millis(BLOB_GRACE_MS));
        tokio::time::sleep(Duration::from_millis(BLOB_SWEEP_EVERY_MS + 10_000)).await;
        assert_eq!(world.blobs.contents(), ["kept"]);
    });
}

#[test]
fn an_output_is_read_again_when_its_stamp_has_changed_or_it_has_none_and_not_otherwise() {
    sim(|| async {
        let world = World::with_workspaces(FakeEngine::of(vec![Step::Model(0)])).await;
        let id = sandboxed(&world, "s").await;
        let workspaces = Arc::clone(world.workspaces.as_ref().unwrap());
        let key = session_key(world.tenant.id(), &id);
        for (path, content) in [("a", "same"), ("b", "same"), ("c", "else")] {
            put(&world, &id, &format!("/workspace/outputs/{path}"), content);
        }
        // What each turn reads, and the events of artifacts after it.
        let mut turns = 0;
        let mut reads = async |why: &str| {
            turns += 1;
            let before = workspaces.reads();
            let events = turn(&world, &id, &turns.to_string()).await;
            println!("{why}: {}", workspaces.reads() - before);
            (workspaces.reads() - before, events)
        };
        assert_eq!(reads("the first time").await.0, 3);
        let (read, events) = reads("without a stamp nothing tells that they are the same").await;
        assert_eq!((read, events.len()), (3, 1));
        workspaces.settle();
        assert_eq!(reads("with their first stamps").await.0, 3);
        assert_eq!(reads("as they were").await, (0, events));
        // As many bytes as before.
        put(&world, &id, "/workspace/outputs/b", "news");
        let (read, events) = reads("one has changed").await;
        assert_eq!((read, events.len(), &events[1].1["version"]), (1, 2, &json!(2)));
        assert_eq!(events[1].1["fileCount"], 3);
        workspaces.settle();
        assert_eq!(reads("it has a stamp now").await.0, 1);
        workspaces.take(&key, "/workspace/outputs/a");
        let (read, events) = reads("one has gone").await;
        assert_eq!((read, events[2].1["fileCount"].as_i64()), (0, Some(2)));
        // It comes back with bytes that the last version does not have.
        put(&world, &id, "/workspace/outputs/a", "same");
        workspaces.settle();
        assert_eq!(reads("one is there again").await.0, 1);
        // Every file of the last version is whole.
        let folder = events[0].1["artifactId"].as_str().unwrap();
        let artifacts = world.tenant.artifacts();
        let (_, version) = artifacts.version(folder, VersionAt::Latest, &Reach::All).await.unwrap();
        assert_eq!((version.version, version.size), (4, 12));
        for (path, content) in [("a", "same"), ("b", "news"), ("c", "else")] {
            let (entry, row) = artifacts.file(&version, path).await.unwrap();
            let pieces = artifacts.open(&row.blob_key, 0, u64::try_from(entry.size).unwrap()).await.unwrap();
            let bytes: Vec<bytes::Bytes> = pieces.map(Result::unwrap).collect().await;
            assert_eq!(bytes.concat(), content.as_bytes(), "{path}");
        }
        // Nobody has the bytes any more: they are read for a new folder, unchanged as they are.
        artifacts.delete(folder, &Reach::All).await.unwrap();
        let (read, events) = reads("the artifact was deleted").await;
        assert_eq!((read, events.last().unwrap().0.as_str()), (3, "artifact.created"));
        assert_eq!(world.blobs.contents().len(), 4, "three files and the list of them");
        assert_eq!(reads("as they were").await.0, 0);
    });
}

#[test]
fn an_export_that_was_skipped_or_failed_remembers_nothing() {
    sim(|| async {
        let world = World::with_workspaces(FakeEngine::of(vec![Step::Model(0)])).await;
        let id = sandboxed(&world, "s").await;
        put(&world, &id, "/workspace/outputs/a", "one");
        let workspaces = Arc::clone(world.workspaces.as_ref().unwrap());
        workspaces.settle();
        world.blobs.fail(Some(BlobError::Failed("no such disk".to_owned())));
        assert_eq!(turn(&world, &id, "1").await[0].0, "artifact.export.failed");
        world.blobs.fail(None);
        assert_eq!(turn(&world, &id, "2").await[1].0, "artifact.created");
        assert_eq!(workspaces.reads(), 2);
        // Its own limit holds for a file that is not read, too.
        limits(&world, json!({"fileBytes": 2})).await;
        let events = turn(&world, &id, "3").await;
        assert_eq!((events[2].0.as_str(), &events[2].1["path"]), ("artifact.export.skipped", &json!("a")));
        assert_eq!(workspaces.reads(), 2);
    });
}
