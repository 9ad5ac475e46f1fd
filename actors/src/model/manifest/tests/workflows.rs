//! Workflow manifests of all versions: nodes, agents, positions, and what is refused.

use super::*;

fn v1() -> Json {
    json!({"kind": "workflow", "workflowSchemaVersion": 1, "id": "f", "root": {"chain": {"id": "c", "steps": [
        {"agent": "a"},
        {"tool": {"name": "t", "description": "d", "inputSchema": {}, "outputSchema": {}}},
        {"switch": {"id": "s", "on": {"fn": true}, "cases": {"x": {"agent": "a"}}, "default": {"agent": "b"}}},
        {"parallel": {"id": "p", "branches": {"l": {"agent": "a"}, "r": {"agent": "b"}}}},
        {"map": {"id": "m", "over": {"fn": true}, "each": {"agent": "a"}}},
        {"loop": {"id": "l1", "run": {"agent": "a"}, "verify": {"fn": true}, "decide": {"fn": true}}},
        {"loop": {"id": "l2", "run": {"agent": "a"}, "verify": {"agent": "b"}, "decide": {"fn": true}}},
        {"loop": {"id": "l3", "run": {"agent": "a"}, "verify": {"slot": {"run": {"agent": "b"}}}, "decide": {"fn": true}}},
        {"slot": {"id": "z", "input": {"fn": true}, "run": {"agent": "a"}}},
        {"slot": {"run": {"agent": "a"}}}
    ]}}, "sandbox": {"idle": "1h"}})
}

fn v2() -> Json {
    json!({"kind": "workflow", "workflowSchemaVersion": 2, "id": "f", "name": "F", "description": "d", "metadata": {},
    "inputSchema": {}, "outputSchema": {}, "sandbox": {},
    "root": {"chain": [
        {"agent": "a", "id": "first", "input": {"fn": true}},
        {"tool": {"name": "t", "description": "d", "inputSchema": {}, "outputSchema": {}}, "id": "t"},
        {"switch": {"on": {"fn": true}, "cases": {"x": {"agent": "a"}}, "default": {"agent": "g"}}},
        {"parallel": {"right": {"agent": "a"}, "left": {"agent": "g"}}},
        {"map": {"each": {"agent": "a"}}, "id": "m"},
        {"loop": {"run": {"agent": "a"}, "verify": {"fn": true}, "decide": {"fn": true}}},
        {"loop": {"run": {"agent": "a"}, "verify": {"agent": "a", "id": "v"}, "max": 3}}
    ]},
    "agents": {
        "a": plain_agent("a", 4),
        "g": {"kind": "workflow", "workflowSchemaVersion": 2, "id": "g", "root": {"agent": "a"}, "agents": {"a": plain_agent("a", 4)}}
    }})
}

fn v3() -> Json {
    json!({"kind": "workflow", "workflowSchemaVersion": 3, "id": "f",
        "root": {"chain": [
            {"agent": "a", "id": "first"},
            {"tool": {"name": "t", "http": {"url": "https://a.example/t"}}},
            {"switch": {"cases": {"x": {"agent": "a"}}}},
            {"parallel": {"l": {"agent": "a"}}},
            {"map": {"each": {"agent": "a"}}},
            {"loop": {"run": {"agent": "a"}, "verify": {"agent": "a"}, "max": 1}},
            {"loop": {"run": {"agent": "a"}, "verify": {"http": {"url": "https://a.example/v"}}, "max": 2}}
        ]},
        "agents": {"a": plain_agent("a", 5)}})
}

