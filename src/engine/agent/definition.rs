//! A manifest as the loop reads it: instructions, tools, hooks, sub-agents, and what this engine refuses
//! (spec: engine, sections 1 and 4.3).

use std::sync::{Arc, OnceLock};

use nylorun_actors::model::Json;
use nylorun_actors::model::canonical::{canonical, manifest_hash};
use nylorun_actors::model::manifest::{self, AgentManifest, HookAt, HookPoint, HookScope, parse};

use super::errors::TurnFailure;
use super::schema::Schema;
use super::toolset::{Tool, Toolset, own_tool, session_tool};
use crate::engine::model::call::PromptItem;
use crate::engine::model::item;

/// The instructions of a prompt and their canonical text.
#[derive(Clone, Debug)]
pub struct Head {
    /// The item.
    pub item: PromptItem,
    /// Its canonical text.
    pub text: String,
}

impl Head {
    /// The head of these instructions, joined by a blank line; `None` when there are none.
    #[must_use]
    pub fn of<'a>(instructions: impl Iterator<Item = &'a String>) -> Option<Self> {
        let texts: Vec<_> = instructions.map(String::as_str).collect();
        if texts.is_empty() {
            return None;
        }
        let item = item::instructions(&texts.join("\n\n"));
        Some(Self { text: canonical(&item), item })
    }
}

/// The capabilities that want to be asked at each hook point, in manifest order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    /// Before the turn.
    pub before_turn: Vec<String>,
    /// Before each model call.
    pub before_step: Vec<String>,
    /// After each answer of the model.
    pub after_step: Vec<String>,
    /// After the final answer.
    pub after_turn: Vec<String>,
}

