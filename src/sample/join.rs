//! How the sample application comes to a Runtime: its agent is registered, its endpoint runs, is registered and answers.

use std::net::SocketAddr;
use std::time::Duration;

use nylorun_actors::model::json::Json;
use serde_json::json;

use super::endpoint::{Config, Endpoint, OnCall};
use super::{AGENT, manifest};
use crate::cli::client::{Client, segment};
use crate::cli::fault::{Fault, exit};
use crate::cli::sample::plant_agent;

/// Version that the sample registers with.
pub const VERSION: &str = "sample";

/// The sample application beside a Runtime.
pub struct Joined {
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// The agent was registered just now.
    pub planted: bool,
    /// What was registered for the agent before.
    before: Option<Json>,
}

impl Joined {
    /// Takes the registration out again, so that nobody is sent to a port where nobody listens, or puts back the one that
    /// stood there; then stops the endpoint.
    pub async fn leave(self, client: &Client) {
        leave(client, self.before).await;
        self.endpoint.stop().await;
    }
}

/// Registers agent and endpoint, and has the Runtime ping it.
///
/// # Errors
/// When the port cannot be had, the Runtime refuses, or it does not reach this machine.
pub async fn join(
    client: &Client,
    listen: SocketAddr,
    url: Option<String>,
    work: Duration,
    on_call: Option<OnCall>,
) -> Result<Joined, Fault> {
    let planted = plant_agent(client, AGENT, &manifest()).await?;
    let tenant = client.get("/v1/tenant").await?;
    let before = registered(client).await?;
    let config = Config {
        runtime: client.target().url.clone(),
        tenant: tenant["tenant"]["id"].as_str().unwrap_or_default().to_owned(),
        agent: AGENT.to_owned(),
        implementation_version: VERSION.to_owned(),
        listen,
        url,
        work,
        on_call,
    };
    let endpoint = Endpoint::start(config).map_err(|error| {
        Fault::new(exit::FAILED, "listen", format!("the endpoint cannot listen on {listen}: {error}"))
            .fix("choose another port")
    })?;
    let joined = Joined { endpoint, planted, before };
    if let Err(fault) = announce(client, joined.endpoint.url()).await {
        joined.leave(client).await;
        return Err(fault);
    }
    Ok(joined)
}

/// The agent's endpoint as it is registered now, in the shape that registers it.
async fn registered(client: &Client) -> Result<Option<Json>, Fault> {
    let all = client.get("/v1/endpoints").await?;
    let mut rows = all["endpoints"].as_array().into_iter().flatten();
    let Some(row) = rows.find(|row| row["agentId"] == AGENT) else { return Ok(None) };
    let members = ["agentId", "url", "implementationVersion", "manifestHash", "timeoutMs", "maxConcurrent"];
    let kept = members.into_iter().filter_map(|name| Some((name.to_owned(), row.get(name)?.clone())));
    Ok(Some(Json::Object(kept.collect())))
}

async fn announce(client: &Client, url: &str) -> Result<(), Fault> {
    let body = json!({ "endpoints": [{ "agentId": AGENT, "url": url, "implementationVersion": VERSION }] });
    client.put("/v1/endpoints", Some(&body)).await?;
    let pinged = client.post(&format!("/v1/endpoints/{}/ping", segment(AGENT)), &json!({})).await;
    pinged.map(|_| ()).map_err(|fault| {
        fault.fix(format!(
            "the Runtime at {} must reach {url}: run this on its machine, or where it can reach",
            client.target().url
        ))
    })
}

/// The Runtime may be gone; then there is nothing to leave.
async fn leave(client: &Client, before: Option<Json>) {
    let _: Result<Json, Fault> = match before {
        Some(endpoint) => client.put("/v1/endpoints", Some(&json!({ "endpoints": [endpoint] }))).await,
        None => client.delete(&format!("/v1/endpoints/{}", segment(AGENT))).await,
    };
}
