//! Core's requests about workspaces, answered by the manager that this process has (spec: harness-api, sections 7.2 and
//! 15; sandbox, section 16).
//!
//! Each request is a task; core's `abort` and the end of the connection drop it, which stops what runs for it. What the
//! manager claims meanwhile is sent while the request is in flight, since core takes it only then.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use nylorun_actors::harness::methods::{self, Nothing};
use nylorun_actors::model::Json;
use nylorun_actors::model::ids::{RunId, TenantId};
use nylorun_actors::model::json::encode;
use nylorun_actors::model::workspace::{
    Claim, Removal, SweptWorkspaces, WorkspaceBytes, WorkspaceCall, WorkspaceList, WorkspaceSession,
    WorkspaceSweep, key_prefix,
};
use nylorun_actors::ports::engine::{ApiCode, ApiError};
use nylorun_actors::ports::workspaces::{Claims, RunWorkspaces, WorkspaceManager};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::channel::{Channel, Serve};

/// Requests of core that are served at once.
pub(crate) const SERVED: usize = 256;

/// Where a harness gets its workspaces from.
pub trait WorkspaceHost: Send + Sync + 'static {
    /// Names of the backends that work here, as core knows them. None: this harness serves no workspaces.
    fn backends(&self) -> Vec<String>;

    /// The workspaces of a Tenant. `preference` is the Tenant's: `auto`, `virtual`, or nothing at a pod's engine.
    fn open(&self, tenant: &TenantId, preference: Option<&str>) -> Arc<dyn WorkspaceManager>;
}

/// What `hello` says of a host: nothing when no backend works.
pub(super) fn declared(host: Option<&Arc<dyn WorkspaceHost>>) -> Option<Json> {
    let backends = host.map(|host| host.backends()).filter(|names| !names.is_empty())?;
    Some(json!({ "backends": backends }))
}

/// The workspaces of one Tenant, once it is known.
#[derive(Clone)]
pub(super) struct OfTenant {
    pub(super) tenant: TenantId,
    pub(super) manager: Arc<dyn WorkspaceManager>,
}

/// Serves one connection.
pub(super) struct Server {
    channel: Channel,
    /// Known once hello was answered.
    workspaces: RefCell<Option<OfTenant>>,
    tasks: RefCell<BTreeMap<u64, AbortHandle>>,
    me: Weak<Self>,
}

impl Server {
    pub(super) fn new(channel: Channel) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            channel,
            workspaces: RefCell::default(),
            tasks: RefCell::default(),
            me: me.clone(),
        })
    }

    /// Hello was answered: these are served from now on.
    pub(super) fn greeted(&self, workspaces: OfTenant) {
        *self.workspaces.borrow_mut() = Some(workspaces);
    }

    fn begin(&self, id: u64, method: &str, params: Json) -> Result<(), ApiError> {
        let workspaces = self.workspaces.borrow().clone();
        let work = work(workspaces, &self.channel, method, params)?;
        let mut tasks = self.tasks.borrow_mut();
        if tasks.contains_key(&id) {
            return Err(invalid("the request's number is in use"));
        }
        if tasks.len() >= SERVED {
            return Err(ApiError::new(ApiCode::Unavailable, "too many requests are in flight"));
        }
        let (me, channel) = (self.me.clone(), self.channel.clone());
        let task = tokio::task::spawn_local(async move {
            let answer = work.await;
            if let Some(me) = me.upgrade() {
                me.tasks.borrow_mut().remove(&id);
            }
            channel.answer(id, answer).await;
        });
        tasks.insert(id, task.abort_handle());
        Ok(())
    }
}

impl Serve for Server {
    fn request(&self, id: u64, method: &str, params: Json) -> Result<(), ApiError> {
        self.begin(id, method, params)
    }

    fn abort(&self, id: u64) {
        if let Some(task) = self.tasks.borrow_mut().remove(&id) {
            task.abort();
        }
    }

    fn closed(&self) {
        for task in std::mem::take(&mut *self.tasks.borrow_mut()).into_values() {
            task.abort();
        }
    }
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(ApiCode::Invalid, message)
}

/// What a request comes to, as the text of its answer.
type Work = LocalBoxFuture<'static, Result<String, ApiError>>;

