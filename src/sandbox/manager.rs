//! The manager: opens workspaces, runs their commands one after the other, stops what is idle, removes what is told
//! (spec: sandbox, section 11). It owns no timer and no store.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nylorun_actors::model::ids::TenantId;
use nylorun_actors::model::json::Json;
use nylorun_actors::model::workspace::{
    BytesAnswer, ListAnswer, Removal, ToolOutcome, WorkspaceBytes, WorkspaceCall, WorkspaceList,
    WorkspaceRecord, WorkspaceReport, WorkspaceSession, WorkspaceState, key_prefix, sandbox_key,
};
use nylorun_actors::ports::Clock;
use nylorun_actors::ports::engine::{ApiCode, ApiError};
use nylorun_actors::ports::workspaces::{Claims, WorkspaceManager};
use tokio::sync::{OnceCell, watch};

use super::backend::{Backend, Preference, Selection, idle_ms, limits, unmet};
use super::events;
use super::folders::Folders;
use super::input::Input;
use super::job::{Answer, Job, Work};
use super::limits::HELPER_SECONDS;
use super::records::Records;
use super::run::{Cancelled, End, RunError, Runner};

/// Time beyond its own that a helper has to say that its time is over.
const HELPER_GRACE: Duration = Duration::from_secs(10);

/// What a manager is made of.
pub struct Parts {
    /// Whose workspaces.
    pub tenant: TenantId,
    /// Where they are.
    pub root: PathBuf,
    /// Which backend is asked for.
    pub preference: Preference,
    /// How helpers are started.
    pub runner: Runner,
    /// For the record.
    pub clock: Arc<dyn Clock>,
}

/// The workspaces of one Tenant in this process. Cheap to clone.
#[derive(Clone)]
pub struct Manager(Arc<Inner>);

struct Inner {
    tenant: TenantId,
    folders: Folders,
    records: Records,
    runner: Runner,
    clock: Arc<dyn Clock>,
    preference: Preference,
    selection: OnceCell<Selection>,
    live: Mutex<HashMap<String, Arc<Live>>>,
    /// Folders without a record were looked for.
    reconciled: OnceCell<()>,
    closing: watch::Sender<bool>,
}

/// A workspace that is in use, or was.
struct Live {
    session: WorkspaceSession,
    idle: Duration,
    /// Held by whoever works in the workspace; the others wait in order.
    queue: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

struct State {
    open: bool,
    /// Calls that wait or run.
    active: usize,
    used: Instant,
}

/// A call that waits or runs.
struct Active(Arc<Live>);

impl Drop for Active {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.active -= 1;
        state.used = Instant::now();
    }
}

impl Live {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn internal(message: impl Into<String>) -> ApiError {
    ApiError::new(ApiCode::Internal, message)
}

/// What opening a workspace came to.
enum Opened {
    Here(Backend),
    No(ToolOutcome),
}

/// What a call brings to its workspace.
struct Ask {
    session: WorkspaceSession,
    spec: Json,
    claims: Arc<dyn Claims>,
    sign: Cancelled,
}

impl Manager {
    /// Workspaces below a folder, which is made when it is not there.
    ///
    /// # Errors
    /// The system's.
    pub fn new(parts: Parts) -> std::io::Result<Self> {
        let Parts { tenant, root, preference, runner, clock } = parts;
        let folders = Folders::open(root)?;
        let records = Records::open(folders.root());
        Ok(Self(Arc::new(Inner {
            tenant,
            folders,
            records,
            runner,
            clock,
            preference,
            selection: OnceCell::new(),
            live: Mutex::default(),
            reconciled: OnceCell::new(),
            closing: watch::channel(false).0,
        })))
    }

    /// Which backend is used; chosen when it is asked for first.
    pub async fn selection(&self) -> &Selection {
        self.0.selection.get_or_init(|| Selection::make(self.0.preference, &self.0.runner)).await
    }

    /// Takes over what another record says of workspaces whose files are here and that the own record does not name: it
    /// may have been lost, and a folder without a record is removed.
    pub async fn adopt(&self, known: Vec<WorkspaceRecord>) {
        let here = self.0.folders.list(&key_prefix(&self.0.tenant)).await;
        for mut record in known {
            if here.contains(&record.key) && self.0.records.get(&record.key).is_none() {
                record.state = WorkspaceState::Stopped;
                self.0.records.put(record);
            }
        }
    }

