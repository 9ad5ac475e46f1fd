//! Sandboxes as a resource: `/v1/sandboxes` (spec: http-api, section 11; sandbox, section 6).

use nylorun_actors::model::json::{Json, JsonMap, encode};
use nylorun_actors::model::sandbox::id::{LABELS, Labels, is_sandbox_id, label_filter};
use nylorun_actors::model::sandbox::shapes::label_key_problem;
use nylorun_actors::model::sandbox::{SandboxKind, SandboxRequest};
use nylorun_actors::model::shape::{Issue, issue};
use nylorun_actors::rules::sandboxes::PutSandbox;
use serde_json::json;

use super::answer::{self, Answer};
use super::call::Call;
use super::limits::SANDBOX_EVENTS;
use super::page::Paging;
use super::rejection::Rejection;
use super::shapes;

/// The sandbox of the path.
fn id(text: &str) -> Result<String, Rejection> {
    if is_sandbox_id(text) {
        return Ok(text.to_owned());
    }
    let words = "must be 1 to 200 characters in segments between slashes, each of letters, digits, dots, underscores \
                 and hyphens and begun by a letter or a digit";
    Err(Rejection::issues(&[issue(&["sandboxId"], words)]))
}

/// `GET /v1/sandboxes?label=k=v`.
pub(super) async fn list(call: Call) -> Answer {
    let query = call.query();
    let paging = Paging::of(&query)?;
    let mut labels = Vec::new();
    for text in query.all("label") {
        let wrong = || Rejection::issues(&[issue(&["label"], "must be key=value with a key")]);
        labels.push(label_filter(&text).ok_or_else(wrong)?);
    }
    let reach = call.caller.reach()?;
    let mut rows = call.tenant().sandboxes(labels, &reach, paging.page()).await?;
    let tail = paging.finish(&mut rows, |(id, _)| id);
    let views: Vec<Json> = rows.into_iter().map(|(_, view)| view).collect();
    Ok(answer::text(format!(r#"{{"sandboxes":{}{tail}}}"#, encode(&views))))
}

/// `PUT /v1/sandboxes/{sandboxId}`.
pub(super) async fn put(call: Call) -> Answer {
    let id = id(call.param(0))?;
    let (head, body) = call.object(&shapes::PUT_SANDBOX).await?;
    let reach = head.caller.reach()?;
    Ok(answer::json(&head.tenant().put_sandbox(asked(id, &body)?, &reach).await?))
}

fn asked(id: String, body: &JsonMap) -> Result<PutSandbox, Rejection> {
    let text = |name: &str| body.get(name).and_then(Json::as_str);
    let labels = body.get("labels").and_then(Json::as_object);
    let problems = labels.map(label_problems).unwrap_or_default();
    if !problems.is_empty() {
        return Err(Rejection::issues(&problems));
    }
    let label = |(key, value): (&String, &Json)| (key.clone(), value.as_str().unwrap_or_default().to_owned());
    Ok(PutSandbox {
        id,
        kind: text("kind").and_then(SandboxKind::from_name),
        labels: labels.map(|labels| labels.iter().map(label).collect::<Labels>()),
        request: SandboxRequest::read(body),
        storage: text("storage").map(str::to_owned),
        has_lifecycle: body.contains_key("lifecycle"),
    })
}

fn label_problems(labels: &JsonMap) -> Vec<Issue> {
    let mut problems = Vec::new();
    if labels.len() > LABELS {
        problems.push(issue(&["labels"], format!("must have at most {LABELS} members")));
    }
    let keys = labels.keys().take(LABELS).filter_map(|key| label_key_problem(key));
    problems.extend(keys.map(|words| issue(&["labels"], words)));
    problems
}

/// `GET /v1/sandboxes/{sandboxId}`.
pub(super) async fn get(call: Call) -> Answer {
    let id = id(call.param(0))?;
    let reach = call.caller.reach()?;
    Ok(answer::json(&call.tenant().sandbox(&id, &reach).await?))
}

/// `GET /v1/sandboxes/{sandboxId}/events?from=<seq>`.
pub(super) async fn events(call: Call) -> Answer {
    let id = id(call.param(0))?;
    let query = call.query();
    let from = match query.get("from") {
        None => 0,
        Some(text) => {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            // A number beyond all events begins after them.
            let seq = digits.then(|| text.parse::<i64>().unwrap_or(i64::MAX));
            seq.ok_or_else(|| Rejection::issues(&[issue(&["from"], "must be a whole number from 0")]))?
        }
    };
    let limit = query.limit()?.unwrap_or(SANDBOX_EVENTS);
    let reach = call.caller.reach()?;
    let events = call.tenant().sandbox_events(&id, from, limit, &reach).await?;
    Ok(answer::text(format!(r#"{{"events":[{}]}}"#, events.join(","))))
}

/// `DELETE /v1/sandboxes/{sandboxId}`.
pub(super) async fn delete(call: Call) -> Answer {
    let id = id(call.param(0))?;
    let reach = call.caller.reach()?;
    let deleted = call.tenant().delete_sandbox(&id, &reach).await?;
    Ok(answer::json(&json!({"id": id, "deleted": deleted})))
}

/// `POST /v1/sandboxes/{sandboxId}/stop` and `/reset`.
pub(super) async fn stop_or_reset(call: Call) -> Answer {
    let id = id(call.param(0))?;
    let reach = call.caller.reach()?;
    Ok(answer::json(&call.tenant().stop_or_reset_sandbox(&id, &reach).await?))
}
