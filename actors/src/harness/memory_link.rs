//! The in-memory channel: an engine's requests become messages to the session's actor, values travel by reference.

use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use serde_json::json;

use super::resolved::Resolved;
use crate::messages::session::{Intend, ReadTranscript, Report};
use crate::model::effect::{EffectIntent, Outcome};
use crate::model::ids::{EffectId, RunId, SessionId, TurnId};
use crate::model::json::encode;
use crate::model::transcript::Entry;
use crate::model::turn::RunGrant;
use crate::ports::engine::{
    AbortSignal, ApiCode, ApiError, EffectReport, IntentAnswer, OutcomeAnswer, Preview, RunLink,
};
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
}

impl MemoryLink {
    /// The channel of a run.
    pub fn new(
        grant: &RunGrant,
        session: Addr<SessionActor>,
        abort: AbortSignal,
        resolved: Rc<Resolved>,
        feeds: Arc<Feeds>,
    ) -> Self {
        Self {
            run: grant.run_id.clone(),
            session_id: grant.session_id.clone(),
            turn_id: grant.turn_id.clone(),
            session,
            abort,
            resolved,
            feeds,
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
        let asked = self.session.send(Intend { run: self.run.clone(), intent: effect, hash: request_hash });
        async move { asked.await.map_err(gone)? }.boxed_local()
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
}
