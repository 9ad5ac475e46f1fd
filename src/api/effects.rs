//! Effects that wait for a decision: `/v1/sessions/{sessionId}/effects` (DESIGN.md, section 9).

use nylorun_actors::model::ids::{EffectId, SessionId};
use nylorun_actors::model::json::{Json, JsonMap, encode};
use nylorun_actors::model::shape::issue;
use nylorun_actors::rules::reconcile::{Asked, Decision, Resolve};
use nylorun_actors::rules::verdict;

use super::answer::{self, Answer};
use super::body::text;
use super::call::Call;
use super::page::Paging;
use super::rejection::Rejection;
use super::shapes;

pub(super) async fn list(call: Call) -> Answer {
    let query = call.query();
    let paging = Paging::of(&query)?;
    let asked = match query.get("status") {
        None => None,
        Some(name) => match Asked::from_name(&name) {
            Some(asked) => Some(asked),
            None => {
                return Err(Rejection::issues(&[issue(&["status"], "must be uncertain, pending or dead")]));
            }
        },
    };
    let session = SessionId::from(call.param(0));
    let mut effects = call.tenant().open_effects(&session, asked, paging.page()).await?;
    let tail = paging.finish(&mut effects, |effect| effect["effectId"].as_str().unwrap_or_default());
    Ok(answer::text(format!(r#"{{"effects":{}{tail}}}"#, encode(&effects))))
}

pub(super) async fn resolve(call: Call) -> Answer {
    let (head, body) = call.object(&shapes::RESOLVE).await?;
    let resolve = Resolve {
        session: SessionId::from(head.param(0)),
        effect: EffectId::from(head.param(1)),
        request_id: text(&body, "requestId").to_owned(),
        idempotency_key: text(&body, "idempotencyKey").to_owned(),
        decision: decision(&body)?,
        by: head.caller.audit_name(),
        sent: body,
    };
    Ok(answer::json(&head.tenant().resolve_effect(resolve).await?))
}

/// A resolution with exactly what it needs.
fn decision(body: &JsonMap) -> Result<Decision, Rejection> {
    let refuse = |member: &str, words: &str| Err(Rejection::issues(&[issue(&[member], words)]));
    let (outcome, error) = (body.get("outcome"), body.get("error").and_then(Json::as_object));
    match (text(body, "resolution"), outcome, error) {
        ("completed", Some(outcome), None) => {
            verdict::outcome(outcome.clone()).map(Decision::Completed).map_err(Rejection::bad)
        }
        ("completed", None, _) => refuse("outcome", "is needed by the resolution completed"),
        ("failed", None, Some(error)) => Ok(Decision::Failed {
            code: text(error, "code").to_owned(),
            message: text(error, "message").to_owned(),
        }),
        ("failed", _, None) => refuse("error", "is needed by the resolution failed"),
        ("retry", None, None) => Ok(Decision::Retry),
        (_, _, Some(_)) => refuse("error", "belongs to the resolution failed"),
        (_, Some(_), _) => refuse("outcome", "belongs to the resolution completed"),
        _ => refuse("resolution", "must be completed, failed or retry"),
    }
}