impl Hooks {
    fn read(agent: &AgentManifest) -> Self {
        let at = |at: HookAt, scope: HookScope| {
            let point = HookPoint { at, scope };
            let wants = agent.capabilities.iter().filter(|capability| capability.hooks.contains(&point));
            wants.map(|capability| capability.id.clone()).collect()
        };
        Self {
            before_turn: at(HookAt::Before, HookScope::Turn),
            before_step: at(HookAt::Before, HookScope::Step),
            after_step: at(HookAt::After, HookScope::Step),
            after_turn: at(HookAt::After, HookScope::Turn),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A manifest, read once and shared by the runs that use it.
#[derive(Debug)]
pub struct Definition {
    /// The document.
    pub manifest: Arc<Json>,
    /// Its hash, computed here.
    pub hash: String,
    /// The agent's id.
    pub id: String,
    /// The instructions of its capabilities, in order.
    pub instructions: Vec<String>,
    /// The same as a prompt's head; absent when there are none.
    pub head: Option<Head>,
    /// The schema of the final answer.
    pub output_schema: Option<Arc<Json>>,
    /// Who is asked when.
    pub hooks: Hooks,
    /// Why this engine cannot run it.
    pub refusal: Option<TurnFailure>,
    /// Ids of its capabilities in order, each with its own tools.
    capabilities: Vec<(String, Vec<Arc<Tool>>)>,
    own: Arc<Toolset>,
    output: OnceLock<Schema>,
}

impl Definition {
    /// Reads a manifest. `sandbox`: whether somebody here runs the sandbox tools.
    ///
    /// # Errors
    /// In words, when the document is no agent manifest.
    pub fn read(manifest: Arc<Json>, sandbox: bool) -> Result<Self, String> {
        match parse(&manifest) {
            Ok(manifest::Definition::Agent(agent)) => Ok(Self::of(manifest, agent, sandbox)),
            Ok(manifest::Definition::Workflow(_)) => Err("the manifest is of a flow".to_owned()),
            Err(issues) => {
                let issues: Vec<_> = issues.iter().map(ToString::to_string).collect();
                Err(format!("the manifest does not read: {}", issues.join("; ")))
            }
        }
    }

    fn of(manifest: Arc<Json>, agent: AgentManifest, sandbox: bool) -> Self {
        let mut capabilities: Vec<(String, Vec<Arc<Tool>>)> = Vec::new();
        for (capability, document) in agent.capabilities.iter().zip(documents(&manifest, "capabilities")) {
            let listed = documents(document, "tools");
            let own = capability
                .tools
                .iter()
                .zip(listed)
                .map(|(tool, document)| own_tool(&capability.id, tool, child(tool, document, sandbox)));
            capabilities.push((capability.id.clone(), own.collect()));
        }
        let instructions: Vec<String> = agent
            .capabilities
            .iter()
            .flat_map(|capability| capability.instructions.iter().cloned())
            .collect();
        Self {
            hash: manifest_hash(&manifest),
            hooks: Hooks::read(&agent),
            refusal: refusal(&agent, sandbox),
            id: agent.id,
            head: Head::of(instructions.iter()),
            instructions,
            output_schema: agent.output_schema,
            own: Arc::new(Toolset::of(
                capabilities.iter().flat_map(|(_, tools)| tools.iter().cloned()).collect(),
            )),
            capabilities,
            output: OnceLock::new(),
            manifest,
        }
    }

    /// The schema of the final answer, compiled once.
    pub fn output(&self) -> Option<&Schema> {
        let schema = self.output_schema.as_ref()?;
        Some(self.output.get_or_init(|| Schema::compile(schema)))
    }

    /// Whether it has a capability of this id.
    #[must_use]
    pub fn has_capability(&self, id: &str) -> bool {
        self.capabilities.iter().any(|(own, _)| own == id)
    }

    /// The tools of a run: each capability's own, then those discovered for it.
    ///
    /// # Errors
    /// In words, when a session tool is malformed.
    pub fn toolset(&self, session_tools: &[Json]) -> Result<Arc<Toolset>, String> {
        self.tools_with(session_tools, |agent| agent.is_none_or(|agent| agent == self.id))
    }

    /// The same where this agent is a tool of another: discovered tools are its own when they name it.
    ///
    /// # Errors
    /// As [`Definition::toolset`].
    pub fn child_toolset(&self, session_tools: &[Json]) -> Result<Arc<Toolset>, String> {
        self.tools_with(session_tools, |agent| agent == Some(&self.id))
    }

    fn tools_with(
        &self,
        session_tools: &[Json],
        is_ours: impl Fn(Option<&str>) -> bool,
    ) -> Result<Arc<Toolset>, String> {
        if session_tools.is_empty() {
            return Ok(Arc::clone(&self.own));
        }
        let mut all = Vec::new();
        for (id, own) in &self.capabilities {
            all.extend(own.iter().cloned());
            for tool in session_tools {
                if is_ours(text(tool, "agentId")) && text(tool, "capabilityId") == Some(id) {
                    all.push(session_tool(id, tool)?);
                }
            }
        }
        Ok(Arc::new(Toolset::of(all)))
    }
}

/// The agent that a tool is, if it is one. `document` is the tool as the manifest has it.
fn child(tool: &manifest::Tool, document: &Json, sandbox: bool) -> Option<Arc<Definition>> {
    match (tool.agent.as_deref()?, document.get("agent")?) {
        (manifest::Definition::Agent(agent), document) => {
            Some(Arc::new(Definition::of(Arc::new(document.clone()), agent.clone(), sandbox)))
        }
        // Refused below.
        (manifest::Definition::Workflow(_), _) => None,
    }
}

fn documents<'a>(of: &'a Json, key: &str) -> impl Iterator<Item = &'a Json> + use<'a> {
    of.get(key).and_then(Json::as_array).into_iter().flatten()
}

/// What this engine does not do must not be done wrongly: flows as tools, HTTP tools, served skills, discovery of MCP
/// tools, and sandbox tools that nobody here runs. What an agent used as a tool asks for too much is told to its caller
/// when it is called.
fn refusal(agent: &AgentManifest, sandbox: bool) -> Option<TurnFailure> {
    let refuse = |code: &str, what: String| {
        Some(TurnFailure::new(code, format!("{what}, which this engine does not run")))
    };
    for capability in &agent.capabilities {
        let id = &capability.id;
        for tool in &capability.tools {
            if matches!(tool.agent.as_deref(), Some(manifest::Definition::Workflow(_))) {
                return refuse("delegation.engine-only", format!("tool {} is a flow", tool.name));
            }
            if tool.http.is_some() {
                return refuse("execution.failed", format!("tool {} is called over HTTP", tool.name));
            }
        }
        if capability.skills.iter().any(|skill| !skill.files.is_empty()) {
            return refuse("skills.runtime-only", format!("capability {id} has skills with files"));
        }
        if !capability.mcp_servers.is_empty() {
            return refuse("execution.failed", format!("capability {id} has tools of MCP servers"));
        }
        if capability.sandbox.is_some() && !sandbox {
            return refuse("sandbox.runtime-only", format!("capability {id} has sandbox tools"));
        }
    }
    None
}

fn text<'a>(value: &'a Json, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Json::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str) -> Json {
        json!({"name": name, "description": "d", "inputSchema": {"type": "object"}})
    }

