//! The Tenant's settings of sandboxes: `/v1/tenant/sandbox` (spec: http-api, section 15.4; sandbox, section 5).

use super::answer::{self, Answer};
use super::call::Call;
use super::shapes;

pub(super) async fn get(call: Call) -> Answer {
    Ok(answer::json(&call.tenant().sandbox_settings().await?))
}

/// What is sent replaces everything.
pub(super) async fn put(call: Call) -> Answer {
    let (head, mut body) = call.object(&shapes::PUT_SANDBOX_SETTINGS).await?;
    body.shift_remove("requestId");
    let actor = head.caller.audit_name();
    Ok(answer::json(&head.tenant().put_sandbox_settings(body, actor).await?))
}
