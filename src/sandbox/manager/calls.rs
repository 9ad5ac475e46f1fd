//! One tool, or one look, in a workspace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nylorun_actors::model::json::Json;
use nylorun_actors::model::workspace::{Tool, ToolOutcome, WorkspaceSession};
use nylorun_actors::ports::engine::{ApiCode, ApiError};
use nylorun_actors::ports::workspaces::Claims;

use super::super::backend::{Backend, Space};
use super::super::events;
use super::super::input::Input;
use super::super::job::{Answer, Work};
use super::super::limits::HELPER_SECONDS;
use super::super::run::{Cancelled, End, RunError};
use super::live::Place;
use super::{Manager, internal};

/// Time beyond its own that a helper has to say that its time is over.
const HELPER_GRACE: Duration = Duration::from_secs(10);

/// What a call brings to its workspace.
pub(super) struct Ask {
    pub(super) session: WorkspaceSession,
    pub(super) spec: Json,
    pub(super) claims: Arc<dyn Claims>,
    pub(super) sign: Cancelled,
}

/// What a tool came to, its exit code, and whether it was killed.
type Ended = (ToolOutcome, Option<i32>, bool);

impl Manager {
    /// A backend that meets the spec, or why there is none.
    async fn backend(&self, spec: &Json) -> Result<Arc<dyn Backend>, ToolOutcome> {
        let selection = self.selection().await;
        let unavailable = |why: String| ToolOutcome::failed("sandbox.unavailable", why);
        let backend = selection.backend.as_ref();
        let backend = backend.ok_or_else(|| unavailable(selection.report.reason.clone()))?;
        backend.unmet(spec).map_or(Ok(Arc::clone(backend)), |why| Err(unavailable(why)))
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

    /// Runs a tool.
    pub(super) async fn run(
        self,
        ask: Ask,
        place: Place,
        tool: Tool,
        input: Input,
    ) -> Result<ToolOutcome, ApiError> {
        let backend = match self.backend(&ask.spec).await {
            Ok(backend) => backend,
            Err(outcome) => return Ok(outcome),
        };
        let Place { key, turn, active } = place;
        let live = &active.0;
        let _turn = turn.await;
        self.check_open(&ask.sign)?;
        let space = self.space(&key, &ask);
        if let Err(outcome) = self.open(&space, live, &ask, &backend).await {
            return Ok(outcome);
        }
        let began = Instant::now();
        let (outcome, exit, killed) = match tried(&*backend, &space, &input, &ask).await {
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
        let said = match &outcome {
            ToolOutcome::Completed { .. } => "completed",
            ToolOutcome::Failed { code, .. } => code,
        };
        ask.claims.claim(events::exec(&ask.session, tool, &input, exit, killed, said, began.elapsed())).await;
        Ok(outcome)
    }

    /// Other work in a workspace. `None` where it would have to be opened and `open` is not wanted.
    pub(super) async fn look(
        self,
        ask: Ask,
        place: Place,
        work: Work,
        open: bool,
    ) -> Result<Result<Option<Answer>, ToolOutcome>, ApiError> {
        let Place { key, turn, active } = place;
        let live = &active.0;
        let _turn = turn.await;
        self.check_open(&ask.sign)?;
        if !open && self.0.records.get(&key).is_none() {
            return Ok(Ok(None));
        }
        let backend = match self.backend(&ask.spec).await {
            Ok(backend) => backend,
            Err(outcome) => return Ok(Err(outcome)),
        };
        let space = self.space(&key, &ask);
        if let Err(outcome) = self.open(&space, live, &ask, &backend).await {
            return Ok(Err(outcome));
        }
        match backend.work(&space, work, helper_wait(), ask.sign.clone()).await {
            Ok(answer) => Ok(Ok(Some(answer))),
            Err(RunError::NoCage(why)) => Ok(Err(self.start_failed(&key, live, &ask, &why).await)),
            Err(error) => Ok(Err(ToolOutcome::failed("sandbox.error", error.to_string()))),
        }
    }
}

fn helper_wait() -> Duration {
    Duration::from_secs(HELPER_SECONDS) + HELPER_GRACE
}

async fn tried(backend: &dyn Backend, space: &Space, input: &Input, ask: &Ask) -> Result<Ended, RunError> {
    if let Input::Bash { command, seconds } = input {
        let within = Duration::from_secs_f64(*seconds);
        let ran = backend.command(space, command, within, ask.sign.clone()).await?;
        let (outcome, exit) = events::command(&ran, *seconds);
        return Ok((outcome, Some(exit), !matches!(ran.end, End::Exit(_))));
    }
    match backend.work(space, Work::Tool(input.clone()), helper_wait(), ask.sign.clone()).await? {
        Answer::Tool(outcome) => Ok((outcome, None, false)),
        _ => Err(RunError::Lost("it answered something else".into())),
    }
}
