//! `serve` and its sandboxes: the backend is chosen once it is ready and is told, a setting says which, and harnesses that
//! connect have their own.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use nylorun_actors::model::json::Json;

use super::common::{Options, PATIENCE, Server, refused, stdout};

/// Waits for a log line with all of these in it; the lines up to there.
pub fn until_logged(server: &Server, words: &[&str]) -> Vec<String> {
    let (mut seen, until) = (Vec::new(), Instant::now() + PATIENCE);
    while Instant::now() < until {
        for line in server.log() {
            let found = words.iter().all(|word| line.contains(word));
            seen.push(line);
            if found {
                return seen;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no line has {words:?}:\n{}", seen.join("\n"));
}

#[test]
fn the_backend_is_chosen_behind_a_host_that_is_ready_and_is_told_everywhere() {
    let mut server = Server::start_with(Options::default().arg("--log").arg("json"));
    let lines = until_logged(&server, &["sandboxes are served", "namespaces", "works here"]);
    let at = |word: &str| lines.iter().position(|line| line.contains(word));
    assert!(at("\"ready\"") < at("sandboxes are served"), "{}", lines.join("\n"));
    let home = std::fs::metadata(server.home().join("sandboxes")).unwrap();
    // Helpers of root are somebody else: they walk through, and do not look around.
    let helpers = if nix::unistd::Uid::effective().is_root() { 0o010 } else { 0 };
    assert_eq!(home.permissions().mode() & 0o777, 0o700 | helpers);
    let status = server.json(&["status"]);
    assert_eq!(status["tenant"]["sandbox"]["backend"], "virtual", "as clients know it");
    assert_eq!(status["tenant"]["harness"]["workspace"], false, "the harness inside declares none");
    let text = stdout(&server.run(&["status"]));
    assert!(
        text.lines().any(|line| line.starts_with("sandboxes virtual") && line.ends_with("0 kept")),
        "{text}"
    );
    assert!(server.terminate().success());
}

#[test]
fn a_backend_that_keeps_nothing_apart_is_warned_of_and_an_unknown_one_refuses_to_start() {
    let server = Server::start_with(Options::default().env("NYLORUN_SANDBOX_BACKEND", "process"));
    until_logged(&server, &["WARN", "`process` keeps nothing apart"]);
    let config = server.command(&["config", "--sandbox", "process", "--json"]).output().unwrap();
    let config: Json = nylorun_actors::model::json::parse(&config.stdout).unwrap();
    let row = &config["settings"]["sandbox"];
    assert_eq!((row["value"].as_str(), row["origin"].as_str()), (Some("process"), Some("flag --sandbox")));
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = refused(dir.path(), &["--listen", "127.0.0.1:0", "--sandbox", "vm"], &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--sandbox") && said.contains("namespaces"), "{said}");
}

#[test]
fn a_core_whose_harnesses_are_elsewhere_keeps_no_sandboxes() {
    let options = Options::default().args(&["--harness", "remote", "--harness-listen", "127.0.0.1:0"]);
    let server = Server::start_with(options);
    assert_eq!(server.json(&["status"])["tenant"]["sandbox"]["backend"], Json::Null);
    assert!(!server.home().join("sandboxes").exists());
    let text = stdout(&server.run(&["status"]));
    assert!(text.lines().any(|line| line.starts_with("sandboxes NONE")), "{text}");
}
