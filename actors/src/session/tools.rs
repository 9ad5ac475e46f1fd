//! Which tool calls of a run its harness executes, whoever of its agents makes them (spec: harness-api, section 11.3
//! point 8; engine, section 6). Every other tool is an Action.

use std::collections::HashSet;
use std::sync::Arc;

use crate::model::Json;
use crate::model::effect::{EffectIntent, EffectKind};
use crate::model::manifest::SANDBOX_TOOLS;

/// Where a manifest's `metadata` holds a script of the fixture model.
const FIXTURE_SCRIPT: &str = "nylorun.fixture";

/// The capability that the Runtime adds for artifacts, and its one tool.
const ARTIFACTS: &str = "nylorun.artifacts";
const SAVE_ARTIFACT: &str = "save_artifact";

/// The tools of a run that are its harness's.
#[derive(Clone, Debug)]
pub(super) struct HarnessTools {
    /// The turn's manifest.
    manifest: Arc<Json>,
    /// Answered by the fixture model's script, for every agent.
    scripted: HashSet<String>,
    /// Agent and name of the tools of MCP servers.
    discovered: HashSet<(String, String)>,
}

impl HarnessTools {
    /// Those of a run. `root`: the session's manifest, whose script is played where `fixture_model` is chosen.
    pub fn new(manifest: Arc<Json>, root: &Json, fixture_model: bool) -> Self {
        let script = root.get("metadata").and_then(|metadata| metadata.get(FIXTURE_SCRIPT));
        let tools = script.and_then(|script| script.get("tools")).and_then(Json::as_object);
        let scripted = tools.filter(|_| fixture_model).map(|tools| tools.keys().cloned().collect());
        Self { manifest, scripted: scripted.unwrap_or_default(), discovered: HashSet::new() }
    }

    /// Adds session tools: `{agentId?, name, ...}` each. One without an agent is the root's.
    pub fn discover(&mut self, tools: &[Json]) {
        let root = text(&self.manifest, "id");
        let named = tools.iter().filter_map(|tool| {
            let name = tool.get("name").and_then(Json::as_str)?;
            let agent = tool.get("agentId").and_then(Json::as_str).unwrap_or(root);
            Some((agent.to_owned(), name.to_owned()))
        });
        self.discovered.extend(named.collect::<Vec<_>>());
    }

    /// Whether an effect belongs to the root or to an agent that it uses as a tool.
    pub fn knows_agent(&self, intent: &EffectIntent) -> bool {
        intent
            .agent
            .as_ref()
            .is_none_or(|agent| children(&self.manifest).any(|child| text(child, "id") == agent.id))
    }

    /// Whether the harness executes this effect as a tool of its own.
    pub fn has(&self, intent: &EffectIntent) -> bool {
        let (EffectKind::Tool, Some(name)) = (intent.kind, &intent.tool_name) else { return false };
        let agent = intent.agent.as_ref().map_or_else(|| text(&self.manifest, "id"), |agent| &agent.id);
        self.scripted.contains(name)
            || self.discovered.contains(&(agent.to_owned(), name.clone()))
            || self.is_of_sandbox(intent, name)
    }

    /// Whether core itself carries this effect out: `save_artifact` where the agent that calls it has it.
    pub fn is_cores(&self, intent: &EffectIntent) -> bool {
        intent.kind == EffectKind::Tool
            && intent.tool_name.as_deref() == Some(SAVE_ARTIFACT)
            && intent.capability_id.as_deref() == Some(ARTIFACTS)
            && self.capabilities(intent).any(|capability| {
                text(capability, "id") == ARTIFACTS
                    && list(capability, "tools").any(|tool| text(tool, "name") == SAVE_ARTIFACT)
            })
    }

    /// The capabilities of the agent that calls.
    fn capabilities(&self, intent: &EffectIntent) -> impl Iterator<Item = &Json> {
        let manifest = match &intent.agent {
            None => Some(self.manifest.as_ref()),
            Some(agent) => children(&self.manifest).find(|child| text(child, "id") == agent.id),
        };
        manifest.into_iter().flat_map(|manifest| list(manifest, "capabilities"))
    }

