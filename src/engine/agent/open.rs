//! Opening a segment: the checkpoint is checked, the state loaded, the turn begun or taken up again
//! (spec: engine, sections 3.1, 3.6 and 4.1).

use std::sync::Arc;

use nylorun_actors::model::Json;
use nylorun_actors::model::canonical::canonical_eq;
use nylorun_actors::model::checkpoint::{Checkpoint, ENGINE_VERSION};
use serde::Deserialize;
use serde_json::json;

use super::Segment;
use super::answers;
use super::definition::Definition;
use super::errors::Stop;
use super::input::Input;
use super::projection::progress;
use super::schema::{Refusal, Schema};
use super::state::{Attempts, CallStatus, ExecutionState, SavedCall, Status, TurnInFlight};
use super::toolset::Toolset;

/// The state that a segment starts with.
///
/// # Errors
/// `execution.incompatible` for a checkpoint of another engine, manifest, agent or session; `execution.invalid-state`
/// for a state that breaks an invariant.
pub fn load(
    checkpoint: &Checkpoint,
    definition: &Definition,
    tools: &Toolset,
) -> Result<ExecutionState, Stop> {
    if checkpoint.version != 1 {
        return Err(Stop::incompatible("the checkpoint has another version"));
    }
    if checkpoint.engine_version != ENGINE_VERSION {
        return Err(Stop::incompatible("the checkpoint is of another engine version"));
    }
    if checkpoint.manifest_hash != definition.hash {
        return Err(Stop::incompatible("the manifest is not the one that the checkpoint names"));
    }
    let Some(state) = checkpoint.state.as_deref() else {
        return Ok(ExecutionState::initial(
            &definition.id,
            &definition.hash,
            checkpoint.session_id.as_str(),
            definition.output_schema.clone(),
        ));
    };
    let state = ExecutionState::deserialize(state).map_err(|error| Stop::invalid_state(error.to_string()))?;
    if state.manifest_hash.as_ref().is_some_and(|hash| *hash != definition.hash) {
        return Err(Stop::incompatible("the state is of another manifest"));
    }
    if state.agent_id != definition.id {
        return Err(Stop::incompatible("the state is of another agent"));
    }
    if state.execution_id != checkpoint.session_id.as_str() {
        return Err(Stop::incompatible("the state is of another session"));
    }
    let same_contract = match (&state.output_contract, &definition.output_schema) {
        (Some(a), Some(b)) => canonical_eq(a, b),
        (None, None) => true,
        _ => false,
    };
    if !same_contract {
        return Err(Stop::incompatible("the output schema is not the one that the session was opened with"));
    }
    state.check().map_err(Stop::invalid_state)?;
    for call in state.plan.iter().flat_map(|plan| &plan.calls) {
        check_args(call, tools)?;
    }
    Ok(state)
}

/// Arguments were validated when the call was saved; they must still be what validation gives.
fn check_args(call: &SavedCall, tools: &Toolset) -> Result<(), Stop> {
    let checked = match tools.get(&call.tool_name) {
        Some(tool) if tool.reference == call.reference => tool.input().check(&call.raw_args),
        _ => Schema::compile(&call.reference.descriptor.input_schema).check(&call.raw_args),
    };
    match checked {
        Ok(()) if call.raw_args == call.args => Ok(()),
        Ok(()) | Err(Refusal::Invalid(_)) => {
            Err(Stop::incompatible("saved arguments are not what their validation gives"))
        }
        Err(Refusal::Unusable(message)) => Err(Stop::incompatible(message)),
    }
}

/// The text of a message; of one in parts, its texts joined by a space. `None` when it has none.
fn said(event: &Json) -> Option<String> {
    if let Some(text) = event.get("text").and_then(Json::as_str) {
        return Some(text.to_owned());
    }
    let parts = event.get("content").and_then(Json::as_array)?;
    let texts: Vec<_> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
    (!texts.is_empty()).then(|| texts.join(" "))
}

impl Segment {
    /// Begins the turn, or takes it up where the state left it.
    pub(super) fn open(&mut self) -> Result<(), Stop> {
        let input = Input::read(&self.input).map_err(Stop::invalid_input)?;
        let has_active = self
            .state
            .plan
            .as_ref()
            .is_some_and(|plan| plan.calls.iter().any(|call| call.status == CallStatus::Active));
        if (self.state.status == Status::Active || has_active) && !input.resumes() {
            return Err(Stop::invalid_state("a turn is in flight; a message cannot begin another"));
        }
        if self.state.status == Status::Paused {
            return self.take_answer(&input);
        }
        if matches!(input, Input::Approve { .. } | Input::Respond { .. } | Input::Settle { .. }) {
            return Err(Stop::invalid_input("nothing waits for an answer"));
        }
        if let Some(plan) = &self.state.plan {
            let (turn, step) = (plan.turn_id.clone(), plan.step_number + 1);
            self.state.status = Status::Active;
            self.state.record();
            self.resume(turn, step);
            return Ok(());
        }
        if let Some(turn) = &self.state.turn {
            let turn = turn.turn_id.clone();
            let step = 1 + progress(self.view.entries(), &turn);
            self.state.status = Status::Active;
            self.state.record();
            self.resume(turn, step);
            return Ok(());
        }
        let Input::Message(event) = input else {
            return Err(Stop::invalid_input("there is no turn to continue"));
        };
        let turn = self.ids.next("turn");
        self.state.turn_count += 1;
        self.state.status = Status::Active;
        if !self.definition.hooks.is_empty() {
            self.state.turn = Some(TurnInFlight {
                input: said(&event).map(Json::String),
                attempts: Some(Attempts::default()),
                ..TurnInFlight::new(turn.clone())
            });
        }
        self.fresh = true;
        self.state.record();
        self.resume(turn, 1);
        self.view.push(Arc::new(json!({"kind": "input", "turnId": self.turn, "event": event})));
        Ok(())
    }

    /// Takes up a paused turn with a person's answer; a `continue` only serves to cancel it.
    fn take_answer(&mut self, input: &Input) -> Result<(), Stop> {
        // `check` has seen that a paused state has a plan.
        let Some(plan) = &mut self.state.plan else {
            return Err(Stop::invalid_state("paused without a plan"));
        };
        let (turn, step) = (plan.turn_id.clone(), plan.step_number + 1);
        let abort = self.port.aborted();
        if let (Input::Continue, Some(abort)) = (input, abort) {
            self.resume(turn, step);
            return Err(Stop::Aborted(abort));
        }
        answers::apply(plan, input)?;
        self.state.status = Status::Active;
        self.state.record();
        self.resume(turn, step);
        if let Some(event) = input.answer_event() {
            self.view.push(Arc::new(json!({"kind": "input", "turnId": self.turn, "event": event})));
        }
        Ok(())
    }

    /// Makes `turn` the engine's turn and `step` its next step.
    fn resume(&mut self, turn: String, step: u32) {
        self.view.open(&turn);
        self.mark = Some(self.view.mark());
        self.turn = turn;
        self.step = step;
    }
}
