//! How a Tenant is set up: times, sizes, modes, and what it is given from outside.

use std::sync::Arc;

use crate::limits::{HARNESS_PING_MS, HARNESS_SILENCE_MS};
use crate::model::ids::WorkerId;
use crate::model::turn::YieldAfter;
use crate::ports::store::StoreHandle;
use crate::ports::{ActionTransport, Blobs, Clock, Engine, Entropy, Schemas, WorkspaceManager};

/// How a model call that a crash has cut is treated (DESIGN.md, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ModelOnCrash {
    /// Made again under the same effect, counted as a duplicate.
    #[default]
    Repeat,
    /// Its fate is unknown, like a tool's.
    Uncertain,
}

/// Where segments run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HarnessMode {
    /// In this process; harnesses that connect take runs too, but sessions stay beside their actor.
    #[default]
    InProcess,
    /// Only in harnesses that connect.
    Remote,
}

impl HarnessMode {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProcess => "in-process",
            Self::Remote => "remote",
        }
    }
}

/// Times and sizes of a Tenant. Milliseconds where nothing else is said.
#[derive(Clone, Debug)]
pub struct TenantConfig {
    /// This process, with a random part.
    pub worker: WorkerId,
    /// Life of a session's lease.
    pub owner_lease_ms: i64,
    /// Age at which an advance is told to end.
    pub advance_deadline_ms: i64,
    /// Time an aborted advance has left.
    pub abort_grace_ms: i64,
    /// When an agent's segment rolls over.
    pub rollover: YieldAfter,
    /// How long a run waits for an Action inside its lease.
    pub action_hold_ms: u64,
    /// Life of a background delivery without a heartbeat.
    pub action_lease_ms: i64,
    /// Age from which an Action whose delivery fails is parked.
    pub delivery_max_age_ms: i64,
    /// Age from which the files of a workspace that nobody uses are removed; `None`: never.
    pub workspace_max_age_ms: Option<i64>,
    /// Pause between two passes of the sweeper.
    pub sweep_interval_ms: u64,
    /// How long a session without work stays in memory.
    pub idle_after_ms: u64,
    /// Threads that sessions are spread over.
    pub arbiters: usize,
    /// A model call cut by a crash.
    pub model_on_crash: ModelOnCrash,
    /// Where segments run.
    pub harness: HarnessMode,
    /// Pause between two looks at a connected harness's silence.
    pub harness_ping_ms: u64,
    /// Silence, or frames that are not read, after which a connected harness is dropped.
    pub harness_silence_ms: u64,
}

impl TenantConfig {
    /// The defaults of the spec (durability, section 21) for a worker.
    #[must_use]
    pub fn new(worker: WorkerId) -> Self {
        Self {
            worker,
            owner_lease_ms: 30_000,
            advance_deadline_ms: 50 * 60_000,
            abort_grace_ms: 30_000,
            rollover: YieldAfter { steps: Some(50), ms: Some(20 * 60_000) },
            action_hold_ms: 5 * 60_000,
            action_lease_ms: 30_000,
            delivery_max_age_ms: 24 * 60 * 60_000,
            workspace_max_age_ms: None,
            sweep_interval_ms: 5_000,
            idle_after_ms: 15_000,
            arbiters: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            model_on_crash: ModelOnCrash::Repeat,
            harness: HarnessMode::InProcess,
            harness_ping_ms: HARNESS_PING_MS,
            harness_silence_ms: HARNESS_SILENCE_MS,
        }
    }
}

/// What a Tenant needs from outside.
#[derive(Clone)]
pub struct TenantPorts {
    /// The truth.
    pub store: StoreHandle,
    /// Wall clock for what is not a lease.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub entropy: Arc<dyn Entropy>,
    /// The engine of the in-process harness.
    pub engine: Arc<dyn Engine>,
    /// The workspaces of the in-process harness, if it has any.
    pub workspaces: Option<Arc<dyn WorkspaceManager>>,
    /// The bytes of artifacts.
    pub blobs: Arc<dyn Blobs>,
    /// How deliveries reach Action endpoints.
    pub actions: Arc<dyn ActionTransport>,
    /// How outputs of tools are checked.
    pub schemas: Arc<dyn Schemas>,
}
