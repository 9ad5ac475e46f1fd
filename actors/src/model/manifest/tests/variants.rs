//! Turn manifests: what may differ from the pinned one and what may not.

use super::*;

fn pinned() -> Json {
    json!({"manifestSchemaVersion": 4, "id": "bot", "name": "Bot", "outputSchema": {"type": "object"}, "capabilities": [
        {"id": "agent", "type": "agent", "instructions": ["a"],
         "tools": [{"name": "t", "inputSchema": {"type": "object", "minProperties": 1}}, {"name": "u", "inputSchema": {}}],
         "skills": {"s": {"name": "s", "description": "d"}, "r": {"name": "r", "description": "d"}}},
        {"id": "hooked", "type": "agent-plugin", "hooks": [{"at": "before", "scope": "turn"}]},
        {"id": "served", "type": "agent", "mcpServers": {"m": {"name": "m", "type": "sse", "url": "u"}}},
        sandbox_capability(json!({"idle": "15m"}))
    ]})
}

#[test]
fn a_variant_may_change_texts_and_leave_things_out() {
    assert!(is_variant(&pinned(), &pinned()));
    for (pointer, value) in [
        ("/name", json!("Other")),
        ("/name", Json::Null),
        ("/description", json!("New")),
        ("/metadata", json!({"a": 1})),
        ("/outputSchema", Json::Null),
        ("/runtime", json!({})),
        ("/manifestSchemaVersion", json!(4.0)),
        ("/capabilities/0/instructions", json!(["b"])),
        ("/capabilities/0/name", json!("n")),
        ("/capabilities/0/description", json!("n")),
        ("/capabilities/0/metadata", json!({})),
        ("/capabilities/0/tools", Json::Null),
        (
            "/capabilities/0/tools",
            json!([{"name": "t", "inputSchema": {"minProperties": 1.0, "type": "object"}}]),
        ),
        ("/capabilities/0/skills", Json::Null),
        ("/capabilities/0/skills/r", Json::Null),
        ("/capabilities/3/tools", json!([])),
    ] {
        assert!(is_variant(&with(&pinned(), pointer, value.clone()), &pinned()), "{pointer} {value}");
    }
    let mut dropped = pinned();
    dropped["capabilities"].as_array_mut().expect("an array").remove(0);
    assert!(is_variant(&dropped, &pinned()), "a plain capability may be dropped");
    dropped["capabilities"].as_array_mut().expect("an array").reverse();
    assert!(is_variant(&dropped, &pinned()), "order does not count");
}

#[test]
fn a_variant_may_change_nothing_else() {
    for (pointer, value) in [
        ("/id", json!("other")),
        ("/manifestSchemaVersion", json!(5)),
        ("/runtime", json!({"a": 1})),
        ("/capabilities/0/type", json!("agent-plugin")),
        ("/capabilities/0/tools/2", json!({"name": "new", "inputSchema": {}})),
        ("/capabilities/0/tools/0/inputSchema", json!({"type": "object"})),
        ("/capabilities/0/tools/0/description", json!("d")),
        ("/capabilities/0/skills/s/description", json!("other")),
        ("/capabilities/0/skills/new", json!({"name": "new", "description": "d"})),
        ("/capabilities/0/hooks", json!([{"at": "before", "scope": "turn"}])),
        ("/capabilities/0/mcpServers", json!({"m": {}})),
        ("/capabilities/1/hooks", Json::Null),
        ("/capabilities/1/hooks/1", json!({"at": "after", "scope": "turn"})),
        ("/capabilities/2/mcpServers", Json::Null),
        ("/capabilities/2/mcpServers/m/url", json!("v")),
        ("/capabilities/3/sandbox", Json::Null),
        ("/capabilities/3/sandbox/idle", json!("1h")),
        ("/capabilities/4", json!({"id": "new", "type": "agent"})),
        ("/kind", json!("workflow")),
    ] {
        assert!(!is_variant(&with(&pinned(), pointer, value.clone()), &pinned()), "{pointer} {value}");
    }
    for fixed in 1..4 {
        let mut dropped = pinned();
        let gone = dropped["capabilities"].as_array_mut().expect("an array").remove(fixed);
        assert!(!is_variant(&dropped, &pinned()), "{} may not be dropped", gone["id"]);
    }
    assert!(!is_variant(&json!([]), &json!([])));
}

#[test]
fn a_tool_may_not_move_to_another_capability() {
    let mut moved = pinned();
    let tool = moved["capabilities"][0]["tools"].as_array_mut().expect("an array").remove(0);
    moved["capabilities"][1]["tools"] = json!([tool]);
    assert!(!is_variant(&moved, &pinned()));
}
