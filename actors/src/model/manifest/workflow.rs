//! Workflow manifests of schema 1, 2 and 3: the header; `nodes` reads the tree (spec: engine, section 2;
//! http-api, section 5.4).

mod nodes;

use std::sync::Arc;

use super::parts::HttpTarget;
use super::reader::{Reader, no_hint};
use super::sandbox::SandboxManifest;
use super::{Definition, Line};
use crate::model::json::{Json, JsonMap};

/// A flow.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkflowManifest {
    /// `workflowSchemaVersion`: 1, 2 or 3.
    pub schema_version: u8,
    /// The definition's id.
    pub id: String,
    /// For people.
    pub name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Anything.
    pub metadata: Option<Arc<JsonMap>>,
    /// JSON Schema of its input.
    pub input_schema: Option<Arc<Json>>,
    /// JSON Schema of its output.
    pub output_schema: Option<Arc<Json>>,
    /// Its sandbox.
    pub sandbox: Option<SandboxManifest>,
    /// The tree of stages.
    pub root: Node,
    /// The embedded agents and flows, in the order of the document. Empty in version 1, whose agents are
    /// definitions of their own.
    pub agents: Vec<Definition>,
}

/// One node of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its id, if it has one.
    pub id: Option<String>,
    /// Whether a developer function makes its input (version 1: slots only; version 2; never in version 3).
    pub input: bool,
    /// What it does.
    pub body: Body,
}

/// What a node does. Children keep the order of the document.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Runs an agent by its id.
    Agent(String),
    /// Calls a tool.
    Tool(StageTool),
    /// One after the other; at least one.
    Chain(Vec<Node>),
    /// One of several.
    Switch {
        /// Whether a developer function chooses; otherwise the previous output does.
        on: bool,
        /// By case name.
        cases: Vec<(String, Node)>,
        /// When no case fits.
        default: Option<Box<Node>>,
    },
    /// All at once.
    Parallel(Vec<(String, Node)>),
    /// Once for each item.
    Map {
        /// Whether a developer function gives the items (version 1).
        over: bool,
        /// For each item.
        each: Box<Node>,
    },
    /// Again and again.
    Loop {
        /// The work.
        run: Box<Node>,
        /// Who judges it.
        verify: Verify,
        /// Most rounds, at least 1.
        max: Option<u32>,
        /// Whether a developer function decides on another round.
        decide: bool,
    },
    /// A node with a prepared input (version 1).
    Slot(Box<Node>),
}

/// Who judges a round of a loop.
#[derive(Clone, Debug, PartialEq)]
pub enum Verify {
    /// A developer function.
    Function,
    /// An agent (in version 1 a slot, too).
    Node(Box<Node>),
    /// An HTTP endpoint (version 3).
    Http(HttpTarget),
}

/// A tool of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct StageTool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// JSON Schema of its input.
    pub input_schema: Option<Arc<Json>>,
    /// JSON Schema of its output.
    pub output_schema: Option<Arc<Json>>,
    /// The HTTP endpoint that this tool is (version 3).
    pub http: Option<HttpTarget>,
}

impl WorkflowManifest {
    /// The embedded agent or flow of an id.
    #[must_use]
    pub fn agent(&self, id: &str) -> Option<&Definition> {
        self.agents.iter().find(|agent| agent.id() == id)
    }

    /// Reads a document of version 1.
    pub(super) fn read_v1<'a>(reader: &mut Reader<'a>, document: &'a Json) -> Option<Self> {
        let allowed = ["kind", "workflowSchemaVersion", "id", "root", "sandbox"];
        let map = reader.object(document, &allowed, no_hint)?;
        let id = reader.field(map, "id", Reader::name);
        let root = reader.field(map, "root", nodes::read_v1);
        let sandbox = reader.optional(map, "sandbox", SandboxManifest::read);
        Some(Self {
            schema_version: 1,
            id: id?,
            name: None,
            description: None,
            metadata: None,
            input_schema: None,
            output_schema: None,
            sandbox,
            root: root?,
            agents: Vec::new(),
        })
    }

    /// Reads a document of version 2 or 3, which is known to be that of `line`.
    pub(super) fn read<'a>(reader: &mut Reader<'a>, document: &'a Json, line: Line) -> Option<Self> {
        let allowed = [
            "kind",
            "workflowSchemaVersion",
            "id",
            "name",
            "description",
            "metadata",
            "inputSchema",
            "outputSchema",
            "sandbox",
            "root",
            "agents",
        ];
        let map = reader.object(document, &allowed, no_hint)?;
        let id = reader.field(map, "id", Reader::name);
        let name = reader.optional(map, "name", Reader::name);
        let description = reader.optional(map, "description", Reader::text);
        let metadata = reader.optional(map, "metadata", Reader::metadata);
        let input_schema = reader.optional(map, "inputSchema", Reader::schema);
        let output_schema = reader.optional(map, "outputSchema", Reader::schema);
        let sandbox = reader.optional(map, "sandbox", SandboxManifest::read);
        let embedded = map.get("agents").and_then(Json::as_object);
        let root = reader.field(map, "root", |reader, root| nodes::read(reader, root, line, embedded));
        let agents = reader.field(map, "agents", |reader, agents| {
            reader.entries(agents, |reader, key, agent| {
                let id = agent.get("id").and_then(Json::as_str);
                if id.is_some_and(|id| id != key) {
                    reader.issue_at("id", "custom", format!("must equal its key \"{key}\""));
                }
                Definition::read_embedded(reader, agent, line)
            })
        });
        Some(Self {
            schema_version: line.workflow_version(),
            id: id?,
            name,
            description,
            metadata,
            input_schema,
            output_schema,
            sandbox,
            root: root?,
            agents: agents?,
        })
    }
}
