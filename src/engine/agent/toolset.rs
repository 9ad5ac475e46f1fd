//! The tools of an agent as a model is offered them and as calls of them are checked (spec: engine, section 4.3).

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use nylorun_actors::model::Json;
use nylorun_actors::model::canonical::canonical;
use nylorun_actors::model::manifest;
use serde_json::json;

use super::definition::Definition;
use super::errors::TurnFailure;
use super::schema::Schema;
use super::state::{Descriptor, Reference};

/// A tool that a model may call.
#[derive(Debug)]
pub struct Tool {
    /// Capability and descriptor, as a saved call keeps them.
    pub reference: Reference,
    /// The agent that it is.
    pub agent: Option<Arc<Definition>>,
    input: OnceLock<Schema>,
    output: OnceLock<Schema>,
}

impl Tool {
    fn new(capability_id: &str, descriptor: Descriptor, agent: Option<Arc<Definition>>) -> Arc<Self> {
        let reference = Reference {
            capability_id: capability_id.to_owned(),
            tool_name: descriptor.name.clone(),
            descriptor,
        };
        Arc::new(Self { reference, agent, input: OnceLock::new(), output: OnceLock::new() })
    }

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

    /// These tools in their order.
    #[must_use]
    pub fn of(tools: Vec<Arc<Tool>>) -> Self {
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

    /// Whether it can be used.
    ///
    /// # Errors
    /// `configuration.duplicate-tool-name` when two tools share a name.
    pub fn check(&self) -> Result<(), TurnFailure> {
        match &self.duplicate {
            None => Ok(()),
            Some(name) => {
                let message = format!("two tools are named {name}");
                Err(TurnFailure::new("configuration.duplicate-tool-name", message))
            }
        }
    }

    /// The same without the tools that are hidden.
    #[must_use]
    pub fn without(&self, hides: impl Fn(&Tool) -> bool) -> Self {
        Self::of(self.tools.iter().filter(|tool| !hides(tool)).cloned().collect())
    }
}

/// A tool that the manifest lists; `agent` is the agent that it is.
pub fn own_tool(capability_id: &str, tool: &manifest::Tool, agent: Option<Arc<Definition>>) -> Arc<Tool> {
    Tool::new(
        capability_id,
        Descriptor {
            name: tool.name.clone(),
            description: tool.description.clone(),
            input_schema: Arc::clone(&tool.input_schema),
            output_schema: tool.output_schema.clone(),
        },
        agent,
    )
}

/// A discovered tool: `{agentId?, capabilityId, name, description?, inputSchema, outputSchema?}`.
///
/// # Errors
/// In words, when it lacks a member.
pub fn session_tool(capability_id: &str, tool: &Json) -> Result<Arc<Tool>, String> {
    let name = text(tool, "name").ok_or("a session tool has no name")?;
    let input = tool.get("inputSchema").ok_or_else(|| format!("session tool {name} has no input schema"))?;
    let descriptor = Descriptor {
        name: name.to_owned(),
        description: text(tool, "description").map(str::to_owned),
        input_schema: Arc::new(input.clone()),
        output_schema: tool.get("outputSchema").cloned().map(Arc::new),
    };
    Ok(Tool::new(capability_id, descriptor, None))
}

fn text<'a>(value: &'a Json, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Json::as_str)
}
