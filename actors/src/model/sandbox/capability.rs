//! The two capabilities that a sandboxed session's manifest gets: the six tools over its workspace, and keeping files as
//! artifacts (spec: sandbox, sections 4 and 13; engine, sections 1.4 and 1.5).
//!
//! Every word here is part of the hash of each such session's manifest: a change of one gives new sessions another hash.

use std::collections::BTreeSet;

use serde_json::json;

use crate::model::json::{Json, JsonMap};
use crate::model::manifest::{self, SANDBOX_TOOLS};

/// The capability of the six tools.
pub const SANDBOX: &str = "nylorun.sandbox";
/// The capability of artifacts.
pub const ARTIFACTS: &str = "nylorun.artifacts";
/// The tool that keeps a file.
pub const SAVE_ARTIFACT: &str = "save_artifact";

const SANDBOX_INSTRUCTION: &str = "You have a sandbox: a Linux workspace of your own at /workspace, where relative \
paths begin and files stay from one turn to the next. Use bash to run commands, and read, write, edit, grep and glob to \
work with files. A command that exits with another code than 0 is an answer, not a failure. Only hosts that this \
sandbox allows can be reached, often none. Put results that are meant for people into /workspace/outputs.";

const ARTIFACTS_INSTRUCTION: &str = "Use save_artifact to keep a file or a text of yours as an artifact of this session, \
so that people can find and download it.";

/// A session's manifest with a sandbox: the agent's and, unless they declare one of their own, those of the agents that
/// it uses as tools. A workflow stays as it is.
///
/// # Errors
/// Every problem, for a person: names of tools that the agents use already, or what the whole manifest breaks.
pub fn with_sandbox(definition: &Json, spec: &Json) -> Result<Json, Vec<String>> {
    let mut document = definition.clone();
    if is_workflow(&document) {
        return Ok(document);
    }
    let mut clashes = Vec::new();
    add(&mut document, spec, "", &mut clashes);
    if !clashes.is_empty() {
        return Err(clashes);
    }
    match manifest::parse(&document) {
        Ok(_) => Ok(document),
        Err(issues) => {
            let mut seen = BTreeSet::new();
            let texts = issues.iter().map(ToString::to_string);
            Err(texts.filter(|text| seen.insert(text.clone())).collect())
        }
    }
}

/// The sandbox that a definition declares itself: that of its first capability with one, or the workflow's.
#[must_use]
pub fn declared(definition: &Json) -> Option<&Json> {
    if is_workflow(definition) {
        return definition.get("sandbox");
    }
    items(definition, "capabilities").find_map(|capability| capability.get("sandbox"))
}

fn is_workflow(document: &Json) -> bool {
    document.get("kind").and_then(Json::as_str) == Some("workflow")
}

fn items<'a>(value: &'a Json, key: &str) -> impl Iterator<Item = &'a Json> + use<'a> {
    value.get(key).and_then(Json::as_array).into_iter().flatten()
}

fn add(document: &mut Json, spec: &Json, above: &str, clashes: &mut Vec<String>) {
    let here = format!("{above}agent \"{}\"", document.get("id").and_then(Json::as_str).unwrap_or_default());
    clashes.extend(clashes_of(document, &here));
    let Some(capabilities) = document.get_mut("capabilities").and_then(Json::as_array_mut) else { return };
    for tool in capabilities
        .iter_mut()
        .filter_map(|capability| capability.get_mut("tools").and_then(Json::as_array_mut))
        .flatten()
    {
        if let Some(child) = tool.get_mut("agent").filter(|child| child.is_object())
            && !is_workflow(child)
            && declared(child).is_none()
        {
            add(child, spec, &format!("{here} > "), clashes);
        }
    }
    capabilities.push(sandbox(spec));
    capabilities.push(artifacts());
}

fn clashes_of(document: &Json, here: &str) -> Vec<String> {
    let taken = |name: &str| SANDBOX_TOOLS.contains(&name) || name == SAVE_ARTIFACT;
    let tools = items(document, "capabilities").flat_map(|capability| items(capability, "tools"));
    let names = tools.filter_map(|tool| tool.get("name").and_then(Json::as_str)).filter(|name| taken(name));
    let names = names.map(|name| {
        format!(
            "The tool \"{name}\" of {here} has the name of a tool of the sandbox: rename it, or open the session with sandbox: false."
        )
    });
    names.collect()
}

