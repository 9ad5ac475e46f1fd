//! The channel of a harness in another process: frames in, frames out (spec: harness-api, sections 5 to 9 and 14).
//!
//! The socket itself is a thin actor of the listener, which this crate does not know; it brings text and takes text
//! through a [`FrameSink`]. Nothing here waits for the peer: what it does not read piles up at the sink, which is
//! bounded, and a full sink ends the connection.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use actix::prelude::*;
use serde_json::json;
use tokio::time::Instant;

use super::HarnessActor;
use super::asked::AskedAll;
use super::frame::{BadFrame, Frame};
use super::holds::Holds;
use super::methods::{self, OfRun, ReleaseReason, Renewed, Welcome, WelcomeSandbox};
use super::ordered::{Recording, Stash};
use crate::limits::{HARNESS_FRAME_BYTES, HARNESS_REQUESTS};
use crate::messages::harness::{GrantRefused, GrantRun};
use crate::messages::session::{Loss, McpDiscovered, ReadTranscript, ReleaseRun, RenewLease, RunLost};
use crate::messages::supervisor::{HarnessSays, ParkLease, WithdrawLease};
use crate::model::Json;
use crate::model::ids::{RunId, SessionId};
use crate::model::json::encode;
use crate::model::turn::AbortKind;
use crate::ports::engine::{ApiCode, ApiError};
use crate::rules::settings;
use crate::session::SessionActor;

/// Where a connection's frames go. Bounded: it never waits and never grows without limit.
pub trait FrameSink: Send + Unpin + 'static {
    /// Queues a frame.
    ///
    /// # Errors
    /// When the peer has let too much pile up, or is gone.
    fn send(&self, text: String) -> Result<(), SinkFull>;
    /// Closes the connection in order, after what is queued.
    fn close(&self, code: u16, reason: &str);
    /// Since when frames have been waiting without one leaving; `None` when nothing waits.
    fn stalled_since(&self) -> Option<Instant>;
}

/// The peer does not read, or is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer does not take its frames")]
pub struct SinkFull;

/// One connection.
pub(super) struct Wire {
    pub(super) sink: Box<dyn FrameSink>,
    /// For logs: `harness@<address>`.
    pub(super) peer: String,
    /// The pod sandbox whose engine it is.
    pub(super) pod: Option<String>,
    /// What core asks of it.
    pub(super) asked: AskedAll,
    hello: Option<methods::Hello>,
    serving: HashMap<u64, SpawnHandle>,
    /// The message behind this value is looked at next.
    pub(super) stash: Option<Stash>,
    parked: BTreeSet<u64>,
    last_heard: Instant,
    closing: bool,
}

/// A run in the hands of a peer.
pub(super) struct WireRun {
    pub(super) session: Addr<SessionActor>,
    pub(super) session_id: SessionId,
    /// The session whose workspace it uses.
    pub(super) sandbox_owner: Option<SessionId>,
    pub(super) cursor: i64,
    /// What it waits for.
    pub(super) holds: Holds,
    /// What comes behind these values waits for them.
    pub(super) recording: Recording,
    /// The output that was taken, and the further requests that repeat it and wait for the same answer.
    pub(super) output: Option<(String, Vec<u64>)>,
}

impl Wire {
    pub(super) fn new(sink: Box<dyn FrameSink>, peer: String, pod: Option<String>) -> Self {
        Self {
            sink,
            peer,
            pod,
            asked: AskedAll::default(),
            hello: None,
            serving: HashMap::new(),
            stash: None,
            parked: BTreeSet::new(),
            last_heard: Instant::now(),
            closing: false,
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether it has said that it serves workspaces.
    pub(super) fn serves_workspaces(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.capabilities.workspace.is_some())
    }

    pub(super) fn observe(&self) -> Json {
        json!({
            "channel": "websocket", "peer": self.peer, "name": self.hello.as_ref().map(|h| &h.name),
            "version": self.hello.as_ref().map(|h| &h.version), "parkedLeases": self.parked.len(),
            "requests": self.serving.len(), "asked": self.asked.len(), "pod": self.pod,
            "workspaces": self.serves_workspaces(),
            "silentMs": u64::try_from(self.last_heard.elapsed().as_millis()).unwrap_or(0),
        })
    }
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(ApiCode::Invalid, message)
}

pub(super) fn gone(_: MailboxError) -> ApiError {
    ApiError::new(ApiCode::OwnershipLost, "the session is being taken over")
}

impl HarnessActor {
    /// The peer gave a sign of life.
    pub(super) fn heard(&mut self) {
        if let Some(wire) = self.wire_mut() {
            wire.last_heard = Instant::now();
        }
    }

