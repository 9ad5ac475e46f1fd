//! A connection's life: hello, one parked lease while there is room, runs, and their end with the connection
//! (spec: harness-api, sections 7.5, 8, 14 and 16).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use nylorun_actors::harness::methods::{self, Cancel, Capabilities, Hello, Leased, ReleaseReason, Welcome};
use nylorun_actors::model::Json;
use nylorun_actors::model::ids::{RunId, TenantId};
use nylorun_actors::model::turn::{Abort, AbortKind};
use nylorun_actors::ports::Engine;
use nylorun_actors::ports::engine::{ApiCode, ApiError};
use nylorun_actors::ports::workspaces::RunWorkspaces;
use serde_json::json;
use tokio::sync::{Notify, oneshot, watch};

use super::channel::{Channel, Params, Serve, Told};
use super::run::{self, Held};
use super::workspaces::{self, OfTenant, Server, WorkspaceHost};

/// Pause before a lease is asked for again after one failed.
pub(crate) const LEASE_RETRY: Duration = Duration::from_millis(100);

/// How long the runs of a lost connection may take to wind down.
pub(crate) const LOST_GRACE: Duration = Duration::from_secs(5);

/// How long runs may take to end once the harness is told to stop.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(10);

/// How long core may take to answer `hello`.
pub(crate) const HELLO_WAIT: Duration = Duration::from_secs(10);

/// Shortest pause between two renewals of a run, whatever core asks for.
const RENEW_AT_LEAST: Duration = Duration::from_millis(10);

/// A harness: its engine and how many runs it takes, over however many connections follow each other.
#[derive(Clone)]
pub struct Harness(Rc<Shared>);

struct Shared {
    engine: Arc<dyn Engine>,
    host: Option<Arc<dyn WorkspaceHost>>,
    /// The workspaces of the Tenant of the latest connection.
    workspaces: RefCell<Option<OfTenant>>,
    most: usize,
    running: Cell<usize>,
    /// A run has ended.
    ended: Notify,
    stopping: watch::Sender<bool>,
}

impl Harness {
    /// A harness that takes at most `max_runs` runs at once.
    pub fn new(engine: Arc<dyn Engine>, max_runs: usize) -> Self {
        Self::with_workspaces(engine, max_runs, None)
    }

    /// A harness that serves the workspaces of a host, too.
    pub fn with_workspaces(
        engine: Arc<dyn Engine>,
        max_runs: usize,
        host: Option<Arc<dyn WorkspaceHost>>,
    ) -> Self {
        let stopping = watch::channel(false).0;
        Self(Rc::new(Shared {
            engine,
            host,
            workspaces: RefCell::default(),
            most: max_runs.max(1),
            running: Cell::new(0),
            ended: Notify::new(),
            stopping,
        }))
    }

    /// A new connection. Its transport pumps [`Connection::channel`] while [`Connection::serve`] runs.
    #[must_use]
    pub fn connect(&self) -> Connection {
        let runs = Rc::new(Runs { shared: Rc::clone(&self.0), held: RefCell::default() });
        let told = Rc::clone(&runs);
        let channel = Channel::new(move |message| told.told(message));
        let declared = workspaces::declared(self.0.host.as_ref());
        let server = declared.is_some().then(|| Server::new(channel.clone()));
        if let Some(server) = &server {
            channel.serve(Rc::clone(server) as Rc<dyn Serve>);
        }
        Connection { channel, runs, declared, server: server.as_ref().map(Rc::downgrade) }
    }

    /// No new runs; those there are get told `shutdown`. [`Connection::serve`] ends when they have ended.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    /// Waits until it is told to stop.
    pub async fn stopped(&self) {
        let mut stopping = self.0.stopping.subscribe();
        // The sender lives as long as this harness does.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    /// Whether it was told to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        *self.0.stopping.borrow()
    }

    /// Stops every workspace. After the last connection.
    pub async fn close_workspaces(&self) {
        let workspaces = self.0.workspaces.borrow_mut().take();
        if let Some(workspaces) = workspaces {
            workspaces.manager.close(None).await;
        }
    }

