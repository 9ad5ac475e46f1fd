//! One step: a model call and what follows from its answer (spec: engine, section 4.2).

use std::sync::Arc;

use nylorun_actors::model::Json;
use nylorun_actors::model::json::JsonMap;
use serde_json::json;

use super::errors::{Stop, TurnFailure};
use super::hooks::decision::Verdict;
use super::hooks::{Ending, Point};
use super::maker::Ask;
use super::port::needed;
use super::seal::{self, StepAt};
use super::state::{CallStatus, Interaction, InteractionKind, Phase, Plan};
use super::{Finish, Offer, Segment, candidate, outcome};
use crate::engine::model::call::Failure;

impl Segment {
    /// Runs the next step. `None` when the turn goes on.
    pub(super) async fn step(&mut self) -> Result<Option<Finish>, Stop> {
        let step_id = self.ids.next("step");
        let offer = self.before_step(&step_id).await?;
        let value = self.ask_model(&offer).await?;
        if let Some(failure) = Failure::read(&value) {
            let code = format!("model.{}", failure.code.as_str());
            return Err(TurnFailure::of_step(code, failure.message).into());
        }
        let mut answer = candidate::normalize(&value)?;
        drop(value);
        let verdict = self.after_step(&step_id, &mut answer).await?;
        if seal::calls_tools(&answer) {
            self.call_tools(&step_id, answer, &offer, verdict).await
        } else {
            self.answer(&step_id, answer, verdict).await
        }
    }

    /// What the model is offered where no hook has a say.
    pub(super) fn plain_offer(&self) -> Offer {
        Offer { head: self.definition.head.clone(), tools: Arc::clone(&self.tools) }
    }

    /// The value of this step's model effect.
    async fn ask_model(&mut self, offer: &Offer) -> Result<Arc<Json>, Stop> {
        let invocation = self.ids.next("invocation");
        let ask = Ask {
            head: offer.head.as_ref(),
            tools: &offer.tools,
            output_schema: self.definition.output_schema.as_ref(),
        };
        let effect = self.make.model(&invocation, ask, &self.view);
        Ok(needed(self.port.as_ref(), effect).await?.value)
    }

    /// Plans the calls of an answer and runs them.
    async fn call_tools(
        &mut self,
        step_id: &str,
        mut answer: JsonMap,
        offer: &Offer,
        verdict: Verdict,
    ) -> Result<Option<Finish>, Stop> {
        let at = StepAt { turn_id: &self.turn, step_id, number: self.step };
        let mut plan = seal::plan(&mut answer, &offer.tools, &mut self.ids, at, &verdict)?;
        self.ask_before_calls(&mut plan, &verdict);
        self.keep(step_id, answer);
        if verdict.retry.is_some() {
            self.count_retry(Point::AfterStep)?;
        }
        self.state.plan = Some(plan);
        self.state.record();
        Ok(if self.dispatch().await? { Some(Finish::Paused) } else { None })
    }

    /// Makes the calls that hooks want a person to allow wait for one. Nobody asks a person for a sub-agent.
    fn ask_before_calls(&self, plan: &mut Plan, verdict: &Verdict) {
        for call in &mut plan.calls {
            let Some(prompt) = verdict.question(&call.call_id) else { continue };
            if self.make.is_child() {
                call.settle(outcome::unsupported(call));
                continue;
            }
            call.status = CallStatus::Interaction;
            call.interaction = Some(Interaction {
                id: self.make.interaction_id(&call.invocation_id),
                kind: InteractionKind::Approval,
                prompt: prompt.to_owned(),
                metadata: None,
            });
            call.interaction_phase = Some(Phase::Before);
        }
    }

    /// Ends the turn with an answer that calls nothing, unless a hook sends it back.
    async fn answer(
        &mut self,
        step_id: &str,
        mut answer: JsonMap,
        verdict: Verdict,
    ) -> Result<Option<Finish>, Stop> {
        if let Some(feedback) = verdict.retry {
            self.keep(step_id, answer);
            return self.send_back(Point::AfterStep, &feedback).map(|()| None);
        }
        // An answer that breaks the output schema, or that a hook blocks, stands in the transcript all the same.
        let ending = match seal::output(&answer, &self.definition) {
            Ok(output) => self.after_turn(step_id, &mut answer, output).await,
            Err(failure) => Err(failure.into()),
        };
        self.keep(step_id, answer);
        match ending? {
            Ending::Final(output) => {
                let entry =
                    json!({"kind": "final", "turnId": self.turn, "stepId": step_id, "output": output});
                self.view.push(Arc::new(entry));
                Ok(Some(Finish::Completed(Arc::new(output))))
            }
            Ending::Again(feedback) => self.send_back(Point::AfterTurn, &feedback).map(|()| None),
        }
    }

    /// Puts an answer into the transcript: the step is done.
    fn keep(&mut self, step_id: &str, answer: JsonMap) {
        let entry = json!({"kind": "candidate", "turnId": self.turn, "stepId": step_id, "candidate": Json::Object(answer)});
        self.view.push(Arc::new(entry));
        self.step += 1;
        self.steps += 1;
    }

    /// Lets the model read what a hook thinks of its answer.
    fn send_back(&mut self, point: Point, feedback: &str) -> Result<(), Stop> {
        self.count_retry(point)?;
        let event = json!({"kind": "user-message", "text": feedback, "metadata": {"source": "hook.retry"}});
        self.view.push(Arc::new(json!({"kind": "input", "turnId": self.turn, "event": event})));
        self.state.record();
        Ok(())
    }
}