    /// Runs work on a task of its own: it goes on to its orderly end, whatever becomes of the caller, and is told to
    /// hurry when the caller is gone.
    fn spawn<T, F>(&self, work: impl FnOnce(Self, Cancelled) -> F) -> BoxFuture<'static, Result<T, ApiError>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ApiError>> + Send + 'static,
    {
        struct Caller(watch::Sender<bool>);
        impl Drop for Caller {
            fn drop(&mut self) {
                self.0.send_replace(true);
            }
        }
        let (cancel, sign) = watch::channel(false);
        let caller = Caller(cancel);
        let task = tokio::spawn(work(self.clone(), sign));
        async move {
            let done = task.await;
            drop(caller);
            done.unwrap_or_else(|error| Err(internal(format!("a workspace's work was lost: {error}"))))
        }
        .boxed()
    }

    fn live(&self, session: &WorkspaceSession, spec: &Json) -> (String, Active) {
        let key = session.key(&self.0.tenant);
        let mut all = self.0.live.lock().unwrap_or_else(PoisonError::into_inner);
        let live = all.entry(key.clone()).or_insert_with(|| {
            Arc::new(Live {
                session: session.clone(),
                idle: Duration::from_millis(idle_ms(spec)),
                queue: tokio::sync::Mutex::new(()),
                state: Mutex::new(State { open: false, active: 0, used: Instant::now() }),
            })
        });
        live.state().active += 1;
        (key, Active(Arc::clone(live)))
    }

    fn now(&self) -> String {
        self.0.clock.now().to_iso()
    }

    /// Writes a record; what is known of the workspace from before is kept.
    fn record(&self, key: &str, session: &WorkspaceSession, state: WorkspaceState) -> WorkspaceRecord {
        let (before, now) = (self.0.records.get(key), self.now());
        let record = WorkspaceRecord {
            key: key.to_owned(),
            session_id: session.owner_id.clone(),
            sandbox_id: session.sandbox_id.clone(),
            backend: "virtual".to_owned(),
            image: before.as_ref().map_or_else(
                || nylorun_actors::model::workspace::DEFAULT_IMAGE.to_owned(),
                |before| before.image.clone(),
            ),
            state,
            created_at: before.map_or_else(|| now.clone(), |before| before.created_at),
            updated_at: now,
        };
        self.0.records.put(record.clone());
        record
    }

    /// Opens the workspace if it is not open. The caller holds its queue.
    async fn open(&self, key: &str, live: &Live, ask: &Ask, backend: Backend) -> Opened {
        if live.state().open {
            return Opened::Here(backend);
        }
        let before = self.0.records.get(key);
        let claim = |state, more, record: &WorkspaceRecord| {
            let session = WorkspaceSession { owner_id: record.session_id.clone(), ..ask.session.clone() };
            ask.claims.claim(events::state(&session, state, more, Some(record.clone())))
        };
        let record = self.record(key, &ask.session, WorkspaceState::Creating);
        let more = events::More { reattach: before.is_some(), ..events::More::default() };
        claim(WorkspaceState::Creating, more, &record).await;
        match self.0.folders.make(key).await {
            Ok(created) => {
                let record = self.record(key, &ask.session, WorkspaceState::Running);
                let more = events::More { lost: before.is_some() && created, ..events::More::default() };
                claim(WorkspaceState::Running, more, &record).await;
                live.state().open = true;
                Opened::Here(backend)
            }
            Err(error) => {
                let record = self.record(key, &ask.session, WorkspaceState::Stopped);
                let error = format!("the workspace cannot be made: {error}");
                let more = events::More { error: Some(error.clone()), ..events::More::default() };
                claim(WorkspaceState::Stopped, more, &record).await;
                Opened::No(ToolOutcome::failed("sandbox.start_failed", error))
            }
        }
    }

    /// The cage of an open workspace does not stand: nothing ran.
    async fn start_failed(&self, key: &str, live: &Live, ask: &Ask, why: &str) -> ToolOutcome {
        live.state().open = false;
        let record = self.record(key, &ask.session, WorkspaceState::Stopped);
        let more = events::More { error: Some(why.to_owned()), ..events::More::default() };
        let session = WorkspaceSession { owner_id: record.session_id.clone(), ..ask.session.clone() };
        ask.claims.claim(events::state(&session, WorkspaceState::Stopped, more, Some(record))).await;
        ToolOutcome::failed("sandbox.start_failed", format!("The sandbox cannot be started: {why}"))
    }

