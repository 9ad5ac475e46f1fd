//! What a tool's outcome means for its call (spec: engine, section 4.5 point 3).

use nylorun_actors::model::Json;

use super::results;
use super::schema::{Refusal, Schema};
use super::state::{CallStatus, Interaction, InteractionKind, Phase, SavedCall};
use super::toolset::Toolset;

/// The tool result of a tagged outcome `{kind: completed | failed | denied, ...}`; `None` when it is none of them.
#[must_use]
pub fn result_of_outcome(call: &SavedCall, outcome: &Json) -> Option<Json> {
    let (id, name) = (call.call_id.as_str(), call.tool_name.as_str());
    let text = |key: &str| outcome.get(key).and_then(Json::as_str);
    Some(match text("kind")? {
        "completed" => results::completed(id, name, outcome.get("output").cloned().unwrap_or(Json::Null)),
        "failed" => {
            let mut result = results::failed(id, name, text("code")?, text("message")?, None);
            for key in ["retryable", "details"] {
                if let Some(value) = outcome.get(key) {
                    result[key] = value.clone();
                }
            }
            result
        }
        "denied" => results::denied(id, name, text("reason")?),
        _ => return None,
    })
}

/// Takes in the value of a call's effect. `interaction_id` is the id that a question of it gets; without one nobody can be
/// asked, and nothing can be waited for.
pub fn receive(call: &mut SavedCall, value: &Json, interaction_id: Option<String>, tools: &Toolset) {
    let bad = |call: &mut SavedCall, what: &str| {
        let result = results::failed(&call.call_id, &call.tool_name, "tool.invalid-tool-result", what, None);
        call.settle(result);
    };
    match value.get("kind").and_then(Json::as_str) {
        Some("completed" | "failed" | "denied") => match result_of_outcome(call, value) {
            Some(result) => finish(call, result, tools),
            None => bad(call, "the tool's outcome lacks a member"),
        },
        Some("interaction-required" | "deferred") if interaction_id.is_none() => {
            call.settle(unsupported(call))
        }
        Some("interaction-required") => match interaction_id.and_then(|id| question(value, id)) {
            Some(question) => {
                call.status = CallStatus::Interaction;
                call.interaction = Some(question);
                call.interaction_phase = Some(Phase::Execute);
                call.token = value.get("token").cloned();
                call.resume = None;
            }
            None => bad(call, "the tool's question has another shape"),
        },
        Some("deferred") => {
            call.status = CallStatus::Deferred;
            call.token = value.get("token").cloned();
            call.wait = value.get("wait").cloned();
            call.resume = None;
        }
        _ => {
            let result = results::completed(&call.call_id, &call.tool_name, value.clone());
            finish(call, result, tools);
        }
    }
}

/// Settles a call, after its output has passed the output schema.
fn finish(call: &mut SavedCall, result: Json, tools: &Toolset) {
    let refusal = match result.get("output") {
        Some(output) if result["kind"] == "completed" => check_output(call, output, tools).err(),
        _ => None,
    };
    let result = match refusal {
        None => result,
        Some(refusal) => {
            let (message, details) = match refusal {
                Refusal::Invalid(issues) => (issues.message.clone(), Some(issues.details("output"))),
                Refusal::Unusable(message) => (format!("the output schema cannot be used: {message}"), None),
            };
            results::failed(&call.call_id, &call.tool_name, "tool.invalid-output", &message, details)
        }
    };
    call.settle(result);
}

/// Checks against the schema that the call was saved with: the run's compiled one where the tool is still the same.
fn check_output(call: &SavedCall, output: &Json, tools: &Toolset) -> Result<(), Refusal> {
    let Some(schema) = &call.reference.descriptor.output_schema else { return Ok(()) };
    match tools.get(&call.tool_name) {
        Some(tool) if tool.reference == call.reference => {
            tool.output().map_or(Ok(()), |schema| schema.check(output))
        }
        _ => Schema::compile(schema).check(output),
    }
}

fn question(value: &Json, id: String) -> Option<Interaction> {
    let asked = value.get("interaction")?;
    let kind = match asked.get("kind")?.as_str()? {
        "approval" => InteractionKind::Approval,
        "response" => InteractionKind::Response,
        _ => return None,
    };
    let metadata = match asked.get("metadata") {
        None => None,
        Some(Json::Object(map)) => Some(map.clone()),
        Some(_) => return None,
    };
    Some(Interaction { id, kind, prompt: asked.get("prompt")?.as_str()?.to_owned(), metadata })
}

/// What the model reads of a call that never came to its end.
#[must_use]
pub fn cancelled(call: &SavedCall) -> Json {
    results::failed(&call.call_id, &call.tool_name, "tool.cancelled", "The call was cancelled.", None)
}

/// What a sub-agent's model reads of a call that would have to wait for a person or an event.
#[must_use]
pub fn unsupported(call: &SavedCall) -> Json {
    let message = "An agent used as a tool cannot ask a person or wait for an event. Go on without this call, or say \
        in the answer what it needs.";
    results::failed(&call.call_id, &call.tool_name, "delegation.interaction-unsupported", message, None)
}

/// What the model reads of a call that could not be made.
#[must_use]
pub fn not_made(call: &SavedCall, message: &str) -> Json {
    results::failed(&call.call_id, &call.tool_name, "tool.execution-failed", message, None)
}
