//! Workspaces of a connected harness: core's requests byte for byte, and each way in which a call can end
//! (harness-api, section 15; sandbox, sections 15 and 16).

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::{App, HttpServer};
use nylorun::api::{HostNames, Listener, ListenerKind, configure, note_socket};
use nylorun_actors::messages::workspaces::WorkspaceHarnesses;
use nylorun_actors::model::Json;
use nylorun_actors::model::canonical::sha256_hex;
use nylorun_actors::model::ids::SessionId;
use nylorun_actors::model::json::{JsonText, parse};
use nylorun_actors::model::workspace::{
    BytesAnswer, BytesOf, FilesOf, ListAnswer, Removal, WorkspaceSession, sandbox_key, session_key,
};
use nylorun_actors::ports::store::{PrincipalRow, StoreResult};
use nylorun_actors::ports::workspaces::{Swept, WorkspaceOf};
use nylorun_actors::workspaces::{Missing, sweep};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::peer::{PATIENCE, Peer, TOKEN};
use super::world::World;

const KEY: &str = "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd";

/// The Tenant's API beside its listener.
pub async fn http(world: &World) -> SocketAddr {
    let put = world.tenant.store().tx(|tx| {
        tx.put_principal(&PrincipalRow {
            id: "local".into(),
            role: "application".into(),
            token_hash: sha256_hex(KEY.as_bytes()),
            created_at: tx.now(),
        })
    });
    put.await.unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let listener = Listener {
        state: world.state.clone(),
        kind: ListenerKind::Public { operator_elsewhere: false },
        names: HostNames::of_port(address.port(), None),
    };
    let server = HttpServer::new(move || App::new().configure(configure(listener.clone())))
        .on_connect(note_socket)
        .workers(1)
        .disable_signals()
        .listen(socket)
        .unwrap()
        .run();
    actix_web::rt::spawn(server);
    address
}

/// A session that was opened with a sandbox.
pub async fn sandboxed(world: &World, id: &str) -> SessionId {
    let session = world.open(id, "assistant").await;
    pin(world, &session, None).await;
    session
}

pub async fn pin(world: &World, session: &SessionId, owner: Option<&SessionId>) {
    let (session, owner) = (session.clone(), owner.cloned());
    let put = world.tenant.store().tx(move |tx| -> StoreResult<()> {
        let mut pin = tx.session_pin(&session)?.unwrap();
        pin.sandbox = Some(JsonText::of(&json!({"resources": {"cpus": 2}})));
        pin.sandbox_owner_id = owner;
        tx.put_session_pin(&session, &pin)
    });
    put.await.unwrap();
}

