//! The operator's view of the Host, and its end (spec: http-api, section 17). `GET /v1/admin/actors` is ours.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::HttpResponse;
use actix_web::body::{BodySize, MessageBody};
use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::Bytes;
use nylorun_actors::model::json::Json;
use nylorun_actors::ports::store::TenantRow;
use nylorun_actors::rules::Refusal;
use nylorun_actors::tenant::TenantFigures;
use serde_json::json;

use super::answer::{self, Answer};
use super::call::OperatorCall;
use super::protocol;
use super::slot::TenantState;
use super::state::ApiState;

pub(super) async fn status(call: OperatorCall) -> Answer {
    let (tenant, aggregate) = tenant(&call.state).await;
    let facts = call.state.facts();
    let mut body = json!({
        "service": super::SERVICE,
        "version": facts.version,
        "protocol": protocol::range(),
        "tenant": tenant,
        "aggregate": aggregate,
    });
    if let Some(url) = call.state.url() {
        body["host"] = json!({"hostId": facts.host_id, "url": url, "pid": facts.pid});
    }
    Ok(answer::json(&body))
}

async fn tenant(state: &ApiState) -> (Json, Json) {
    let unavailable = json!({"id": null, "name": null, "state": "unavailable", "envelope": null});
    let open = match state.slot().state() {
        TenantState::Open(open) => open,
        TenantState::Opening | TenantState::Closing => return (unavailable, aggregate(None)),
        TenantState::Failed(cause) => {
            let mut tenant = unavailable;
            tenant["cause"] = json!({"code": cause.code, "message": cause.message, "repair": cause.repair});
            return (tenant, aggregate(None));
        }
    };
    let row = open.tenant.store().read(|reads| Ok::<_, Refusal>(reads.tenant()?)).await;
    let figures = open.tenant.figures().await;
    let (Ok(row), Ok(figures)) = (row, figures) else {
        // The operator asks because something is wrong: an answer without figures is better than none.
        let mut tenant = unavailable;
        tenant["id"] = Json::from(open.tenant.id().as_str());
        return (tenant, aggregate(None));
    };
    (opened(&row), aggregate(Some(&figures)))
}

fn opened(row: &TenantRow) -> Json {
    json!({"id": row.id.as_str(), "name": row.name, "state": "open", "envelope": null})
}

fn aggregate(figures: Option<&TenantFigures>) -> Json {
    let counts = figures.map(|f| f.counts).unwrap_or_default();
    let mut aggregate = json!({
        "runningSessions": counts.running_sessions,
        "inFlightDeliveries": counts.delivering_actions,
        "pendingActions": counts.pending_effects,
        "uncertainEffects": counts.uncertain_effects,
    });
    if let Some(figures) = figures {
        aggregate["harness"] = super::tenant::harness(figures);
    }
    aggregate
}

pub(super) async fn actors(call: OperatorCall) -> Answer {
    let open = call.open()?;
    Ok(answer::json(&json!({"actors": open.tenant.actors().await})))
}

pub(super) async fn shutdown(call: OperatorCall) -> Answer {
    let body =
        LastWords { text: Some(Bytes::from_static(br#"{"status":"shutting_down"}"#)), state: call.state };
    Ok(HttpResponse::Ok().insert_header((CONTENT_TYPE, "application/json")).body(body))
}

/// A body that stops the Host once it has been handed to the socket (or the client has gone).
struct LastWords {
    text: Option<Bytes>,
    state: ApiState,
}

impl MessageBody for LastWords {
    type Error = std::convert::Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.text.as_ref().map_or(0, |text| text.len() as u64))
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Poll::Ready(self.text.take().map(Ok))
    }
}

impl Drop for LastWords {
    fn drop(&mut self) {
        self.state.stop();
    }
}
