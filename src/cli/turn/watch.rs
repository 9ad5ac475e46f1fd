//! Watching a turn: its events as they come, questions to the person on the way, and a Runtime that goes away and
//! comes back.

use std::future::pending;
use std::io::IsTerminal as _;
use std::time::Duration;

use futures_util::StreamExt;
use nylorun_actors::model::json::{self, Json};
use reqwest::Method;
use serde_json::json;

use super::show::Shown;
use super::{Answers, Ended, cancel};
use crate::cli::client::{CallError, Client, segment};
use crate::cli::fault::Fault;
use crate::cli::interactions::{self, Interaction, Reply, value_of};
use crate::cli::out::Out;
use crate::cli::sse::{SseEvent, SseReader};
use crate::cli::terminal::Lines;

/// One turn, watched.
pub(super) struct Watch<'a> {
    client: &'a Client,
    out: &'a Out,
    session: String,
    turn: String,
    cursor: Option<String>,
    shown: Shown,
    /// An effect's fate is unknown.
    doubt: bool,
    answers: Answers,
    lines: Option<Lines>,
    /// What the person is asked now.
    asking: Option<Interaction>,
}

/// How long a Runtime may be away before the command gives up. The turn itself goes on when the Runtime is back.
const PATIENCE: Duration = Duration::from_secs(60);

impl<'a> Watch<'a> {
    /// Of `(session, turn)` from after a cursor.
    pub fn new(
        client: &'a Client,
        out: &'a Out,
        (session, turn): (String, String),
        cursor: Option<String>,
        answers: Answers,
    ) -> Self {
        let (shown, doubt, lines, asking) = (Shown::new(*out), false, None, None);
        Self { client, out, session, turn, cursor, shown, doubt, answers, lines, asking }
    }

    /// The last assistant text that was written whole.
    pub fn said(&self) -> Option<&str> {
        self.shown.said()
    }

