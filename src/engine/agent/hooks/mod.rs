//! Hook points: before and after a turn, before and after a step (spec: engine, section 7).
//!
//! One effect asks every capability that has a hook at a point; it is an Action, so it may be held or suspend the
//! segment as a tool does. Its id names the point and the step, and its request holds nothing that a replay would not
//! find again. What hooks before the turn set is kept in the state, and holds in later segments too.

pub mod answers;
pub mod decision;
pub mod patch;

use nylorun_actors::model::Json;
use nylorun_actors::model::effect::EffectHook;
use nylorun_actors::model::json::JsonMap;
use serde_json::json;

use self::decision::{Verdict, merge_step, merge_turn};
use self::patch::{Patch, Patched};
use super::definition::Hooks;
use super::errors::{Stop, TurnFailure};
use super::port::needed;
use super::schema::Refusal;
use super::state::Attempts;
use super::{Offer, Segment, candidate};

/// How often the hooks of one turn may send an answer back.
pub const RETRIES: u32 = 25;

/// When hooks are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Once, before the first step.
    BeforeTurn,
    /// Before each model call.
    BeforeStep,
    /// After each answer, before its tools run.
    AfterStep,
    /// After a final answer that no hook sent back.
    AfterTurn,
}

impl Point {
    fn asked(self, hooks: &Hooks) -> &[String] {
        match self {
            Self::BeforeTurn => &hooks.before_turn,
            Self::BeforeStep => &hooks.before_step,
            Self::AfterStep => &hooks.after_step,
            Self::AfterTurn => &hooks.after_turn,
        }
    }

    fn place(self) -> (&'static str, &'static str) {
        match self {
            Self::BeforeTurn => ("before", "turn"),
            Self::BeforeStep => ("before", "step"),
            Self::AfterStep => ("after", "step"),
            Self::AfterTurn => ("after", "turn"),
        }
    }

    fn identity(self, step_id: &str) -> String {
        let (at, scope) = self.place();
        if self == Self::BeforeTurn { format!("{at}-{scope}") } else { format!("{at}-{scope}:{step_id}") }
    }

    fn failure(self, code: impl Into<String>, message: impl Into<String>) -> TurnFailure {
        let scope = if self.place().1 == "turn" { "execution" } else { "step" };
        TurnFailure::scoped(scope, code, message)
    }

    fn invalid(self, message: String) -> Stop {
        self.failure("configuration.invalid", message).into()
    }
}

/// How a final answer goes on.
pub(super) enum Ending {
    /// It is the output.
    Final(Json),
    /// It goes back to the model with this.
    Again(String),
}

impl Segment {
    /// Asks the hooks before this step, and before the turn when it is the first; what the model is then offered.
    pub(super) async fn before_step(&mut self, step_id: &str) -> Result<Offer, Stop> {
        if self.definition.hooks.is_empty() {
            return Ok(self.plain_offer());
        }
        if std::mem::take(&mut self.fresh)
            && let Some(set) = self.ask_before(Point::BeforeTurn, step_id).await?
            && let Some(turn) = &mut self.state.turn
        {
            turn.patch = (!set.is_empty()).then_some(set);
        }
        let mut patch = self.state.turn.as_ref().and_then(|turn| turn.patch.clone()).unwrap_or_default();
        if let Some(set) = self.ask_before(Point::BeforeStep, step_id).await? {
            patch.lay(set);
        }
        let mut offer = self.plain_offer();
        if let Some(tools) = patch.tools(&self.tools) {
            offer.tools = tools.into();
        }
        if !patch.instructions.is_empty() {
            offer.head = patch.head(&self.definition);
        }
        Ok(offer)
    }

    /// The merged patch of a point; `None` when nobody is asked there.
    async fn ask_before(&mut self, point: Point, step_id: &str) -> Result<Option<Patch>, Stop> {
        if point.asked(&self.definition.hooks).is_empty() {
            return Ok(None);
        }
        let mut input = self.hook_input();
        if let Some(said) = self.state.turn.as_ref().and_then(|turn| turn.input.clone()) {
            input.insert("input".to_owned(), said);
        }
        let messages: Vec<Json> = self.view.prompt(None).iter().map(|item| item.as_ref().clone()).collect();
        input.insert("messages".to_owned(), Json::Array(messages));
        if point == Point::BeforeStep {
            input.insert("step".to_owned(), json!(self.step - 1));
        }
        let value = self.ask_hooks(point, step_id, input).await?;
        let none = JsonMap::new();
        let answers = answers::read(&value, point.asked(&self.definition.hooks), &none);
        let merged = answers.and_then(|answers| patch::merge(&answers, &self.definition, &self.tools));
        let Patched { patch, state, block } = merged.map_err(|what| point.invalid(what))?;
        if let Some(why) = block {
            return Err(point.failure("dynamics.blocked", why).into());
        }
        if !state.is_empty() {
            self.state.state.get_or_insert_default().extend(state);
        }
        Ok(Some(patch))
    }

