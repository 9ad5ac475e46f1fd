//! What manifests are accepted and refused for. Each row of a table is one fact.

mod agents;
mod agents_v5;
mod subagents;
mod variants;
mod workflows;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::limits::{MANIFEST_DEPTH, MANIFEST_ISSUES};

/// `document` with the value at a JSON pointer replaced or added (`null` removes it).
fn with(document: &Json, pointer: &str, value: Json) -> Json {
    let mut document = document.clone();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    match document.pointer_mut(parent).expect(pointer) {
        Json::Object(map) if value.is_null() => drop(map.shift_remove(key).expect(pointer)),
        Json::Object(map) => drop(map.insert(key.to_owned(), value)),
        Json::Array(items) => {
            let at = key.parse::<usize>().expect(pointer);
            if at < items.len() { items[at] = value } else { items.push(value) }
        }
        _ => panic!("{pointer} is no member"),
    }
    document
}

fn refused(document: &Json) -> Vec<String> {
    parse(document).expect_err("refused").iter().map(|issue| format!("[{}] {issue}", issue.code)).collect()
}

/// The one issue of `document` starts with this code and path and says this.
#[track_caller]
fn one_issue(document: &Json, start: &str, says: &str) {
    let issues = refused(document);
    assert!(
        issues.len() == 1 && issues[0].starts_with(start) && issues[0].contains(says),
        "expected {start} … {says}, got {issues:#?}"
    );
}

#[track_caller]
fn agent(document: &Json) -> AgentManifest {
    match parse(document) {
        Ok(Definition::Agent(agent)) => agent,
        other => panic!("{other:#?}"),
    }
}

#[track_caller]
fn workflow(document: &Json) -> WorkflowManifest {
    match parse(document) {
        Ok(Definition::Workflow(workflow)) => *workflow,
        other => panic!("{other:#?}"),
    }
}

fn task_schema() -> Json {
    json!({
        "type": "object",
        "properties": {"task": {"type": "string", "minLength": 1, "description": "What to do."}},
        "required": ["task"],
        "additionalProperties": false
    })
}

fn plain_agent(id: &str, version: u8) -> Json {
    json!({"manifestSchemaVersion": version, "id": id, "description": "Helps.", "capabilities": []})
}

/// A tool that is `agent`.
fn agent_tool(agent: &Json) -> Json {
    json!({"name": agent["id"], "description": agent["description"], "inputSchema": task_schema(), "agent": agent})
}

/// A capability with a sandbox and its tools, and two tools that tests replace.
fn sandbox_capability(sandbox: Json) -> Json {
    let tools: Vec<Json> =
        SANDBOX_TOOLS.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect();
    json!({"id": "nylorun.sandbox", "type": "agent", "tools": tools, "sandbox": sandbox})
}

#[test]
fn issues_are_path_code_and_message() {
    let issues =
        parse(&json!({"manifestSchemaVersion": 4, "id": "a", "capabilities": [{"id": "", "type": "agent"}]}));
    assert_eq!(
        serde_json::to_value(issues.expect_err("refused")).expect("json"),
        json!([{"path": ["capabilities", 0, "id"], "code": "too_small", "message": "must not be empty"}])
    );
}

#[test]
fn all_problems_are_reported_at_once() {
    let issues = refused(&json!({
        "manifestSchemaVersion": 4,
        "name": 1,
        "extra": true,
        "capabilities": [
            {"id": "a", "type": "other", "skills": {}},
            {"id": "a", "type": "agent", "tools": [{"name": "t"}, {"name": "t", "inputSchema": []}, 5]}
        ]
    }));
    let starts = [
        "[unrecognized_keys] unknown member \"extra\"",
        "[invalid_type] id: id is required",
        "[invalid_type] name: must be a string, not a number",
        "[custom] capabilities[1].id: capability id \"a\" is used more than once",
        "[custom] capabilities[1].tools[1].name: tool name \"t\" is used more than once",
        "[invalid_value] capabilities[0].type: must be \"agent\" or \"agent-plugin\"",
        "[too_small] capabilities[0].skills: must be left out when empty",
        "[invalid_type] capabilities[1].tools[0].inputSchema: inputSchema is required",
        "[invalid_type] capabilities[1].tools[1].inputSchema: must be an object, not an array",
        "[invalid_type] capabilities[1].tools[2]: must be an object, not a number",
    ];
    assert_eq!(issues, starts);
}

#[test]
fn the_list_of_problems_is_bounded_and_counts_the_rest() {
    let capabilities = vec![json!(1); MANIFEST_ISSUES + 10];
    let issues = refused(&json!({"manifestSchemaVersion": 4, "id": "a", "capabilities": capabilities}));
    assert_eq!(issues.len(), MANIFEST_ISSUES);
    assert_eq!(issues[MANIFEST_ISSUES - 1], "[custom] 11 more problems are not listed");
    let just = vec![json!(1); MANIFEST_ISSUES - 1];
    let issues = refused(&json!({"manifestSchemaVersion": 4, "id": "a", "capabilities": just}));
    assert!(issues.iter().all(|issue| issue.starts_with("[invalid_type]")));
}

