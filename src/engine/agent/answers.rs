//! Answers to a paused plan: `approve`, `respond`, `settle` (spec: engine, section 4.6).

use nylorun_actors::model::Json;
use nylorun_actors::model::json::JsonMap;
use serde_json::json;

use super::errors::Stop;
use super::input::Input;
use super::outcome::result_of_outcome;
use super::state::{CallStatus, InteractionKind, Plan, SavedCall};

/// Applies an answer to the call that it is for.
///
/// # Errors
/// `execution.invalid-input` when no call waits for it, or waits for an answer of another kind.
pub fn apply(plan: &mut Plan, input: &Input) -> Result<(), Stop> {
    match input {
        Input::Approve { interaction_id, approved: false } => {
            let call = asked(plan, interaction_id, InteractionKind::Approval)?;
            let (call_id, name) = (call.call_id.clone(), call.tool_name.clone());
            call.settle(super::results::denied(&call_id, &name, "The approval was rejected."));
            Ok(())
        }
        Input::Approve { interaction_id, approved: true } => {
            let call = asked(plan, interaction_id, InteractionKind::Approval)?;
            resume(call, interaction_id, "approval", "approved", json!(true));
            Ok(())
        }
        Input::Respond { interaction_id, value } => {
            let call = asked(plan, interaction_id, InteractionKind::Response)?;
            resume(call, interaction_id, "response", "value", value.clone());
            Ok(())
        }
        Input::Settle { invocation_id, outcome } => {
            let waits = |call: &&mut SavedCall| {
                call.status == CallStatus::Deferred && call.invocation_id == *invocation_id
            };
            let call = plan.calls.iter_mut().find(waits);
            let call = call.ok_or_else(|| Stop::invalid_input("no deferred call has this invocation id"))?;
            let result = result_of_outcome(call, outcome).ok_or_else(|| {
                Stop::invalid_input("a call is settled with a completed, failed or denied outcome")
            })?;
            call.settle(result);
            Ok(())
        }
        Input::Continue | Input::Message(_) => {
            Err(Stop::invalid_input("the turn waits for an answer; this input is none"))
        }
    }
}

fn asked<'a>(plan: &'a mut Plan, id: &str, kind: InteractionKind) -> Result<&'a mut SavedCall, Stop> {
    let call = plan.calls.iter_mut().find(|call| {
        call.status == CallStatus::Interaction
            && call.interaction.as_ref().is_some_and(|asked| asked.id == id)
    });
    let call = call.ok_or_else(|| Stop::invalid_input("no call waits for this interaction"))?;
    if call.interaction.as_ref().is_some_and(|asked| asked.kind != kind) {
        return Err(Stop::invalid_input("the interaction takes an answer of another kind"));
    }
    Ok(call)
}

/// Makes the call run again with the answer. It keeps its invocation; in the new segment that is a new effect.
fn resume(call: &mut SavedCall, id: &str, kind: &str, member: &str, answer: Json) {
    let mut resume = JsonMap::new();
    resume.insert("interactionId".to_owned(), json!(id));
    resume.insert("kind".to_owned(), json!(kind));
    resume.insert(member.to_owned(), answer);
    if let Some(token) = call.token.take() {
        resume.insert("token".to_owned(), token);
    }
    call.resume = Some(resume);
    call.status = CallStatus::Pending;
    call.interaction = None;
    call.interaction_phase = None;
}
