//! Workspaces of connected harnesses: the one that has a workspace is found by record, then asked over its connection.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Addr, Handler, Message};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};

use crate::harness::HarnessActor;
use crate::messages::workspaces::{
    FindWorkspace, GiveUp, RemoveWorkspaces, ReportWorkspaces, SweepWorkspaces, Whereabouts, WorkspaceFile,
    WorkspaceFiles, WorkspaceHarness, WorkspaceHarnesses, WorkspaceTool, WorkspacesAt,
};
use crate::model::Json;
use crate::model::workspace::{
    BytesAnswer, BytesOf, FilesOf, ListAnswer, Removal, Tool, ToolOutcome, WorkspaceBytes, WorkspaceCall,
    WorkspaceList, WorkspaceRecord, WorkspaceReport,
};
use crate::ports::WorkspaceError;
use crate::ports::engine::ApiError;
use crate::ports::store::{Reads, StoreResult};
use crate::ports::workspaces::{Swept, WorkspaceOf, Workspaces};
use crate::rules::settings;
use crate::tenant::tree::Tree;

/// Workspaces of the harnesses that are connected to a Tenant.
#[derive(Clone)]
pub struct RemoteWorkspaces {
    tree: Arc<Tree>,
}

/// A request that somebody waits for: dropped before its answer, it tells the harness to stop.
struct Ticket {
    harness: Addr<HarnessActor>,
    number: u64,
    answered: bool,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.answered {
            // Rare control: one for each request, and those are bounded.
            self.harness.do_send(GiveUp { ticket: self.number });
        }
    }
}

fn gone() -> WorkspaceError {
    WorkspaceError::Unavailable("the harness that serves the workspace has gone".into())
}

fn nobody() -> WorkspaceError {
    WorkspaceError::Unavailable("no harness that serves workspaces is connected".into())
}

impl RemoteWorkspaces {
    /// Over a tree's connections.
    #[must_use]
    pub fn new(tree: Arc<Tree>) -> Self {
        Self { tree }
    }

    /// Asks a harness. Dropping the future gives the request up.
    async fn ask<M, T>(
        &self,
        harness: Addr<HarnessActor>,
        message: impl FnOnce(u64) -> M,
    ) -> Result<T, WorkspaceError>
    where
        M: Message<Result = Result<T, ApiError>> + Send + 'static,
        T: Send + 'static,
        HarnessActor: Handler<M>,
        <HarnessActor as actix::Actor>::Context: ToEnvelope<HarnessActor, M>,
    {
        let number = self.tree.next_generation();
        let mut ticket = Ticket { harness: harness.clone(), number, answered: false };
        let answer = harness.send(message(number)).await;
        ticket.answered = true;
        answer.map_err(|_| gone())?.map_err(Into::into)
    }

    /// The harness that has a workspace, or gets it.
    async fn find(&self, of: &WorkspaceOf) -> Result<Addr<HarnessActor>, WorkspaceError> {
        let key = of.session.key(&self.tree.tenant);
        let wanted = key.clone();
        let read =
            move |reads: &mut dyn Reads| -> StoreResult<bool> { Ok(reads.workspace(&wanted)?.is_some()) };
        let recorded = of.pod.is_none() && self.tree.ports.store.read(read).await?;
        let find = |asked| FindWorkspace {
            key: key.clone(),
            owner: of.session.owner_id.clone(),
            pod: of.pod.clone(),
            recorded,
            asked,
        };
        let supervisor = self.tree.supervisor().ok_or_else(nobody)?;
        let mut found = supervisor.send(find(false)).await.map_err(|_| nobody())?;
        if let Whereabouts::Ask(harnesses) = found {
            self.look(harnesses).await;
            found = supervisor.send(find(true)).await.map_err(|_| nobody())?;
        }
        match found {
            Whereabouts::At(harness) => Ok(harness),
            Whereabouts::Nobody => Err(nobody()),
            Whereabouts::PodAway => Err(WorkspaceError::PodAway),
            Whereabouts::Away | Whereabouts::Ask(_) => Err(WorkspaceError::Unavailable(
                "the harness that has the workspace is not connected at the moment".into(),
            )),
        }
    }

