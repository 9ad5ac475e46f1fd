//! `POST /v1/sessions/{sessionId}/commands` (spec: http-api, section 7).

use nylorun_actors::model::command::Command;
use nylorun_actors::model::ids::SessionId;

use super::answer::{self, Answer};
use super::call::Call;
use super::rejection::Rejection;

pub(super) async fn post(call: Call) -> Answer {
    let (head, body) = call.json().await?;
    let command = Command::parse(body).map_err(|issues| Rejection::issues(&issues))?;
    let reach = head.caller.reach()?;
    let id = SessionId::from(head.param(0));
    Ok(answer::json(&head.tenant().command(&id, command, &reach).await?))
}
