//! Runs segments for core: checks the manifest, finds the transcript, lets the agent loop run, hands back the output
//! (spec: engine, sections 3.9 and 3.10; harness-api, section 13.1).

pub mod cache;
mod definitions;
mod effects;
pub mod hold;
pub mod kit;
mod output;
pub mod sandbox;
pub mod tools;

use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use nylorun_actors::model::turn::{
    AbortKind, EngineKind, OutputStatus, RunGrant, Thrown, TurnOutput, TurnStart,
};
use nylorun_actors::ports::engine::{ApiCode, ApiError, Engine, RunEnd, RunLink};
use tokio::time::Instant;

use self::cache::ProjectionCache;
use self::definitions::Definitions;
pub(crate) use self::definitions::MOST as DEFINITIONS;
use self::effects::{RunParts, RunPort};
use self::kit::{Kit, KitFor};
use self::sandbox::SandboxTools;
use self::tools::ToolExecutor;
use super::agent::definition::Definition;
use super::agent::projection::{Projection, PromptHash};
use super::agent::{SegmentEnd, Start, run_segment};

/// What an [`AgentEngine`] works with.
#[derive(Clone)]
pub struct EngineConfig {
    /// How request hashes cover prompts: `Exact` wherever a run crosses a wire.
    pub prompt_hash: PromptHash,
    /// Bytes of projected transcripts kept between runs ([`cache::CACHE_BYTES`] by default).
    pub cache_bytes: usize,
    /// Who answers a run's model calls and scripted tools ([`kit::routed`] for a Tenant's router).
    pub kits: Arc<KitFor>,
    /// Who runs the tools that the harness itself runs; the first that can does.
    pub executors: Vec<Arc<dyn ToolExecutor>>,
}

impl EngineConfig {
    /// The defaults with these kits: exact hashes, the default cache, the tools of sandboxes.
    #[must_use]
    pub fn new(kits: Arc<KitFor>) -> Self {
        let executors: Vec<Arc<dyn ToolExecutor>> = vec![Arc::new(SandboxTools)];
        Self { prompt_hash: PromptHash::Exact, cache_bytes: cache::CACHE_BYTES, kits, executors }
    }
}

/// The engine of agents. Shared by all threads of a process; each run stays on its own.
#[derive(Clone)]
pub struct AgentEngine(Arc<Shared>);

struct Shared {
    prompt_hash: PromptHash,
    kits: Arc<KitFor>,
    executors: Arc<[Arc<dyn ToolExecutor>]>,
    cache: ProjectionCache,
    definitions: Definitions,
}

impl AgentEngine {
    /// An engine with an empty cache.
    #[must_use]
    pub fn new(config: EngineConfig) -> Self {
        let EngineConfig { prompt_hash, cache_bytes, kits, executors } = config;
        Self(Arc::new(Shared {
            prompt_hash,
            kits,
            executors: executors.into(),
            cache: ProjectionCache::new(cache_bytes),
            definitions: Definitions::default(),
        }))
    }
}

impl Engine for AgentEngine {
    fn run(
        &self,
        grant: RunGrant,
        start: TurnStart,
        link: Rc<dyn RunLink>,
    ) -> LocalBoxFuture<'static, RunEnd> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.run(grant, start, link).await })
    }

    fn settled(&self, grant: &RunGrant, cursor: Option<i64>) {
        self.0.cache.settled(&grant.session_id, &grant.run_id, cursor);
    }
}

/// A run that ends before its segment begins.
enum Early {
    Thrown(Thrown),
    Released(AbortKind),
}

impl Early {
    fn thrown(code: &str, message: impl Into<String>) -> Self {
        Self::Thrown(Thrown { code: Some(code.to_owned()), message: message.into() })
    }
}

