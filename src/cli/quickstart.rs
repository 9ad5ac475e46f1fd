//! `nylorun quickstart`: a turn, one in a sandbox, then one with tools of an application and an approval, each explained
//! as it goes.

use std::net::SocketAddr;
use std::time::Duration;

use nylorun_actors::model::json::Json;
use reqwest::Method;
use serde_json::json;

use super::client::{Client, segment};
use super::fault::{Fault, exit};
use super::out::Out;
use super::sample;
use super::turn::{self, Answers, Ended};
use crate::sample::join::join;
use crate::sample::{AGENT, MESSAGE};

/// How long the sample's refund takes.
const REFUND: Duration = Duration::from_millis(1_500);

/// `quickstart`.
///
/// # Errors
/// When the Runtime refuses or goes away.
pub async fn run(client: &Client, out: &Out, message: &str, yes: bool) -> Result<u8, Fault> {
    let first = talk(client, out, message).await?;
    if first.status != "completed" {
        return Ok(first.exit());
    }
    if !build(client, out).await? {
        return Ok(exit::FAILED);
    }
    let answers = if yes { Answers::Approve } else { Answers::of_terminal(out) };
    if answers == Answers::Nobody {
        if !out.is_json() {
            out.note(
                "\nThe last part has tools of an application and asks a person: run `nylorun quickstart` on a terminal, or with --yes.",
            );
        }
        return Ok(exit::OK);
    }
    refund(client, out, answers).await
}

/// A turn with a model alone.
async fn talk(client: &Client, out: &Out, message: &str) -> Result<Ended, Fault> {
    let planted = sample::plant(client).await?;
    if !out.is_json() {
        let agent = if planted.agent { "registered" } else { "already registered" };
        out.note(&format!("1. The sample agent `{}` is {agent}.", sample::AGENT));
        out.note(if planted.fixture {
            "2. No model was configured, so the built-in fixture model answers. `nylorun model set` chooses a real one."
        } else {
            "2. The model that was chosen before stays."
        });
        out.note(&format!("3. A new session is told {message:?}:\n"));
    }
    let ended = turn::run(client, out, &ask(sample::AGENT, message), Answers::Nobody).await?;
    if !out.is_json() {
        let session = &ended.session;
        out.note(&format!(
            "\n4. The turn is {}. Every step of it was committed before you saw it: kill the Runtime with -9 in the \
             middle of a turn, start it again, and the turn goes on.\n\
             \x20  nylorun sessions events {session}                       what was recorded\n\
             \x20  nylorun run {} \"and now?\" --session {session}   the next turn of the same session",
            ended.status,
            sample::AGENT,
        ));
    }
    Ok(ended)
}

/// A turn with tools that this very process runs, as an application would.
async fn refund(client: &Client, out: &Out, answers: Answers) -> Result<u8, Fault> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let joined = join(client, listen, None, REFUND, None).await?;
    if !out.is_json() {
        let agent = if joined.planted { "registered" } else { "already registered" };
        out.note(&format!(
            "\n8. The sample agent `{AGENT}` is {agent}. Its tools are this program's own code: an Action endpoint at \
             {}, which the Runtime calls with a signature.",
            joined.endpoint.url(),
        ));
        out.note(&format!("9. A new session is told {MESSAGE:?}:\n"));
    }
    let ended = turn::run(client, out, &ask(AGENT, MESSAGE), answers).await;
    // Whatever came of the turn, nobody listens here from now on.
    joined.leave(client).await;
    let ended = ended?;
    if !out.is_json() {
        let session = &ended.session;
        let after = if ended.status == "completed" {
            "Then it went on in the background and called back."
        } else {
            "This program's endpoint is gone now; the next `nylorun quickstart` is another one, and what waits goes on there."
        };
        out.note(&format!(
            "\n10. The turn is {}. The refund waited for your word in the Runtime's record, not in a process: an \
             approval may take days and restarts. {after}\n\
             \x20  nylorun sessions events {session}    deliveries, approval, result\n\
             \x20  docs/actions.md, examples/            an endpoint of your own",
            ended.status,
        ));
    }
    Ok(ended.exit())
}

/// A turn that writes and runs a program in a sandbox. Whether the tour goes on.
async fn build(client: &Client, out: &Out) -> Result<bool, Fault> {
    let tenant = client.get("/v1/tenant").await?;
    if tenant["sandbox"]["backend"].is_null() {
        if !out.is_json() {
            let report = client.call(Method::GET, "/v1/tenant/sandbox", None).await.unwrap_or(Json::Null);
            let why = report["reason"].as_str().unwrap_or("nobody serves sandboxes here");
            out.note(&format!(
                "\n5. to 7. would write and run a program in a sandbox, and are left out: {why}. docs/sandboxes.md says \
                 what a sandbox needs."
            ));
        }
        return Ok(true);
    }
    let planted = sample::plant_agent(client, sample::BUILDER, &sample::builder()).await?;
    if !out.is_json() {
        let agent = if planted { "registered" } else { "already registered" };
        out.note(&format!(
            "\n5. The sample agent `{}` is {agent}. Its session is opened with a sandbox: a folder of its own, where \
             commands see nothing of this machine but its programs, and no network.",
            sample::BUILDER,
        ));
        out.note(&format!("6. It is told {:?}:\n", sample::BUILD));
    }
    let asked = turn::Ask { sandbox: Some(json!({})), ..ask(sample::BUILDER, sample::BUILD) };
    let ended = turn::run(client, out, &asked, Answers::Nobody).await?;
    if ended.status != "completed" {
        return Ok(false);
    }
    let session = &ended.session;
    let path = format!("/v1/sessions/{}/sandbox/read", segment(session));
    let read = client.post(&path, &json!({ "path": sample::BUILT })).await?;
    if out.is_json() {
        out.json(&read)?;
    } else {
        let file = read["output"].as_str().unwrap_or("the agent has made no such file");
        out.note(&format!(
            "\n7. The files stay in the session's sandbox. This is {}, read between two turns:\n\n{file}\n\n\
             \x20  nylorun sandboxes exec {session} -- ls -l     look around yourself\n\
             \x20  nylorun sandboxes shell {session}             the same, line by line\n\
             \x20  docs/sandboxes.md                             what keeps commands apart, and what does not",
            sample::BUILT,
        ));
    }
    Ok(true)
}

fn ask(agent: &str, message: &str) -> turn::Ask {
    turn::Ask {
        agent: agent.to_owned(),
        message: message.to_owned(),
        session: None,
        owner: "local".to_owned(),
        sandbox: None,
    }
}