    /// A built-in tool of a capability that has a sandbox, in the manifest of the agent that calls it.
    fn is_of_sandbox(&self, intent: &EffectIntent, name: &str) -> bool {
        if !SANDBOX_TOOLS.contains(&name) {
            return false;
        }
        let of = |capability: &&Json| intent.capability_id.as_deref() == Some(text(capability, "id"));
        self.capabilities(intent).filter(of).any(|capability| {
            capability.get("sandbox").is_some()
                && list(capability, "tools").any(|tool| text(tool, "name") == name)
        })
    }
}

/// The agents that a manifest uses as tools.
fn children(manifest: &Json) -> impl Iterator<Item = &Json> {
    let tools = list(manifest, "capabilities").flat_map(|capability| list(capability, "tools"));
    tools.filter_map(|tool| tool.get("agent"))
}

fn list<'a>(value: &'a Json, key: &str) -> impl Iterator<Item = &'a Json> + use<'a> {
    value.get(key).and_then(Json::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Json, key: &str) -> &'a str {
    value.get(key).and_then(Json::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A call of a tool, by the root or by a child.
    fn call(agent: Option<&str>, capability: &str, name: &str) -> EffectIntent {
        let mut intent = json!({"effectId": "e", "sessionId": "s", "turnId": "t", "agentId": "root", "manifestHash": "m",
            "kind": "tool", "capabilityId": capability, "toolName": name, "input": {}, "context": {}});
        if let Some(id) = agent {
            intent["agent"] = json!({"id": id, "path": format!("root/{id}"), "delegationId": "d"});
        }
        serde_json::from_value(intent).unwrap()
    }

    fn manifest() -> Json {
        let box_ = json!({"id": "box", "type": "agent-plugin", "sandbox": {}, "tools": [{"name": "bash", "inputSchema": {}}]});
        let child = json!({"manifestSchemaVersion": 4, "id": "child", "capabilities": [box_]});
        let tools = json!([{"name": "child", "inputSchema": {}, "agent": child}, {"name": "bash", "inputSchema": {}}]);
        json!({"manifestSchemaVersion": 4, "id": "root", "capabilities": [{"id": "agent", "type": "agent", "tools": tools}],
            "metadata": {"nylorun.fixture": {"tools": {"work": {}}}}})
    }

    #[test]
    fn a_tool_of_an_mcp_server_is_the_harnesss_for_its_own_agent_only() {
        let mut tools = HarnessTools::new(Arc::new(manifest()), &manifest(), false);
        tools.discover(&[json!({"agentId": "child", "name": "gh__list"}), json!({"name": "db__read"})]);
        assert!(tools.has(&call(Some("child"), "x", "gh__list")));
        assert!(!tools.has(&call(None, "x", "gh__list")), "the root's tool of that name is an Action");
        assert!(tools.has(&call(None, "x", "db__read")));
        assert!(!tools.has(&call(Some("child"), "x", "db__read")));
    }

    #[test]
    fn a_sandbox_tool_is_one_of_a_capability_with_a_sandbox_of_the_agent_that_calls_it() {
        let tools = HarnessTools::new(Arc::new(manifest()), &manifest(), false);
        assert!(tools.has(&call(Some("child"), "box", "bash")));
        assert!(!tools.has(&call(Some("child"), "box", "read")), "it is not listed");
        assert!(!tools.has(&call(Some("child"), "agent", "bash")));
        assert!(!tools.has(&call(None, "agent", "bash")), "an Action may be named so");
        assert!(!tools.has(&call(Some("other"), "box", "bash")));
        assert!(
            tools.knows_agent(&call(Some("child"), "box", "bash"))
                && tools.knows_agent(&call(None, "x", "y"))
        );
        assert!(!tools.knows_agent(&call(Some("other"), "box", "bash")));
    }

    #[test]
    fn a_scripted_tool_is_the_harnesss_for_every_agent_where_the_fixture_is_chosen() {
        let tools = |fixture| HarnessTools::new(Arc::new(manifest()), &manifest(), fixture);
        assert!(
            tools(true).has(&call(None, "agent", "work"))
                && tools(true).has(&call(Some("child"), "x", "work"))
        );
        assert!(!tools(false).has(&call(None, "agent", "work")));
        let hook = EffectIntent { kind: EffectKind::Hook, ..call(None, "agent", "work") };
        assert!(!tools(true).has(&hook), "a hook is always an Action");
    }
}
