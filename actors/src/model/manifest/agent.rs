//! Agent manifests of schema 4 and 5 (spec: engine, sections 1.1 and 1.2; http-api, section 5.3).

use std::collections::HashSet;
use std::sync::Arc;

use super::parts::{HookPoint, McpServer, Skill};
use super::reader::Reader;
use super::sandbox::{SANDBOX_TOOLS, SandboxManifest};
use super::{Line, Tool};
use crate::model::json::{Json, JsonMap};

/// One agent: what it is told and what it may use. It names no model, credential or provider.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentManifest {
    /// `manifestSchemaVersion`: 4 or 5.
    pub schema_version: u8,
    /// The definition's id.
    pub id: String,
    /// For people.
    pub name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Anything.
    pub metadata: Option<Arc<JsonMap>>,
    /// JSON Schema of a structured answer.
    pub output_schema: Option<Arc<Json>>,
    /// In the order of the document, with unique ids.
    pub capabilities: Vec<Capability>,
}

/// What a capability is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapabilityType {
    /// A block of the agent itself.
    Agent,
    /// A plugin.
    AgentPlugin,
}

/// A named block of instructions, tools, skills, servers and hooks.
#[derive(Clone, Debug, PartialEq)]
pub struct Capability {
    /// Unique in the manifest; `agent` is the agent's own block.
    pub id: String,
    /// What it is.
    pub kind: CapabilityType,
    /// For people.
    pub name: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// Anything.
    pub metadata: Option<Arc<JsonMap>>,
    /// Parts of the system prompt.
    pub instructions: Vec<String>,
    /// In the order of the document; names are unique in the manifest.
    pub tools: Vec<Tool>,
    /// In the order of the document; names are unique in the manifest.
    pub skills: Vec<Skill>,
    /// In the order of the document; names are unique in the manifest.
    pub mcp_servers: Vec<McpServer>,
    /// At most one capability has one.
    pub sandbox: Option<SandboxManifest>,
    /// In the order of a turn (schema 4).
    pub hooks: Vec<HookPoint>,
}

const TOP: [&str; 8] = [
    "manifestSchemaVersion",
    "id",
    "name",
    "description",
    "metadata",
    "outputSchema",
    "capabilities",
    "runtime",
];

impl AgentManifest {
    /// The capability and the tool of a tool's name.
    #[must_use]
    pub fn tool_owner(&self, name: &str) -> Option<(&Capability, &Tool)> {
        self.capabilities.iter().find_map(|capability| {
            Some((capability, capability.tools.iter().find(|tool| tool.name == name)?))
        })
    }

    /// The capability of an id.
    #[must_use]
    pub fn capability(&self, id: &str) -> Option<&Capability> {
        self.capabilities.iter().find(|capability| capability.id == id)
    }

    /// Whether a tool of it is another agent.
    #[must_use]
    pub fn delegates(&self) -> bool {
        self.capabilities.iter().any(|capability| capability.tools.iter().any(|tool| tool.agent.is_some()))
    }

    /// Reads a manifest whose version is known to be that of `line`.
    pub(super) fn read<'a>(reader: &mut Reader<'a>, document: &'a Json, line: Line) -> Option<Self> {
        let map = reader.object(document, &TOP, |key| {
            (key == "kind").then_some("an agent has no kind, and a workflow's kind is exactly \"workflow\"")
        })?;
        let id = reader.field(map, "id", Reader::name);
        let name = reader.optional(map, "name", Reader::name);
        let description = reader.optional(map, "description", Reader::text);
        let metadata = reader.optional(map, "metadata", Reader::metadata);
        let output_schema = reader.optional(map, "outputSchema", Reader::schema);
        let capabilities = reader.field(map, "capabilities", |reader, capabilities| {
            // The raw items, so that an item that cannot be read shifts no index in what is reported.
            check_names(reader, capabilities);
            reader.list(capabilities, |reader, capability| Capability::read(reader, capability, line))
        });
        reader.optional(map, "runtime", |reader, runtime| {
            if reader.map(runtime).is_some_and(|runtime| !runtime.is_empty()) {
                reader.issue("unrecognized_keys", "runtime is reserved and must be empty");
            }
            Some(())
        });
        Some(Self {
            schema_version: line.agent_version(),
            id: id?,
            name,
            description,
            metadata,
            output_schema,
            capabilities: capabilities?,
        })
    }
}

