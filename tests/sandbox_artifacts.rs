//! Artifacts of turns in sandboxes: what `save_artifact` saves and what a completed turn leaves in `/workspace/outputs`,
//! in `serve` and in a harness of its own (spec: sandbox, section 14).

// Helpers of a test may stop at the first surprise too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{Options, Server};
use nylorun_actors::model::json::{self, Json};
use serde_json::json;

const TOKEN: &str = "f00df00df00df00df00df00df00df00df00df00df00df00df00df00df00df00d";

/// A client of a server with the fixture model.
struct Client<'a> {
    server: &'a Server,
    runtime: tokio::runtime::Runtime,
}

impl<'a> Client<'a> {
    fn of(server: &'a Server) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let this = Self { server, runtime };
        this.send("PUT", "/v1/tenant/config/seed", Some(json!({"requestId": "r", "fixtureModel": true})));
        this
    }

    fn send(&self, method: &str, path: &str, body: Option<Json>) -> Json {
        self.runtime.block_on(async {
            let http = reqwest::Client::builder().no_proxy().build().unwrap();
            let request = http
                .request(method.parse().unwrap(), format!("{}{path}", self.server.url))
                .bearer_auth(&self.server.key)
                .header("nylorun-protocol", "7");
            let request = match body {
                Some(body) => request.header("content-type", "application/json").body(json::encode(&body)),
                None => request,
            };
            let answer = request.send().await.unwrap();
            let status = answer.status();
            let body = json::parse(&answer.bytes().await.unwrap()).unwrap_or(Json::Null);
            assert!(status.is_success(), "{method} {path}: {status} {body}");
            body
        })
    }

    fn get(&self, path: &str) -> Json {
        self.send("GET", path, None)
    }

    fn events(&self) -> Vec<Json> {
        self.get("/v1/sessions/s/items")["items"].as_array().unwrap().clone()
    }

    /// A turn to its end: its events.
    fn turn(&self, text: &str) -> Vec<Json> {
        let message = json!({"requestId": "r", "idempotencyKey": text, "type": "message", "content": text});
        let turn = self.send("POST", "/v1/sessions/s/commands", Some(message))["turnId"].clone();
        until("the end of the turn", || {
            let session = self.get("/v1/sessions/s");
            let status = session["status"].as_str().unwrap().to_owned();
            assert!(!["failed", "uncertain"].contains(&status.as_str()), "{status}: {:?}", self.events());
            (status == "completed").then_some(())
        });
        self.events().into_iter().filter(|event| event["turnId"] == turn).collect()
    }

