//! The execution state as it is kept between segments, and what must hold for it (spec: engine, section 3.6).

use std::collections::HashSet;
use std::sync::Arc;

use nylorun_actors::model::Json;
use nylorun_actors::model::json::JsonMap;
use serde::{Deserialize, Serialize};

use super::hooks::patch::Patch;
use super::results;

/// Where an execution stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Nothing has run yet.
    Ready,
    /// A segment runs, or the turn rolled over.
    Active,
    /// The last turn ended well.
    Completed,
    /// A person is waited for.
    Paused,
    /// The last turn was cancelled.
    Cancelled,
    /// The last turn failed.
    Failed,
}

/// The persisted state. The transcript travels beside it, so `transcript` is empty here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecutionState {
    /// Always 1.
    pub version: u32,
    /// The manifest's id.
    pub agent_id: String,
    /// The session.
    pub execution_id: String,
    /// The turn's manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_hash: Option<String>,
    /// The output schema that the session was opened with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_contract: Option<Arc<Json>>,
    /// One more with every record.
    pub revision: u64,
    /// One more with every turn.
    pub turn_count: u64,
    /// Always empty.
    pub transcript: Vec<Json>,
    /// Where it stands.
    pub status: Status,
    /// The session's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JsonMap>,
    /// The turn in flight, after a rollover or where hooks set something for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnInFlight>,
    /// Tool calls that are not all settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Calls that a cancel cut off. Kept to reconcile; never dispatched again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_calls: Option<Vec<SavedCall>>,
}

/// The turn in flight, kept from a rollover, and with hooks from a pause too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TurnInFlight {
    /// The engine's turn id.
    pub turn_id: String,
    /// With hooks: the person's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
    /// With hooks: what those before the turn set for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Patch>,
    /// With hooks: how often they sent an answer back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Attempts>,
}

/// How often hooks sent an answer back in a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attempts {
    /// Those after a step.
    pub after_step: u32,
    /// Those after the turn.
    pub after_turn: u32,
}

impl TurnInFlight {
    /// A turn of which nothing else is known.
    #[must_use]
    pub fn new(turn_id: String) -> Self {
        Self { turn_id, input: None, patch: None, attempts: None }
    }
}

/// The tool calls of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// The engine's turn id.
    pub turn_id: String,
    /// The step that asked for them.
    pub step_id: String,
    /// From 1.
    pub step_number: u32,
    /// Every call of the model, in its order.
    pub order: Vec<Ordered>,
    /// Results that needed no execution (see [`results`]).
    pub immediate: Vec<Json>,
    /// The calls that are or were executed.
    pub calls: Vec<SavedCall>,
}

/// A place in the order of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ordered {
    /// The model's call id.
    pub call_id: String,
    /// The tool.
    pub tool_name: String,
}

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallStatus {
    /// To be dispatched.
    Pending,
    /// Dispatched.
    Active,
    /// Has its result.
    Settled,
    /// Waits for a person.
    Interaction,
    /// Waits for a `settle`.
    Deferred,
}

/// One executable call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SavedCall {
    /// The model's call id.
    pub call_id: String,
    /// The engine's invocation.
    pub invocation_id: String,
    /// The tool.
    pub tool_name: String,
    /// Validated arguments.
    pub args: Arc<Json>,
    /// Arguments as the model wrote them.
    pub raw_args: Arc<Json>,
    /// Which tool it is.
    pub reference: Reference,
    /// Where it stands.
    pub status: CallStatus,
    /// Its result, once settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// What a person is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interaction: Option<Interaction>,
    /// Whether the tool asked (`execute`) or somebody before it ran (`before`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interaction_phase: Option<Phase>,
    /// The answer that the next dispatch hands to the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<JsonMap>,
    /// The tool's own memory between its two runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Json>,
    /// What a deferred call waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Json>,
}

/// Which tool a call means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reference {
    /// Its capability.
    pub capability_id: String,
    /// Its name.
    pub tool_name: String,
    /// The tool as it was offered.
    pub descriptor: Descriptor,
}

/// A tool as it was offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Descriptor {
    /// Its name.
    pub name: String,
    /// For the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Schema of its arguments.
    pub input_schema: Arc<Json>,
    /// Schema of its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Arc<Json>>,
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Interaction {
    /// `<turnId>:<segment>:interaction:<invocationId>`.
    pub id: String,
    /// What kind of answer.
    pub kind: InteractionKind,
    /// The question.
    pub prompt: String,
    /// Anything for the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonMap>,
}

/// What kind of answer an interaction takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InteractionKind {
    /// Yes or no.
    Approval,
    /// A value.
    Response,
}

