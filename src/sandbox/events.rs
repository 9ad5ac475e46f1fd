//! What a manager claims of its workspaces, and how a command's end reads (spec: sandbox, sections 13 and 23).

use std::time::Duration;

use nylorun_actors::model::json::{Json, JsonMap};
use nylorun_actors::model::workspace::{
    Claim, ClaimKind, Tool, ToolOutcome, WorkspaceRecord, WorkspaceSession, WorkspaceState,
};
use serde_json::json;

use super::backend::Isolation;
use super::input::Input;
use super::limits::{EVENT_COMMAND_CHARS, EVENT_PATH_CHARS};
use super::run::{End, Ran};

/// What more a change of state has to say.
#[derive(Clone, Debug, Default)]
pub struct More {
    /// How it is kept apart, of one that is not stopped.
    pub isolation: Option<Isolation>,
    /// What it may reach, in words, of one that is not stopped.
    pub network: Option<String>,
    /// The workspace was there before.
    pub reattach: bool,
    /// It was to be there and was not.
    pub lost: bool,
    /// Why it does not stand.
    pub error: Option<String>,
}

/// `sandbox.state`.
#[must_use]
pub fn state(
    session: &WorkspaceSession,
    state: WorkspaceState,
    more: More,
    record: Option<WorkspaceRecord>,
) -> Claim {
    let isolation = more.isolation.unwrap_or(Isolation::Process).as_str();
    let mut payload = JsonMap::new();
    payload.insert("state".into(), json!(state.as_str()));
    payload.insert("backend".into(), json!("virtual"));
    if state != WorkspaceState::Stopped {
        payload.insert("isolation".into(), json!(isolation));
        payload.insert("network".into(), json!(more.network.as_deref().unwrap_or("none")));
    }
    if more.reattach {
        payload.insert("reattach".into(), json!(true));
    }
    if more.lost {
        payload.insert("lost".into(), json!(true));
        payload.insert("note".into(), json!("the files of the workspace were gone; it starts empty"));
    }
    if let Some(error) = more.error {
        payload.insert("error".into(), json!(error));
    }
    claim(session, ClaimKind::State, payload, record)
}

/// `sandbox.exec`. `said`: `completed`, or the code of a failure.
#[must_use]
pub fn exec(
    session: &WorkspaceSession,
    tool: Tool,
    input: &Input,
    exit: Option<i32>,
    killed: bool,
    said: &str,
    took: Duration,
) -> Claim {
    let mut payload = JsonMap::new();
    payload.insert("tool".into(), json!(tool.as_str()));
    match input {
        Input::Bash { command, .. } => {
            let command: String = command.chars().take(EVENT_COMMAND_CHARS).collect();
            payload.insert("command".into(), json!(command));
        }
        Input::Read { path, .. } | Input::Write { path, .. } | Input::Edit { path, .. } => {
            payload.insert("path".into(), json!(short(path)));
        }
        Input::Grep { path, .. } | Input::Glob { path, .. } => {
            if let Some(path) = path {
                payload.insert("path".into(), json!(short(path)));
            }
        }
    }
    if let Some(exit) = exit {
        payload.insert("exitCode".into(), json!(exit));
    }
    if killed {
        payload.insert("killed".into(), json!(true));
    }
    let completed = said == "completed";
    payload.insert("outcome".into(), json!(if completed { "completed" } else { "failed" }));
    if !completed && said != "failed" {
        payload.insert("code".into(), json!(said));
    }
    payload.insert("durationMs".into(), json!(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)));
    claim(session, ClaimKind::Exec, payload, None)
}

/// A path as an event has it: what is longer is none.
fn short(path: &str) -> String {
    path.chars().take(EVENT_PATH_CHARS).collect()
}

fn claim(
    session: &WorkspaceSession,
    kind: ClaimKind,
    payload: JsonMap,
    record: Option<WorkspaceRecord>,
) -> Claim {
    Claim {
        run_id: None,
        session_id: session.owner_id.clone(),
        turn_id: session.active_turn_id.clone(),
        kind,
        payload: Json::Object(payload),
        record,
    }
}

/// The outcome of a command and its exit code. A command that fails has run all the same.
#[must_use]
pub fn command(ran: &Ran, seconds: f64) -> (ToolOutcome, i32) {
    let ((stdout, cut_out), (mut stderr, cut_err)) = (ran.stdout.text(), ran.stderr.text());
    let (exit, word) = match ran.end {
        End::Exit(code) => (code, None),
        End::TimedOut => (124, Some(format!("The command was killed: it had run for {seconds} s."))),
        End::Cancelled => (130, Some("The command was killed: nobody waits for it any more.".to_owned())),
        End::Over(over) => (137, Some(format!("The command was killed: {}.", over.in_words()))),
    };
    for word in ran.notes.iter().chain(&word) {
        if !stderr.is_empty() && !stderr.ends_with('\n') {
            stderr.push('\n');
        }
        stderr.push_str(word);
        stderr.push('\n');
    }
    let mut output = JsonMap::new();
    output.insert("exitCode".into(), json!(exit));
    output.insert("stdout".into(), json!(stdout));
    output.insert("stderr".into(), json!(stderr));
    if cut_out || cut_err {
        output.insert("truncated".into(), json!(true));
    }
    if ran.end == End::TimedOut {
        output.insert("timedOut".into(), json!(true));
    }
    (ToolOutcome::Completed { output: Json::Object(output) }, exit)
}
