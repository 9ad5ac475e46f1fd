//! Agent and workflow manifests: what a definition is made of, read closed at every level and with all its problems
//! reported at once (spec: engine, sections 1 and 2; http-api, sections 5.3 and 5.4).
//!
//! [`parse`] is the only way to a [`Definition`]. The document itself stays the identity (its hash is
//! [`manifest_hash`](super::canonical::manifest_hash)); the types here are a reading of it for the code that acts on it.

mod agent;
mod issue;
mod parts;
mod reader;
mod sandbox;
mod tool;
mod variant;
mod workflow;

use super::json::Json;

pub use agent::{AgentManifest, Capability, CapabilityType};
pub use issue::{Issue, PathItem};
pub use parts::{
    Approval, HookAt, HookPoint, HookScope, HttpMethod, HttpTarget, McpServer, McpTransport, NamedValues,
    Skill, SkillFile,
};
pub use sandbox::{
    NetworkPreset, SANDBOX_TOOLS, SandboxManifest, is_host_pattern, parse_duration_ms, parse_size_bytes,
};
pub use tool::Tool;
pub use variant::is_variant;
pub use workflow::{Body, Node, StageTool, Verify, WorkflowManifest};

use reader::Reader;

/// A definition: what a session is opened for.
#[derive(Clone, Debug, PartialEq)]
pub enum Definition {
    /// One agent.
    Agent(AgentManifest),
    /// A flow of agents, tools and functions.
    Workflow(Box<WorkflowManifest>),
}

/// Reads a manifest: agents of schema 4 and 5, workflows of schema 1, 2 and 3.
///
/// # Errors
/// Every problem of the document, in document order as far as one pass finds them; at most
/// [`MANIFEST_ISSUES`](crate::limits::MANIFEST_ISSUES), the last of which then counts the rest.
pub fn parse(document: &Json) -> Result<Definition, Vec<Issue>> {
    let mut reader = Reader::new();
    let definition = reader.deeper(|reader| Definition::read(reader, document)).flatten();
    reader.finish(definition)
}

/// The two lines of manifests: documents of one line embed only documents of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Agent schema 4 and workflow schema 2: with hooks, developer functions and stdio servers.
    Functions,
    /// Agent schema 5 and workflow schema 3: without them, with HTTP tools.
    Http,
}

impl Line {
    fn agent_version(self) -> u8 {
        match self {
            Self::Functions => 4,
            Self::Http => 5,
        }
    }

    fn workflow_version(self) -> u8 {
        match self {
            Self::Functions => 2,
            Self::Http => 3,
        }
    }
}

impl Definition {
    fn workflow(workflow: WorkflowManifest) -> Self {
        Self::Workflow(Box::new(workflow))
    }

