//! Requests of core to a harness, and what it claims while it serves them (spec: harness-api, sections 5, 7.2 and 15).
//!
//! Each request has a number of this direction and is answered once: by the peer, by the end of the connection, by the
//! time it has, or not at all because its asker gave up; then the peer gets an `abort`. Answers to anything else are
//! ignored.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::HarnessActor;
use super::frame::Frame;
use super::methods;
use crate::limits::{
    HARNESS_ASKED, HARNESS_FRAME_BYTES, WORKSPACE_ANSWER_MS, WORKSPACE_REPORT_MS, WORKSPACE_SWEEP_MS,
};
use crate::messages::workspaces::{
    GiveUp, RemoveWorkspaces, ReportWorkspaces, SweepWorkspaces, WorkspaceFile, WorkspaceFiles, WorkspaceTool,
};
use crate::model::Json;
use crate::model::ids::SessionId;
use crate::model::workspace::{
    BytesAnswer, ListAnswer, SweptWorkspaces, ToolOutcome, WorkspaceReport, WorkspaceSession, WorkspaceSweep,
};
use crate::ports::engine::{ApiCode, ApiError};

/// Whose workspaces may be claimed while a request is in flight.
#[derive(Debug)]
enum Scope {
    Owner(SessionId),
    Any,
    None,
}

/// A request that was not answered yet.
#[derive(Debug)]
struct Asked {
    ticket: u64,
    scope: Scope,
    reply: oneshot::Sender<Result<Json, ApiError>>,
    deadline: SpawnHandle,
}

/// The requests of core on one connection.
#[derive(Debug, Default)]
pub(super) struct AskedAll {
    last: u64,
    open: BTreeMap<u64, Asked>,
}

impl AskedAll {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether a claim about a session's workspace belongs to a request in flight.
    pub(super) fn cover(&self, session: &SessionId) -> bool {
        self.open.values().any(|asked| match &asked.scope {
            Scope::Owner(owner) => owner == session,
            Scope::Any => true,
            Scope::None => false,
        })
    }

    /// The connection ends: nobody is answered any more.
    pub(super) fn fail_all(&mut self) {
        for asked in std::mem::take(&mut self.open).into_values() {
            // Its asker may have gone this very moment.
            let _ = asked.reply.send(Err(unavailable("the harness's connection ended")));
        }
    }
}

fn unavailable(message: &str) -> ApiError {
    ApiError::new(ApiCode::Unavailable, message)
}

impl HarnessActor {
    /// Asks the peer. The future ends with its answer, read into its closed shape.
    fn ask<P: Serialize, R: DeserializeOwned + 'static>(
        &mut self,
        ticket: u64,
        (method, within_ms): (&str, u64),
        scope: Scope,
        params: &P,
        ctx: &mut Context<Self>,
    ) -> ResponseFuture<Result<R, ApiError>> {
        let asked = self.ask_peer(ticket, method, within_ms, scope, params, ctx);
        Box::pin(async move {
            // The actor died: its connection ends with it.
            let gone = |_| Err(unavailable("the harness's connection ended"));
            methods::result(asked?.await.unwrap_or_else(gone)?)
        })
    }

    fn ask_peer<P: Serialize>(
        &mut self,
        ticket: u64,
        method: &str,
        within_ms: u64,
        scope: Scope,
        params: &P,
        ctx: &mut Context<Self>,
    ) -> Result<oneshot::Receiver<Result<Json, ApiError>>, ApiError> {
        let Some(wire) = self.wire_mut().filter(|wire| !wire.is_closing() && wire.serves_workspaces()) else {
            return Err(unavailable("this harness serves no workspaces"));
        };
        if wire.asked.open.len() >= HARNESS_ASKED {
            return Err(unavailable("too many requests wait for the harness"));
        }
        let id = wire.asked.last + 1;
        let text = Frame::request(id, method, params);
        if text.len() > HARNESS_FRAME_BYTES {
            return Err(ApiError::new(ApiCode::Invalid, "the request is larger than a frame may be"));
        }
        let (reply, answer) = oneshot::channel();
        let within = Duration::from_millis(within_ms);
        let deadline = ctx.run_later(within, move |act, ctx| act.out_of_time(id, ctx));
        wire.asked.last = id;
        wire.asked.open.insert(id, Asked { ticket, scope, reply, deadline });
        self.push(text, ctx);
        Ok(answer)
    }

    /// An answer has come. Nobody waits for a number that is unknown or was given up.
    pub(super) fn answered(&mut self, id: u64, result: Result<Json, ApiError>, ctx: &mut Context<Self>) {
        let Some(asked) = self.wire_mut().and_then(|wire| wire.asked.open.remove(&id)) else { return };
        ctx.cancel_future(asked.deadline);
        let _ = asked.reply.send(result);
    }

    fn out_of_time(&mut self, id: u64, ctx: &mut Context<Self>) {
        let Some(asked) = self.wire_mut().and_then(|wire| wire.asked.open.remove(&id)) else { return };
        let _ = asked.reply.send(Err(unavailable("the harness did not answer in time")));
        self.push(Frame::abort(id), ctx);
    }

    fn give_up_asked(&mut self, ticket: u64, ctx: &mut Context<Self>) {
        let Some(wire) = self.wire_mut() else { return };
        let found = wire.asked.open.iter().find(|(_, asked)| asked.ticket == ticket).map(|(id, _)| *id);
        // It was answered before its asker gave up, or never sent.
        let Some(id) = found else { return };
        if let Some(asked) = wire.asked.open.remove(&id) {
            ctx.cancel_future(asked.deadline);
            self.push(Frame::abort(id), ctx);
        }
    }
}

