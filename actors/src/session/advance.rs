//! The advance up to the moment a harness holds the run: take the lease, fold the transcript, offer the segment.

use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use tokio::time::Instant;

use super::tools::HarnessTools;
use super::{Advance, Held, SessionActor};
use crate::harness::HarnessActor;
use crate::limits::{ATTEMPTS_WITHOUT_PROGRESS, DROPS_WITHOUT_PROGRESS};
use crate::messages::harness::{GrantRefused, GrantRun};
use crate::messages::session::Loss;
use crate::messages::supervisor::Offer;
use crate::model::Json;
use crate::model::checkpoint::Checkpoint;
use crate::model::effect::RecordedOutcome;
use crate::model::ids::RunId;
use crate::model::json::JsonMap;
use crate::model::session::SessionPin;
use crate::model::turn::{
    EngineKind, Routing, RunGrant, RunOptions, SandboxRoute, TranscriptAt, TurnStart, TurnStartType,
};
use crate::model::workspace::{sandbox_key, session_key};
use crate::ports::store::{StoreError, StoreHandle};
use crate::rules::advance::{Segment, TakeRequest, Taken, take};
use crate::rules::definitions;
use crate::rules::effects::{RunScope, outcome_of};
use crate::rules::history::{self, Folded};
use crate::rules::ownership::Claim;
use crate::supervisor::Placement;
use crate::tenant::tree::Tree;

/// A segment with everything read that it needs.
struct Ready {
    segment: Box<Segment>,
    checkpoint: Checkpoint,
    manifest: Arc<Json>,
    root: Arc<Json>,
    folded: Option<Folded>,
}

impl SessionActor {
    /// Starts an advance, or remembers to when one runs.
    pub(super) fn wake(&mut self, ctx: &mut Context<Self>) {
        if !matches!(self.state, Advance::Idle | Advance::Waiting { .. }) {
            self.wake_again = true;
            return;
        }
        if !self.draining.is_empty() || self.tree.is_closing() {
            return;
        }
        self.state = Advance::Taking;
        let request = self.take_request();
        let (store, id) = (self.tree.ports.store.clone(), self.id.clone());
        let taking = async move { store.tx(move |tx| take(tx, &id, &request)).await };
        ctx.spawn(wrap_future::<_, Self>(taking).map(|taken, act, ctx| act.taken(taken, ctx)));
    }

    /// Whether the session is idle and nothing keeps an advance from starting now.
    pub(super) fn may_take(&self) -> bool {
        matches!(self.state, Advance::Idle) && self.draining.is_empty() && !self.tree.is_closing()
    }

    pub(super) fn take_request(&self) -> TakeRequest {
        TakeRequest {
            claim: Claim {
                worker: self.tree.config.worker.clone(),
                lease_ms: self.tree.config.owner_lease_ms,
                // Of this session there is one actor in this process, and it holds no run now.
                own_is_dead: true,
                others_are_dead: self.tree.ports.store.store().is_exclusive(),
            },
            model_on_crash: self.tree.config.model_on_crash,
            want_pin: self.pin.is_none(),
            folded_to: self.folded.as_ref().map(|f| f.read_to),
        }
    }

    /// Looks again after `delay_ms`.
    pub(super) fn wake_later(&mut self, delay_ms: u64, why: &'static str, ctx: &mut Context<Self>) {
        self.state = Advance::Waiting { why };
        ctx.run_later(Duration::from_millis(delay_ms), |act, ctx| {
            if matches!(act.state, Advance::Waiting { .. }) {
                act.wake(ctx);
            }
        });
        self.answer_drains();
    }

    pub(super) fn taken(&mut self, taken: Result<Taken, StoreError>, ctx: &mut Context<Self>) {
        match taken {
            Ok(Taken::Nothing) => {
                self.failures = 0;
                self.idle(ctx);
            }
            Ok(Taken::Busy { until, now }) => {
                let lease = self.tree.config.owner_lease_ms.max(25);
                let delay = until.ms_since(now).clamp(25, lease);
                self.wake_later(u64::try_from(delay).unwrap_or(25), "the end of another worker's lease", ctx);
            }
            Ok(Taken::Segment(segment)) => {
                self.failures = 0;
                self.prepare(segment, ctx);
            }
            Err(error) => self.store_failed("take the lease", &error, ctx),
        }
    }

