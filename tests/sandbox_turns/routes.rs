//! The tool routes of the real binary: between turns, for a delivery of a turn, and for clients that leave.

use std::time::{Duration, Instant};

use serde_json::json;

use super::support::{Box, bash, marker, processes, until};

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