    /// Ends a connection whose peer is silent or does not read.
    pub(super) fn check_liveness(&mut self, ctx: &mut Context<Self>) {
        let most = Duration::from_millis(self.tree().config.harness_silence_ms);
        let Some(wire) = self.wire_mut() else { return };
        let silent = wire.last_heard.elapsed() > most;
        let stalled = wire.sink.stalled_since().is_some_and(|since| since.elapsed() > most);
        if silent || stalled {
            self.end(1001, if silent { "silent for too long" } else { "does not read" }, ctx);
        }
    }

    /// Ends the connection: parked leases go, every held run is lost at once.
    pub(super) fn end(&mut self, code: u16, reason: &str, ctx: &mut Context<Self>) {
        self.keep_stash();
        let runs = self.take_wire_runs();
        let Some(wire) = self.wire_mut() else { return };
        if std::mem::replace(&mut wire.closing, true) {
            return;
        }
        wire.sink.close(code, reason);
        for (_, serving) in wire.serving.drain() {
            ctx.cancel_future(serving);
        }
        wire.asked.fail_all();
        tracing::info!(peer = %wire.peer, reason, "harness_disconnected");
        for (run, held) in runs {
            held.session.do_send(RunLost {
                run,
                why: format!("its harness's connection ended: {reason}"),
                loss: Loss::Connection,
                before: None,
            });
        }
        self.stops_in_order();
        ctx.stop();
    }

    pub(super) fn push(&mut self, text: String, ctx: &mut Context<Self>) {
        let Some(wire) = self.wire_mut() else { return };
        if !wire.closing && wire.sink.send(text).is_err() {
            self.end(1008, "does not read", ctx);
        }
    }

