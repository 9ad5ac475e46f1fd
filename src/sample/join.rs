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
    if let Err(fault) = announce(client, endpoint.url()).await {
        endpoint.stop().await;
        return Err(fault);
    }
    Ok(Joined { endpoint, planted })
}

async fn announce(client: &Client, url: &str) -> Result<(), Fault> {
    let body = json!({ "endpoints": [{ "agentId": AGENT, "url": url, "implementationVersion": VERSION }] });
    client.put("/v1/endpoints", Some(&body)).await?;
    let pinged = client.post(&format!("/v1/endpoints/{}/ping", segment(AGENT)), &json!({})).await;
    if let Err(fault) = pinged {
        leave(client).await;
        return Err(fault.fix(format!(
            "the Runtime at {} must reach {url}: run this on its machine, or where it can reach",
            client.target().url
        )));
    }
    Ok(())
}

/// Takes the registration out again: whoever comes later is not sent to a port where nobody listens.
pub async fn leave(client: &Client) {
    // It may be gone already, and the Runtime may be; both are fine.
    let _: Result<Json, Fault> = client.delete(&format!("/v1/endpoints/{}", segment(AGENT))).await;
}
