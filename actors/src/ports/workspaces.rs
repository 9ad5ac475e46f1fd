//! The port to workspaces: what core does with them outside a run, and who does it (spec: sandbox, sections 11 to 16;
//! harness-api, section 15).
//!
//! | Trait | Seen by |
//! |---|---|
//! | [`Workspaces`] | core: tool routes, artifact reads, status, the sweep |
//! | [`WorkspaceManager`] | whoever has the workspaces themselves: core's process or a harness |
//! | [`Claims`] | a manager, to say what happened |
//!
//! Whoever drops the future of a call gives the call up: a command that runs for it is killed.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::engine::{ApiCode, ApiError};
use super::store::StoreError;
use crate::model::Json;
use crate::model::workspace::{
    BytesAnswer, BytesOf, Claim, FilesOf, ListAnswer, Removal, Tool, ToolOutcome, WorkspaceBytes,
    WorkspaceCall, WorkspaceList, WorkspaceRecord, WorkspaceReport, WorkspaceSession,
};

/// Whose workspace, what it was opened with, and where it must be.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkspaceOf {
    /// Whose.
    pub session: WorkspaceSession,
    /// What it was opened with; `{}` when nothing is known.
    pub spec: Json,
    /// The pod sandbox whose engine has it.
    pub pod: Option<String>,
}

/// Why a workspace was not reached. Failures of tools are no errors but outcomes.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkspaceError {
    /// Nobody serves it at the moment, or whoever did has gone meanwhile.
    #[error("{0}")]
    Unavailable(String),
    /// The pod sandbox that it is in has no engine connected.
    #[error("the sandbox's pod is not running")]
    PodAway,
    /// Whoever serves it refused, or answered something else.
    #[error(transparent)]
    Failed(ApiError),
    /// The record of workspaces could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ApiError> for WorkspaceError {
    fn from(error: ApiError) -> Self {
        match error.code {
            ApiCode::Unavailable => Self::Unavailable(error.message),
            _ => Self::Failed(error),
        }
    }
}

/// What a sweep found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Swept {
    /// The workspaces that are there.
    pub records: Vec<WorkspaceRecord>,
    /// Whether everybody who serves workspaces has answered: then what is not in `records` is nowhere.
    pub complete: bool,
}

/// Workspaces, as core reaches them.
pub trait Workspaces: Send + Sync + 'static {
    /// Runs a tool.
    fn call(
        &self,
        of: WorkspaceOf,
        tool: Tool,
        input: Json,
    ) -> BoxFuture<'static, Result<ToolOutcome, WorkspaceError>>;

    /// The files below a directory; missing when nobody serves workspaces.
    fn list(&self, of: WorkspaceOf, files: FilesOf)
    -> BoxFuture<'static, Result<ListAnswer, WorkspaceError>>;

    /// A file's bytes; failed when nobody serves workspaces.
    fn bytes(
        &self,
        of: WorkspaceOf,
        file: BytesOf,
    ) -> BoxFuture<'static, Result<BytesAnswer, WorkspaceError>>;

    /// Which backend serves workspaces. Never fails: who does not answer has none.
    fn report(&self) -> BoxFuture<'static, WorkspaceReport>;

    /// Stops what is idle and says what is there.
    fn sweep(&self) -> BoxFuture<'static, Result<Swept, WorkspaceError>>;

    /// Removes workspaces with their files. Nobody serves them: nothing happens.
    fn remove(&self, what: Removal) -> BoxFuture<'static, Result<(), WorkspaceError>>;
}

/// Where a manager says what happened. Best effort: a claim that is refused is logged and the work goes on.
pub trait Claims: Send + Sync + 'static {
    /// Says it, and waits until it was taken.
    fn claim(&self, claim: Claim) -> BoxFuture<'static, ()>;
}

/// Whoever has workspaces: opens them, runs their commands one after the other, stops them when they are idle.
///
/// Errors are infrastructure's ([`ApiCode::Internal`]) or a request's shape ([`ApiCode::Invalid`]).
pub trait WorkspaceManager: Send + Sync + 'static {
    /// Runs a tool.
    fn call(
        &self,
        call: WorkspaceCall,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<ToolOutcome, ApiError>>;

    /// The files below a directory.
    fn list(
        &self,
        list: WorkspaceList,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<ListAnswer, ApiError>>;

    /// A file's bytes.
    fn bytes(
        &self,
        bytes: WorkspaceBytes,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<BytesAnswer, ApiError>>;

    /// Which backend is used, and why.
    fn report(&self) -> BoxFuture<'static, WorkspaceReport>;

    /// Stops what is idle at `now` (ms since 1970; `None`: its own clock) and says what is there.
    fn sweep(
        &self,
        now: Option<f64>,
        claims: Arc<dyn Claims>,
    ) -> BoxFuture<'static, Result<Vec<WorkspaceRecord>, ApiError>>;

    /// Removes workspaces with their files, each after what runs in it.
    fn remove(&self, what: Removal) -> BoxFuture<'static, Result<(), ApiError>>;

    /// Takes nothing new, waits for what runs, stops every workspace. `claims`: who may still be told.
    fn close(&self, claims: Option<Arc<dyn Claims>>) -> BoxFuture<'static, ()>;
}

/// The workspaces that the tools of a run work in, and where it is told what happens there.
#[derive(Clone)]
pub struct RunWorkspaces {
    /// Whoever has them.
    pub manager: Arc<dyn WorkspaceManager>,
    /// Where what happens is told on behalf of the run.
    pub claims: Arc<dyn Claims>,
}

impl fmt::Debug for RunWorkspaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunWorkspaces")
    }
}
