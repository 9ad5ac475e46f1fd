//! `GET /v1/me`: who the caller is to the Runtime (spec: http-api, section 4).

use serde_json::json;

use super::answer::{self, Answer};
use super::call::Call;
use super::caller::{Caller, Scope};
use super::rejection::Rejection;

pub(super) async fn me(call: Call) -> Answer {
    match &call.caller {
        Caller::Anonymous => Err(Rejection::opaque()),
        Caller::Delivery(_) => Err(Rejection::not_for_deliveries()),
        Caller::Application { principal } => Ok(answer::json(&json!({
            "scopes": Scope::ALL.map(Scope::as_str),
            "agents": "*",
            "via": format!("application:{principal}"),
        }))),
        Caller::Subject { subject, scopes, .. } => Ok(answer::json(&json!({
            "subject": &**subject,
            "scopes": scopes.names().collect::<Vec<_>>(),
            "agents": "*",
            "via": "subject",
        }))),
    }
}