    fn manifest(capabilities: Json) -> Arc<Json> {
        Arc::new(json!({"manifestSchemaVersion": 4, "id": "a", "capabilities": capabilities}))
    }

    fn names(set: &Toolset) -> Vec<&str> {
        set.offers.iter().filter_map(|offer| offer["name"].as_str()).collect()
    }

    #[test]
    fn instructions_of_all_capabilities_are_joined_by_a_blank_line() {
        let two = json!([{"id": "x", "type": "agent", "instructions": ["one", "two"]}, {"id": "y", "type": "agent", "instructions": ["three"]}]);
        let head = Definition::read(manifest(two), false).unwrap().head.unwrap();
        assert_eq!(*head.item, *item::instructions("one\n\ntwo\n\nthree"));
        assert!(Definition::read(manifest(json!([])), false).unwrap().head.is_none());
    }

    #[test]
    fn session_tools_follow_the_own_tools_of_their_capability_and_do_not_change_the_hash() {
        let two = json!([{"id": "x", "type": "agent", "tools": [tool("x1")]}, {"id": "y", "type": "agent", "tools": [tool("y1")]}]);
        let definition = Definition::read(manifest(two), false).unwrap();
        let session = [
            json!({"capabilityId": "y", "name": "y__2", "inputSchema": {}}),
            json!({"capabilityId": "x", "name": "x__2", "inputSchema": {}}),
            json!({"agentId": "child", "capabilityId": "x", "name": "no", "inputSchema": {}}),
            json!({"agentId": "a", "capabilityId": "x", "name": "x__3", "inputSchema": {}}),
        ];
        assert_eq!(names(&definition.toolset(&session).unwrap()), ["x1", "x__2", "x__3", "y1", "y__2"]);
        assert_eq!(
            names(&definition.child_toolset(&session).unwrap()),
            ["x1", "x__3", "y1"],
            "as a tool of another"
        );
        assert_eq!(names(&definition.toolset(&[]).unwrap()), ["x1", "y1"]);
        assert_eq!(definition.hash, manifest_hash(&definition.manifest));
    }

    #[test]
    fn a_name_that_a_session_tool_shares_with_another_is_noticed() {
        let one = json!([{"id": "x", "type": "agent", "tools": [tool("t")]}]);
        let definition = Definition::read(manifest(one), false).unwrap();
        let session = [json!({"capabilityId": "x", "name": "t", "inputSchema": {}})];
        assert_eq!(definition.toolset(&session).unwrap().duplicate.as_deref(), Some("t"));
        assert_eq!(definition.toolset(&[]).unwrap().duplicate, None);
    }

    #[test]
    fn a_manifest_is_read_closed_and_a_flow_is_none() {
        let open = json!({"manifestSchemaVersion": 4, "id": "a", "capabilities": [], "x": 1});
        assert!(Definition::read(Arc::new(open), false).unwrap_err().contains('x'));
        assert!(Definition::read(Arc::new(json!({"kind": "workflow"})), false).is_err());
    }

