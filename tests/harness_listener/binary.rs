//! The real binary in remote mode: settings, token, ready line, status, exit codes, stop.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;

use nylorun::harness_api::PATH;
use serde_json::json;

use super::common::{Options, Server, nylorun, refused, stdout};
use super::peer::{Peer, Run, TOKEN, head, request};

fn remote() -> Options {
    Options::default().arg("--harness").arg("remote").arg("--harness-listen").arg("127.0.0.1:0")
}

/// Where the server listens for harnesses, from its ready line.
fn address(server: &Server) -> SocketAddr {
    let url = server.ready.split(" harness=").nth(1).unwrap_or_else(|| panic!("{}", server.ready));
    url.strip_prefix("ws://").unwrap().strip_suffix(PATH).unwrap().parse().unwrap()
}

async fn connect(address: SocketAddr, token: &str) -> Result<Peer, String> {
    let head = head(address, PATH, |headers| {
        headers.retain(|(name, _)| name != "Authorization");
        headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
    });
    let (answer, stream) = request(address, &head).await;
    if answer.starts_with("HTTP/1.1 101 ") { Ok(Peer::over(stream)) } else { Err(answer) }
}

#[actix_web::test]
async fn a_first_start_makes_a_token_that_opens_the_harness_port_and_nothing_else() {
    let mut server = Server::start_with(remote().arg("--sample"));
    let path = server.home().join("harness-token");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let token = std::fs::read_to_string(&path).unwrap().trim().to_owned();
    let log = server.log().join("\n");
    assert!(log.contains("harness-token") && !log.contains(&token), "{log}");

    let at = address(&server);
    let key = server.key.clone();
    assert!(connect(at, &key).await.err().is_some_and(|answer| answer.contains(" 401 ")));
    let client = reqwest::Client::new();
    for path in ["/v1/tenant", "/v1/sessions"] {
        let answer = client
            .get(format!("{}{path}", server.url))
            .bearer_auth(&token)
            .header("nylorun-protocol", "7")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status().as_u16(), 404, "the harness token is an unknown key: {path}");
    }

    let mut peer = connect(at, &token).await.unwrap_or_else(|answer| panic!("{answer}"));
    let hello = json!({"api": 1, "name": "scripted", "version": "0.17.0", "capabilities": {"workspace": {}}});
    peer.call("hello", hello).await.unwrap();
    let status = server.json(&["status"]);
    assert_eq!(status["tenant"]["harness"], json!({"mode": "remote", "connected": 1, "workspace": true}));
    let told = stdout(&server.run(&["status"]));
    assert!(told.contains("harness   remote, 1 connected, with workspaces"), "{told}");

    // A turn over both ports: the message comes in at one, its run goes out at the other.
    let turn =
        server.command(&["run", "assistant", "hello"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let run = peer.lease().await;
    let intent = run.model("m");
    assert_eq!(peer.call("effect.intent", intent.clone()).await, Ok(json!({"status": "execute"})));
    let value = json!({"output": [{"type": "text", "text": "from afar"}]});
    peer.call("effect.outcome", run.value(&intent, &value)).await.unwrap();
    peer.call("turn.completed", run.completed(0, &[])).await.unwrap();
    let output = tokio::task::spawn_blocking(move || turn.wait_with_output()).await.unwrap().unwrap();
    assert!(output.status.success() && stdout(&output) == "done\n", "{output:?}");

    // A kill takes nothing: the next process offers what was not done, to the same token.
    let mut turn = server.command(&["run", "assistant", "again"]).spawn().unwrap();
    let cut = peer.lease().await;
    server.kill9();
    let _ = turn.kill();
    let _ = turn.wait();
    server.restart();
    let mut peer = connect(address(&server), &token).await.unwrap_or_else(|answer| panic!("{answer}"));
    let again = peer.lease().await;
    assert_eq!(again.turn, cut.turn);
    let release = peer.ask("lease", json!({})).await;
    let stopping = tokio::task::spawn_blocking(move || server.terminate());
    let cancel = peer.message().await;
    assert_eq!(
        cancel["p"],
        json!({"runId": again.id, "reason": "shutdown", "message": cancel["p"]["message"]})
    );
    peer.call("lease.release", json!({"runId": again.id, "reason": "shutdown"})).await.unwrap();
    assert_eq!(peer.end().await, Some((1001, "core is stopping".to_owned())));
    assert!(stopping.await.unwrap().success());
    let _ = (release, Run::of);
}

#[test]
fn the_harness_port_is_refused_as_the_others_are() {
    let home = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("bound").to_string();
    let base = ["--listen", "127.0.0.1:0", "--harness", "remote"];
    let with = |more: &[&'static str]| [&base[..], more].concat();

    let (code, said) = refused(home.path(), &[&base[..], &["--harness-listen", &at]].concat(), &[]);
    assert_eq!(code, Some(98), "{said}");
    assert!(said.contains("--harness-listen"), "{said}");
    let (code, said) = refused(home.path(), &with(&["--harness-listen", "0.0.0.0:0"]), &[]);
    assert_eq!(code, Some(99), "{said}");
    assert!(said.contains("NYLORUN_HARNESS_ALLOWED_HOSTS"), "{said}");
    let (code, said) = refused(home.path(), &base, &[("NYLORUN_HARNESS_LISTEN_PORT", "0")]);
    assert_eq!(code, Some(99), "in a container it listens everywhere: {said}");

    let same = ["--listen", "127.0.0.1:18787", "--harness", "remote", "--harness-listen", "127.0.0.1:18787"];
    let (code, said) = refused(home.path(), &same, &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--harness-listen") && said.contains("differ"), "{said}");
    for (name, value) in [("NYLORUN_HARNESS", "elsewhere"), ("NYLORUN_HARNESS_TOKEN", "secret-but-short")] {
        let (code, said) = refused(home.path(), &["--listen", "127.0.0.1:0"], &[(name, value)]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(name) && !said.contains("secret-but-short"), "{said}");
    }
    assert!(!home.path().join("harness-token").exists(), "nothing was made for a start that failed");
}

#[test]
fn the_listener_is_there_in_remote_mode_only_and_the_token_is_never_shown() {
    let server = Server::start_with(Options::default().env("NYLORUN_HARNESS_TOKEN", TOKEN));
    assert!(!server.ready.contains("harness="), "{}", server.ready);
    assert!(!server.home().join("harness-token").exists());
    let status = server.json(&["status"]);
    assert_eq!(
        status["tenant"]["harness"],
        json!({"mode": "in-process", "connected": 1, "workspace": false})
    );
    assert!(stdout(&server.run(&["status"])).contains("harness   in-process, 1 connected"));

    let mut config = nylorun(server.home());
    config.arg("config").env("NYLORUN_HARNESS_TOKEN", format!("{TOKEN},{TOKEN}"));
    let shown = stdout(&config.output().expect("it runs"));
    assert!(shown.contains("harness-token") && shown.contains("****") && !shown.contains(TOKEN), "{shown}");
}