fn owner(session: &WorkspaceSession) -> Scope {
    Scope::Owner(session.owner_id.clone())
}

impl Handler<WorkspaceTool> for HarnessActor {
    type Result = ResponseFuture<Result<ToolOutcome, ApiError>>;

    fn handle(&mut self, msg: WorkspaceTool, ctx: &mut Self::Context) -> Self::Result {
        let how = (msg.call.tool.method(), WORKSPACE_ANSWER_MS);
        self.ask(msg.ticket, how, owner(&msg.call.session), &msg.call, ctx)
    }
}

impl Handler<WorkspaceFiles> for HarnessActor {
    type Result = ResponseFuture<Result<ListAnswer, ApiError>>;

    fn handle(&mut self, msg: WorkspaceFiles, ctx: &mut Self::Context) -> Self::Result {
        let how = ("workspace.read", WORKSPACE_ANSWER_MS);
        self.ask(msg.ticket, how, owner(&msg.list.session), &msg.list, ctx)
    }
}

impl Handler<WorkspaceFile> for HarnessActor {
    type Result = ResponseFuture<Result<BytesAnswer, ApiError>>;

    fn handle(&mut self, msg: WorkspaceFile, ctx: &mut Self::Context) -> Self::Result {
        let how = ("workspace.read", WORKSPACE_ANSWER_MS);
        self.ask(msg.ticket, how, owner(&msg.bytes.session), &msg.bytes, ctx)
    }
}

impl Handler<ReportWorkspaces> for HarnessActor {
    type Result = ResponseFuture<Result<WorkspaceReport, ApiError>>;

    fn handle(&mut self, msg: ReportWorkspaces, ctx: &mut Self::Context) -> Self::Result {
        let params = serde_json::Map::new();
        self.ask(msg.ticket, ("workspace.report", WORKSPACE_REPORT_MS), Scope::None, &params, ctx)
    }
}

impl Handler<SweepWorkspaces> for HarnessActor {
    type Result = ResponseFuture<Result<SweptWorkspaces, ApiError>>;

    fn handle(&mut self, msg: SweepWorkspaces, ctx: &mut Self::Context) -> Self::Result {
        // Without `now`: its clock has counted the idle time, so it must judge it.
        let params = WorkspaceSweep::default();
        self.ask(msg.ticket, ("workspace.sweep", WORKSPACE_SWEEP_MS), Scope::Any, &params, ctx)
    }
}

impl Handler<RemoveWorkspaces> for HarnessActor {
    type Result = ResponseFuture<Result<(), ApiError>>;

    fn handle(&mut self, msg: RemoveWorkspaces, ctx: &mut Self::Context) -> Self::Result {
        let how = ("workspace.remove", WORKSPACE_SWEEP_MS);
        let removed = self.ask::<_, methods::Nothing>(msg.ticket, how, Scope::Any, &msg.what, ctx);
        Box::pin(async move { removed.await.map(|_| ()) })
    }
}

impl Handler<GiveUp> for HarnessActor {
    type Result = ();

    fn handle(&mut self, msg: GiveUp, ctx: &mut Self::Context) {
        self.give_up_asked(msg.ticket, ctx);
    }
}
