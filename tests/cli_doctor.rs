//! `nylorun doctor`: what it finds where everything is well, and what it says where something is not.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs it over a home; the exit code and the answer.
fn doctor(home: &Path, more: &[&str]) -> (i32, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nylorun"));
    command.env_clear().env("PATH", std::env::var_os("PATH").expect("a path"));
    let output = command
        .args(["doctor", "--json", "--home"])
        .arg(home)
        .args(more)
        .args(if more.contains(&"--listen") { &[][..] } else { &["--listen", "127.0.0.1:0"][..] })
        .output()
        .expect("it runs");
    let answer = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().expect("a code"), answer)
}

fn check<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let checks = answer["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name} in {answer}"))
}

#[test]
fn a_machine_on_which_all_is_well_is_told_so_with_every_backend_and_its_limits() {
    let dir = tempfile::tempdir().expect("a directory");
    let home = dir.path().join("home");
    let (code, answer) = doctor(&home, &[]);
    assert_eq!((code, &answer["ok"]), (0, &Value::Bool(true)), "{answer}");
    for name in ["version", "home", "database", "port", "sandbox"] {
        assert_eq!(check(&answer, name)["state"], "ok", "{answer}");
    }
    assert!(check(&answer, "version")["message"].as_str().is_some_and(|text| text.contains("Linux")));
    let sandbox = &answer["sandbox"];
    let backends = sandbox["backends"].as_array().expect("backends");
    let names: Vec<&str> = backends.iter().filter_map(|backend| backend["name"].as_str()).collect();
    assert_eq!(names, ["namespaces", "landlock", "docker", "process"]);
    for backend in backends {
        let limits = &backend["limits"];
        if backend["available"] == true {
            for limit in ["CPUs", "memory", "processes", "disk"] {
                assert!(limits[limit].is_string(), "{limit} of {backend}");
            }
        } else {
            assert!(backend["reason"].is_string(), "{backend}");
        }
    }
    assert_eq!(sandbox["preference"], "auto");
    let chosen = backends.iter().find(|backend| backend["name"] == sandbox["backend"]).expect("one is used");
    assert!(chosen["available"] == true && chosen["name"] != "process", "{sandbox}");
    assert!(!home.exists(), "nothing was made");
}

#[test]
fn a_backend_that_keeps_nothing_apart_is_warned_of_and_one_that_does_not_work_is_not_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let (code, answer) = doctor(dir.path(), &["--sandbox", "process"]);
    assert_eq!((code, &check(&answer, "sandbox")["state"]), (0, &Value::from("warn")), "{answer}");
    assert!(
        check(&answer, "sandbox")["message"]
            .as_str()
            .is_some_and(|text| text.contains("keeps nothing apart"))
    );
    assert_eq!(answer["sandbox"]["backend"], "process");
    let of_docker =
        answer["sandbox"]["backends"].as_array().and_then(|all| all.iter().find(|b| b["name"] == "docker"));
    if of_docker.is_some_and(|docker| docker["available"] == false) {
        let (_, answer) = doctor(dir.path(), &["--sandbox", "docker"]);
        assert_eq!(answer["sandbox"]["backend"], Value::Null, "{answer}");
        assert_eq!(check(&answer, "sandbox")["state"], "warn");
    }
}

#[test]
fn what_is_in_the_way_of_a_start_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("nylorun.db"), "this is no database").expect("written");
    let (code, answer) = doctor(dir.path(), &[]);
    assert_eq!((code, &answer["ok"]), (1, &Value::Bool(false)));
    assert_eq!(check(&answer, "database")["state"], "fail", "{answer}");
    let other = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = taken.local_addr().expect("an address").to_string();
    let (code, answer) = doctor(other.path(), &["--listen", &listen]);
    let port = check(&answer, "port");
    assert_eq!((code, &port["state"]), (1, &Value::from("fail")), "{answer}");
    assert!(port["message"].as_str().is_some_and(|text| text.contains(&listen)));
    assert!(port["fix"].as_str().is_some_and(|text| text.contains("--listen")));
}
