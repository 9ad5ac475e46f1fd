//! What a [`SessionActor`](crate::session::SessionActor) is told.

use std::sync::Arc;

use actix::Message;
use tokio::sync::oneshot;

use crate::harness::methods::Claim;
use crate::model::Json;
use crate::model::command::Receipt;
use crate::model::effect::{EffectIntent, Outcome};
use crate::model::ids::{EffectId, RunId};
use crate::model::transcript::Entry;
use crate::model::turn::{AbortKind, TurnOutput};
use crate::ports::engine::{ApiError, EffectReport, IntentAnswer, OutcomeAnswer};
use crate::rules::Refusal;
use crate::rules::commands::Prepared;
use crate::tenant::Reach;

/// A client's command. Answered after the commit that accepts it.
#[derive(Debug, Message)]
#[rtype(result = "Result<Receipt, Refusal>")]
pub struct DoCommand {
    /// The command, ready to apply.
    pub prepared: Prepared,
    /// Whose sessions the caller reaches.
    pub reach: Reach,
}

/// There may be work: look at the session. Merges with an advance that runs.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Wake;

/// `effect.intent` of a run.
#[derive(Debug, Message)]
#[rtype(result = "Result<IntentAnswer, ApiError>")]
pub struct Intend {
    /// Which run.
    pub run: RunId,
    /// What it is about to do.
    pub intent: EffectIntent,
    /// Hash of the full request.
    pub hash: String,
}

/// `effect.outcome` of a run.
#[derive(Debug, Message)]
#[rtype(result = "Result<OutcomeAnswer, ApiError>")]
pub struct Report {
    /// Which run.
    pub run: RunId,
    /// Which effect.
    pub effect: EffectId,
    /// What it came to.
    pub report: EffectReport,
}

/// What a harness reports of an effect when it says the next thing: the value of the one before it.
#[derive(Clone, Debug)]
pub struct Before {
    /// Which effect.
    pub effect: EffectId,
    /// What it came to.
    pub value: Arc<Json>,
}

/// `effect.outcome` and the next `effect.intent` of a run, in one commit: both or neither. Where the outcome is recorded
/// as uncertain the intent is answered so too, and nothing is intended.
#[derive(Debug, Message)]
#[rtype(result = "Result<(OutcomeAnswer, IntentAnswer), ApiError>")]
pub struct ReportAndIntend {
    /// Which run.
    pub run: RunId,
    /// What the last effect came to.
    pub before: Before,
    /// What it is about to do.
    pub intent: EffectIntent,
    /// Hash of the full request.
    pub hash: String,
}

/// `transcript.read` of a run.
#[derive(Debug, Message)]
#[rtype(result = "Result<Arc<Vec<Entry>>, ApiError>")]
pub struct ReadTranscript {
    /// Which run.
    pub run: RunId,
}

/// `lease.renew` of a run; `false` tells the harness that the lease is lost.
#[derive(Debug, Message)]
#[rtype(result = "Result<bool, ApiError>")]
pub struct RenewLease {
    /// Which run.
    pub run: RunId,
}

/// The output of a run. Answered after it is settled, with the transcript's cursor where it was kept.
#[derive(Debug, Message)]
#[rtype(result = "Result<Option<i64>, ApiError>")]
pub struct Output {
    /// The output; names its run.
    pub output: TurnOutput,
    /// The last effect's value, recorded in the same commit.
    pub before: Option<Before>,
}

/// `lease.release` of a run: nothing to settle.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), ApiError>")]
pub struct ReleaseRun {
    /// Which run.
    pub run: RunId,
    /// `shutdown` or `ownership.lost`.
    pub reason: AbortKind,
}

/// `event` of a run: what happened in its workspace.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), ApiError>")]
pub struct Claimed {
    /// Which run.
    pub run: RunId,
    /// What is claimed.
    pub claim: Claim,
}

/// `session.mcp` of a run; answered with the stored snapshot and its session tools.
#[derive(Debug, Message)]
#[rtype(result = "Result<Json, ApiError>")]
pub struct McpDiscovered {
    /// Which run.
    pub run: RunId,
    /// What was discovered.
    pub snapshot: Option<Json>,
    /// What discovery said.
    pub diagnostics: Vec<Json>,
}

/// A run is gone without an output: its harness died, its engine panicked, its connection closed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunLost {
    /// Which run.
    pub run: RunId,
    /// In words, for the log.
    pub why: String,
    /// What it says of the segment.
    pub loss: Loss,
    /// A value that it had in hand: recorded before the run is given up.
    pub before: Option<Before>,
}

/// What the loss of a run says of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its harness may have died of it: an attempt.
    Attempt,
    /// A connection ended, as it does when a harness restarts or a network fails: much more of that is borne.
    Connection,
}

/// An Action has its outcome, and its commit has made the session runnable: a run held for it goes on, any other is
/// resumed by replay.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ActionResolved {
    /// The Action's effect.
    pub effect: EffectId,
    /// Its outcome.
    pub outcome: Outcome,
}

/// Stop working: abort what runs with `shutdown`, take nothing new, answer when the lease is given back.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Drain {
    /// Answered when idle.
    pub done: oneshot::Sender<()>,
}