    /// The session's artifacts, oldest first.
    fn artifacts(&self) -> Vec<Json> {
        self.get("/v1/artifacts?sessionId=s")["artifacts"].as_array().unwrap().clone()
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < common::PATIENCE * 2, "it never came: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn call(name: &str, args: Json) -> Json {
    json!({"toolCalls": [{"name": name, "args": args}]})
}

fn bash(command: &str) -> Json {
    call("bash", json!({"command": command}))
}

/// Makes files, saves two of them and a note, asks for one that is not there.
fn keeps() -> Json {
    let make = "mkdir -p outputs/plots && printf '1,2\\n' >outputs/table.csv \
        && head -c 100000 /dev/zero >outputs/plots/a.bin && ln -s /etc/passwd outputs/link && printf secret >private";
    json!({"steps": [
        bash(make),
        call("save_artifact", json!({"path": "outputs/table.csv"})),
        call("save_artifact", json!({"path": "/workspace/private", "name": "p.txt"})),
        call("save_artifact", json!({"content": "a note"})),
        call("save_artifact", json!({"path": "nowhere"})),
        {"text": "done"},
    ], "cases": [
        {"when": {"contains": "again"}, "steps": [{"text": "nothing new"}]},
        {"when": {"contains": "more"}, "steps": [bash("rm -r outputs/plots; printf x >outputs/new"), {"text": "done"}]},
    ]})
}

fn saves_and_exports(server: &Server) {
    let it = Client::of(server);
    let manifest = json!({"manifestSchemaVersion": 4, "id": "keeper", "capabilities": [],
        "metadata": {"nylorun.fixture": keeps()}});
    let put = json!({"requestId": "r", "implementationVersion": "1", "manifest": manifest});
    it.send("PUT", "/v1/agents/keeper", Some(put));
    let open = json!({"requestId": "r", "agentId": "keeper", "ownerUserId": "ada", "sandbox": {}});
    it.send("PUT", "/v1/sessions/s", Some(open));
    let events = it.turn("go");
    let saves = events
        .iter()
        .filter(|event| event["type"] == "tool.completed" && event["payload"]["toolName"] == "save_artifact");
    let saved: Vec<&Json> = saves.map(|event| &event["payload"]).collect();
    assert_eq!(saved.len(), 4, "{events:?}");
    for (at, (name, kind, size)) in
        [("table.csv", "text/csv", 4), ("p.txt", "text/plain", 6), ("artifact.txt", "text/plain", 6)]
            .into_iter()
            .enumerate()
    {
        let output = &saved[at]["output"];
        assert_eq!(
            (&output["name"], &output["contentType"], &output["size"]),
            (&json!(name), &json!(kind), &json!(size))
        );
        let id = output["artifactId"].as_str().unwrap();
        let shown = it.get(&format!("/v1/artifacts/{id}"));
        assert_eq!((&shown["sessionId"], &shown["versions"][0]["source"]), (&json!("s"), &json!("engine")));
    }
    assert_eq!(saved[3]["error"]["code"], "artifact.not_found");

    // The folder comes after the turn's own end.
    let all = until("the export", || Some(it.artifacts()).filter(|all| all.len() == 4));
    assert_eq!((&all[3]["kind"], &all[3]["name"]), (&json!("folder"), &json!("outputs")));
    let id = all[3]["artifactId"].as_str().unwrap();
    let tree = it.get(&format!("/v1/artifacts/{id}/versions/1/tree"));
    let entries = tree["entries"].as_array().unwrap();
    let paths: Vec<&Json> = entries.iter().map(|entry| &entry["path"]).collect();
    assert_eq!(paths, [&json!("plots/a.bin"), &json!("table.csv")], "a link is no file");
    assert_eq!(entries[0]["size"], 100_000);
    let export = it.events().into_iter().rfind(|event| event["type"] == "artifact.created").unwrap();
    assert_eq!((&export["payload"]["claimed"], &export["payload"]["fileCount"]), (&json!(true), &json!(2)));

    // The same files are no new version, others are.
    it.turn("again");
    it.turn("more");
    until("the second version", || (it.artifacts()[3]["latestVersion"] == 2).then_some(()));
    let diff = it.get(&format!("/v1/artifacts/{id}/versions/2/diff"));
    assert_eq!(
        (&diff["added"][0]["path"], &diff["removed"][0]["path"]),
        (&json!("new"), &json!("plots/a.bin"))
    );
    assert_eq!(diff["changed"], json!([]));
}

#[test]
fn a_turn_saves_artifacts_and_its_outputs_are_kept_in_serve() {
    saves_and_exports(&Server::start());
}

/// Rewrites the output in place with as many bytes, and puts its time back.
fn rewrites(content: &str) -> Json {
    let rewrite = "touch -r outputs/a /tmp/time && printf CONTENT >outputs/a && touch -r /tmp/time outputs/a";
    bash(&rewrite.replace("CONTENT", content))
}

#[test]
fn an_output_that_was_rewritten_with_its_size_and_time_as_they_were_is_kept_as_it_is_now() {
    let server = Server::start();
    let it = Client::of(&server);
    let script = json!({"steps": [bash("mkdir -p outputs; printf one >outputs/a; printf x >outputs/b"), {"text": "made"}],
    "cases": [
        {"when": {"contains": "again"}, "steps": [{"text": "nothing new"}]},
        {"when": {"contains": "two"}, "steps": [rewrites("two"), {"text": "done"}]},
        {"when": {"contains": "six"}, "steps": [rewrites("six"), {"text": "done"}]},
    ]});
    let manifest = json!({"manifestSchemaVersion": 4, "id": "rewriter", "capabilities": [],
        "metadata": {"nylorun.fixture": script}});
    let put = json!({"requestId": "r", "implementationVersion": "1", "manifest": manifest});
    it.send("PUT", "/v1/agents/rewriter", Some(put));
    let open = json!({"requestId": "r", "agentId": "rewriter", "ownerUserId": "ada", "sandbox": {}});
    it.send("PUT", "/v1/sessions/s", Some(open));
    it.turn("go");
    let id = until("the export", || it.artifacts().pop())["artifactId"].as_str().unwrap().to_owned();
    // Long enough that the files are known by their stamps afterwards.
    std::thread::sleep(Duration::from_millis(3_200));
    it.turn("again 1");
    it.turn("again 2");
    // The second rewrite follows the first before any clock of a file system need have moved much.
    for (version, text) in [(2, "two"), (3, "six")] {
        it.turn(text);
        until("the next version", || (it.artifacts()[0]["latestVersion"] == version).then_some(()));
        let diff = it.get(&format!("/v1/artifacts/{id}/versions/{version}/diff"));
        let changed: Vec<&Json> =
            diff["changed"].as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
        assert_eq!(changed, [&json!("a")], "{diff}");
        let got = server.run(&["artifacts", "get", &id, "--file", "a"]);
        assert_eq!(common::stdout(&got), text, "{}", common::stderr(&got));
    }
}

/// A harness process with workspaces.
struct Harness(Child);

impl Harness {
    fn start(core: &Server, root: &Path) -> Self {
        let url = core.ready.split(' ').find_map(|word| word.strip_prefix("harness=")).unwrap();
        let mut command = common::nylorun(root);
        command.args(["harness", "--url", url, "--health-port", "0"]).env("NYLORUN_HARNESS_TOKEN", TOKEN);
        command.arg("--root").arg(root.join("work"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("nylorun harness ready"), "{line}");
        Self(child)
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_turn_saves_artifacts_and_its_outputs_are_kept_from_a_harness_of_its_own() {
    let mut options = Options::default().env("NYLORUN_HARNESS_TOKEN", TOKEN);
    for arg in ["--harness", "remote", "--harness-listen", "127.0.0.1:0"] {
        options = options.arg(arg);
    }
    let core = Server::start_with(options);
    let root = tempfile::tempdir().unwrap();
    let _harness = Harness::start(&core, root.path());
    saves_and_exports(&core);
}