/// What must be unique over the whole manifest.
fn check_names<'a>(reader: &mut Reader<'a>, capabilities: &'a Json) {
    let (mut ids, mut tools, mut skills, mut servers) =
        (HashSet::new(), HashSet::new(), HashSet::new(), HashSet::new());
    let mut sandbox = false;
    for (i, capability) in capabilities.as_array().into_iter().flatten().enumerate() {
        reader.within(i, |reader| {
            if let Some(id) = capability.get("id").and_then(Json::as_str) {
                reader.within("id", |reader| reader.unique(&mut ids, id, "capability id"));
            }
            let listed = capability.get("tools").and_then(Json::as_array);
            for (i, tool) in listed.into_iter().flatten().enumerate() {
                let Some(name) = tool.get("name").and_then(Json::as_str) else { continue };
                reader.within("tools", |reader| {
                    reader.within(i, |reader| {
                        reader.within("name", |reader| reader.unique(&mut tools, name, "tool name"));
                    });
                });
            }
            for (member, names, what) in
                [("skills", &mut skills, "skill"), ("mcpServers", &mut servers, "MCP server")]
            {
                let entries = capability.get(member).and_then(Json::as_object);
                for name in entries.into_iter().flat_map(JsonMap::keys) {
                    reader.within(member, |reader| {
                        reader.within(name.as_str(), |reader| reader.unique(names, name, what));
                    });
                }
            }
            if capability.get("sandbox").is_some() && std::mem::replace(&mut sandbox, true) {
                reader.issue_at("sandbox", "custom", "at most one capability may have a sandbox");
            }
        });
    }
}

impl Capability {
    fn read<'a>(reader: &mut Reader<'a>, value: &'a Json, line: Line) -> Option<Self> {
        let allowed = [
            "id",
            "type",
            "name",
            "description",
            "metadata",
            "instructions",
            "skills",
            "tools",
            "mcpServers",
            "sandbox",
            "hooks",
        ];
        let allowed = if line == Line::Http { &allowed[..10] } else { &allowed };
        let map = reader.object(value, allowed, |key| {
            (key == "hooks").then_some("schema 5 has no hooks; they belong to schema 4")
        })?;
        let types = [("agent", CapabilityType::Agent), ("agent-plugin", CapabilityType::AgentPlugin)];
        let id = reader.field(map, "id", Reader::name);
        let kind = reader.field(map, "type", |reader, kind| reader.word(kind, &types));
        let name = reader.optional(map, "name", Reader::name);
        let description = reader.optional(map, "description", Reader::text);
        let metadata = reader.optional(map, "metadata", Reader::metadata);
        let instructions =
            reader.optional(map, "instructions", |reader, texts| reader.list(texts, Reader::text));
        let skills = reader.optional(map, "skills", |reader, skills| {
            reader.some_entries(skills, |reader, key, skill| Skill::read(reader, key, skill, line))
        });
        let tools = reader.optional(map, "tools", |reader, tools| {
            reader.list(tools, |reader, tool| Tool::read(reader, tool, line))
        });
        let mcp_servers = reader.optional(map, "mcpServers", |reader, servers| {
            reader.some_entries(servers, |reader, key, server| McpServer::read(reader, key, server, line))
        });
        let sandbox = reader.optional(map, "sandbox", SandboxManifest::read);
        if map.contains_key("sandbox") {
            let listed = map.get("tools").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
            let lists =
                |name: &str| listed.iter().any(|tool| tool.get("name").is_some_and(|found| found == name));
            let missing: Vec<&str> = SANDBOX_TOOLS.into_iter().filter(|name| !lists(name)).collect();
            if !missing.is_empty() {
                let missing = missing.join(", ");
                reader.issue(
                    "custom",
                    format!("a capability with a sandbox must list its tools: {missing} missing"),
                );
            }
        }
        let hooks = match line {
            Line::Functions => reader.optional(map, "hooks", HookPoint::read_all),
            Line::Http => None,
        };
        Some(Self {
            id: id?,
            kind: kind?,
            name,
            description,
            metadata,
            instructions: instructions.unwrap_or_default(),
            tools: tools.unwrap_or_default(),
            skills: skills.unwrap_or_default(),
            mcp_servers: mcp_servers.unwrap_or_default(),
            sandbox,
            hooks: hooks.unwrap_or_default(),
        })
    }
}
