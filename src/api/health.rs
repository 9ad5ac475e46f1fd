//! `/health` and `/ready` (spec: http-api, section 4). Neither needs a credential or a protocol; neither is logged.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::CONTENT_TYPE;
use nylorun_actors::model::json::encode;
use nylorun_actors::ports::store::StoreHealth;
use serde_json::json;

use super::answer::{self, Answer};
use super::limits::READY_TIME;
use super::slot::OpenTenant;
use super::state::ApiState;

pub(super) async fn health(state: ApiState) -> Answer {
    Ok(answer::text(state.health()))
}

/// Ready: listening, the Tenant open and taking work, the store healthy.
pub(super) async fn ready(state: ApiState) -> Answer {
    let open = state.slot().open_tenant();
    let mut checks = json!({"listener": true, "tenant": open.is_some()});
    let mut all = open.is_some();
    if let Some(open) = open {
        let store = store_health(&state, &open).await.is_some_and(|health| health.ok);
        checks["store"] = store.into();
        all &= store;
    }
    let (code, word) =
        if all { (StatusCode::OK, "ready") } else { (StatusCode::SERVICE_UNAVAILABLE, "not_ready") };
    let body = encode(&json!({"status": word, "service": super::SERVICE, "checks": checks}));
    Ok(HttpResponse::build(code).insert_header((CONTENT_TYPE, "application/json")).body(body))
}

/// Asks the store on a thread of its own; `None` when it did not answer in time. A late probe's permit comes back only
/// when it ends, so a store that hangs can not eat threads.
pub(super) async fn store_health(state: &ApiState, open: &OpenTenant) -> Option<StoreHealth> {
    let (state, store) = (state.clone(), open.tenant.store().store().clone());
    let probe = async move {
        let permit = state.probes().acquire().await.ok()?;
        permit.forget();
        let asked = tokio::task::spawn_blocking(move || {
            // Also given back when the probe panics.
            let _permit = Permit(state);
            store.health()
        });
        asked.await.ok()
    };
    tokio::time::timeout(READY_TIME, probe).await.ok().flatten()
}

struct Permit(ApiState);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.probes().add_permits(1);
    }
}
