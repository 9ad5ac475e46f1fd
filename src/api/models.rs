//! The Tenant's model: catalogue, providers, choice (spec: http-api, section 15; security, section 12.1).
//!
//! A credential is sealed before anything is stored, and the request's copy is wiped. What an idempotency row keeps of
//! a body is a keyed hash.

use std::sync::Arc;

use nylorun_actors::model::json::{Json, JsonMap, encode};
use nylorun_actors::model::shape::issue;
use nylorun_actors::rules::models::{ModelBinding, Once, Sealed};
use nylorun_actors::rules::{Refusal, models};
use serde_json::json;

use super::answer::{self, Answer};
use super::body::text;
use super::call::{Call, CallHead};
use super::page::Paging;
use super::rejection::Rejection;
use super::shapes;
use crate::engine::model::provider::catalog;
use crate::vault::Vault;
use crate::vault::providers::{plaintext, wipe};

pub(super) async fn catalogue(_: Call) -> Answer {
    Ok(answer::json(&catalog::to_json()))
}

pub(super) async fn providers(call: Call) -> Answer {
    let paging = Paging::of(&call.query())?;
    let read = call.tenant().store().read(|reads| {
        let active = models::active(reads)?.map(|row| row.id);
        let rows = models::providers(reads)?;
        rows.iter()
            .map(|row| {
                let mut view = models::binding(row)?.view();
                let updated = row.rotated_at.unwrap_or(row.created_at).to_iso();
                if let Some(view) = view.as_object_mut() {
                    view.shift_remove("configured");
                    let id = view.shift_remove("provider").unwrap_or_default();
                    let name =
                        catalog::provider(id.as_str().unwrap_or_default()).map_or("Custom", |p| p.name);
                    view.shift_insert(0, "id".to_owned(), id);
                    view.shift_insert(1, "name".to_owned(), Json::from(name));
                    view.insert("lastUpdated".to_owned(), Json::from(updated));
                    view.insert("active".to_owned(), Json::Bool(active.as_ref() == Some(&row.id)));
                }
                Ok(view)
            })
            .collect::<Result<Vec<Json>, Refusal>>()
    });
    let mut views = read.await?;
    let name = |view: &Json| view["name"].as_str().unwrap_or_default().to_owned();
    views.sort_by_key(name);
    // Names are unique here: one row for each provider, and one that is custom.
    let of = |view: &Json| view["name"].as_str().map(str::to_owned).unwrap_or_default();
    let mut named: Vec<(String, Json)> = views.into_iter().map(|view| (of(&view), view)).collect();
    paging.select(&mut named, |(name, _)| name);
    let tail = paging.finish(&mut named, |(name, _)| name);
    let views: Vec<Json> = named.into_iter().map(|(_, view)| view).collect();
    Ok(answer::text(format!(r#"{{"providers":{}{tail}}}"#, encode(&views))))
}

pub(super) async fn get(call: Call) -> Answer {
    let view = call.tenant().store().read(|reads| models::view(reads)).await?;
    Ok(answer::json(&view))
}

pub(super) async fn put(call: Call) -> Answer {
    let (head, mut body) = call.object(&shapes::PUT_MODEL).await?;
    let once = once(&head, "host-model", &body);
    let (binding, sealed) = sealed(head.open.models.vault(), &mut body)?;
    let store = head.tenant().store();
    let response = store.tx(move |tx| models::put(tx, &once, &binding, sealed)).await?;
    Ok(answer::text(response.as_str().to_owned()))
}

/// The binding and the sealed credential of a checked body; the body's own copy of the credential is wiped.
pub(super) fn sealed(vault: &Vault, body: &mut JsonMap) -> Result<(ModelBinding, Sealed), Rejection> {
    let mut auth = body.shift_remove("auth").unwrap_or_default();
    let member = |name: &str| body.get(name).and_then(Json::as_str).map(str::to_owned);
    let binding = ModelBinding {
        provider: member("provider").unwrap_or_default(),
        model: member("model").unwrap_or_default(),
        auth_type: auth.get("type").and_then(Json::as_str).unwrap_or_default().to_owned(),
        base_url: member("baseUrl"),
        settings: body.get("settings").cloned(),
    };
    let secret = plaintext(&mut auth);
    wipe(&mut auth);
    check(&binding)?;
    let sealed = vault.seal(&binding.aad(), &secret).map_err(|error| Rejection::internal(&error))?;
    Ok((binding, sealed))
}

fn check(binding: &ModelBinding) -> Result<(), Rejection> {
    let problems = catalog::problems(
        &binding.provider,
        &binding.model,
        binding.base_url.as_deref(),
        binding.settings.as_ref(),
    );
    if problems.is_empty() {
        return Ok(());
    }
    let issues: Vec<_> = problems.into_iter().map(|problem| issue(&[], problem)).collect();
    Err(Rejection::issues(&issues))
}

pub(super) async fn select(call: Call) -> Answer {
    let (head, body) = call.object(&shapes::SELECT_MODEL).await?;
    let once = once(&head, "host-model-select", &body);
    let vault = Arc::clone(head.open.models.vault());
    let response = head.tenant().store().tx(move |tx| {
        let choice =
            (text(&body, "provider"), text(&body, "model"), body.get("baseUrl").and_then(Json::as_str));
        models::select(tx, &once, choice, |row, chosen| {
            let problems = catalog::problems(
                &chosen.provider,
                &chosen.model,
                chosen.base_url.as_deref(),
                chosen.settings.as_ref(),
            );
            if !problems.is_empty() {
                let issues = problems.iter().map(|p| json!({"path": [], "code": "custom", "message": p}));
                return Err(Refusal::Invalid { message: String::new(), issues: issues.collect() });
            }
            // The model is part of what a credential is bound to, so a choice seals it anew.
            let opened = vault.open_model(row).and_then(|(_, secret)| vault.seal(&chosen.aad(), &secret));
            opened
                .map_err(|_| Refusal::conflict("The provider's credential could not be read; store it again"))
        })
    });
    Ok(answer::text(response.await?.as_str().to_owned()))
}

fn once(head: &CallHead, operation: &str, body: &JsonMap) -> Once {
    let key = format!("{operation}:{}", text(body, "idempotencyKey"));
    let mut copy = body.clone();
    copy.shift_remove("requestId");
    let mut copy = Json::Object(copy);
    let body_hash = head.open.models.vault().fingerprint(&copy);
    wipe(&mut copy);
    Once { key, body_hash, actor: head.caller.audit_name() }
}