    fn job(&self, key: &str, backend: Backend, spec: &Json, work: Work) -> Job {
        Job {
            cage: backend.cage(),
            folder: self.0.folders.of(key),
            host_uid: super::backend::HOST_UID,
            limits: limits(spec),
            work,
        }
    }

    /// A backend that meets the spec, or why there is none.
    async fn backend(&self, spec: &Json) -> Result<Backend, ToolOutcome> {
        let selection = self.selection().await;
        let unavailable = |why: String| ToolOutcome::failed("sandbox.unavailable", why);
        let backend = selection.backend.ok_or_else(|| unavailable(selection.report.reason.clone()))?;
        unmet(spec).map_or(Ok(backend), |why| Err(unavailable(why)))
    }

    fn check_open(&self, sign: &Cancelled) -> Result<(), ApiError> {
        if *sign.borrow() {
            return Err(internal("the call was given up"));
        }
        if *self.0.closing.borrow() {
            return Err(ApiError::new(ApiCode::Unavailable, "workspaces are closing"));
        }
        Ok(())
    }

    async fn run(
        self,
        ask: Ask,
        tool: nylorun_actors::model::workspace::Tool,
        input: Input,
    ) -> Result<ToolOutcome, ApiError> {
        let backend = match self.backend(&ask.spec).await {
            Ok(backend) => backend,
            Err(outcome) => return Ok(outcome),
        };
        let (key, active) = self.live(&ask.session, &ask.spec);
        let live = &active.0;
        let _turn = live.queue.lock().await;
        self.check_open(&ask.sign)?;
        let backend = match self.open(&key, live, &ask, backend).await {
            Opened::Here(backend) => backend,
            Opened::No(outcome) => return Ok(outcome),
        };
        let began = Instant::now();
        let command = if let Input::Bash { command, seconds } = &input {
            let job = self.job(&key, backend, &ask.spec, Work::Command(command.clone()));
            let within = Duration::from_secs_f64(*seconds);
            let ran = self.0.runner.command(&job, within, ask.sign.clone()).await;
            ran.map(|ran| {
                let killed = !matches!(ran.end, End::Exit(_));
                let (outcome, exit) = events::command(&ran, *seconds);
                (outcome, Some(exit), killed)
            })
        } else {
            let job = self.job(&key, backend, &ask.spec, Work::Tool(input.clone()));
            let within = Duration::from_secs(HELPER_SECONDS) + HELPER_GRACE;
            let answer = self.0.runner.answer(&job, within, ask.sign.clone()).await;
            answer.and_then(|answer| match answer {
                Answer::Tool(outcome) => Ok((outcome, None, false)),
                _ => Err(RunError::Lost("it answered something else".into())),
            })
        };
        let ended = match command {
            Ok(ended) => ended,
            Err(RunError::NoCage(why)) => return Ok(self.start_failed(&key, live, &ask, &why).await),
            // Cut off: what a tool that writes has done is not known.
            Err(error) if tool.writes() || error == RunError::Cancelled => {
                let exec = events::exec(&ask.session, tool, &input, None, true, "failed", began.elapsed());
                ask.claims.claim(exec).await;
                return Err(internal(error.to_string()));
            }
            Err(error) => (ToolOutcome::failed("sandbox.error", error.to_string()), None, false),
        };
        let (outcome, exit, killed) = ended;
        let said = match &outcome {
            ToolOutcome::Completed { .. } => "completed",
            ToolOutcome::Failed { code, .. } => code,
        };
        ask.claims.claim(events::exec(&ask.session, tool, &input, exit, killed, said, began.elapsed())).await;
        Ok(outcome)
    }

