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

/// Id of the sample agent that works in a sandbox.
pub const BUILDER: &str = "builder";

/// What it is told.
pub const BUILD: &str = "Write a program that prints the primes below 30, and run it.";

/// The file that it leaves.
pub const BUILT: &str = "primes.txt";

const PROGRAM: &str = "\
n=2
while [ $n -lt 30 ]; do
  d=2
  while [ $((d * d)) -le $n ] && [ $((n % d)) -ne 0 ]; do d=$((d + 1)); done
  [ $((d * d)) -gt $n ] && echo $n
  n=$((n + 1))
done
";

/// Its manifest. With the fixture model its script plays; a real model does what it is told.
#[must_use]
pub fn builder() -> Json {
    let call = |name: &str, args: Json| json!({ "name": name, "args": args });
    json!({
        "manifestSchemaVersion": 4,
        "id": BUILDER,
        "name": "Builder",
        "description": "A sample agent that works in its sandbox",
        "metadata": { "nylorun.fixture": {
            "steps": [
                { "text": "I write it.", "toolCalls": [call("write", json!({ "path": "primes.sh", "content": PROGRAM }))] },
                { "text": "Now I run it.", "toolCalls": [call("bash", json!({
                    "command": format!("sh primes.sh | paste -sd' ' >{BUILT} && cat {BUILT}"),
                }))] },
                { "text": format!("The primes below 30 are in {BUILT}.") },
            ],
            "repeat": true,
        } },
        "capabilities": [{
            "id": "builder",
            "type": "agent",
            "instructions": [format!(
                "You write small programs for a POSIX shell and run them in your sandbox. Leave what they print in \
                 {BUILT}. Say briefly what came of it."
            )],
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
