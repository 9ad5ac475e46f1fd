//! A connection that serves workspaces, against a core that a test plays by hand.

use std::future::Future;
use std::time::Duration;

use nylorun_actors::model::json::parse;
use nylorun_actors::model::workspace::session_key;
use nylorun_actors::testing::FakeWorkspaces;
use nylorun_actors::testing::engine::FakeEngine;
use tokio::time::timeout;

use super::*;
use crate::harness::Outgoing;
use crate::harness::lease::{Connection, Harness};

/// Workspaces that were opened, and the names of backends.
struct Host(std::sync::Mutex<Vec<Arc<FakeWorkspaces>>>, Vec<String>);

impl WorkspaceHost for Host {
    fn backends(&self) -> Vec<String> {
        self.1.clone()
    }

    fn open(&self, tenant: &TenantId, preference: Option<&str>) -> Arc<dyn WorkspaceManager> {
        assert_eq!(preference, Some("auto"));
        let fake = FakeWorkspaces::of(tenant.clone());
        self.0.lock().unwrap().push(Arc::clone(&fake));
        fake
    }
}

struct Core {
    connection: Rc<Connection>,
    harness: Harness,
    host: Arc<Host>,
    later: Vec<Json>,
}

fn local(test: impl Future<Output = ()> + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    tokio::task::LocalSet::new().block_on(&runtime.unwrap(), test);
}

impl Core {
    fn new(backends: &[&str]) -> Self {
        let names = backends.iter().map(|name| (*name).to_owned()).collect();
        let host = Arc::new(Host(std::sync::Mutex::default(), names));
        let engine = FakeEngine::of(Vec::new());
        let harness = Harness::with_workspaces(engine, 1, Some(host.clone()));
        Self { connection: connected(&harness), harness, host, later: Vec::new() }
    }

    /// Takes hello and answers it.
    async fn greeted(backends: &[&str]) -> Self {
        let mut core = Self::new(backends);
        core.greet().await;
        core
    }

    async fn greet(&mut self) {
        let hello = self.frame().await;
        self.later.push(hello.clone());
        self.take(&json!({"t": "res", "id": hello["id"], "ok": true, "r": {"api": 1, "tenantId": "tn_1",
            "sandbox": {"backend": "auto"}, "renewEveryMs": 10_000}}));
        assert_eq!(self.frame().await["m"], "lease");
    }