/// A peer that serves workspaces.
pub async fn serving(world: &World, connected: usize) -> Peer {
    let mut peer = Peer::connect(world.address).await;
    let workspace = json!({"backends": ["virtual"]});
    let hello =
        json!({"api": 1, "name": "scripted", "version": "0.17.0", "capabilities": {"workspace": workspace}});
    peer.call("hello", hello).await.unwrap();
    // The supervisor has heard of it when it counts it as one that serves.
    let until = tokio::time::Instant::now() + PATIENCE;
    while world.tenant.tree().supervisor().unwrap().send(WorkspaceHarnesses).await.unwrap().len() < connected
    {
        assert!(tokio::time::Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    peer
}

/// Posts to a tool route: status and body.
pub fn post(at: SocketAddr, session: &str, tool: &str, body: &Json) -> JoinHandle<(u16, String)> {
    let url = format!("http://{at}/v1/sessions/{session}/sandbox/{tool}");
    let request = reqwest::Client::new()
        .post(url)
        .header("nylorun-protocol", "7")
        .header("authorization", format!("Bearer {KEY}"))
        .header("content-type", "application/json")
        .body(body.to_string());
    tokio::task::spawn_local(async move {
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let retry = answer.headers().contains_key("retry-after");
        assert_eq!(retry, status == 503, "only what may pass is to be tried again");
        (status, answer.text().await.unwrap())
    })
}

pub async fn answered(peer: &mut Peer, id: u64, result: &str) {
    peer.text(&format!(r#"{{"t":"res","id":{id},"ok":true,"r":{result}}}"#)).await;
}

async fn refused(peer: &mut Peer, id: u64, code: &str) {
    peer.text(&format!(r#"{{"t":"res","id":{id},"ok":false,"e":{{"code":"{code}","message":"no"}}}}"#)).await;
}

fn code((status, body): (u16, String)) -> (u16, String) {
    let code = parse(body.as_bytes()).unwrap()["code"].as_str().unwrap().to_owned();
    (status, code)
}

fn of(session: &SessionId) -> WorkspaceOf {
    let session = WorkspaceSession { owner_id: session.clone(), sandbox_id: None, active_turn_id: None };
    WorkspaceOf { session, spec: json!({}), pod: None }
}

#[actix_web::test]
async fn each_request_is_the_frame_of_the_section_byte_for_byte() {
    let world = World::start().await;
    let at = http(&world).await;
    let session = sandboxed(&world, "s-1").await;
    let mut peer = serving(&world, 1).await;
    let mut id = 0;
    for (tool, method) in [
        ("bash", "exec"),
        ("read", "read"),
        ("grep", "read"),
        ("glob", "read"),
        ("write", "write"),
        ("edit", "write"),
    ] {
        let asked = post(at, "s-1", tool, &json!({"requestId": "r", "path": "a", "n": 1.5}));
        id += 1;
        assert_eq!(
            peer.next_text().await,
            format!(
                r#"{{"t":"req","id":{id},"m":"workspace.{method}","p":{{"session":{{"ownerId":"s-1","activeTurnId":null}},"spec":{{"resources":{{"cpus":2}}}},"tool":"{tool}","input":{{"path":"a","n":1.5}}}}}}"#
            )
        );
        let outcome = r#"{"kind":"completed","output":{"exitCode":0,"stdout":"é","stderr":""}}"#;
        answered(&mut peer, id, outcome).await;
        assert_eq!(asked.await.unwrap(), (200, outcome.to_owned()));
    }
    // Without a body the input is empty; a tool that fails is a 200, too.
    let url = format!("http://{at}/v1/sessions/s-1/sandbox/bash");
    let request = reqwest::Client::new().post(url).header("nylorun-protocol", "7");
    let asked = tokio::task::spawn_local(request.header("authorization", format!("Bearer {KEY}")).send());
    assert!(peer.next_text().await.ends_with(r#""tool":"bash","input":{}}}"#));
    let failed = r#"{"kind":"failed","code":"tool.invalid-input","message":"a command is needed"}"#;
    answered(&mut peer, 7, failed).await;
    let answer = asked.await.unwrap().unwrap();
    assert_eq!((answer.status().as_u16(), answer.text().await.unwrap()), (200, failed.to_owned()));

    let workspaces = world.tenant.workspaces();
    let files = FilesOf { dir: "/workspace/outputs".into(), max_entries: 10 };
    let asked = tokio::task::spawn_local(workspaces.list(of(&session), files));
    assert_eq!(
        peer.next_text().await,
        r#"{"t":"req","id":8,"m":"workspace.read","p":{"session":{"ownerId":"s-1","activeTurnId":null},"spec":{},"list":{"dir":"/workspace/outputs","maxEntries":10}}}"#
    );
    answered(&mut peer, 8, r#"{"kind":"listed","path":"/workspace/outputs","listing":{"entries":[{"path":"a","size":3}],"truncated":false}}"#).await;
    let listed = asked.await.unwrap().unwrap();
    assert!(matches!(listed, ListAnswer::Listed { listing, .. } if listing.entries[0].size == 3));
    let file = BytesOf { path: "/workspace/a".into(), max_bytes: 5 };
    let asked = tokio::task::spawn_local(workspaces.bytes(of(&session), file));
    assert_eq!(
        peer.next_text().await,
        r#"{"t":"req","id":9,"m":"workspace.read","p":{"session":{"ownerId":"s-1","activeTurnId":null},"spec":{},"bytes":{"path":"/workspace/a","maxBytes":5}}}"#
    );
    answered(&mut peer, 9, r#"{"kind":"missing","path":"/workspace/a"}"#).await;
    assert_eq!(asked.await.unwrap(), Ok(BytesAnswer::Missing { path: "/workspace/a".into() }));
    let asked = tokio::task::spawn_local(workspaces.report());
    assert_eq!(peer.next_text().await, r#"{"t":"req","id":10,"m":"workspace.report","p":{}}"#);
    answered(&mut peer, 10, r#"{"preference":"auto","backend":"virtual","isolation":"process","reason":"it works","probes":[{"name":"virtual","available":true,"isolation":"process"}],"defaultImage":"python:3.13-slim"}"#).await;
    assert_eq!(asked.await.unwrap().backend.as_deref(), Some("virtual"));
    let asked = tokio::task::spawn_local(workspaces.sweep());
    assert_eq!(peer.next_text().await, r#"{"t":"req","id":11,"m":"workspace.sweep","p":{}}"#);
    answered(&mut peer, 11, r#"{"workspaces":[]}"#).await;
    assert_eq!(asked.await.unwrap(), Ok(Swept { records: Vec::new(), complete: true }));
    let asked = tokio::task::spawn_local(workspaces.remove(Removal::sandbox("team/box")));
    assert_eq!(
        peer.next_text().await,
        r#"{"t":"req","id":12,"m":"workspace.remove","p":{"sandboxIds":["team/box"]}}"#
    );
    answered(&mut peer, 12, "{}").await;
    assert_eq!(asked.await.unwrap(), Ok(()));
}

#[actix_web::test]
async fn a_session_that_shares_a_workspace_uses_its_owners() {
    let world = World::start().await;
    let at = http(&world).await;
    let owner = sandboxed(&world, "owner").await;
    let middle = world.open("middle", "assistant").await;
    pin(&world, &middle, Some(&owner)).await;
    let guest = world.open("guest", "assistant").await;
    pin(&world, &guest, Some(&middle)).await;
    let mut peer = serving(&world, 1).await;
    let asked = post(at, "guest", "read", &json!({"path": "a"}));
    assert!(peer.next_text().await.contains(r#""session":{"ownerId":"owner","activeTurnId":null}"#));
    answered(&mut peer, 1, r#"{"kind":"completed","output":"1\tx"}"#).await;
    assert_eq!(asked.await.unwrap().0, 200);
}

#[actix_web::test]
async fn a_harness_that_dies_in_a_call_is_503_and_so_is_none() {
    let world = World::start().await;
    let at = http(&world).await;
    let session = sandboxed(&world, "s-1").await;
    let rejected = (503, "request_rejected".to_owned());
    assert_eq!(code(post(at, "s-1", "bash", &json!({})).await.unwrap()), rejected, "no harness");
    let _leases_only = Peer::ready(world.address).await;
    world.until_connected(1).await;
    assert_eq!(code(post(at, "s-1", "bash", &json!({})).await.unwrap()), rejected, "none serves workspaces");
    let mut peer = serving(&world, 1).await;
    let asked = post(at, "s-1", "bash", &json!({"command": "ls"}));
    peer.next_text().await;
    drop(peer);
    assert_eq!(code(asked.await.unwrap()), rejected, "it died");
    world.until_connected(1).await;
    let workspaces = world.tenant.workspaces();
    let files = FilesOf { dir: "/workspace/outputs".into(), max_entries: 10 };
    let listed = workspaces.list(of(&session), files).await;
    assert_eq!(listed, Ok(ListAnswer::Missing { path: "/workspace/outputs".into() }));
    let read = workspaces.bytes(of(&session), BytesOf { path: "a".into(), max_bytes: 1 }).await.unwrap();
    assert!(matches!(read, BytesAnswer::Failed { code, .. } if code == "sandbox.unavailable"));
    let report = workspaces.report().await;
    assert_eq!((report.preference.as_str(), report.backend, report.isolation), ("auto", None, None));
    assert_eq!(report.default_image, "python:3.13-slim");
    assert_eq!(workspaces.sweep().await, Ok(Swept { records: Vec::new(), complete: false }));
    assert_eq!(workspaces.remove(Removal::everything()).await, Ok(()));
}

#[actix_web::test]
async fn an_answer_of_another_shape_and_a_refusal_are_the_callers_only() {
    let world = World::start().await;
    let at = http(&world).await;
    sandboxed(&world, "s-1").await;
    let mut peer = serving(&world, 1).await;
    let mut id = 0;
    for wrong in [r#"{"kind":"odd"}"#, r#"{"kind":"failed","code":1}"#, "[]", "null", r#"["completed",{}]"#] {
        let asked = post(at, "s-1", "bash", &json!({"command": "ls"}));
        peer.next_text().await;
        id += 1;
        answered(&mut peer, id, wrong).await;
        assert_eq!(code(asked.await.unwrap()), (500, "internal_error".to_owned()), "{wrong}");
    }
    for (refusal, status, rejection) in [
        ("unavailable", 503, "request_rejected"),
        ("internal", 500, "internal_error"),
        ("invalid", 500, "internal_error"),
    ] {
        let asked = post(at, "s-1", "bash", &json!({"command": "ls"}));
        peer.next_text().await;
        id += 1;
        refused(&mut peer, id, refusal).await;
        assert_eq!(code(asked.await.unwrap()), (status, rejection.to_owned()), "{refusal}");
    }
    // Answers to nothing are ignored, and the connection lives on.
    answered(&mut peer, 4711, "{}").await;
    answered(&mut peer, 1, r#"{"kind":"completed","output":1}"#).await;
    let asked = post(at, "s-1", "bash", &json!({"command": "ls"}));
    peer.next_text().await;
    answered(&mut peer, id + 1, r#"{"kind":"completed"}"#).await;
    assert_eq!(asked.await.unwrap(), (200, r#"{"kind":"completed","output":null}"#.to_owned()));
}

#[actix_web::test]
async fn a_client_that_leaves_aborts_the_request() {
    let world = World::start().await;
    let at = http(&world).await;
    sandboxed(&world, "s-1").await;
    let mut peer = serving(&world, 1).await;
    let mut client = TcpStream::connect(at).await.unwrap();
    let body = r#"{"command":"sleep 600"}"#;
    let head = format!(
        "POST /v1/sessions/s-1/sandbox/bash HTTP/1.1\r\nHost: {at}\r\nNylorun-Protocol: 7\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    assert!(peer.next_text().await.starts_with(r#"{"t":"req","id":1,"m":"workspace.exec""#));
    drop(client);
    assert_eq!(peer.next_text().await, r#"{"t":"abort","id":1}"#);
    // What it still says is ignored.
    refused(&mut peer, 1, "unavailable").await;
    let asked = post(at, "s-1", "bash", &json!({"command": "ls"}));
    assert!(peer.next_text().await.starts_with(r#"{"t":"req","id":2,"#));
    answered(&mut peer, 2, r#"{"kind":"completed","output":{}}"#).await;
    assert_eq!(asked.await.unwrap().0, 200);
}

#[actix_web::test]
async fn of_two_harnesses_the_one_with_the_record_is_asked_and_awaited_while_it_is_away() {
    let world = World::start().await;
    let at = http(&world).await;
    let session = sandboxed(&world, "s-1").await;
    let mut first = serving(&world, 1).await;
    let mut second = serving(&world, 2).await;
    // The session's run is at the second, whose claim says that it has the workspace.
    world.say(&session, "hello").await;
    let run = second.lease().await;
    let record = json!({"key": session_key(world.tenant.id(), &session), "sessionId": "s-1", "backend": "virtual",
        "image": "python:3.13-slim", "state": "running", "createdAt": "2026-01-01T00:00:00.000Z",
        "updatedAt": "2026-01-01T00:00:00.000Z"});
    let claim = json!({"runId": run.id, "sessionId": "s-1", "turnId": run.turn, "type": "sandbox.state",
        "payload": {"state": "running", "backend": "virtual"}, "record": record});
    assert_eq!(second.call("event", claim).await, Ok(json!({})));
    let settling = second.ask("turn.completed", run.completed(0, &[])).await;
    // A completed turn's outputs are exported before its harness is answered; here are none.
    let list = second.next_text().await;
    assert!(list.starts_with(r#"{"t":"req","id":1,"m":"workspace.read","p":{"session":"#), "{list}");
    assert!(list.contains(r#""list":{"dir":"/workspace/outputs","#), "{list}");
    answered(&mut second, 1, r#"{"kind":"missing","path":"/workspace/outputs"}"#).await;
    second.answer(settling).await.unwrap();
    world.until(&session, "completed").await;
    for id in 2..=3 {
        let asked = post(at, "s-1", "read", &json!({"path": "a"}));
        assert!(second.next_text().await.contains(r#""m":"workspace.read""#));
        answered(&mut second, id, r#"{"kind":"completed","output":"x"}"#).await;
        assert_eq!(asked.await.unwrap().0, 200);
    }
    drop(second);
    world.until_connected(1).await;
    let away = code(post(at, "s-1", "read", &json!({"path": "a"})).await.unwrap());
    assert_eq!(away, (503, "request_rejected".to_owned()), "the first would open an empty one");
    // It comes back under another connection: both are asked what they have.
    let mut again = serving(&world, 2).await;
    let asked = post(at, "s-1", "read", &json!({"path": "a"}));
    let sweep_asked = |id: u64| format!(r#"{{"t":"req","id":{id},"m":"workspace.sweep","p":{{}}}}"#);
    assert_eq!(first.next_text().await, sweep_asked(1));
    assert_eq!(again.next_text().await, sweep_asked(1));
    answered(&mut first, 1, r#"{"workspaces":[]}"#).await;
    answered(&mut again, 1, &format!(r#"{{"workspaces":[{record}]}}"#)).await;
    assert!(again.next_text().await.contains(r#""m":"workspace.read""#));
    answered(&mut again, 2, r#"{"kind":"completed","output":"x"}"#).await;
    assert_eq!(asked.await.unwrap().0, 200);
}

#[actix_web::test]
async fn a_run_goes_to_the_harness_that_has_its_workspace() {
    let world = World::start().await;
    let at = http(&world).await;
    let session = sandboxed(&world, "s-1").await;
    let mut first = serving(&world, 1).await;
    let asked = post(at, "s-1", "read", &json!({"path": "a"}));
    first.next_text().await;
    answered(&mut first, 1, r#"{"kind":"completed","output":"x"}"#).await;
    asked.await.unwrap();
    let mut second = serving(&world, 2).await;
    let _parked = second.ask("lease", json!({})).await;
    world.say(&session, "hello").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(first.lease().await.session, "s-1");
}

#[actix_web::test]
async fn a_sweep_removes_what_has_no_owner_and_the_record_follows() {
    let world = World::start().await;
    let session = sandboxed(&world, "s-1").await;
    let mut peer = serving(&world, 1).await;
    let tenant = world.tenant.id().clone();
    let (kept, gone) = (session_key(&tenant, &session), session_key(&tenant, &"gone".into()));
    let resource = sandbox_key(&tenant, "team/box");
    let record = |key: &str, session: &str, state: &str| {
        json!({"key": key, "sessionId": session, "backend": "virtual", "image": "i", "state": state,
            "createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z"})
    };
    let mut of_resource = record(&resource, "gone", "stopped");
    of_resource["sandboxId"] = json!("team/box");
    let stored = serde_json::from_value(record(&gone, "gone", "running")).unwrap();
    world.tenant.store().tx(move |tx| tx.put_workspace(&stored)).await.unwrap();
    let tree = world.tenant.tree().clone();
    let swept = tokio::task::spawn_local(async move { sweep(&tree, &Missing::default()).await });
    peer.next_text().await;
    let listed = json!({"workspaces": [record(&kept, "s-1", "stopped"), record(&gone, "gone", "stopped"), of_resource]});
    answered(&mut peer, 1, &listed.to_string()).await;
    assert_eq!(
        peer.next_text().await,
        format!(r#"{{"t":"req","id":2,"m":"workspace.remove","p":{{"keys":["{gone}"]}}}}"#)
    );
    answered(&mut peer, 2, "{}").await;
    swept.await.unwrap().unwrap();
    let rows = world.tenant.store().read(|r| r.workspaces(None, 9)).await.unwrap();
    let rows: Vec<(String, &str)> = rows.iter().map(|r| (r.key.clone(), r.state.as_str())).collect();
    let mut expected = vec![(kept, "stopped"), (resource, "stopped")];
    expected.sort();
    assert_eq!(rows, expected);
    assert_eq!(world.tenant.figures().await.unwrap().workspaces, 2);
}

#[actix_web::test]
async fn hello_tells_the_tenants_preference() {
    let world = World::start().await;
    let put = world.tenant.store().tx(|tx| tx.put_setting("sandbox.backend", "virtual"));
    put.await.unwrap();
    let mut peer = Peer::connect(world.address).await;
    let hello = json!({"api": 1, "name": "scripted", "version": "0.17.0", "capabilities": {}});
    assert_eq!(peer.call("hello", hello).await.unwrap()["sandbox"], json!({"backend": "virtual"}));
    assert_ne!(TOKEN, KEY);
}

/// The real `nylorun harness`: killed when dropped.
struct Harness(std::process::Child);

impl Drop for Harness {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[actix_web::test]
async fn a_harness_of_its_own_runs_the_tools_in_its_folder_and_its_claims_are_recorded() {
    let world = World::start().await;
    let at = http(&world).await;
    let session = sandboxed(&world, "s-1").await;
    let dir = tempfile::tempdir().unwrap();
    let _harness = Harness(
        std::process::Command::new(env!("CARGO_BIN_EXE_nylorun"))
            .args(["harness", "--health-port", "0", "--url", &format!("ws://{}", world.address)])
            .args(["--sandbox", "namespaces", "--root"])
            .arg(dir.path())
            .env("NYLORUN_HARNESS_TOKEN", TOKEN)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap(),
    );
    let until = tokio::time::Instant::now() + PATIENCE;
    while !world.tenant.figures().await.unwrap().harness_workspace {
        assert!(tokio::time::Instant::now() < until, "it declares workspaces");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let write = post(at, "s-1", "write", &json!({"path": "a", "content": "hi"})).await.unwrap();
    assert_eq!(write, (200, r#"{"kind":"completed","output":{"path":"/workspace/a","bytes":2}}"#.to_owned()));
    let (status, ran) = post(at, "s-1", "bash", &json!({"command": "cat a; pwd; id -u"})).await.unwrap();
    let output = &parse(ran.as_bytes()).unwrap()["output"];
    assert_eq!((status, &output["stdout"]), (200, &json!("hi/workspace\n1000\n")), "{ran}");
    let types = world.types(&session).await;
    assert_eq!(types, ["sandbox.state", "sandbox.state", "sandbox.exec", "sandbox.exec"]);
    let key = session_key(world.tenant.id(), &session);
    assert_eq!(
        std::fs::read_to_string(dir.path().join("sandboxes").join(&key).join("workspace/a")).unwrap(),
        "hi"
    );
    assert_eq!(world.tenant.workspaces().report().await.backend.as_deref(), Some("virtual"));
    // A sweep keeps the workspace of a session that is there; the record says what it is.
    sweep(world.tenant.tree(), &Missing::default()).await.unwrap();
    let row = world.tenant.store().read(move |r| r.workspace(&key)).await.unwrap().unwrap();
    assert_eq!(row.state.as_str(), "running");
    let files = FilesOf { dir: "/workspace".into(), max_entries: 10 };
    let listed = world.tenant.workspaces().list(of(&session), files).await.unwrap();
    assert!(matches!(listed, ListAnswer::Listed { listing, .. } if listing.entries.len() == 1));
}
