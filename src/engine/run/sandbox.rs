//! The six tools of a session's sandbox inside a turn (spec: sandbox, sections 4, 11 and 13; engine, section 4.5).
//!
//! A call goes to the workspaces that the run's channel offers: of this process, in core and in a harness of its own
//! alike. What it came to is the effect's value. A tool that writes and was cut off has no value: what it has done is
//! not known. One that only reads is then known to have failed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use nylorun_actors::model::Json;
use nylorun_actors::model::turn::AbortKind;
use nylorun_actors::model::workspace::{Claim, Tool, ToolOutcome, WorkspaceCall, WorkspaceSession};
use nylorun_actors::ports::engine::{ApiCode, ApiError};
use nylorun_actors::ports::workspaces::{Claims, RunWorkspaces};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::tools::{ToolCall, ToolExecutor};

/// How long a tool that runs may go on when its process stops: many come to their end, and nothing is uncertain then.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(3);

/// How long the end of a tool that was told to stop is waited for, so that the run does not end before it.
pub(crate) const KILL_WAIT: Duration = Duration::from_millis(1_500);

/// Runs the tools of sandboxes.
#[derive(Clone, Copy, Debug, Default)]
pub struct SandboxTools;

impl ToolExecutor for SandboxTools {
    fn can(&self, manifest: &Json, tool: &str) -> bool {
        Tool::from_name(tool).is_some() && sandbox_of(manifest, tool).is_some()
    }

    fn sandboxes(&self) -> bool {
        true
    }

    fn run(&self, call: ToolCall) -> LocalBoxFuture<'static, Result<Arc<Json>, String>> {
        async move { run(call).await.map(|outcome| Arc::new(json!(outcome))) }.boxed_local()
    }
}

/// The spec of the capability whose sandbox has this tool.
fn sandbox_of<'a>(manifest: &'a Json, tool: &str) -> Option<&'a Json> {
    let list = |value: &'a Json, key: &str| value.get(key).and_then(Json::as_array).into_iter().flatten();
    let mut capabilities = list(manifest, "capabilities");
    capabilities.find_map(|capability| {
        let spec = capability.get("sandbox")?;
        list(capability, "tools").any(|listed| listed["name"] == tool).then_some(spec)
    })
}

async fn run(call: ToolCall) -> Result<ToolOutcome, String> {
    let name = call.intent.tool_name.as_deref().unwrap_or("");
    let (Some(tool), Some(spec)) = (Tool::from_name(name), sandbox_of(&call.manifest, name)) else {
        return Ok(ToolOutcome::failed("sandbox.unavailable", format!("{name} is no tool of a sandbox")));
    };
    let Some(workspaces) = call.workspaces.clone() else {
        let why = "The harness that runs this turn serves no sandboxes.";
        return Ok(ToolOutcome::failed("sandbox.unavailable", why));
    };
    let asked = WorkspaceCall {
        session: session(&call),
        spec: spec.clone(),
        tool,
        input: call.intent.input.as_deref().cloned().unwrap_or_else(|| json!({})),
    };
    match until_told_to_stop(asked, workspaces, &call).await {
        Ended::Done(Ok(outcome)) => Ok(outcome),
        // It refuses new work: nothing ran.
        Ended::Done(Err(error)) if error.code == ApiCode::Unavailable => {
            Ok(ToolOutcome::failed("sandbox.unavailable", error.message))
        }
        Ended::Done(Err(error)) if tool.writes() => Err(error.message),
        Ended::Done(Err(error)) => Ok(ToolOutcome::failed("sandbox.error", error.message)),
        Ended::Cut(why) if tool.writes() => Err(why),
        Ended::Cut(why) => Ok(ToolOutcome::failed("sandbox.error", why)),
    }
}

/// Whose workspace: of the session that owns it, for this turn.
fn session(call: &ToolCall) -> WorkspaceSession {
    let route = call.routing.sandbox.as_ref();
    WorkspaceSession {
        owner_id: route.map_or_else(|| call.grant.session_id.clone(), |route| route.owner_id.clone()),
        sandbox_id: route.and_then(|route| route.sandbox_id.clone()),
        active_turn_id: Some(call.grant.turn_id.clone()),
    }
}

enum Ended {
    Done(Result<ToolOutcome, ApiError>),
    Cut(String),
}

/// Runs a call unless the run is told to stop first. Then it is given up, and its end is waited for.
async fn until_told_to_stop(asked: WorkspaceCall, workspaces: RunWorkspaces, call: &ToolCall) -> Ended {
    let RunWorkspaces { manager, claims } = workspaces;
    let (working, mut worked) = mpsc::channel::<()>(1);
    let mut running = manager.call(asked, Arc::new(Watched { claims, _working: working }));
    let abort = tokio::select! {
        biased;
        done = &mut running => return Ended::Done(done),
        abort = call.abort.fired() => abort,
    };
    if abort.kind == AbortKind::Shutdown
        && let Ok(done) = timeout(STOP_GRACE, &mut running).await
    {
        return Ended::Done(done);
    }
    drop(running);
    // Closed when the manager has let go of the claims: then nothing of the call runs any more.
    if timeout(KILL_WAIT, worked.recv()).await.is_err() {
        tracing::warn!(session = %call.grant.session_id, "a sandbox tool did not end when it was told to");
    }
    Ended::Cut(abort.message)
}

/// Claims that tell by their end that whoever made them is done.
struct Watched {
    claims: Arc<dyn Claims>,
    _working: mpsc::Sender<()>,
}

impl Claims for Watched {
    fn claim(&self, claim: Claim) -> BoxFuture<'static, ()> {
        self.claims.claim(claim)
    }
}