    async fn frame(&mut self) -> Json {
        let channel = self.connection.channel();
        match timeout(Duration::from_secs(3600), channel.next()).await {
            Ok(Outgoing::Text(text)) => parse(text.as_bytes()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    async fn quiet(&self) -> bool {
        timeout(Duration::from_secs(60), self.connection.channel().next()).await.is_err()
    }

    fn take(&self, frame: &Json) {
        self.connection.channel().take(&encode(frame)).unwrap();
    }

    fn ask(&self, id: u64, method: &str, params: Json) {
        self.take(&json!({"t": "req", "id": id, "m": method, "p": params}));
    }

    /// Takes the next claim.
    async fn claim(&mut self) -> Json {
        let event = self.frame().await;
        assert_eq!(event["m"], "event", "{event}");
        self.take(&json!({"t": "res", "id": event["id"], "ok": true, "r": {}}));
        event["p"].clone()
    }

    fn workspaces(&self) -> Arc<FakeWorkspaces> {
        self.host.0.lock().unwrap().last().unwrap().clone()
    }
}

fn connected(harness: &Harness) -> Rc<Connection> {
    let connection = Rc::new(harness.connect());
    let serves = Rc::clone(&connection);
    tokio::task::spawn_local(async move { serves.serve().await });
    connection
}

fn call(tool: &str, input: Json) -> Json {
    json!({"session": {"ownerId": "s", "activeTurnId": null}, "spec": {}, "tool": tool, "input": input})
}

#[test]
fn hello_declares_workspaces_only_with_a_backend() {
    local(async {
        let core = Core::greeted(&["virtual"]).await;
        assert_eq!(core.later[0]["p"]["capabilities"], json!({"workspace": {"backends": ["virtual"]}}));
        let core = Core::greeted(&[]).await;
        assert_eq!(core.later[0]["p"]["capabilities"], json!({}));
        core.ask(1, "workspace.report", json!({}));
        let mut core = core;
        assert_eq!(core.frame().await["e"]["code"], "unavailable");
    });
}

#[test]
fn a_tool_is_run_and_what_happened_is_claimed_before_its_answer() {
    local(async {
        let mut core = Core::greeted(&["virtual"]).await;
        core.ask(7, "workspace.exec", call("bash", json!({"command": "ls"})));
        let key = session_key(&"tn_1".into(), &"s".into());
        for state in ["creating", "running"] {
            let claim = core.claim().await;
            assert_eq!(claim["type"], "sandbox.state");
            assert_eq!((&claim["sessionId"], &claim["turnId"]), (&json!("s"), &Json::Null));
            assert!(claim.get("runId").is_none(), "{claim}");
            assert_eq!((&claim["payload"]["state"], &claim["record"]["key"]), (&json!(state), &json!(key)));
        }
        assert_eq!(core.claim().await["type"], "sandbox.exec");
        let answer = core.frame().await;
        let output = json!({"exitCode": 0, "stdout": "ls", "stderr": ""});
        let expected = json!({"t": "res", "id": 7, "ok": true, "r": {"kind": "completed", "output": output}});
        assert_eq!(answer, expected);
    });
}

#[test]
fn every_method_is_answered_and_each_wrong_request_is_invalid() {
    local(async {
        let mut core = Core::greeted(&["virtual"]).await;
        let session = json!({"ownerId": "s", "activeTurnId": null});
        core.ask(1, "workspace.write", call("write", json!({"path": "out/a", "content": "hi"})));
        for _ in 0..3 {
            core.claim().await;
        }
        assert_eq!(core.frame().await["r"]["output"], json!({"path": "out/a", "bytes": 2}));
        core.ask(
            2,
            "workspace.read",
            json!({"session": session, "spec": {}, "list": {"dir": "out", "maxEntries": 9}}),
        );
        let listing = json!({"entries": [{"path": "a", "size": 2}], "truncated": false});
        assert_eq!(core.frame().await["r"], json!({"kind": "listed", "path": "out", "listing": listing}));
        core.ask(
            3,
            "workspace.read",
            json!({"session": session, "spec": {}, "bytes": {"path": "out/a", "maxBytes": 9}}),
        );
        assert_eq!(core.frame().await["r"], json!({"kind": "read", "path": "out/a", "base64": "aGk="}));
        core.ask(4, "workspace.report", json!({}));
        assert_eq!(core.frame().await["r"]["backend"], "virtual");
        core.ask(5, "workspace.sweep", json!({"now": 1}));
        let swept = core.frame().await;
        let key = swept["r"]["workspaces"][0]["key"].clone();
        core.ask(6, "workspace.remove", json!({"keys": [key]}));
        assert_eq!(core.frame().await, json!({"t": "res", "id": 6, "ok": true, "r": {}}));
        assert!(core.workspaces().keys().is_empty());
        for (method, params) in [
            ("workspace.read", call("bash", json!({}))),
            ("workspace.exec", call("write", json!({}))),
            ("workspace.write", call("read", json!({}))),
            ("workspace.exec", call("other", json!({}))),
            ("workspace.exec", json!({})),
            ("workspace.exec", json!([])),
            ("workspace.exec", json!({"session": ["s", null], "spec": {}, "tool": "bash", "input": {}})),
            ("workspace.exec", json!({"session": {"ownerId": "", "activeTurnId": null}, "tool": "bash"})),
            ("workspace.read", json!({"session": session, "spec": {}, "list": {"dir": "", "maxEntries": 1}})),
            (
                "workspace.read",
                json!({"session": session, "spec": {}, "bytes": {"path": "a", "maxBytes": 0}}),
            ),
            ("workspace.report", json!({"x": 1})),
            ("workspace.remove", json!({"keys": ["nylorun-tn_2-0011223344556677"]})),
            ("workspace.other", json!({})),
            ("lease", json!({})),
        ] {
            core.ask(9, method, params.clone());
            let answer = core.frame().await;
            assert_eq!(answer["e"]["code"], "invalid", "{method} {params}: {answer}");
        }
    });
}

#[test]
fn a_listing_over_the_wire_has_paths_and_sizes_alone() {
    local(async {
        let mut core = Core::greeted(&["virtual"]).await;
        core.ask(1, "workspace.write", call("write", json!({"path": "out/a", "content": "hi"})));
        for _ in 0..3 {
            core.claim().await;
        }
        core.frame().await;
        // Within the process the file has a stamp now.
        core.workspaces().settle();
        let list = json!({"dir": "out", "maxEntries": 9});
        let session = json!({"ownerId": "s", "activeTurnId": null});
        core.ask(2, "workspace.read", json!({"session": session, "spec": {}, "list": list}));
        assert_eq!(core.frame().await["r"]["listing"]["entries"], json!([{"path": "a", "size": 2}]));
    });
}

#[test]
fn before_hello_is_answered_workspaces_are_unavailable() {
    local(async {
        let mut core = Core::new(&["virtual"]);
        let hello = core.frame().await;
        assert_eq!(hello["m"], "hello");
        core.ask(1, "workspace.exec", call("bash", json!({"command": "ls"})));
        assert_eq!(core.frame().await["e"]["code"], "unavailable");
    });
}

#[test]
fn an_abort_and_the_end_of_the_connection_stop_what_runs() {
    local(async {
        let mut core = Core::greeted(&["virtual"]).await;
        core.ask(1, "workspace.exec", call("bash", json!({"command": "wait"})));
        core.claim().await;
        core.claim().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(core.workspaces().given_up(), 0);
        core.take(&json!({"t": "abort", "id": 1}));
        core.take(&json!({"t": "abort", "id": 99}));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(core.workspaces().given_up(), 1);
        assert!(core.quiet().await, "an aborted request is not answered");
        core.ask(2, "workspace.exec", call("bash", json!({"command": "wait"})));
        tokio::time::sleep(Duration::from_secs(1)).await;
        core.connection.channel().close(1006, "gone");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(core.workspaces().given_up(), 2);
        // The next connection of the same Tenant finds its workspaces again.
        core.connection = connected(&core.harness);
        core.greet().await;
        assert_eq!(core.host.0.lock().unwrap().len(), 1);
        core.ask(1, "workspace.sweep", json!({}));
        assert_eq!(core.frame().await["r"]["workspaces"].as_array().unwrap().len(), 1);
    });
}
