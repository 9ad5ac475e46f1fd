//! Agent manifests of schema 5: HTTP tools, approvals, files of skills, and what of schema 4 they refuse.

use super::*;

/// Schema 5 with what only it has.
fn full_v5() -> Json {
    json!({
        "manifestSchemaVersion": 5, "id": "bot", "capabilities": [
            {"id": "agent", "type": "agent",
             "skills": {"s": {"name": "s", "description": "d", "files": {"SKILL.md": format!("sha256:{}", "0a".repeat(32)), "a/b.txt": format!("sha256:{}", "f".repeat(64))}}},
             "tools": [
                {"name": "post", "inputSchema": {}, "http": {"url": "https://api.example/x"}},
                {"name": "put", "inputSchema": {}, "http": {"url": "http://127.0.0.1:1/", "method": "PUT", "credential": "c", "timeoutMs": 300000}, "approval": "always"},
                {"name": "act", "inputSchema": {}, "approval": "never"}],
             "mcpServers": {"web": {"name": "web", "type": "sse", "url": "https://mcp.example", "approval": "always"}}}
        ]
    })
}

#[test]
fn a_full_agent_of_schema_5_is_read() {
    let agent = agent(&full_v5());
    let http = |name| agent.tool_owner(name).and_then(|(_, tool)| tool.http.clone()).expect("an HTTP tool");
    assert_eq!((http("post").method, http("post").timeout_ms), (HttpMethod::Post, 60_000));
    assert_eq!((http("put").method, http("put").timeout_ms), (HttpMethod::Put, 300_000));
    let approval = |name| agent.tool_owner(name).map(|(_, tool)| tool.approval);
    assert_eq!((approval("post"), approval("put")), (Some(Approval::Never), Some(Approval::Always)));
    assert_eq!(agent.capabilities[0].mcp_servers[0].approval, Approval::Always);
    assert_eq!(agent.capabilities[0].skills[0].files.len(), 2);
}

#[test]
fn every_rule_of_schema_5_is_one_refusal() {
    let tool = "/capabilities/0/tools/0";
    for (pointer, value, start, says) in [
        (
            "/capabilities/0/hooks",
            json!([{"at": "before", "scope": "turn"}]),
            "[unrecognized_keys] capabilities[0]:",
            "schema 5 has no hooks",
        ),
        (
            "/capabilities/0/mcpServers/web",
            json!({"name": "web", "type": "stdio", "command": "x"}),
            "[invalid_value] capabilities[0].mcpServers.web.type:",
            "not in schema 5",
        ),
        (
            "/capabilities/0/mcpServers/web/approval",
            json!("sometimes"),
            "[invalid_value] capabilities[0].mcpServers.web.approval:",
            "always",
        ),
        ("/capabilities/0/skills/s/files", json!({}), "[custom] capabilities[0].skills.s.files:", "SKILL.md"),
        (
            "/capabilities/0/skills/s/files/SKILL.md",
            json!("sha256:abc"),
            "[invalid_format] capabilities[0].skills.s.files.SKILL.md:",
            "64",
        ),
        (
            "/capabilities/0/skills/s/files/SKILL.md",
            json!(format!("sha256:{}", "F".repeat(64))),
            "[invalid_format] capabilities[0].skills.s.files.SKILL.md:",
            "lowercase",
        ),
        (
            "/capabilities/0/tools/2/approval",
            json!("always"),
            "[custom] capabilities[0].tools[2].approval:",
            "only calls of an HTTP tool",
        ),
        (
            &format!("{tool}/http/url"),
            Json::Null,
            "[invalid_type] capabilities[0].tools[0].http.url:",
            "required",
        ),
        (
            &format!("{tool}/http/url"),
            json!("ftp://a.example"),
            "[invalid_format] capabilities[0].tools[0].http.url:",
            "http",
        ),
        (
            &format!("{tool}/http/url"),
            json!("https:///x"),
            "[invalid_format] capabilities[0].tools[0].http.url:",
            "absolute",
        ),
        (
            &format!("{tool}/http/url"),
            json!("/x"),
            "[invalid_format] capabilities[0].tools[0].http.url:",
            "absolute",
        ),
        (
            &format!("{tool}/http/method"),
            json!("GET"),
            "[invalid_value] capabilities[0].tools[0].http.method:",
            "PATCH",
        ),
        (
            &format!("{tool}/http/credential"),
            json!(""),
            "[too_small] capabilities[0].tools[0].http.credential:",
            "",
        ),
        (
            &format!("{tool}/http/timeoutMs"),
            json!(0),
            "[too_small] capabilities[0].tools[0].http.timeoutMs:",
            "",
        ),
        (
            &format!("{tool}/http/timeoutMs"),
            json!(300_001),
            "[too_big] capabilities[0].tools[0].http.timeoutMs:",
            "300000",
        ),
        (
            &format!("{tool}/http/headers"),
            json!({}),
            "[unrecognized_keys] capabilities[0].tools[0].http:",
            "headers",
        ),
        (
            "/capabilities/0/tools/2",
            agent_tool(&plain_agent("old", 4)),
            "[invalid_value] capabilities[0].tools[2].agent.manifestSchemaVersion:",
            "build the agent again",
        ),
    ] {
        one_issue(&with(&full_v5(), pointer, value), start, says);
    }
    let mut both = agent_tool(&plain_agent("helper", 5));
    both["http"] = json!({"url": "https://a.example"});
    one_issue(
        &with(&full_v5(), "/capabilities/0/tools/2", both),
        "[custom] capabilities[0].tools[2].http:",
        "either",
    );
}

#[test]
fn files_of_a_skill_stay_inside_it() {
    for path in ["/etc/passwd", "../x", "a/../b", "a//b", "", ".", "a\\b", "a\0"] {
        let mut document = full_v5();
        document["capabilities"][0]["skills"]["s"]["files"][path] =
            json!(format!("sha256:{}", "0".repeat(64)));
        let issues = refused(&document);
        assert!(issues.len() == 1 && issues[0].contains("stay inside its skill"), "{path:?}: {issues:?}");
    }
}
