//! Agents as tools: the rules between a tool and the agent that it is.

use super::agents::full;
use super::*;

#[test]
fn the_task_schema_is_compared_without_texts_for_people() {
    let schema = "/capabilities/0/tools/1/inputSchema";
    for (pointer, value) in [
        ("/$schema", json!("https://json-schema.example/draft")),
        ("/description", json!("x")),
        ("/properties/task/description", json!("Other words.")),
        ("/properties/task/description", Json::Null),
        ("/properties/task/minLength", json!(1.0)),
    ] {
        agent(&with(&full(), &format!("{schema}{pointer}"), value));
    }
    for (pointer, value) in [
        ("/type", Json::Null),
        ("/type", json!(["object"])),
        ("/title", json!("Task")),
        ("/required", json!([])),
        ("/required", json!(["task", "task"])),
        ("/required", Json::Null),
        ("/additionalProperties", Json::Null),
        ("/additionalProperties", json!(true)),
        ("/additionalProperties", json!({})),
        ("/properties/more", json!({})),
        ("/properties/task", json!(true)),
        ("/properties/task", Json::Null),
        ("/properties/task/minLength", Json::Null),
        ("/properties/task/minLength", json!(2)),
        ("/properties/task/maxLength", json!(9)),
        ("/properties/task/type", json!("number")),
    ] {
        let document = with(&full(), &format!("{schema}{pointer}"), value.clone());
        one_issue(&document, "[custom] capabilities[0].tools[1].inputSchema:", "\"task\"");
    }
}

#[test]
fn an_agent_used_as_a_tool_does_not_delegate_but_a_flow_may_hold_agents_that_do() {
    let mut middle = plain_agent("middle", 4);
    middle["capabilities"] =
        json!([{"id": "agent", "type": "agent", "tools": [agent_tool(&plain_agent("leaf", 4))]}]);
    agent(&middle);

    let mut root = plain_agent("root", 4);
    root["capabilities"] = json!([{"id": "agent", "type": "agent", "tools": [agent_tool(&middle)]}]);
    one_issue(&root, "[custom] capabilities[0].tools[0].agent:", "a flow may");

    let flow = json!({"kind": "workflow", "workflowSchemaVersion": 2, "id": "flow", "description": "A flow.",
        "root": {"chain": [{"agent": "middle"}]}, "agents": {"middle": middle}});
    root["capabilities"][0]["tools"] = json!([agent_tool(&flow)]);
    agent(&root);
}

#[test]
fn a_flow_as_a_tool_is_of_the_same_line() {
    let flow = |version: u8| {
        json!({"kind": "workflow", "workflowSchemaVersion": version, "id": "flow", "description": "A flow.",
            "root": {"tool": {"name": "t"}}, "agents": {}})
    };
    let root = |version, flow: &Json| {
        let mut root = plain_agent("root", version);
        root["capabilities"] = json!([{"id": "agent", "type": "agent", "tools": [agent_tool(flow)]}]);
        root
    };
    agent(&root(4, &flow(2)));
    agent(&root(5, &flow(3)));
    let at = "[invalid_value] capabilities[0].tools[0].agent.workflowSchemaVersion:";
    one_issue(&root(4, &flow(3)), at, "must be 2");
    one_issue(&root(4, &flow(1)), at, "since version 2 a flow embeds its agents");
    one_issue(&root(5, &flow(2)), at, "version 3 has no developer functions");
}
