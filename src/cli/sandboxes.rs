//! `nylorun sandboxes`: sandboxes that outlive sessions, over `/v1/sandboxes` (spec: http-api, section 11).
//!
//! | File | Has |
//! |---|---|
//! | this one | the resource: list, show, put, stop, reset, rm, events |
//! | [`exec`] | a command in the sandbox of a session, and the shell that is made of such commands |

pub mod exec;

use nylorun_actors::model::json::{self, Json};
use serde_json::json;

use super::args::sandboxes::{PutSandbox, Sandboxes};
use super::client::{Client, segment};
use super::fault::{Fault, exit};
use super::out::{Out, plain};
use super::resources::{request_id, rows};

/// Sandboxes of one page.
const PAGE: usize = 200;

/// `sandboxes`.
///
/// # Errors
/// What a person reads.
pub async fn run(client: &Client, out: &Out, command: &Sandboxes) -> Result<u8, Fault> {
    match command {
        Sandboxes::List { label } => list(client, out, label).await?,
        Sandboxes::Show { id } => tell(out, &client.get(&path(id)).await?)?,
        Sandboxes::Put(put) => tell(out, &client.put(&path(&put.id), Some(&body(put))).await?)?,
        Sandboxes::Stop { id } => tell(out, &client.post(&format!("{}/stop", path(id)), &asked()).await?)?,
        Sandboxes::Reset { id } => tell(out, &client.post(&format!("{}/reset", path(id)), &asked()).await?)?,
        Sandboxes::Rm { id } => {
            let answer = client.delete(&path(id)).await?;
            if out.is_json() {
                out.json(&answer)?;
            } else if answer["deleted"] == true {
                out.line(&format!("deleted {id} with its files"))?;
            } else {
                out.line(&format!("there was no {id}"))?;
            }
        }
        Sandboxes::Events { id, from } => events(client, out, id, *from).await?,
        Sandboxes::Exec(exec) => return exec::exec(client, out, exec).await,
        Sandboxes::Shell(shell) => return exec::shell(client, out, shell).await,
    }
    Ok(exit::OK)
}

fn path(id: &str) -> String {
    format!("/v1/sandboxes/{}", segment(id))
}

fn asked() -> Json {
    json!({ "requestId": request_id() })
}

fn body(put: &PutSandbox) -> Json {
    let mut body = asked();
    let mut set = |key: &str, value: Option<Json>| {
        if let Some(value) = value {
            body[key] = value;
        }
    };
    let labels: serde_json::Map<String, Json> =
        put.label.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    set("kind", put.kind.as_ref().map(|kind| json!(kind)));
    set("labels", (!labels.is_empty()).then_some(Json::Object(labels)));
    set("network", (!put.allow.is_empty()).then(|| json!({ "allow": put.allow })));
    let mut resources = serde_json::Map::new();
    resources.extend(put.cpus.map(|cpus| ("cpus".to_owned(), json!(cpus))));
    resources.extend(put.memory.as_ref().map(|memory| ("memory".to_owned(), json!(memory))));
    set("resources", (!resources.is_empty()).then_some(Json::Object(resources)));
    set("image", put.image.as_ref().map(|image| json!(image)));
    set("storage", put.storage.as_ref().map(|storage| json!(storage)));
    set("lifecycle", put.ttl.as_ref().map(|ttl| json!({ "ttl": ttl })));
    body
}

