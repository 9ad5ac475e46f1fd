//! The script's form.

use std::collections::BTreeMap;

use nylorun_actors::model::Json;
use nylorun_actors::model::json::JsonMap;
use serde::Deserialize;
use serde_json::json;

use super::SCRIPT_KEY;
use super::check::{delay, lists, only, read};
use crate::engine::model::call::{Failure, FailureCode};

/// The longest delay of a script, ms.
pub const MAX_DELAY_MS: u64 = 3_600_000;
/// The most steps of one list.
pub const MAX_STEPS: usize = 10_000;

/// A checked script.
#[derive(Clone, Debug, PartialEq)]
pub struct FixtureScript {
    pub(super) lists: Lists,
    /// Those of agents used as tools, by agent id.
    pub(super) agents: BTreeMap<String, Lists>,
    pub(super) tools: BTreeMap<String, ScriptTool>,
}

/// Which steps answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lists {
    pub cases: Vec<(When, Steps)>,
    pub otherwise: Steps,
}

/// Steps, and whether they start again.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Steps {
    pub list: Vec<Step>,
    pub repeat: bool,
}

/// What the last message of a person must look like.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct When {
    pub equals: Option<String>,
    pub contains: Option<String>,
}

impl When {
    pub fn fits(&self, text: &str) -> bool {
        self.equals.as_deref().is_none_or(|t| t == text)
            && self.contains.as_deref().is_none_or(|t| text.contains(t))
    }
}

/// One answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Step {
    pub text: Option<String>,
    pub chunks: Option<Vec<String>>,
    /// Present and null is a value too.
    #[serde(default, deserialize_with = "present")]
    pub json: Option<Json>,
    #[serde(default)]
    pub echo: bool,
    pub reasoning: Option<String>,
    #[serde(default)]
    pub tool_calls: Vec<StepCall>,
    pub failure: Option<StepFailure>,
    pub usage: Option<Usage>,
    pub finish_reason: Option<String>,
    pub evidence: Option<Evidence>,
    #[serde(default)]
    pub delay_ms: u64,
    #[serde(default)]
    pub chunk_delay_ms: u64,
}

/// A tool call of a step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StepCall {
    pub id: Option<String>,
    pub name: String,
    #[serde(default)]
    pub args: JsonMap,
}

/// A failure of a step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StepFailure {
    code: FailureCode,
    message: String,
    retryable: Option<bool>,
    retry_after_ms: Option<u64>,
}

impl StepFailure {
    pub fn to_failure(&self) -> Failure {
        let failure = Failure::new(self.code, self.message.clone());
        Failure {
            retryable: self.retryable.unwrap_or(failure.retryable),
            retry_after_ms: self.retry_after_ms,
            ..failure
        }
    }
}

/// Usage of a step, as a candidate has it.
#[derive(Clone, Debug, PartialEq, Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Usage {
    #[serde(skip_serializing_if = "Option::is_none")]
    input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_write_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// Evidence of a step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Evidence {
    resolved_model: Option<String>,
    context_window: Option<u64>,
    max_output_tokens: Option<u64>,
}

impl Evidence {
    pub fn to_json(&self) -> Json {
        let mut extras = JsonMap::new();
        if let Some(tokens) = self.context_window {
            extras.insert("contextWindow".into(), json!(tokens));
        }
        if let Some(tokens) = self.max_output_tokens {
            extras.insert("maxOutputTokens".into(), json!(tokens));
        }
        let mut out = json!({});
        if let Some(model) = &self.resolved_model {
            out["resolvedModel"] = json!(model);
        }
        if !extras.is_empty() {
            out["extras"] = Json::Object(extras);
        }
        out
    }
}

/// A tool that the harness answers for the script.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ScriptTool {
    #[serde(default, deserialize_with = "present")]
    pub output: Option<Json>,
    #[serde(default)]
    pub echo: bool,
    pub failed: Option<ToolFailure>,
    #[serde(default)]
    pub delay_ms: u64,
}

/// How a scripted tool fails.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ToolFailure {
    pub code: String,
    pub message: String,
    pub retryable: Option<bool>,
}

fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(from).map(Some)
}