fn sandbox(spec: &Json) -> Json {
    json!({
        "id": SANDBOX,
        "type": "agent",
        "instructions": [SANDBOX_INSTRUCTION],
        "tools": [
            tool("bash", "Runs a shell command in /workspace and answers its exit code, standard output and standard error. Long output is cut in its middle.", &["command"], json!({
                "command": filled("The command."),
                "timeout": whole("Seconds after which it is ended; 120 unless said.", 1, 600),
            })),
            tool("read", "Reads lines of a text file, each with its number. A file with more lines says where to go on.", &["path"], json!({
                "path": filled("The file."),
                "offset": {"type": "integer", "minimum": 1, "description": "The first line to show; 1 unless said."},
                "limit": whole("Most lines to show; 2000 unless said.", 1, 5000),
            })),
            tool("write", "Writes a file whole, with its folders; what stood there is replaced.", &["path", "content"], json!({
                "path": filled("The file."),
                "content": {"type": "string", "description": "Its whole content."},
            })),
            tool("edit", "Replaces a text in a file by another, to the letter. The text must stand there exactly once, unless all are to be replaced.", &["path", "old_string", "new_string"], json!({
                "path": filled("The file."),
                "old_string": filled("The text that stands there."),
                "new_string": {"type": "string", "description": "The text that shall stand there."},
                "replace_all": {"type": "boolean", "description": "Whether to replace it wherever it stands."},
            })),
            tool("grep", "Searches files for an extended regular expression and answers lines as path:line:text.", &["pattern"], json!({
                "pattern": filled("The expression."),
                "path": {"type": "string", "description": "A file or a folder; /workspace unless said."},
                "glob": {"type": "string", "description": "Only files whose name fits this pattern, such as *.rs."},
                "ignore_case": {"type": "boolean", "description": "Whether capitals count as small letters."},
                "max_results": whole("Most lines to answer; 200 unless said.", 1, 1000),
            })),
            tool("glob", "Finds files by a pattern and answers their paths. * stands for part of a name, ** for any folders.", &["pattern"], json!({
                "pattern": filled("The pattern; without a slash it is held against names alone."),
                "path": {"type": "string", "description": "Where to look; /workspace unless said."},
            })),
        ],
        "sandbox": spec,
    })
}

fn artifacts() -> Json {
    json!({
        "id": ARTIFACTS,
        "type": "agent",
        "instructions": [ARTIFACTS_INSTRUCTION],
        "tools": [tool(SAVE_ARTIFACT, "Keeps a file of the sandbox, or a text, as an artifact. Give exactly one of path and content. With artifactId it becomes the next version of that artifact.", &[], json!({
            "path": filled("A file of the sandbox."),
            "content": {"type": "string", "description": "A text to keep instead of a file."},
            "name": {"type": "string", "minLength": 1, "maxLength": 255, "description": "A name for people; the file's own unless said."},
            "contentType": filled("Its media type, such as text/csv; told by the name unless said."),
            "artifactId": filled("An artifact of this session that gets a version."),
        }))],
    })
}

fn tool(name: &str, description: &str, required: &[&str], properties: Json) -> Json {
    let mut schema = JsonMap::new();
    schema.insert("type".into(), json!("object"));
    schema.insert("properties".into(), properties);
    if !required.is_empty() {
        schema.insert("required".into(), json!(required));
    }
    schema.insert("additionalProperties".into(), json!(false));
    json!({"name": name, "description": description, "inputSchema": schema})
}

fn filled(description: &str) -> Json {
    json!({"type": "string", "minLength": 1, "description": description})
}

