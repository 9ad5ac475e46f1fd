//! The sample agent, and a model that needs no provider: what a first start and `quickstart` put in place so that a
//! turn can be run at once.

use nylorun_actors::model::json::Json;
use serde_json::json;

use super::client::{Client, segment};
use super::fault::Fault;

/// Id of the sample agent.
pub const AGENT: &str = "assistant";

/// What [`plant`] found or did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planted {
    /// The agent was registered just now.
    pub agent: bool,
    /// The fixture model was chosen just now.
    pub fixture: bool,
}

/// The sample agent's manifest.
#[must_use]
pub fn manifest() -> Json {
    json!({
        "manifestSchemaVersion": 4,
        "id": AGENT,
        "name": "Assistant",
        "description": "The sample agent of nylorun",
        "capabilities": [{
            "id": "assistant",
            "type": "agent",
            "instructions": ["You are a helpful assistant. Answer briefly and plainly."],
        }],
    })
}

/// Registers the sample agent when there is no agent of that id, and chooses the fixture model when no model is
/// configured. What is there stays as it is.
///
/// # Errors
/// When the Runtime refuses.
pub async fn plant(client: &Client) -> Result<Planted, Fault> {
    let agent = plant_agent(client, AGENT, &manifest()).await?;
    let model = client.get("/v1/tenant/model").await?;
    let mut fixture = false;
    if model["configured"] == false {
        let body = json!({ "requestId": uuid::Uuid::new_v4().to_string(), "fixtureModel": true });
        let seeded = client.put("/v1/tenant/config/seed", Some(&body)).await?;
        fixture = seeded["applied"].as_array().is_some_and(|list| list.iter().any(|n| n == "model.fixture"));
    }
    Ok(Planted { agent, fixture })
}

/// Registers an agent when there is none of that id. Answers whether it did.
///
/// # Errors
/// When the Runtime refuses.
pub async fn plant_agent(client: &Client, id: &str, manifest: &Json) -> Result<bool, Fault> {
    let agents = client.get("/v1/agents").await?;
    if agents["agents"].as_array().is_some_and(|list| list.iter().any(|agent| agent["agentId"] == id)) {
        return Ok(false);
    }
    let body = json!({
        "requestId": uuid::Uuid::new_v4().to_string(),
        "manifest": manifest,
        "implementationVersion": "sample",
    });
    client.put(&format!("/v1/agents/{}", segment(id)), Some(&body)).await?;
    Ok(true)
}
