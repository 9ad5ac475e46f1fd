//! `nylorun status`: how the Runtime does, what is wrong when it is not ready, and what every actor waits for.

use nylorun_actors::model::json::{self, Json};
use serde_json::json;

use super::client::Client;
use super::events::cut;
use super::fault::{Fault, exit};
use super::out::{Out, plain};
use super::resources::rows;
use super::target::Target;

/// `status`: what can be learnt without a key first, so that a Runtime that is not ready is told, too.
///
/// # Errors
/// What a person reads; the exit code says whether it runs and is ready.
pub async fn status(client: &Client, operator: Option<Target>, out: &Out) -> Result<(), Fault> {
    let ready = client.probe("/ready").await;
    if ready.as_ref().is_some_and(|ready| ready["status"] == "not_ready") {
        // The operator's status names the cause.
        let cause = match operator.map(Client::new) {
            Some(Ok(operator)) => {
                operator.get("/v1/admin/status").await.ok().map(|s| s["tenant"]["cause"].clone())
            }
            _ => None,
        };
        let cause = cause.filter(|cause| !cause.is_null());
        let code = cause.as_ref().and_then(|cause| cause["code"].as_str()).unwrap_or("not_ready").to_owned();
        let level = if code == "schema-too-new" { exit::TOO_OLD } else { exit::NOT_READY };
        let url = &client.target().url;
        return Err(match cause {
            Some(cause) => Fault::new(
                level,
                &code,
                format!("the Runtime at {url} is not ready: {}", plain(&cause["message"])),
            )
            .fix(plain(&cause["repair"])),
            None => Fault::new(level, &code, format!("the Runtime at {url} is not ready"))
                .fix("wait a moment; its log says more"),
        });
    }
    let tenant = client.get("/v1/tenant").await?;
    let health = client.probe("/health").await.unwrap_or(Json::Null);
    // A person's token may not see them, and the rest of the status is worth something without.
    let endpoints = match client.call(reqwest::Method::GET, "/v1/endpoints", None).await {
        Ok(answer) => answer["endpoints"].clone(),
        Err(_) => Json::Null,
    };
    let sandbox = match client.call(reqwest::Method::GET, "/v1/tenant/sandbox", None).await {
        Ok(answer) => answer,
        Err(_) => Json::Null,
    };
    if out.is_json() {
        return out.json(&json!({
            "url": client.target().url, "health": health, "ready": ready, "tenant": tenant,
            "endpoints": endpoints, "sandbox": sandbox,
        }));
    }
    let (counts, harness) = (&tenant["counts"], &tenant["harness"]);
    out.line(&format!(
        "nylorun {}  pid {}  {}",
        plain(&health["version"]),
        plain(&health["pid"]),
        client.target().url
    ))?;
    out.line(&format!(
        "tenant    {} ({})",
        plain(&tenant["tenant"]["id"]),
        plain(&tenant["tenant"]["name"])
    ))?;
    let checks: Vec<String> = tenant["checks"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, ok)| format!("{name} {}", if ok == true { "ok" } else { "NOT OK" }))
        .collect();
    out.line(&format!("checks    {}", checks.join(", ")))?;
    out.line(&format!(
        "harness   {}, {} connected{}",
        plain(&harness["mode"]),
        plain(&harness["connected"]),
        if harness["workspace"] == true { ", with workspaces" } else { "" }
    ))?;
    out.line(&sandboxes(&tenant["sandbox"], &sandbox))?;
    out.line(&format!("agents    {}", tenant["agents"].as_array().map_or(0, Vec::len)))?;
    out.line(&format!(
        "sessions  {}, running {}",
        plain(&counts["sessions"]),
        plain(&counts["runningSessions"])
    ))?;
    out.line(&format!(
        "effects   {} waiting, {} uncertain",
        plain(&counts["pendingActions"]),
        plain(&counts["uncertainEffects"])
    ))?;
    actions(out, &tenant, &endpoints)
}

/// What keeps sandboxes apart, or why there are none, and how many are kept.
fn sandboxes(status: &Json, report: &Json) -> String {
    let kept = plain(&status["retained"]);
    let reason = report["reason"].as_str().map(|reason| format!(" ({reason})")).unwrap_or_default();
    match status["backend"].as_str() {
        Some(backend) => format!("sandboxes {backend}{reason}, {kept} kept"),
        None => format!("sandboxes NONE{reason}, {kept} kept; `nylorun doctor` says more"),
    }
}

/// Endpoints that fail, and Actions that wait for nothing but a person.
fn actions(out: &Out, tenant: &Json, endpoints: &Json) -> Result<(), Fault> {
    let all = endpoints.as_array().map_or(&[][..], Vec::as_slice);
    let failing: Vec<&Json> =
        all.iter().filter(|e| e["health"]["consecutiveFailures"].as_u64().is_some_and(|n| n > 0)).collect();
    if !all.is_empty() {
        let state =
            if failing.is_empty() { "all well".to_owned() } else { format!("{} failing", failing.len()) };
        out.line(&format!("endpoints {}, {state}", all.len()))?;
    }
    for endpoint in failing {
        let (health, agent) = (&endpoint["health"], plain(&endpoint["agentId"]));
        out.line(&format!(
            "          {agent}: {} failures in a row at {}: {}",
            plain(&health["consecutiveFailures"]),
            plain(&endpoint["url"]),
            failure(&health["lastError"]),
        ))?;
    }
    let without: Vec<String> = tenant["agents"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|agent| agent["registered"] == false && agent["endpoint"] == true)
        .map(|agent| plain(&agent["agentId"]))
        .collect();
    if !without.is_empty() {
        out.line(&format!("          no agent is registered for the endpoints of {}", without.join(", ")))?;
    }
    if let Some(dead) = tenant["counts"]["deadActions"].as_u64().filter(|dead| *dead > 0) {
        out.line(&format!(
            "dead      {dead} Actions are not delivered any more; `nylorun endpoints ping AGENT` or \
             `nylorun effects resolve` revives them"
        ))?;
    }
    Ok(())
}

/// An endpoint's last error in a few words.
pub(super) fn failure(error: &Json) -> String {
    if error.is_null() {
        return "-".to_owned();
    }
    cut(&format!("{} ({})", plain(&error["code"]), plain(&error["message"])), 100)
}

/// `status --actors`: what every actor holds and waits for.
///
/// # Errors
/// What a person reads.
pub async fn actors(operator: &Client, out: &Out) -> Result<(), Fault> {
    let answer = operator.get("/v1/admin/actors").await?;
    if out.is_json() {
        return out.json(&answer);
    }
    let rows = rows(&answer["actors"], |actor| {
        vec![plain(&actor["kind"]), plain(&actor["id"]), json::encode(&actor["state"])]
    });
    out.table(&["ACTOR", "ID", "STATE"], &rows)
}
