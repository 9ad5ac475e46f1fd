//! Dispatching the tool calls of a step, all at once (spec: engine, section 4.5).

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use nylorun_actors::model::Json;
use nylorun_actors::model::turn::AbortKind;
use serde_json::json;

use super::Segment;
use super::errors::{PortError, Stop, TurnFailure};
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

    /// Resolves the effects of all calls that have to run, waits for every one of them, then takes them in in plan
    /// order.
    async fn run_calls(&mut self, plan: &mut Plan) -> Result<(), Stop> {
        let mut effects = Vec::new();
        let memory = self.state.state.clone().unwrap_or_default();
        for (at, call) in plan.calls.iter_mut().enumerate() {
            if matches!(call.status, CallStatus::Pending | CallStatus::Active) {
                call.status = CallStatus::Active;
                effects.push((at, self.make.tool(&plan.turn_id, &plan.step_id, call, &memory)));
            }
        }
        if effects.is_empty() {
            return Ok(());
        }
        self.state.record();
        let requests = effects.into_iter().map(|(at, effect)| {
            let id = effect.intent.effect_id.as_str().to_owned();
            let request = self.port.resolve(effect);
            async move { (at, id, request.await) }
        });
        let mut stops = Stops::default();
        for (at, id, resolved) in join_all(requests).await {
            let call = &mut plan.calls[at];
            match resolved {
                Ok(Resolution::Completed(done)) => {
                    let question = self.make.interaction_id(&call.invocation_id);
                    outcome::receive(call, &done.value, question, &self.tools);
                    if let Some(patch) = done.state_patch {
                        let memory = self.state.state.get_or_insert_default();
                        memory.extend(patch.iter().map(|(key, value)| (key.clone(), value.clone())));
                    }
                }
                Ok(Resolution::Pending) => stops.open.push(id),
                Ok(Resolution::Uncertain) => {
                    stops.uncertain = true;
                    stops.open.push(id);
                }
                Err(PortError::Refused(message)) => call.settle(outcome::not_made(call, &message)),
                Err(PortError::Drift(message)) => {
                    stops.failed.get_or_insert_with(|| TurnFailure::new("effect_drift", message).into());
                }
                Err(PortError::Lost(kind)) => stops.lost = Some(Stop::Lost(kind)),
                Err(PortError::Aborted(abort)) if abort.kind == AbortKind::Cancel => {
                    stops.cancelled = Some(Stop::Aborted(abort));
                }
                Err(PortError::Aborted(abort)) => stops.aborted = Some(Stop::Aborted(abort)),
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
