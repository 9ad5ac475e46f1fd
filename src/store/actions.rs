//! Actions and endpoints in diesel (spec: durability, section 7; http-api, section 10).

use diesel::dsl::{count_star, min};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use nylorun_actors::model::Micros;
use nylorun_actors::model::action::ActionStatus;
use nylorun_actors::model::effect::EffectKind;
use nylorun_actors::model::ids::{AgentId, EffectId, SessionId};
use nylorun_actors::model::json::JsonText;
use nylorun_actors::ports::StoreError;
use nylorun_actors::ports::store::{
    ActionReads, ActionRow, ActionTx, AgentLoad, EndpointRow, Page, StoreResult,
};

use super::access::Access;
use super::prepared::{change, prepared};
use super::rows::{json, unknown};
use super::schema::{actions, endpoints};

#[derive(Queryable, Selectable)]
#[diesel(table_name = actions)]
struct Action {
    id: String,
    session_id: String,
    turn_id: String,
    agent_id: String,
    kind: String,
    status: String,
    generation: i64,
    deadline_at: Option<i64>,
    retry_at: Option<i64>,
    parked_at: Option<i64>,
    since: i64,
    body: String,
    receipt: Option<String>,
}

impl Action {
    fn row(self) -> StoreResult<ActionRow> {
        Ok(ActionRow {
            id: self.id.into(),
            session_id: self.session_id.into(),
            turn_id: self.turn_id.into(),
            agent_id: self.agent_id.into(),
            kind: EffectKind::from_name(&self.kind).ok_or_else(|| unknown("effect kind", &self.kind))?,
            status: ActionStatus::from_name(&self.status)
                .ok_or_else(|| unknown("Action status", &self.status))?,
            generation: self.generation,
            deadline_at: self.deadline_at.map(Micros),
            retry_at: self.retry_at.map(Micros),
            parked_at: self.parked_at.map(Micros),
            since: Micros(self.since),
            body: JsonText::from_trusted(self.body),
            receipt: json(self.receipt),
        })
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = endpoints)]
struct Endpoint {
    agent_id: String,
    url: String,
    implementation_version: String,
    manifest_hash: Option<String>,
    timeout_ms: i64,
    max_concurrent: i64,
    health: String,
    updated_at: i64,
}

impl From<Endpoint> for EndpointRow {
    fn from(row: Endpoint) -> Self {
        Self {
            agent_id: row.agent_id.into(),
            url: row.url,
            implementation_version: row.implementation_version,
            manifest_hash: row.manifest_hash,
            timeout_ms: row.timeout_ms,
            max_concurrent: row.max_concurrent,
            health: JsonText::from_trusted(row.health),
            updated_at: Micros(row.updated_at),
        }
    }
}

#[derive(QueryableByName)]
struct Due {
    #[diesel(sql_type = Text)]
    id: String,
}

/// The n-th oldest of each session before the next oldest of any.
const DUE: &str = "SELECT id FROM (
    SELECT id, no, row_number() OVER (PARTITION BY session_id ORDER BY no) AS place FROM actions
    WHERE open_for = ? AND status = 'pending' AND parked_at IS NULL AND (retry_at IS NULL OR retry_at <= ?)
) ORDER BY place, no LIMIT ?";

