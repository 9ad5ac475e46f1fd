//! One run in this process: the engine works, the lease is renewed, the output or the release goes to core
//! (spec: harness-api, sections 9, 13.1, 14 and 16).

use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use nylorun_actors::harness::methods::{
    EffectAnswer, Leased, Nothing, OfRun, OutputCursor, Release, ReleaseReason, Renewed, output_method,
};
use nylorun_actors::harness::resolved::Resolved;
use nylorun_actors::model::ids::RunId;
use nylorun_actors::model::turn::{Abort, AbortKind, RunGrant, Thrown, TurnOutput};
use nylorun_actors::ports::engine::{AbortSignal, ApiCode, Engine, RunEnd};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

use super::channel::{Channel, Params};
use super::lease::Runs;
use super::link::WireLink;

/// A run as its connection holds it. Dropping it stops the run without a word to core.
pub(super) struct Held {
    pub(super) abort: Rc<watch::Sender<Option<Abort>>>,
    pub(super) resolved: Rc<Resolved>,
    pub(super) task: AbortHandle,
}

impl Held {
    /// Tells it to stop; what it was told first stands.
    pub(super) fn cancel(&self, abort: Abort) {
        stop(&self.abort, abort);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn stop(sender: &watch::Sender<Option<Abort>>, abort: Abort) {
    sender.send_if_modified(|told| {
        let first = told.is_none();
        if first {
            *told = Some(abort);
        }
        first
    });
}

/// Takes the run off its connection when its task ends, however it ends.
struct Place {
    runs: Rc<Runs>,
    run: RunId,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.runs.ended(&self.run);
    }
}

/// Starts a run that a lease was answered with.
pub(super) fn start(runs: &Rc<Runs>, channel: &Channel, renew_every: Duration, leased: Leased) {
    let Leased { run: grant, input: start } = leased;
    let (abort, signal) = AbortSignal::channel();
    let (abort, resolved) = (Rc::new(abort), Rc::new(Resolved::default()));
    let link = WireLink {
        channel: channel.clone(),
        run: grant.run_id.clone(),
        cursor: start.transcript.cursor,
        abort: signal.clone(),
        resolved: Rc::clone(&resolved),
        deferred: RefCell::default(),
        workspaces: runs.workspaces(channel, &grant.run_id),
    };
    let link = Rc::new(link);
    let run = Run {
        channel: channel.clone(),
        link: Rc::clone(&link),
        engine: runs.engine(),
        grant: grant.clone(),
        abort: Rc::clone(&abort),
        signal,
        handed_over: Cell::new(false),
    };
    let place = Place { runs: Rc::clone(runs), run: grant.run_id.clone() };
    tracing::debug!(run = %grant.run_id, session = %grant.session_id, epoch = grant.epoch, "run taken");
    let task = tokio::task::spawn_local(async move {
        let _place = place;
        let working = async {
            let segment = run.engine.run(run.grant.clone(), start, link);
            run.end(AssertUnwindSafe(segment).catch_unwind().await.ok()).await;
        };
        tokio::select! {
            biased;
            () = working => {}
            () = run.renew(renew_every) => {}
        }
    });
    runs.hold(grant.run_id, Held { abort, resolved, task: task.abort_handle() });
}

/// Gives back a run that came when this harness took no more.
pub(super) async fn give_back(channel: &Channel, run: RunId, reason: ReleaseReason) {
    let release = Release { run_id: run, reason };
    let answer: Result<Nothing, _> = channel.request("lease.release", &release).await;
    match answer {
        Ok(_) => {}
        // Core took the run back before: by its closed connection, or by another owner.
        Err(error) if matches!(error.code, ApiCode::Unavailable | ApiCode::RunNotHeld) => {}
        Err(error) => tracing::warn!(run = %release.run_id, %error, "a run was not released"),
    }
}

struct Run {
    channel: Channel,
    link: Rc<WireLink>,
    engine: Arc<dyn Engine>,
    grant: RunGrant,
    abort: Rc<watch::Sender<Option<Abort>>>,
    signal: AbortSignal,
    /// Whether an output was sent: from then on only core's answer to it counts.
    handed_over: Cell<bool>,
}

impl Run {
    /// What the engine came to; `None` when it panicked.
    async fn end(&self, ended: Option<RunEnd>) {
        let aborted = self.signal.get().map(|abort| abort.kind);
        let reason = match (aborted, ended) {
            (_, None) => {
                // As if its connection had gone: whatever it was doing has an unknown fate.
                tracing::error!(run = %self.grant.run_id, "the engine panicked; the run is given back");
                ReleaseReason::ConnectionLost
            }
            (Some(AbortKind::Shutdown), _) => ReleaseReason::Shutdown,
            (Some(AbortKind::OwnershipLost), _) => ReleaseReason::OwnershipLost,
            (_, Some(RunEnd::Released(AbortKind::OwnershipLost))) => ReleaseReason::OwnershipLost,
            (_, Some(RunEnd::Released(_))) => ReleaseReason::Shutdown,
            (_, Some(RunEnd::Output(output))) => return self.output(output).await,
        };
        self.engine.settled(&self.grant, None);
        if let Some(value) = self.link.take_deferred() {
            // A value in hand is kept for whoever resumes, if core still takes it.
            let _: Result<EffectAnswer, _> = self.channel.send("effect.outcome", value).await;
        }
        give_back(&self.channel, self.grant.run_id.clone(), reason).await;
    }