fn work(
    workspaces: Option<OfTenant>,
    channel: &Channel,
    method: &str,
    params: Json,
) -> Result<Work, ApiError> {
    const METHODS: [&str; 6] = [
        "workspace.exec",
        "workspace.read",
        "workspace.write",
        "workspace.report",
        "workspace.sweep",
        "workspace.remove",
    ];
    if !METHODS.contains(&method) {
        return Err(invalid(format!("unknown method {method:?}")));
    }
    let of = workspaces.ok_or_else(|| ApiError::new(ApiCode::Unavailable, "hello was not answered yet"))?;
    let manager = of.manager;
    let (claims, told) = mpsc::channel(1);
    let claims: Arc<dyn Claims> = Arc::new(SentClaims(claims));
    let channel = channel.clone();
    Ok(match method {
        "workspace.report" => {
            let _: Nothing = methods::params(params)?;
            let report = manager.report();
            async move { Ok(encode(&report.await)) }.boxed_local()
        }
        "workspace.sweep" => {
            let sweep: WorkspaceSweep = methods::params(params)?;
            let swept = manager.sweep(sweep.now, claims);
            let text = async move { Ok(encode(&SweptWorkspaces { workspaces: swept.await? })) };
            sending(text, told, channel).boxed_local()
        }
        "workspace.remove" => {
            let removal: Removal = methods::params(params)?;
            let prefix = key_prefix(&of.tenant);
            if removal.keys.iter().flatten().any(|key| !key.starts_with(&prefix)) {
                return Err(invalid("a key is none of this Tenant's"));
            }
            let removed = manager.remove(removal);
            async move { removed.await.map(|()| "{}".to_owned()) }.boxed_local()
        }
        _ if params.get("list").is_some() && method == "workspace.read" => {
            let list: WorkspaceList = methods::params(params)?;
            check(&list.session)?;
            if list.list.dir.is_empty() || list.list.max_entries == 0 {
                return Err(invalid("invalid params: a directory and at least one entry are needed"));
            }
            let listed = manager.list(list, claims);
            sending(async move { listed.await.map(|answer| encode(&answer.plain())) }, told, channel)
                .boxed_local()
        }
        _ if params.get("bytes").is_some() && method == "workspace.read" => {
            let bytes: WorkspaceBytes = methods::params(params)?;
            check(&bytes.session)?;
            if bytes.bytes.path.is_empty() || bytes.bytes.max_bytes == 0 {
                return Err(invalid("invalid params: a path and at least one byte are needed"));
            }
            let read = manager.bytes(bytes, claims);
            sending(async move { read.await.map(|answer| encode(&answer)) }, told, channel).boxed_local()
        }
        _ => {
            let call: WorkspaceCall = methods::params(params)?;
            check(&call.session)?;
            if call.tool.method() != method {
                return Err(invalid(format!("{method} does not run {}", call.tool.as_str())));
            }
            let ran = manager.call(call, claims);
            sending(async move { ran.await.map(|outcome| encode(&outcome)) }, told, channel).boxed_local()
        }
    })
}

fn check(session: &WorkspaceSession) -> Result<(), ApiError> {
    let mut ids = vec![("session.ownerId", session.owner_id.as_str())];
    ids.extend(session.sandbox_id.as_deref().map(|id| ("session.sandboxId", id)));
    ids.extend(session.active_turn_id.as_ref().map(|id| ("session.activeTurnId", id.as_str())));
    methods::ids(&ids)
}

type Told = (Claim, oneshot::Sender<()>);

/// Claims that leave on the connection whose request or run they belong to.
struct SentClaims(mpsc::Sender<Told>);

impl Claims for SentClaims {
    fn claim(&self, claim: Claim) -> BoxFuture<'static, ()> {
        let sender = self.0.clone();
        async move {
            let (done, taken) = oneshot::channel();
            // The request may have been given up: then core would not take it.
            if sender.send((claim, done)).await.is_ok() {
                let _ = taken.await;
            }
        }
        .boxed()
    }
}

/// Tells core a claim; whether it takes it changes nothing here.
async fn tell(channel: &Channel, claim: &Claim) {
    let sent: Result<Nothing, ApiError> = channel.request("event", claim).await;
    match sent {
        Ok(_) => {}
        // The command of a run that was cancelled or lost ends a moment after it.
        Err(error)
            if claim.run_id.is_some() && matches!(error.code, ApiCode::RunNotHeld | ApiCode::Unavailable) =>
        {
            tracing::debug!(session = %claim.session_id, %error, "a claim came after the end of its run");
        }
        Err(error) => tracing::warn!(session = %claim.session_id, %error, "core did not take a claim"),
    }
}

/// The workspaces of a run. What happens in them is told on its connection and in its name, for as long as the run or
/// the manager may have something to tell.
pub(super) fn of_run(of: &OfTenant, channel: &Channel, run: &RunId) -> RunWorkspaces {
    let (claims, mut told) = mpsc::channel::<Told>(1);
    let (channel, run) = (channel.clone(), run.clone());
    tokio::task::spawn_local(async move {
        while let Some((mut claim, done)) = told.recv().await {
            claim.run_id = Some(run.clone());
            tell(&channel, &claim).await;
            let _ = done.send(());
        }
    });
    RunWorkspaces { manager: Arc::clone(&of.manager), claims: Arc::new(SentClaims(claims)) }
}

/// Works, and sends what is claimed meanwhile.
async fn sending(
    work: impl Future<Output = Result<String, ApiError>>,
    mut told: mpsc::Receiver<Told>,
    channel: Channel,
) -> Result<String, ApiError> {
    let sends = async {
        while let Some((claim, done)) = told.recv().await {
            tell(&channel, &claim).await;
            let _ = done.send(());
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        result = work => result,
        () = sends => Err(ApiError::new(ApiCode::Internal, "claims ended before their request")),
    }
}

#[cfg(test)]
mod tests;