#[test]
fn versions_that_are_not_known_are_named_and_nothing_else_is_said() {
    for (document, says) in [
        (
            json!({"manifestSchemaVersion": 3, "x": 1}),
            "[invalid_value] manifestSchemaVersion: manifestSchemaVersion is 3; this Runtime reads 4 and 5",
        ),
        (
            json!({}),
            "[invalid_value] manifestSchemaVersion: manifestSchemaVersion is missing; this Runtime reads 4 and 5",
        ),
        (
            json!({"manifestSchemaVersion": "4"}),
            "[invalid_value] manifestSchemaVersion: manifestSchemaVersion is \"4\"; this Runtime reads 4 and 5",
        ),
        (
            json!({"kind": "workflow", "workflowSchemaVersion": 4}),
            "[invalid_value] workflowSchemaVersion: workflowSchemaVersion is 4; this Runtime reads 1, 2 and 3",
        ),
        (
            json!({"kind": "workflow", "workflowSchemaVersion": [[]]}),
            "[invalid_value] workflowSchemaVersion: workflowSchemaVersion is not a number; this Runtime reads 1, 2 and 3",
        ),
        (json!([]), "[invalid_type] must be an object, not an array"),
    ] {
        assert_eq!(refused(&document), [says]);
    }
}

#[test]
fn a_whole_number_may_be_written_as_a_fraction() {
    assert_eq!(
        agent(&json!({"manifestSchemaVersion": 4.0, "id": "a", "capabilities": []})).schema_version,
        4
    );
}

#[test]
fn a_document_is_a_workflow_only_by_its_exact_kind() {
    one_issue(
        &with(&plain_agent("a", 4), "/kind", json!("agent")),
        "[unrecognized_keys] unknown member \"kind\"",
        "exactly \"workflow\"",
    );
}

#[test]
fn nesting_is_bounded_where_it_gets_too_deep() {
    let flow = |levels: usize| {
        let mut node = json!({"tool": {"name": "t"}});
        for _ in 0..levels {
            node = json!({"chain": [node]});
        }
        json!({"kind": "workflow", "workflowSchemaVersion": 3, "id": "f", "agents": {}, "root": node})
    };
    // The document is a level, and so is the tool's node.
    assert!(parse(&flow(MANIFEST_DEPTH - 2)).is_ok());
    one_issue(&flow(MANIFEST_DEPTH - 1), "[too_big] root.chain[0].chain[0]", "nest deeper than 32 levels");
    assert!(parse(&flow(120)).is_err());
}

#[test]
fn every_place_that_declares_a_sandbox_is_named() {
    let mut child = plain_agent("child", 4);
    child["capabilities"] = json!([sandbox_capability(json!({"idle": "15m"}))]);
    let mut inner = json!({"kind": "workflow", "workflowSchemaVersion": 2, "id": "inner", "agents": {"child": child},
        "root": {"agent": "child"}, "sandbox": {"idle": "15m"}});
    inner["description"] = json!("A flow.");
    let mut root = plain_agent("root", 4);
    root["capabilities"] = json!([sandbox_capability(json!({"idle": "15m"})), {"id": "b", "type": "agent", "tools": [agent_tool(&inner)]}]);
    assert_eq!(
        parse(&root).expect("accepted").declares_sandbox(),
        [
            "agent \"root\", capability \"nylorun.sandbox\"",
            "agent \"root\" > workflow \"inner\"",
            "agent \"root\" > workflow \"inner\" > agent \"child\", capability \"nylorun.sandbox\""
        ]
    );
    assert!(parse(&plain_agent("a", 5)).expect("accepted").declares_sandbox().is_empty());

    let other = with(&root, "/capabilities/1/tools/0/agent/sandbox/idle", json!("900s"));
    one_issue(&other, "[custom] capabilities[1].tools[0].agent.sandbox:", "must be identical");
}

/// Documents made of the words that manifests know, in places where they may or may not be right.
fn almost_manifests() -> impl Strategy<Value = Json> {
    const WORDS: &[&str] = &[
        "manifestSchemaVersion",
        "workflowSchemaVersion",
        "kind",
        "workflow",
        "id",
        "capabilities",
        "tools",
        "agent",
        "agents",
        "root",
        "chain",
        "loop",
        "verify",
        "fn",
        "switch",
        "cases",
        "on",
        "parallel",
        "map",
        "each",
        "over",
        "slot",
        "run",
        "http",
        "sandbox",
        "hooks",
        "skills",
        "mcpServers",
        "type",
        "stdio",
        "name",
        "task",
    ];
    let word = prop::sample::select(WORDS).prop_map(str::to_owned);
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        (0..6).prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        word.clone().prop_map(Json::from),
        any::<String>().prop_map(Json::from),
    ];
    leaf.prop_recursive(8, 80, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::vec((word.clone(), inner), 0..8)
                .prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_json_makes_the_reading_panic(mut document in almost_manifests(), kind in 0..6usize, other in almost_manifests()) {
        let is_refused = parse(&document).is_err_and(|issues| !issues.is_empty());
        prop_assert!(is_refused, "nothing of this shape has a version");
        if let Json::Object(map) = &mut document {
            if kind > 1 {
                map.insert("kind".into(), json!("workflow"));
                map.insert("workflowSchemaVersion".into(), json!(kind - 2));
            } else {
                map.shift_remove("kind");
                map.insert("manifestSchemaVersion".into(), json!(kind + 4));
            }
        }
        let _ = parse(&document);
        let _ = is_variant(&document, &other);
    }
}