impl FixtureScript {
    /// Reads a script.
    ///
    /// # Errors
    /// Every problem found, each with the place it was found at.
    pub fn parse(script: &Json) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let Some(map) = script.as_object() else {
            return Err(vec!["a fixture script is an object".to_owned()]);
        };
        only(map, &["steps", "repeat", "cases", "tools", "agents"], "script", &mut errors);
        let root = lists(map, None, &mut errors);
        let mut agents = BTreeMap::new();
        match map.get("agents") {
            None => {}
            Some(Json::Object(map)) => {
                for (id, agent) in map {
                    let place = format!("agents.{id}");
                    let Some(agent) = agent.as_object() else {
                        errors.push(format!("{place}: not an object"));
                        continue;
                    };
                    only(agent, &["steps", "repeat", "cases"], &place, &mut errors);
                    agents.insert(id.clone(), lists(agent, Some(&place), &mut errors));
                }
            }
            Some(_) => errors.push("agents: not an object".to_owned()),
        }
        let mut tools = BTreeMap::new();
        match map.get("tools") {
            None => {}
            Some(Json::Object(map)) => {
                for (name, tool) in map {
                    let place = format!("tools.{name}");
                    let tool: Option<ScriptTool> = read(Some(tool), &place, &mut errors);
                    if let Some(tool) = tool {
                        let answers = usize::from(tool.output.is_some())
                            + usize::from(tool.echo)
                            + usize::from(tool.failed.is_some());
                        if answers != 1 {
                            errors.push(format!("{place}: needs exactly one of output, echo and failed"));
                        }
                        delay(tool.delay_ms, &format!("{place}.delayMs"), &mut errors);
                        tools.insert(name.clone(), tool);
                    }
                }
            }
            Some(_) => errors.push("tools: not an object".to_owned()),
        }
        if errors.is_empty() { Ok(Self { lists: root, agents, tools }) } else { Err(errors) }
    }

    /// The script of a manifest, if it has one.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn of_manifest(manifest: &Json) -> Result<Option<Self>, Vec<String>> {
        manifest.get("metadata").and_then(|metadata| metadata.get(SCRIPT_KEY)).map(Self::parse).transpose()
    }

    /// The lists for an agent used as a tool, or for the root; a child that has none of its own is answered by the root's.
    pub(super) fn lists(&self, child: Option<&str>) -> &Lists {
        child.and_then(|id| self.agents.get(id)).unwrap_or(&self.lists)
    }

    /// Names of the tools that the script answers itself.
    #[must_use]
    pub fn tool_names(&self) -> Vec<&str> {
        self.tools.keys().map(String::as_str).collect()
    }

    /// Whether the script answers this tool itself.
    #[must_use]
    pub fn has_tool(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_of_a_script_is_named_with_its_place() {
        let errors = FixtureScript::parse(&json!({
            "steps": [
                {"text": "a", "json": 1},
                {},
                {"failure": {"code": "auth", "message": "no"}, "text": "x"},
                {"failure": {"code": "nope", "message": "no"}},
                {"text": "a", "delayMs": 3_600_001},
                {"text": "a", "finishReason": "error"},
                {"text": "a", "surprise": 1},
            ],
            "cases": [{"when": {}, "steps": []}],
            "tools": {"t": {}, "u": {"output": 1, "echo": true}},
            "agents": {"c": {}, "d": 1, "e": {"steps": [{}], "tools": {}}},
            "extra": 1,
        }))
        .unwrap_err();
        for start in [
            "script: unknown field extra",
            "agents.c: needs steps or cases",
            "agents.d: not an object",
            "agents.e: unknown field tools",
            "agents.e.steps[0]: says nothing",
            "script.steps[0]: text, chunks, json and echo",
            "script.steps[1]: says nothing",
            "script.steps[2]: a failure stands alone",
            "script.steps[3]: unknown variant",
            "script.steps[4].delayMs: longer",
            "script.steps[5].finishReason: error is none",
            "script.steps[6]: unknown field `surprise`",
            "cases[0].when: needs equals or contains",
            "cases[0].steps: needs at least one step",
            "tools.t: needs exactly one",
            "tools.u: needs exactly one",
        ] {
            assert!(errors.iter().any(|e| e.starts_with(start)), "{start} not in {errors:#?}");
        }
        assert_eq!(errors.len(), 16, "{errors:#?}");
    }

    #[test]
    fn a_script_needs_something_to_play() {
        assert!(FixtureScript::parse(&json!({})).is_err());
        assert!(FixtureScript::parse(&json!({"steps": []})).is_err());
        assert!(FixtureScript::parse(&json!([])).is_err());
        assert!(FixtureScript::parse(&json!({"steps": [{"json": null}]})).is_ok());
    }

    #[test]
    fn a_manifest_holds_its_script_in_its_metadata() {
        let script =
            json!({"steps": [{"text": "hi"}], "tools": {"b": {"output": null}, "a": {"echo": true}}});
        let manifest = json!({"metadata": {SCRIPT_KEY: script}});
        let script = FixtureScript::of_manifest(&manifest).unwrap().unwrap();
        assert_eq!(script.tool_names(), ["a", "b"]);
        assert!(script.has_tool("a") && !script.has_tool("c"));
        assert_eq!(FixtureScript::of_manifest(&json!({"metadata": {}})), Ok(None));
        assert!(FixtureScript::of_manifest(&json!({"metadata": {SCRIPT_KEY: 1}})).is_err());
    }

    #[test]
    fn the_example_of_the_manual_is_a_script() {
        let manual = include_str!("../../../../docs/fixture-scripts.md");
        let example = manual.split("```json").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let script = FixtureScript::parse(&serde_json::from_str(example).unwrap()).unwrap();
        assert_eq!(script.tool_names(), ["lookup"]);
    }
}
