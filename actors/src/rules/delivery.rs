//! Deliveries: which Actions an endpoint gets now, and what its answers settle (spec: http-api, section 10.3; durability,
//! section 7).

use serde_json::json;

use super::actions::{self, Lost, Resolution, is_live, lose};
use super::endpoints;
use super::event::write;
use super::verdict::Verdict;
use crate::limits::{DELIVERY_BACKOFF_MOST_MS, DELIVERY_BACKOFF_MS};
use crate::model::Micros;
use crate::model::action::ActionStatus;
use crate::model::event::EventKind;
use crate::model::ids::{AgentId, EffectId, SessionId, TurnId};
use crate::ports::store::{ActionRow, AgentLoad, EndpointRow, Reads, StoreResult, Tx};

/// What an endpoint has beyond its time-out to let its answer arrive, ms.
pub const DEADLINE_GRACE_MS: i64 = 5_000;

/// An Action on its way: `delivering`, under its new generation.
#[derive(Clone, Debug)]
pub struct Started {
    /// As just stored.
    pub row: ActionRow,
    /// Where it goes.
    pub endpoint: EndpointRow,
    /// Whether its session has a sandbox.
    pub sandbox: bool,
}

/// What a look at an agent's Actions came to.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    /// To be posted now.
    pub started: Vec<Started>,
    /// Sessions whose delivery was lost: those of tools are uncertain now.
    pub lost: Vec<SessionId>,
    /// What is left, after this look.
    pub load: AgentLoad,
    /// The endpoint, `None` while the agent has none.
    pub endpoint: Option<EndpointRow>,
    /// Its failures in a row.
    pub failures: u32,
    /// Now, on the store's clock.
    pub now: Micros,
}

/// Loses what is past its deadline and claims at most `room` due Actions of an agent.
///
/// # Errors
/// The store's.
pub fn claim(tx: &mut dyn Tx, agent: &AgentId, room: usize, jitter: f64) -> StoreResult<Claimed> {
    let now = tx.now();
    let mut claimed = Claimed { now, ..Claimed::default() };
    for id in tx.expired_actions(agent, now, EXPIRED_AT_ONCE)? {
        let Some(row) = tx.action(&id)? else { continue };
        let head = tx.session(&row.session_id)?;
        let text = "the endpoint did not answer before the delivery's deadline";
        let failures = endpoints::note_failure(tx, agent, "endpoint.no-answer", text)?;
        let session = row.session_id.clone();
        lose(tx, row, head.as_ref(), text, now.plus_ms(backoff_ms(failures, jitter)))?;
        claimed.lost.push(session);
    }
    claimed.endpoint = tx.endpoint(agent)?;
    if let Some(endpoint) = &claimed.endpoint {
        claimed.failures = endpoints::health(endpoint)?.consecutive_failures;
        let busy = tx.agent_load(agent)?.delivering;
        let free = usize::try_from(endpoint.max_concurrent.saturating_sub(busy)).unwrap_or(0);
        for id in tx.due_actions(agent, now, room.min(free))? {
            let Some(row) = tx.action(&id)? else { continue };
            if let Some(started) = start(tx, row, endpoint, now)? {
                claimed.started.push(started);
            }
        }
    }
    claimed.load = tx.agent_load(agent)?;
    Ok(claimed)
}

/// Deliveries that one look declares lost at most; the next look takes the rest.
const EXPIRED_AT_ONCE: usize = 100;

fn start(
    tx: &mut dyn Tx,
    mut row: ActionRow,
    endpoint: &EndpointRow,
    now: Micros,
) -> StoreResult<Option<Started>> {
    let head = tx.session(&row.session_id)?;
    if !is_live(&row, head.as_ref()) {
        // Its turn is over: ending it has cancelled what waited, so this is a row that nothing waits for.
        row.status = ActionStatus::Cancelled;
        row.retry_at = None;
        tx.put_action(&row)?;
        return Ok(None);
    }
    row.status = ActionStatus::Delivering;
    row.generation += 1;
    row.retry_at = None;
    row.deadline_at = Some(now.plus_ms(endpoint.timeout_ms + DEADLINE_GRACE_MS));
    tx.put_action(&row)?;
    let mut payload = actions::short_payload(&row)?;
    payload.insert("generation".into(), json!(row.generation));
    write(tx, &row.session_id, Some(&row.turn_id), EventKind::ActionDelivered, &payload)?;
    let sandbox = tx.session_pin(&row.session_id)?.is_some_and(|pin| pin.sandbox.is_some());
    Ok(Some(Started { row, endpoint: endpoint.clone(), sandbox }))
}

/// Pause after so many failures in a row: 250 ms doubling to 30 s, of which `jitter` (0 to 1) takes up to a quarter off.
#[must_use]
pub fn backoff_ms(failures: u32, jitter: f64) -> i64 {
    let doubled = DELIVERY_BACKOFF_MS.saturating_mul(1 << failures.saturating_sub(1).min(20));
    let full = doubled.min(DELIVERY_BACKOFF_MOST_MS);
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    let off = (full as f64 * 0.25 * jitter.clamp(0.0, 1.0)) as i64;
    full - off
}

