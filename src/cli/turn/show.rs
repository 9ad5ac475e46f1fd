//! What a watched turn looks like in a terminal.

use nylorun_actors::model::json::Json;
use serde_json::json;

use super::Ended;
use crate::cli::events::{Words, clean, who};
use crate::cli::fault::Fault;
use crate::cli::interactions;
use crate::cli::out::{Out, plain};

/// What was written to the terminal so far.
pub(super) struct Shown {
    out: Out,
    /// The invocation whose preview is being written, and its text.
    preview: Option<(String, String)>,
    /// The last assistant text that was written whole.
    text: Option<String>,
    words: Words,
}

impl Shown {
    pub fn new(out: Out) -> Self {
        Self { out, preview: None, text: None, words: Words::default() }
    }

    /// The last assistant text that was written whole.
    pub fn said(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The stream broke: what it was writing comes again.
    pub fn drop_preview(&mut self) {
        self.preview = None;
    }

    /// A model talks.
    pub fn preview(&mut self, body: &Json) -> Result<(), Fault> {
        if self.out.is_json() {
            return self.out.json(&json!({ "type": "nylorun.preview", "payload": body }));
        }
        let (Some(invocation), Some(text)) = (body["invocationId"].as_str(), body["text"].as_str()) else {
            return Ok(());
        };
        // In a pipe only what is settled counts.
        if !self.out.is_terminal() {
            return Ok(());
        }
        match &mut self.preview {
            Some((shown, so_far)) if shown == invocation => so_far.push_str(text),
            other => *other = Some((invocation.to_owned(), text.to_owned())),
        }
        self.out.text(text)
    }

    /// An answer of the root, unless its preview has shown it whole.
    fn answer(&mut self, payload: &Json) -> Result<(), Fault> {
        let text = payload["text"].as_str().unwrap_or_default();
        let previewed = self.preview.take();
        if previewed.is_some() {
            self.out.line("")?;
        }
        // Only a whole preview of this very answer spares writing it.
        let same =
            previewed.is_some_and(|(id, shown)| payload["invocationId"] == id.as_str() && shown == text);
        if !text.is_empty() && self.out.is_terminal() {
            if !same {
                self.out.line(text)?;
            }
            self.text = Some(text.to_owned());
        }
        Ok(())
    }

    /// An event, for a person.
    pub fn event(&mut self, kind: &str, payload: &Json) -> Result<(), Fault> {
        // What a sub-agent does is told beside the answer, which is the root's alone.
        let who = who(payload);
        match kind {
            "delegation.completed" => {
                let end = if payload["status"] == "completed" { "done" } else { "failed" };
                self.out.note(&format!("← {} {end}", clean(&plain(&payload["agent"]["id"]))));
            }
            "message.assistant" => {
                if who.is_empty() {
                    self.answer(payload)?;
                }
                for call in payload["toolCalls"].as_array().into_iter().flatten() {
                    self.out.note(&format!("{who}→ {}", clean(&plain(&call["name"]))));
                }
            }
            "tool.completed" => {
                let end = if payload["error"].is_null() { "done" } else { "failed" };
                self.out.note(&format!("{who}← {} {end}", clean(&plain(&payload["toolName"]))));
            }
            "model.failed" => {
                let (message, code) = (plain(&payload["message"]), plain(&payload["code"]));
                self.out.note(&clean(&format!("! model: {message} ({code})")));
            }
            _ => {
                if let Some(words) = self.words.tell(kind, payload) {
                    self.out.note(&words);
                }
            }
        }
        Ok(())
    }
}

/// How it ended. `said`: the assistant's text that stands there already.
pub(super) fn finish(out: &Out, ended: &Ended, said: Option<&str>) -> Result<(), Fault> {
    let Ended { status, payload, session, turn } = ended;
    if out.is_json() {
        return out.json(&json!({
            "type": "nylorun.result", "status": status, "sessionId": session, "turnId": turn,
            "result": payload,
        }));
    }
    match *status {
        "completed" => {
            let output = plain(&payload["output"]);
            if said != Some(output.as_str()) {
                out.line(&output)?;
            }
        }
        "failed" => {
            let error = if payload["error"].is_null() { payload } else { &payload["error"] };
            let code = error["code"].as_str().unwrap_or("execution.failed");
            out.note(&format!("error[{code}]: the turn failed: {}", plain(&error["message"])));
        }
        "cancelled" => out.note("the turn was cancelled"),
        "uncertain" => out.note(&format!(
            "the turn stands still: nobody knows whether an effect happened, and it is never repeated by itself. \
             `nylorun effects list {session}` names it, `nylorun effects resolve` decides; \
             `nylorun cancel {session}` gives the turn up"
        )),
        "paused" => {
            out.note("the turn waits for an answer; the session keeps until it comes:");
            interactions::tell(out, session, &interactions::all(&payload["interactions"]));
        }
        _ => out.note(&format!("the turn goes on: `nylorun sessions show {session}`")),
    }
    Ok(())
}
