//! One delivery, from its POST to its settlement: a task of its own, which outlives the actor that started it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::jitter;
use crate::messages::endpoint::Delivered;
use crate::model::json::encode;
use crate::ports::action::{Answered, Delivery};
use crate::ports::store::StoreResult;
use crate::rules::actions;
use crate::rules::delivery::{self, Policy, Settled, Started};
use crate::rules::verdict::{self, Verdict};
use crate::tenant::persist::persist;
use crate::tenant::tree::Tree;

/// Seconds that a delivery's token lives beyond the time-out.
const TOKEN_GRACE_S: u64 = 60;

/// Posts, judges, settles, and tells who waits.
pub(super) async fn deliver(tree: Arc<Tree>, started: Started, tell_failure: bool) {
    let (id, generation) = (started.row.id.clone(), started.row.generation);
    let (session, agent) = (started.row.session_id.clone(), started.row.agent_id.clone());
    let answered = match delivery_of(&started) {
        Ok(delivery) => tree.ports.actions.post(delivery).await,
        Err(error) => Answered::NotSent { code: "CORRUPT", message: error.to_string() },
    };
    tracing::debug!(session = %session, action = %id, generation, answer = ?answered, "an Action was delivered");
    let verdict = judge(&tree, &started, answered);
    let failed = matches!(verdict, Verdict::Retry { .. } | Verdict::Lost { .. });
    if let Verdict::Retry { reason, message, .. } | Verdict::Lost { reason, message } = &verdict {
        tracing::warn!(session = %session, agent = %agent, action = %id, generation, reason, why = message, "a delivery failed");
    }
    let policy = Policy {
        lease_ms: tree.config.action_lease_ms,
        max_age_ms: tree.config.delivery_max_age_ms,
        jitter: jitter(&tree),
        tell_failure,
    };
    let all = Arc::new((id.clone(), verdict));
    let settled = persist(&tree.ports.store, None, move |tx| {
        let (id, verdict) = all.as_ref();
        delivery::settle(tx, id, generation, verdict, policy)
    })
    .await;
    let told = match settled {
        Ok(Settled::Completed(resolution)) => {
            tree.resolved(resolution).await;
            false
        }
        Ok(Settled::Retry { told, .. }) => told,
        Ok(Settled::Parked) => {
            tracing::error!(session = %session, agent = %agent, action = %id, generation,
                "an Action is parked: it was tried for too long; a registration, a good ping or an operator revives it");
            false
        }
        Ok(Settled::Stale | Settled::Accepted | Settled::Uncertain(_)) => false,
        Err(error) => {
            tracing::error!(session = %session, action = %id, generation, %error,
                "an Action's answer could not be recorded; its deadline decides");
            false
        }
    };
    tree.tell_endpoint(&agent, Delivered { action: id, generation, failed, told }).await;
}

fn judge(tree: &Tree, started: &Started, answered: Answered) -> Verdict {
    match verdict::verdict(started.row.kind, answered) {
        Verdict::Outcome(outcome) => {
            let members = actions::members(&started.row).unwrap_or_default();
            Verdict::Outcome(verdict::accepted(outcome, &members, |schema, value| {
                tree.ports.schemas.check(schema, value)
            }))
        }
        other => other,
    }
}

fn delivery_of(started: &Started) -> StoreResult<Delivery> {
    let Started { row, endpoint, sandbox } = started;
    let body = json!({ "type": "action", "action": actions::wire(row)?, "sandbox": sandbox });
    let timeout = u64::try_from(endpoint.timeout_ms).unwrap_or(0);
    Ok(Delivery {
        url: endpoint.url.as_str().into(),
        agent: row.agent_id.clone(),
        action: Some(row.id.as_str().into()),
        generation: row.generation,
        body: encode(&body).into(),
        timeout: Duration::from_millis(timeout),
        token_ttl_s: timeout.div_ceil(1000) + TOKEN_GRACE_S,
    })
}
