//! The door to Actions: the registry of endpoints, callbacks of deliveries, decisions of an operator
//! (spec: http-api, section 10; DESIGN.md, section 9).

use std::time::Duration;

use super::Tenant;
use crate::messages::endpoint::{Ping, PingFailed};
use crate::messages::supervisor::StartEndpoint;
use crate::model::ids::{AgentId, SessionId};
use crate::model::json::Json;
use crate::model::{Micros, action};
use crate::ports::store::{Page, Reads, StoreError};
use crate::rules::actions::{self, DeliveryClaim};
use crate::rules::endpoints::{self, Registration};
use crate::rules::reconcile::{self, Asked, Resolve};
use crate::rules::workspaces::{self, SessionWorkspace};
use crate::rules::{Refusal, verdict};

/// How often an endpoint's actor is asked for before its caller is told to come back.
const FIND_ATTEMPTS: usize = 50;

/// What a heartbeat came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// When the delivery is lost without another one.
    pub deadline_at: Micros,
    /// The endpoint's URL as registered now: the audience of the next token.
    pub url: Option<String>,
}

impl Tenant {
    /// Registers endpoints, all or none; waiting Actions of their agents are sent at once.
    ///
    /// # Errors
    /// The store's.
    pub async fn register_endpoints(&self, batch: Vec<Registration>) -> Result<Vec<Json>, Refusal> {
        let agents: Vec<AgentId> = batch.iter().map(|r| r.agent_id.clone()).collect();
        let views: Result<Vec<Json>, StoreError> = self
            .store()
            .tx(move |tx| endpoints::register(tx, &batch)?.iter().map(endpoints::view).collect())
            .await;
        for agent in &agents {
            self.tree.nudge_endpoint(agent);
        }
        Ok(views?)
    }

    /// Endpoints by agent id.
    ///
    /// # Errors
    /// The store's.
    pub async fn endpoints(&self, page: Page) -> Result<Vec<Json>, Refusal> {
        let views: Result<Vec<Json>, StoreError> = self
            .store()
            .read(move |reads| endpoints::list(reads, &page)?.iter().map(endpoints::view).collect())
            .await;
        Ok(views?)
    }

    /// Takes an endpoint out; its pending Actions wait for the next registration.
    ///
    /// # Errors
    /// 404 when there is none.
    pub async fn remove_endpoint(&self, agent: &AgentId) -> Result<(), Refusal> {
        let of = agent.clone();
        self.store().tx(move |tx| endpoints::remove(tx, &of)).await?;
        self.tree.nudge_endpoint(agent);
        Ok(())
    }

    /// Asks an endpoint whether it serves its agent; a good answer revives parked Actions.
    ///
    /// # Errors
    /// 404 without an endpoint; [`PingFailed::Endpoint`] when it does not answer as it should.
    pub async fn ping_endpoint(&self, agent: &AgentId) -> Result<Json, PingFailed> {
        for _ in 0..FIND_ATTEMPTS {
            if self.tree.is_closing() {
                return Err(Refusal::Closing.into());
            }
            if let Some(supervisor) = self.tree.supervisor()
                && let Ok(Some(endpoint)) = supervisor.send(StartEndpoint { agent: agent.clone() }).await
                && let Ok(answer) = endpoint.send(Ping).await
            {
                return answer;
            }
            // The actor or the supervisor died meanwhile; its successor is started within moments.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(Refusal::from(StoreError::Unavailable("the endpoint's actor dies again and again".into())).into())
    }

    /// A background delivery lives on for one more lease.
    ///
    /// # Errors
    /// As [`actions::live`].
    pub async fn heartbeat(&self, claim: DeliveryClaim) -> Result<Heartbeat, Refusal> {
        let lease_ms = self.tree.config.action_lease_ms;
        let (deadline_at, url) = self.store().tx(move |tx| actions::heartbeat(tx, &claim, lease_ms)).await?;
        Ok(Heartbeat { deadline_at, url })
    }

    /// A live delivery's session and its workspace, for its tool route.
    ///
    /// # Errors
    /// As [`actions::live`].
    pub async fn action_workspace(&self, claim: DeliveryClaim) -> Result<SessionWorkspace, Refusal> {
        let found = self.store().read(move |reads: &mut dyn Reads| -> Result<_, Refusal> {
            let (row, _) = actions::live(reads, &claim)?;
            workspaces::of_session(reads, &row.session_id)?.ok_or_else(|| Refusal::not_found("session"))
        });
        found.await
    }

    /// A background delivery's outcome; answers the receipt `{status, turnId, cursor}`.
    ///
    /// # Errors
    /// 400 when `sent` is not an outcome, before the Action is looked at; else as [`actions::result`].
    pub async fn action_result(&self, claim: DeliveryClaim, sent: Json) -> Result<Json, Refusal> {
        let outcome = verdict::outcome(sent).map_err(Refusal::invalid)?;
        let asked = claim.clone();
        let members = self
            .store()
            .read(move |reads| {
                let row = actions::named_action(reads, &asked)?;
                Ok::<_, Refusal>(actions::members(&row)?)
            })
            .await?;
        // Outside the transaction: a schema may take its time.
        let schemas = &self.tree.ports.schemas;
        let outcome = verdict::accepted(outcome, &members, |schema, value| schemas.check(schema, value));
        let agent = AgentId::from(claim.agent.as_str());
        let (receipt, resolution) = self.store().tx(move |tx| actions::result(tx, &claim, &outcome)).await?;
        if let Some(resolution) = resolution {
            self.tree.resolved(resolution).await;
            // Its place is free.
            self.tree.nudge_endpoint(&agent);
        }
        Ok(receipt)
    }

    /// The live delivery's session, for what an Action may do in its sandbox.
    ///
    /// # Errors
    /// As [`actions::live`].
    pub async fn live_delivery(&self, claim: DeliveryClaim) -> Result<SessionId, Refusal> {
        let row = self.store().read(move |reads| actions::live(reads, &claim)).await?.0;
        Ok(row.session_id)
    }

    /// Effects of a session that wait for somebody, by id.
    ///
    /// # Errors
    /// 404 without the session.
    pub async fn open_effects(
        &self,
        session: &SessionId,
        asked: Option<Asked>,
        page: Page,
    ) -> Result<Vec<Json>, Refusal> {
        let session = session.clone();
        self.store().read(move |reads| reconcile::list(reads, &session, asked, &page)).await
    }

    /// An operator's decision on an uncertain effect or a parked Action; answers the receipt.
    ///
    /// # Errors
    /// As [`reconcile::resolve`].
    pub async fn resolve_effect(&self, resolve: Resolve) -> Result<Json, Refusal> {
        let (receipt, after) = self.store().tx(move |tx| reconcile::resolve(tx, &resolve)).await?;
        if let Some(agent) = after.deliver {
            self.tree.nudge_endpoint(&agent);
        }
        if let Some(resolution) = after.resolved {
            self.tree.resolved(resolution).await;
        } else if let Some(session) = after.wake {
            self.tree.wake(session).await;
        }
        Ok(receipt)
    }

    /// How an endpoint has answered lately, for status pages.
    ///
    /// # Errors
    /// The store's.
    pub async fn endpoint_health(&self, agent: &AgentId) -> Result<Option<action::Health>, Refusal> {
        let agent = agent.clone();
        let health: Result<_, StoreError> = self
            .store()
            .read(move |reads| reads.endpoint(&agent)?.as_ref().map(endpoints::health).transpose())
            .await;
        Ok(health?)
    }
}
