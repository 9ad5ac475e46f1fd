//! Agents as tools: a call that runs another agent inside the caller's segment (spec: engine, section 6).
//!
//! A child is the same loop with a fresh state, a transcript of its own that nobody else reads, and ids and effects
//! under its delegation's name. It shares the caller's port: what suspends it, cancels it or takes the run away does
//! the same to the caller. Everything else that becomes of it is a result for the caller's model.

use std::rc::Rc;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use nylorun_actors::model::Json;
use nylorun_actors::model::turn::Thrown;
use serde_json::json;

use super::definition::Definition;
use super::errors::{EFFECT_DRIFT, Stop, TurnFailure};
use super::ids::Ids;
use super::maker::EffectMaker;
use super::port::{EffectPort, outcome};
use super::projection::{Projection, PromptHash};
use super::state::{ExecutionState, SavedCall};
use super::{Finish, Segment, candidate};

/// Characters of a failed sub-agent's last text that its caller reads.
pub const EVIDENCE_CHARS: usize = 4_000;

/// A sub-agent about to run.
struct Delegation {
    child: Arc<Definition>,
    port: Rc<dyn EffectPort>,
    /// The caller's.
    above: EffectMaker,
    make: EffectMaker,
    ids: Ids,
    hash: PromptHash,
    session_tools: Arc<Vec<Json>>,
    call_id: String,
    /// The caller's invocation.
    id: String,
    task: Json,
}

impl Segment {
    /// Runs the agent that a call means; what the call came to: `{kind: completed | failed, ...}`.
    pub(super) fn delegate(
        &self,
        child: &Arc<Definition>,
        call: &SavedCall,
    ) -> LocalBoxFuture<'static, Result<Json, Stop>> {
        let delegation = Delegation {
            child: Arc::clone(child),
            port: Rc::clone(&self.port),
            above: self.make.clone(),
            make: self.make.child(child, &call.invocation_id),
            ids: self.ids.nested(&call.invocation_id),
            hash: self.view.mode(),
            session_tools: Arc::clone(&self.session_tools),
            call_id: call.call_id.clone(),
            id: call.invocation_id.clone(),
            task: call.args.get("task").cloned().unwrap_or(Json::Null),
        };
        delegation.run().boxed_local()
    }
}

impl Delegation {
    async fn run(mut self) -> Result<Json, Stop> {
        if let Some(refused) = self.tell("started", json!({"task": self.task})).await? {
            return Ok(refused);
        }
        let outcome = match self.set_up() {
            Ok(segment) => settle(&self.child.id, segment).await?,
            Err(failure) => failed(&failure.code, &failure.message),
        };
        let settled = json!({"status": outcome["kind"], "outcome": outcome});
        let refused = self.tell("settled", settled).await?;
        Ok(refused.unwrap_or(outcome))
    }

    /// Has a point of its life recorded; the call's outcome when core refuses that.
    async fn tell(&self, point: &str, input: Json) -> Result<Option<Json>, Stop> {
        let effect = self.above.delegation(&self.make, &self.id, point, &self.call_id, input);
        let told = outcome(self.port.as_ref(), effect).await?;
        Ok(told.err().map(|message| failed("delegation.failed", &message)))
    }

    /// The child's loop, or why it cannot begin.
    fn set_up(&mut self) -> Result<Segment, TurnFailure> {
        let child = &self.child;
        if let Some(refusal) = &child.refusal {
            return Err(refusal.clone());
        }
        let invalid = |message| TurnFailure::new("configuration.invalid", message);
        let tools = child.child_toolset(&self.session_tools).map_err(invalid)?;
        tools.check()?;
        Ok(Segment {
            state: ExecutionState::initial(
                &child.id,
                &child.hash,
                self.make.execution(),
                child.output_schema.clone(),
            ),
            definition: Arc::clone(child),
            tools,
            session_tools: Arc::clone(&self.session_tools),
            input: self.task.clone(),
            view: Projection::new(self.hash),
            yield_after: None,
            port: Rc::clone(&self.port),
            make: self.make.clone(),
            ids: self.ids.clone(),
            mark: None,
            base: 0,
            turn: String::new(),
            step: 1,
            steps: 0,
            fresh: false,
        })
    }
}

/// Runs a child to its end; what the call came to.
///
/// # Errors
/// What stops the caller too.
async fn settle(id: &str, mut segment: Segment) -> Result<Json, Stop> {
    let finish = segment.drive().await;
    Ok(match finish {
        Ok(Finish::Completed(output)) if is_blank(&output) => {
            failed("delegation.empty-output", &format!("Agent {id} ended without an answer."))
        }
        Ok(Finish::Completed(output)) => json!({"kind": "completed", "output": *output}),
        // Its calls cannot wait, so it does not pause; and it never rolls over.
        Ok(Finish::Paused | Finish::Yielded) => {
            failed("delegation.interaction-unsupported", &format!("Agent {id} waits, which it cannot."))
        }
        Err(Stop::Failed(failure)) if failure.code != EFFECT_DRIFT => {
            failed("delegation.failed", &report(id, &failure, last_text(&segment.view)))
        }
        Err(Stop::Thrown(Thrown { code, message })) => {
            failed(code.as_deref().unwrap_or("delegation.failed"), &message)
        }
        Err(stop) => return Err(stop),
    })
}

fn failed(code: &str, message: &str) -> Json {
    json!({"kind": "failed", "code": code, "message": message})
}

fn is_blank(output: &Json) -> bool {
    output.is_null() || output.as_str().is_some_and(|text| text.trim().is_empty())
}

/// What the caller's model reads of a failed child. The child's last text is what it had found so far.
fn report(id: &str, failure: &TurnFailure, last: Option<String>) -> String {
    let mut message = format!("Agent {id} failed with {}", failure.code);
    // What goes wrong inside the engine says nothing that a model could use.
    if !failure.code.starts_with("execution.") {
        message.push_str(": ");
        message.push_str(&failure.message);
    }
    if let Some(last) = last {
        message.push_str("\n\nEvidence, not an answer; its last text:\n");
        match last.char_indices().nth(EVIDENCE_CHARS) {
            Some((end, _)) => {
                message.push_str(&last[..end]);
                message.push('…');
            }
            None => message.push_str(&last),
        }
    }
    message
}

/// The last thing that a child said.
fn last_text(view: &Projection) -> Option<String> {
    let candidates = view.entries().iter().rev().filter_map(|entry| entry.get("candidate")?.as_object());
    candidates.filter_map(candidate::text).next()
}