    async fn output(&self, output: TurnOutput) {
        self.handed_over.set(true);
        let (method, params) = match Params::of(&output) {
            Ok(params) => (output_method(&output), params),
            Err(error) => {
                let message = format!("the segment's output cannot be handed over: {}", error.message);
                tracing::error!(run = %self.grant.run_id, "{message}");
                let thrown = Thrown { code: Some("limit_exceeded".to_owned()), message };
                let failed = TurnOutput { thrown: Some(thrown), ..TurnOutput::of(self.grant.run_id.clone()) };
                match Params::of(&failed) {
                    Ok(params) => (output_method(&failed), params),
                    Err(_) => return,
                }
            }
        };
        drop(output);
        // It is never repeated: after an error only core knows whether it settled.
        let answer: Result<OutputCursor, _> = match self.link.take_deferred() {
            Some(value) => {
                let both = self.channel.send_both(("effect.outcome", value), (method, params)).await;
                // What became of the value is said by what became of the output, which waits for it.
                both.and_then(|(_, answer): (Result<EffectAnswer, _>, _)| answer)
            }
            None => self.channel.send(method, params).await,
        };
        let cursor = match answer {
            Ok(OutputCursor { cursor }) => cursor,
            Err(error) => {
                tracing::warn!(run = %self.grant.run_id, method, %error, "an output was not settled");
                None
            }
        };
        self.engine.settled(&self.grant, cursor);
    }

    /// Renews the lease, one renewal at a time, until the run is told to stop. Never ends by itself.
    async fn renew(&self, every: Duration) {
        let mut beat = tokio::time::interval(every);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes at once, and the lease has just been taken.
        beat.tick().await;
        loop {
            tokio::select! {
                biased;
                _ = self.signal.fired() => break,
                _ = beat.tick() => {}
            }
            let of = OfRun { run_id: self.grant.run_id.clone() };
            let renewed: Result<Renewed, _> = tokio::select! {
                biased;
                _ = self.signal.fired() => break,
                renewed = self.channel.request("lease.renew", &of) => renewed,
            };
            match renewed {
                Ok(Renewed { ok: true, .. }) => {}
                Ok(Renewed { ok: false, .. }) => self.lose("the lease was lost"),
                // An output on its way ends the run for everything else, so then this is no news.
                Err(error)
                    if matches!(error.code, ApiCode::RunNotHeld | ApiCode::OwnershipLost)
                        && !self.handed_over.get() =>
                {
                    self.lose("core no longer knows the run");
                }
                Err(error) => tracing::warn!(run = %self.grant.run_id, %error, "a lease was not renewed"),
            }
        }
        std::future::pending().await
    }

    fn lose(&self, message: &str) {
        stop(&self.abort, Abort { kind: AbortKind::OwnershipLost, message: message.to_owned() });
    }
}
