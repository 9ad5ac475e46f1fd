//! Actions: work that the application's own code does, and the endpoints that do it (spec: http-api, section 10;
//! durability, section 7).

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::effect::{AgentRef, EffectIntent, EffectKind};
use super::json::{Json, JsonMap};
use super::time::Micros;

/// Where an Action stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActionStatus {
    /// Waits for a delivery (a parked one too).
    Pending,
    /// An endpoint has it until its deadline.
    Delivering,
    /// Its outcome is recorded.
    Completed,
    /// What the endpoint did is unknown.
    Uncertain,
    /// Its turn ended before it was delivered.
    Cancelled,
}

impl ActionStatus {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivering => "delivering",
            Self::Completed => "completed",
            Self::Uncertain => "uncertain",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of a stored name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "pending" => Self::Pending,
            "delivering" => Self::Delivering,
            "completed" => Self::Completed,
            "uncertain" => Self::Uncertain,
            "cancelled" => Self::Cancelled,
            _ => return None,
        })
    }

    /// Whether somebody may still do it.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Delivering)
    }
}

/// What an Action takes from its session beside the intent.
#[derive(Clone, Copy, Debug)]
pub struct ActionSource<'a> {
    /// The turn's manifest.
    pub manifest: &'a Json,
    /// The session's pinned implementation version.
    pub implementation_version: &'a str,
}

/// The members of an Action that never change (status, generation and deadline are the row's).
///
/// # Errors
/// In words, when the intent names an agent that the manifest does not have.
pub fn fixed_members(intent: &EffectIntent, source: ActionSource<'_>) -> Result<JsonMap, String> {
    let mut body = JsonMap::new();
    body.insert("actionId".into(), json!(intent.effect_id.as_str()));
    body.insert("sessionId".into(), json!(intent.session_id.as_str()));
    body.insert("turnId".into(), json!(intent.turn_id.as_str()));
    body.insert("agentId".into(), json!(intent.agent_id.as_str()));
    body.insert("manifestHash".into(), json!(intent.manifest_hash));
    body.insert("implementationVersion".into(), json!(source.implementation_version));
    body.insert("kind".into(), json!(intent.kind.as_str()));
    let agent = agent_of(source.manifest, intent.agent.as_ref())?;
    match intent.kind {
        EffectKind::Hook => {
            body.insert("hook".into(), json!(intent.hook));
        }
        _ => {
            for (key, value) in [("capabilityId", &intent.capability_id), ("toolName", &intent.tool_name)] {
                if let Some(value) = value {
                    body.insert(key.into(), json!(value));
                }
            }
            let tool = tool_of(agent, intent.capability_id.as_deref(), intent.tool_name.as_deref());
            for key in ["inputSchema", "outputSchema"] {
                if let Some(schema) = tool.and_then(|tool| tool.get(key)) {
                    body.insert(key.into(), schema.clone());
                }
            }
        }
    }
    body.insert("input".into(), intent.input.as_deref().cloned().unwrap_or(Json::Null));
    body.insert("context".into(), Json::Object(intent.context.clone()));
    if let Some(agent) = &intent.agent {
        body.insert("agent".into(), json!(agent));
    }
    Ok(body)
}

fn list<'a>(of: &'a Json, key: &str) -> impl Iterator<Item = &'a Json> + use<'a> {
    of.get(key).and_then(Json::as_array).into_iter().flatten()
}

/// The manifest of the agent that an effect belongs to.
fn agent_of<'a>(root: &'a Json, agent: Option<&AgentRef>) -> Result<&'a Json, String> {
    let Some(agent) = agent else { return Ok(root) };
    list(root, "capabilities")
        .flat_map(|capability| list(capability, "tools"))
        .filter_map(|tool| tool.get("agent"))
        .find(|child| child.get("id").and_then(Json::as_str) == Some(&agent.id))
        .ok_or_else(|| format!("the manifest has no agent {}", agent.id))
}

fn tool_of<'a>(agent: &'a Json, capability: Option<&str>, name: Option<&str>) -> Option<&'a Json> {
    let text = |of: &'a Json, key: &str| of.get(key).and_then(Json::as_str);
    list(agent, "capabilities")
        .filter(|c| capability.is_none() || text(c, "id") == capability)
        .flat_map(|c| list(c, "tools"))
        .find(|tool| name.is_some() && text(tool, "name") == name)
}

/// An Action as peers see it.
#[must_use]
pub fn on_the_wire(
    fixed: JsonMap,
    status: ActionStatus,
    generation: i64,
    deadline_at: Option<Micros>,
) -> Json {
    let mut action = fixed;
    action.insert("status".into(), json!(status.as_str()));
    action.insert("generation".into(), json!(generation));
    if let Some(at) = deadline_at {
        action.insert("deadlineAt".into(), json!(at.to_iso()));
    }
    Json::Object(action)
}

