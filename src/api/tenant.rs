//! `GET /v1/tenant`: the Tenant's status (spec: http-api, section 15.1). Never secrets.

use std::collections::BTreeMap;

use nylorun_actors::model::json::Json;
use nylorun_actors::ports::store::{Page, Reads, StoreResult};
use nylorun_actors::rules::{Refusal, models, settings};
use nylorun_actors::tenant::TenantFigures;
use serde_json::json;

use super::answer::{self, Answer};
use super::call::Call;
use super::health::store_health;

pub(super) async fn status(call: Call) -> Answer {
    let tenant = call.tenant();
    let figures = tenant.figures().await?;
    let backend = tenant.workspaces().report().await.backend;
    let read = tenant.store().read(|reads| {
        let model = models::view(reads)?;
        let fixture = settings::fixture_model(reads)?;
        let agents = served(reads)?;
        Ok::<_, Refusal>((reads.tenant()?, model, fixture, agents))
    });
    let (row, model, fixture, agents) = read.await?;
    let configured = model["configured"] == Json::Bool(true);
    let schema_version = row.schema_version;
    let health = store_health(&call.state, &call.open).await;
    let (healthy, current) =
        health.map_or((false, false), |h| (h.ok, h.schema_version == h.expected_schema_version));
    let mut body = json!({
        "tenant": {
            "id": row.id.as_str(),
            "name": row.name,
            "createdAt": row.created_at.to_iso(),
            "updatedAt": row.updated_at.to_iso(),
            "schemaVersion": schema_version,
        },
        "path": call.state.facts().home,
        "checks": {
            "store": healthy,
            "scheduler": figures.accepting,
            "model": configured || fixture,
            "endpoints": true,
            "schema": current,
        },
        "model": model,
        "agents": agents,
        "counts": {
            "sessions": figures.counts.sessions,
            "runningSessions": figures.counts.running_sessions,
            "pendingActions": figures.counts.pending_effects,
            "uncertainEffects": figures.counts.uncertain_effects,
        },
        "sandbox": {"backend": backend, "retained": figures.workspaces},
        "harness": harness(&figures),
    });
    // Ours, and there only when there is something to tell (DESIGN.md, section 9).
    if figures.counts.parked_actions > 0 {
        body["counts"]["deadActions"] = json!(figures.counts.parked_actions);
    }
    Ok(answer::json(&body))
}

/// The definitions and the agents with an endpoint, by id.
fn served(reads: &mut dyn Reads) -> StoreResult<Vec<Json>> {
    let mut agents: BTreeMap<String, (bool, bool)> = BTreeMap::new();
    for row in reads.definitions(&Page::default())? {
        agents.entry(row.id.to_string()).or_default().0 = true;
    }
    for row in reads.endpoints(&Page::default())? {
        agents.entry(row.agent_id.to_string()).or_default().1 = true;
    }
    let view =
        |(id, (registered, endpoint))| json!({"agentId": id, "registered": registered, "endpoint": endpoint});
    Ok(agents.into_iter().map(view).collect())
}

/// `{mode, connected, workspace}`.
pub(super) fn harness(figures: &TenantFigures) -> Json {
    json!({
        "mode": figures.harness_mode.as_str(),
        "connected": figures.harnesses_connected,
        "workspace": figures.harness_workspace,
    })
}
