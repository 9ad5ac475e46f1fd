//! History of a session, read from the record itself (spec: http-api, section 8.3).

use std::sync::Arc;

use super::{Items, Reach};
use crate::limits::RECORD_PAGE;
use crate::model::event::{cursor, seq_of_cursor};
use crate::model::ids::SessionId;
use crate::model::json::decode;
use crate::ports::store::StoreHandle;
use crate::rules::{Refusal, sessions};

/// What is asked for.
pub(super) struct Request {
    pub session: SessionId,
    pub reach: Reach,
    pub cursor: Option<String>,
    pub agent: Option<String>,
    pub limit: Option<usize>,
}

/// The first `seq` after a cursor; 0 without one.
pub(super) fn after(session: &SessionId, cursor: Option<&str>) -> Result<i64, Refusal> {
    match cursor {
        None | Some("") => Ok(0),
        Some(text) => match seq_of_cursor(session, text) {
            Some(seq) => Ok(seq.saturating_add(1)),
            None => Err(Refusal::invalid("Invalid cursor")),
        },
    }
}

#[derive(serde::Deserialize)]
struct AgentOf {
    payload: PayloadAgent,
}

#[derive(serde::Deserialize)]
struct PayloadAgent {
    #[serde(default)]
    agent: Option<AgentNames>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct AgentNames {
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    delegation_id: Option<String>,
}

fn is_of(body: &str, agent: &str) -> bool {
    decode::<AgentOf>(body.as_bytes())
        .ok()
        .and_then(|e| e.payload.agent)
        .is_some_and(|a| a.path.as_deref() == Some(agent) || a.delegation_id.as_deref() == Some(agent))
}

/// Reads pages until the tail seen at the start, or until `limit` items are found.
pub(super) async fn read(store: &StoreHandle, request: Request) -> Result<Items, Refusal> {
    let mut next = after(&request.session, request.cursor.as_deref())?;
    let (id, reach) = (request.session.clone(), request.reach.clone());
    let tail = store
        .read(move |reads| {
            sessions::reachable(reads, &id, &reach)?;
            Ok::<_, Refusal>(reads.head(&id)?)
        })
        .await?;
    let mut items: Vec<Arc<str>> = Vec::new();
    let mut last = None;
    let full = |items: &Vec<Arc<str>>| request.limit.is_some_and(|limit| items.len() >= limit);
    while next < tail && !full(&items) {
        let (id, from) = (request.session.clone(), next);
        let left = usize::try_from(tail - next).unwrap_or(RECORD_PAGE).min(RECORD_PAGE);
        let rows = store.read(move |reads| reads.record(&id, from, left)).await.map_err(Refusal::Store)?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            if full(&items) {
                break;
            }
            last = Some(row.seq);
            next = row.seq + 1;
            let wanted =
                !row.kind.is_internal() && request.agent.as_ref().is_none_or(|a| is_of(&row.body, a));
            if wanted {
                items.push(row.body);
            }
        }
    }
    let cursor = last.map(|seq| cursor(&request.session, seq)).or(request.cursor);
    Ok(Items { items, cursor, more: next < tail })
}