    /// Other work in a workspace. `None` where it would have to be opened and `open` is not wanted.
    async fn look(
        self,
        ask: Ask,
        work: Work,
        open: bool,
    ) -> Result<Result<Option<Answer>, ToolOutcome>, ApiError> {
        let key = ask.session.key(&self.0.tenant);
        if !open && self.0.records.get(&key).is_none() {
            return Ok(Ok(None));
        }
        let backend = match self.backend(&ask.spec).await {
            Ok(backend) => backend,
            Err(outcome) => return Ok(Err(outcome)),
        };
        let (key, active) = self.live(&ask.session, &ask.spec);
        let live = &active.0;
        let _turn = live.queue.lock().await;
        self.check_open(&ask.sign)?;
        let backend = match self.open(&key, live, &ask, backend).await {
            Opened::Here(backend) => backend,
            Opened::No(outcome) => return Ok(Err(outcome)),
        };
        let job = self.job(&key, backend, &ask.spec, work);
        let within = Duration::from_secs(HELPER_SECONDS) + HELPER_GRACE;
        match self.0.runner.answer(&job, within, ask.sign.clone()).await {
            Ok(answer) => Ok(Ok(Some(answer))),
            Err(RunError::NoCage(why)) => Ok(Err(self.start_failed(&key, live, &ask, &why).await)),
            Err(error) => Ok(Err(ToolOutcome::failed("sandbox.error", error.to_string()))),
        }
    }

    /// Stops a workspace: its temporary files go, the others stay. The caller holds its queue.
    async fn stop(&self, key: &str, live: &Live, claims: Option<&Arc<dyn Claims>>) {
        live.state().open = false;
        let cleared = self.0.folders.clear_tmp(key).await;
        let record = self.record(key, &live.session, WorkspaceState::Stopped);
        if let Some(claims) = claims {
            let error = cleared.err().map(|error| error.to_string());
            let session = WorkspaceSession {
                owner_id: record.session_id.clone(),
                sandbox_id: live.session.sandbox_id.clone(),
                active_turn_id: None,
            };
            let more = events::More { error, ..events::More::default() };
            claims.claim(events::state(&session, WorkspaceState::Stopped, more, Some(record))).await;
        }
    }

    fn all_live(&self) -> Vec<(String, Arc<Live>)> {
        let all = self.0.live.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(key, live)| (key.clone(), Arc::clone(live))).collect()
    }

    /// Forgets an entry that nobody uses. The caller holds the only other reference to it.
    fn forget(&self, key: &str, live: &Arc<Live>) {
        let mut all = self.0.live.lock().unwrap_or_else(PoisonError::into_inner);
        let same = all.get(key).is_some_and(|entry| Arc::ptr_eq(entry, live));
        // The map's, the caller's, and the queue guard borrows the caller's.
        if same && Arc::strong_count(live) == 2 && live.state().active == 0 {
            all.remove(key);
        }
    }

    async fn sweep(
        self,
        now: Option<f64>,
        claims: Arc<dyn Claims>,
    ) -> Result<Vec<WorkspaceRecord>, ApiError> {
        // The caller's clock may be ahead of this one; how much is added to every idle time.
        let ahead = now.map_or(0.0, |now| now - self.0.clock.now().0 as f64 / 1_000.0).max(0.0);
        let ahead = Duration::from_secs_f64((ahead / 1_000.0).min(86_400.0 * 365.0));
        for (key, live) in self.all_live() {
            let idle = |live: &Live| {
                let state = live.state();
                state.open && state.active == 0 && state.used.elapsed() + ahead >= live.idle
            };
            if idle(&live) {
                let _turn = live.queue.lock().await;
                // A call may have come before this one.
                if idle(&live) {
                    self.stop(&key, &live, Some(&claims)).await;
                }
            }
            if !live.state().open {
                self.forget(&key, &live);
            }
        }
        for mut record in self.0.records.list() {
            let open = self.all_live().iter().any(|(key, live)| {
                *key == record.key && {
                    let state = live.state();
                    state.open || state.active > 0
                }
            });
            if !open && record.state != WorkspaceState::Stopped {
                record.state = WorkspaceState::Stopped;
                record.updated_at = self.now();
                self.0.records.put(record);
            }
        }
        self.0.reconciled.get_or_init(|| self.reconcile()).await;
        let prefix = key_prefix(&self.0.tenant);
        Ok(self.0.records.list().into_iter().filter(|record| record.key.starts_with(&prefix)).collect())
    }