/// Times that settling goes by.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Life of a background delivery without a heartbeat, ms.
    pub lease_ms: i64,
    /// Age from which a delivery that fails is parked, ms.
    pub max_age_ms: i64,
    /// 0 to 1.
    pub jitter: f64,
    /// Whether `action.delivery_failed` is due for this Action.
    pub tell_failure: bool,
}

/// What an answer settled.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// Another generation, or no delivery any more: nothing was written.
    Stale,
    /// The outcome is recorded.
    Completed(Resolution),
    /// The endpoint works on until its lease ends.
    Accepted,
    /// It is delivered again from then on; `told`: its event was written.
    Retry {
        /// When.
        at: Micros,
        /// `action.delivery_failed` was written.
        told: bool,
    },
    /// It was tried for too long: nothing more until an operator, a registration or a good ping revives it.
    Parked,
    /// Nobody knows what it did.
    Uncertain(SessionId),
}

/// Settles one delivery, if it is still the live one.
///
/// # Errors
/// The store's. Nothing is written then.
pub fn settle(
    tx: &mut dyn Tx,
    id: &EffectId,
    generation: i64,
    verdict: &Verdict,
    policy: Policy,
) -> StoreResult<Settled> {
    let Some(mut row) = tx.action(id)? else { return Ok(Settled::Stale) };
    if row.status != ActionStatus::Delivering || row.generation != generation {
        return Ok(Settled::Stale);
    }
    let now = tx.now();
    let head = tx.session(&row.session_id)?;
    let agent = row.agent_id.clone();
    match verdict {
        Verdict::Outcome(outcome) => {
            endpoints::note_success(tx, &agent)?;
            let Some(head) = head.filter(|head| is_live(&row, Some(head))) else {
                return Ok(Settled::Stale);
            };
            let (resolution, _) = actions::complete(tx, row, &head, outcome)?;
            Ok(Settled::Completed(resolution))
        }
        Verdict::Accepted => {
            endpoints::note_success(tx, &agent)?;
            row.deadline_at = Some(now.plus_ms(policy.lease_ms));
            tx.put_action(&row)?;
            Ok(Settled::Accepted)
        }
        Verdict::Retry { reason, message, after } => {
            let failures = endpoints::note_failure(tx, &agent, reason, message)?;
            row.status = ActionStatus::Pending;
            row.deadline_at = None;
            if now.ms_since(row.since) >= policy.max_age_ms {
                row.retry_at = None;
                row.parked_at = Some(now);
                tx.put_action(&row)?;
                return Ok(Settled::Parked);
            }
            let asked = after.map(|after| i64::try_from(after.as_millis()).unwrap_or(i64::MAX));
            let wait = asked.unwrap_or_else(|| backoff_ms(failures, policy.jitter));
            let at = now.plus_ms(wait);
            row.retry_at = Some(at);
            tx.put_action(&row)?;
            let told = policy.tell_failure && is_live(&row, head.as_ref());
            if told {
                let payload = json!({
                    "actionId": row.id.as_str(), "generation": row.generation, "reason": reason,
                    "message": message, "retryInMs": wait,
                });
                let payload = payload.as_object().cloned().unwrap_or_default();
                write(tx, &row.session_id, Some(&row.turn_id), EventKind::ActionDeliveryFailed, &payload)?;
            }
            Ok(Settled::Retry { at, told })
        }
        Verdict::Lost { reason, message } => {
            let failures = endpoints::note_failure(tx, &agent, reason, message)?;
            let session = row.session_id.clone();
            let at = now.plus_ms(backoff_ms(failures, policy.jitter));
            Ok(match lose(tx, row, head.as_ref(), message, at)? {
                Lost::Uncertain => Settled::Uncertain(session),
                Lost::Again => Settled::Retry { at, told: false },
            })
        }
    }
}

/// Sessions and turns of deliveries: what a cancel aborts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whose {
    /// Session.
    pub session: SessionId,
    /// Turn.
    pub turn: TurnId,
}

/// Agents whose endpoint has something to do.
///
/// # Errors
/// The store's.
pub fn busy(reads: &mut dyn Reads) -> StoreResult<Vec<AgentId>> {
    reads.busy_agents()
}

#[cfg(test)]
mod tests {
    use super::backoff_ms;

    #[test]
    fn the_pause_doubles_from_250_ms_to_30_s_and_jitter_takes_up_to_a_quarter_off() {
        let pauses: Vec<i64> = (1..=9).map(|n| backoff_ms(n, 0.0)).collect();
        assert_eq!(pauses, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!(backoff_ms(0, 0.0), 250);
        assert_eq!(backoff_ms(u32::MAX, 0.0), 30_000);
        assert_eq!(backoff_ms(3, 1.0), 750);
        assert_eq!(backoff_ms(3, 0.5), 875);
    }
}
