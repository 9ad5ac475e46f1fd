//! What hooks before a turn or a step answer: toggles, instructions, writes to memory (spec: engine, section 7).

use std::collections::BTreeMap;

use nylorun_actors::model::Json;
use nylorun_actors::model::json::JsonMap;
use serde::{Deserialize, Serialize};

use super::answers::{Answer, list, members, text};
use crate::engine::agent::definition::{Definition, Head};
use crate::engine::agent::toolset::{Tool, Toolset};

/// The capability that may toggle others: the agent's own block.
const AGENT: &str = "agent";

/// Toggles and instructions, merged. A turn's are kept in its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// Capabilities by id: whether their tools are on offer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capabilities: BTreeMap<String, bool>,
    /// Tools by name: whether they are on offer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, bool>,
    /// Instructions after those of the manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<String>,
}

impl Patch {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Lays a later patch over this one: later wins for each key, instructions follow.
    pub fn lay(&mut self, later: Self) {
        self.capabilities.extend(later.capabilities);
        self.tools.extend(later.tools);
        self.instructions.extend(later.instructions);
    }

    fn hides(&self, tool: &Tool) -> bool {
        let off = |switches: &BTreeMap<String, bool>, key: &str| switches.get(key) == Some(&false);
        off(&self.capabilities, &tool.reference.capability_id) || off(&self.tools, &tool.reference.tool_name)
    }

    /// The tools of a call under this patch; `None` when it hides none.
    #[must_use]
    pub fn tools(&self, tools: &Toolset) -> Option<Toolset> {
        let hides = self.capabilities.values().chain(self.tools.values()).any(|on| !on);
        hides.then(|| tools.without(|tool| self.hides(tool)))
    }

    /// The head of a call under this patch.
    #[must_use]
    pub fn head(&self, definition: &Definition) -> Option<Head> {
        if self.instructions.is_empty() {
            return definition.head.clone();
        }
        Head::of(definition.instructions.iter().chain(&self.instructions))
    }
}

/// What the hooks of a point before a turn or a step came to.
#[derive(Debug, Default, PartialEq)]
pub struct Patched {
    /// Their patches, merged in manifest order.
    pub patch: Patch,
    /// What they write to the session's memory.
    pub state: JsonMap,
    /// Why the first of them that blocks does.
    pub block: Option<String>,
}