    /// Shows the turn to its end, or to where nobody answers.
    pub async fn follow(&mut self) -> Result<Ended, Fault> {
        let mut delay = Duration::from_millis(250);
        let mut away = Duration::ZERO;
        loop {
            match self.client.events(&self.session, self.cursor.as_deref(), true).await {
                Ok(response) => {
                    let before = self.cursor.clone();
                    if let Some(ended) = self.read(response).await? {
                        return Ok(ended);
                    }
                    if self.cursor != before || self.asking.is_some() {
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
            self.shown.drop_preview();
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
        // The connection was away while a question stood.
        self.show_question();
        loop {
            let piece = tokio::select! {
                piece = stream.next() => piece,
                line = answer_to(&self.asking, &mut self.lines) => match self.answer(line).await {
                    Some(ended) => return Ok(Some(ended)),
                    None => continue,
                },
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
                if let Some(ended) = self.take(&event)?
                    && !self.is_answered(&ended).await?
                {
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
                self.shown.preview(&body)?;
            }
            return Ok(None);
        }
        if body["turnId"] != self.turn.as_str() {
            return Ok(None);
        }
        if self.out.is_json() {
            self.out.line(&event.data)?;
        } else {
            self.shown.event(&event.name, &body["payload"])?;
        }
        let status = match event.name.as_str() {
            "effect.uncertain" | "action.uncertain" => {
                self.doubt = true;
                return Ok(None);
            }
            "command.approve" | "command.respond" => {
                // Here or elsewhere, it is answered.
                self.asking = None;
                return Ok(None);
            }
            "turn.completed" => "completed",
            "turn.failed" => "failed",
            "turn.cancelled" => "cancelled",
            "turn.paused" => "paused",
            _ => return Ok(None),
        };
        self.asking = None;
        Ok(Some(self.end(status, body["payload"].clone())))
    }

    /// Whether a paused turn has somebody here who answers; then the watch goes on.
    async fn is_answered(&mut self, ended: &Ended) -> Result<bool, Fault> {
        let open = interactions::all(&ended.payload["interactions"]);
        if ended.status != "paused" {
            return Ok(false);
        }
        match self.answers {
            Answers::Nobody => Ok(false),
            Answers::Terminal => {
                // One after the other: the turn pauses again while another is open.
                self.asking = open.into_iter().next();
                if let Some(lines) = &mut self.lines {
                    lines.forget();
                }
                self.show_question();
                Ok(self.asking.is_some())
            }
            Answers::Approve => {
                let Some(asked) = open.into_iter().find(|asked| asked.approval) else { return Ok(false) };
                self.out.note(&format!("? {} yes, as --yes says", asked.prompt));
                self.reply(&asked, &Reply::Approved(true)).await
            }
        }
    }

    fn show_question(&mut self) {
        if let Some(asked) = &self.asking {
            let hint = if asked.approval { " [y/n]" } else { "" };
            self.out.note(&format!("? {}{hint}", asked.prompt));
            self.lines.get_or_insert_with(Lines::of_stdin);
        }
    }

    /// Takes what the person typed. An end means that there is nobody any more.
    async fn answer(&mut self, line: Option<String>) -> Option<Ended> {
        let asked = self.asking.clone()?;
        let Some(line) = line else {
            let call = json!({ "interaction": {
                "id": asked.id, "kind": if asked.approval { "approval" } else { "response" }, "prompt": asked.prompt,
            } });
            return Some(self.end("paused", json!({ "interactions": [call] })));
        };
        let reply = match (asked.approval, line.trim().to_ascii_lowercase().as_str()) {
            (false, _) => Reply::Value(value_of(&line)),
            (true, "y" | "yes") => Reply::Approved(true),
            (true, "n" | "no") => Reply::Approved(false),
            (true, _) => {
                self.out.note("answer y or n; Ctrl-D leaves the turn as it is");
                self.show_question();
                return None;
            }
        };
        match self.reply(&asked, &reply).await {
            Ok(_) => self.asking = None,
            Err(fault) => {
                self.out.note(&fault.message);
                self.show_question();
            }
        }
        None
    }

    /// Sends an answer; one that came too late is no fault: events say who was earlier.
    async fn reply(&self, asked: &Interaction, reply: &Reply) -> Result<bool, Fault> {
        match interactions::send(self.client, &self.session, &asked.id, reply, None).await {
            Ok(_) => Ok(true),
            Err(error) if error.status() == Some(409) => {
                self.out.note("it was answered already");
                Ok(true)
            }
            Err(error) => Err(self.client.explain(error).await),
        }
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
    async fn interrupted(&mut self) -> Option<Ended> {
        let detached = |watch: &Self| Some(watch.end("detached", Json::Null));
        if !std::io::stdin().is_terminal() {
            return detached(self);
        }
        self.out.note(
            "\nThe turn runs in the Runtime. [c]ancel it, [l]eave it running, or [w]atch on? (Ctrl-C leaves)",
        );
        let lines = self.lines.get_or_insert_with(Lines::of_stdin);
        lines.forget();
        let line = tokio::select! {
            line = lines.next() => line.unwrap_or_default(),
            _ = tokio::signal::ctrl_c() => return detached(self),
        };
        match line.trim() {
            "c" | "cancel" => {
                let why = Some("cancelled from the terminal");
                if let Err(fault) = cancel(self.client, &self.session, why).await {
                    self.out.note(&fault.message);
                    return detached(self);
                }
                // Its event ends the watch.
                None
            }
            "w" | "watch" => {
                self.show_question();
                None
            }
            _ => detached(self),
        }
    }
}

/// The next line, while something is asked.
async fn answer_to(asking: &Option<Interaction>, lines: &mut Option<Lines>) -> Option<String> {
    match (asking, lines) {
        (Some(_), Some(lines)) => lines.next().await,
        _ => pending().await,
    }
}
