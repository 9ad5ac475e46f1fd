//! `nylorun effects`: what a session waits for, and decisions on what nobody knows (DESIGN.md, section 9).

use nylorun_actors::model::json::{Json, encode};
use reqwest::Method;
use serde_json::json;

use super::args::actions::{Effects, Resolve};
use super::client::{Client, segment};
use super::events::cut;
use super::fault::Fault;
use super::out::{Out, plain};
use super::resources::{optional, request_id, rows};

/// Characters of an input that the table shows.
const INPUT: usize = 48;

/// `effects`.
///
/// # Errors
/// What a person reads.
pub async fn run(client: &Client, out: &Out, command: &Effects) -> Result<(), Fault> {
    match command {
        Effects::List { session, status } => {
            let status = status.map(|status| format!("?status={}", status.as_str())).unwrap_or_default();
            let answer = client.get(&format!("{}{status}", path(session))).await?;
            if out.is_json() { out.json(&answer) } else { table(out, session, &answer) }
        }
        Effects::Resolve(resolve) => decide(client, out, resolve).await,
    }
}

fn path(session: &str) -> String {
    format!("/v1/sessions/{}/effects", segment(session))
}

fn table(out: &Out, session: &str, answer: &Json) -> Result<(), Fault> {
    let listed = rows(&answer["effects"], |effect| {
        let input =
            if effect["input"].is_null() { "-".to_owned() } else { cut(&encode(&effect["input"]), INPUT) };
        vec![
            plain(&effect["effectId"]),
            plain(&effect["kind"]),
            plain(&effect["status"]),
            optional(&effect["toolName"]),
            optional(&effect["generation"]),
            optional(&effect["since"]),
            input,
        ]
    });
    out.table(&["EFFECT", "KIND", "STATUS", "TOOL", "DELIVERY", "SINCE", "INPUT"], &listed)?;
    let mut decide = false;
    for effect in answer["effects"].as_array().into_iter().flatten() {
        if let Some(error) = effect["error"].as_str() {
            out.note(&format!("{}: {}", plain(&effect["effectId"]), cut(error, 200)));
        }
        decide |= effect["status"] != "pending";
    }
    if decide {
        out.note(&format!(
            "find out what happened, then: nylorun effects resolve {session} EFFECT --completed JSON | --failed CODE | --retry"
        ));
    }
    Ok(())
}

async fn decide(client: &Client, out: &Out, resolve: &Resolve) -> Result<(), Fault> {
    let key = resolve.idempotency_key.clone().unwrap_or_else(request_id);
    let mut body = json!({ "requestId": request_id(), "idempotencyKey": key });
    let told = if let Some(output) = &resolve.completed {
        body["resolution"] = json!("completed");
        let value = completed(client, resolve, output).await;
        body["outcome"] = json!({ "value": value });
        "completed"
    } else if let Some(code) = &resolve.failed {
        body["resolution"] = json!("failed");
        let message =
            resolve.message.clone().unwrap_or_else(|| "an operator decided that it failed".to_owned());
        body["error"] = json!({ "code": code, "message": message });
        "failed"
    } else {
        body["resolution"] = json!("retry");
        "to be tried again"
    };
    let path = format!("{}/{}/resolve", path(&resolve.session), segment(&resolve.effect));
    let receipt = client.post(&path, &body).await?;
    if out.is_json() {
        return out.json(&receipt);
    }
    out.line(&format!("{} is {told}", resolve.effect))
}

/// A tool's output is told as one, since the engine takes an untagged value with a `kind` of its own for a tag. Other
/// kinds of effects have plain values.
async fn completed(client: &Client, resolve: &Resolve, output: &Json) -> Json {
    let listed = client.call(Method::GET, &path(&resolve.session), None).await.unwrap_or(Json::Null);
    let kind = listed["effects"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|effect| effect["effectId"] == resolve.effect.as_str())
        .map(|effect| effect["kind"].clone());
    match kind {
        // One that is not open any more is refused anyhow, unless this is a replay of a tool's.
        Some(kind) if kind != "tool" => output.clone(),
        _ => json!({ "kind": "completed", "output": output }),
    }
}
