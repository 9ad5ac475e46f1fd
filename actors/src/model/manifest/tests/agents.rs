//! Agent manifests of schema 4: what a full one reads as, and each rule that refuses one.

use super::*;

/// Every member of schema 4, filled.
pub(super) fn full() -> Json {
    let tools: Vec<Json> =
        SANDBOX_TOOLS.iter().map(|name| json!({"name": name, "inputSchema": {}})).collect();
    json!({
        "manifestSchemaVersion": 4, "id": "bot", "name": "Bot", "description": "", "metadata": {"a": [1]},
        "outputSchema": {"type": "object"}, "runtime": {},
        "capabilities": [
            {"id": "agent", "type": "agent", "name": "n", "description": "d", "metadata": {}, "instructions": ["", "Be kind."],
             "skills": {"s": {"name": "s", "description": "d"}},
             "tools": [{"name": "refund", "description": "Refunds.", "inputSchema": {"type": "object"}, "outputSchema": {}},
                       agent_tool(&plain_agent("helper", 4))],
             "mcpServers": {
                "files": {"name": "files", "type": "stdio", "command": "mcp", "args": ["-v"], "env": {"K": "secret"}, "cwd": "/"},
                "web": {"name": "web", "type": "streamable-http", "url": "https://mcp.example/x", "headers": {"authorization": "secret"}},
                "old": {"name": "old", "type": "sse", "url": "https://mcp.example/sse"}},
             "hooks": [{"at": "before", "scope": "turn"}, {"at": "before", "scope": "step"}, {"at": "after", "scope": "step"}, {"at": "after", "scope": "turn"}]},
            {"id": "box", "type": "agent-plugin", "tools": tools,
             "sandbox": {"image": "python:3.13", "network": {"preset": "dev", "allow": ["*.example.com"]}, "resources": {"cpus": 2, "memory": "512MiB"}, "idle": "15m"}}
        ]
    })
}

#[test]
fn a_full_agent_of_schema_4_is_read() {
    let agent = agent(&full());
    assert_eq!((agent.schema_version, agent.id.as_str(), agent.name.as_deref()), (4, "bot", Some("Bot")));
    let [own, boxed] = &agent.capabilities[..] else { panic!("two capabilities") };
    assert_eq!(own.instructions, ["", "Be kind."]);
    assert_eq!((own.kind, boxed.kind), (CapabilityType::Agent, CapabilityType::AgentPlugin));
    assert_eq!(own.hooks.len(), 4);
    let names: Vec<&str> = own.mcp_servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["files", "web", "old"], "in the order of the document");
    let sandbox = boxed.sandbox.as_ref().expect("a sandbox");
    assert_eq!(
        (sandbox.cpus, sandbox.memory_bytes, sandbox.idle_ms),
        (Some(2), Some(512 << 20), Some(900_000))
    );
    assert_eq!(sandbox.preset, Some(NetworkPreset::Dev));

    let (capability, tool) = agent.tool_owner("grep").expect("a tool");
    assert_eq!((capability.id.as_str(), tool.name.as_str()), ("box", "grep"));
    assert!(agent.tool_owner("nothing").is_none());
    assert!(agent.delegates());
    assert_eq!(
        agent.tool_owner("helper").and_then(|(_, tool)| tool.agent.as_deref()).map(Definition::id),
        Some("helper")
    );
}

#[test]
fn values_that_may_be_secret_are_not_shown() {
    let shown = format!("{:?}", agent(&full()));
    assert!(shown.contains("authorization") && !shown.contains("secret"), "{shown}");
}

