//! The Python example beside a real server: it must do what the Rust one does.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use nylorun::sample::{AGENT, MESSAGE};
use serde_json::json;

use super::{events, interaction, of_kind, server, settled, stderr};
use crate::common::Server;

/// Debian's own: it is the one that `python3-cryptography` belongs to.
const PYTHON: &str = "/usr/bin/python3";

/// The example as a process.
struct Example(Child);

impl Example {
    fn start(server: &Server) -> Self {
        let mut child = Command::new(PYTHON)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/endpoint.py"))
            .args(["--work", "0.2", "--home"])
            .arg(server.home())
            .env_remove("NYLORUN_RUNTIME_URL")
            .env_remove("NYLORUN_SERVER_KEY")
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let first = lines.next().expect("a line").expect("a line");
        assert!(first.starts_with("endpoint ready url=http://127.0.0.1:"), "{first}");
        // What it prints of deliveries is read, so that it never waits for us.
        std::thread::spawn(move || lines.for_each(drop));
        Self(child)
    }

    fn ends(mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).expect("an id"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("signalled");
        assert!(self.0.wait().expect("an end").success());
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // It may have ended in order.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the example can run here at all. Root gets what it needs by `make test`; for others it is skipped, and says so.
fn has_python() -> bool {
    let import = Command::new(PYTHON).args(["-c", "import cryptography"]).stderr(Stdio::null()).status();
    let has = import.is_ok_and(|status| status.success());
    assert!(
        has || !nix::unistd::geteuid().is_root(),
        "apt-get install python3 python3-cryptography, as `make test` does"
    );
    if !has {
        eprintln!("SKIPPED: the Python example needs Debian's python3 and python3-cryptography");
    }
    has
}

#[test]
fn the_python_example_looks_up_asks_a_person_and_refunds_in_the_background() {
    if !has_python() {
        return;
    }
    let server = server();
    let example = Example::start(&server);
    let run = server.run(&["run", AGENT, MESSAGE, "--session", "s1"]);
    assert_eq!(run.status.code(), Some(1), "{}", stderr(&run));
    assert_eq!(settled(&server, "s1", &["paused", "failed"]), "paused");
    let which = interaction(&server, "s1");
    assert!(server.run(&["approve", "s1", &which]).status.success());
    assert_eq!(settled(&server, "s1", &["completed", "failed"]), "completed");
    let record = events(&server, "s1");
    let done = of_kind(&record, "action.completed");
    assert_eq!(done.last().expect("an outcome")["result"]["output"]["state"], "refunded");
    // A second session, refused by the person: nothing is refunded.
    assert_eq!(server.run(&["run", AGENT, MESSAGE, "--session", "s2"]).status.code(), Some(1));
    let which = interaction(&server, "s2");
    assert!(server.run(&["reject", "s2", &which]).status.success());
    assert_eq!(settled(&server, "s2", &["completed", "failed"]), "completed");
    let record = events(&server, "s2");
    let done = of_kind(&record, "action.completed");
    let kinds: Vec<_> = done.iter().map(|outcome| &outcome["result"]["kind"]).collect();
    assert_eq!(kinds, ["completed", "interaction-required"], "looked up and asked, and nothing else");
    example.ends();
    assert_eq!(server.json(&["endpoints", "list"])["endpoints"], json!([]), "it signs off");
}
