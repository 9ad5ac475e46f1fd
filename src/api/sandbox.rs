//! The six tools of a session's sandbox over HTTP (spec: http-api, section 9; sandbox, section 15).

use actix_web::http::StatusCode;
use nylorun_actors::model::ids::SessionId;
use nylorun_actors::model::json::{Json, JsonMap};
use nylorun_actors::model::shape::OBJECT;
use nylorun_actors::model::workspace::Tool;
use nylorun_actors::ports::WorkspaceError;
use nylorun_actors::rules::workspaces::SessionWorkspace;
use nylorun_actors::rules::{Refusal, SandboxRefusal};
use nylorun_actors::tenant::Tenant;

use super::actions;
use super::answer::{self, Answer};
use super::call::Call;
use super::client_gone::ClientGone;
use super::rejection::{Code, Rejection, unavailable};

/// `POST /v1/sessions/{id}/sandbox/{tool}`. The checks in their order: session, its turn, tool, body, sandbox, turns of
/// other sessions in that. A tool that fails is a 200, too.
pub(super) async fn of_session(call: Call) -> Answer {
    let id = SessionId::from(call.param(0));
    let session = call.tenant().session_workspace(&id).await?;
    if let Some(turn) = session.active_turn {
        let message = "The session has an active turn, which has the sandbox".to_owned();
        return Err(Refusal::Conflict { message, active_turn: Some(turn), details: None }.into());
    }
    let tool = tool(call.param(1))?;
    let client = ClientGone::of(&call.request);
    let (head, input) = call.object_or_nothing().await?;
    if let Some(sandbox) = &session.busy {
        // Turns in a sandbox are serial, and what comes between them is no part of one either.
        let message = format!("Another session has a turn in the sandbox {sandbox}");
        return Err(Refusal::sandbox_for_now(SandboxRefusal::Busy, message).into());
    }
    run(head.tenant(), session, tool, input, client).await
}

/// `POST /v1/actions/{id}/sandbox/{tool}`, by the delivery of the Action: body, delivery, tool, sandbox.
pub(super) async fn of_action(call: Call) -> Answer {
    let client = ClientGone::of(&call.request);
    let (head, input) = call.object(&OBJECT).await?;
    let claim = actions::claim(&head.caller, head.param(0))?;
    let session = head.tenant().action_workspace(claim).await?;
    run(head.tenant(), session, tool(head.param(1))?, input, client).await
}

fn tool(name: &str) -> Result<Tool, Rejection> {
    Tool::from_name(name).ok_or_else(|| {
        let names = Tool::ALL.map(Tool::as_str).join(", ");
        Rejection::bad(format!("No such sandbox tool; there are {names}"))
    })
}

async fn run(
    tenant: &Tenant,
    session: SessionWorkspace,
    tool: Tool,
    mut input: JsonMap,
    client: ClientGone,
) -> Answer {
    input.shift_remove("requestId");
    let Some(workspace) = session.workspace else {
        let message = "The session has no sandbox";
        return Err(Rejection::new(StatusCode::NOT_FOUND, Code::RequestRejected, message));
    };
    if session.deleted {
        let message = "The sandbox of this session does not exist (any more)";
        return Err(Refusal::sandbox(SandboxRefusal::Unavailable, message).into());
    }
    let running = tenant.workspaces().call(workspace, tool, Json::Object(input));
    tokio::select! {
        outcome = running => Ok(answer::json(&outcome?)),
        // Dropping the call stops what runs for it. Nobody reads this answer.
        () = client.wait() => Err(unavailable("The client has gone")),
    }
}

impl From<WorkspaceError> for Rejection {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::Unavailable(why) => {
                tracing::info!(why, "a workspace cannot be reached");
                unavailable(why)
            }
            WorkspaceError::PodAway => {
                let message = "The sandbox's pod is stopped or starting";
                Self::new(StatusCode::CONFLICT, Code::SandboxUnavailable, message)
            }
            WorkspaceError::Failed(error) => Self::internal(&error),
            WorkspaceError::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nylorun_actors::ports::engine::{ApiCode, ApiError};
    use nylorun_actors::ports::store::StoreError;

    #[test]
    fn each_way_not_to_reach_a_workspace_has_its_status_and_code() {
        let failed = |code| WorkspaceError::from(ApiError::new(code, "why"));
        for (error, status, code) in [
            (WorkspaceError::Unavailable("x".into()), 503, Code::RequestRejected),
            (failed(ApiCode::Unavailable), 503, Code::RequestRejected),
            (WorkspaceError::PodAway, 409, Code::SandboxUnavailable),
            (failed(ApiCode::Invalid), 500, Code::InternalError),
            (failed(ApiCode::Internal), 500, Code::InternalError),
            (StoreError::Closed.into(), 503, Code::RequestRejected),
        ] {
            let rejection = Rejection::from(error);
            assert_eq!((rejection.status().as_u16(), rejection.code()), (status, code));
        }
    }
}