    /// Runs in progress, those of lost connections too.
    #[must_use]
    pub fn running(&self) -> usize {
        self.0.running.get()
    }
}

/// The runs of one connection.
pub(super) struct Runs {
    shared: Rc<Shared>,
    held: RefCell<BTreeMap<RunId, Held>>,
}

impl Runs {
    pub(super) fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.shared.engine)
    }

    /// The workspaces that a run's sandbox tools work in.
    pub(super) fn workspaces(&self, channel: &Channel, run: &RunId) -> Option<RunWorkspaces> {
        self.shared.workspaces.borrow().as_ref().map(|of| workspaces::of_run(of, channel, run))
    }

    pub(super) fn hold(&self, run: RunId, held: Held) {
        self.shared.running.set(self.shared.running.get() + 1);
        self.held.borrow_mut().insert(run, held);
    }

    /// A run's task is over.
    pub(super) fn ended(&self, run: &RunId) {
        self.shared.running.set(self.shared.running.get() - 1);
        let held = self.held.borrow_mut().remove(run);
        drop(held);
        self.shared.ended.notify_waiters();
    }

    fn told(&self, message: Told) {
        let held = self.held.borrow();
        // A run that is unknown has ended meanwhile.
        match message {
            Told::Cancel(Cancel { run_id, reason, message }) => {
                if let Some(held) = held.get(&run_id) {
                    let message = message.unwrap_or_else(|| reason.as_str().to_owned());
                    held.cancel(Abort { kind: reason, message });
                }
            }
            Told::Resolved(resolved) => {
                if let Some(held) = held.get(&resolved.run_id) {
                    held.resolved.put(resolved.effect_id, resolved.outcome);
                }
            }
        }
    }

    fn shut_down(&self, message: &str) {
        for held in self.held.borrow().values() {
            held.cancel(Abort { kind: AbortKind::Shutdown, message: message.to_owned() });
        }
    }

    /// Stops every run at once, without a word to core.
    fn drop_all(&self) -> usize {
        let held = std::mem::take(&mut *self.held.borrow_mut());
        held.len()
    }

    async fn all_ended(&self) {
        loop {
            let ended = self.shared.ended.notified();
            if self.held.borrow().is_empty() {
                return;
            }
            ended.await;
        }
    }

    async fn room(&self) {
        loop {
            let ended = self.shared.ended.notified();
            if self.shared.running.get() < self.shared.most {
                return;
            }
            ended.await;
        }
    }
}

/// One connection to core.
pub struct Connection {
    channel: Channel,
    runs: Rc<Runs>,
    /// What hello says of workspaces.
    declared: Option<Json>,
    /// Kept by the channel until it closes.
    server: Option<Weak<Server>>,
}

impl Connection {
    /// The channel, for its transport.
    #[must_use]
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Drops every run at once, without a word to core, as the death of the process would.
    pub fn kill(&self) {
        self.runs.drop_all();
        self.channel.close(1006, "killed");
    }

    /// Takes runs until the channel is closed or the harness stops. Runs of a lost connection wind down by themselves.
    pub async fn serve(&self) {
        let harness = Harness(Rc::clone(&self.runs.shared));
        let reason = tokio::select! {
            biased;
            reason = self.channel.closed() => reason,
            () = harness.stopped() => return self.stop().await,
            error = self.work() => {
                // Only a hello that fails ends the work.
                tracing::error!(%error, "core does not speak Harness API 1; is NYLORUN_HARNESS_URL its harness listener?");
                self.channel.close(1000, "hello failed");
                return;
            }
        };
        let runs = self.runs.held.borrow().len();
        tracing::info!(reason, runs, "the connection to core is lost");
        self.lost();
    }

    fn lost(&self) {
        self.runs.shut_down("the connection to core was lost");
        let runs = Rc::clone(&self.runs);
        tokio::task::spawn_local(async move {
            if tokio::time::timeout(LOST_GRACE, runs.all_ended()).await.is_err() {
                let dropped = runs.drop_all();
                tracing::warn!(
                    dropped,
                    "runs of a lost connection did not end in their grace and were dropped"
                );
            }
        });
    }

