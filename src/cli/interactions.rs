//! Answers to what a paused turn asks: `approve`, `reject`, `respond`, and what else a person needs to give them
//! (spec: http-api, section 7; engine, section 4.7).

use nylorun_actors::model::canonical::sha256_hex;
use nylorun_actors::model::json::{self, Json};
use reqwest::Method;
use serde_json::json;

use super::args::actions::{Respond, Verdict};
use super::client::{CallError, Client, segment};
use super::events::clean;
use super::fault::{Fault, exit};
use super::out::{Out, plain};
use super::resources::request_id;

/// Something that a turn waits for a person to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interaction {
    /// Its id.
    pub id: String,
    /// Yes or no, and no question with any answer.
    pub approval: bool,
    /// What is asked, fit for a terminal.
    pub prompt: String,
}

impl Interaction {
    /// The interaction of a pending call, as `waits` and `turn.paused` have it. A deferred call has none.
    fn of(call: &Json) -> Option<Self> {
        let asked = call.get("interaction")?;
        Some(Self {
            id: asked["id"].as_str()?.to_owned(),
            approval: asked["kind"] == "approval",
            prompt: clean(asked["prompt"].as_str().unwrap_or_default()),
        })
    }

    fn kind(&self) -> &'static str {
        if self.approval { "approval" } else { "question" }
    }

    /// What a person types to answer it.
    fn command(&self, session: &str) -> String {
        let (session, id) = (word(session), word(&self.id));
        if self.approval {
            format!("nylorun approve {session} {id}    (or: nylorun reject …)")
        } else {
            format!("nylorun respond {session} {id} ANSWER")
        }
    }
}

/// All interactions of a list of pending calls.
#[must_use]
pub fn all(calls: &Json) -> Vec<Interaction> {
    calls.as_array().into_iter().flatten().filter_map(Interaction::of).collect()
}