    pub(super) fn answer(&mut self, id: u64, result: Result<String, ApiError>, ctx: &mut Context<Self>) {
        let text = match result {
            Ok(result) => format!(r#"{{"t":"res","id":{id},"ok":true,"r":{result}}}"#),
            Err(error) => Frame::failure(id, &error),
        };
        let text = if text.len() > HARNESS_FRAME_BYTES {
            let error = ApiError::new(ApiCode::Internal, "the answer is larger than a frame may be");
            Frame::failure(id, &error)
        } else {
            text
        };
        self.push(text, ctx);
    }

    /// Tells a supervisor that has just started what the one before it knew of this connection.
    pub(super) fn introduce(&mut self) {
        let harness = self.generation();
        let Some(wire) = self.wire_mut() else { return };
        let workspace = wire.serves_workspaces();
        let parked: Vec<u64> = wire.parked.iter().copied().collect();
        self.tell_supervisor(HarnessSays { harness, workspace });
        for lease in parked {
            self.tell_supervisor(ParkLease { harness, lease });
        }
    }

    /// A text message has come; `more`: so has the one behind it.
    pub(super) fn frame(&mut self, text: &str, more: bool, ctx: &mut Context<Self>) {
        self.heard();
        let frame = Frame::read(text.as_bytes());
        if !matches!(&frame, Ok(Frame::Request { method, .. }) if method == "effect.intent") {
            self.flush(ctx);
        }
        match frame {
            Ok(Frame::Request { id, method, params }) => self.request(id, &method, params, more, ctx),
            Ok(Frame::Abort { id }) => self.give_up(id, ctx),
            Ok(Frame::Response { id, result }) => self.answered(id, result, ctx),
            // Harnesses send no messages.
            Ok(Frame::Message { .. } | Frame::Ping) => {}
            Err(BadFrame::NotJson) => self.end(1007, "Harness API frames are JSON text", ctx),
            Err(BadFrame::Request { id, message }) => self.answer(id, Err(invalid(message)), ctx),
            Err(BadFrame::Other { message }) => self.end(1008, &format!("invalid frame: {message}"), ctx),
        }
    }

    /// The requester forgot a request: its handler stops; what was committed stays.
    fn give_up(&mut self, id: u64, ctx: &mut Context<Self>) {
        let harness = self.generation();
        let Some(wire) = self.wire_mut() else { return };
        if let Some(serving) = wire.serving.remove(&id) {
            ctx.cancel_future(serving);
        }
        if wire.parked.remove(&id) {
            self.tell_supervisor(WithdrawLease { harness, lease: id });
        }
    }

    fn request(&mut self, id: u64, method: &str, params: Json, more: bool, ctx: &mut Context<Self>) {
        let Some(wire) = self.wire_mut() else { return };
        let stashed = wire.stash.as_ref().is_some_and(|stash| stash.id == id);
        if wire.serving.contains_key(&id) || wire.parked.contains(&id) || stashed {
            self.end(1008, "invalid frame: a request's number is in use", ctx);
            return;
        }
        if wire.serving.len() >= HARNESS_REQUESTS {
            self.flush(ctx);
            let error = ApiError::new(ApiCode::Unavailable, "too many requests are in flight");
            self.answer(id, Err(error), ctx);
            return;
        }
        let served = match method {
            "hello" => self.hello(id, params, ctx),
            "lease" => self.lease(id, params),
            "lease.renew" => self.renew(id, params, ctx),
            "lease.release" => self.release(id, params, ctx),
            "effect.intent" => self.intent(id, params, ctx),
            "effect.outcome" => self.outcome(id, params, more, ctx),
            "transcript.read" => self.transcript(id, params, ctx),
            "event" => self.claim(id, params, ctx),
            "session.mcp" => self.mcp(id, params, ctx),
            "turn.completed" | "turn.paused" | "turn.waiting" | "turn.failed" | "checkpoint" => {
                self.output(id, method, params, ctx)
            }
            other => Err(invalid(format!("unknown method {other:?}"))),
        };
        if let Err(error) = served {
            self.answer(id, Err(error), ctx);
        }
    }

    /// Serves a request by asking the session of a run; the answer goes out when it comes.
    pub(super) fn serve<M, T>(
        &mut self,
        id: u64,
        session: &Addr<SessionActor>,
        message: M,
        render: impl FnOnce(T) -> String + 'static,
        ctx: &mut Context<Self>,
    ) where
        M: Message<Result = Result<T, ApiError>> + Send + 'static,
        SessionActor: Handler<M>,
        T: Send + 'static,
    {
        let asked = fut::wrap_future::<_, Self>(session.send(message));
        let asked = asked.map(move |answer, _, _| answer.map_err(gone).and_then(|r| r).map(render));
        self.spawn_served(id, asked, ctx);
    }

    /// Serves a request with a future of its answer's text.
    pub(super) fn spawn_served(
        &mut self,
        id: u64,
        served: impl ActorFuture<Self, Output = Result<String, ApiError>> + 'static,
        ctx: &mut Context<Self>,
    ) {
        let handle = ctx.spawn(served.map(move |result, act, ctx| {
            if let Some(wire) = act.wire_mut() {
                wire.serving.remove(&id);
            }
            act.answer(id, result, ctx);
        }));
        if let Some(wire) = self.wire_mut() {
            wire.serving.insert(id, handle);
        }
    }

    pub(super) fn run_session(&self, run: &RunId) -> Result<Addr<SessionActor>, ApiError> {
        match self.wire_run(run) {
            Some(held) if held.output.is_none() => Ok(held.session.clone()),
            _ => Err(ApiError::new(ApiCode::RunNotHeld, "this connection holds no such run")),
        }
    }

    fn hello(&mut self, id: u64, params: Json, ctx: &mut Context<Self>) -> Result<(), ApiError> {
        let hello: methods::Hello = methods::params(params)?;
        let workspace = hello.capabilities.workspace.is_some();
        let (hosts_pod, store) = (self.pod().is_some(), self.tree().ports.store.clone());
        let mut welcome = Welcome {
            api: 1,
            tenant_id: self.tree().tenant.to_string(),
            sandbox: WelcomeSandbox { backend: None },
            renew_every_ms: u64::try_from((self.tree().config.owner_lease_ms / 3).max(10)).unwrap_or(10),
        };
        if let Some(wire) = self.wire_mut() {
            wire.hello = Some(hello);
        }
        let greeting = async move {
            if !hosts_pod {
                let preference = store.read(settings::sandbox_preference).await;
                let preference = preference.map_err(|e| ApiError::new(ApiCode::Internal, e.to_string()))?;
                welcome.sandbox.backend = Some(preference.to_owned());
            }
            Ok(encode(&welcome))
        };
        let harness = self.generation();
        let greeting = fut::wrap_future::<_, Self>(greeting).map(move |answer, act, ctx| {
            if let Some(wire) = act.wire_mut() {
                wire.serving.remove(&id);
            }
            act.answer(id, answer, ctx);
            // Only now: it takes requests about workspaces once its hello was answered.
            act.tell_supervisor(HarnessSays { harness, workspace });
        });
        let handle = ctx.spawn(greeting);
        if let Some(wire) = self.wire_mut() {
            wire.serving.insert(id, handle);
        }
        Ok(())
    }

    fn lease(&mut self, id: u64, params: Json) -> Result<(), ApiError> {
        let _: methods::Lease = methods::params(params)?;
        let harness = self.generation();
        if let Some(wire) = self.wire_mut() {
            if wire.parked.len() >= HARNESS_REQUESTS {
                return Err(ApiError::new(ApiCode::Unavailable, "too many leases are parked"));
            }
            wire.parked.insert(id);
        }
        self.tell_supervisor(ParkLease { harness, lease: id });
        Ok(())
    }

    /// The broker no longer has this lease.
    pub(super) fn park_again(&mut self, lease: u64) {
        let harness = self.generation();
        if self.wire_mut().is_some_and(|wire| wire.parked.contains(&lease)) {
            self.tell_supervisor(ParkLease { harness, lease });
        }
    }

    /// A segment for a parked lease: its request is answered with the run.
    pub(super) fn grant(&mut self, msg: GrantRun, ctx: &mut Context<Self>) -> Result<(), GrantRefused> {
        let GrantRun { grant, start, session, lease } = msg;
        let Some(wire) = self.wire_mut() else { return Err(GrantRefused::Gone) };
        if wire.closing || !wire.parked.remove(&lease) {
            return Err(GrantRefused::Gone);
        }
        let cursor = start.transcript.cursor;
        let sandbox_owner = start.routing.sandbox.as_ref().map(|route| route.owner_id.clone());
        let text = Frame::success(lease, &methods::Leased { run: grant.clone(), input: start });
        if text.len() > HARNESS_FRAME_BYTES {
            // The request stays parked: another session's segment may be smaller.
            wire.parked.insert(lease);
            let harness = self.generation();
            self.tell_supervisor(ParkLease { harness, lease });
            return Err(GrantRefused::TooLarge { bytes: text.len() });
        }
        let held = WireRun {
            session,
            session_id: grant.session_id.clone(),
            sandbox_owner,
            cursor,
            holds: Holds::default(),
            recording: Recording::default(),
            output: None,
        };
        self.put_wire_run(grant.run_id, held);
        self.push(text, ctx);
        Ok(())
    }

    fn renew(&mut self, id: u64, params: Json, ctx: &mut Context<Self>) -> Result<(), ApiError> {
        let OfRun { run_id } = methods::params(params)?;
        let session = self.run_session(&run_id)?;
        let render = |ok| encode(&Renewed { ok, token: None, token_expires_at: None });
        self.serve(id, &session, RenewLease { run: run_id }, render, ctx);
        Ok(())
    }

    fn release(&mut self, id: u64, params: Json, ctx: &mut Context<Self>) -> Result<(), ApiError> {
        let release: methods::Release = methods::params(params)?;
        let session = self.run_session(&release.run_id)?;
        self.drop_wire_run(&release.run_id);
        let reason = match release.reason {
            ReleaseReason::Shutdown => AbortKind::Shutdown,
            ReleaseReason::OwnershipLost => AbortKind::OwnershipLost,
            ReleaseReason::ConnectionLost => {
                let why = "its harness says that its connection was lost".to_owned();
                let (run, loss) = (release.run_id, Loss::Connection);
                session.do_send(RunLost { run, why, loss, before: None });
                self.answer(id, Ok("{}".into()), ctx);
                return Ok(());
            }
        };
        self.serve(id, &session, ReleaseRun { run: release.run_id, reason }, |()| "{}".into(), ctx);
        Ok(())
    }

    fn transcript(&mut self, id: u64, params: Json, ctx: &mut Context<Self>) -> Result<(), ApiError> {
        let OfRun { run_id } = methods::params(params)?;
        let session = self.run_session(&run_id)?;
        let cursor = self.wire_run(&run_id).map_or(-1, |held| held.cursor);
        let render = move |entries: std::sync::Arc<Vec<_>>| methods::transcript_text(cursor, &entries);
        self.serve(id, &session, ReadTranscript { run: run_id }, render, ctx);
        Ok(())
    }

    fn mcp(&mut self, id: u64, params: Json, ctx: &mut Context<Self>) -> Result<(), ApiError> {
        let found: methods::SessionMcp = methods::params(params)?;
        let session = self.run_session(&found.run_id)?;
        let message =
            McpDiscovered { run: found.run_id, snapshot: found.snapshot, diagnostics: found.diagnostics };
        self.serve(id, &session, message, |answer: Json| encode(&answer), ctx);
        Ok(())
    }
}

impl HarnessActor {
    /// `cancel` of a run that this connection holds.
    pub(super) fn send_cancel(&mut self, msg: crate::messages::harness::CancelRun, ctx: &mut Context<Self>) {
        if self.wire_run(&msg.run).is_some() {
            let cancel =
                methods::Cancel { run_id: msg.run, reason: msg.abort.kind, message: Some(msg.abort.message) };
            self.push(Frame::message("cancel", &cancel), ctx);
        }
    }

    /// `effect.resolved` of a run that this connection holds.
    pub(super) fn send_resolved(
        &mut self,
        msg: crate::messages::harness::EffectResolved,
        ctx: &mut Context<Self>,
    ) {
        if let Some(held) = self.wire_run_mut(&msg.run) {
            held.holds.end(&msg.effect);
            let resolved =
                methods::ResolvedEffect { run_id: msg.run, effect_id: msg.effect, outcome: msg.outcome };
            self.push(Frame::message("effect.resolved", &resolved), ctx);
        }
    }
}
