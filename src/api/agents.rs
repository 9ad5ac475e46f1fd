//! Definitions: `PUT /v1/agents/{agentId}` and `GET /v1/agents` (spec: http-api, section 5).

use nylorun_actors::model::ids::AgentId;
use nylorun_actors::model::json::{Json, encode};
use nylorun_actors::model::manifest;
use nylorun_actors::model::shape::{Issue, PathItem, issue};
use nylorun_actors::tenant::{AgentView, PutAgent};
use serde_json::json;

use super::answer::{self, Answer};
use super::body::text;
use super::call::Call;
use super::page::Paging;
use super::rejection::Rejection;
use super::shapes;

/// The checks in their order: the body with its manifest, the id, declared sandboxes, the store.
pub(super) async fn put(call: Call) -> Answer {
    let (head, body) = call.json().await?;
    let mut issues = shapes::PUT_AGENT.check(&body);
    let document = body.get("manifest").filter(|manifest| manifest.is_object());
    let definition = document.and_then(|document| match manifest::parse(document) {
        Ok(definition) => Some(definition),
        Err(found) => {
            issues.extend(found.into_iter().map(below_manifest));
            None
        }
    });
    let (Json::Object(mut body), Some(definition), true) = (body, definition, issues.is_empty()) else {
        return Err(Rejection::issues(&issues));
    };
    let id = head.param(0);
    if definition.id() != id {
        return Err(Rejection::issues(&[issue(&["manifest", "id"], "must equal the id in the path")]));
    }
    let sandboxes = definition.declares_sandbox();
    if !sandboxes.is_empty() {
        let words = format!("sandboxes are not declared in definitions: {}", sandboxes.join("; "));
        return Err(Rejection::issues(&[issue(&["manifest"], words)]));
    }
    let put = PutAgent {
        id: AgentId::from(id),
        implementation_version: text(&body, "implementationVersion").to_owned(),
        plugin_roots: body.get("pluginRoots").and_then(Json::as_object).cloned(),
        manifest: body.remove("manifest").unwrap_or_default(),
    };
    let view = head.tenant().put_agent(put).await?;
    Ok(answer::json(&json!({
        "agentId": view.id.as_str(),
        "manifestHash": view.manifest_hash,
        "implementationVersion": view.implementation_version,
    })))
}

fn below_manifest(mut issue: Issue) -> Issue {
    issue.path.insert(0, PathItem::from("manifest"));
    issue
}

pub(super) async fn list(call: Call) -> Answer {
    let paging = Paging::of(&call.query())?;
    let mut agents = call.tenant().agents(paging.page()).await?;
    let tail = paging.finish(&mut agents, |agent| agent.id.as_str());
    let mut out = String::from(r#"{"agents":["#);
    for (at, agent) in agents.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_agent(&mut out, agent);
    }
    out.push(']');
    out.push_str(&tail);
    out.push('}');
    Ok(answer::text(out))
}

/// The stored text of the manifest goes out as it is.
fn write_agent(out: &mut String, agent: &AgentView) {
    out.push_str(r#"{"agentId":"#);
    out.push_str(&encode(agent.id.as_str()));
    out.push_str(r#","manifest":"#);
    out.push_str(agent.manifest.as_str());
    out.push_str(r#","manifestHash":"#);
    out.push_str(&encode(&agent.manifest_hash));
    out.push_str(r#","implementationVersion":"#);
    out.push_str(&encode(&agent.implementation_version));
    out.push('}');
}