/// When an interaction was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Before the tool ran.
    Before,
    /// By the tool.
    Execute,
}

impl ExecutionState {
    /// The state of a session that has run nothing.
    #[must_use]
    pub fn initial(
        agent_id: &str,
        manifest_hash: &str,
        execution_id: &str,
        output: Option<Arc<Json>>,
    ) -> Self {
        Self {
            version: 1,
            agent_id: agent_id.to_owned(),
            execution_id: execution_id.to_owned(),
            manifest_hash: Some(manifest_hash.to_owned()),
            output_contract: output,
            revision: 0,
            turn_count: 0,
            transcript: Vec::new(),
            status: Status::Ready,
            state: Some(JsonMap::new()),
            turn: None,
            plan: None,
            cancelled_calls: None,
        }
    }

    /// Marks that the state changed at a point where an engine records it.
    pub fn record(&mut self) {
        self.revision += 1;
    }

    /// Checks every invariant that does not need the manifest.
    ///
    /// # Errors
    /// With the broken one in words.
    pub fn check(&self) -> Result<(), String> {
        if self.version != 1 {
            return Err(format!("state version {} is not 1", self.version));
        }
        if !self.transcript.is_empty() {
            return Err("the state carries a transcript of its own".to_owned());
        }
        let Some(plan) = &self.plan else {
            return if self.status == Status::Paused {
                Err("paused without a plan".to_owned())
            } else {
                Ok(())
            };
        };
        if self.turn.as_ref().is_some_and(|turn| turn.turn_id != plan.turn_id) {
            return Err("the plan belongs to another turn".to_owned());
        }
        if self.status == Status::Paused {
            if plan.calls.iter().any(|call| call.status == CallStatus::Active) {
                return Err("paused with an active call".to_owned());
            }
            if !plan.waits() {
                return Err("paused with nothing to wait for".to_owned());
            }
        }
        plan.check()
    }
}

impl Plan {
    /// Whether a call waits for a person or for a `settle`.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.calls.iter().any(SavedCall::waits)
    }

    fn check(&self) -> Result<(), String> {
        if self.step_number == 0 {
            return Err("the plan has step number 0".to_owned());
        }
        let mut expected = HashSet::new();
        let (mut invocations, mut interactions) = (HashSet::new(), HashSet::new());
        for result in &self.immediate {
            if !results::is_result(result) {
                return Err("an immediate result has another shape".to_owned());
            }
            if !expected.insert(results::key(result)) {
                return Err("a call id stands twice in the plan".to_owned());
            }
        }
        for call in &self.calls {
            call.check()?;
            if !expected.insert((call.call_id.as_str(), call.tool_name.as_str())) {
                return Err("a call id stands twice in the plan".to_owned());
            }
            if !invocations.insert(call.invocation_id.as_str()) {
                return Err("an invocation stands twice in the plan".to_owned());
            }
            if call.interaction.as_ref().is_some_and(|asked| !interactions.insert(asked.id.as_str())) {
                return Err("an interaction stands twice in the plan".to_owned());
            }
        }
        let mut call_ids = HashSet::new();
        for place in &self.order {
            if !call_ids.insert(place.call_id.as_str())
                || !expected.contains(&(place.call_id.as_str(), place.tool_name.as_str()))
            {
                return Err("the order does not list each call once".to_owned());
            }
        }
        if call_ids.len() != expected.len() {
            return Err("the order does not list each call once".to_owned());
        }
        Ok(())
    }
}

impl SavedCall {
    /// Whether it waits for a person or for a `settle`.
    #[must_use]
    pub fn waits(&self) -> bool {
        matches!(self.status, CallStatus::Interaction | CallStatus::Deferred)
    }

    /// Gives the call its result.
    pub fn settle(&mut self, result: Json) {
        self.status = CallStatus::Settled;
        self.result = Some(result);
        self.interaction = None;
        self.interaction_phase = None;
    }

    fn check(&self) -> Result<(), String> {
        if (self.status == CallStatus::Settled) != self.result.is_some() {
            return Err("a call is settled exactly when it has a result".to_owned());
        }
        if self.result.as_ref().is_some_and(|result| {
            !results::is_result(result)
                || results::key(result) != (self.call_id.as_str(), self.tool_name.as_str())
        }) {
            return Err("a result does not belong to its call".to_owned());
        }
        if self.status == CallStatus::Interaction
            && (self.interaction.is_none() || self.interaction_phase.is_none())
        {
            return Err("an interaction lacks its question or its phase".to_owned());
        }
        if self.tool_name != self.reference.tool_name || self.tool_name != self.reference.descriptor.name {
            return Err("a call and its reference name different tools".to_owned());
        }
        Ok(())
    }
}
