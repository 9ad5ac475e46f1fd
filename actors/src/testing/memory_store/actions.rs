//! Actions and endpoints of the in-memory store.

use std::collections::HashMap;

use super::tx::MemoryTx;
use crate::model::Micros;
use crate::model::action::ActionStatus;
use crate::model::ids::{AgentId, EffectId, SessionId};
use crate::model::json::JsonText;
use crate::ports::store::{
    ActionReads, ActionRow, ActionTx, AgentLoad, EndpointRow, Page, Reads as _, StoreError, StoreResult,
};

impl MemoryTx<'_> {
    /// Open Actions of an agent, by creation.
    fn open_for(&self, agent: &AgentId) -> Vec<&(u64, ActionRow)> {
        let all = self.data.tables.actions.values();
        let mut open: Vec<_> =
            all.filter(|(_, row)| row.agent_id == *agent && row.status.is_open()).collect();
        open.sort_unstable_by_key(|(order, _)| *order);
        open
    }
}

impl ActionReads for MemoryTx<'_> {
    fn action(&mut self, id: &EffectId) -> StoreResult<Option<ActionRow>> {
        Ok(self.data.tables.actions.get(id).map(|(_, row)| row.clone()))
    }

    fn open_actions(&mut self, session: &SessionId) -> StoreResult<Vec<ActionRow>> {
        let all = self.data.tables.actions.values();
        let mut open: Vec<_> =
            all.filter(|(_, row)| row.session_id == *session && row.status.is_open()).collect();
        open.sort_unstable_by_key(|(order, _)| *order);
        Ok(open.into_iter().map(|(_, row)| row.clone()).collect())
    }

    fn due_actions(&mut self, agent: &AgentId, now: Micros, limit: usize) -> StoreResult<Vec<EffectId>> {
        let mut places: HashMap<SessionId, usize> = HashMap::new();
        let mut due = Vec::new();
        for (order, row) in self.open_for(agent) {
            let is_due = row.status == ActionStatus::Pending
                && row.parked_at.is_none()
                && row.retry_at.is_none_or(|at| at <= now);
            if is_due {
                let place = places.entry(row.session_id.clone()).or_default();
                due.push((*place, *order, row.id.clone()));
                *place += 1;
            }
        }
        due.sort_unstable();
        Ok(due.into_iter().take(limit).map(|(_, _, id)| id).collect())
    }

    fn expired_actions(&mut self, agent: &AgentId, now: Micros, limit: usize) -> StoreResult<Vec<EffectId>> {
        let late = self.open_for(agent).into_iter().filter(|(_, row)| {
            row.status == ActionStatus::Delivering && row.deadline_at.is_some_and(|at| at <= now)
        });
        Ok(late.take(limit).map(|(_, row)| row.id.clone()).collect())
    }

    fn agent_load(&mut self, agent: &AgentId) -> StoreResult<AgentLoad> {
        let mut load = AgentLoad::default();
        let earlier = |a: Option<Micros>, b: Option<Micros>| a.into_iter().chain(b).min();
        for (_, row) in self.open_for(agent) {
            match (row.status, row.parked_at) {
                (ActionStatus::Delivering, _) => {
                    load.delivering += 1;
                    load.next_deadline = earlier(load.next_deadline, row.deadline_at);
                }
                (_, Some(_)) => load.parked += 1,
                (_, None) => {
                    load.pending += 1;
                    load.next_retry = earlier(load.next_retry, row.retry_at);
                }
            }
        }
        Ok(load)
    }

    fn busy_agents(&mut self) -> StoreResult<Vec<AgentId>> {
        let tables = &self.data.tables;
        let busy = |row: &ActionRow| match row.status {
            ActionStatus::Delivering => true,
            ActionStatus::Pending => row.parked_at.is_none() && tables.endpoints.contains_key(&row.agent_id),
            _ => false,
        };
        let mut agents: Vec<AgentId> = tables
            .actions
            .values()
            .filter(|(_, row)| busy(row))
            .map(|(_, row)| row.agent_id.clone())
            .collect();
        agents.sort_unstable();
        agents.dedup();
        Ok(agents)
    }

    fn endpoint(&mut self, agent: &AgentId) -> StoreResult<Option<EndpointRow>> {
        Ok(self.data.tables.endpoints.get(agent).cloned())
    }

    fn endpoints(&mut self, page: &Page) -> StoreResult<Vec<EndpointRow>> {
        let after = |row: &&EndpointRow| page.after.as_deref().is_none_or(|a| row.agent_id.as_str() > a);
        let rows = self.data.tables.endpoints.values().filter(after);
        Ok(rows.take(page.limit.unwrap_or(usize::MAX)).cloned().collect())
    }
}

impl ActionTx for MemoryTx<'_> {
    fn insert_action(&mut self, row: &ActionRow) -> StoreResult<()> {
        if self.session(&row.session_id)?.is_none() {
            return Err(StoreError::Missing(format!("session {}", row.session_id)));
        }
        // Numbers are used once, also those of Actions that were rolled back.
        self.data.next_action += 1;
        let order = self.data.next_action;
        self.insert(|t| &mut t.actions, row.id.clone(), (order, row.clone()))
    }

    fn put_action(&mut self, row: &ActionRow) -> StoreResult<()> {
        let found = self.data.tables.actions.get(&row.id).cloned();
        let Some((order, mut stored)) = found else {
            return Err(StoreError::Missing(format!("Action {}", row.id)));
        };
        stored.status = row.status;
        stored.generation = row.generation;
        stored.deadline_at = row.deadline_at;
        stored.retry_at = row.retry_at;
        stored.parked_at = row.parked_at;
        stored.since = row.since;
        stored.receipt = row.receipt.clone();
        self.set(|t| &mut t.actions, row.id.clone(), Some((order, stored)));
        Ok(())
    }

    fn revive_actions(&mut self, agent: &AgentId, now: Micros) -> StoreResult<usize> {
        let open: Vec<_> = self.open_for(agent).into_iter().cloned().collect();
        let mut parked = 0;
        for (order, mut row) in open {
            if row.status != ActionStatus::Pending || (row.parked_at.is_none() && row.retry_at.is_none()) {
                continue;
            }
            if row.parked_at.take().is_some() {
                row.since = now;
                parked += 1;
            }
            row.retry_at = None;
            self.set(|t| &mut t.actions, row.id.clone(), Some((order, row)));
        }
        Ok(parked)
    }

    fn put_endpoint(&mut self, row: &EndpointRow) -> StoreResult<()> {
        self.set(|t| &mut t.endpoints, row.agent_id.clone(), Some(row.clone()));
        Ok(())
    }

    fn put_endpoint_health(&mut self, agent: &AgentId, health: &JsonText) -> StoreResult<()> {
        let Some(mut row) = self.data.tables.endpoints.get(agent).cloned() else { return Ok(()) };
        row.health = health.clone();
        self.set(|t| &mut t.endpoints, agent.clone(), Some(row));
        Ok(())
    }

    fn delete_endpoint(&mut self, agent: &AgentId) -> StoreResult<bool> {
        let there = self.data.tables.endpoints.contains_key(agent);
        if there {
            self.set(|t| &mut t.endpoints, agent.clone(), None);
        }
        Ok(there)
    }
}
