//! A real core and real harnesses, each a process, with a WebSocket between them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::SqliteConnection;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nylorun_actors::model::Json;
use nylorun_actors::model::json::parse;
use serde_json::json;

use super::common::{self, Options, PATIENCE, Server};
use super::rigs::Rig;
use super::sample::manifest;

pub const TOKEN: &str = "f00df00df00df00df00df00df00df00df00df00df00df00df00df00df00df00d";

/// Runs a test in real time.
pub fn real<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
}

/// A core that runs nothing itself.
pub fn core() -> Server {
    let options = Options::default()
        .env("NYLORUN_HARNESS", "remote")
        .env("NYLORUN_HARNESS_TOKEN", TOKEN)
        .arg("--harness-listen")
        .arg("127.0.0.1:0");
    Server::start_with(options)
}

/// The URL of a core's harness listener, `ws://…`.
pub fn harness_url(core: &Server) -> String {
    let url = core.ready.split(' ').find_map(|word| word.strip_prefix("harness=")).unwrap_or_default();
    assert!(!url.is_empty(), "core says no harness listener: {}", core.ready);
    url.replacen("http://", "ws://", 1)
}

/// A harness process.
pub struct Process {
    child: Option<Child>,
    /// The URL of its health port.
    pub health: String,
    _home: tempfile::TempDir,
}

impl Process {
    pub fn start(url: &str, args: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut command = common::nylorun(home.path());
        command.args(["harness", "--url", url, "--health-port", "0"]).args(args);
        command.env("NYLORUN_HARNESS_TOKEN", TOKEN);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let health = line.trim().strip_prefix("nylorun harness ready health=").expect("its ready line");
        Self { health: health.to_owned(), child: Some(child), _home: home }
    }

    /// Whether core is connected, as the health port says.
    pub async fn is_connected(&self) -> bool {
        let answer = reqwest::get(&self.health).await.unwrap();
        let body = parse(&answer.bytes().await.unwrap()).unwrap();
        assert_eq!((&body["status"], &body["service"]), (&json!("ok"), &json!("nylorun-harness")));
        body["connected"].as_bool().unwrap()
    }

    pub async fn until_connected(&self, connected: bool) {
        for _ in 0..3_000 {
            if self.is_connected().await == connected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the harness never became connected={connected}");
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().unwrap().id();
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }

    /// Stops in order; its exit code.
    pub fn terminate(mut self) -> Option<i32> {
        self.signal(Signal::SIGTERM);
        common::wait(self.child.take().unwrap()).code()
    }

    pub fn kill9(mut self) {
        self.signal(Signal::SIGKILL);
        common::wait(self.child.take().unwrap());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[derive(QueryableByName)]
struct EffectLine {
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = BigInt)]
    attempts: i64,
}

/// Core and harnesses as processes.
pub struct WebSocket {
    core: Server,
    url: String,
    harnesses: Mutex<Vec<Process>>,
    http: reqwest::Client,
    keys: AtomicU32,
}

impl WebSocket {
    async fn call(&self, method: &str, path: &str, body: Option<Json>) -> Json {
        let method = method.parse().unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.core.url));
        request = request.header("nylorun-protocol", "7").bearer_auth(&self.core.key);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let body = parse(&answer.bytes().await.unwrap()).unwrap_or_default();
        assert!(status.is_success(), "{path}: {status}: {body}");
        body
    }

    fn key(&self) -> String {
        format!("k{}", self.keys.fetch_add(1, Ordering::Relaxed))
    }

    async fn connected(&self) -> u64 {
        self.call("GET", "/v1/tenant", None).await["harness"]["connected"].as_u64().unwrap_or(0)
    }
}

impl Rig for WebSocket {
    async fn start(script: Json) -> Self {
        let core = core();
        let url = harness_url(&core);
        let http = reqwest::Client::builder().timeout(PATIENCE).build().unwrap();
        let mut rig = Self { core, url, harnesses: Mutex::default(), http, keys: AtomicU32::new(0) };
        let put = json!({ "requestId": "r", "manifest": manifest(&script), "implementationVersion": "1" });
        rig.call("PUT", "/v1/agents/assistant", Some(put)).await;
        let seed = json!({ "requestId": "r", "fixtureModel": true });
        rig.call("PUT", "/v1/tenant/config/seed", Some(seed)).await;
        rig.add_harness().await;
        rig
    }

    async fn open(&self, session: &str) {
        let open = json!({ "requestId": "r", "agentId": "assistant", "ownerUserId": "u" });
        self.call("PUT", &format!("/v1/sessions/{session}"), Some(open)).await;
    }

    async fn say(&self, session: &str, text: &str) {
        let body =
            json!({ "type": "message", "requestId": "r", "idempotencyKey": self.key(), "content": text });
        self.call("POST", &format!("/v1/sessions/{session}/commands"), Some(body)).await;
    }

    async fn cancel(&self, session: &str) {
        let body = json!({ "type": "cancel", "requestId": "r", "idempotencyKey": self.key() });
        self.call("POST", &format!("/v1/sessions/{session}/commands"), Some(body)).await;
    }

    async fn status(&self, session: &str) -> String {
        let view = self.call("GET", &format!("/v1/sessions/{session}"), None).await;
        view["status"].as_str().unwrap().to_owned()
    }

    async fn events(&self, session: &str) -> Vec<Json> {
        let items = self.call("GET", &format!("/v1/sessions/{session}/items"), None).await;
        items["items"].as_array().unwrap().clone()
    }

