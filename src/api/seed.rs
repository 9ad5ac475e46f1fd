//! `PUT /v1/tenant/config/seed`: sets what is not set yet (spec: http-api, section 15.2).

use nylorun_actors::model::json::{Json, encode};
use nylorun_actors::rules::{Refusal, models, settings};
use serde_json::json;

use super::answer::{self, Answer};
use super::call::Call;
use super::models::sealed;
use super::shapes;

pub(super) async fn put(call: Call) -> Answer {
    let (head, mut body) = call.object(&shapes::SEED).await?;
    let model = match body.get_mut("model").and_then(Json::as_object_mut) {
        Some(model) => Some(sealed(head.open.models.vault(), model)?),
        None => None,
    };
    let sandbox = body.get("sandbox");
    let mut plain: Vec<(&'static str, String)> = Vec::new();
    if let Some(backend) = sandbox.and_then(|s| s.get("backend")).and_then(Json::as_str) {
        plain.push((settings::SANDBOX_BACKEND, backend.to_owned()));
    }
    if let Some(config) = sandbox.and_then(|s| s.get("config")) {
        settings::checked_sandbox_config(config)?;
        plain.push((settings::SANDBOX_CONFIG, encode(config)));
    }
    if body.contains_key("fixtureModel") {
        plain.push((settings::FIXTURE, "true".to_owned()));
    }
    let actor = head.caller.audit_name();
    let seeded = head.tenant().store().tx(move |tx| {
        let (mut applied, mut kept) = (Vec::new(), Vec::new());
        for (key, value) in plain {
            let list = if settings::put_if_absent(tx, key, &value)? { &mut applied } else { &mut kept };
            list.push(key);
        }
        if let Some((binding, sealed)) = model {
            let list = if models::seed(tx, &actor, &binding, sealed)? { &mut applied } else { &mut kept };
            list.push("model");
        }
        settings::audit(tx, &actor, "tenant.seed", None)?;
        Ok::<_, Refusal>((applied, kept))
    });
    let (applied, kept) = seeded.await?;
    Ok(answer::json(&json!({"applied": applied, "kept": kept})))
}
