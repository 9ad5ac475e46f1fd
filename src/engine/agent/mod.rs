//! The agent loop: one segment of a turn, replayed from its immutable start (spec: engine, sections 3 and 4).
//!
//! The loop is deterministic. Everything that it cannot know goes through an [`port::EffectPort`], under ids that come
//! out the same on every replay; a segment whose effects are still open ends as [`SegmentEnd::Suspended`] with its
//! start untouched. It owns no I/O, no clock and no cache: `engine::run` gives it those.
//!
//! An agent used as a tool is the same loop again, inside ([`delegate`]). Not here: flows as tools, which end as a failed
//! turn, and compaction.

pub mod answers;
pub mod candidate;
pub mod definition;
pub mod delegate;
pub mod errors;
pub mod hooks;
pub mod ids;
pub mod input;
pub mod maker;
mod open;
pub mod outcome;
mod plan;
pub mod port;
pub mod projection;
pub mod results;
pub mod schema;
pub mod seal;
pub mod state;
mod step;
pub mod toolset;

use std::rc::Rc;
use std::sync::Arc;

use nylorun_actors::model::Json;
use nylorun_actors::model::checkpoint::Checkpoint;
use nylorun_actors::model::transcript::{Edit, edits};
use nylorun_actors::model::turn::{AbortKind, OutputStatus, Thrown, YieldAfter};

use definition::{Definition, Head};
use errors::{Stop, TurnFailure};
use ids::Ids;
use maker::EffectMaker;
use port::EffectPort;
use projection::{Mark, Projection};
use state::{ExecutionState, Status, TurnInFlight};
use toolset::Toolset;

/// What a segment starts from.
pub struct Start {
    /// The manifest of the turn.
    pub definition: Arc<Definition>,
    /// The tools on offer.
    pub tools: Arc<Toolset>,
    /// The session's discovered tools, of which sub-agents have some.
    pub session_tools: Arc<Vec<Json>>,
    /// The immutable start.
    pub checkpoint: Checkpoint,
    /// The transcript at the checkpoint.
    pub view: Projection,
    /// When the segment rolls over.
    pub yield_after: Option<YieldAfter>,
}

/// How a segment ended.
#[derive(Clone, Debug, PartialEq)]
pub enum SegmentEnd {
    /// Effects are open; the starting checkpoint stands.
    Suspended {
        /// Which, in plan order.
        effect_ids: Vec<String>,
        /// Whether the fate of one is unknown.
        uncertain: bool,
    },
    /// It has a new state.
    Ended(Box<Ended>),
    /// It could not run.
    Thrown(Thrown),
    /// The run is no longer ours.
    Lost(AbortKind),
}

/// A segment that has a new state.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// `completed`, `paused`, `yielded`, `failed` or `cancelled`.
    pub status: OutputStatus,
    /// The state, without its transcript.
    pub state: ExecutionState,
    /// The turn's output, when completed.
    pub output: Option<Arc<Json>>,
    /// The calls that wait, when paused.
    pub pending: Option<Json>,
    /// Why it failed.
    pub error: Option<Json>,
    /// Edits against the starting transcript.
    pub edits: Vec<Edit>,
}

/// A reached end of a segment.
enum Finish {
    Completed(Arc<Json>),
    Paused,
    Yielded,
}

/// What a model is offered in a step, beside the transcript.
struct Offer {
    head: Option<Head>,
    tools: Arc<Toolset>,
}

/// A segment under way, or a sub-agent inside one.
struct Segment {
    definition: Arc<Definition>,
    tools: Arc<Toolset>,
    session_tools: Arc<Vec<Json>>,
    input: Json,
    view: Projection,
    yield_after: Option<YieldAfter>,
    port: Rc<dyn EffectPort>,
    make: EffectMaker,
    ids: Ids,
    state: ExecutionState,
    /// Where the transcript stood at the start, in the turn that runs.
    mark: Option<Mark>,
    /// Entries at the start.
    base: usize,
    /// The engine's turn.
    turn: String,
    /// Number of the next step in the turn.
    step: u32,
    /// Steps of this segment.
    steps: u32,
    /// The turn begins here and has had no step yet.
    fresh: bool,
}

/// Runs a segment. Hands back the transcript too: at its new end, or where it started when nothing is to be kept.
pub async fn run_segment(start: Start, port: Rc<dyn EffectPort>) -> (SegmentEnd, Projection) {
    let Start { definition, tools, session_tools, checkpoint, view, yield_after } = start;
    let state = match open::load(&checkpoint, &definition, &tools) {
        Ok(state) => state,
        Err(stop) => return (early(stop), view),
    };
    let mut segment = Segment {
        make: EffectMaker::new(&checkpoint, &definition),
        ids: Ids::of_segment(&checkpoint),
        base: view.entries().len(),
        definition,
        tools,
        session_tools,
        input: checkpoint.input,
        view,
        yield_after,
        port,
        state,
        mark: None,
        turn: String::new(),
        step: 1,
        steps: 0,
        fresh: false,
    };
    let end = match segment.drive().await {
        Ok(finish) => segment.finish(finish),
        Err(Stop::Failed(failure)) => segment.fail(&failure),
        Err(Stop::Aborted(_)) => segment.cancel(),
        Err(stop) => early(stop),
    };
    let keep = matches!(&end, SegmentEnd::Ended(ended) if !matches!(ended.status, OutputStatus::Failed | OutputStatus::Cancelled));
    if !keep && let Some(mark) = segment.mark.take() {
        segment.view.rollback(mark);
    }
    (end, segment.view)
}

