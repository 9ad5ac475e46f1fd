//! What a person at the terminal sees of a turn.

use nylorun_actors::model::json::Json;
use serde_json::json;

use super::super::fault::Fault;
use super::super::out::plain;
use super::{Ended, Watch};

impl Watch<'_> {
    pub(super) fn preview(&mut self, body: &Json) -> Result<(), Fault> {
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
        match &mut self.shown.preview {
            Some((shown, so_far)) if shown == invocation => so_far.push_str(text),
            other => *other = Some((invocation.to_owned(), text.to_owned())),
        }
        self.out.text(text)
    }

    /// Shows an answer of the root, unless its preview has shown it whole.
    fn answer(&mut self, payload: &Json) -> Result<(), Fault> {
        let text = payload["text"].as_str().unwrap_or_default();
        let previewed = self.shown.preview.take();
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
            self.shown.text = Some(text.to_owned());
        }
        Ok(())
    }

    pub(super) fn show(&mut self, kind: &str, payload: &Json) -> Result<(), Fault> {
        // What a sub-agent does is told beside the answer, which is the root's alone.
        let who = payload["agent"]["id"].as_str().map(|id| format!("{id}: ")).unwrap_or_default();
        match kind {
            "delegation.completed" => {
                let end = if payload["status"] == "completed" { "done" } else { "failed" };
                self.out.note(&format!("← {} {end}", plain(&payload["agent"]["id"])));
            }
            "message.assistant" => {
                if who.is_empty() {
                    self.answer(payload)?;
                }
                for call in payload["toolCalls"].as_array().into_iter().flatten() {
                    self.out.note(&format!("{who}→ {}", plain(&call["name"])));
                }
            }
            "tool.completed" => {
                let end = if payload["error"].is_null() { "done" } else { "failed" };
                self.out.note(&format!("{who}← {} {end}", plain(&payload["toolName"])));
            }
            "action.pending" => {
                let what = payload["toolName"].as_str().unwrap_or("the agent's hooks");
                self.out.note(&format!("{who}… waits for {what}"));
            }
            "effect.uncertain" => {
                self.out.note(&format!("! the fate of {} is unknown", plain(&payload["effectId"])));
            }
            "model.failed" => {
                self.out.note(&format!(
                    "! model: {} ({})",
                    plain(&payload["message"]),
                    plain(&payload["code"])
                ));
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn finish(&self, ended: &Ended) -> Result<(), Fault> {
        let Ended { status, payload, session, turn } = ended;
        if self.out.is_json() {
            return self.out.json(&json!({
                "type": "nylorun.result", "status": status, "sessionId": session, "turnId": turn,
                "result": payload,
            }));
        }
        match *status {
            "completed" => {
                let output = plain(&payload["output"]);
                if self.shown.text.as_deref() != Some(output.as_str()) {
                    self.out.line(&output)?;
                }
            }
            "failed" => {
                let error = if payload["error"].is_null() { payload } else { &payload["error"] };
                let code = error["code"].as_str().unwrap_or("execution.failed");
                self.out.note(&format!("error[{code}]: the turn failed: {}", plain(&error["message"])));
            }
            "cancelled" => self.out.note("the turn was cancelled"),
            "uncertain" => self.out.note(&format!(
                "the turn stands still: nobody knows whether an effect happened, and it is never repeated. \
                 `nylorun sessions show {session}` names it; `nylorun cancel {session}` gives the turn up"
            )),
            "paused" => self.out.note("the turn waits for an answer; the session keeps until it comes"),
            _ => self.out.note(&format!("the turn goes on: `nylorun sessions show {session}`")),
        }
        Ok(())
    }
}