    /// Asks the hooks after this step. A text of theirs stands in the answer then.
    pub(super) async fn after_step(&mut self, step_id: &str, answer: &mut JsonMap) -> Result<Verdict, Stop> {
        let point = Point::AfterStep;
        if point.asked(&self.definition.hooks).is_empty() {
            return Ok(Verdict::default());
        }
        let mut input = self.hook_input();
        put_text(&mut input, answer);
        input.insert("toolCalls".to_owned(), candidate::calls(answer));
        input.insert("step".to_owned(), json!(self.step - 1));
        input.insert("attempt".to_owned(), json!(self.attempts().after_step));
        let value = self.ask_hooks(point, step_id, input).await?;
        let none = JsonMap::new();
        let answers = answers::read(&value, point.asked(&self.definition.hooks), &none);
        let verdict = answers.and_then(|answers| merge_step(&answers)).map_err(|what| point.invalid(what))?;
        if let Some(why) = verdict.block {
            return Err(point.failure("dynamics.blocked", why).into());
        }
        if let (Some(text), None) = (&verdict.text, &verdict.retry) {
            candidate::replace_text(answer, text);
        }
        Ok(verdict)
    }

    /// Asks the hooks after the turn what becomes of its final answer. One of theirs stands in the answer then.
    pub(super) async fn after_turn(
        &mut self,
        step_id: &str,
        answer: &mut JsonMap,
        output: Json,
    ) -> Result<Ending, Stop> {
        let point = Point::AfterTurn;
        if point.asked(&self.definition.hooks).is_empty() {
            return Ok(Ending::Final(output));
        }
        let mut input = self.hook_input();
        put_text(&mut input, answer);
        input.insert("output".to_owned(), output.clone());
        input.insert("attempt".to_owned(), json!(self.attempts().after_turn));
        let value = self.ask_hooks(point, step_id, input).await?;
        let none = JsonMap::new();
        let answers = answers::read(&value, point.asked(&self.definition.hooks), &none);
        let schema = self.definition.output();
        let verdict = answers.and_then(|answers| merge_turn(&answers, schema.is_some()));
        let verdict = verdict.map_err(|what| point.invalid(what))?;
        if let Some(why) = verdict.block {
            return Err(point.failure("dynamics.blocked", why).into());
        }
        if let Some(feedback) = verdict.retry {
            return Ok(Ending::Again(feedback));
        }
        let Some(said) = verdict.output else { return Ok(Ending::Final(output)) };
        match schema.map(|schema| schema.check(&said)) {
            None => candidate::replace_text(answer, said.as_str().unwrap_or_default()),
            Some(Ok(())) => candidate::replace_json(answer, &said),
            Some(Err(Refusal::Invalid(issues))) => {
                return Err(point.failure("output.invalid", issues.message).into());
            }
            Some(Err(Refusal::Unusable(what))) => {
                return Err(point.invalid(format!("the output schema cannot be used: {what}")));
            }
        }
        Ok(Ending::Final(said))
    }

    /// Counts an answer that is sent back.
    ///
    /// # Errors
    /// `dynamics.exhausted` when the turn has had its [`RETRIES`].
    pub(super) fn count_retry(&mut self, point: Point) -> Result<(), Stop> {
        let mut attempts = self.attempts();
        if attempts.after_step.saturating_add(attempts.after_turn) >= RETRIES {
            let message = format!("hooks sent an answer back more than {RETRIES} times in this turn");
            return Err(point.failure("dynamics.exhausted", message).into());
        }
        match point {
            Point::AfterTurn => attempts.after_turn += 1,
            _ => attempts.after_step += 1,
        }
        if let Some(turn) = &mut self.state.turn {
            turn.attempts = Some(attempts);
        }
        Ok(())
    }

    fn attempts(&self) -> Attempts {
        self.state.turn.as_ref().and_then(|turn| turn.attempts).unwrap_or_default()
    }

    /// What every hook is told.
    fn hook_input(&self) -> JsonMap {
        let mut input = JsonMap::new();
        if let Some(info) = self.make.info() {
            input.insert("info".to_owned(), Json::Object(info.clone()));
        }
        input.insert("state".to_owned(), Json::Object(self.state.state.clone().unwrap_or_default()));
        input
    }

    /// The value of a point's effect. An Action that came to nothing fails the turn: a guard that is not there must not
    /// let everything pass.
    async fn ask_hooks(
        &self,
        point: Point,
        step_id: &str,
        input: JsonMap,
    ) -> Result<std::sync::Arc<Json>, Stop> {
        let (at, scope) = point.place();
        let capability_ids = point.asked(&self.definition.hooks).to_vec();
        let hook = EffectHook { at: at.to_owned(), scope: scope.to_owned(), capability_ids };
        let effect = self.make.hook(&point.identity(step_id), hook, input);
        let value = needed(self.port.as_ref(), effect).await?.value;
        if value.get("kind").and_then(Json::as_str) == Some("failed") {
            let text = |key| value.get(key).and_then(Json::as_str);
            let code = text("code").unwrap_or("execution.failed");
            return Err(point
                .failure(code, text("message").unwrap_or("the hooks could not be asked"))
                .into());
        }
        Ok(value)
    }
}

fn put_text(input: &mut JsonMap, answer: &JsonMap) {
    if let Some(text) = candidate::text(answer) {
        input.insert("text".to_owned(), json!(text));
    }
}