fn rows_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl ActionReads for Access<'_> {
    fn action(&mut self, id: &EffectId) -> StoreResult<Option<ActionRow>> {
        let row: Option<Action> = self.run(|c| {
            actions::table
                .filter(actions::id.eq(id.as_str()))
                .select(Action::as_select())
                .get_result(c)
                .optional()
        })?;
        row.map(Action::row).transpose()
    }

    fn open_actions(&mut self, session: &SessionId) -> StoreResult<Vec<ActionRow>> {
        let rows: Vec<Action> = self.run(|c| {
            actions::table
                .filter(actions::session_id.eq(session.as_str()))
                .filter(actions::open_for.is_not_null())
                .order(actions::no)
                .select(Action::as_select())
                .load(c)
        })?;
        rows.into_iter().map(Action::row).collect()
    }

    fn due_actions(&mut self, agent: &AgentId, now: Micros, limit: usize) -> StoreResult<Vec<EffectId>> {
        let rows: Vec<Due> = self.run(|c| {
            diesel::sql_query(DUE)
                .bind::<Text, _>(agent.as_str())
                .bind::<BigInt, _>(now.0)
                .bind::<BigInt, _>(rows_limit(limit))
                .load(c)
        })?;
        Ok(rows.into_iter().map(|row| row.id.into()).collect())
    }

    fn expired_actions(&mut self, agent: &AgentId, now: Micros, limit: usize) -> StoreResult<Vec<EffectId>> {
        let ids: Vec<String> = self.run(|c| {
            actions::table
                .filter(actions::open_for.eq(agent.as_str()))
                .filter(actions::status.eq(ActionStatus::Delivering.as_str()))
                .filter(actions::deadline_at.le(now.0))
                .order(actions::no)
                .limit(rows_limit(limit))
                .select(actions::id)
                .load(c)
        })?;
        Ok(ids.into_iter().map(Into::into).collect())
    }

    fn agent_load(&mut self, agent: &AgentId) -> StoreResult<AgentLoad> {
        type Group = (String, i64, Option<i64>, Option<i64>);
        let open = actions::table.filter(actions::open_for.eq(agent.as_str()));
        let groups: Vec<Group> = self.run(|c| {
            open.filter(actions::parked_at.is_null())
                .group_by(actions::status)
                .select((actions::status, count_star(), min(actions::retry_at), min(actions::deadline_at)))
                .load(c)
        })?;
        let mut load = AgentLoad {
            parked: self.run(|c| open.filter(actions::parked_at.is_not_null()).count().get_result(c))?,
            ..AgentLoad::default()
        };
        for (status, count, retry, deadline) in groups {
            if ActionStatus::from_name(&status) == Some(ActionStatus::Delivering) {
                load.delivering = count;
                load.next_deadline = deadline.map(Micros);
            } else {
                load.pending = count;
                load.next_retry = retry.map(Micros);
            }
        }
        Ok(load)
    }

    fn busy_agents(&mut self) -> StoreResult<Vec<AgentId>> {
        let served = diesel::dsl::exists(
            endpoints::table.filter(endpoints::agent_id.nullable().eq(actions::open_for)),
        );
        let ids: Vec<Option<String>> = self.run(|c| {
            actions::table
                .filter(actions::open_for.is_not_null())
                .filter(
                    actions::status
                        .eq(ActionStatus::Delivering.as_str())
                        .or(actions::parked_at.is_null().and(served)),
                )
                .select(actions::open_for)
                .distinct()
                .order(actions::open_for)
                .load(c)
        })?;
        Ok(ids.into_iter().flatten().map(Into::into).collect())
    }

    fn endpoint(&mut self, agent: &AgentId) -> StoreResult<Option<EndpointRow>> {
        let row: Option<Endpoint> = self.run(|c| {
            endpoints::table.find(agent.as_str()).select(Endpoint::as_select()).get_result(c).optional()
        })?;
        Ok(row.map(Into::into))
    }

    fn endpoints(&mut self, page: &Page) -> StoreResult<Vec<EndpointRow>> {
        let rows: Vec<Endpoint> = self.run(|c| {
            endpoints::table
                .filter(endpoints::agent_id.gt(page.after.as_deref().unwrap_or("")))
                .order(endpoints::agent_id)
                .limit(rows_limit(page.limit.unwrap_or(usize::MAX)))
                .select(Endpoint::as_select())
                .load(c)
        })?;
        Ok(rows.into_iter().map(Into::into).collect())
    }
}

fn micros(at: Option<Micros>) -> Option<i64> {
    at.map(|at| at.0)
}