    /// The definition's id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Agent(agent) => &agent.id,
            Self::Workflow(workflow) => &workflow.id,
        }
    }

    /// Its name for people.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Agent(agent) => agent.name.as_deref(),
            Self::Workflow(workflow) => workflow.name.as_deref(),
        }
    }

    /// What it is for.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        match self {
            Self::Agent(agent) => agent.description.as_deref(),
            Self::Workflow(workflow) => workflow.description.as_deref(),
        }
    }

    /// Each place that declares a sandbox, named for a person: a registration refuses them all (http-api 5.1).
    #[must_use]
    pub fn declares_sandbox(&self) -> Vec<String> {
        let mut places = Vec::new();
        self.sandbox_places("", &mut places);
        places
    }

    fn sandbox_places(&self, above: &str, places: &mut Vec<String>) {
        match self {
            Self::Agent(agent) => {
                let here = format!("{above}agent \"{}\"", agent.id);
                for capability in &agent.capabilities {
                    if capability.sandbox.is_some() {
                        places.push(format!("{here}, capability \"{}\"", capability.id));
                    }
                    for child in capability.tools.iter().filter_map(|tool| tool.agent.as_deref()) {
                        child.sandbox_places(&format!("{here} > "), places);
                    }
                }
            }
            Self::Workflow(workflow) => {
                let here = format!("{above}workflow \"{}\"", workflow.id);
                if workflow.sandbox.is_some() {
                    places.push(here.clone());
                }
                for child in &workflow.agents {
                    child.sandbox_places(&format!("{here} > "), places);
                }
            }
        }
    }

    /// Reads a document of any version.
    fn read<'a>(reader: &mut Reader<'a>, document: &'a Json) -> Option<Self> {
        let map = reader.map(document)?;
        let workflow = is_workflow(document);
        let key = version_key(workflow);
        let version = map.get(key).and_then(Json::as_f64);
        match (workflow, version) {
            (false, Some(4.0)) => AgentManifest::read(reader, document, Line::Functions).map(Self::Agent),
            (false, Some(5.0)) => AgentManifest::read(reader, document, Line::Http).map(Self::Agent),
            (true, Some(1.0)) => WorkflowManifest::read_v1(reader, document).map(Self::workflow),
            (true, Some(2.0)) => {
                WorkflowManifest::read(reader, document, Line::Functions).map(Self::workflow)
            }
            (true, Some(3.0)) => WorkflowManifest::read(reader, document, Line::Http).map(Self::workflow),
            _ => {
                let known = if workflow { "1, 2 and 3" } else { "4 and 5" };
                let found = shown(map.get(key));
                reader.issue_at(
                    key,
                    "invalid_value",
                    format!("{key} is {found}; this Runtime reads {known}"),
                );
                None
            }
        }
    }

    /// Reads a document inside another one: an agent or a flow of the same line.
    fn read_embedded<'a>(reader: &mut Reader<'a>, document: &'a Json, line: Line) -> Option<Self> {
        let map = reader.map(document)?;
        let workflow = is_workflow(document);
        let key = version_key(workflow);
        let expected = if workflow { line.workflow_version() } else { line.agent_version() };
        if map.get(key).and_then(Json::as_f64) != Some(f64::from(expected)) {
            let found = shown(map.get(key));
            let mut message = format!("{key} is {found}, but inside this document it must be {expected}");
            if let Some(change) = changed(line, workflow, map.get(key)) {
                message.push_str("; ");
                message.push_str(change);
            }
            reader.issue_at(key, "invalid_value", message);
            return None;
        }
        reader
            .deeper(|reader| {
                if workflow {
                    WorkflowManifest::read(reader, document, line).map(Self::workflow)
                } else {
                    AgentManifest::read(reader, document, line).map(Self::Agent)
                }
            })
            .flatten()
    }
}

/// A document is a workflow only when `kind` is exactly that.
fn is_workflow(document: &Json) -> bool {
    document.get("kind").and_then(Json::as_str) == Some("workflow")
}

fn version_key(workflow: bool) -> &'static str {
    if workflow { "workflowSchemaVersion" } else { "manifestSchemaVersion" }
}

/// A value as a message shows it.
fn shown(value: Option<&Json>) -> String {
    match value {
        None => "missing".to_owned(),
        Some(Json::Number(number)) => number.to_string(),
        Some(Json::String(text)) => format!("\"{text:.40}\""),
        Some(_) => "not a number".to_owned(),
    }
}

/// What a newer document has lost against an older one inside it.
fn changed(line: Line, workflow: bool, version: Option<&Json>) -> Option<&'static str> {
    let version = version.and_then(Json::as_f64)?;
    match (line, workflow) {
        (Line::Http, true) if version < 3.0 => Some(
            "version 3 has no developer functions: no input, on, over, decide or {fn: true}; build the flow again",
        ),
        (Line::Functions, true) if version < 2.0 => Some(
            "since version 2 a flow embeds its agents and its nodes carry their ids; build the flow again",
        ),
        (Line::Http, false) if version < 5.0 => {
            Some("schema 5 has no hooks and no stdio servers; build the agent again")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