async fn list(client: &Client, out: &Out, labels: &[(String, String)]) -> Result<(), Fault> {
    let filter: String =
        labels.iter().map(|(key, value)| format!("&label={}", segment(&format!("{key}={value}")))).collect();
    let mut all = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let after = cursor.map(|cursor| format!("&cursor={}", segment(&cursor))).unwrap_or_default();
        let mut page = client.get(&format!("/v1/sandboxes?limit={PAGE}{filter}{after}")).await?;
        if let Some(list) = page["sandboxes"].as_array_mut() {
            all.append(list);
        }
        cursor = page["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    let all = Json::Array(all);
    if out.is_json() {
        return out.json(&json!({ "sandboxes": all }));
    }
    let rows = rows(&all, |sandbox| {
        vec![
            plain(&sandbox["id"]),
            plain(&sandbox["kind"]),
            plain(&sandbox["state"]),
            sandbox["sessions"].as_array().map_or(0, Vec::len).to_string(),
            labels_of(sandbox),
        ]
    });
    out.table(&["SANDBOX", "KIND", "STATE", "SESSIONS", "LABELS"], &rows)
}

fn labels_of(sandbox: &Json) -> String {
    let labels = sandbox["labels"].as_object().into_iter().flatten();
    labels.map(|(key, value)| format!("{key}={}", plain(value))).collect::<Vec<_>>().join(" ")
}

fn tell(out: &Out, sandbox: &Json) -> Result<(), Fault> {
    if out.is_json() {
        return out.json(sandbox);
    }
    let spec = &sandbox["spec"];
    let allow = spec["network"]["allow"].as_array().filter(|hosts| !hosts.is_empty());
    let network = allow
        .map_or_else(|| "none".to_owned(), |hosts| hosts.iter().map(plain).collect::<Vec<_>>().join(", "));
    let (resources, labels) = (&spec["resources"], labels_of(sandbox));
    out.line(&format!("sandbox   {}", plain(&sandbox["id"])))?;
    out.line(&format!("kind      {}", plain(&sandbox["kind"])))?;
    out.line(&format!("state     {}", plain(&sandbox["state"])))?;
    out.line(&format!("has       {} CPUs, {}", plain(&resources["cpus"]), plain(&resources["memory"])))?;
    out.line(&format!("network   {network}"))?;
    if !labels.is_empty() {
        out.line(&format!("labels    {labels}"))?;
    }
    for (label, value) in [("reason", &sandbox["pod"]["reason"]), ("expires", &sandbox["pod"]["expiresAt"])] {
        if !value.is_null() {
            out.line(&format!("{label:<10}{}", plain(value)))?;
        }
    }
    for session in sandbox["sessions"].as_array().into_iter().flatten() {
        let turn =
            session["activeTurnId"].as_str().map(|turn| format!(", in turn {turn}")).unwrap_or_default();
        out.line(&format!("session   {}{turn}", plain(&session["id"])))?;
    }
    Ok(())
}

async fn events(client: &Client, out: &Out, id: &str, from: u64) -> Result<(), Fault> {
    let mut from = from;
    loop {
        let page = client.get(&format!("{}/events?from={from}&limit={PAGE}", path(id))).await?;
        let events = page["events"].as_array().map_or(&[][..], Vec::as_slice);
        for event in events {
            if out.is_json() {
                out.json(event)?;
                continue;
            }
            let (seq, time, kind) = (plain(&event["seq"]), plain(&event["time"]), plain(&event["type"]));
            out.line(&format!("{seq:>6}  {time}  {kind:<22} {}", json::encode(&event["payload"])))?;
        }
        let Some(last) = events.last().and_then(|event| event["seq"].as_u64()) else { return Ok(()) };
        from = last + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_said_is_not_sent_since_it_would_be_compared() {
        let mut put = PutSandbox {
            id: "a".into(),
            kind: None,
            label: Vec::new(),
            allow: Vec::new(),
            cpus: None,
            memory: None,
            image: None,
            storage: None,
            ttl: None,
        };
        let members = |put: &PutSandbox| {
            let mut body = body(put);
            body.as_object_mut().unwrap().shift_remove("requestId");
            body
        };
        assert_eq!(members(&put), json!({}));
        put.cpus = Some(2);
        put.label = vec![("team".into(), "a=b".into())];
        put.allow = vec!["a.example".into()];
        let sent =
            json!({"labels": {"team": "a=b"}, "network": {"allow": ["a.example"]}, "resources": {"cpus": 2}});
        assert_eq!(members(&put), sent);
    }
}
