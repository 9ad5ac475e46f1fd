//! What the tests of sandboxes do to a running server: requests, scripted agents, looks at the machine below.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nylorun_actors::model::json::{self, Json};
use nylorun_actors::model::workspace::{sandbox_key, session_key};
use serde_json::json;

use super::common::{Options, PATIENCE, Server};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(30);

/// Waits for something; fails with these words.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE * 2;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it never came: {what}");
        std::thread::sleep(LOOK);
    }
}

/// A server with the fixture model, and a client of it.
pub struct Box {
    pub server: Server,
    runtime: tokio::runtime::Runtime,
    http: reqwest::Client,
}

impl Box {
    pub fn start() -> Self {
        Self::of(Server::start_with(Options::default()))
    }

    pub fn of(server: Server) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let this = Self { server, runtime, http };
        this.ok("PUT", "/v1/tenant/config/seed", json!({"requestId": "r", "fixtureModel": true}));
        this
    }

    /// A request's future, to be run or dropped.
    pub fn request(&self, method: &str, path: &str, body: Option<&Json>) -> reqwest::RequestBuilder {
        let request = self
            .http
            .request(method.parse().unwrap(), format!("{}{path}", self.server.url))
            .bearer_auth(&self.server.key)
            .header("nylorun-protocol", "7");
        match body {
            Some(body) => request.header("content-type", "application/json").body(json::encode(body)),
            None => request,
        }
    }

    pub fn send(&self, method: &str, path: &str, body: Option<&Json>) -> (u16, Json) {
        self.runtime.block_on(async {
            let answer = self.request(method, path, body).send().await.unwrap();
            let status = answer.status().as_u16();
            (status, json::parse(&answer.bytes().await.unwrap()).unwrap_or(Json::Null))
        })
    }

    /// Sends a request and leaves before its answer.
    pub fn leave(&self, method: &str, path: &str, body: &Json, after: Duration) {
        let sending = self.request(method, path, Some(body)).send();
        let answered = self.runtime.block_on(async { tokio::time::timeout(after, sending).await });
        assert!(answered.is_err(), "it was answered: {answered:?}");
        // The connection closes while the client's own tasks run.
        self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(500)).await });
    }

    pub fn get(&self, path: &str) -> Json {
        let (status, body) = self.send("GET", path, None);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub fn ok(&self, method: &str, path: &str, body: Json) -> Json {
        let (status, answer) = self.send(method, path, Some(&body));
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    /// Registers an agent that plays a script.
    pub fn agent(&self, id: &str, script: Json) {
        self.register(json!({"manifestSchemaVersion": 4, "id": id, "capabilities": [],
            "metadata": {"nylorun.fixture": script}}));
    }

    pub fn register(&self, manifest: Json) {
        let id = manifest["id"].as_str().unwrap().to_owned();
        let body = json!({"requestId": "r", "implementationVersion": "1", "manifest": manifest});
        self.ok("PUT", &format!("/v1/agents/{id}"), body);
    }

    /// Opens a session with a sandbox.
    pub fn open(&self, session: &str, agent: &str, sandbox: Json) -> Json {
        let body = json!({"requestId": "r", "agentId": agent, "ownerUserId": "ada", "sandbox": sandbox});
        self.ok("PUT", &format!("/v1/sessions/{session}"), body)
    }

    pub fn try_say(&self, session: &str, text: &str) -> (u16, Json) {
        let key = format!("{:x}", rand::random::<u64>());
        let body = json!({"type": "message", "requestId": key, "idempotencyKey": key, "content": text});
        self.send("POST", &format!("/v1/sessions/{session}/commands"), Some(&body))
    }

    /// Sends a message; its turn.
    pub fn say(&self, session: &str, text: &str) -> String {
        let (status, answer) = self.try_say(session, text);
        assert_eq!(status, 200, "{answer}");
        answer["turnId"].as_str().unwrap().to_owned()
    }

    pub fn cancel(&self, session: &str) {
        let body = json!({"type": "cancel", "requestId": "c", "idempotencyKey": "c"});
        self.ok("POST", &format!("/v1/sessions/{session}/commands"), body);
    }

    pub fn status(&self, session: &str) -> String {
        self.get(&format!("/v1/sessions/{session}"))["status"].as_str().unwrap().to_owned()
    }

    pub fn until(&self, session: &str, status: &str) {
        until(&format!("{session} {status}"), || {
            let now = self.status(session);
            let events = || self.events(session);
            assert!(
                now == status || !["failed", "uncertain"].contains(&now.as_str()),
                "{now}: {:?}",
                events()
            );
            (now == status).then_some(())
        });
    }

    /// A whole turn that completes: its events.
    pub fn turn(&self, session: &str, text: &str) -> Vec<Json> {
        let turn = self.say(session, text);
        self.until(session, "completed");
        let events = self.events(session).into_iter();
        events.filter(|event| event["turnId"] == turn.as_str()).collect()
    }

    pub fn events(&self, session: &str) -> Vec<Json> {
        self.get(&format!("/v1/sessions/{session}/items"))["items"].as_array().unwrap().clone()
    }

    /// A tool over its route.
    pub fn tool(&self, session: &str, tool: &str, input: Json) -> (u16, Json) {
        self.send("POST", &format!("/v1/sessions/{session}/sandbox/{tool}"), Some(&input))
    }

    fn tenant(&self) -> String {
        self.get("/v1/tenant")["tenant"]["id"].as_str().unwrap().to_owned()
    }

    /// The folder of a session's workspace on this machine.
    pub fn folder(&self, session: &str) -> PathBuf {
        let key = session_key(&self.tenant().as_str().into(), &session.into());
        self.server.home().join("sandboxes").join(key)
    }

    /// The folder of a sandbox's workspace.
    pub fn sandbox_folder(&self, id: &str) -> PathBuf {
        let key = sandbox_key(&self.tenant().as_str().into(), id);
        self.server.home().join("sandboxes").join(key)
    }
}

/// What tools came to in a turn, in order: `tool: output` or `tool: code`.
pub fn tools(events: &[Json]) -> Vec<(String, Json)> {
    let done = events.iter().filter(|event| event["type"] == "tool.completed");
    done.map(|event| {
        let payload = &event["payload"];
        let said = if payload["error"].is_null() {
            payload["output"].clone()
        } else {
            payload["error"]["code"].clone()
        };
        (payload["toolName"].as_str().unwrap().to_owned(), said)
    })
    .collect()
}

/// The payloads of one type.
pub fn payloads<'a>(events: &'a [Json], kind: &str) -> Vec<&'a Json> {
    events.iter().filter(|event| event["type"] == kind).map(|event| &event["payload"]).collect()
}

/// A script's step of one tool call.
pub fn call(name: &str, args: Json) -> Json {
    json!({"toolCalls": [{"name": name, "args": args}]})
}

pub fn bash(command: &str) -> Json {
    call("bash", json!({"command": command}))
}

/// Processes of this machine with this text in their command line.
pub fn processes(marker: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(marker)
        })
        .collect()
}

/// A number that no other test uses as the time of a sleep, so that its process can be found.
pub fn marker() -> String {
    format!("{}.{:09}", 600, rand::random::<u32>() % 1_000_000_000)
}

/// Control groups that a process of ours has made: `…/nylorun/<instance>/<process>-<n>`.
pub fn groups_of(process: u32) -> Vec<PathBuf> {
    fn walk(folder: &std::path::Path, depth: u32, prefix: &str, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with(prefix)
                && path.parent().and_then(|of| of.parent()).is_some_and(|of| of.ends_with("nylorun"))
            {
                found.push(path);
            } else if depth > 0 {
                walk(&path, depth - 1, prefix, found);
            }
        }
    }
    let mut found = Vec::new();
    walk("/sys/fs/cgroup".as_ref(), 8, &format!("{process}-"), &mut found);
    found
}
