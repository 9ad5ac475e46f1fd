//! Callbacks of deliveries: `/v1/actions/{actionId}/…`, by the token of the delivery itself
//! (spec: http-api, section 10.4).

use nylorun_actors::model::json::Json;
use nylorun_actors::rules::actions::DeliveryClaim;
use serde_json::json;

use super::answer::{self, Answer};
use super::call::Call;
use super::caller::Caller;
use super::rejection::Rejection;
use super::shapes;
use crate::identity::delivery::Grant;

/// Seconds that a heartbeat's token lives beyond the lease.
const TOKEN_GRACE_S: u64 = 60;

/// The delivery that the token names, for the Action of the path.
pub(super) fn claim(caller: &Caller, action: &str) -> Result<DeliveryClaim, Rejection> {
    match caller {
        Caller::Delivery(claims) => Ok(DeliveryClaim {
            action: action.into(),
            token_action: claims.action_id.clone(),
            generation: claims.generation,
            agent: claims.agent_id.clone(),
        }),
        // The routes' table admits nobody else.
        _ => Err(Rejection::opaque()),
    }
}

pub(super) async fn heartbeat(call: Call) -> Answer {
    let claim = claim(&call.caller, call.param(0))?;
    let (action, agent, generation) = (claim.action.clone(), claim.agent.clone(), claim.generation);
    let beat = call.tenant().heartbeat(claim).await?;
    let lease_s = u64::try_from(call.tenant().config().action_lease_ms).unwrap_or(0).div_ceil(1000);
    let grant = Grant {
        audience: beat.url.as_deref().unwrap_or(""),
        action: Some(action.as_str()),
        agent: &agent,
        generation,
        body: b"",
        ttl_s: lease_s + TOKEN_GRACE_S,
    };
    let token = call.open.signing.mint_delivery(grant).await?;
    Ok(answer::json(&json!({ "token": token, "deadlineAt": beat.deadline_at.to_iso() })))
}

pub(super) async fn result(call: Call) -> Answer {
    let (head, outcome) = call.object(&shapes::OUTCOME).await?;
    let claim = claim(&head.caller, head.param(0))?;
    let receipt = head.tenant().action_result(claim, Json::Object(outcome)).await?;
    Ok(answer::json(&receipt))
}
