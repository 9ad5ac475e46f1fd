//! The same turns over every channel. What a channel cannot show (a harness in core's own process has no transcript
//! to read) is left to the others.

use serde_json::{Value as Json, json};

use super::processes::{WebSocket, real};
use super::rigs::{Json as JsonRig, Memory, Of, Rig, Rigs};
use super::support::sim;

fn says(text: &str) -> Json {
    json!({ "steps": [{ "text": text }], "cases": [] })
}

/// A model, a tool that the harness runs, a model; each may take its time.
fn works(model_ms: u64, tool_ms: u64) -> Json {
    json!({
        "steps": [
            { "toolCalls": [{ "name": "work", "args": { "n": 1 } }] },
            { "text": "done", "delayMs": model_ms },
        ],
        "tools": { "work": { "output": { "ok": true }, "delayMs": tool_ms } },
    })
}

const STEP: [&str; 5] =
    ["command.message", "message.assistant", "tool.completed", "message.assistant", "turn.completed"];

async fn a_turn_of_one_model_call(rigs: impl Rigs) {
    let rig = rigs.start(says("hi")).await;
    rig.open("s").await;
    rig.say("s", "hello").await;
    rig.until("s", "completed").await;
    assert_eq!(rig.types("s").await, ["command.message", "message.assistant", "turn.completed"]);
    assert_eq!(rig.last("s").await["payload"]["output"], "hi");
    assert_eq!(rig.attempts().await, [("model", 1)]);
}

async fn a_turn_with_a_tool(rigs: impl Rigs) {
    let rig = rigs.start(works(0, 0)).await;
    rig.open("s").await;
    rig.say("s", "hello").await;
    rig.until("s", "completed").await;
    assert_eq!(rig.types("s").await, STEP);
    assert_eq!(rig.last("s").await["payload"]["output"], "done");
    assert_eq!(rig.attempts().await, [("model", 1), ("model", 1), ("tool", 1)]);
}

async fn a_cancel_in_the_middle_of_a_model_call_ends_the_run(rigs: impl Rigs) {
    let script = json!({
        "steps": [{ "text": "quick" }],
        "cases": [{ "when": { "contains": "slow" }, "steps": [{ "text": "never", "delayMs": 3_000_000 }] }],
    });
    let rig = rigs.start(script).await;
    rig.open("s").await;
    rig.say("s", "slow").await;
    rig.until_called("s", "model").await;
    rig.cancel("s").await;
    assert_eq!(rig.status("s").await, "cancelled");
    // The run is over, so the next turn has the session for itself.
    rig.say("s", "fast").await;
    rig.until("s", "completed").await;
    assert_eq!(rig.last("s").await["payload"]["output"], "quick");
    let cancelled = rig.types("s").await.iter().filter(|kind| *kind == "turn.cancelled").count();
    assert_eq!(cancelled, 1);
}

/// A root that calls two helpers at once; each works once and then says something, after `ms`.
fn helped(ms: u64) -> Json {
    let call = |task: &str| json!({ "name": "helper", "args": { "task": task } });
    json!({
        "steps": [{ "toolCalls": [call("one"), call("two")] }, { "text": "done" }],
        "cases": [{ "when": { "contains": "fast" }, "steps": [{ "text": "quick" }] }],
        "agents": { "helper": { "steps": [
            { "toolCalls": [{ "name": "work", "args": { "n": 1 } }] }, { "text": "helped", "delayMs": ms },
        ] } },
        "tools": { "work": { "output": { "ok": true } } },
    })
}

