//! The six tools of a session's sandbox over HTTP (spec: http-api, section 9; sandbox, section 15).

use actix_web::http::StatusCode;
use nylorun_actors::model::ids::SessionId;
use nylorun_actors::model::json::Json;
use nylorun_actors::model::workspace::Tool;
use nylorun_actors::ports::WorkspaceError;
use nylorun_actors::rules::Refusal;

use super::answer::{self, Answer};
use super::call::Call;
use super::client_gone::ClientGone;
use super::rejection::{Code, Rejection, unavailable};

/// The checks in their order: session, its turn, tool, body, sandbox. A tool that fails is a 200, too.
pub(super) async fn tool(call: Call) -> Answer {
    let id = SessionId::from(call.param(0));
    let session = call.tenant().session_workspace(&id).await?;
    if let Some(turn) = session.active_turn {
        let message = "The session has an active turn, which has the sandbox".to_owned();
        return Err(Refusal::Conflict { message, active_turn: Some(turn), details: None }.into());
    }
    let Some(tool) = Tool::from_name(call.param(1)) else {
        let names = Tool::ALL.map(Tool::as_str).join(", ");
        return Err(Rejection::bad(format!("No such sandbox tool; there are {names}")));
    };
    let client = ClientGone::of(&call.request);
    let (head, mut input) = call.object_or_nothing().await?;
    input.shift_remove("requestId");
    let Some(workspace) = session.workspace else {
        let message = "The session has no sandbox";
        return Err(Rejection::new(StatusCode::NOT_FOUND, Code::RequestRejected, message));
    };
    let running = head.tenant().workspaces().call(workspace, tool, Json::Object(input));
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
