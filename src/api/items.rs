//! `GET /v1/sessions/{sessionId}/items`: history (spec: http-api, section 8.3). Events are stored as JSON text and go
//! out as they are.

use std::borrow::Cow;

use nylorun_actors::model::ids::SessionId;
use nylorun_actors::model::json::encode;
use nylorun_actors::tenant::Items;

use super::answer::{self, Answer};
use super::call::Call;
use super::headers::{LAST_EVENT_ID, single};
use super::rejection::Rejection;

pub(super) async fn get(call: Call) -> Answer {
    let query = call.query();
    let limit = query.limit()?;
    let agent = query.get("agent");
    let cursor = start(&call)?;
    let reach = call.caller.reach()?;
    let id = SessionId::from(call.param(0));
    let items = call.tenant().items(&id, &reach, cursor.as_deref(), agent.as_deref(), limit).await?;
    Ok(answer::text(body(&items, limit.is_some())))
}

/// Where a reader starts: `?cursor=` wins over `Last-Event-ID`, also when it is empty.
pub(super) fn start(call: &Call) -> Result<Option<Cow<'_, str>>, Rejection> {
    let header = single(call.request.headers(), &LAST_EVENT_ID)?;
    Ok(call.query().get("cursor").or(header.map(Cow::Borrowed)).filter(|cursor| !cursor.is_empty()))
}

fn body(items: &Items, paged: bool) -> String {
    let bytes: usize = items.items.iter().map(|item| item.len() + 1).sum();
    let mut out = String::with_capacity(bytes + 128);
    out.push_str(r#"{"items":["#);
    for (at, item) in items.items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(item);
    }
    out.push_str(r#"],"cursor":"#);
    out.push_str(&encode(&items.cursor));
    if paged {
        out.push_str(r#","nextCursor":"#);
        out.push_str(&encode(&items.cursor.as_ref().filter(|_| items.more)));
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_the_next_one_only_when_there_is_more() {
        let mut items = Items { items: vec!["{}".into(), "{}".into()], cursor: Some("c".into()), more: true };
        assert_eq!(body(&items, false), r#"{"items":[{},{}],"cursor":"c"}"#);
        assert_eq!(body(&items, true), r#"{"items":[{},{}],"cursor":"c","nextCursor":"c"}"#);
        items.more = false;
        assert_eq!(body(&items, true), r#"{"items":[{},{}],"cursor":"c","nextCursor":null}"#);
        let none = Items { items: Vec::new(), cursor: None, more: false };
        assert_eq!(body(&none, false), r#"{"items":[],"cursor":null}"#);
    }
}