impl Shared {
    async fn run(&self, grant: RunGrant, start: TurnStart, link: Rc<dyn RunLink>) -> RunEnd {
        let began = Instant::now();
        let abort = link.abort();
        let segment = match self.prepare(&grant, &start, &link).await {
            Ok(segment) => segment,
            Err(Early::Released(kind)) => return RunEnd::Released(kind),
            Err(Early::Thrown(thrown)) => {
                return RunEnd::Output(TurnOutput { thrown: Some(thrown), ..TurnOutput::of(grant.run_id) });
            }
        };
        let Kit { models, tools } = (self.kits)(&grant, &start);
        let TurnStart { manifest, outcomes, transcript, options, routing, .. } = start;
        let grant = Arc::new(grant);
        let parts = RunParts {
            link,
            grant: Arc::clone(&grant),
            manifest,
            routing: Arc::new(routing),
            options,
            models,
            tools,
            executors: Arc::clone(&self.executors),
        };
        let (end, view) = run_segment(segment, Rc::new(RunPort::new(parts, outcomes, began))).await;
        match (abort.get().map(|abort| abort.kind), end) {
            (Some(kind @ (AbortKind::Shutdown | AbortKind::OwnershipLost)), _)
            | (_, SegmentEnd::Lost(kind)) => RunEnd::Released(kind),
            (_, end) => {
                self.keep(&grant, transcript.cursor, &end, view);
                RunEnd::Output(output::of(grant.run_id.clone(), end))
            }
        }
    }

    /// Everything that a segment needs before its first step.
    async fn prepare(
        &self,
        grant: &RunGrant,
        start: &TurnStart,
        link: &Rc<dyn RunLink>,
    ) -> Result<Start, Early> {
        if start.engine == EngineKind::Flow {
            return Err(Early::thrown("execution.incompatible", "this harness runs no flows"));
        }
        let incompatible = |message| Early::thrown("execution.incompatible", message);
        let definition = self.definition(start).map_err(incompatible)?;
        let session_tools = start.session_tools.clone().unwrap_or_default();
        let invalid = |message| Early::thrown("configuration.invalid", message);
        let tools = definition.toolset(&session_tools).map_err(invalid)?;
        let view = self.transcript(grant, start, link).await.map_err(|error| {
            match (error.code, link.abort().get().map(|abort| abort.kind)) {
                (_, Some(kind @ (AbortKind::Shutdown | AbortKind::OwnershipLost))) => Early::Released(kind),
                (ApiCode::OwnershipLost | ApiCode::RunNotHeld, _) => {
                    Early::Released(AbortKind::OwnershipLost)
                }
                (ApiCode::Unavailable, _) => Early::Released(AbortKind::Shutdown),
                (code, _) => Early::thrown(code.as_str(), error.message),
            }
        })?;
        Ok(Start {
            definition,
            tools,
            session_tools,
            checkpoint: start.checkpoint.clone(),
            view,
            yield_after: start.options.yield_after,
        })
    }

    fn definition(&self, start: &TurnStart) -> Result<Arc<Definition>, String> {
        let manifest = &start.manifest;
        self.definitions.get(&start.checkpoint.manifest_hash, manifest, || {
            let sandbox = self.executors.iter().any(|executor| executor.sandboxes());
            Definition::read(Arc::clone(manifest), sandbox)
        })
    }

    /// The transcript at the start: kept from the last run, else read; a session without state has none.
    async fn transcript(
        &self,
        grant: &RunGrant,
        start: &TurnStart,
        link: &Rc<dyn RunLink>,
    ) -> Result<Projection, ApiError> {
        if start.checkpoint.state.is_none() {
            return Ok(Projection::new(self.prompt_hash));
        }
        if let Some(view) = self.cache.take(&grant.session_id, start.transcript.cursor) {
            return Ok(view);
        }
        let entries = link.transcript().await?;
        Ok(Projection::of(&entries, self.prompt_hash))
    }

    /// Keeps what the next run of the session can use. After a failed or cancelled turn only core knows the transcript.
    fn keep(&self, grant: &RunGrant, cursor: i64, end: &SegmentEnd, view: Projection) {
        let session = grant.session_id.clone();
        match end {
            SegmentEnd::Suspended { .. } => self.cache.keep(session, cursor, view),
            SegmentEnd::Ended(ended) => match ended.status {
                OutputStatus::Completed | OutputStatus::Paused | OutputStatus::Yielded => {
                    self.cache.keep_unsettled(session, grant.run_id.clone(), view);
                }
                _ => {}
            },
            SegmentEnd::Thrown(_) | SegmentEnd::Lost(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