/// Why an endpoint failed last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthError {
    /// `endpoint.busy`, `endpoint.unreachable`, …
    pub code: String,
    /// In words.
    pub message: String,
}

/// What a good ping said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Served {
    /// Version of the endpoint's code.
    pub implementation_version: String,
    /// The manifest that it was built for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_hash: Option<String>,
}

/// How an endpoint has answered lately (spec: http-api, section 10.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// ISO instant of the last delivery that was answered or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_delivery_at: Option<String>,
    /// ISO instant of the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_at: Option<String>,
    /// The last failure since the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<HealthError>,
    /// Failures in a row.
    pub consecutive_failures: u32,
    /// What the last good ping said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Served>,
}

impl Health {
    /// The endpoint answered.
    pub fn success(&mut self, now: Micros) {
        self.last_delivery_at = Some(now.to_iso());
        self.last_success_at = Some(now.to_iso());
        self.last_error = None;
        self.consecutive_failures = 0;
    }

    /// The endpoint failed.
    pub fn failure(&mut self, now: Micros, code: &str, message: &str) {
        self.last_delivery_at = Some(now.to_iso());
        self.last_error = Some(HealthError { code: code.to_owned(), message: message.to_owned() });
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn intent(agent: Option<AgentRef>) -> EffectIntent {
        EffectIntent {
            effect_id: "t:0:tool:i".into(),
            session_id: "s".into(),
            turn_id: "t".into(),
            agent_id: "root".into(),
            manifest_hash: "mh".into(),
            kind: EffectKind::Tool,
            agent,
            capability_id: Some("c".into()),
            tool_name: Some("charge".into()),
            hook: None,
            path: None,
            key: None,
            iterations: None,
            input: Some(Arc::new(json!({"amount": 3}))),
            context: JsonMap::new(),
        }
    }

    fn manifest() -> Json {
        json!({"id": "root", "capabilities": [
            {"id": "c", "tools": [{"name": "charge", "inputSchema": {"type": "object"}, "outputSchema": {"type": "number"}}]},
            {"id": "d", "tools": [{"name": "help", "inputSchema": {}, "agent": {"id": "child", "capabilities": [
                {"id": "c", "tools": [{"name": "charge", "inputSchema": {"title": "the child's"}}]}]}}]},
        ]})
    }

    #[test]
    fn an_action_carries_the_pinned_version_and_the_schemas_of_its_tool() {
        let manifest = manifest();
        let source = ActionSource { manifest: &manifest, implementation_version: "v7" };
        let fixed = fixed_members(&intent(None), source).unwrap();
        let wire = on_the_wire(fixed, ActionStatus::Delivering, 2, Some(Micros(0)));
        assert_eq!(
            wire,
            json!({"actionId": "t:0:tool:i", "sessionId": "s", "turnId": "t", "agentId": "root",
                "manifestHash": "mh", "implementationVersion": "v7", "kind": "tool", "capabilityId": "c",
                "toolName": "charge", "inputSchema": {"type": "object"}, "outputSchema": {"type": "number"},
                "input": {"amount": 3}, "context": {}, "status": "delivering", "generation": 2,
                "deadlineAt": "1970-01-01T00:00:00.000Z"})
        );
    }

    #[test]
    fn a_childs_tool_takes_the_childs_schemas_and_an_unknown_child_is_refused() {
        let manifest = manifest();
        let source = ActionSource { manifest: &manifest, implementation_version: "v7" };
        let child =
            |id: &str| Some(AgentRef { id: id.into(), path: format!("root/{id}"), delegation_id: None });
        let fixed = fixed_members(&intent(child("child")), source).unwrap();
        assert_eq!(fixed["inputSchema"], json!({"title": "the child's"}));
        assert_eq!(fixed["agent"], json!({"id": "child", "path": "root/child"}));
        assert!(fixed_members(&intent(child("stranger")), source).is_err());
    }

    #[test]
    fn a_success_clears_the_failures_and_a_failure_counts_one() {
        let mut health = Health::default();
        health.failure(Micros(0), "endpoint.busy", "429");
        health.failure(Micros(0), "endpoint.busy", "429");
        assert_eq!(health.consecutive_failures, 2);
        assert!(health.last_success_at.is_none());
        health.success(Micros(1_000_000));
        assert_eq!((health.consecutive_failures, health.last_error), (0, None));
        assert_eq!(health.last_success_at.as_deref(), Some("1970-01-01T00:00:01.000Z"));
    }
}