    /// The store refused a step that can simply be made again: wait a little longer each time.
    pub(super) fn store_failed(&mut self, what: &'static str, error: &StoreError, ctx: &mut Context<Self>) {
        self.failures = self.failures.saturating_add(1);
        let delay = 50u64.saturating_mul(1 << self.failures.min(7)).min(5_000);
        tracing::warn!(session = %self.id, %error, what, retry_in_ms = delay, "the store refused an advance");
        if matches!(error, StoreError::Closed) {
            self.state = Advance::Idle;
            self.answer_drains();
            return;
        }
        self.wake_later(delay, "the store", ctx);
    }

    fn prepare(&mut self, mut segment: Box<Segment>, ctx: &mut Context<Self>) {
        let epoch = segment.epoch;
        self.state = Advance::Preparing { epoch };
        if let Some(workspace) = segment.workspace.take() {
            self.workspace = Some(workspace);
        }
        if let Some(pin) = segment.pin.take() {
            self.pin = Some(Arc::new(pin));
        }
        let checkpoint: Checkpoint = match segment.checkpoint.decode() {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                self.fail_turn(&segment, &format!("the turn's checkpoint does not parse: {error}"), ctx);
                return;
            }
        };
        if !self.draining.is_empty() {
            self.give_back(epoch, ctx);
            return;
        }
        if self.attempts >= ATTEMPTS_WITHOUT_PROGRESS || self.drops >= DROPS_WITHOUT_PROGRESS {
            let text = format!(
                "the turn was given up: {} attempts in a row recorded nothing new",
                self.attempts + self.drops
            );
            self.fail_turn(&segment, &text, ctx);
            return;
        }
        // What the actor has is used at once; only what is missing is read.
        let mut folded = if segment.state.is_none() { Some(Folded::default()) } else { self.folded.take() };
        if segment.state.is_some() {
            match segment.fold_rows.take() {
                Some(rows) => {
                    if let Some(fold) = &mut folded
                        && let Err(error) = fold.read(&rows)
                    {
                        self.fail_turn(&segment, &error.to_string(), ctx);
                        return;
                    }
                }
                None => folded = None,
            }
        }
        let manifest = self.tree.manifest(&checkpoint.manifest_hash);
        let root = self.tree.manifest(&segment.root_hash);
        if let (Some(manifest), Some(root), Some(folded)) = (&manifest, &root, &mut folded) {
            folded.read_to = folded.read_to.max(segment.head);
            let (manifest, root, folded) =
                (Arc::clone(manifest), Arc::clone(root), Some(std::mem::take(folded)));
            self.offer(Ready { segment, checkpoint, manifest, root, folded }, ctx);
            return;
        }
        let tree = Arc::clone(&self.tree);
        let (store, id) = (tree.ports.store.clone(), self.id.clone());
        let (turn_hash, root_hash) = (checkpoint.manifest_hash.clone(), segment.root_hash.clone());
        let (from, to) = (segment.history_from, segment.head);
        let reading = async move {
            let folded = match folded {
                Some(folded) => Ok(folded),
                None => store.read(move |reads| history::fold(reads, &id, from, to)).await,
            }?;
            let root = read_manifest(&store, &root_hash).await?;
            let manifest = if turn_hash == root_hash {
                Arc::clone(&root)
            } else {
                read_manifest(&store, &turn_hash).await?
            };
            tree.keep_manifest(root_hash, Arc::clone(&root));
            tree.keep_manifest(turn_hash, Arc::clone(&manifest));
            Ok::<_, StoreError>((folded, manifest, root))
        };
        ctx.spawn(wrap_future::<_, Self>(reading).map(move |read, act, ctx| match read {
            Ok((folded, manifest, root)) => {
                act.offer(Ready { segment, checkpoint, manifest, root, folded: Some(folded) }, ctx);
            }
            Err(error @ StoreError::Corrupt(_)) => act.fail_turn(&segment, &error.to_string(), ctx),
            Err(error) => {
                tracing::warn!(session = %act.id, %error, "a segment's start could not be read");
                act.give_back(segment.epoch, ctx);
                act.wake_again = true;
            }
        }));
    }

    /// Builds the run and looks for a harness that takes it.
    fn offer(&mut self, ready: Ready, ctx: &mut Context<Self>) {
        let Ready { segment, checkpoint, manifest, root, folded } = ready;
        let epoch = segment.epoch;
        self.state = Advance::Offered { epoch };
        let cursor = match (&segment.state, &folded) {
            (Some(_), Some(folded)) => folded.fold.cursor(),
            _ => -1,
        };
        self.folded = folded;
        let pin = self.pin.clone().unwrap_or_default();
        let outcomes = segment.outcomes.iter().map(|row| {
            outcome_of(row).map(|outcome| RecordedOutcome {
                effect_id: row.id.clone(),
                request_hash: row.request_hash.clone(),
                outcome,
            })
        });
        let outcomes = match outcomes.collect::<Result<Vec<_>, _>>() {
            Ok(outcomes) => outcomes,
            Err(error) => {
                self.fail_turn(&segment, &error.to_string(), ctx);
                return;
            }
        };
        let agent = checkpoint_agent(&root);
        let mut harness_tools = HarnessTools::new(Arc::clone(&manifest), &root, segment.fixture_model);
        let start = self.turn_start(&segment, checkpoint, manifest, root, outcomes, cursor, &pin);
        let start = match start {
            Ok(start) => start,
            Err(error) => {
                self.fail_turn(&segment, &error, ctx);
                return;
            }
        };
        harness_tools.discover(start.session_tools.as_deref().map_or(&[], Vec::as_slice));
        let manifest = Arc::clone(&start.manifest);
        let grant = RunGrant {
            run_id: RunId::from(self.tree.ports.entropy.uuid()),
            session_id: self.id.clone(),
            turn_id: segment.turn_id.clone(),
            epoch,
            token: None,
            token_expires_at: None,
        };
        let held = Held {
            run: grant.run_id.clone(),
            scope: RunScope {
                session: self.id.clone(),
                turn: segment.turn_id.clone(),
                epoch,
                model_on_crash: self.tree.config.model_on_crash,
            },
            agent,
            harness: None,
            expires_at: segment.expires_at,
            began: Instant::now(),
            cursor,
            facts: std::collections::HashMap::new(),
            manifest,
            pin,
            harness_tools,
            in_flight: std::collections::HashMap::new(),
            abort: None,
            timer: None,
            renewed: Instant::now(),
            suspected: false,
        };
        if self.harness.as_ref().is_none_or(|h| !h.connected()) {
            // It may take a while until a harness comes.
            self.beat(epoch, ctx);
        }
        self.look_for_harness(Offered { segment, grant, start, held }, ctx);
    }

    fn look_for_harness(&mut self, offered: Offered, ctx: &mut Context<Self>) {
        let (tree, beside, arbiter) = (Arc::clone(&self.tree), self.harness.clone(), self.arbiter);
        let sandboxed = self.pin.as_ref().is_some_and(|pin| pin.sandbox.is_some());
        let route = offered.start.routing.sandbox.as_ref().filter(|_| sandboxed);
        let workspace = route.map(|route| match &route.sandbox_id {
            Some(sandbox) => sandbox_key(&tree.tenant, sandbox),
            None => session_key(&tree.tenant, &route.owner_id),
        });
        let offer =
            Offer { session: self.id.clone(), arbiter, pod: None, workspace, lost: self.attempts > 0 };
        let placed = async move { find_harness(&tree, beside, offer).await };
        ctx.spawn(wrap_future::<_, Self>(placed).map(move |placed, act, ctx| {
            let epoch = offered.held.scope.epoch;
            // The lease may have been lost, or the turn cancelled, while no harness was there.
            let waits = matches!(act.state, Advance::Offered { epoch: of } if of == epoch);
            let Some(placement) = placed.filter(|_| waits) else {
                if waits {
                    act.give_back(epoch, ctx);
                }
                return;
            };
            act.grant(offered, placement, ctx);
        }));
    }

    /// Hands the run over; a harness that does not take it after all is looked for again.
    fn grant(&mut self, offered: Offered, placement: Placement, ctx: &mut Context<Self>) {
        let Offered { segment, grant, start, mut held } = offered;
        let (harness, lease) = (placement.harness().clone(), placement.lease());
        let run = grant.run_id.clone();
        if lease == 0 {
            self.harness = Some(harness.clone());
        }
        held.harness = Some(harness.clone());
        // The renewals while the offer waited may have moved the end of the lease.
        if let Some(until) = self.renewed_until.take() {
            held.expires_at = until;
        }
        held.renewed = Instant::now();
        self.state = Advance::Held(Box::new(held));
        self.stop_beat(ctx);
        self.watch(ctx);
        let granted = harness.send(GrantRun { grant, start, session: ctx.address(), lease });
        let granted = async move {
            let taken = granted.await;
            placement.used();
            taken
        };
        ctx.spawn(wrap_future::<_, Self>(granted).map(move |taken, act, ctx| match taken {
            Ok(Ok(())) => {}
            Ok(Err(GrantRefused::TooLarge { bytes })) => {
                if act.drop_held(&run, ctx).is_some() {
                    let text = format!(
                        "the turn is too large for a harness: its start has {bytes} bytes, a frame at most 64 MiB"
                    );
                    act.fail_turn(&segment, &text, ctx);
                }
            }
            Ok(Err(GrantRefused::Gone)) => {
                if let Some(held) = act.drop_held(&run, ctx) {
                    act.wake_again = true;
                    act.give_back(held.scope.epoch, ctx);
                }
            }
            Err(_) => {
                act.harness = None;
                act.lost(&run, "its harness was gone before it took the run", Loss::Connection, ctx);
            }
        }));
        if !self.draining.is_empty() {
            self.abort_for_drain(ctx);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn turn_start(
        &self,
        segment: &Segment,
        mut checkpoint: Checkpoint,
        manifest: Arc<Json>,
        root: Arc<Json>,
        outcomes: Vec<RecordedOutcome>,
        cursor: i64,
        pin: &SessionPin,
    ) -> Result<TurnStart, String> {
        let odd = |e: serde_json::Error| format!("a stored document of the session does not parse: {e}");
        if let Some(state) = &segment.state {
            checkpoint.state = Some(Arc::new(state.decode().map_err(odd)?));
        }
        let plugin_roots: JsonMap = match &pin.plugin_roots {
            Some(text) => text.decode().map_err(odd)?,
            None => JsonMap::new(),
        };
        let mcp_snapshot: Option<Arc<Json>> = match &pin.mcp_snapshot {
            Some(text) => Some(Arc::new(text.decode().map_err(odd)?)),
            None => None,
        };
        let spec = match &pin.sandbox {
            Some(text) => Some(text.decode().map_err(odd)?),
            None => None,
        };
        let (owner_id, sandbox_id) = self.workspace.clone().unwrap_or_else(|| (self.id.clone(), None));
        let kind =
            if checkpoint.is_answer() { TurnStartType::ApprovalAnswer } else { TurnStartType::TurnStart };
        Ok(TurnStart {
            kind,
            engine: EngineKind::Agent,
            manifest,
            checkpoint,
            session_tools: Some(Arc::new(
                mcp_snapshot.as_deref().map(crate::rules::claims::session_tools).unwrap_or_default(),
            )),
            outcomes,
            transcript: TranscriptAt { cursor },
            options: RunOptions {
                yield_after: Some(self.tree.config.rollover),
                flow_limits: None,
                fixture_model: segment.fixture_model,
                hold_ms: Some(self.tree.config.action_hold_ms),
            },
            routing: Routing {
                root_manifest: root,
                plugin_roots,
                mcp_snapshot,
                sandbox: Some(SandboxRoute { owner_id, sandbox_id, spec }),
            },
        })
    }
}

async fn read_manifest(store: &StoreHandle, hash: &str) -> Result<Arc<Json>, StoreError> {
    let hash = hash.to_owned();
    let text = store.read(move |reads| definitions::manifest(reads, &hash)).await?;
    let parsed = text.decode().map_err(|e| StoreError::Corrupt(format!("a manifest does not parse: {e}")))?;
    Ok(Arc::new(parsed))
}

/// A run that looks for its harness.
struct Offered {
    segment: Box<Segment>,
    grant: RunGrant,
    start: TurnStart,
    held: Held,
}

/// The harness beside the session if it answers, else whichever the broker finds; `None` when the Tenant closes.
async fn find_harness(
    tree: &Arc<Tree>,
    beside: Option<Addr<HarnessActor>>,
    offer: Offer,
) -> Option<Placement> {
    if let Some(harness) = beside
        && harness.connected()
    {
        return Some(Placement::new(harness, 0));
    }
    loop {
        if tree.is_closing() {
            return None;
        }
        let supervisor = tree.supervisor()?;
        match supervisor.send(offer.clone()).await {
            Ok(placed) => return placed,
            // The supervisor itself died: its successor is started within moments.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

fn checkpoint_agent(root: &Json) -> crate::model::ids::AgentId {
    root.get("id").and_then(Json::as_str).unwrap_or_default().into()
}