/// The end of a segment that leaves no state.
fn early(stop: Stop) -> SegmentEnd {
    match stop {
        Stop::Suspended { effect_ids, uncertain } => SegmentEnd::Suspended { effect_ids, uncertain },
        Stop::Thrown(thrown) => SegmentEnd::Thrown(thrown),
        Stop::Lost(kind) => SegmentEnd::Lost(kind),
        Stop::Failed(TurnFailure { code, message, .. }) => {
            SegmentEnd::Thrown(Thrown { code: Some(code), message })
        }
        Stop::Aborted(abort) => SegmentEnd::Thrown(Thrown { code: None, message: abort.message }),
    }
}

impl Segment {
    async fn drive(&mut self) -> Result<Finish, Stop> {
        if let Some(refusal) = &self.definition.refusal {
            return Err(refusal.clone().into());
        }
        self.tools.check()?;
        self.open()?;
        if self.state.plan.is_some() && self.dispatch().await? {
            return Ok(Finish::Paused);
        }
        loop {
            if let Some(abort) = self.port.aborted() {
                return Err(Stop::Aborted(abort));
            }
            if self.is_time_to_yield() {
                return Ok(Finish::Yielded);
            }
            if let Some(finish) = self.step().await? {
                return Ok(finish);
            }
        }
    }

    /// Whether the segment has had its share; only between steps, and never before the first.
    fn is_time_to_yield(&self) -> bool {
        let Some(YieldAfter { steps, ms }) = self.yield_after else { return false };
        self.steps > 0
            && self.state.plan.is_none()
            && (steps.is_some_and(|most| self.steps >= most)
                || ms.is_some_and(|most| self.port.elapsed_ms() >= most))
    }

    fn finish(&mut self, finish: Finish) -> SegmentEnd {
        match finish {
            Finish::Completed(output) => {
                self.state.status = Status::Completed;
                self.state.turn = None;
                self.state.record();
                self.end(OutputStatus::Completed, |ended| ended.output = Some(output))
            }
            Finish::Paused => {
                self.state.status = Status::Paused;
                self.state.record();
                let waiting: Vec<_> =
                    self.state.plan.iter().flat_map(|plan| &plan.calls).filter(|call| call.waits()).collect();
                // A saved call has text keys only, so it always has a JSON form.
                let pending = serde_json::to_value(waiting).unwrap_or(Json::Null);
                self.end(OutputStatus::Paused, |ended| ended.pending = Some(pending))
            }
            Finish::Yielded => {
                self.state.turn.get_or_insert_with(|| TurnInFlight::new(self.turn.clone()));
                self.state.record();
                self.end(OutputStatus::Yielded, |_| ())
            }
        }
    }

    fn fail(&mut self, failure: &TurnFailure) -> SegmentEnd {
        self.state.status = Status::Failed;
        self.state.turn = None;
        self.state.plan = None;
        self.state.record();
        self.end(OutputStatus::Failed, |ended| ended.error = Some(failure.to_json()))
    }

    /// Ends a turn that was told to stop: calls that have no result get one, and are kept for whoever reconciles.
    fn cancel(&mut self) -> SegmentEnd {
        if let Some(mut plan) = self.state.plan.take() {
            let mut unfinished = Vec::new();
            for call in &mut plan.calls {
                if call.result.is_none() {
                    unfinished.push(call.clone());
                    call.settle(outcome::cancelled(call));
                }
            }
            self.close_plan(plan);
            if !unfinished.is_empty() {
                self.state.cancelled_calls.get_or_insert_default().extend(unfinished);
            }
        }
        self.state.status = Status::Cancelled;
        self.state.turn = None;
        self.state.record();
        self.end(OutputStatus::Cancelled, |_| ())
    }

    fn end(&self, status: OutputStatus, more: impl FnOnce(&mut Ended)) -> SegmentEnd {
        let mut ended = Ended {
            status,
            state: self.state.clone(),
            output: None,
            pending: None,
            error: None,
            edits: self.edits(),
        };
        more(&mut ended);
        SegmentEnd::Ended(Box::new(ended))
    }

    /// Edits against the starting transcript. Entries are only ever appended here, so the start need not be compared.
    fn edits(&self) -> Vec<Edit> {
        let mut list = edits(&[], &self.view.entries()[self.base..]);
        for edit in &mut list {
            edit.keep += self.base;
            edit.length += self.base;
        }
        list
    }
}

#[cfg(test)]
mod tests;
