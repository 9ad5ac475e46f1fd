//! `nylorun run`: one message to an agent, its turn streamed to the terminal until it ends.

mod show;
mod watch;

use std::io::IsTerminal;

use nylorun_actors::model::json::Json;
use reqwest::Method;
use serde_json::json;

use self::watch::Watch;
use super::client::{Client, segment};
use super::fault::{Fault, exit};
use super::out::{Out, plain};

/// What to run.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The agent's id.
    pub agent: String,
    /// What it is told.
    pub message: String,
    /// An existing or new session; a new random one without it.
    pub session: Option<String>,
    /// Whose session a new one is.
    pub owner: String,
    /// The sandbox that a new one is opened with; the Tenant's default without it.
    pub sandbox: Option<Json>,
}

/// Who answers when the turn asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Nobody here: the turn is left paused.
    Nobody,
    /// The person at the terminal.
    Terminal,
    /// Approvals are given without asking; questions are left.
    Approve,
}

impl Answers {
    /// The person, where there is one.
    #[must_use]
    pub fn of_terminal(out: &Out) -> Self {
        if !out.is_json() && std::io::stdin().is_terminal() { Self::Terminal } else { Self::Nobody }
    }
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// `completed`, `failed`, `cancelled`, `paused`, `uncertain`, `detached`.
    pub status: &'static str,
    /// Output, error or interactions: the event's payload.
    pub payload: Json,
    /// The session.
    pub session: String,
    /// The turn.
    pub turn: String,
}

impl Ended {
    /// The exit code that this end stands for.
    #[must_use]
    pub fn exit(&self) -> u8 {
        match self.status {
            "completed" => exit::OK,
            "detached" => exit::INTERRUPTED,
            _ => exit::FAILED,
        }
    }
}

/// Opens the session, sends the message, and shows the turn to its end.
///
/// # Errors
/// When the Runtime refuses or goes away for longer than it takes to start again.
pub async fn run(client: &Client, out: &Out, ask: &Ask, answers: Answers) -> Result<Ended, Fault> {
    let session = open(client, ask).await?;
    let accepted = client
        .post(
            &format!("/v1/sessions/{}/commands", segment(&session)),
            &json!({
                "type": "message", "requestId": id(), "idempotencyKey": id(), "content": ask.message,
            }),
        )
        .await?;
    let turn = accepted["turnId"].as_str().unwrap_or_default().to_owned();
    if out.is_json() {
        out.json(&json!({ "type": "nylorun.accepted", "sessionId": session, "turnId": turn }))?;
    } else {
        out.note(&format!("session {session}  turn {turn}"));
    }
    let cursor = accepted["cursor"].as_str().map(str::to_owned);
    let mut watch = Watch::new(client, out, (session, turn), cursor, answers);
    let ended = watch.follow().await?;
    show::finish(out, &ended, watch.said())?;
    Ok(ended)
}

async fn open(client: &Client, ask: &Ask) -> Result<String, Fault> {
    let session = ask.session.clone().unwrap_or_else(id);
    let path = format!("/v1/sessions/{}", segment(&session));
    if ask.session.is_some() {
        // An existing one keeps what it was opened with; opening it again would have to repeat all of that.
        match client.call(Method::GET, &path, None).await {
            Ok(view) if view["agentId"] == ask.agent.as_str() => {
                return if ask.sandbox.is_none() { Ok(session) } else { Err(keeps_its_sandbox(&session)) };
            }
            Ok(view) => {
                return Err(Fault::new(
                    exit::FAILED,
                    "request_rejected",
                    format!("session {session} belongs to agent {}", plain(&view["agentId"])),
                )
                .fix("use another --session, or that agent"));
            }
            Err(error) if error.status() == Some(404) => {}
            Err(error) => return Err(client.explain(error).await),
        }
    }
    let mut body = json!({ "requestId": id(), "agentId": ask.agent, "ownerUserId": ask.owner });
    if let Some(sandbox) = &ask.sandbox {
        body["sandbox"] = sandbox.clone();
    }
    match client.call(Method::PUT, &path, Some(&body)).await {
        Ok(_) => Ok(session),
        Err(error) => {
            let missing = error.status() == Some(404);
            let fault = client.explain(error).await;
            // The opaque 404 is about the key; every other one here is about the definition.
            Err(if missing && ask.sandbox.as_ref().is_some_and(names_another) {
                fault
            } else if missing && fault.code != "not_found" && fault.exit == exit::FAILED {
                Fault::new(exit::FAILED, &fault.code, format!("there is no agent {}", ask.agent))
                    .fix("`nylorun agents list` shows the registered ones; `nylorun agents put FILE` registers one")
            } else {
                fault
            })
        }
    }
}

/// Whether a wish names a sandbox or a session, which may be what is missing.
fn names_another(sandbox: &Json) -> bool {
    sandbox.get("id").or(sandbox.get("session")).is_some()
}

fn keeps_its_sandbox(session: &str) -> Fault {
    let text = format!("session {session} exists, and keeps what it was opened with");
    Fault::new(exit::USAGE, "request_rejected", text).fix("leave --sandbox out, or use another --session")
}

fn id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Cancels whatever a session does.
///
/// # Errors
/// When the Runtime refuses.
pub async fn cancel(client: &Client, session: &str, reason: Option<&str>) -> Result<Json, Fault> {
    let mut body = json!({ "type": "cancel", "requestId": id(), "idempotencyKey": id() });
    if let Some(reason) = reason {
        body["reason"] = json!(reason);
    }
    client.post(&format!("/v1/sessions/{}/commands", segment(session)), &body).await
}