    /// Removes folders of this Tenant that no record names: nobody knows whose they are.
    async fn reconcile(&self) {
        for key in self.0.folders.list(&key_prefix(&self.0.tenant)).await {
            let unknown =
                self.0.records.get(&key).is_none() && !self.all_live().iter().any(|(live, _)| *live == key);
            if unknown && let Err(error) = self.0.folders.remove(&key).await {
                tracing::warn!(key, %error, "a workspace without a record cannot be removed");
            }
        }
    }

    async fn remove(self, what: Removal) -> Result<(), ApiError> {
        let prefix = key_prefix(&self.0.tenant);
        let mut keys: Vec<String> = what.keys.unwrap_or_default();
        keys.extend(what.sandbox_ids.iter().flatten().map(|id| sandbox_key(&self.0.tenant, id)));
        if what.all {
            keys.extend(self.0.folders.list(&prefix).await);
            keys.extend(self.0.records.list().into_iter().map(|record| record.key));
        }
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            if !key.starts_with(&prefix) {
                return Err(ApiError::new(ApiCode::Invalid, "a key is none of this Tenant's"));
            }
            let live = self.all_live().into_iter().find(|(of, _)| *of == key).map(|(_, live)| live);
            let _turn = match &live {
                Some(live) => Some(live.queue.lock().await),
                None => None,
            };
            if let Some(live) = &live {
                live.state().open = false;
            }
            self.0.folders.remove(&key).await.map_err(|error| internal(error.to_string()))?;
            self.0.records.delete(&key);
        }
        Ok(())
    }
}

impl WorkspaceManager for Manager {
    fn call(
        &self,
        call: WorkspaceCall,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<ToolOutcome, ApiError>> {
        let WorkspaceCall { session, spec, tool, input } = call;
        let input = match Input::read(tool, &input) {
            Ok(input) => input,
            Err(outcome) => return async move { Ok(outcome) }.boxed(),
        };
        self.spawn(move |manager, sign| manager.run(Ask { session, spec, claims, sign }, tool, input))
    }

    fn list(
        &self,
        list: WorkspaceList,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<ListAnswer, ApiError>> {
        let WorkspaceList { session, spec, list } = list;
        self.spawn(move |manager, sign| async move {
            let path = list.dir.clone();
            let work = Work::List(list.dir, list.max_entries);
            let looked = manager.look(Ask { session, spec, claims, sign }, work, false).await?;
            Ok(match looked {
                Ok(Some(Answer::List(answer))) => answer,
                Ok(None) => ListAnswer::Missing { path },
                Ok(Some(_)) => return Err(internal("a helper answered something else")),
                Err(ToolOutcome::Failed { code, message }) => ListAnswer::Failed { code, message },
                Err(ToolOutcome::Completed { .. }) => {
                    return Err(internal("a helper answered something else"));
                }
            })
        })
    }

    fn bytes(
        &self,
        bytes: WorkspaceBytes,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<BytesAnswer, ApiError>> {
        let WorkspaceBytes { session, spec, bytes } = bytes;
        self.spawn(move |manager, sign| async move {
            let work = Work::Bytes(bytes.path, bytes.max_bytes);
            let looked = manager.look(Ask { session, spec, claims, sign }, work, true).await?;
            Ok(match looked {
                Ok(Some(Answer::Bytes(answer))) => answer,
                Err(ToolOutcome::Failed { code, message }) => BytesAnswer::Failed { code, message },
                _ => return Err(internal("a helper answered something else")),
            })
        })
    }

    fn report(&self) -> BoxFuture<'static, WorkspaceReport> {
        let manager = self.clone();
        async move { manager.selection().await.report.clone() }.boxed()
    }

    fn sweep(
        &self,
        now: Option<f64>,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<Vec<WorkspaceRecord>, ApiError>> {
        self.spawn(move |manager, _| manager.sweep(now, claims))
    }

    fn remove(&self, what: Removal) -> BoxFuture<'static, Result<(), ApiError>> {
        self.spawn(move |manager, _| manager.remove(what))
    }

    fn close(&self, claims: Option<Arc<dyn Claims>>) -> BoxFuture<'static, ()> {
        let manager = self.clone();
        async move {
            manager.0.closing.send_replace(true);
            for (key, live) in manager.all_live() {
                let _turn = live.queue.lock().await;
                let open = live.state().open;
                if open {
                    manager.stop(&key, &live, claims.as_ref()).await;
                }
            }
        }
        .boxed()
    }
}
