//! A manifest as the loop reads it: instructions, tools with their schemas, and what this engine refuses
//! (spec: engine, sections 1 and 4.3).

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use nylorun_actors::model::Json;
use nylorun_actors::model::canonical::{canonical, manifest_hash};
use serde_json::json;

use super::errors::TurnFailure;
use super::schema::Schema;
use super::state::{Descriptor, Reference};
use crate::engine::model::call::PromptItem;
use crate::engine::model::item;

/// A tool that a model may call.
#[derive(Debug)]
pub struct Tool {
    /// Capability and descriptor, as a saved call keeps them.
    pub reference: Reference,
    input: OnceLock<Schema>,
    output: OnceLock<Schema>,
}

impl Tool {
    /// The schema of its arguments, compiled once.
    pub fn input(&self) -> &Schema {
        self.input.get_or_init(|| Schema::compile(&self.reference.descriptor.input_schema))
    }

    /// The schema of its output, compiled once.
    pub fn output(&self) -> Option<&Schema> {
        let schema = self.reference.descriptor.output_schema.as_ref()?;
        Some(self.output.get_or_init(|| Schema::compile(schema)))
    }
}

/// The tools on offer in one run.
#[derive(Debug, Default)]
pub struct Toolset {
    tools: Vec<Arc<Tool>>,
    by_name: HashMap<String, usize>,
    /// `{name, description?, inputSchema}` each, for the model.
    pub offers: Vec<Arc<Json>>,
    /// The canonical text of `offers`.
    pub offers_text: String,
    /// The first name that two tools share.
    pub duplicate: Option<String>,
}

impl Toolset {
    /// The tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_name.get(name).map(|at| &self.tools[*at])
    }

    fn of(tools: Vec<Arc<Tool>>) -> Self {
        let mut set = Self::default();
        for (at, tool) in tools.iter().enumerate() {
            let descriptor = &tool.reference.descriptor;
            if set.by_name.insert(descriptor.name.clone(), at).is_some() && set.duplicate.is_none() {
                set.duplicate = Some(descriptor.name.clone());
            }
            let mut offer = json!({"name": descriptor.name});
            if let Some(description) = &descriptor.description {
                offer["description"] = json!(description);
            }
            offer["inputSchema"] = descriptor.input_schema.as_ref().clone();
            set.offers.push(Arc::new(offer));
        }
        let texts: Vec<_> = set.offers.iter().map(|offer| canonical(offer)).collect();
        set.offers_text = format!("[{}]", texts.join(","));
        set.tools = tools;
        set
    }
}

/// The instructions of a prompt and their canonical text.
#[derive(Clone, Debug)]
pub struct Head {
    /// The item.
    pub item: PromptItem,
    /// Its canonical text.
    pub text: String,
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
    /// The instructions; absent when there are none.
    pub head: Option<Head>,
    /// The schema of the final answer.
    pub output_schema: Option<Arc<Json>>,
    /// Why an engine of this part cannot run it.
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
        if !matches!(manifest.get("manifestSchemaVersion").and_then(Json::as_u64), Some(4 | 5)) {
            return Err("the manifest has an unknown schema version".to_owned());
        }
        let id = text(&manifest, "id").ok_or("the manifest has no id")?.to_owned();
        let list = manifest
            .get("capabilities")
            .and_then(Json::as_array)
            .ok_or("the manifest has no capabilities")?;
        let (mut instructions, mut capabilities) = (Vec::new(), Vec::new());
        for capability in list {
            let capability_id = text(capability, "id").ok_or("a capability has no id")?;
            instructions.extend(items(capability, "instructions").filter_map(Json::as_str));
            let tools: Result<Vec<_>, _> =
                items(capability, "tools").map(|tool| read_tool(capability_id, tool)).collect();
            capabilities.push((capability_id.to_owned(), tools?));
        }
        let head = (!instructions.is_empty()).then(|| {
            let item = item::instructions(&instructions.join("\n\n"));
            Head { text: canonical(&item), item }
        });
        Ok(Self {
            hash: manifest_hash(&manifest),
            id,
            head,
            output_schema: manifest.get("outputSchema").cloned().map(Arc::new),
            refusal: refusal(list, sandbox),
            own: Arc::new(Toolset::of(
                capabilities.iter().flat_map(|(_, tools)| tools.iter().cloned()).collect(),
            )),
            capabilities,
            output: OnceLock::new(),
            manifest,
        })
    }

    /// The schema of the final answer, compiled once.
    pub fn output(&self) -> Option<&Schema> {
        let schema = self.output_schema.as_ref()?;
        Some(self.output.get_or_init(|| Schema::compile(schema)))
    }

    /// The tools of a run: each capability's own, then those discovered for it.
    ///
    /// # Errors
    /// In words, when a session tool is malformed.
    pub fn toolset(&self, session_tools: &[Json]) -> Result<Arc<Toolset>, String> {
        if session_tools.is_empty() {
            return Ok(Arc::clone(&self.own));
        }
        let mut all = Vec::new();
        for (id, own) in &self.capabilities {
            all.extend(own.iter().cloned());
            for tool in session_tools {
                let ours = text(tool, "agentId").is_none_or(|agent| agent == self.id);
                if ours && text(tool, "capabilityId") == Some(id) {
                    all.push(read_tool(id, tool)?);
                }
            }
        }
        Ok(Arc::new(Toolset::of(all)))
    }
}