#[test]
fn every_rule_of_schema_4_is_one_refusal() {
    let helper = "/capabilities/0/tools/1";
    let sandbox = "/capabilities/1/sandbox";
    for (pointer, value, start, says) in [
        ("/id", json!(""), "[too_small] id:", "empty"),
        ("/id", json!(1), "[invalid_type] id:", "a string"),
        ("/name", json!(""), "[too_small] name:", "empty"),
        ("/description", json!({}), "[invalid_type] description:", "a string"),
        ("/metadata", json!([]), "[invalid_type] metadata:", "an object"),
        ("/outputSchema", json!(true), "[invalid_type] outputSchema:", "an object"),
        ("/runtime", json!({"a": 1}), "[unrecognized_keys] runtime:", "reserved"),
        ("/runtime", json!(1), "[invalid_type] runtime:", "an object"),
        ("/capabilities", Json::Null, "[invalid_type] capabilities:", "required"),
        ("/capabilities", json!({}), "[invalid_type] capabilities:", "an array"),
        ("/model", json!("m"), "[unrecognized_keys] unknown member \"model\"", ""),
        ("/capabilities/0/id", json!("box"), "[custom] capabilities[1].id:", "more than once"),
        ("/capabilities/0/type", Json::Null, "[invalid_type] capabilities[0].type:", "required"),
        ("/capabilities/0/type", json!("plugin"), "[invalid_value] capabilities[0].type:", "agent-plugin"),
        ("/capabilities/0/name", json!(""), "[too_small] capabilities[0].name:", ""),
        ("/capabilities/0/x", json!(1), "[unrecognized_keys] capabilities[0]:", "\"x\""),
        (
            "/capabilities/0/instructions",
            json!("text"),
            "[invalid_type] capabilities[0].instructions:",
            "an array",
        ),
        (
            "/capabilities/0/instructions/0",
            json!(1),
            "[invalid_type] capabilities[0].instructions[0]:",
            "a string",
        ),
        ("/capabilities/0/skills", json!({}), "[too_small] capabilities[0].skills:", "left out"),
        (
            "/capabilities/0/skills/s/name",
            json!("t"),
            "[custom] capabilities[0].skills.s.name:",
            "its key \"s\"",
        ),
        (
            "/capabilities/0/skills/s/description",
            json!(""),
            "[too_small] capabilities[0].skills.s.description:",
            "",
        ),
        (
            "/capabilities/0/skills/s/files",
            json!({}),
            "[unrecognized_keys] capabilities[0].skills.s:",
            "files",
        ),
        (
            "/capabilities/1/skills",
            json!({"s": {"name": "s", "description": "d"}}),
            "[custom] capabilities[1].skills.s:",
            "more than once",
        ),
        ("/capabilities/0/mcpServers", json!({}), "[too_small] capabilities[0].mcpServers:", "left out"),
        (
            "/capabilities/0/mcpServers/web/name",
            json!("x"),
            "[custom] capabilities[0].mcpServers.web.name:",
            "its key",
        ),
        (
            "/capabilities/0/mcpServers/web/type",
            json!("http"),
            "[invalid_value] capabilities[0].mcpServers.web.type:",
            "stdio",
        ),
        (
            "/capabilities/0/mcpServers/web/url",
            Json::Null,
            "[invalid_type] capabilities[0].mcpServers.web.url:",
            "required",
        ),
        (
            "/capabilities/0/mcpServers/web/command",
            json!("x"),
            "[unrecognized_keys] capabilities[0].mcpServers.web:",
            "command",
        ),
        (
            "/capabilities/0/mcpServers/web/approval",
            json!("never"),
            "[unrecognized_keys] capabilities[0].mcpServers.web:",
            "approval",
        ),
        (
            "/capabilities/0/mcpServers/web/headers/a",
            json!(1),
            "[invalid_type] capabilities[0].mcpServers.web.headers.a:",
            "a string",
        ),
        (
            "/capabilities/0/mcpServers/files/command",
            json!(""),
            "[too_small] capabilities[0].mcpServers.files.command:",
            "",
        ),
        (
            "/capabilities/0/mcpServers/files/args/0",
            json!(1),
            "[invalid_type] capabilities[0].mcpServers.files.args[0]:",
            "a string",
        ),
        (
            "/capabilities/0/mcpServers/files/env/K",
            json!(1),
            "[invalid_type] capabilities[0].mcpServers.files.env.K:",
            "a string",
        ),
        (
            "/capabilities/0/mcpServers/files/url",
            json!("x"),
            "[unrecognized_keys] capabilities[0].mcpServers.files:",
            "url",
        ),
        (
            "/capabilities/1/mcpServers",
            json!({"old": {"name": "old", "type": "sse", "url": "u"}}),
            "[custom] capabilities[1].mcpServers.old:",
            "more than once",
        ),
        ("/capabilities/0/hooks", json!([]), "[too_small] capabilities[0].hooks:", "left out"),
        (
            "/capabilities/0/hooks/0",
            json!({"at": "after", "scope": "turn"}),
            "[custom] capabilities[0].hooks:",
            "order",
        ),
        (
            "/capabilities/0/hooks/1",
            json!({"at": "before", "scope": "turn"}),
            "[custom] capabilities[0].hooks:",
            "at most once",
        ),
        (
            "/capabilities/0/hooks/0/at",
            json!("during"),
            "[invalid_value] capabilities[0].hooks[0].at:",
            "before",
        ),
        (
            "/capabilities/0/hooks/0/scope",
            json!("run"),
            "[invalid_value] capabilities[0].hooks[0].scope:",
            "turn",
        ),
        ("/capabilities/0/hooks/0/x", json!(1), "[unrecognized_keys] capabilities[0].hooks[0]:", "x"),
        ("/capabilities/0/tools/0/name", json!(""), "[too_small] capabilities[0].tools[0].name:", ""),
        (
            "/capabilities/0/tools/0/name",
            json!("bash"),
            "[custom] capabilities[1].tools[0].name:",
            "more than once",
        ),
        (
            "/capabilities/0/tools/0/inputSchema",
            json!(true),
            "[invalid_type] capabilities[0].tools[0].inputSchema:",
            "an object",
        ),
        (
            "/capabilities/0/tools/0/http",
            json!({"url": "https://a.example"}),
            "[unrecognized_keys] capabilities[0].tools[0]:",
            "manifestSchemaVersion 5",
        ),
        (
            "/capabilities/0/tools/0/approval",
            json!("always"),
            "[unrecognized_keys] capabilities[0].tools[0]:",
            "manifestSchemaVersion 5",
        ),
        ("/capabilities/1/tools/5/name", json!("globs"), "[custom] capabilities[1]:", "glob missing"),
        (
            &format!("{helper}/name"),
            json!("other"),
            "[custom] capabilities[0].tools[1].name:",
            "id \"helper\"",
        ),
        (
            &format!("{helper}/description"),
            json!("Other."),
            "[custom] capabilities[0].tools[1].description:",
            "must equal",
        ),
        (
            &format!("{helper}/description"),
            Json::Null,
            "[custom] capabilities[0].tools[1].description:",
            "must equal",
        ),
        (
            &format!("{helper}/agent/description"),
            Json::Null,
            "[custom] capabilities[0].tools[1].agent.description:",
            "needs a description",
        ),
        (
            &format!("{helper}/agent/description"),
            json!(" \n"),
            "[custom] capabilities[0].tools[1].agent.description:",
            "needs a description",
        ),
        (
            &format!("{helper}/outputSchema"),
            json!({}),
            "[custom] capabilities[0].tools[1].outputSchema:",
            "no outputSchema",
        ),
        (
            &format!("{helper}/agent/manifestSchemaVersion"),
            json!(5),
            "[invalid_value] capabilities[0].tools[1].agent.manifestSchemaVersion:",
            "must be 4",
        ),
        (&format!("{helper}/agent/x"), json!(1), "[unrecognized_keys] capabilities[0].tools[1].agent:", "x"),
        (
            &format!("{helper}/agent"),
            json!("helper"),
            "[invalid_type] capabilities[0].tools[1].agent:",
            "an object",
        ),
        (&format!("{sandbox}/image"), json!(""), "[too_small] capabilities[1].sandbox.image:", ""),
        (
            &format!("{sandbox}/storage"),
            json!("1GiB"),
            "[unrecognized_keys] capabilities[1].sandbox:",
            "storage",
        ),
        (
            &format!("{sandbox}/network/preset"),
            json!("all"),
            "[invalid_value] capabilities[1].sandbox.network.preset:",
            "open",
        ),
        (
            &format!("{sandbox}/network/allow/0"),
            json!("https://a.example"),
            "[invalid_format] capabilities[1].sandbox.network.allow[0]:",
            "host name",
        ),
        (
            &format!("{sandbox}/network/deny"),
            json!([]),
            "[unrecognized_keys] capabilities[1].sandbox.network:",
            "deny",
        ),
        (
            &format!("{sandbox}/resources/cpus"),
            json!(0),
            "[too_small] capabilities[1].sandbox.resources.cpus:",
            "at least 1",
        ),
        (
            &format!("{sandbox}/resources/cpus"),
            json!(65),
            "[too_big] capabilities[1].sandbox.resources.cpus:",
            "at most 64",
        ),
        (
            &format!("{sandbox}/resources/cpus"),
            json!(1.5),
            "[invalid_type] capabilities[1].sandbox.resources.cpus:",
            "whole",
        ),
        (
            &format!("{sandbox}/resources/memory"),
            json!("512MB"),
            "[invalid_format] capabilities[1].sandbox.resources.memory:",
            "512MiB",
        ),
        (
            &format!("{sandbox}/resources/disk"),
            json!("1GiB"),
            "[unrecognized_keys] capabilities[1].sandbox.resources:",
            "disk",
        ),
        (&format!("{sandbox}/idle"), json!("soon"), "[invalid_format] capabilities[1].sandbox.idle:", "15m"),
    ] {
        one_issue(&with(&full(), pointer, value), start, says);
    }
}

#[test]
fn only_one_capability_may_have_a_sandbox() {
    let document = with(&full(), "/capabilities/0/sandbox", full()["capabilities"][1]["sandbox"].clone());
    let issues = refused(&document);
    assert!(issues.iter().any(|issue| issue.contains("capabilities[1].sandbox: at most one")), "{issues:#?}");
    assert!(
        issues.iter().any(|issue| issue.contains("bash, read, write, edit, grep, glob missing")),
        "{issues:#?}"
    );
}

#[test]
fn capabilities_may_be_none_and_have_no_more_than_id_and_type() {
    agent(&json!({"manifestSchemaVersion": 5, "id": "a", "capabilities": []}));
    agent(&json!({"manifestSchemaVersion": 4, "id": "a", "capabilities": [{"id": "b", "type": "agent"}]}));
    agent(
        &json!({"manifestSchemaVersion": 4, "id": "a", "capabilities": [{"id": "b", "type": "agent", "tools": [], "instructions": []}]}),
    );
}
