//! The commands that look at or change one resource: agents, sessions, models, keys.

use std::io::Read;
use std::path::Path;

use futures_util::StreamExt;
use nylorun_actors::model::json::{self, Json};
use serde_json::json;

use super::args;
use super::client::{Client, segment};
use super::events::Words;
use super::fault::{Fault, exit};
use super::interactions;
use super::out::{Out, plain};
use super::sse::SseReader;
use super::target::{Source, variable};
use crate::host::home::{Home, LOCAL_KEY};

/// `agents`.
///
/// # Errors
/// What a person reads.
pub async fn agents(client: &Client, out: &Out, command: &args::Agents) -> Result<(), Fault> {
    match command {
        args::Agents::Put { file, implementation_version } => {
            let manifest = read_json(file)?;
            let Some(id) = manifest["id"].as_str().map(str::to_owned) else {
                return Err(Fault::new(exit::USAGE, "manifest", "the manifest has no `id`")
                    .fix("an agent's id is the `id` of its manifest"));
            };
            let body = json!({
                "requestId": request_id(),
                "manifest": manifest,
                "implementationVersion": implementation_version,
            });
            let answer = client.put(&format!("/v1/agents/{}", segment(&id)), Some(&body)).await?;
            if out.is_json() {
                return out.json(&answer);
            }
            out.line(&format!("registered {id}  manifest {}", plain(&answer["manifestHash"])))
        }
        args::Agents::List => {
            let answer = client.get("/v1/agents").await?;
            if out.is_json() {
                return out.json(&answer);
            }
            let rows = rows(&answer["agents"], |agent| {
                vec![
                    plain(&agent["agentId"]),
                    plain(&agent["implementationVersion"]),
                    short(&plain(&agent["manifestHash"])),
                    optional(&agent["manifest"]["name"]),
                ]
            });
            out.table(&["AGENT", "VERSION", "MANIFEST", "NAME"], &rows)
        }
    }
}

/// `sessions`.
///
/// # Errors
/// What a person reads.
pub async fn sessions(client: &Client, out: &Out, command: &args::Sessions) -> Result<(), Fault> {
    match command {
        args::Sessions::List { agent } => {
            let path = agent.as_ref().map_or_else(
                || "/v1/sessions".to_owned(),
                |agent| format!("/v1/sessions?agentId={}", segment(agent)),
            );
            let answer = client.get(&path).await?;
            if out.is_json() {
                return out.json(&answer);
            }
            let rows = rows(&answer["sessions"], |session| {
                ["id", "agentId", "ownerUserId", "status", "activeTurnId"]
                    .map(|field| optional(&session[field]))
                    .to_vec()
            });
            out.table(&["SESSION", "AGENT", "OWNER", "STATUS", "TURN"], &rows)
        }
        args::Sessions::Show { session } => {
            let view = client.get(&format!("/v1/sessions/{}", segment(session))).await?;
            if out.is_json() {
                return out.json(&view);
            }
            for (label, field) in [
                ("session", "id"),
                ("agent", "agentId"),
                ("owner", "ownerUserId"),
                ("status", "status"),
                ("turn", "activeTurnId"),
                ("version", "implementationVersion"),
                ("manifest", "manifestHash"),
                ("error", "error"),
            ] {
                if !view[field].is_null() {
                    out.line(&format!("{label:<10}{}", plain(&view[field])))?;
                }
            }
            if !view["sandbox"].is_null() {
                out.line(&format!("sandbox   {}", sandbox_of(&view)))?;
            }
            for effect in view["uncertainEffects"].as_array().into_iter().flatten() {
                out.line(&format!("uncertain {} ({})", plain(&effect["effectId"]), plain(&effect["kind"])))?;
            }
            if view["waits"].is_object() {
                out.line(&format!("waits     {}", plain(&view["waits"])))?;
            }
            interactions::tell(out, session, &interactions::all(&view["waits"]));
            Ok(())
        }
        args::Sessions::Events { session, cursor, follow } => {
            if *follow {
                follow_events(client, out, session, cursor.as_deref()).await
            } else {
                past_events(client, out, session, cursor.as_deref()).await
            }
        }
    }
}

