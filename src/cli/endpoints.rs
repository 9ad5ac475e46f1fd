//! `nylorun endpoints`: the registry of Action endpoints (spec: http-api, section 10.2).

use std::time::Instant;

use nylorun_actors::model::json::Json;
use serde_json::json;

use super::args::actions::{Endpoints, PutEndpoints};
use super::client::{Client, segment};
use super::fault::{Fault, exit};
use super::out::{Out, plain};
use super::resources::{optional, read_json, rows};
use super::status::failure;

/// `endpoints`.
///
/// # Errors
/// What a person reads.
pub async fn run(client: &Client, out: &Out, command: &Endpoints) -> Result<(), Fault> {
    match command {
        Endpoints::Put(put) => {
            let answer = client.put("/v1/endpoints", Some(&batch(put)?)).await?;
            if out.is_json() {
                return out.json(&answer);
            }
            for endpoint in answer["endpoints"].as_array().into_iter().flatten() {
                let (agent, url) = (plain(&endpoint["agentId"]), plain(&endpoint["url"]));
                out.line(&format!("registered {agent} at {url}"))?;
                out.note(&format!("`nylorun endpoints ping {agent}` asks whether it answers"));
            }
            Ok(())
        }
        Endpoints::List => {
            let answer = client.get("/v1/endpoints").await?;
            if out.is_json() { out.json(&answer) } else { table(out, &answer) }
        }
        Endpoints::Rm { agent } => {
            let answer = client.delete(&format!("/v1/endpoints/{}", segment(agent))).await?;
            if out.is_json() {
                return out.json(&answer);
            }
            out.line(&format!("deleted the endpoint of {agent}"))
        }
        Endpoints::Ping { agent } => ping(client, out, agent).await,
    }
}

fn batch(put: &PutEndpoints) -> Result<Json, Fault> {
    if let Some(file) = &put.file {
        return match read_json(file)? {
            Json::Array(list) => Ok(json!({ "endpoints": list })),
            batch if batch["endpoints"].is_array() => Ok(batch),
            _ => Err(Fault::new(exit::USAGE, "file", format!("{} holds no endpoints", file.display()))
                .fix("write {\"endpoints\":[{\"agentId\":…,\"url\":…,\"implementationVersion\":…}]}")),
        };
    }
    let mut endpoint = json!({
        "agentId": put.agent, "url": put.address, "implementationVersion": put.implementation_version,
    });
    for (name, value) in [("timeoutMs", put.timeout_ms), ("maxConcurrent", put.max_concurrent)] {
        if let Some(value) = value {
            endpoint[name] = json!(value);
        }
    }
    Ok(json!({ "endpoints": [endpoint] }))
}

fn table(out: &Out, answer: &Json) -> Result<(), Fault> {
    let rows = rows(&answer["endpoints"], |endpoint| {
        let health = &endpoint["health"];
        let failures = health["consecutiveFailures"].as_u64().unwrap_or(0);
        let state = match (failures, health["lastSuccessAt"].is_null()) {
            (0, true) => "not used yet".to_owned(),
            (0, false) => "ok".to_owned(),
            (failures, _) => format!("{failures} failures"),
        };
        let served = &health["served"]["implementationVersion"];
        let version = if served.is_null() { &endpoint["implementationVersion"] } else { served };
        vec![
            plain(&endpoint["agentId"]),
            plain(&endpoint["url"]),
            plain(version),
            state,
            optional(&health["lastSuccessAt"]),
            failure(&health["lastError"]),
        ]
    });
    out.table(&["AGENT", "URL", "VERSION", "HEALTH", "LAST SUCCESS", "LAST ERROR"], &rows)
}

async fn ping(client: &Client, out: &Out, agent: &str) -> Result<(), Fault> {
    let begun = Instant::now();
    let answer = client.post(&format!("/v1/endpoints/{}/ping", segment(agent)), &json!({})).await;
    let took = begun.elapsed().as_millis();
    let answer = answer.map_err(|fault| {
        let ours = fault.exit == exit::FAILED && fault.fix.is_none();
        let fix =
            "`nylorun endpoints list` shows the URL; docs/actions.md says what an endpoint answers to a ping";
        if ours { fault.fix(fix) } else { fault }
    })?;
    if out.is_json() {
        return out.json(&answer);
    }
    out.line(&format!("{agent} answers, version {}, {took} ms", plain(&answer["implementationVersion"])))
}
