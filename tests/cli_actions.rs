//! Actions from a person's side, with the real binary and real endpoints: approvals, deliveries in the background,
//! decisions on what nobody knows, and crashes in between.

mod common;
#[path = "common/endpoint.rs"]
mod endpoint;
#[path = "cli_actions/hooks.rs"]
mod hooks;
#[path = "cli_actions/python.rs"]
mod python;

use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::{Options, PATIENCE, Server, stderr, stdout};
use endpoint::{Does, Sample, Told};
use nylorun::sample::{AGENT, MESSAGE};
use nylorun_actors::model::json::{self, Json};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

/// A server with the fixture model, on a port that stays its own when it starts again.
fn server() -> Server {
    server_with(Vec::new())
}

fn server_with(env: Vec<(String, String)>) -> Server {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("an address").to_string();
    drop(socket);
    Server::start_with(Options { args: vec!["--sample".into(), "--listen".into(), port], env })
}

/// Waits until a session has one of these statuses, and answers it.
fn settled(server: &Server, session: &str, wanted: &[&str]) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let view = server.json(&["sessions", "show", session]);
        let status = view["status"].as_str().expect("a status").to_owned();
        if wanted.contains(&status.as_str()) {
            return status;
        }
        assert!(Instant::now() < until, "{session} is {status}, not one of {wanted:?}: {view}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// All events of a session.
fn events(server: &Server, session: &str) -> Vec<Json> {
    let output = server.run(&["sessions", "events", session, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(|line| json::parse(line.as_bytes()).expect("an event")).collect()
}

fn of_kind<'a>(events: &'a [Json], kind: &str) -> Vec<&'a Json> {
    events.iter().filter(|event| event["type"] == kind).map(|event| &event["payload"]).collect()
}

/// The only pending interaction of a paused session.
fn interaction(server: &Server, session: &str) -> String {
    let view = server.json(&["sessions", "show", session]);
    view["waits"][0]["interaction"]["id"].as_str().expect("an interaction").to_owned()
}

/// Registers an agent with one tool `act`, which its model calls once, and its endpoint.
fn told_agent(server: &Server, id: &str, told: &Told) {
    agent_that_calls(server, id, told, 1);
}

/// The same with so many calls at once.
fn agent_that_calls(server: &Server, id: &str, told: &Told, calls: usize) {
    let calls: Vec<Json> = (1..=calls).map(|n| json!({ "name": "act", "args": { "n": n } })).collect();
    let manifest = json!({
        "manifestSchemaVersion": 4,
        "id": id,
        "metadata": { "nylorun.fixture": {
            "steps": [{ "toolCalls": calls }, { "text": "ended" }],
        } },
        "capabilities": [{
            "id": "main", "type": "agent", "instructions": ["Test."],
            "tools": [{ "name": "act", "description": "Acts.", "inputSchema": { "type": "object" } }],
        }],
    });
    let path = server.home().join(format!("{id}.json"));
    std::fs::write(&path, json::encode(&manifest)).expect("written");
    server.json(&["agents", "put", &path.display().to_string()]);
    server.json(&["endpoints", "put", id, &told.url]);
}

#[test]
fn endpoints_are_registered_listed_pinged_and_removed() {
    let server = server();
    let sample = Sample::start(&server, Duration::ZERO);
    let listed = server.json(&["endpoints", "list"]);
    let row = &listed["endpoints"][0];
    assert_eq!((&row["agentId"], &row["url"]), (&json!(AGENT), &json!(sample.url)));
    assert_eq!((&row["timeoutMs"], &row["maxConcurrent"]), (&json!(2000), &json!(16)));
    let pong = server.json(&["endpoints", "ping", AGENT]);
    assert_eq!(pong, json!({ "agentId": AGENT, "implementationVersion": "test" }));
    let said = stdout(&server.run(&["endpoints", "ping", AGENT]));
    assert!(said.starts_with("orders answers, version test, "), "{said}");
    let table = stdout(&server.run(&["endpoints", "list"]));
    assert!(table.contains("AGENT") && table.contains(&sample.url) && table.contains(" ok "), "{table}");

    let batch = server.home().join("endpoints.json");
    let list = json!([
        { "agentId": "a", "url": "http://127.0.0.1:9/a", "implementationVersion": "1", "maxConcurrent": 2 },
        { "agentId": "b", "url": "http://127.0.0.1:9/b", "implementationVersion": "1" },
    ]);
    std::fs::write(&batch, json::encode(&list)).expect("written");
    let file = batch.display().to_string();
    assert_eq!(server.json(&["endpoints", "put", "--file", &file])["endpoints"][0]["maxConcurrent"], 2);
    let dead = server.run(&["endpoints", "ping", "a"]);
    assert_eq!(dead.status.code(), Some(1));
    assert!(
        stderr(&dead).contains("did not answer the ping") && stderr(&dead).contains("what to do"),
        "{}",
        stderr(&dead)
    );

    assert_eq!(stdout(&server.run(&["endpoints", "rm", "a"])), "deleted the endpoint of a\n");
    let gone = server.run(&["endpoints", "rm", "a"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(stderr(&gone).contains("error["), "{}", stderr(&gone));
    let bad = server.run(&["endpoints", "put", "a", "ftp://x/"]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(stderr(&bad).contains("url"), "{}", stderr(&bad));
    let usage: [&[&str]; 4] = [
        &["endpoints", "put"],
        &["endpoints", "put", "a"],
        &["endpoints", "put", "a", "http://127.0.0.1:9/", "--timeout-ms", "10"],
        &["endpoints", "put", "a", "http://127.0.0.1:9/", "--file", &file],
    ];
    for args in usage {
        assert_eq!(server.run(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn an_approval_survives_a_restart_and_the_work_goes_on_in_the_background() {
    let mut server = server();
    let sample = Sample::start(&server, Duration::from_millis(2_500));
    let asked = server.run(&["run", AGENT, MESSAGE, "--session", "s1"]);
    let said = stderr(&asked);
    assert_eq!(asked.status.code(), Some(1), "it waits for a person: {said}");
    let id = interaction(&server, "s1");
    assert!(said.contains("Refund 30.00 EUR for order 1042?"), "{said}");
    assert!(said.contains(&format!("nylorun approve s1 {id}")), "{said}");
    assert!(
        said.contains("← lookup_order answered") && said.contains("← refund asks a person first"),
        "{said}"
    );
    let shown = server.run(&["sessions", "show", "s1"]);
    assert!(stderr(&shown).contains("nylorun approve s1"), "{}", stderr(&shown));

    server.terminate();
    server.restart();
    assert_eq!(settled(&server, "s1", &["paused"]), "paused");
    assert_eq!(interaction(&server, "s1"), id);

    let approved = server.run(&["approve", "s1"]);
    assert!(approved.status.success(), "{}", stderr(&approved));
    assert_eq!(stdout(&approved), format!("approved {id}\n"));
    assert_eq!(settled(&server, "s1", &["completed", "uncertain", "failed"]), "completed");

    let record = events(&server, "s1");
    let done = of_kind(&record, "action.completed");
    let results: Vec<&Json> = done.iter().map(|payload| &payload["result"]["kind"]).collect();
    assert_eq!(results, ["completed", "interaction-required", "completed"]);
    assert_eq!(done[2]["result"]["output"]["state"], "refunded");
    let statuses: Vec<(String, u16)> =
        sample.calls().into_iter().map(|call| (call.tool, call.status)).collect();
    let expected = [("lookup_order", 200), ("refund", 200), ("refund", 202)];
    assert_eq!(statuses, expected.map(|(tool, status)| (tool.to_owned(), status)));
    sample.assert_each_delivery_once();
    let text = stdout(&server.run(&["sessions", "events", "s1"]));
    assert!(
        text.contains("… refund is at its endpoint (delivery 1)") && text.contains("← refund answered"),
        "{text}"
    );
}

#[test]
fn a_rejected_call_does_not_run() {
    let server = server();
    let sample = Sample::start(&server, Duration::ZERO);
    assert_eq!(server.run(&["run", AGENT, MESSAGE, "--session", "s1"]).status.code(), Some(1));
    let wrong = server.run(&["respond", "s1", "yes"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(
        stderr(&wrong).contains("another kind") && stderr(&wrong).contains("nylorun approve s1"),
        "{}",
        stderr(&wrong)
    );
    assert!(server.run(&["reject", "s1"]).status.success());
    assert_eq!(settled(&server, "s1", &["completed", "failed"]), "completed");
    assert_eq!(sample.calls().len(), 2, "the refund was not delivered again");
}

#[test]
fn an_approval_given_twice_counts_once() {
    let server = server();
    let sample = Sample::start(&server, Duration::ZERO);
    assert_eq!(server.run(&["run", AGENT, MESSAGE, "--session", "s1"]).status.code(), Some(1));
    let id = interaction(&server, "s1");
    let first = server.json(&["approve", "s1", &id]);
    assert_eq!(first["status"], "accepted");
    let again = server.json(&["approve", "s1", &id]);
    assert_eq!(again["cursor"], first["cursor"], "the same answer is answered with the same receipt");
    assert_eq!(settled(&server, "s1", &["completed", "failed"]), "completed");
    assert_eq!(server.json(&["approve", "s1", &id])["cursor"], first["cursor"]);
    let refused: [&[&str]; 3] = [
        &["approve", "s1", &id, "--idempotency-key", "another"],
        &["reject", "s1", &id],
        &["reject", "s1", &id, "--idempotency-key", "yet-another"],
    ];
    for args in refused {
        let output = server.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(stderr(&output).contains("error[request_rejected]"), "{args:?}: {}", stderr(&output));
    }
    let nothing = server.run(&["approve", "s1"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(stderr(&nothing).contains("error[interaction]"), "{}", stderr(&nothing));
    assert_eq!(of_kind(&events(&server, "s1"), "command.approve").len(), 1);
    assert_eq!(sample.calls().iter().filter(|call| call.status == 202).count(), 1, "one refund");
    sample.assert_each_delivery_once();
}

#[test]
fn two_approvals_at_the_same_moment_with_different_keys_count_once() {
    let server = server();
    let sample = Sample::start(&server, Duration::ZERO);
    assert_eq!(server.run(&["run", AGENT, MESSAGE, "--session", "s1"]).status.code(), Some(1));
    let id = interaction(&server, "s1");
    let start = |key: &str| {
        let mut command = server.command(&["approve", "s1", &id, "--idempotency-key", key]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started")
    };
    let codes: Vec<Option<i32>> = ["a", "b", "c"]
        .map(start)
        .into_iter()
        .map(|child| child.wait_with_output().expect("ended").status.code())
        .collect();
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
    assert_eq!(settled(&server, "s1", &["completed", "failed"]), "completed");
    assert_eq!(of_kind(&events(&server, "s1"), "command.approve").len(), 1);
    assert_eq!(sample.calls().iter().filter(|call| call.status == 202).count(), 1, "one refund");
}

#[test]
fn of_several_approvals_each_is_asked_for_by_itself() {
    let server = server();
    let ask = |prompt: &str| {
        Does::Answers(json!({
            "kind": "interaction-required", "interaction": { "kind": "approval", "prompt": prompt },
        }))
    };
    let done = || Does::Answers(json!({ "kind": "completed", "output": "ok" }));
    let told = Told::start([
        ask("Once?"),
        ask("Twice?"),
        done(),
        done(),
        ask("Once?"),
        ask("Twice?"),
        done(),
        done(),
    ]);
    agent_that_calls(&server, "two", &told, 2);
    assert_eq!(server.run(&["run", "two", "go", "--session", "s1"]).status.code(), Some(1));
    let which = server.run(&["approve", "s1"]);
    let said = stderr(&which);
    assert_eq!(which.status.code(), Some(1));
    assert!(
        said.contains("error[interaction]") && said.contains("Once?") && said.contains("Twice?"),
        "{said}"
    );
    let first = interaction(&server, "s1");
    assert!(server.run(&["approve", "s1", &first]).status.success());
    let until = Instant::now() + PATIENCE;
    while settled(&server, "s1", &["paused", "running", "runnable", "waiting"]) != "paused" {
        assert!(Instant::now() < until);
    }
    assert_ne!(interaction(&server, "s1"), first);
    assert!(server.run(&["approve", "s1"]).status.success(), "now there is one");
    assert_eq!(settled(&server, "s1", &["completed", "failed"]), "completed");

    let mut terminal = Terminal::run(&server, &["run", "two", "go", "--session", "s2"]);
    for _ in 0..2 {
        terminal.expect("? [y/n]");
        terminal.types("y\n");
    }
    let (code, text) = terminal.end();
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(told.actions().len(), 8);
}

#[test]
fn a_question_is_answered_with_json_or_text() {
    let server = server();
    let ask = || {
        Does::Answers(json!({
            "kind": "interaction-required", "interaction": { "kind": "response", "prompt": "Which size?" }, "token": { "t": 7 },
        }))
    };
    let done = || Does::Answers(json!({ "kind": "completed", "output": "ok" }));
    let told = Told::start([ask(), done(), ask(), done(), ask(), done()]);
    told_agent(&server, "asks", &told);
    let cases: [(&str, &[&str], Json); 3] = [
        ("s1", &["42"], json!(42)),
        ("s2", &["42", "--text"], json!("42")),
        ("s3", &["large, please"], json!("large, please")),
    ];
    for (session, answer, value) in cases {
        let asked = server.run(&["run", "asks", "go", "--session", session]);
        assert_eq!(asked.status.code(), Some(1));
        assert!(stderr(&asked).contains(&format!("nylorun respond {session} ")), "{}", stderr(&asked));
        let output = server.run(&[&["respond", session], answer].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(settled(&server, session, &["completed", "failed"]), "completed");
        let resume = told.actions().last().expect("a delivery")["context"]["resume"].clone();
        assert_eq!((&resume["value"], &resume["token"]), (&value, &json!({ "t": 7 })));
    }
}

#[test]
fn an_effect_of_unknown_fate_is_listed_and_decided_in_three_ways() {
    let server = server();
    let told = Told::start([Does::Dies, Does::Dies, Does::Dies]);
    told_agent(&server, "fragile", &told);
    let uncertain = |session: &str| {
        let output = server.run(&["run", "fragile", "go", "--session", session]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains("nobody knows"), "{}", stderr(&output));
        assert!(stderr(&output).contains("nylorun effects list"), "{}", stderr(&output));
        let listed = server.json(&["effects", "list", session, "--status", "uncertain"]);
        assert_eq!(listed["effects"].as_array().map(Vec::len), Some(1), "{listed}");
        assert_eq!(listed["effects"][0]["toolName"], "act");
        assert_eq!(listed["effects"][0]["input"], json!({ "n": 1 }));
        listed["effects"][0]["effectId"].as_str().expect("an id").to_owned()
    };
    let result = |session: &str| {
        let record = events(&server, session);
        of_kind(&record, "action.completed").last().expect("an outcome")["result"].clone()
    };

    let effect = uncertain("s1");
    let table = server.run(&["effects", "list", "s1"]);
    assert!(stdout(&table).contains(&effect) && stdout(&table).contains("uncertain"), "{}", stdout(&table));
    assert!(stderr(&table).contains("nylorun effects resolve s1"), "{}", stderr(&table));
    assert_eq!(server.json(&["effects", "list", "s1", "--status", "dead"])["effects"], json!([]));
    let usage: [&[&str]; 4] = [
        &["effects", "resolve", "s1", &effect],
        &["effects", "resolve", "s1", &effect, "--retry", "--failed", "x"],
        &["effects", "resolve", "s1", &effect, "--completed", "not json"],
        &["effects", "resolve", "s1", &effect, "--retry", "--message", "x"],
    ];
    for args in usage {
        assert_eq!(server.run(args).status.code(), Some(2), "{args:?}");
    }
    let decide =
        ["effects", "resolve", "s1", &effect, "--completed", r#"{"done":true}"#, "--idempotency-key", "k"];
    let receipt = server.json(&decide);
    assert_eq!(settled(&server, "s1", &["completed", "failed"]), "completed");
    assert_eq!(result("s1"), json!({ "kind": "completed", "output": { "done": true } }));
    assert_eq!(
        server.json(&decide)["cursor"],
        receipt["cursor"],
        "the same decision is answered from its receipt"
    );
    let again = server.run(&["effects", "resolve", "s1", &effect, "--retry"]);
    assert_eq!(again.status.code(), Some(1), "a decision is made once");
    let text = stdout(&server.run(&["sessions", "events", "s1"]));
    assert!(text.contains("· application:local decided: act happened"), "{text}");

    let effect = uncertain("s2");
    let failed = ["effects", "resolve", "s2", &effect, "--failed", "card.declined", "--message", "no funds"];
    assert!(server.run(&failed).status.success());
    assert_eq!(settled(&server, "s2", &["completed", "failed"]), "completed");
    assert_eq!(result("s2"), json!({ "kind": "failed", "code": "card.declined", "message": "no funds" }));

    let effect = uncertain("s3");
    told.then(Does::Answers(json!({ "kind": "completed", "output": 3 })));
    assert!(server.run(&["effects", "resolve", "s3", &effect, "--retry"]).status.success());
    assert_eq!(settled(&server, "s3", &["completed", "failed"]), "completed");
    assert_eq!(result("s3"), json!({ "kind": "completed", "output": 3 }));
    let last = told.actions().pop().expect("a delivery");
    assert_eq!((&last["actionId"], &last["generation"]), (&json!(effect), &json!(2)));
    assert_eq!(told.actions().len(), 4, "nothing was delivered that nobody asked for");
}

#[test]
fn an_action_that_never_reaches_its_endpoint_is_dead_in_status_and_revived_by_a_ping() {
    let server = Server::start_with(Options::default().arg("--sample").env("NYLORUN_DELIVERY_MAX_AGE", "1s"));
    let told = Told::start(std::iter::repeat_n(Does::Status(503), 200));
    told_agent(&server, "busy", &told);
    let mut watcher = server
        .command(&["run", "busy", "go", "--session", "s1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let until = Instant::now() + PATIENCE;
    while server.json(&["status"])["tenant"]["counts"]["deadActions"] != 1 {
        assert!(Instant::now() < until, "{}", server.json(&["status"]));
        std::thread::sleep(Duration::from_millis(100));
    }
    let status = stdout(&server.run(&["status"]));
    assert!(status.contains("1 failing") && status.contains("endpoint.unavailable"), "{status}");
    assert!(status.contains("dead      1 Action"), "{status}");
    let listed = server.json(&["effects", "list", "s1", "--status", "dead"]);
    assert_eq!(listed["effects"][0]["status"], "dead", "{listed}");
    let before = told.actions().len();

    told.clear();
    told.then(Does::Answers(json!({ "kind": "completed", "output": 1 })));
    assert!(server.run(&["endpoints", "ping", "busy"]).status.success());
    assert_eq!(settled(&server, "s1", &["completed", "failed"]), "completed");
    assert_eq!(told.actions().len(), before + 1);
    assert!(server.json(&["status"])["tenant"]["counts"]["deadActions"].is_null());
    let output = watcher.wait().expect("ended");
    assert!(output.success());
}

#[test]
fn kill_9_while_an_endpoint_works_delivers_nothing_twice() {
    // A kill while the delivery is made, and kills while the endpoint works.
    for (seed, latest_ms) in [(11, 30), (12, 60), (13, 1_500), (14, 1_500)] {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut server = server();
        let sample = Sample::start(&server, Duration::from_millis(rng.random_range(500..4_000)));
        assert_eq!(server.run(&["run", AGENT, MESSAGE, "--session", "s1"]).status.code(), Some(1));
        assert!(server.run(&["approve", "s1"]).status.success());
        let after = Duration::from_millis(rng.random_range(0..latest_ms));
        println!("seed {seed}: killed {} ms after the approval", after.as_millis());
        std::thread::sleep(after);
        server.kill9();
        server.restart();
        let mut status = settled(&server, "s1", &["completed", "uncertain", "failed"]);
        println!("seed {seed}: {status}, {:?}", sample.calls());
        sample.assert_each_delivery_once();
        if status == "uncertain" {
            // Nobody but the endpoint knows; it does, so trying again is safe: its book answers.
            let listed = server.json(&["effects", "list", "s1", "--status", "uncertain"]);
            let effect = listed["effects"][0]["effectId"].as_str().expect("an id").to_owned();
            assert!(server.run(&["effects", "resolve", "s1", &effect, "--retry"]).status.success());
            status = settled(&server, "s1", &["completed", "failed"]);
        }
        assert_eq!(status, "completed", "seed {seed}");
        sample.assert_each_delivery_once();
        let record = events(&server, "s1");
        let refunds = of_kind(&record, "action.completed");
        let refunds = refunds.iter().filter(|payload| payload["result"]["output"]["state"] == "refunded");
        assert_eq!(refunds.count(), 1, "seed {seed}");
    }
}

#[test]
fn a_result_that_reached_nobody_is_uncertain_and_trying_again_does_nothing_again() {
    let mut server = server_with(vec![("NYLORUN_ACTION_LEASE_MS".into(), "2000".into())]);
    let sample = Sample::start(&server, Duration::from_millis(300));
    assert_eq!(server.run(&["run", AGENT, MESSAGE, "--session", "s1"]).status.code(), Some(1));
    assert!(server.run(&["approve", "s1"]).status.success());
    let until = Instant::now() + PATIENCE;
    while sample.calls().len() < 3 {
        assert!(Instant::now() < until, "{:?}", sample.calls());
        std::thread::sleep(Duration::from_millis(5));
    }
    server.kill9();
    // The endpoint ends its work and tries five times in 3.75 s to say so.
    std::thread::sleep(Duration::from_secs(5));
    server.restart();
    assert_eq!(settled(&server, "s1", &["completed", "uncertain", "failed"]), "uncertain");
    assert_eq!(sample.calls().len(), 3, "nothing was delivered that nobody asked for");
    let listed = server.json(&["effects", "list", "s1", "--status", "uncertain"]);
    let effect = listed["effects"][0]["effectId"].as_str().expect("an id").to_owned();
    assert!(server.run(&["effects", "resolve", "s1", &effect, "--retry"]).status.success());
    assert_eq!(settled(&server, "s1", &["completed", "failed"]), "completed");
    let last = sample.calls().pop().expect("a delivery");
    assert_eq!((last.action.as_str(), last.generation), (effect.as_str(), 2));
    assert_eq!(last.status, 200, "it was answered from what had been done, not begun again");
}

/// A command on a terminal of its own.
struct Terminal {
    child: std::process::Child,
    input: File,
    output: mpsc::Receiver<Vec<u8>>,
    text: String,
    /// So much of it was expected already.
    seen: usize,
}

impl Terminal {
    fn run(server: &Server, args: &[&str]) -> Self {
        let pair = nix::pty::openpty(None, None).expect("a terminal");
        let end = || Stdio::from(pair.slave.try_clone().expect("a clone"));
        let child = server.command(args).stdin(end()).stdout(end()).stderr(end()).spawn().expect("started");
        drop(pair.slave);
        let master = File::from(pair.master);
        let mut reader = master.try_clone().expect("a clone");
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // A terminal whose other end is closed gives an error, which is its end.
            while let Ok(read @ 1..) = reader.read(&mut piece) {
                if sender.send(piece[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, input: master, output, text: String::new(), seen: 0 }
    }

    /// Reads until a text appears after what was expected before.
    fn expect(&mut self, wanted: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.text[self.seen..].find(wanted) {
                self.seen += at + wanted.len();
                return;
            }
            match self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(piece) => self.text.push_str(&String::from_utf8_lossy(&piece)),
                Err(_) => panic!("no {wanted:?} in: {}", &self.text[self.seen..]),
            }
        }
    }

    fn types(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).expect("typed");
    }

    /// Its exit code, and all that it wrote.
    fn end(mut self) -> (Option<i32>, String) {
        let code = common::wait(self.child).code();
        while let Ok(piece) = self.output.recv_timeout(Duration::from_millis(200)) {
            self.text.push_str(&String::from_utf8_lossy(&piece));
        }
        (code, self.text)
    }
}

#[test]
fn on_a_terminal_run_asks_and_goes_on_streaming() {
    let server = server();
    let sample = Sample::start(&server, Duration::from_millis(200));
    let mut terminal = Terminal::run(&server, &["run", AGENT, MESSAGE, "--session", "s1"]);
    terminal.expect("Refund 30.00 EUR for order 1042? [y/n]");
    terminal.types("perhaps\n");
    terminal.expect("answer y or n");
    terminal.expect("[y/n]");
    terminal.types("y\n");
    terminal.expect("That is all I can do");
    let (code, text) = terminal.end();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("← refund answered"), "{text}");
    assert_eq!(sample.calls().iter().filter(|call| call.status == 202).count(), 1);
}

#[test]
fn a_question_on_a_terminal_takes_a_line_and_ctrl_d_leaves_the_turn_as_it_is() {
    let server = server();
    let ask = || {
        Does::Answers(json!({
            "kind": "interaction-required", "interaction": { "kind": "response", "prompt": "Which size?" },
        }))
    };
    let told = Told::start([ask(), Does::Answers(json!({ "kind": "completed", "output": "ok" })), ask()]);
    told_agent(&server, "asks", &told);
    let mut terminal = Terminal::run(&server, &["run", "asks", "go", "--session", "s1"]);
    terminal.expect("? Which size?");
    terminal.types("extra large\n");
    let (code, text) = terminal.end();
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(told.actions()[1]["context"]["resume"]["value"], "extra large");

    let mut terminal = Terminal::run(&server, &["run", "asks", "go", "--session", "s2"]);
    terminal.expect("? Which size?");
    terminal.types("\u{4}");
    let (code, text) = terminal.end();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("nylorun respond s2"), "{text}");
    assert_eq!(settled(&server, "s2", &["paused"]), "paused");
}

#[test]
fn a_question_that_somebody_else_answers_does_not_hold_the_terminal() {
    let server = server();
    let _sample = Sample::start(&server, Duration::ZERO);
    let mut terminal = Terminal::run(&server, &["run", AGENT, MESSAGE, "--session", "s1"]);
    terminal.expect("[y/n]");
    assert!(server.run(&["approve", "s1"]).status.success());
    let (code, text) = terminal.end();
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn quickstart_runs_an_endpoint_of_its_own_and_leaves_none_behind() {
    let server = server();
    let output = server.run(&["quickstart", "--yes"]);
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(stdout(&output).contains("Hello from the fixture model."), "{}", stdout(&output));
    assert!(stdout(&output).contains("That is all I can do about order 1042"), "{}", stdout(&output));
    assert!(said.contains("Refund 30.00 EUR for order 1042? yes, as --yes says"), "{said}");
    assert!(said.contains("← refund answered"), "{said}");
    assert_eq!(server.json(&["endpoints", "list"])["endpoints"], json!([]));
    let sample = Sample::start(&server, Duration::ZERO);
    assert!(server.run(&["quickstart", "--yes"]).status.success());
    let rows = server.json(&["endpoints", "list"]);
    assert_eq!(
        (&rows["endpoints"][0]["url"], &rows["endpoints"][0]["timeoutMs"]),
        (&json!(sample.url), &json!(2000))
    );
    assert!(sample.calls().is_empty(), "the refund went to the command's own endpoint");
    let without = server.run(&["quickstart"]);
    assert!(without.status.success(), "{}", stderr(&without));
    assert!(stderr(&without).contains("--yes"), "{}", stderr(&without));
}