async fn two_sub_agents_at_once_are_told_apart_in_the_record(rigs: impl Rigs) {
    let rig = rigs.start(helped(0)).await;
    rig.open("s").await;
    rig.say("s", "hello").await;
    rig.until("s", "completed").await;
    let events = rig.events("s").await;
    assert_eq!(rig.last("s").await["payload"]["output"], "done");
    let started: Vec<_> = events.iter().filter(|e| e["type"] == "delegation.started").collect();
    assert_eq!(started.len(), 2);
    let calls = &events[1]["payload"]["toolCalls"];
    for (n, task) in ["one", "two"].into_iter().enumerate() {
        let began = &started.iter().find(|e| e["payload"]["task"] == task).expect(task)["payload"];
        assert_eq!(
            (&began["agent"]["id"], &began["agent"]["path"]),
            (&json!("helper"), &json!("assistant/helper"))
        );
        assert_eq!(began["callId"], calls[n]["callId"]);
        let own: Vec<_> = events.iter().filter(|e| e["payload"]["agent"] == began["agent"]).collect();
        let types: Vec<_> = own.iter().map(|e| e["type"].as_str().unwrap()).collect();
        let life = [
            "delegation.started",
            "message.assistant",
            "tool.completed",
            "message.assistant",
            "delegation.completed",
        ];
        assert_eq!(types, life, "{task}");
        assert_eq!(own[3]["payload"]["text"], "helped");
        let outcome = json!({ "kind": "completed", "output": "helped" });
        assert_eq!(
            (&own[4]["payload"]["status"], &own[4]["payload"]["outcome"]),
            (&json!("completed"), &outcome)
        );
    }
    let roots =
        events.iter().filter(|e| e["payload"]["agent"].is_null()).map(|e| e["type"].as_str().unwrap());
    let expected = ["command.message", "message.assistant", "message.assistant", "turn.completed"];
    assert_eq!(roots.collect::<Vec<_>>(), expected);
    let attempts = rig.attempts().await;
    assert!(attempts.iter().all(|(_, times)| *times == 1));
    assert_eq!(attempts.len(), 8, "two calls of the root's model, and two models and a tool of each");
}

async fn a_cancel_ends_the_model_calls_of_sub_agents(rigs: impl Rigs) {
    let rig = rigs.start(helped(3_000_000)).await;
    rig.open("s").await;
    rig.say("s", "hello").await;
    rig.until_event("s", "tool.completed").await;
    rig.until_called("s", "model").await;
    rig.cancel("s").await;
    assert_eq!(rig.status("s").await, "cancelled");
    // The run is over, so the next turn has the session for itself.
    rig.say("s", "fast").await;
    rig.until("s", "completed").await;
    assert_eq!(rig.last("s").await["payload"]["output"], "quick");
}

async fn a_harness_killed_in_a_sub_agent_repeats_its_model_calls_and_nothing_else(rigs: impl Rigs) {
    let mut rig = rigs.start(helped(2_000)).await;
    rig.open("s").await;
    rig.say("s", "hello").await;
    for _ in 0..2 {
        rig.until_event("s", "tool.completed").await;
        rig.until_called("s", "model").await;
    }
    rig.add_harness().await;
    rig.kill_harness_until("s", "completed").await;
    let types = rig.types("s").await;
    let count = |kind: &str| types.iter().filter(|k| *k == kind).count();
    let counted = (count("delegation.started"), count("tool.completed"), count("delegation.completed"));
    assert_eq!(counted, (2, 2, 2), "{types:?}");
    let attempts = rig.attempts().await;
    assert!(attempts.iter().all(|(kind, times)| *kind == "model" || *times == 1), "{attempts:?}");
}

async fn a_harness_that_stops_in_a_model_call_costs_one_more_call(rigs: impl Rigs) {
    let mut rig = rigs.start(works(2_000, 0)).await;
    rig.open("s").await;
    rig.say("s", "hello").await;
    rig.until_called("s", "model").await;
    rig.until_event("s", "tool.completed").await;
    rig.until_called("s", "model").await;
    rig.add_harness().await;
    rig.stop_harness().await;
    rig.until("s", "completed").await;
    assert_eq!(rig.types("s").await, STEP);
    assert_eq!(rig.attempts().await, [("model", 1), ("model", 2), ("tool", 1)]);
}

