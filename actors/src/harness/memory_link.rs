//! The in-memory channel: an engine's requests become messages to the session's actor, values travel by reference.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use serde_json::json;
use tokio::sync::Mutex;

use super::ordered::both_at_once;
use super::resolved::Resolved;
use crate::messages::session::{Before, Intend, ReadTranscript, Report, ReportAndIntend};
use crate::model::Json;
use crate::model::effect::{EffectIntent, Outcome};
use crate::model::ids::{EffectId, RunId, SessionId, TurnId};
use crate::model::json::encode;
use crate::model::transcript::Entry;
use crate::model::turn::RunGrant;
use crate::ports::engine::{
    AbortSignal, ApiCode, ApiError, EffectReport, IntentAnswer, OutcomeAnswer, Preview, RunLink,
};
use crate::ports::workspaces::RunWorkspaces;
use crate::session::SessionActor;
use crate::tenant::feeds::Feeds;

/// One run's channel.
pub struct MemoryLink {
    run: RunId,
    session_id: SessionId,
    turn_id: TurnId,
    session: Addr<SessionActor>,
    abort: AbortSignal,
    resolved: Rc<Resolved>,
    feeds: Arc<Feeds>,
    workspaces: Option<RunWorkspaces>,
    /// A value that travels with the next thing the run says.
    deferred: RefCell<Option<Before>>,
    /// Held while a deferred value is on its way: what comes after it must not overtake it.
    gate: Rc<Mutex<()>>,
}

impl MemoryLink {
    /// The value that nothing has carried yet.
    pub fn take_deferred(&self) -> Option<Before> {
        self.deferred.take()
    }

    /// The channel of a run.
    pub fn new(
        grant: &RunGrant,
        session: Addr<SessionActor>,
        abort: AbortSignal,
        resolved: Rc<Resolved>,
        feeds: Arc<Feeds>,
        workspaces: Option<RunWorkspaces>,
    ) -> Self {
        Self {
            run: grant.run_id.clone(),
            session_id: grant.session_id.clone(),
            turn_id: grant.turn_id.clone(),
            session,
            abort,
            resolved,
            feeds,
            workspaces,
            deferred: RefCell::default(),
            gate: Rc::default(),
        }
    }
}

fn gone(_: MailboxError) -> ApiError {
    ApiError::new(ApiCode::Unavailable, "the session's actor is gone")
}

impl RunLink for MemoryLink {
    fn intent(
        &self,
        effect: EffectIntent,
        request_hash: String,
    ) -> LocalBoxFuture<'static, Result<IntentAnswer, ApiError>> {
        let (run, session, gate) = (self.run.clone(), self.session.clone(), Rc::clone(&self.gate));
        let Some(before) = self.take_deferred() else {
            return async move {
                drop(gate.lock().await);
                session.send(Intend { run, intent: effect, hash: request_hash }).await.map_err(gone)?
            }
            .boxed_local();
        };
        async move {
            let _held = gate.lock().await;
            let both = ReportAndIntend { run, before, intent: effect, hash: request_hash };
            let (reported, intended) = both_at_once(&session, both).await;
            reported.and(intended)
        }
        .boxed_local()
    }

    fn defer(&self, effect: &EffectId, value: &Arc<Json>) -> bool {
        *self.deferred.borrow_mut() = Some(Before { effect: effect.clone(), value: Arc::clone(value) });
        true
    }

    fn outcome(
        &self,
        effect: EffectId,
        report: EffectReport,
    ) -> LocalBoxFuture<'static, Result<OutcomeAnswer, ApiError>> {
        let told = self.session.send(Report { run: self.run.clone(), effect, report });
        async move { told.await.map_err(gone)? }.boxed_local()
    }

    fn transcript(&self) -> LocalBoxFuture<'static, Result<Arc<Vec<Entry>>, ApiError>> {
        let asked = self.session.send(ReadTranscript { run: self.run.clone() });
        async move { asked.await.map_err(gone)? }.boxed_local()
    }

    fn resolved(&self, effect: EffectId) -> LocalBoxFuture<'static, Outcome> {
        let board = Rc::clone(&self.resolved);
        async move { board.get(&effect).await }.boxed_local()
    }

    fn preview(&self, preview: Preview) {
        if !self.feeds.is_observed(&self.session_id) {
            return;
        }
        let mut shown = json!({ "turnId": self.turn_id.as_str(), "invocationId": preview.invocation_id });
        if let Some(text) = preview.text {
            shown["text"] = json!(text);
        }
        if let Some(call) = preview.tool_call {
            shown["toolCall"] = call;
        }
        self.feeds.preview(&self.session_id, Arc::from(encode(&shown)));
    }

    fn abort(&self) -> AbortSignal {
        self.abort.clone()
    }

    fn workspaces(&self) -> Option<RunWorkspaces> {
        self.workspaces.clone()
    }
}
