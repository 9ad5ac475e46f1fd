//! The tool routes of the real binary: between turns, for a delivery of a turn, and for clients that leave.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nylorun_actors::model::json::{self, Json};
use serde_json::json;

use super::support::{Box, bash, call, marker, processes, tools, until};

#[test]
fn a_route_is_refused_while_the_sessions_turn_has_the_sandbox_and_a_failed_tool_is_a_200() {
    let it = Box::start();
    it.agent("slow", json!({"steps": [bash("sleep 2"), {"text": "done"}]}));
    it.open("s", "slow", json!({}));
    let turn = it.say("s", "go");
    let (status, busy) = it.tool("s", "bash", json!({"command": "true"}));
    assert_eq!((status, &busy["activeTurnId"]), (409, &json!(turn)));
    it.until("s", "completed");
    assert_eq!(it.tool("s", "bash", json!({"command": "exit 3"})).1["output"]["exitCode"], 3);
    let (status, missing) = it.tool("s", "read", json!({"path": "nothing"}));
    assert_eq!(
        (status, &missing["kind"], &missing["code"]),
        (200, &json!("failed"), &json!("sandbox.not_found"))
    );
    let (status, odd) = it.tool("s", "bash", json!({}));
    assert_eq!((status, &odd["code"]), (200, &json!("tool.invalid-input")));
    it.agent("plain", json!({"steps": [{"text": "hi"}]}));
    it.open("p", "plain", json!(false));
    assert_eq!(it.tool("p", "bash", json!({"command": "true"})).0, 404);
}

#[test]
fn a_client_that_leaves_takes_its_command_along_and_the_next_one_is_served() {
    let it = Box::start();
    it.agent("plain", json!({"steps": [{"text": "hi"}]}));
    it.open("s", "plain", json!({}));
    let time = marker();
    let began = Instant::now();
    let path = "/v1/sessions/s/sandbox/bash";
    it.leave("POST", path, &json!({"command": format!("sleep {time}")}), Duration::from_secs(2));
    until("the end of the command", || processes(&time).is_empty().then_some(()));
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    assert_eq!(it.tool("s", "bash", json!({"command": "echo next"})).1["output"]["stdout"], "next\n");
}

/// An Action endpoint whose tool works in the sandbox of the turn that calls it, with the token of its delivery.
fn endpoint(api: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/act", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            serve(stream, &api);
        }
    });
    url
}

fn serve(mut stream: TcpStream, api: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut token, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 {
            return;
        }
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("nylorun-signature") => {
                token = value.trim().to_owned()
            }
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().unwrap();
            }
            _ if line == "\r\n" => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let sent = json::parse(&body).unwrap();
    let answer = if sent["type"] == "ping" {
        json!({"agentId": sent["agentId"], "implementationVersion": "1"})
    } else {
        assert_eq!(sent["sandbox"], true, "{sent}");
        let action = sent["action"]["actionId"].as_str().unwrap().replace(':', "%3A").replace('/', "%2F");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let post = |tool: &str, input: Json| {
            let request = reqwest::Client::builder().no_proxy().build().unwrap();
            let request = request
                .post(format!("{api}/v1/actions/{action}/sandbox/{tool}"))
                .bearer_auth(&token)
                .header("nylorun-protocol", "7")
                .header("content-type", "application/json")
                .body(json::encode(&input));
            runtime.block_on(async {
                json::parse(&request.send().await.unwrap().bytes().await.unwrap()).unwrap()
            })
        };
        post("write", json!({"path": "by-endpoint", "content": "of the application\n"}));
        post("bash", json!({"command": "cat by-endpoint; ls"}))
    };
    let text = json::encode(&answer);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        text.len()
    );
    let _ = stream.write_all(format!("{head}{text}").as_bytes());
}

#[test]
fn a_delivery_works_in_the_sandbox_of_the_turn_that_waits_for_it() {
    let it = Box::start();
    let tool = json!({"name": "work", "description": "Works.", "inputSchema": {"type": "object"}});
    let script = json!({"steps": [bash("echo of the agent >by-agent"), call("work", json!({})), bash("cat by-endpoint"), {"text": "done"}]});
    it.register(json!({"manifestSchemaVersion": 4, "id": "worker",
        "capabilities": [{"id": "agent", "type": "agent", "tools": [tool]}], "metadata": {"nylorun.fixture": script}}));
    let url = endpoint(it.server.url.clone());
    let endpoints = json!([{"agentId": "worker", "url": url, "implementationVersion": "1"}]);
    it.ok("PUT", "/v1/endpoints", json!({"endpoints": endpoints}));
    it.open("s", "worker", json!({}));
    let all = tools(&it.turn("s", "go"));
    let last = all.last().unwrap();
    assert_eq!((last.0.as_str(), &last.1["stdout"]), ("bash", &json!("of the application\n")), "{all:?}");
    let results: Vec<_> =
        it.events("s").into_iter().filter(|event| event["type"] == "action.completed").collect();
    let said = json::encode(&results[0]["payload"]);
    assert!(said.contains(r"of the application\nby-agent\nby-endpoint\n"), "{said}");
}