fn whole(description: &str, least: u32, most: u32) -> Json {
    json!({"type": "integer", "minimum": least, "maximum": most, "description": description})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::canonical::manifest_hash;

    fn spec() -> Json {
        json!({"network": {"preset": "none"}, "resources": {"cpus": 1, "memory": "128MiB"}, "idle": "15m"})
    }

    fn agent(id: &str, tools: &Json) -> Json {
        json!({"manifestSchemaVersion": 4, "id": id, "description": "Does it.",
            "capabilities": [{"id": "agent", "type": "agent", "tools": tools}]})
    }

    fn as_tool(child: &Json) -> Json {
        let task = json!({"type": "object", "properties": {"task": {"type": "string", "minLength": 1}},
            "required": ["task"], "additionalProperties": false});
        json!({"name": child["id"], "description": child["description"], "inputSchema": task, "agent": child})
    }

    fn ids(document: &Json) -> Vec<&str> {
        items(document, "capabilities").filter_map(|capability| capability["id"].as_str()).collect()
    }

    #[test]
    fn an_agent_gets_two_capabilities_and_another_hash_and_its_manifest_still_reads() {
        for version in [4, 5] {
            let mut definition = agent("a", &json!([]));
            definition["manifestSchemaVersion"] = json!(version);
            let pinned = with_sandbox(&definition, &spec()).unwrap();
            assert_eq!(ids(&pinned), ["agent", SANDBOX, ARTIFACTS]);
            assert_ne!(manifest_hash(&pinned), manifest_hash(&definition));
            assert_eq!(declared(&pinned), Some(&spec()));
            assert_eq!(declared(&definition), None);
            let other = json!({"idle": "1h"});
            assert_ne!(manifest_hash(&with_sandbox(&definition, &other).unwrap()), manifest_hash(&pinned));
        }
    }

    #[test]
    fn agents_used_as_tools_get_them_too_and_workflows_stay() {
        let child = agent("child", &json!([]));
        let pinned = with_sandbox(&agent("root", &json!([as_tool(&child)])), &spec()).unwrap();
        let inner = &pinned["capabilities"][0]["tools"][0]["agent"];
        assert_eq!(ids(inner), ["agent", SANDBOX, ARTIFACTS]);
        assert_eq!(inner["capabilities"][1], pinned["capabilities"][1]);
        let flow =
            json!({"kind": "workflow", "workflowSchemaVersion": 2, "id": "f", "sandbox": {"idle": "1m"}});
        assert_eq!(with_sandbox(&flow, &spec()), Ok(flow.clone()));
        assert_eq!(declared(&flow), Some(&json!({"idle": "1m"})));
        let mut parent = json!({"id": "p", "capabilities": [{"tools": [{"agent": flow}]}]});
        let before = parent["capabilities"][0].clone();
        add(&mut parent, &spec(), "", &mut Vec::new());
        assert_eq!(parent["capabilities"][0], before);
        // A child with a sandbox of its own keeps it, and nothing is added.
        let own = json!({"id": "c", "capabilities": [{"id": "x", "sandbox": {}}]});
        let mut parent = json!({"id": "p", "capabilities": [{"tools": [{"agent": own}]}]});
        add(&mut parent, &spec(), "", &mut Vec::new());
        assert_eq!(parent["capabilities"][0]["tools"][0]["agent"], own);
    }

    #[test]
    fn each_name_that_is_taken_is_told_with_its_agent_and_the_way_out() {
        let named = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        let child = agent("child", &json!([named("glob")]));
        let tools = json!([named("bash"), named("fine"), named("save_artifact"), as_tool(&child)]);
        let clashes = with_sandbox(&agent("root", &tools), &spec()).unwrap_err();
        assert_eq!(clashes.len(), 3, "{clashes:?}");
        for (clash, (name, of)) in
            clashes.iter().zip([("bash", "root"), ("save_artifact", "root"), ("glob", "child")])
        {
            assert!(clash.contains(&format!("\"{name}\"")) && clash.contains(of), "{clash}");
            assert!(clash.contains("rename") && clash.contains("sandbox: false"));
        }
    }

    #[test]
    fn an_id_that_is_taken_is_told_once() {
        let mut definition = agent("a", &json!([]));
        definition["capabilities"][0]["id"] = json!(SANDBOX);
        let problems = with_sandbox(&definition, &spec()).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(SANDBOX), "{problems:?}");
    }

    #[test]
    fn the_tools_have_the_bounds_of_the_specification() {
        let pinned = with_sandbox(&agent("a", &json!([])), &spec()).unwrap();
        let schema = |capability: usize, name: &str| {
            let mut tools = items(&pinned["capabilities"][capability], "tools");
            tools.find(|tool| tool["name"] == name).unwrap()["inputSchema"].clone()
        };
        let names: Vec<_> = items(&pinned["capabilities"][1], "tools").map(|t| t["name"].clone()).collect();
        assert_eq!(names, SANDBOX_TOOLS.map(Json::from));
        let bound =
            |name: &str, property: &str, bound: &str| schema(1, name)["properties"][property][bound].clone();
        for (name, property, least, most) in [
            ("bash", "timeout", 1, json!(600)),
            ("read", "limit", 1, json!(5000)),
            ("read", "offset", 1, Json::Null),
            ("grep", "max_results", 1, json!(1000)),
        ] {
            assert_eq!(bound(name, property, "minimum"), least, "{name}.{property}");
            assert_eq!(bound(name, property, "maximum"), most, "{name}.{property}");
            assert_eq!(bound(name, property, "type"), "integer");
        }
        for (name, required) in [
            ("bash", json!(["command"])),
            ("read", json!(["path"])),
            ("write", json!(["path", "content"])),
            ("edit", json!(["path", "old_string", "new_string"])),
            ("grep", json!(["pattern"])),
            ("glob", json!(["pattern"])),
        ] {
            assert_eq!(schema(1, name)["required"], required, "{name}");
        }
        for (name, property) in [
            ("bash", "command"),
            ("read", "path"),
            ("write", "path"),
            ("edit", "old_string"),
            ("grep", "pattern"),
            ("glob", "pattern"),
        ] {
            assert_eq!(bound(name, property, "minLength"), 1, "{name}.{property}");
        }
        assert_eq!(
            (bound("write", "content", "minLength"), bound("edit", "new_string", "minLength")),
            (Json::Null, Json::Null)
        );
        let save = schema(2, SAVE_ARTIFACT);
        assert_eq!(save["required"], Json::Null);
        assert_eq!(save["properties"]["name"]["maxLength"], 255);
        assert_eq!(save["properties"].as_object().unwrap().len(), 5);
    }
}