/// A word as a shell takes it.
fn word(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:/@%+=,".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Says what is asked and what to type.
pub fn tell(out: &Out, session: &str, open: &[Interaction]) {
    for asked in open {
        out.note(&format!("  {}  {}\n      {}", asked.kind(), asked.prompt, asked.command(session)));
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To an approval.
    Approved(bool),
    /// To a question.
    Value(Json),
}

impl Reply {
    fn fits(&self, asked: &Interaction) -> bool {
        matches!(self, Self::Approved(_)) == asked.approval
    }
}

/// A line that a person typed as an answer to a question: JSON where it is JSON, else text.
#[must_use]
pub fn value_of(line: &str) -> Json {
    json::parse(line.as_bytes()).unwrap_or_else(|_| Json::String(line.to_owned()))
}

/// Sends an answer. Without a key of its own it has that of its interaction, so that an answer that is sent again, because
/// the first receipt was lost or a person typed it twice, counts once.
///
/// # Errors
/// [`CallError`].
pub async fn send(
    client: &Client,
    session: &str,
    interaction: &str,
    reply: &Reply,
    key: Option<&str>,
) -> Result<Json, CallError> {
    let key = key.map_or_else(|| format!("cli-answer-{}", sha256_hex(interaction.as_bytes())), str::to_owned);
    let mut body = json!({ "requestId": request_id(), "idempotencyKey": key, "interactionId": interaction });
    match reply {
        Reply::Approved(approved) => {
            body["type"] = json!("approve");
            body["approved"] = json!(approved);
        }
        Reply::Value(value) => {
            body["type"] = json!("respond");
            body["value"] = value.clone();
        }
    }
    client.call(Method::POST, &format!("/v1/sessions/{}/commands", segment(session)), Some(&body)).await
}

/// `approve` and `reject`.
///
/// # Errors
/// What a person reads.
pub async fn verdict(client: &Client, out: &Out, answer: &Verdict, approved: bool) -> Result<(), Fault> {
    let (session, key) = (&answer.session, answer.idempotency_key.as_deref());
    let word = if approved { "approved" } else { "rejected" };
    give(client, out, session, answer.interaction.as_deref(), &Reply::Approved(approved), key, word).await
}

/// `respond`.
///
/// # Errors
/// What a person reads.
pub async fn respond(client: &Client, out: &Out, answer: &Respond) -> Result<(), Fault> {
    let value = if answer.text { Json::String(answer.value.clone()) } else { value_of(&answer.value) };
    let (session, key) = (&answer.session, answer.idempotency_key.as_deref());
    give(client, out, session, answer.interaction.as_deref(), &Reply::Value(value), key, "answered").await
}

async fn give(
    client: &Client,
    out: &Out,
    session: &str,
    interaction: Option<&str>,
    reply: &Reply,
    key: Option<&str>,
    done: &str,
) -> Result<(), Fault> {
    let id = match interaction {
        Some(id) => id.to_owned(),
        None => only(client, session, reply).await?,
    };
    let receipt = match send(client, session, &id, reply, key).await {
        Ok(receipt) => receipt,
        Err(error) => {
            let conflict = error.status() == Some(409);
            let fault = client.explain(error).await;
            return Err(if conflict { which(client, session, fault).await } else { fault });
        }
    };
    if out.is_json() {
        return out.json(&receipt);
    }
    out.line(&format!("{done} {id}"))?;
    out.note(&format!("the turn goes on: `nylorun sessions events {} --follow` shows it", word(session)));
    Ok(())
}

/// The one interaction that a reply can be for.
async fn only(client: &Client, session: &str, reply: &Reply) -> Result<String, Fault> {
    let view = client.get(&format!("/v1/sessions/{}", segment(session))).await?;
    let open = all(&view["waits"]);
    let fitting: Vec<&Interaction> = open.iter().filter(|asked| reply.fits(asked)).collect();
    let fault = |message: String| Fault::new(exit::FAILED, "interaction", message);
    match (fitting.as_slice(), open.as_slice()) {
        ([one], _) => Ok(one.id.clone()),
        ([], []) => {
            let status = plain(&view["status"]);
            Err(fault(format!("session {session} is {status}: nothing waits for an answer")))
        }
        ([], _) => {
            Err(fault(format!("session {session} waits for answers of another kind"))
                .fix(listed(session, &open)))
        }
        (several, _) => {
            let message = format!("{} of the kind wait in session {session}; say which", several.len());
            Err(fault(message).fix(listed(session, &open)))
        }
    }
}

/// A refused answer with what could be answered instead.
async fn which(client: &Client, session: &str, fault: Fault) -> Fault {
    let view = client.call(Method::GET, &format!("/v1/sessions/{}", segment(session)), None).await;
    let open = view.map(|view| all(&view["waits"])).unwrap_or_default();
    if open.is_empty() {
        fault.fix(format!(
            "nothing waits for an answer now; `nylorun sessions show {}` says how it stands",
            word(session)
        ))
    } else {
        fault.fix(listed(session, &open))
    }
}

fn listed(session: &str, open: &[Interaction]) -> String {
    let lines = open
        .iter()
        .map(|asked| format!("\n    {} {:?}: {}", asked.kind(), asked.prompt, asked.command(session)));
    format!("these wait:{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interactions_are_read_from_waits_and_calls_without_one_are_passed_over() {
        let calls = json!([
            { "invocationId": "a", "interaction": { "id": "i1", "kind": "approval", "prompt": "Sure?\u{1b}[1A" }, "status": "interaction" },
            { "invocationId": "b", "status": "deferred", "wait": {} },
            { "invocationId": "c", "interaction": { "id": "i2", "kind": "response", "prompt": "Size?" } },
        ]);
        let open = all(&calls);
        assert_eq!(open.len(), 2);
        assert_eq!(
            (open[0].id.as_str(), open[0].approval, open[0].prompt.as_str()),
            ("i1", true, "Sure?\u{fffd}[1A")
        );
        assert!(!open[1].approval);
        assert!(all(&json!({ "effectIds": ["x"] })).is_empty());
        assert_eq!(open[1].command("it's"), r"nylorun respond 'it'\''s' i2 ANSWER");
    }

    #[test]
    fn an_answer_is_json_where_it_is_json() {
        assert_eq!(value_of("42"), json!(42));
        assert_eq!(value_of("large, please"), json!("large, please"));
        assert_eq!(value_of(""), json!(""));
    }
}
