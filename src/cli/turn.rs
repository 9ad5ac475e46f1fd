//! `nylorun run`: one message to an agent, its turn streamed to the terminal until it ends.

mod show;

use futures_util::StreamExt;
use nylorun_actors::model::json::{self, Json};
use reqwest::Method;
use serde_json::json;
use std::time::Duration;

use super::client::{CallError, Client, segment};
use super::fault::{Fault, exit};
use super::out::{Out, plain};
use super::sse::{SseEvent, SseReader};

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
pub async fn run(client: &Client, out: &Out, ask: &Ask) -> Result<Ended, Fault> {
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
    let mut watch = Watch {
        client,
        out,
        session,
        turn,
        cursor: accepted["cursor"].as_str().map(str::to_owned),
        shown: Shown::default(),
        doubt: false,
    };
    let ended = watch.follow().await?;
    watch.finish(&ended)?;
    Ok(ended)
}

async fn open(client: &Client, ask: &Ask) -> Result<String, Fault> {
    let session = ask.session.clone().unwrap_or_else(id);
    let path = format!("/v1/sessions/{}", segment(&session));
    if ask.session.is_some() {
        // An existing one keeps what it was opened with; opening it again would have to repeat all of that.
        match client.call(Method::GET, &path, None).await {
            Ok(view) if view["agentId"] == ask.agent.as_str() => return Ok(session),
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
    let body = json!({ "requestId": id(), "agentId": ask.agent, "ownerUserId": ask.owner });
    match client.call(Method::PUT, &path, Some(&body)).await {
        Ok(_) => Ok(session),
        Err(error) => {
            let missing = error.status() == Some(404);
            let fault = client.explain(error).await;
            // The opaque 404 is about the key; every other one here is about the definition.
            Err(if missing && fault.code != "not_found" && fault.exit == exit::FAILED {
                Fault::new(exit::FAILED, &fault.code, format!("there is no agent {}", ask.agent))
                    .fix("`nylorun agents list` shows the registered ones; `nylorun agents put FILE` registers one")
            } else {
                fault
            })
        }
    }
}

fn id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// What was written to the terminal so far.
#[derive(Default)]
struct Shown {
    /// The invocation whose preview is being written, and its text.
    preview: Option<(String, String)>,
    /// The last assistant text that was written whole.
    text: Option<String>,
}

struct Watch<'a> {
    client: &'a Client,
    out: &'a Out,
    session: String,
    turn: String,
    cursor: Option<String>,
    shown: Shown,
    /// An effect's fate is unknown.
    doubt: bool,
}

/// How long a Runtime may be away before the command gives up. The turn itself goes on when the Runtime is back.
const PATIENCE: Duration = Duration::from_secs(60);

impl Watch<'_> {
    async fn follow(&mut self) -> Result<Ended, Fault> {
        let mut delay = Duration::from_millis(250);
        let mut away = Duration::ZERO;
        loop {
            match self.client.events(&self.session, self.cursor.as_deref(), true).await {
                Ok(response) => {
                    let before = self.cursor.clone();
                    if let Some(ended) = self.read(response).await? {
                        return Ok(ended);
                    }
                    if self.cursor != before {
                        (delay, away) = (Duration::from_millis(250), Duration::ZERO);
                    }
                }
                Err(error) => {
                    // While a Runtime starts again it has no Tenant yet: that looks like the opaque 404.
                    let passing = matches!(&error, CallError::Unreachable { .. })
                        || error.status().is_some_and(|s| s == 404 || s == 408 || s == 429 || s >= 500);
                    if !passing || away >= PATIENCE {
                        return Err(self.client.explain(error).await);
                    }
                }
            }
            if away.is_zero() && !self.out.is_json() {
                self.out.note("the stream ended; waiting for the Runtime …");
            }
            self.shown.preview = None;
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                _ = tokio::signal::ctrl_c() => if let Some(ended) = self.interrupted().await { return Ok(ended) },
            }
            away += delay;
            delay = (delay * 2).min(Duration::from_secs(5));
        }
    }

    async fn read(&mut self, response: reqwest::Response) -> Result<Option<Ended>, Fault> {
        let mut reader = SseReader::default();
        let mut stream = response.bytes_stream();
        loop {
            let piece = tokio::select! {
                piece = stream.next() => piece,
                _ = tokio::signal::ctrl_c() => match self.interrupted().await {
                    Some(ended) => return Ok(Some(ended)),
                    None => continue,
                },
            };
            let Some(Ok(piece)) = piece else { return Ok(None) };
            for event in reader.push(&piece) {
                if event.id.is_some() {
                    self.cursor.clone_from(&event.id);
                }
                if let Some(ended) = self.take(&event)? {
                    return Ok(Some(ended));
                }
            }
            // No event says that a session came to stand still for an effect of unknown fate: it is asked.
            if self.doubt && self.is_uncertain().await {
                return Ok(Some(self.end("uncertain", Json::Null)));
            }
        }
    }

    fn take(&mut self, event: &SseEvent) -> Result<Option<Ended>, Fault> {
        let body = json::parse(event.data.as_bytes()).unwrap_or(Json::Null);
        if event.name == "nylorun.preview" {
            if body["turnId"] == self.turn.as_str() {
                self.preview(&body)?;
            }
            return Ok(None);
        }
        if body["turnId"] != self.turn.as_str() {
            return Ok(None);
        }
        if self.out.is_json() {
            self.out.line(&event.data)?;
        } else {
            self.show(&event.name, &body["payload"])?;
        }
        let status = match event.name.as_str() {
            "effect.uncertain" | "action.uncertain" => {
                self.doubt = true;
                return Ok(None);
            }
            "turn.completed" => "completed",
            "turn.failed" => "failed",
            "turn.cancelled" => "cancelled",
            "turn.paused" => "paused",
            _ => return Ok(None),
        };
        Ok(Some(self.end(status, body["payload"].clone())))
    }

    async fn is_uncertain(&self) -> bool {
        let path = format!("/v1/sessions/{}", segment(&self.session));
        let view = self.client.call(Method::GET, &path, None).await;
        view.is_ok_and(|view| view["status"] == "uncertain" && view["activeTurnId"] == self.turn.as_str())
    }

    fn end(&self, status: &'static str, payload: Json) -> Ended {
        Ended { status, payload, session: self.session.clone(), turn: self.turn.clone() }
    }

    /// Ctrl-C: the turn lives in the Runtime, so leaving and cancelling are two things. `None`: keep watching.
    async fn interrupted(&self) -> Option<Ended> {
        use std::io::IsTerminal;
        let detached = || Some(self.end("detached", Json::Null));
        if !std::io::stdin().is_terminal() {
            return detached();
        }
        self.out.note(
            "\nThe turn runs in the Runtime. [c]ancel it, [l]eave it running, or [w]atch on? (Ctrl-C leaves)",
        );
        let answer = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            // An unreadable terminal counts as leaving.
            let _ = std::io::stdin().read_line(&mut line);
            line
        });
        let answer = tokio::select! {
            answer = answer => answer.unwrap_or_default(),
            _ = tokio::signal::ctrl_c() => return detached(),
        };
        match answer.trim() {
            "c" | "cancel" => {
                if let Err(fault) =
                    cancel(self.client, &self.session, Some("cancelled from the terminal")).await
                {
                    self.out.note(&fault.message);
                    return detached();
                }
                // Its event ends the watch.
                None
            }
            "w" | "watch" => None,
            _ => detached(),
        }
    }
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
