//! What is said of workspaces: requests that a [`HarnessActor`](crate::harness::HarnessActor) makes of its peer, and
//! what the [`TenantSupervisor`](crate::supervisor::TenantSupervisor) is asked and told of who has which.

use actix::{Addr, Message};

use crate::harness::HarnessActor;
use crate::model::ids::SessionId;
use crate::model::workspace::{
    BytesAnswer, ListAnswer, Removal, SweptWorkspaces, ToolOutcome, WorkspaceBytes, WorkspaceCall,
    WorkspaceList, WorkspaceReport,
};
use crate::ports::engine::ApiError;

/// `workspace.exec`, `.read` or `.write`: a tool. Each request has a ticket, by which its asker may give it up.
#[derive(Debug, Message)]
#[rtype(result = "Result<ToolOutcome, ApiError>")]
pub struct WorkspaceTool {
    /// The asker's number for it.
    pub ticket: u64,
    /// What.
    pub call: WorkspaceCall,
}

/// `workspace.read` of a directory's files.
#[derive(Debug, Message)]
#[rtype(result = "Result<ListAnswer, ApiError>")]
pub struct WorkspaceFiles {
    /// The asker's number for it.
    pub ticket: u64,
    /// What.
    pub list: WorkspaceList,
}

/// `workspace.read` of a file's bytes.
#[derive(Debug, Message)]
#[rtype(result = "Result<BytesAnswer, ApiError>")]
pub struct WorkspaceFile {
    /// The asker's number for it.
    pub ticket: u64,
    /// What.
    pub bytes: WorkspaceBytes,
}

/// `workspace.report`.
#[derive(Debug, Message)]
#[rtype(result = "Result<WorkspaceReport, ApiError>")]
pub struct ReportWorkspaces {
    /// The asker's number for it.
    pub ticket: u64,
}

/// `workspace.sweep`.
#[derive(Debug, Message)]
#[rtype(result = "Result<SweptWorkspaces, ApiError>")]
pub struct SweepWorkspaces {
    /// The asker's number for it.
    pub ticket: u64,
}

/// `workspace.remove`.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), ApiError>")]
pub struct RemoveWorkspaces {
    /// The asker's number for it.
    pub ticket: u64,
    /// Which.
    pub what: Removal,
}

/// Nobody waits for the answer any more: the peer is told to stop.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct GiveUp {
    /// The asker's number for it.
    pub ticket: u64,
}

/// Who serves a workspace?
#[derive(Debug, Message)]
#[rtype(result = "Whereabouts")]
pub struct FindWorkspace {
    /// Its key.
    pub key: String,
    /// Whose: a new one is best where its session runs.
    pub owner: SessionId,
    /// The pod sandbox whose engine has it.
    pub pod: Option<String>,
    /// Whether it is on record: then somebody has its files.
    pub recorded: bool,
    /// Whether all who serve workspaces have just been asked for it.
    pub asked: bool,
}

/// A connected harness that serves workspaces.
#[derive(Clone, Debug)]
pub struct WorkspaceHarness {
    /// Generation of its actor.
    pub harness: u64,
    /// Its actor.
    pub addr: Addr<HarnessActor>,
}

/// Where a workspace is.
#[derive(Debug)]
pub enum Whereabouts {
    /// This one serves it.
    At(Addr<HarnessActor>),
    /// One of these may have it: each must be asked, then say what it has with [`WorkspacesAt`].
    Ask(Vec<WorkspaceHarness>),
    /// The one that has it is not connected at the moment.
    Away,
    /// Nobody serves workspaces.
    Nobody,
    /// Its pod's engine is not connected.
    PodAway,
}

/// Every harness that serves workspaces and hosts no pod.
#[derive(Debug, Message)]
#[rtype(result = "Vec<WorkspaceHarness>")]
pub struct WorkspaceHarnesses;

/// These workspaces are at this harness.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WorkspacesAt {
    /// Generation of its actor.
    pub harness: u64,
    /// Their keys.
    pub keys: Vec<String>,
}
