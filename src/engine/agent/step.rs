//! One step: a model call and what follows from its answer (spec: engine, section 4.2).

use std::sync::Arc;

use nylorun_actors::model::Json;
use serde_json::json;

use super::errors::{PortError, Stop, TurnFailure};
use super::port::Resolution;
use super::seal::{self, StepAt};
use super::{Finish, Segment, candidate};
use crate::engine::model::call::Failure;

impl Segment {
    /// Runs the next step. `None` when the turn goes on.
    pub(super) async fn step(&mut self) -> Result<Option<Finish>, Stop> {
        let step_id = self.ids.next("step");
        let value = self.ask_model().await?;
        if let Some(failure) = Failure::read(&value) {
            let code = format!("model.{}", failure.code.as_str());
            return Err(TurnFailure::of_step(code, failure.message).into());
        }
        let mut answer = candidate::normalize(&value)?;
        drop(value);
        let at = StepAt { turn_id: &self.turn, step_id: &step_id, number: self.step };
        let plan = if seal::calls_tools(&answer) {
            Some(seal::plan(&mut answer, &self.tools, &mut self.ids, at)?)
        } else {
            None
        };
        // An answer that breaks the output schema stands in the transcript all the same.
        let output = plan.is_none().then(|| seal::output(&answer, &self.definition));
        let entry = json!({"kind": "candidate", "turnId": self.turn, "stepId": step_id, "candidate": Json::Object(answer)});
        self.view.push(Arc::new(entry));
        self.step += 1;
        self.steps += 1;
        if let Some(output) = output {
            let output = output?;
            let entry = json!({"kind": "final", "turnId": self.turn, "stepId": step_id, "output": output});
            self.view.push(Arc::new(entry));
            return Ok(Some(Finish::Completed(Arc::new(output))));
        }
        self.state.plan = plan;
        self.state.record();
        Ok(if self.dispatch().await? { Some(Finish::Paused) } else { None })
    }

    /// The value of this step's model effect.
    async fn ask_model(&mut self) -> Result<Arc<Json>, Stop> {
        let invocation = self.ids.next("invocation");
        let effect = self.make.model(&invocation, &self.definition, &self.tools, &self.view);
        let id = effect.intent.effect_id.as_str().to_owned();
        match self.port.resolve(effect).await {
            Ok(Resolution::Completed(outcome)) => Ok(outcome.value),
            Ok(Resolution::Pending) => Err(Stop::Suspended { effect_ids: vec![id], uncertain: false }),
            Ok(Resolution::Uncertain) => Err(Stop::Suspended { effect_ids: vec![id], uncertain: true }),
            Err(PortError::Aborted(abort)) => Err(Stop::Aborted(abort)),
            Err(PortError::Lost(kind)) => Err(Stop::Lost(kind)),
            Err(PortError::Drift(message)) => Err(TurnFailure::new("effect_drift", message).into()),
            Err(PortError::Refused(message)) => Err(TurnFailure::of_step("execution.failed", message).into()),
        }
    }
}