/// What this engine does not do must not be done wrongly: hooks, agents as tools, discovery of MCP tools, and sandbox
/// tools that nobody here runs.
fn refusal(capabilities: &[Json], sandbox: bool) -> Option<TurnFailure> {
    for capability in capabilities {
        let id = text(capability, "id").unwrap_or("");
        if items(capability, "hooks").next().is_some() {
            return Some(TurnFailure::new(
                "execution.failed",
                format!("capability {id} has hooks; this engine runs none"),
            ));
        }
        if let Some(tool) = items(capability, "tools").find(|tool| tool.get("agent").is_some()) {
            let name = text(tool, "name").unwrap_or("");
            let message = format!("tool {name} is an agent; this engine runs no agents as tools");
            return Some(TurnFailure::new("delegation.engine-only", message));
        }
        if capability.get("mcpServers").and_then(Json::as_object).is_some_and(|servers| !servers.is_empty()) {
            let message = format!("capability {id} has MCP servers; this engine discovers no MCP tools");
            return Some(TurnFailure::new("execution.failed", message));
        }
        if capability.get("sandbox").is_some() && !sandbox {
            let message = format!("capability {id} has a sandbox; this engine runs no sandbox tools");
            return Some(TurnFailure::new("sandbox.runtime-only", message));
        }
    }
    None
}

fn read_tool(capability_id: &str, tool: &Json) -> Result<Arc<Tool>, String> {
    let name = text(tool, "name").ok_or("a tool has no name")?;
    let input = tool.get("inputSchema").ok_or_else(|| format!("tool {name} has no input schema"))?;
    Ok(Arc::new(Tool {
        reference: Reference {
            capability_id: capability_id.to_owned(),
            tool_name: name.to_owned(),
            descriptor: Descriptor {
                name: name.to_owned(),
                description: text(tool, "description").map(str::to_owned),
                input_schema: Arc::new(input.clone()),
                output_schema: tool.get("outputSchema").cloned().map(Arc::new),
            },
        },
        input: OnceLock::new(),
        output: OnceLock::new(),
    }))
}

fn text<'a>(value: &'a Json, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Json::as_str)
}

fn items<'a>(value: &'a Json, key: &str) -> impl Iterator<Item = &'a Json> {
    value.get(key).and_then(Json::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
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
        ];
        assert_eq!(names(&definition.toolset(&session).unwrap()), ["x1", "x__2", "y1", "y__2"]);
        assert_eq!(names(&definition.toolset(&[]).unwrap()), ["x1", "y1"]);
        assert_eq!(definition.hash, manifest_hash(&definition.manifest));
    }

    #[test]
    fn a_name_that_two_tools_share_is_noticed() {
        let twice = json!([{"id": "x", "type": "agent", "tools": [tool("t"), tool("t")]}]);
        let definition = Definition::read(manifest(twice), false).unwrap();
        assert_eq!(definition.toolset(&[]).unwrap().duplicate.as_deref(), Some("t"));
    }

    #[test]
    fn hooks_agents_as_tools_mcp_servers_and_unserved_sandboxes_are_refused() {
        let code = |capability: Json, sandbox| {
            Definition::read(manifest(json!([capability])), sandbox)
                .unwrap()
                .refusal
                .map(|refusal| refusal.code)
        };
        let hooks = json!({"id": "x", "type": "agent", "hooks": [{"at": "before", "scope": "turn"}]});
        assert_eq!(code(hooks, false).as_deref(), Some("execution.failed"));
        let child =
            json!({"id": "x", "type": "agent", "tools": [{"name": "c", "inputSchema": {}, "agent": {}}]});
        assert_eq!(code(child, false).as_deref(), Some("delegation.engine-only"));
        let mcp = json!({"id": "x", "type": "agent", "mcpServers": {"s": {}}});
        assert_eq!(code(mcp, false).as_deref(), Some("execution.failed"));
        let sandbox = json!({"id": "x", "type": "agent", "sandbox": {}});
        assert_eq!(code(sandbox.clone(), false).as_deref(), Some("sandbox.runtime-only"));
        assert_eq!(code(sandbox, true), None);
        assert_eq!(code(json!({"id": "x", "type": "agent", "tools": [tool("t")]}), false), None);
    }
}