    async fn attempts(&self) -> Vec<(&'static str, u32)> {
        let path = self.core.home().join("nylorun.db");
        let mut db = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
        let lines: Vec<EffectLine> =
            diesel::sql_query("SELECT kind, attempts FROM effects WHERE kind <> 'delegation'")
                .load(&mut db)
                .unwrap();
        let kind = |kind: &str| if kind == "tool" { "tool" } else { "model" };
        let mut all: Vec<_> =
            lines.iter().map(|line| (kind(&line.kind), u32::try_from(line.attempts).unwrap())).collect();
        all.sort_unstable();
        all
    }

    /// The tests that ask have one session.
    async fn in_flight(&self, _: &str, kind: &str) -> bool {
        let path = self.core.home().join("nylorun.db");
        let mut db = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
        let query = "SELECT kind, attempts FROM effects WHERE status = 'invoking' AND kind = ?";
        let lines: Vec<EffectLine> = diesel::sql_query(query).bind::<Text, _>(kind).load(&mut db).unwrap();
        !lines.is_empty()
    }

    async fn add_harness(&mut self) {
        let before = self.connected().await;
        self.harnesses.lock().unwrap().push(Process::start(&self.url, &[]));
        for _ in 0..3_000 {
            if self.connected().await > before {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the harness never connected");
    }

    async fn stop_harness(&mut self) {
        let first = self.harnesses.lock().unwrap().remove(0);
        assert_eq!(first.terminate(), Some(0));
    }

    async fn kill_harness(&mut self) {
        let first = self.harnesses.lock().unwrap().remove(0);
        first.kill9();
    }

    fn transcript_reads(&self) -> Option<usize> {
        None
    }
}

/// Runs `nylorun harness` where it must end by itself: its exit code and what it said.
fn refused(args: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String) {
    let home = tempfile::tempdir().unwrap();
    let mut command = common::nylorun(home.path());
    let output = command.arg("harness").args(args).envs(env.iter().copied()).output().unwrap();
    (output.status.code(), common::stderr(&output))
}

#[test]
fn a_harness_with_a_secret_of_core_or_without_a_url_does_not_start() {
    let url = ["--url", "ws://127.0.0.1:1", "--health-port", "0"];
    for name in
        ["NYLORUN_DATABASE_URL", "NYLORUN_GATES_TOKEN", "NYLORUN_KEYS_URL", "NYLORUN_RESTATE_ADMIN_URL"]
    {
        let (code, said) = refused(&url, &[("NYLORUN_HARNESS_TOKEN", TOKEN), (name, "x")]);
        assert_eq!(code, Some(2));
        assert!(said.contains("error[setting-forbidden]") && said.contains(name), "{said}");
    }
    let (code, said) = refused(&[], &[("NYLORUN_HARNESS_TOKEN", TOKEN)]);
    assert_eq!(code, Some(2));
    assert!(said.contains("error[setting-missing]") && said.contains("NYLORUN_HARNESS_URL"), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (code, said) =
        refused(&["--url", "ws://127.0.0.1:1", "--health-port", &port], &[("NYLORUN_HARNESS_TOKEN", TOKEN)]);
    assert_eq!(code, Some(98));
    assert!(said.contains("--health-port"), "{said}");
}

#[test]
fn a_harness_shows_where_its_settings_come_from_and_hides_the_token() {
    let home = tempfile::tempdir().unwrap();
    let mut command = common::nylorun(home.path());
    command.args(["harness", "--url", "ws://core:4200", "--max-runs", "3", "--show-config", "--json"]);
    let output = command.env("NYLORUN_HARNESS_TOKEN", TOKEN).output().unwrap();
    let shown = parse(&output.stdout).unwrap()["settings"].clone();
    assert_eq!(shown["url"], json!({ "value": "ws://core:4200/nylorun/harness/v1", "origin": "flag --url" }));
    assert_eq!(shown["token"], json!({ "value": "****", "origin": "environment NYLORUN_HARNESS_TOKEN" }));
    assert_eq!(shown["max-runs"]["origin"], "flag --max-runs");
    assert_eq!(shown["health-port"], json!({ "value": "4300", "origin": "default" }));
    assert!(!common::stdout(&output).contains(TOKEN));
}

#[test]
fn a_wrong_token_is_logged_with_what_to_do_and_tried_again_until_it_is_right() {
    real(async || {
        let core = core();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "0".repeat(64)).unwrap();
        let mut command = common::nylorun(dir.path());
        command.args(["harness", "--url", &harness_url(&core), "--health-port", "0", "--log", "json"]);
        command.arg("--token-file").arg(&file);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut until =
            |what: &str| log.by_ref().map(Result::unwrap).find(|line| line.contains(what)).unwrap();
        let line = until("401");
        assert!(line.contains("NYLORUN_HARNESS_TOKEN") && !line.contains("0000000000"), "{line}");
        std::fs::write(&file, TOKEN).unwrap();
        until("connected");
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

#[test]
fn a_harness_comes_back_by_itself_when_core_does() {
    real(async || {
        let mut core = core();
        let url = harness_url(&core);
        let harness = Process::start(&url, &["--max-runs", "2"]);
        harness.until_connected(true).await;
        core.kill9();
        harness.until_connected(false).await;
        // The port must be the same for it to be found again.
        let port = url.rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
        let listen = format!("127.0.0.1:{port}");
        let again = Server::start_in(
            core.home(),
            Options::default()
                .env("NYLORUN_HARNESS", "remote")
                .env("NYLORUN_HARNESS_TOKEN", TOKEN)
                .arg("--harness-listen")
                .arg(&listen),
        );
        harness.until_connected(true).await;
        drop(again);
        harness.until_connected(false).await;
        assert_eq!(harness.terminate(), Some(0));
    });
}