    /// Asks harnesses what they have and tells the supervisor. A workspace that two have is where it was used last.
    async fn look(&self, harnesses: Vec<WorkspaceHarness>) -> Swept {
        let asked = harnesses.into_iter().map(|harness| async move {
            let swept = self.ask(harness.addr, |ticket| SweepWorkspaces { ticket }).await;
            (harness.harness, swept)
        });
        let mut newest: BTreeMap<String, (u64, WorkspaceRecord)> = BTreeMap::new();
        let mut complete = true;
        for (harness, swept) in join_all(asked).await {
            let swept = match swept {
                Ok(swept) => swept,
                Err(error) => {
                    tracing::warn!(harness, %error, "a harness did not say which workspaces it has");
                    complete = false;
                    continue;
                }
            };
            for record in swept.workspaces {
                match newest.get(&record.key) {
                    Some((_, known)) if known.updated_at >= record.updated_at => {}
                    _ => drop(newest.insert(record.key.clone(), (harness, record))),
                }
            }
        }
        let mut at: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let mut records = Vec::with_capacity(newest.len());
        for (key, (harness, record)) in newest {
            at.entry(harness).or_default().push(key);
            records.push(record);
        }
        if let Some(supervisor) = self.tree.supervisor() {
            for (harness, keys) in at {
                // A supervisor that is gone has a successor, which learns it anew.
                let _ = supervisor.send(WorkspacesAt { harness, keys }).await;
            }
        }
        Swept { records, complete }
    }

    async fn harnesses(&self) -> Vec<WorkspaceHarness> {
        match self.tree.supervisor() {
            Some(supervisor) => supervisor.send(WorkspaceHarnesses).await.unwrap_or_default(),
            None => Vec::new(),
        }
    }
}

/// Runs `work` with the port's own copy of itself.
fn with<F, T>(port: &RemoteWorkspaces, work: impl FnOnce(RemoteWorkspaces) -> F) -> BoxFuture<'static, T>
where
    F: Future<Output = T> + Send + 'static,
{
    work(port.clone()).boxed()
}

impl Workspaces for RemoteWorkspaces {
    fn call(
        &self,
        of: WorkspaceOf,
        tool: Tool,
        input: Json,
    ) -> BoxFuture<'static, Result<ToolOutcome, WorkspaceError>> {
        with(self, |port| async move {
            let harness = port.find(&of).await?;
            let call = WorkspaceCall { session: of.session, spec: of.spec, tool, input };
            port.ask(harness, |ticket| WorkspaceTool { ticket, call }).await
        })
    }

    fn list(
        &self,
        of: WorkspaceOf,
        files: FilesOf,
    ) -> BoxFuture<'static, Result<ListAnswer, WorkspaceError>> {
        with(self, |port| async move {
            let harness = match port.find(&of).await {
                Ok(harness) => harness,
                Err(WorkspaceError::Unavailable(_) | WorkspaceError::PodAway) => {
                    return Ok(ListAnswer::Missing { path: files.dir });
                }
                Err(error) => return Err(error),
            };
            let list = WorkspaceList { session: of.session, spec: of.spec, list: files };
            port.ask(harness, |ticket| WorkspaceFiles { ticket, list }).await
        })
    }

    fn bytes(
        &self,
        of: WorkspaceOf,
        file: BytesOf,
    ) -> BoxFuture<'static, Result<BytesAnswer, WorkspaceError>> {
        with(self, |port| async move {
            let harness = match port.find(&of).await {
                Ok(harness) => harness,
                Err(error @ WorkspaceError::Unavailable(_)) => {
                    let (code, message) = ("sandbox.unavailable".to_owned(), error.to_string());
                    return Ok(BytesAnswer::Failed { code, message });
                }
                Err(error) => return Err(error),
            };
            let bytes = WorkspaceBytes { session: of.session, spec: of.spec, bytes: file };
            port.ask(harness, |ticket| WorkspaceFile { ticket, bytes }).await
        })
    }

    fn report(&self) -> BoxFuture<'static, WorkspaceReport> {
        with(self, |port| async move {
            let preference = port.tree.ports.store.read(settings::sandbox_preference).await.unwrap_or("auto");
            let none = |reason: &str| WorkspaceReport::none(preference, reason);
            let Some(first) = port.harnesses().await.into_iter().next() else {
                return none("no harness that serves workspaces is connected");
            };
            port.ask(first.addr, |ticket| ReportWorkspaces { ticket })
                .await
                .unwrap_or_else(|error| none(&error.to_string()))
        })
    }

    fn sweep(&self) -> BoxFuture<'static, Result<Swept, WorkspaceError>> {
        with(self, |port| async move {
            let harnesses = port.harnesses().await;
            if harnesses.is_empty() {
                // Nobody says what there is, so nothing is known to be gone.
                return Ok(Swept::default());
            }
            Ok(port.look(harnesses).await)
        })
    }

    fn remove(&self, what: Removal) -> BoxFuture<'static, Result<(), WorkspaceError>> {
        with(self, |port| async move {
            let asked = port.harnesses().await.into_iter().map(|harness| {
                let (port, what) = (&port, what.clone());
                async move { port.ask(harness.addr, |ticket| RemoveWorkspaces { ticket, what }).await }
            });
            join_all(asked).await.into_iter().collect()
        })
    }
}
