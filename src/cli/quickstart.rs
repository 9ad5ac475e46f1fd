//! `nylorun quickstart`: a turn, then one with tools of an application and an approval, each explained as it goes.

use std::net::SocketAddr;
use std::time::Duration;

use super::client::Client;
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
    let answers = if yes { Answers::Approve } else { Answers::of_terminal(out) };
    if answers == Answers::Nobody {
        if !out.is_json() {
            out.note(
                "\nThe second part has tools and asks a person: run `nylorun quickstart` on a terminal, or with --yes.",
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
            "\n5. The sample agent `{AGENT}` is {agent}. Its tools are this program's own code: an Action endpoint at \
             {}, which the Runtime calls with a signature.",
            joined.endpoint.url(),
        ));
        out.note(&format!("6. A new session is told {MESSAGE:?}:\n"));
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
            "\n7. The turn is {}. The refund waited for your word in the Runtime's record, not in a process: an \
             approval may take days and restarts. {after}\n\
             \x20  nylorun sessions events {session}    deliveries, approval, result\n\
             \x20  docs/actions.md, examples/            an endpoint of your own",
            ended.status,
        ));
    }
    Ok(ended.exit())
}

fn ask(agent: &str, message: &str) -> turn::Ask {
    turn::Ask {
        agent: agent.to_owned(),
        message: message.to_owned(),
        session: None,
        owner: "local".to_owned(),
    }
}