fn steps(flow: &WorkflowManifest) -> &[Node] {
    match &flow.root.body {
        Body::Chain(steps) => steps,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_flow_of_version_1_is_read() {
    let flow = workflow(&v1());
    assert_eq!((flow.schema_version, flow.root.id.as_deref(), flow.agents.len()), (1, Some("c"), 0));
    assert!(flow.sandbox.is_some());
    let steps = steps(&flow);
    assert_eq!(steps[0], Node { id: None, input: false, body: Body::Agent("a".into()) });
    assert!(matches!(&steps[2].body, Body::Switch { on: true, cases, default: Some(_) } if cases.len() == 1));
    assert!(matches!(&steps[4].body, Body::Map { over: true, .. }));
    assert!(matches!(&steps[5].body, Body::Loop { verify: Verify::Function, max: None, decide: true, .. }));
    assert!(matches!(&steps[6].body, Body::Loop { verify: Verify::Node(_), .. }));
    assert!(matches!(&steps[8], Node { id: Some(_), input: true, body: Body::Slot(_) }));
    assert!(matches!(&steps[9], Node { id: None, input: false, body: Body::Slot(_) }));
}

#[test]
fn a_flow_of_version_2_is_read() {
    let flow = workflow(&v2());
    let steps = steps(&flow);
    assert_eq!(steps[0], Node { id: Some("first".into()), input: true, body: Body::Agent("a".into()) });
    let Body::Parallel(branches) = &steps[3].body else { panic!("a parallel") };
    assert_eq!(branches.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["right", "left"]);
    assert!(matches!(&steps[4].body, Body::Map { over: false, .. }));
    assert!(matches!(&steps[5].body, Body::Loop { verify: Verify::Function, max: None, decide: true, .. }));
    assert!(matches!(
        &steps[6].body,
        Body::Loop { verify: Verify::Node(_), max: Some(3), decide: false, .. }
    ));
    assert!(matches!(flow.agent("g"), Some(Definition::Workflow(_))));
    assert!(flow.agent("x").is_none());
    let definition = Definition::Workflow(Box::new(flow));
    assert_eq!((definition.id(), definition.name(), definition.description()), ("f", Some("F"), Some("d")));
}

#[test]
fn a_flow_of_version_3_is_read() {
    let flow = workflow(&v3());
    let steps = steps(&flow);
    assert!(matches!(&steps[1].body, Body::Tool(StageTool { http: Some(_), .. })));
    assert!(matches!(&steps[2].body, Body::Switch { on: false, default: None, .. }));
    assert!(matches!(&steps[6].body, Body::Loop { verify: Verify::Http(_), max: Some(2), .. }));
}

#[test]
fn every_rule_of_version_1_is_one_refusal() {
    let steps = "/root/chain/steps";
    for (pointer, value, start, says) in [
        ("/name", json!("F"), "[unrecognized_keys] unknown member \"name\"", ""),
        ("/agents", json!({}), "[unrecognized_keys] unknown member \"agents\"", ""),
        ("/root", Json::Null, "[invalid_type] root:", "required"),
        ("/root/chain/id", Json::Null, "[invalid_type] root.chain.id:", "required"),
        ("/root/chain/steps", json!([]), "[too_small] root.chain.steps:", "at least one"),
        (&format!("{steps}/0"), json!({}), "[custom] root.chain.steps[0]:", "exactly one of"),
        (&format!("{steps}/0/tool"), json!({"name": "t"}), "[custom] root.chain.steps[0]:", "exactly one of"),
        (&format!("{steps}/0/id"), json!("x"), "[unrecognized_keys] root.chain.steps[0]:", "id"),
        (&format!("{steps}/0/agent"), json!(""), "[too_small] root.chain.steps[0].agent:", ""),
        (
            &format!("{steps}/1/tool/name"),
            Json::Null,
            "[invalid_type] root.chain.steps[1].tool.name:",
            "required",
        ),
        (
            &format!("{steps}/1/tool/http"),
            json!({}),
            "[unrecognized_keys] root.chain.steps[1].tool:",
            "workflowSchemaVersion 3",
        ),
        (
            &format!("{steps}/2/switch/on"),
            Json::Null,
            "[invalid_type] root.chain.steps[2].switch.on:",
            "required",
        ),
        (
            &format!("{steps}/2/switch/on"),
            json!({"fn": false}),
            "[invalid_value] root.chain.steps[2].switch.on.fn:",
            "true",
        ),
        (
            &format!("{steps}/2/switch/on"),
            json!(true),
            "[invalid_type] root.chain.steps[2].switch.on:",
            "an object",
        ),
        (
            &format!("{steps}/2/switch/cases"),
            Json::Null,
            "[invalid_type] root.chain.steps[2].switch.cases:",
            "required",
        ),
        (
            &format!("{steps}/3/parallel/branches/l"),
            json!(1),
            "[invalid_type] root.chain.steps[3].parallel.branches.l:",
            "an object",
        ),
        (
            &format!("{steps}/4/map/over"),
            Json::Null,
            "[invalid_type] root.chain.steps[4].map.over:",
            "required",
        ),
        (
            &format!("{steps}/4/map/each"),
            Json::Null,
            "[invalid_type] root.chain.steps[4].map.each:",
            "required",
        ),
        (
            &format!("{steps}/5/loop/decide"),
            Json::Null,
            "[invalid_type] root.chain.steps[5].loop.decide:",
            "required",
        ),
        (&format!("{steps}/5/loop/max"), json!(1), "[unrecognized_keys] root.chain.steps[5].loop:", "max"),
        (
            &format!("{steps}/5/loop/verify"),
            json!({}),
            "[custom] root.chain.steps[5].loop.verify:",
            "exactly one of agent, slot",
        ),
        (
            &format!("{steps}/8/slot/input"),
            json!({}),
            "[invalid_type] root.chain.steps[8].slot.input.fn:",
            "required",
        ),
        (
            &format!("{steps}/8/slot/run"),
            Json::Null,
            "[invalid_type] root.chain.steps[8].slot.run:",
            "required",
        ),
        ("/sandbox/x", json!(1), "[unrecognized_keys] sandbox:", "x"),
    ] {
        one_issue(&with(&v1(), pointer, value), start, says);
    }
}

#[test]
fn every_rule_of_version_2_is_one_refusal() {
    for (pointer, value, start, says) in [
        ("/x", json!(1), "[unrecognized_keys] unknown member \"x\"", ""),
        ("/id", Json::Null, "[invalid_type] id:", "required"),
        ("/agents", Json::Null, "[invalid_type] agents:", "required"),
        ("/agents/a/id", json!("b"), "[custom] agents.a.id:", "its key \"a\""),
        (
            "/agents/a/manifestSchemaVersion",
            json!(5),
            "[invalid_value] agents.a.manifestSchemaVersion:",
            "must be 4",
        ),
        (
            "/agents/g/workflowSchemaVersion",
            json!(1),
            "[invalid_value] agents.g.workflowSchemaVersion:",
            "embeds its agents",
        ),
        ("/agents/g/root/agent", json!("f"), "[custom] agents.g.root.agent:", "\"f\" is not among"),
        ("/inputSchema", json!(1), "[invalid_type] inputSchema:", "an object"),
        ("/outputSchema", json!(1), "[invalid_type] outputSchema:", "an object"),
        ("/root/id", json!(""), "[too_small] root.id:", ""),
        ("/root/input", json!({"fn": 1}), "[invalid_value] root.input.fn:", "true"),
        ("/root/chain", json!([]), "[too_small] root.chain:", "at least one"),
        ("/root/chain/0/agent", json!("missing"), "[custom] root.chain[0].agent:", "not among"),
        ("/root/chain/0/slot", json!({}), "[unrecognized_keys] root.chain[0]:", "instead of a slot"),
        (
            "/root/chain/1/tool/http",
            json!({"url": "https://a.example"}),
            "[unrecognized_keys] root.chain[1].tool:",
            "workflowSchemaVersion 3",
        ),
        ("/root/chain/2/switch/on", Json::Null, "[invalid_type] root.chain[2].switch.on:", "required"),
        (
            "/root/chain/2/switch/id",
            json!("s"),
            "[unrecognized_keys] root.chain[2].switch:",
            "beside the body",
        ),
        ("/root/chain/3/parallel", json!({}), "[too_small] root.chain[3].parallel:", "at least one"),
        (
            "/root/chain/4/map/over",
            json!({"fn": true}),
            "[unrecognized_keys] root.chain[4].map:",
            "runs over its input",
        ),
        ("/root/chain/5/loop/decide", Json::Null, "[custom] root.chain[5].loop:", "max or decide"),
        ("/root/chain/6/loop/max", json!(0), "[too_small] root.chain[6].loop.max:", "at least 1"),
        (
            "/root/chain/6/loop/verify/agent",
            json!("missing"),
            "[custom] root.chain[6].loop.verify.agent:",
            "not among",
        ),
        ("/root/chain/6/loop/run", Json::Null, "[invalid_type] root.chain[6].loop.run:", "required"),
    ] {
        one_issue(&with(&v2(), pointer, value), start, says);
    }
}

#[test]
fn a_verifier_is_a_function_or_an_agent() {
    let issues = refused(&with(&v2(), "/root/chain/6/loop/verify", json!({"tool": {"name": "t"}})));
    assert!(issues.iter().any(|issue| issue.contains("verify: unknown member \"tool\"")), "{issues:#?}");
    assert!(
        issues.iter().any(|issue| issue.contains("verify: must have exactly one of agent")),
        "{issues:#?}"
    );
}

#[test]
fn version_3_refuses_what_older_versions_had_and_says_what_changed() {
    for (pointer, value, at, says) in [
        ("/root/chain/0/input", json!({"fn": true}), "root.chain[0]:", "gets the output of the one before"),
        ("/root/chain/0/slot", json!({}), "root.chain[0]:", "instead of a slot"),
        (
            "/root/chain/2/switch/on",
            json!({"fn": true}),
            "root.chain[2].switch:",
            "reads the output before it",
        ),
        ("/root/chain/2/switch/id", json!("s"), "root.chain[2].switch:", "beside the body"),
        ("/root/chain/4/map/over", json!({"fn": true}), "root.chain[4].map:", "runs over its input"),
        (
            "/root/chain/5/loop/decide",
            json!({"fn": true}),
            "root.chain[5].loop:",
            "by its verifier or at max",
        ),
    ] {
        one_issue(&with(&v3(), pointer, value), &format!("[unrecognized_keys] {at}"), says);
    }
    let issues = refused(&with(&v3(), "/root/chain/5/loop/verify", json!({"fn": true})));
    assert!(
        issues[0].contains("verify: unknown member \"fn\"; version 3 has no functions: use an agent"),
        "{issues:?}"
    );
    let issues = refused(&with(&v3(), "/root/chain", json!({"id": "c", "steps": []})));
    assert!(issues[0].contains("since version 2 a chain is an array"), "{issues:?}");

    for (pointer, value, start, says) in [
        ("/root/chain/5/loop/max", Json::Null, "[invalid_type] root.chain[5].loop.max:", "required"),
        (
            "/root/chain/6/loop/verify/http/url",
            Json::Null,
            "[invalid_type] root.chain[6].loop.verify.http.url:",
            "required",
        ),
        ("/root/chain/6/loop/verify/id", json!("v"), "[unrecognized_keys] root.chain[6].loop.verify:", "id"),
        (
            "/root/chain/1/tool/http/method",
            json!("GET"),
            "[invalid_value] root.chain[1].tool.http.method:",
            "POST",
        ),
        (
            "/agents/a",
            with(&v2(), "/id", json!("a")),
            "[invalid_value] agents.a.workflowSchemaVersion:",
            "build the flow again",
        ),
        (
            "/agents/a",
            plain_agent("a", 4),
            "[invalid_value] agents.a.manifestSchemaVersion:",
            "build the agent again",
        ),
    ] {
        one_issue(&with(&v3(), pointer, value), start, says);
    }
}

#[test]
fn all_sandboxes_of_a_flow_are_identical() {
    let mut flow = v2();
    flow["agents"]["a"]["capabilities"] = json!([sandbox_capability(json!({}))]);
    flow["agents"]["g"]["agents"]["a"]["capabilities"] =
        json!([sandbox_capability(json!({"image": "other"}))]);
    one_issue(&flow, "[custom] agents.g.agents.a.capabilities[0].sandbox:", "identical");
}