async fn a_harness_killed_in_a_tool_leaves_it_uncertain_at_once(rigs: impl Rigs) {
    let mut rig = rigs.start(works(0, 3_000_000)).await;
    rig.open("s").await;
    rig.say("s", "hello").await;
    rig.until_called("s", "tool").await;
    rig.add_harness().await;
    let took = rig.kill_harness_until("s", "uncertain").await;
    assert!(took.as_secs() < 20, "it waited for the lease: {took:?}");
    assert_eq!(rig.attempts().await, [("model", 1), ("tool", 1)]);
}

async fn a_harness_killed_in_a_model_call_has_it_made_again(rigs: impl Rigs) {
    let mut rig = rigs.start(works(2_000, 0)).await;
    rig.open("s").await;
    rig.say("s", "hello").await;
    rig.until_event("s", "tool.completed").await;
    rig.until_called("s", "model").await;
    rig.add_harness().await;
    rig.kill_harness_until("s", "completed").await;
    assert_eq!(rig.types("s").await, STEP);
    assert_eq!(rig.attempts().await, [("model", 1), ("model", 2), ("tool", 1)]);
}

async fn a_harness_reads_a_transcript_once_and_then_knows_it(rigs: impl Rigs) {
    let mut rig = rigs.start(works(0, 0)).await;
    rig.open("s").await;
    for n in 0..5 {
        rig.say("s", &format!("turn {n}")).await;
        rig.until_turns("s", n + 1).await;
    }
    assert_eq!(rig.transcript_reads().unwrap_or(0), 0, "the first harness made it itself");
    rig.add_harness().await;
    rig.stop_harness().await;
    for n in 5..10 {
        rig.say("s", &format!("turn {n}")).await;
        rig.until_turns("s", n + 1).await;
    }
    assert_eq!(rig.transcript_reads().unwrap_or(1), 1, "the second one read it");
}

async fn twenty_sessions_with_five_turns_each(rigs: impl Rigs) {
    let rig = rigs.start(works(0, 0)).await;
    let sessions: Vec<String> = (0..20).map(|n| format!("s{n}")).collect();
    let turns = sessions.iter().map(async |id| {
        rig.open(id).await;
        for n in 0..5 {
            rig.say(id, &format!("turn {n}")).await;
            rig.until_turns(id, n + 1).await;
        }
    });
    futures_util::future::join_all(turns).await;
    for id in &sessions {
        assert_eq!(rig.types(id).await, STEP.repeat(5), "{id}");
    }
    assert_eq!(rig.attempts().await.len(), 20 * 5 * 3);
    assert!(rig.attempts().await.iter().all(|(_, attempts)| *attempts == 1));
}

macro_rules! over {
    ($channel:ident, $rig:ty, $run:path, $($test:ident)*) => {
        mod $channel {
            use super::*;
            $(#[test]
            fn $test() {
                $run(|| super::$test(Of::<$rig>::default()));
            })*
        }
    };
}

macro_rules! suites {
    ($($test:ident)*) => {
        over!(memory, Memory, sim, $($test)*);
        over!(json, JsonRig, sim, $($test)*);
        over!(websocket, WebSocket, real, $($test)*);
    };
}

suites! {
    a_turn_of_one_model_call
    a_turn_with_a_tool
    a_cancel_in_the_middle_of_a_model_call_ends_the_run
    two_sub_agents_at_once_are_told_apart_in_the_record
    a_cancel_ends_the_model_calls_of_sub_agents
    a_harness_killed_in_a_sub_agent_repeats_its_model_calls_and_nothing_else
    a_harness_that_stops_in_a_model_call_costs_one_more_call
    a_harness_killed_in_a_tool_leaves_it_uncertain_at_once
    a_harness_killed_in_a_model_call_has_it_made_again
    a_harness_reads_a_transcript_once_and_then_knows_it
    twenty_sessions_with_five_turns_each
}