impl ActionTx for Access<'_> {
    fn insert_action(&mut self, row: &ActionRow) -> StoreResult<()> {
        self.need(&row.session_id, |_| ())?;
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(actions::table).values((
                    actions::id.eq(row.id.as_str()),
                    actions::session_id.eq(row.session_id.as_str()),
                    actions::turn_id.eq(row.turn_id.as_str()),
                    actions::agent_id.eq(row.agent_id.as_str()),
                    actions::kind.eq(row.kind.as_str()),
                    actions::status.eq(row.status.as_str()),
                    actions::generation.eq(row.generation),
                    actions::deadline_at.eq(micros(row.deadline_at)),
                    actions::retry_at.eq(micros(row.retry_at)),
                    actions::parked_at.eq(micros(row.parked_at)),
                    actions::since.eq(row.since.0),
                    actions::body.eq(row.body.as_str()),
                    actions::receipt.eq(row.receipt.as_ref().map(JsonText::as_str)),
                    actions::open_for.eq(row.status.is_open().then(|| row.agent_id.as_str())),
                ))
            )
        })?;
        Ok(())
    }

    fn put_action(&mut self, row: &ActionRow) -> StoreResult<()> {
        let changed = self.write(|c| {
            change!(
                c,
                actions::table,
                actions::id.eq(row.id.as_str()),
                (
                    actions::status.eq(row.status.as_str()),
                    actions::generation.eq(row.generation),
                    actions::deadline_at.eq(micros(row.deadline_at)),
                    actions::retry_at.eq(micros(row.retry_at)),
                    actions::parked_at.eq(micros(row.parked_at)),
                    actions::since.eq(row.since.0),
                    actions::receipt.eq(row.receipt.as_ref().map(JsonText::as_str)),
                    actions::open_for.eq(row.status.is_open().then(|| row.agent_id.as_str())),
                )
            )
        })?;
        if changed == 0 { Err(StoreError::Missing(format!("Action {}", row.id))) } else { Ok(()) }
    }

    fn revive_actions(&mut self, agent: &AgentId, now: Micros) -> StoreResult<usize> {
        let pending = actions::table
            .filter(actions::open_for.eq(agent.as_str()))
            .filter(actions::status.eq(ActionStatus::Pending.as_str()));
        let parked = self.write(|c| {
            diesel::update(pending.filter(actions::parked_at.is_not_null()))
                .set((actions::parked_at.eq(None::<i64>), actions::since.eq(now.0)))
                .execute(c)
        })?;
        self.write(|c| {
            diesel::update(pending.filter(actions::retry_at.is_not_null()))
                .set(actions::retry_at.eq(None::<i64>))
                .execute(c)
        })?;
        Ok(parked)
    }

    fn put_endpoint(&mut self, row: &EndpointRow) -> StoreResult<()> {
        self.write(|c| {
            prepared!(
                c,
                diesel::replace_into(endpoints::table).values((
                    endpoints::agent_id.eq(row.agent_id.as_str()),
                    endpoints::url.eq(&row.url),
                    endpoints::implementation_version.eq(&row.implementation_version),
                    endpoints::manifest_hash.eq(row.manifest_hash.as_deref()),
                    endpoints::timeout_ms.eq(row.timeout_ms),
                    endpoints::max_concurrent.eq(row.max_concurrent),
                    endpoints::health.eq(row.health.as_str()),
                    endpoints::updated_at.eq(row.updated_at.0),
                ))
            )
        })?;
        Ok(())
    }

    fn put_endpoint_health(&mut self, agent: &AgentId, health: &JsonText) -> StoreResult<()> {
        self.write(|c| {
            change!(
                c,
                endpoints::table,
                endpoints::agent_id.eq(agent.as_str()),
                endpoints::health.eq(health.as_str())
            )
        })?;
        Ok(())
    }

    fn delete_endpoint(&mut self, agent: &AgentId) -> StoreResult<bool> {
        let gone = self.write(|c| prepared!(c, diesel::delete(endpoints::table.find(agent.as_str()))))?;
        Ok(gone > 0)
    }
}
