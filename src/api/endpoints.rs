//! The registry of Action endpoints: `/v1/endpoints` (spec: http-api, section 10.2).

use std::collections::HashSet;

use actix_web::http::StatusCode;
use nylorun_actors::messages::endpoint::PingFailed;
use nylorun_actors::model::ids::AgentId;
use nylorun_actors::model::json::{Json, JsonMap, encode};
use nylorun_actors::model::shape::{Issue, PathItem};
use nylorun_actors::rules::endpoints::Registration;
use serde_json::json;

use super::answer::{self, Answer};
use super::body::text;
use super::call::Call;
use super::page::Paging;
use super::rejection::{Code, Rejection};
use super::shapes;

/// How long an answer is waited for when a registration does not say, ms.
const TIMEOUT_MS: i64 = 60_000;
/// Deliveries at once when a registration does not say.
const MAX_CONCURRENT: i64 = 16;
/// Longest URL, characters.
const URL_CHARS: usize = 2048;

/// An http or https URL of at most 2048 characters, without credentials and fragment.
pub(super) fn is_endpoint_url(text: &str) -> bool {
    text.chars().count() <= URL_CHARS
        && reqwest::Url::parse(text).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.host_str().is_some()
                && url.username().is_empty()
                && url.password().is_none()
                && url.fragment().is_none()
        })
}

pub(super) async fn put(call: Call) -> Answer {
    let (head, body) = call.object(&shapes::PUT_ENDPOINTS).await?;
    let sent = body.get("endpoints").and_then(Json::as_array).cloned().unwrap_or_default();
    let batch: Vec<Registration> = sent.iter().filter_map(Json::as_object).map(registration).collect();
    let mut issues = Vec::new();
    let mut agents = HashSet::new();
    for (at, registration) in batch.iter().enumerate() {
        if !agents.insert(registration.agent_id.clone()) {
            issues.push(problem(at, "agentId", "is registered twice in this batch".to_owned()));
        }
        if let Err(problems) = head.tenant().ports().actions.check_url(&registration.url) {
            issues.extend(problems.into_iter().map(|text| problem(at, "url", text)));
        }
    }
    if !issues.is_empty() {
        return Err(Rejection::issues(&issues));
    }
    let views = head.tenant().register_endpoints(batch).await?;
    Ok(answer::json(&json!({ "endpoints": views })))
}

fn problem(at: usize, member: &'static str, message: String) -> Issue {
    Issue {
        path: vec![PathItem::from("endpoints"), PathItem::from(at), PathItem::from(member)],
        code: "custom",
        message,
    }
}

fn registration(sent: &JsonMap) -> Registration {
    let number = |key: &str, default| sent.get(key).and_then(Json::as_i64).unwrap_or(default);
    Registration {
        agent_id: AgentId::from(text(sent, "agentId")),
        url: text(sent, "url").to_owned(),
        implementation_version: text(sent, "implementationVersion").to_owned(),
        manifest_hash: sent.get("manifestHash").and_then(Json::as_str).map(str::to_owned),
        timeout_ms: number("timeoutMs", TIMEOUT_MS),
        max_concurrent: number("maxConcurrent", MAX_CONCURRENT),
    }
}

pub(super) async fn list(call: Call) -> Answer {
    let paging = Paging::of(&call.query())?;
    let mut rows = call.tenant().endpoints(paging.page()).await?;
    let tail = paging.finish(&mut rows, |row| row["agentId"].as_str().unwrap_or_default());
    Ok(answer::text(format!(r#"{{"endpoints":{}{tail}}}"#, encode(&rows))))
}

pub(super) async fn delete(call: Call) -> Answer {
    let agent = AgentId::from(call.param(0));
    call.tenant().remove_endpoint(&agent).await?;
    Ok(answer::json(&json!({ "agentId": agent.as_str(), "deleted": true })))
}

pub(super) async fn ping(call: Call) -> Answer {
    let agent = AgentId::from(call.param(0));
    match call.tenant().ping_endpoint(&agent).await {
        Ok(pong) => Ok(answer::json(&pong)),
        Err(PingFailed::Refused(refusal)) => Err(refusal.into()),
        Err(PingFailed::Endpoint(message)) => {
            Err(Rejection::new(StatusCode::BAD_GATEWAY, Code::RequestRejected, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_endpoint_url;

    #[test]
    fn an_endpoint_url_is_http_without_credentials_and_fragment() {
        for good in ["http://a/", "https://a.test:8443/path?x=1", "http://127.0.0.1:1", "http://[::1]:1/x"] {
            assert!(is_endpoint_url(good), "{good}");
        }
        let long = format!("http://a/{}", "x".repeat(2040));
        for bad in ["ftp://a/", "a", "http://u@a/", "http://u:p@a/", "http://a/#f", "http://", "/x", &long] {
            assert!(!is_endpoint_url(bad), "{bad}");
        }
    }
}