/// Merges the patches of a point.
///
/// # Errors
/// What is wrong with one, in words.
pub fn merge(answers: &[Answer<'_>], definition: &Definition, tools: &Toolset) -> Result<Patched, String> {
    let mut merged = Patched::default();
    for Answer { capability, value } in answers {
        merged
            .take(capability, value, definition, tools)
            .map_err(|what| format!("a hook of capability {capability} answered wrongly: {what}"))?;
    }
    Ok(merged)
}

impl Patched {
    fn take(
        &mut self,
        own: &str,
        value: &JsonMap,
        definition: &Definition,
        tools: &Toolset,
    ) -> Result<(), String> {
        members(value, &["capabilities", "tools", "instructions", "state", "block", "active"])?;
        let mut patch = Patch {
            capabilities: switches(value, "capabilities")?,
            tools: switches(value, "tools")?,
            instructions: Vec::new(),
        };
        for text in list(value, "instructions")? {
            let text = text.as_str().ok_or("an instruction is not a text")?;
            patch.instructions.push(text.to_owned());
        }
        match value.get("active") {
            None => {}
            Some(_) if own == AGENT => return Err("`active` is not for the agent's own block".to_owned()),
            Some(Json::Bool(active)) => {
                patch.capabilities.insert(own.to_owned(), *active);
            }
            Some(_) => return Err("`active` is not a boolean".to_owned()),
        }
        for id in patch.capabilities.keys() {
            if !definition.has_capability(id) {
                return Err(format!("there is no capability {id}"));
            }
            if own != AGENT && id != own {
                return Err(format!("it toggles capability {id}, which only the agent's own block may"));
            }
        }
        for name in patch.tools.keys() {
            let tool = tools.get(name).ok_or_else(|| format!("there is no tool named {name}"))?;
            if own != AGENT && tool.reference.capability_id != own {
                return Err(format!("it toggles tool {name}, which only the agent's own block may"));
            }
        }
        match value.get("state") {
            None => {}
            Some(Json::Object(state)) => {
                self.state.extend(state.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            Some(_) => return Err("`state` is not an object".to_owned()),
        }
        let block = text(value, "block")?;
        self.block = self.block.take().or(block);
        self.patch.lay(patch);
        Ok(())
    }
}

fn switches(value: &JsonMap, key: &str) -> Result<BTreeMap<String, bool>, String> {
    let map = match value.get(key) {
        None => return Ok(BTreeMap::new()),
        Some(Json::Object(map)) => map,
        Some(_) => return Err(format!("`{key}` is not an object")),
    };
    let switch = |(name, on): (&String, &Json)| Some((name.clone(), on.as_bool()?));
    map.iter()
        .map(switch)
        .collect::<Option<_>>()
        .ok_or_else(|| format!("`{key}` has a value that is no boolean"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn definition() -> Definition {
        let tool = |name: &str| json!({"name": name, "inputSchema": {}});
        let manifest = json!({"manifestSchemaVersion": 4, "id": "a", "capabilities": [
            {"id": "agent", "type": "agent", "instructions": ["one"], "tools": [tool("own")]},
            {"id": "x", "type": "agent-plugin", "tools": [tool("x1"), tool("x2")]},
            {"id": "y", "type": "agent-plugin"}]});
        Definition::read(Arc::new(manifest), false).unwrap()
    }

    fn merged(answers: &[(&str, Json)]) -> Result<Patched, String> {
        let definition = definition();
        let maps: Vec<_> =
            answers.iter().map(|(id, value)| (*id, value.as_object().cloned().unwrap())).collect();
        let answers: Vec<_> = maps.iter().map(|(capability, value)| Answer { capability, value }).collect();
        merge(&answers, &definition, &definition.toolset(&[]).unwrap())
    }

    #[test]
    fn later_wins_for_each_key_and_instructions_and_memory_add_up() {
        let got = merged(&[
            ("agent", json!({"tools": {"x1": false, "own": false}, "instructions": ["a"], "state": {"k": 1, "a": 1}})),
            ("x", json!({"tools": {"x1": true}, "instructions": ["b", "c"], "state": {"k": 2}})),
        ])
        .unwrap();
        assert_eq!(got.patch.tools, BTreeMap::from([("x1".to_owned(), true), ("own".to_owned(), false)]));
        assert_eq!(got.patch.instructions, ["a", "b", "c"]);
        assert_eq!(Json::Object(got.state), json!({"k": 2, "a": 1}));
    }

    #[test]
    fn active_stands_for_its_own_capability() {
        let got = merged(&[("x", json!({"active": false}))]).unwrap();
        assert_eq!(got.patch.capabilities, BTreeMap::from([("x".to_owned(), false)]));
        let offered = got.patch.tools(&definition().toolset(&[]).unwrap()).unwrap();
        assert!(offered.get("own").is_some() && offered.get("x1").is_none() && offered.get("x2").is_none());
    }

    #[test]
    fn the_first_that_blocks_says_why() {
        let got =
            merged(&[("x", json!({})), ("agent", json!({"block": "no"})), ("y", json!({"block": "nor"}))]);
        assert_eq!(got.unwrap().block.as_deref(), Some("no"));
    }

    #[test]
    fn a_patch_that_reaches_too_far_or_names_nothing_is_wrong() {
        for (id, patch) in [
            ("agent", json!({"active": true})),
            ("agent", json!({"capabilities": {"nope": true}})),
            ("agent", json!({"tools": {"nope": true}})),
            ("x", json!({"capabilities": {"y": false}})),
            ("x", json!({"tools": {"own": false}})),
            ("x", json!({"active": "no"})),
            ("x", json!({"instructions": "one"})),
            ("x", json!({"instructions": [1]})),
            ("x", json!({"tools": {"x1": 1}})),
            ("x", json!({"state": []})),
            ("x", json!({"block": true})),
            ("x", json!({"retry": "again"})),
            ("x", json!({"output": 1})),
        ] {
            assert!(merged(&[(id, patch.clone())]).is_err(), "{id}: {patch}");
        }
        merged(&[("x", json!({"capabilities": {"x": false}, "tools": {"x1": true}}))]).unwrap();
        merged(&[("agent", json!({"capabilities": {"x": false, "agent": true}}))]).unwrap();
    }

    #[test]
    fn instructions_of_hooks_come_last() {
        let patch = Patch { instructions: vec!["two".to_owned()], ..Patch::default() };
        assert_eq!(
            *patch.head(&definition()).unwrap().item,
            *Head::of(["one\n\ntwo".to_owned()].iter()).unwrap().item
        );
    }
}