/// Which sandbox a session has.
fn sandbox_of(view: &Json) -> String {
    match (&view["sandboxId"], &view["sandboxOwnerId"]) {
        (Json::String(id), _) => id.clone(),
        (_, Json::String(owner)) => format!("that of session {owner}"),
        _ => "its own".to_owned(),
    }
}

/// History page by page, so that a long one is printed as it comes.
async fn past_events(client: &Client, out: &Out, session: &str, cursor: Option<&str>) -> Result<(), Fault> {
    let mut cursor = cursor.map(str::to_owned);
    let mut words = Words::default();
    loop {
        let after = cursor.as_ref().map(|c| format!("&cursor={}", segment(c))).unwrap_or_default();
        let page = client.get(&format!("/v1/sessions/{}/items?limit=200{after}", segment(session))).await?;
        for event in page["items"].as_array().into_iter().flatten() {
            print_event(out, &mut words, event)?;
        }
        let next = page["cursor"].as_str().map(str::to_owned);
        if next.is_none() || next == cursor {
            return Ok(());
        }
        cursor = next;
    }
}

async fn follow_events(client: &Client, out: &Out, session: &str, cursor: Option<&str>) -> Result<(), Fault> {
    let response = match client.events(session, cursor, false).await {
        Ok(response) => response,
        Err(error) => return Err(client.explain(error).await),
    };
    let mut reader = SseReader::default();
    let mut stream = response.bytes_stream();
    let mut words = Words::default();
    while let Some(Ok(piece)) = stream.next().await {
        for event in reader.push(&piece) {
            if event.id.is_some() {
                print_event(out, &mut words, &json::parse(event.data.as_bytes()).unwrap_or(Json::Null))?;
            }
        }
    }
    out.note("the stream ended");
    Ok(())
}

/// What an event means where there are words for it, else what it says.
fn print_event(out: &Out, words: &mut Words, event: &Json) -> Result<(), Fault> {
    if out.is_json() {
        return out.json(event);
    }
    let (seq, time, kind) = (plain(&event["seq"]), plain(&event["time"]), plain(&event["type"]));
    let says = words.tell(&kind, &event["payload"]).unwrap_or_else(|| json::encode(&event["payload"]));
    out.line(&format!("{seq:>6}  {time}  {kind:<22} {says}"))
}

/// `model`.
///
/// # Errors
/// What a person reads.
pub async fn model(client: &Client, out: &Out, command: &args::Model) -> Result<(), Fault> {
    let answer = match command {
        args::Model::Set { fixture: true, .. } => {
            let body = json!({ "requestId": request_id(), "fixtureModel": true });
            client.put("/v1/tenant/config/seed", Some(&body)).await?
        }
        args::Model::Set { provider, model, base_url, key_env, no_key, .. } => {
            let key = if *no_key { "none".to_owned() } else { provider_key(key_env.as_deref())? };
            let mut body = json!({
                "requestId": request_id(),
                "idempotencyKey": request_id(),
                "provider": provider,
                "model": model,
                "auth": { "type": "api_key", "key": key },
            });
            if let Some(url) = base_url {
                body["baseUrl"] = json!(url);
            }
            client.put("/v1/tenant/model", Some(&body)).await?
        }
        args::Model::Show => client.get("/v1/tenant/model").await?,
        args::Model::List { catalog: true } => client.get("/v1/tenant/models").await?,
        args::Model::List { catalog: false } => client.get("/v1/tenant/providers").await?,
    };
    if out.is_json() {
        return out.json(&answer);
    }
    match command {
        args::Model::Set { fixture: true, .. } => {
            let applied =
                answer["applied"].as_array().is_some_and(|list| list.iter().any(|n| n == "model.fixture"));
            out.line(if applied { "the fixture model is chosen" } else { "kept what was chosen before" })
        }
        args::Model::Set { .. } => out.line("the model is set"),
        args::Model::Show if answer["configured"] == true => {
            let base = answer["baseUrl"].as_str().map(|url| format!(" at {url}")).unwrap_or_default();
            out.line(&format!("{} {}{base}", plain(&answer["provider"]), plain(&answer["model"])))
        }
        args::Model::Show => out.line("no provider is configured; `nylorun model set` does it"),
        args::Model::List { catalog } => {
            let rows = rows(&answer["providers"], |provider| {
                if *catalog {
                    let models = provider["models"].as_array().map_or(0, Vec::len);
                    vec![plain(&provider["id"]), plain(&provider["name"]), format!("{models} models")]
                } else {
                    let active = if provider["active"] == true { "active" } else { "" };
                    vec![plain(&provider["name"]), plain(&provider["model"]), active.to_owned()]
                }
            });
            let heading: &[&str] =
                if *catalog { &["PROVIDER", "NAME", "MODELS"] } else { &["PROVIDER", "MODEL", "STATE"] };
            out.table(heading, &rows)
        }
    }
}

