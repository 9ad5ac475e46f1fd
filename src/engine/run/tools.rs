//! Tools that the harness itself runs: sandbox, MCP, scripted ones. This file only says how they are asked.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use nylorun_actors::model::Json;
use nylorun_actors::model::effect::EffectIntent;
use nylorun_actors::model::turn::{Routing, RunGrant};
use nylorun_actors::ports::engine::AbortSignal;
use nylorun_actors::ports::workspaces::RunWorkspaces;

/// One tool call that core wants executed here.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// The run that it belongs to.
    pub grant: Arc<RunGrant>,
    /// The effect, with its `input` and `context`.
    pub intent: Arc<EffectIntent>,
    /// The manifest of the agent whose tool it is: the turn's, or a sub-agent's, which `intent.agent` then names.
    pub manifest: Arc<Json>,
    /// Sandbox and plugin facts.
    pub routing: Arc<Routing>,
    /// The workspaces of the run's sandbox tools; `None` where nobody serves any.
    pub workspaces: Option<RunWorkspaces>,
    /// Whether and why the run was told to stop. An executor may run on and report what it got.
    pub abort: AbortSignal,
    /// Whether the call was started before, so that it may still live at its gate.
    pub rejoin: bool,
}

/// Runs tool calls.
pub trait ToolExecutor: Send + Sync {
    /// Whether it runs this tool of the agent with this manifest.
    fn can(&self, manifest: &Json, tool: &str) -> bool;

    /// Whether it runs the tools of sandboxes: an agent that has one can then be run here.
    fn sandboxes(&self) -> bool {
        false
    }

    /// Runs a call. The value is a tagged outcome (spec: engine, section 4.5) or any other value.
    ///
    /// # Errors
    /// In words, when the call was cut off and its fate is unknown. A tool that failed is a value.
    fn run(&self, call: ToolCall) -> LocalBoxFuture<'static, Result<Arc<Json>, String>>;
}
