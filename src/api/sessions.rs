//! Sessions: open, read, list (spec: http-api, section 6).

use actix_web::http::StatusCode;
use nylorun_actors::model::canonical::canonical;
use nylorun_actors::model::ids::{AgentId, SessionId};
use nylorun_actors::model::json::{Json, JsonMap, encode};
use nylorun_actors::tenant::OpenSession;

use super::answer::{self, Answer};
use super::body::text;
use super::call::Call;
use super::page::Paging;
use super::rejection::{Code, Rejection};
use super::shapes;

/// Steps 1 to 4 are here, the transaction is the Tenant's.
pub(super) async fn put(call: Call) -> Answer {
    let (head, body) = call.object(&shapes::PUT_SESSION).await?;
    let owner = text(&body, "ownerUserId");
    if head.caller.subject().is_some_and(|subject| subject != owner) {
        let message = "ownerUserId must be the subject that is acted for";
        return Err(Rejection::new(StatusCode::FORBIDDEN, Code::RequestRejected, message));
    }
    let reach = head.caller.reach()?;
    let open = open_session(head.param(0), body);
    Ok(answer::json(&head.tenant().open_session(open, &reach).await?))
}

fn open_session(id: &str, mut body: JsonMap) -> OpenSession {
    let vault_ids = body.shift_remove("vaultIds");
    let selections = body.shift_remove("credentialSelections");
    body.shift_remove("requestId");
    let body = Json::Object(body);
    // What a second open must equal: the body without what may change.
    let creation = canonical(&body);
    let member = |name: &str| body.get(name);
    let member_text = |name: &str| member(name).and_then(Json::as_str).unwrap_or_default().to_owned();
    let array = |value: Option<Json>| match value {
        Some(Json::Array(items)) => items,
        _ => Vec::new(),
    };
    OpenSession {
        id: SessionId::from(id),
        agent_id: AgentId::from(member_text("agentId")),
        owner_user_id: member_text("ownerUserId"),
        info: member("info").and_then(Json::as_object).cloned(),
        vault_ids: array(vault_ids).iter().filter_map(Json::as_str).map(str::to_owned).collect(),
        credential_selections: array(selections),
        sandbox: member("sandbox").cloned(),
        creation,
    }
}

pub(super) async fn get(call: Call) -> Answer {
    let reach = call.caller.reach()?;
    let id = SessionId::from(call.param(0));
    Ok(answer::json(&call.tenant().session(&id, &reach).await?))
}

pub(super) async fn list(call: Call) -> Answer {
    let query = call.query();
    let paging = Paging::of(&query)?;
    let agent = query.get("agentId").filter(|id| !id.is_empty()).map(|id| AgentId::from(&*id));
    let reach = call.caller.reach()?;
    let mut sessions = call.tenant().sessions(agent, &reach, paging.page()).await?;
    let tail = paging.finish(&mut sessions, |session| session.id.as_str());
    Ok(answer::text(format!(r#"{{"sessions":{}{tail}}}"#, encode(&sessions))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn opened(body: Json) -> OpenSession {
        let Json::Object(body) = body else { panic!("an object") };
        open_session("s", body)
    }

    #[test]
    fn what_may_change_on_a_second_open_is_not_part_of_the_creation() {
        let first = opened(json!({
            "requestId": "1", "agentId": "a", "ownerUserId": "u", "info": {"b": 1, "a": 2},
            "vaultIds": ["v"], "credentialSelections": [{"serverName": "s", "credentialId": "c"}], "sandbox": false,
        }));
        let again = opened(json!({
            "info": {"a": 2, "b": 1}, "sandbox": false, "ownerUserId": "u", "agentId": "a", "requestId": "2",
        }));
        assert_eq!(first.creation, again.creation);
        assert_eq!(
            first.creation,
            r#"{"agentId":"a","info":{"a":2,"b":1},"ownerUserId":"u","sandbox":false}"#
        );
        assert_eq!((first.vault_ids.len(), first.credential_selections.len()), (1, 1));
        assert_eq!(again.vault_ids.len(), 0);
    }
}
