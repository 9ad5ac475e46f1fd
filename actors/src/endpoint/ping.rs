//! Asking an endpoint whether it serves its agent (spec: http-api, section 10.2).

use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use serde_json::json;

use super::EndpointActor;
use crate::limits::PING_MOST_MS;
use crate::messages::endpoint::{Ping, PingFailed};
use crate::model::Json;
use crate::model::action::Served;
use crate::model::ids::AgentId;
use crate::model::json::{encode, parse};
use crate::ports::action::{Answered, Delivery};
use crate::ports::store::{EndpointRow, StoreError};
use crate::rules::{Refusal, endpoints};
use crate::tenant::tree::Tree;

/// Life of a ping's token, seconds.
const TOKEN_TTL_S: u64 = 60;

impl Handler<Ping> for EndpointActor {
    type Result = ResponseActFuture<Self, Result<Json, PingFailed>>;

    fn handle(&mut self, _msg: Ping, _ctx: &mut Self::Context) -> Self::Result {
        self.last_used = tokio::time::Instant::now();
        let (tree, agent) = (Arc::clone(&self.tree), self.agent.clone());
        let pinging = async move { ping(&tree, agent).await };
        Box::pin(wrap_future::<_, Self>(pinging).map(|result, act, ctx| {
            if result.is_ok() {
                act.failures = 0;
                act.not_before = None;
            }
            act.look(ctx);
            result
        }))
    }
}

async fn ping(tree: &Tree, agent: AgentId) -> Result<Json, PingFailed> {
    let store = &tree.ports.store;
    let of = agent.clone();
    let row = store.read(move |reads| reads.endpoint(&of)).await.map_err(Refusal::from)?;
    let row = row.ok_or_else(|| Refusal::not_found("endpoint"))?;
    let answered = tree.ports.actions.post(delivery(&row)).await;
    match read(&agent, answered) {
        Ok((answer, served)) => {
            let of = agent.clone();
            let noted: Result<(), StoreError> = store.tx(move |tx| endpoints::pinged(tx, &of, &served)).await;
            noted.map_err(Refusal::from)?;
            Ok(answer)
        }
        Err(message) => {
            let (of, text) = (agent.clone(), message.clone());
            let noted: Result<u32, StoreError> =
                store.tx(move |tx| endpoints::note_failure(tx, &of, "endpoint.ping-failed", &text)).await;
            noted.map_err(Refusal::from)?;
            Err(PingFailed::Endpoint(message))
        }
    }
}

fn delivery(row: &EndpointRow) -> Delivery {
    let mut body = json!({ "type": "ping", "agentId": row.agent_id.as_str() });
    if let Some(hash) = &row.manifest_hash {
        body["manifestHash"] = json!(hash);
    }
    Delivery {
        url: row.url.as_str().into(),
        agent: row.agent_id.clone(),
        action: None,
        generation: 0,
        body: encode(&body).into(),
        timeout: Duration::from_millis(u64::try_from(row.timeout_ms.min(PING_MOST_MS)).unwrap_or(0)),
        token_ttl_s: TOKEN_TTL_S,
    }
}

/// A ping's answer: 200 with `{agentId, implementationVersion, manifestHash?}` of this agent.
fn read(agent: &AgentId, answered: Answered) -> Result<(Json, Served), String> {
    let body = match answered {
        Answered::Response { status: 200, body, .. } => body,
        Answered::Response { status, .. } | Answered::TooLarge { status } => {
            return Err(format!("the endpoint answered the ping with HTTP {status}"));
        }
        Answered::NotSent { code, message } | Answered::Lost { code, message } => {
            return Err(format!("the endpoint did not answer the ping: {code}: {message}"));
        }
    };
    let odd = || "the endpoint's answer to the ping is not one of an Action endpoint".to_owned();
    let value = parse(&body).map_err(|_| odd())?;
    let text = |key: &str| value.get(key).and_then(Json::as_str);
    let (of, version) = (text("agentId").ok_or_else(odd)?, text("implementationVersion").ok_or_else(odd)?);
    if of != agent.as_str() {
        return Err("the endpoint serves another agent".to_owned());
    }
    let served = Served {
        implementation_version: version.to_owned(),
        manifest_hash: text("manifestHash").map(str::to_owned),
    };
    let mut answer = json!({ "agentId": of, "implementationVersion": version });
    if let Some(hash) = &served.manifest_hash {
        answer["manifestHash"] = json!(hash);
    }
    Ok((answer, served))
}