    #[test]
    fn hooks_are_known_by_point_in_manifest_order() {
        let point = |at: &str, scope: &str| json!({"at": at, "scope": scope});
        let two = json!([
            {"id": "y", "type": "agent", "hooks": [point("before", "turn"), point("after", "turn")]},
            {"id": "x", "type": "agent", "hooks": [point("before", "turn"), point("before", "step"), point("after", "step")]},
        ]);
        let hooks = Definition::read(manifest(two), false).unwrap().hooks;
        assert_eq!(hooks.before_turn, ["y", "x"]);
        assert_eq!(
            (&hooks.before_step[..], &hooks.after_step[..]),
            (&["x".to_owned()][..], &["x".to_owned()][..])
        );
        assert_eq!(hooks.after_turn, ["y"]);
        assert!(Definition::read(manifest(json!([])), false).unwrap().hooks.is_empty());
    }

    #[test]
    fn mcp_servers_and_unserved_sandboxes_are_refused() {
        let code = |capability: Json, sandbox| {
            Definition::read(manifest(json!([capability])), sandbox)
                .unwrap()
                .refusal
                .map(|refusal| refusal.code)
        };
        let mcp = json!({"id": "x", "type": "agent", "mcpServers": {"s": {"name": "s", "type": "sse", "url": "http://127.0.0.1/"}}});
        assert_eq!(code(mcp, false).as_deref(), Some("execution.failed"));
        let six = ["bash", "read", "write", "edit", "grep", "glob"].map(tool);
        let sandbox = json!({"id": "x", "type": "agent", "sandbox": {}, "tools": six});
        assert_eq!(code(sandbox.clone(), false).as_deref(), Some("sandbox.runtime-only"));
        assert_eq!(code(sandbox, true), None);
        assert_eq!(code(json!({"id": "x", "type": "agent", "tools": [tool("t")]}), false), None);
    }

    #[test]
    fn an_agent_as_a_tool_is_read_with_it_and_a_flow_as_a_tool_is_refused() {
        let read = |agent: Json| {
            let task = json!({"type": "object", "properties": {"task": {"type": "string", "minLength": 1}},
                "required": ["task"], "additionalProperties": false});
            let tool = json!({"name": "c", "description": "d", "inputSchema": task, "agent": agent});
            Definition::read(manifest(json!([{"id": "x", "type": "agent", "tools": [tool]}])), false).unwrap()
        };
        let six = ["bash", "read", "write", "edit", "grep", "glob"].map(tool);
        let agent = json!({"manifestSchemaVersion": 4, "id": "c", "description": "d", "capabilities": [
            {"id": "y", "type": "agent", "sandbox": {}, "tools": six}]});
        let definition = read(agent.clone());
        assert_eq!(definition.refusal, None, "what its child lacks is told when it is called");
        let child = definition.toolset(&[]).unwrap().get("c").unwrap().agent.clone().unwrap();
        assert_eq!((child.id.as_str(), &*child.manifest, &child.hash), ("c", &agent, &manifest_hash(&agent)));
        assert_eq!(child.refusal.as_ref().unwrap().code, "sandbox.runtime-only");
        let flow = json!({"kind": "workflow", "workflowSchemaVersion": 2, "id": "c", "description": "d",
            "root": {"chain": [{"tool": {"name": "t"}}]}, "agents": {}});
        assert_eq!(read(flow).refusal.unwrap().code, "delegation.engine-only");
    }

    #[test]
    fn http_tools_and_served_skills_of_newer_manifests_are_refused() {
        let code = |capability: Json| {
            let document = json!({"manifestSchemaVersion": 5, "id": "a", "capabilities": [capability]});
            Definition::read(Arc::new(document), false).unwrap().refusal.map(|refusal| refusal.code)
        };
        let mut http = tool("t");
        http["http"] = json!({"url": "http://127.0.0.1/"});
        assert_eq!(
            code(json!({"id": "x", "type": "agent", "tools": [http]})).as_deref(),
            Some("execution.failed")
        );
        let files = json!({"SKILL.md": format!("sha256:{}", "0".repeat(64))});
        let skills = json!({"s": {"name": "s", "description": "d", "files": files}});
        assert_eq!(
            code(json!({"id": "x", "type": "agent", "skills": skills})).as_deref(),
            Some("skills.runtime-only")
        );
        assert_eq!(code(json!({"id": "x", "type": "agent", "tools": [tool("t")]})), None);
    }
}