/// The provider's key never stands on the command line, where every user of the machine sees it.
fn provider_key(name: Option<&str>) -> Result<String, Fault> {
    use std::io::IsTerminal;
    let missing = |message: String| {
        Fault::new(exit::USAGE, "model-key", message)
            .fix("name its variable with --key-env, pipe it in, or say --no-key when the provider takes none")
    };
    if let Some(name) = name {
        return variable(name).ok_or_else(|| missing(format!("{name} is not set")));
    }
    if let Some(key) = variable("MODEL_PROVIDER_API_KEY") {
        return Ok(key);
    }
    if std::io::stdin().is_terminal() {
        return Err(missing("there is no key for the provider".to_owned()));
    }
    let mut key = String::new();
    std::io::stdin()
        .read_to_string(&mut key)
        .map_err(|error| missing(format!("cannot read the key: {error}")))?;
    let key = key.trim().to_owned();
    if key.is_empty() { Err(missing("the key is empty".to_owned())) } else { Ok(key) }
}

/// `keys`.
///
/// # Errors
/// What a person reads.
pub async fn keys(client: &Client, out: &Out, command: &args::Keys) -> Result<(), Fault> {
    match command {
        args::Keys::Put { name } => {
            let answer = client.put(&format!("/v1/admin/keys/{}", segment(name)), None).await?;
            // The home's own key lives in its file; a rotated one would leave every local command outside.
            if let (Source::Link(home), LOCAL_KEY, Some(key)) =
                (&client.target().source, name.as_str(), answer["key"].as_str())
            {
                Home::at(home).write_credentials(key, LOCAL_KEY)?;
                out.note(&format!("credentials.json of {} has the new key", home.display()));
            }
            if out.is_json() {
                return out.json(&answer);
            }
            out.note("this key is shown once; keep it now");
            out.line(&plain(&answer["key"]))
        }
        args::Keys::List => {
            let answer = client.get("/v1/admin/keys").await?;
            if out.is_json() {
                return out.json(&answer);
            }
            let rows = rows(&answer["keys"], |key| {
                ["id", "role", "createdAt"].map(|field| plain(&key[field])).to_vec()
            });
            out.table(&["KEY", "ROLE", "CREATED"], &rows)
        }
        args::Keys::Rm { name } => {
            let answer = client.delete(&format!("/v1/admin/keys/{}", segment(name))).await?;
            if out.is_json() { out.json(&answer) } else { out.line(&format!("deleted {name}")) }
        }
    }
}

pub(super) fn read_json(file: &Path) -> Result<Json, Fault> {
    let told =
        |why: String| Fault::new(exit::USAGE, "file", format!("cannot read {}: {why}", file.display()));
    let bytes = if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map_err(|error| told(error.to_string()))?;
        bytes
    } else {
        std::fs::read(file).map_err(|error| told(error.to_string()))?
    };
    json::parse(&bytes).map_err(|error| told(format!("it is not JSON: {error}")))
}

pub(super) fn request_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

pub(super) fn rows(list: &Json, row: impl Fn(&Json) -> Vec<String>) -> Vec<Vec<String>> {
    list.as_array().into_iter().flatten().map(row).collect()
}

pub(super) fn optional(value: &Json) -> String {
    if value.is_null() { "-".to_owned() } else { plain(value) }
}

fn short(hash: &str) -> String {
    hash.chars().take(12).collect()
}