    async fn stop(&self) {
        self.runs.shut_down("the harness stops");
        let lost = tokio::select! {
            biased;
            () = self.runs.all_ended() => false,
            _ = self.channel.closed() => true,
            () = tokio::time::sleep(STOP_GRACE) => false,
        };
        let dropped = self.runs.drop_all();
        if dropped > 0 {
            // Their fate is unknown; the closed connection tells core so at once.
            tracing::warn!(dropped, lost, "runs did not end in their grace and were dropped");
        }
        self.channel.close(1000, "the harness stops");
    }

    /// Hello, then leases without end.
    async fn work(&self) -> ApiError {
        let hello = Hello {
            api: 1,
            name: "nylorun".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: Capabilities { workspace: self.declared.clone() },
        };
        let greeting = self.channel.request::<_, Welcome>("hello", &hello);
        let welcome = match tokio::time::timeout(HELLO_WAIT, greeting).await {
            Ok(Ok(welcome)) if welcome.api == 1 => welcome,
            Ok(Ok(welcome)) => return not_ours(&format!("core speaks version {}", welcome.api)),
            Ok(Err(error)) => return error,
            Err(_) => return not_ours("core did not answer hello"),
        };
        tracing::info!(tenant = welcome.tenant_id, "connected");
        self.open_workspaces(&welcome);
        let every = Duration::from_millis(welcome.renew_every_ms).max(RENEW_AT_LEAST);
        loop {
            self.runs.room().await;
            if let Err(error) = self.lease(every).await {
                tracing::debug!(%error, "a lease failed");
                tokio::time::sleep(LEASE_RETRY).await;
            }
        }
    }

    /// The Tenant is known: its workspaces are served, those of an earlier connection too.
    fn open_workspaces(&self, welcome: &Welcome) {
        let (Some(host), Some(server)) =
            (&self.runs.shared.host, self.server.as_ref().and_then(Weak::upgrade))
        else {
            return;
        };
        let tenant = TenantId::from(welcome.tenant_id.as_str());
        let mut kept = self.runs.shared.workspaces.borrow_mut();
        let workspaces = match kept.take().filter(|kept| kept.tenant == tenant) {
            Some(kept) => kept,
            None => {
                let manager = host.open(&tenant, welcome.sandbox.backend.as_deref());
                OfTenant { tenant, manager }
            }
        };
        *kept = Some(workspaces.clone());
        server.greeted(workspaces);
    }

    /// Parks one lease and waits for its run.
    async fn lease(&self, renew_every: Duration) -> Result<(), ApiError> {
        let (taken, answered) = oneshot::channel();
        let (runs, channel) = (Rc::clone(&self.runs), self.channel.clone());
        // The run stands before a later frame is looked at: core may cancel it at once.
        let then = move |answer: Result<_, ApiError>| {
            let leased = answer.and_then(methods::result::<Leased>);
            let told = match leased {
                Ok(leased) => {
                    take(&runs, &channel, renew_every, leased);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            // Nobody waits when the harness has stopped meanwhile.
            let _ = taken.send(told);
        };
        let parked = Parked {
            id: self.channel.request_then("lease", &Params::of(&json!({}))?, then).await?,
            channel: &self.channel,
        };
        let told = answered.await.unwrap_or(Ok(()));
        drop(parked);
        told
    }
}

fn take(runs: &Rc<Runs>, channel: &Channel, renew_every: Duration, leased: Leased) {
    if runs.held.borrow().contains_key(&leased.run.run_id) {
        tracing::warn!(run = %leased.run.run_id, "core gave a run that this harness has already");
        return;
    }
    if !*runs.shared.stopping.borrow() {
        return run::start(runs, channel, renew_every, leased);
    }
    // It crossed the word that no more are wanted.
    let channel = channel.clone();
    let run = leased.run.run_id;
    tokio::task::spawn_local(async move { run::give_back(&channel, run, ReleaseReason::Shutdown).await });
}

fn not_ours(message: &str) -> ApiError {
    ApiError::new(ApiCode::Invalid, message)
}

/// A parked lease is taken back when nobody waits for it any more.
struct Parked<'a> {
    channel: &'a Channel,
    id: u64,
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.channel.abort(self.id);
    }
}

#[cfg(test)]
mod tests;
