//! Rows of Actions and of the endpoints that do them (spec: durability, section 7; http-api, section 10).

use super::{Page, StoreResult};
use crate::model::Micros;
use crate::model::action::ActionStatus;
use crate::model::effect::EffectKind;
use crate::model::ids::{AgentId, EffectId, SessionId, TurnId};
use crate::model::json::JsonText;

/// An Action. A pending one is its own place in the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionRow {
    /// The id of its effect.
    pub id: EffectId,
    /// Its session.
    pub session_id: SessionId,
    /// Its turn.
    pub turn_id: TurnId,
    /// The root agent, whose endpoint does it.
    pub agent_id: AgentId,
    /// `tool`, `hook`, `fn` or `verify`.
    pub kind: EffectKind,
    /// Where it stands.
    pub status: ActionStatus,
    /// Deliveries so far.
    pub generation: i64,
    /// While it is delivering: when it is lost.
    pub deadline_at: Option<Micros>,
    /// While it is pending: not before.
    pub retry_at: Option<Micros>,
    /// While it is pending: given up for an operator, a registration or a good ping.
    pub parked_at: Option<Micros>,
    /// Since when it is tried: its creation, or its last revival.
    pub since: Micros,
    /// The members that never change (`model::action::fixed_members`).
    pub body: JsonText,
    /// `{status, turnId, cursor}` once completed.
    pub receipt: Option<JsonText>,
}

/// A registered Action endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointRow {
    /// Whose Actions it does.
    pub agent_id: AgentId,
    /// Where it listens.
    pub url: String,
    /// As registered; informational.
    pub implementation_version: String,
    /// As registered; informational.
    pub manifest_hash: Option<String>,
    /// How long an answer is waited for.
    pub timeout_ms: i64,
    /// Deliveries at once.
    pub max_concurrent: i64,
    /// `model::action::Health`.
    pub health: JsonText,
    /// When it was registered last.
    pub updated_at: Micros,
}

/// The open Actions of an agent in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentLoad {
    /// Delivering now.
    pub delivering: i64,
    /// Pending and not parked.
    pub pending: i64,
    /// Parked.
    pub parked: i64,
    /// When the next pending one that waits is due.
    pub next_retry: Option<Micros>,
    /// When the next delivering one is lost.
    pub next_deadline: Option<Micros>,
}

/// What can be read of Actions and endpoints.
pub trait ActionReads {
    /// An Action.
    fn action(&mut self, id: &EffectId) -> StoreResult<Option<ActionRow>>;
    /// Open Actions of a session, by creation.
    fn open_actions(&mut self, session: &SessionId) -> StoreResult<Vec<ActionRow>>;
    /// Pending Actions of an agent that may be delivered at `now`: the oldest of each session before the second oldest of
    /// any, so that no session waits behind another's many.
    fn due_actions(&mut self, agent: &AgentId, now: Micros, limit: usize) -> StoreResult<Vec<EffectId>>;
    /// Deliveries past their deadline at `now`, of one agent.
    fn expired_actions(&mut self, agent: &AgentId, now: Micros, limit: usize) -> StoreResult<Vec<EffectId>>;
    /// Figures of an agent's open Actions.
    fn agent_load(&mut self, agent: &AgentId) -> StoreResult<AgentLoad>;
    /// Agents with an Action that is delivering, or pending, not parked and with an endpoint; by id.
    fn busy_agents(&mut self) -> StoreResult<Vec<AgentId>>;
    /// An endpoint.
    fn endpoint(&mut self, agent: &AgentId) -> StoreResult<Option<EndpointRow>>;
    /// Endpoints by agent id.
    fn endpoints(&mut self, page: &Page) -> StoreResult<Vec<EndpointRow>>;
}

/// What a transaction writes of Actions and endpoints.
pub trait ActionTx {
    /// Writes a new Action.
    ///
    /// # Errors
    /// [`StoreError::Conflict`](super::StoreError::Conflict) when the id exists,
    /// [`StoreError::Missing`](super::StoreError::Missing) without the session.
    fn insert_action(&mut self, row: &ActionRow) -> StoreResult<()>;
    /// Writes what changes of an Action: status, generation, the four instants, the receipt.
    ///
    /// # Errors
    /// [`StoreError::Missing`](super::StoreError::Missing) without the Action.
    fn put_action(&mut self, row: &ActionRow) -> StoreResult<()>;
    /// Makes all pending Actions of an agent due at once; parked ones are tried anew since `now`. Answers how many were
    /// parked.
    fn revive_actions(&mut self, agent: &AgentId, now: Micros) -> StoreResult<usize>;
    /// Writes or replaces an endpoint.
    fn put_endpoint(&mut self, row: &EndpointRow) -> StoreResult<()>;
    /// Replaces an endpoint's health; nothing happens without the endpoint.
    fn put_endpoint_health(&mut self, agent: &AgentId, health: &JsonText) -> StoreResult<()>;
    /// Deletes an endpoint; whether it was there.
    fn delete_endpoint(&mut self, agent: &AgentId) -> StoreResult<bool>;
}
