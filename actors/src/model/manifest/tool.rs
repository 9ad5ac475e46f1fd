//! Tools of a capability, and the rules of a tool that is another agent (spec: engine, section 1.3).

use std::sync::Arc;

use super::parts::{APPROVALS, Approval, HttpTarget};
use super::reader::Reader;
use super::{Definition, Line};
use crate::model::json::Json;

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Unique in the manifest.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// JSON Schema of its input.
    pub input_schema: Arc<Json>,
    /// JSON Schema of its output.
    pub output_schema: Option<Arc<Json>>,
    /// The agent that this tool is.
    pub agent: Option<Box<Definition>>,
    /// The HTTP endpoint that this tool is (schema 5).
    pub http: Option<HttpTarget>,
    /// Whether calls of an HTTP tool wait for a person (schema 5).
    pub approval: Approval,
}

impl Tool {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, value: &'a Json, line: Line) -> Option<Self> {
        let allowed = ["name", "description", "inputSchema", "outputSchema", "agent", "http", "approval"];
        let allowed = if line == Line::Functions { &allowed[..5] } else { &allowed };
        let map = reader.object(value, allowed, |key| {
            matches!(key, "http" | "approval")
                .then_some("HTTP tools and approvals need manifestSchemaVersion 5")
        })?;
        let name = reader.field(map, "name", Reader::name);
        let description = reader.optional(map, "description", Reader::text);
        let input_schema = reader.field(map, "inputSchema", Reader::schema);
        let output_schema = reader.optional(map, "outputSchema", Reader::schema);
        let agent = reader
            .optional(map, "agent", |reader, agent| Definition::read_embedded(reader, agent, line))
            .map(Box::new);
        let (mut http, mut approval) = (None, Approval::Never);
        if line == Line::Http {
            http = reader.optional(map, "http", HttpTarget::read);
            approval = reader
                .optional(map, "approval", |reader, value| reader.word(value, &APPROVALS))
                .unwrap_or_default();
            if approval == Approval::Always && !map.contains_key("http") {
                reader.issue_at("approval", "custom", "only calls of an HTTP tool can wait for approval");
            }
            if map.contains_key("http") && map.contains_key("agent") {
                reader.issue_at("http", "custom", "a tool is either an agent or an HTTP endpoint");
            }
        }
        if map.contains_key("agent") && map.contains_key("outputSchema") {
            reader.issue_at("outputSchema", "custom", "a tool that is an agent has no outputSchema");
        }
        let tool = Self {
            name: name?,
            description,
            input_schema: input_schema?,
            output_schema,
            agent,
            http,
            approval,
        };
        tool.check_agent(reader);
        Some(tool)
    }

    /// What a tool that is an agent must have in common with it.
    fn check_agent(&self, reader: &mut Reader<'_>) {
        let Some(child) = &self.agent else { return };
        if self.name != child.id() {
            reader.issue_at("name", "custom", format!("must equal the agent's id \"{}\"", child.id()));
        }
        let blank = |text: &str| text.trim().is_empty();
        match child.description() {
            Some(description) if !blank(description) => {
                if self.description.as_deref() != Some(description) {
                    reader.issue_at("description", "custom", "must equal the agent's description");
                }
            }
            _ => reader.within("agent", |reader| {
                reader.issue_at("description", "custom", "an agent used as a tool needs a description");
            }),
        }
        if !is_task_schema(&self.input_schema) {
            let schema =
                "an object with the one required property \"task\", a string of at least one character";
            reader.issue_at(
                "inputSchema",
                "custom",
                format!("the input of an agent used as a tool is {schema}"),
            );
        }
        if let Definition::Agent(agent) = child.as_ref()
            && agent.delegates()
        {
            reader.issue_at(
                "agent",
                "custom",
                "an agent used as a tool may not use agents as tools; a flow may",
            );
        }
    }
}

/// Whether `schema` is the standard input of an agent used as a tool. Texts for people do not count.
fn is_task_schema(schema: &Json) -> bool {
    let members = |schema: &Json, expected: &[&str]| {
        schema.as_object().is_some_and(|map| {
            let counted = |key: &&String| !matches!(key.as_str(), "description" | "$schema");
            map.keys().filter(counted).all(|key| expected.contains(&key.as_str()))
                && expected.iter().all(|key| map.contains_key(*key))
        })
    };
    let properties = &schema["properties"];
    let task = &properties["task"];
    members(schema, &["type", "properties", "required", "additionalProperties"])
        && schema["type"] == "object"
        && schema["required"].as_array().is_some_and(|required| required.len() == 1 && required[0] == "task")
        && schema["additionalProperties"] == false
        && properties.as_object().is_some_and(|properties| properties.len() == 1)
        && members(task, &["type", "minLength"])
        && task["type"] == "string"
        && task["minLength"].as_f64() == Some(1.0)
}
