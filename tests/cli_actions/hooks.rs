//! Hooks at a real Action endpoint: what it is asked at each of the four points, and what its answers do to the turn.

use nylorun_actors::model::json::encode;
use serde_json::json;

use super::endpoint::{Does, Told};
use super::{Json, events, interaction, of_kind, server, settled, stderr, stdout};
use crate::common::Server;

/// An agent with a capability `guard` at all four points and a tool `act`, which a scripted model calls once.
fn guarded(server: &Server, told: &Told) {
    let manifest = json!({
        "manifestSchemaVersion": 4,
        "id": "guarded",
        "metadata": { "nylorun.fixture": {
            "steps": [{ "toolCalls": [{ "id": "c1", "name": "act", "args": { "n": 1 } }] }, { "text": "ended" }],
            "cases": [{ "when": { "equals": "Say it better." }, "steps": [{ "text": "ended better" }] }],
        } },
        "capabilities": [{
            "id": "guard", "type": "agent", "instructions": ["Test."],
            "hooks": [{ "at": "before", "scope": "turn" }, { "at": "before", "scope": "step" },
                { "at": "after", "scope": "step" }, { "at": "after", "scope": "turn" }],
            "tools": [{ "name": "act", "description": "Acts.", "inputSchema": { "type": "object" } }],
        }],
    });
    let path = server.home().join("guarded.json");
    std::fs::write(&path, encode(&manifest)).expect("written");
    server.json(&["agents", "put", &path.display().to_string()]);
    server.json(&["endpoints", "put", "guarded", &told.url]);
}

/// What the capability says at a point.
fn says(answer: Json) -> Does {
    Does::Answers(json!({ "results": { "guard": answer } }))
}

/// Kind and point, or tool, of each delivery in order.
fn asked(told: &Told) -> Vec<String> {
    let name = |action: &Json| match action["hook"].as_object() {
        Some(hook) => {
            format!("{}-{}", hook["at"].as_str().expect("at"), hook["scope"].as_str().expect("scope"))
        }
        None => action["toolName"].as_str().expect("a tool").to_owned(),
    };
    told.actions().iter().map(name).collect()
}

#[test]
fn an_endpoint_is_asked_at_each_point_and_its_approval_stops_the_turn_until_a_person_agrees() {
    let server = server();
    let told = Told::start([
        says(json!({ "instructions": ["Be brief."], "state": { "seen": 1 } })),
        says(json!({})),
        Does::Status(503),
        says(json!({ "approve": [{ "id": "c1", "prompt": "May it act?" }] })),
    ]);
    guarded(&server, &told);
    let run = server.run(&["run", "guarded", "go", "--session", "s1"]);
    assert_eq!(run.status.code(), Some(1), "{}", stderr(&run));
    assert_eq!(settled(&server, "s1", &["paused"]), "paused");
    assert!(stdout(&server.run(&["sessions", "show", "s1", "--json"])).contains("May it act?"));
    assert!(!asked(&told).contains(&"act".to_owned()), "nothing is done before somebody agrees");
    told.then(Does::Answers(json!({ "kind": "completed", "output": "acted" })));
    told.then(says(json!({})));
    told.then(says(json!({})));
    told.then(says(json!({ "retry": "Say it better." })));
    for _ in 0..2 {
        told.then(says(json!({})));
    }
    told.then(says(json!({ "text": "ended, as the hook says" })));
    let which = interaction(&server, "s1");
    assert!(server.run(&["approve", "s1", &which]).status.success());
    assert_eq!(settled(&server, "s1", &["completed", "failed"]), "completed");
    assert_eq!(
        asked(&told),
        [
            "before-turn",
            "before-step",
            "after-step",
            "after-step", // the second time with an answer
            "act",
            "before-step",
            "after-step",
            "after-turn", // sends the answer back
            "before-step",
            "after-step",
            "after-turn",
        ]
    );
    let actions = told.actions();
    assert_eq!(actions[0]["kind"], "hook");
    assert_eq!(actions[0]["hook"]["capabilityIds"], json!(["guard"]));
    assert_eq!(actions[1]["input"]["state"], json!({ "seen": 1 }), "what a hook writes is memory");
    let record = events(&server, "s1");
    let ended = of_kind(&record, "turn.completed");
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0]["output"], "ended, as the hook says", "{}", ended[0]);
}

#[test]
fn an_endpoint_that_blocks_fails_the_turn_and_says_why() {
    let server = server();
    let told = Told::start([says(json!({ "block": "not on Sundays" }))]);
    guarded(&server, &told);
    let run = server.run(&["run", "guarded", "go", "--session", "s1"]);
    assert_eq!(run.status.code(), Some(1));
    assert_eq!(settled(&server, "s1", &["completed", "failed"]), "failed");
    let record = events(&server, "s1");
    let error = &of_kind(&record, "turn.failed")[0]["error"];
    assert_eq!(error["code"], "dynamics.blocked", "{error}");
    assert!(error["message"].as_str().expect("a message").contains("not on Sundays"), "{error}");
    assert_eq!(asked(&told), ["before-turn"]);
}
