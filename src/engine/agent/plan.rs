//! Dispatching the calls of a step, tools and sub-agents, all at once (spec: engine, section 4.5).

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use nylorun_actors::model::Json;
use nylorun_actors::model::turn::{Abort, AbortKind};
use serde_json::json;

use super::Segment;
use super::errors::{EFFECT_DRIFT, PortError, Stop, TurnFailure};
use super::outcome;
use super::port::Resolution;
use super::results;
use super::state::{CallStatus, Phase, Plan};

impl Segment {
    /// Runs what the plan has to run. Whether the turn pauses; if not, the plan is done and its results stand in the
    /// transcript.
    pub(super) async fn dispatch(&mut self) -> Result<bool, Stop> {
        let Some(mut plan) = self.state.plan.take() else { return Ok(false) };
        let asked_before = |plan: &Plan| {
            plan.calls.iter().any(|call| {
                call.status == CallStatus::Interaction && call.interaction_phase == Some(Phase::Before)
            })
        };
        if asked_before(&plan) {
            self.state.plan = Some(plan);
            return Ok(true);
        }
        let ran = self.run_calls(&mut plan).await;
        self.state.record();
        if ran.is_err() || plan.waits() {
            self.state.plan = Some(plan);
            return ran.map(|()| true);
        }
        self.close_plan(plan);
        self.state.record();
        Ok(false)
    }

    /// Makes all calls that have to run, waits for every one of them, then takes them in in plan order.
    async fn run_calls(&mut self, plan: &mut Plan) -> Result<(), Stop> {
        let (mut requests, mut asked) = (Vec::new(), Vec::new());
        let memory = self.state.state.clone().unwrap_or_default();
        for (at, call) in plan.calls.iter_mut().enumerate() {
            if matches!(call.status, CallStatus::Pending | CallStatus::Active) {
                call.status = CallStatus::Active;
                asked.push(at);
                requests.push(match self.tools.get(&call.tool_name).and_then(|tool| tool.agent.as_ref()) {
                    Some(child) => self.delegate(child, call).map(Came::Delegated).boxed_local(),
                    None => {
                        let effect = self.make.tool(&plan.turn_id, &plan.step_id, call, &memory);
                        let id = effect.intent.effect_id.as_str().to_owned();
                        self.port.resolve(effect).map(|resolved| Came::Resolved(id, resolved)).boxed_local()
                    }
                });
            }
        }
        if requests.is_empty() {
            return Ok(());
        }
        self.state.record();
        let mut stops = Stops::default();
        for (at, came) in asked.into_iter().zip(join_all(requests).await) {
            let call = &mut plan.calls[at];
            match came {
                Came::Delegated(Ok(outcome)) => outcome::receive(call, &outcome, None, &self.tools),
                Came::Delegated(Err(stop)) => stops.add(stop),
                Came::Resolved(_, Ok(Resolution::Completed(done))) => {
                    let question =
                        (!self.make.is_child()).then(|| self.make.interaction_id(&call.invocation_id));
                    outcome::receive(call, &done.value, question, &self.tools);
                    if let Some(patch) = done.state_patch {
                        let memory = self.state.state.get_or_insert_default();
                        memory.extend(patch.iter().map(|(key, value)| (key.clone(), value.clone())));
                    }
                }
                Came::Resolved(_, Err(PortError::Refused(message))) => {
                    call.settle(outcome::not_made(call, &message));
                }
                Came::Resolved(id, Ok(Resolution::Pending)) => stops.open(id, false),
                Came::Resolved(id, Ok(Resolution::Uncertain)) => stops.open(id, true),
                Came::Resolved(_, Err(PortError::Drift(message))) => {
                    stops.add(TurnFailure::new(EFFECT_DRIFT, message).into());
                }
                Came::Resolved(_, Err(PortError::Lost(kind))) => stops.add(Stop::Lost(kind)),
                Came::Resolved(_, Err(PortError::Aborted(abort))) => stops.add(Stop::Aborted(abort)),
            }
        }
        stops.strongest().map_or(Ok(()), Err)
    }

    /// Appends the results of a plan in call order.
    pub(super) fn close_plan(&mut self, plan: Plan) {
        let Plan { turn_id, step_id, order, immediate, calls, .. } = plan;
        let settled = calls.into_iter().filter_map(|call| call.result);
        let mut by_id: HashMap<String, Json> = immediate
            .into_iter()
            .chain(settled)
            .map(|result| (results::key(&result).0.to_owned(), result))
            .collect();
        let results: Vec<Json> = order.iter().filter_map(|place| by_id.remove(&place.call_id)).collect();
        let entry = json!({"kind": "tool-results", "turnId": turn_id, "stepId": step_id, "results": results});
        self.view.push(Arc::new(entry));
    }
}

/// What a call came to.
enum Came {
    /// Its effect.
    Resolved(String, Result<Resolution, PortError>),
    /// The agent that it means.
    Delegated(Result<Json, Stop>),
}

/// What calls of one plan came to that stops the segment.
#[derive(Default)]
struct Stops {
    lost: Option<Stop>,
    cancelled: Option<Stop>,
    aborted: Option<Stop>,
    failed: Option<Stop>,
    open: Vec<String>,
    uncertain: bool,
}

impl Stops {
    fn open(&mut self, id: String, uncertain: bool) {
        self.open.push(id);
        self.uncertain |= uncertain;
    }

    fn add(&mut self, stop: Stop) {
        let first = |slot: &mut Option<Stop>, stop| {
            slot.get_or_insert(stop);
        };
        match stop {
            Stop::Suspended { effect_ids, uncertain } => {
                self.open.extend(effect_ids);
                self.uncertain |= uncertain;
            }
            Stop::Lost(_) => first(&mut self.lost, stop),
            Stop::Aborted(Abort { kind: AbortKind::Cancel, .. }) => first(&mut self.cancelled, stop),
            Stop::Aborted(_) => first(&mut self.aborted, stop),
            Stop::Failed(_) | Stop::Thrown(_) => first(&mut self.failed, stop),
        }
    }

    /// A lost run and a person's cancel go before everything. An effect of unknown fate must be seen by core even when
    /// the run is told to stop; one that is only pending will be found again.
    fn strongest(self) -> Option<Stop> {
        let suspended = |effect_ids: Vec<String>, uncertain| {
            (!effect_ids.is_empty()).then_some(Stop::Suspended { effect_ids, uncertain })
        };
        self.lost
            .or(self.cancelled)
            .or_else(|| if self.uncertain { suspended(self.open.clone(), true) } else { None })
            .or(self.aborted)
            .or(self.failed)
            .or_else(|| suspended(self.open, self.uncertain))
    }
}
