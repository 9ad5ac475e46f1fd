//! The commands a person types (DESIGN.md, section 8; spec: engine, section 11). Each answers on standard output, in
//! JSON with `--json`, and says on standard error what is wrong and what to do.

pub mod args;
pub mod artifacts;
pub mod bench;
pub mod client;
pub mod doctor;
pub mod effects;
pub mod endpoints;
pub mod events;
pub mod fault;
pub mod interactions;
pub mod out;
pub mod quickstart;
pub mod resources;
pub mod sample;
pub mod sandboxes;
pub mod signing_keys;
pub mod sse;
pub mod status;
pub mod target;
pub mod terminal;
pub mod turn;

use std::future::Future;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use nylorun_actors::model::json::Json;
use serde_json::json;

use self::args::{Cli, Command, Global};
use self::client::Client;
use self::fault::{Fault, exit};
use self::out::Out;
use crate::harness::settings::HarnessSettings;
use crate::host::settings::{Effective, Settings};

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version count as done; a closed pipe is nobody's fault.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { exit::OK });
        }
    };
    let out = Out::new(cli.global.json);
    match dispatch(&cli, &out) {
        Ok(code) => ExitCode::from(code),
        Err(fault) => fault.report(&out),
    }
}

fn dispatch(cli: &Cli, out: &Out) -> Result<u8, Fault> {
    let global = &cli.global;
    match &cli.command {
        Command::Serve(serve) => crate::host::serve::serve(load(&serve.settings, global)?, serve.sample, out),
        Command::Harness(flags) => harness(flags, global, out),
        Command::Config(settings) => config(load(settings, global)?.effective(), out).map(done),
        Command::Openapi { operator } => openapi(*operator, out).map(done),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "nylorun", &mut script);
            out.text(&String::from_utf8_lossy(&script)).map(done)
        }
        Command::Run(run) => with_client(global, async |client| {
            let ask = turn::Ask {
                agent: run.agent.clone(),
                message: run.message.clone(),
                session: run.session.clone(),
                owner: run.owner.clone(),
                sandbox: run.sandbox(),
            };
            let answers = turn::Answers::of_terminal(out);
            turn::run(&client, out, &ask, answers).await.map(|ended| ended.exit())
        }),
        Command::Quickstart { message, yes } => {
            with_client(global, async |client| quickstart::run(&client, out, message, *yes).await)
        }
        Command::Agents(command) => {
            with_client(global, async |client| resources::agents(&client, out, command).await.map(done))
        }
        Command::Sessions(command) => {
            with_client(global, async |client| resources::sessions(&client, out, command).await.map(done))
        }
        Command::Cancel { session, reason } => with_client(global, async |client| {
            let receipt = turn::cancel(&client, session, reason.as_deref()).await?;
            if out.is_json() {
                out.json(&receipt)?
            } else {
                out.line(&format!("cancelled {session}"))?
            }
            Ok(exit::OK)
        }),
        Command::Approve(answer) => with_client(global, async |client| {
            interactions::verdict(&client, out, answer, true).await.map(done)
        }),
        Command::Reject(answer) => with_client(global, async |client| {
            interactions::verdict(&client, out, answer, false).await.map(done)
        }),
        Command::Respond(answer) => {
            with_client(global, async |client| interactions::respond(&client, out, answer).await.map(done))
        }
        Command::Effects(command) => {
            with_client(global, async |client| effects::run(&client, out, command).await.map(done))
        }
        Command::Endpoints(command) => {
            with_client(global, async |client| endpoints::run(&client, out, command).await.map(done))
        }
        Command::Artifacts(command) => {
            with_client(global, async |client| artifacts::run(&client, out, command).await.map(done))
        }
        Command::Sandboxes(command) => {
            with_client(global, async |client| sandboxes::run(&client, out, command).await)
        }
        Command::Model(command) => {
            with_client(global, async |client| resources::model(&client, out, command).await.map(done))
        }
        Command::Status { actors: true } => {
            let client = Client::new(global.wanted().operator()?)?;
            block_on(async { status::actors(&client, out).await.map(done) })
        }
        Command::Status { actors: false } => {
            // Without the admin key the cause of a Runtime that is not ready stays unknown, and nothing else.
            let operator = global.wanted().operator().ok();
            with_client(global, async |client| status::status(&client, operator, out).await.map(done))
        }
        Command::Keys(command) => {
            let client = Client::new(global.wanted().operator()?)?;
            block_on(async { resources::keys(&client, out, command).await.map(done) })
        }
        Command::SigningKeys(command) => {
            with_client(global, async |client| signing_keys::run(&client, out, command).await.map(done))
        }
        Command::Doctor(settings) => block_on(doctor::run(&load(settings, global)?, out)),
        Command::Bench(command) => bench::run(command, global, out).map(done),
    }
}

fn done((): ()) -> u8 {
    exit::OK
}

fn with_client(global: &Global, work: impl AsyncFnOnce(Client) -> Result<u8, Fault>) -> Result<u8, Fault> {
    let client = Client::new(global.wanted().tenant()?)?;
    block_on(work(client))
}

fn block_on<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::new(exit::FAILED, "runtime", format!("cannot start: {error}")))?;
    let answer = runtime.block_on(work);
    // A thread that waits for the terminal must not hold up the end of the command.
    runtime.shutdown_background();
    answer
}

fn load(flags: &args::Settings, global: &Global) -> Result<Settings, Fault> {
    let pairs = flags.pairs(global.home.as_ref());
    Ok(Settings::load(&pairs, flags.config.as_deref(), &|name| std::env::var(name).ok())?)
}

fn harness(flags: &args::Harness, global: &Global, out: &Out) -> Result<u8, Fault> {
    // A variable that is no text cannot be one of ours.
    let vars = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let pairs = flags.pairs(global.url.as_ref());
    let settings = HarnessSettings::load(&pairs, flags.config.as_deref(), &vars.collect())?;
    if flags.show_config {
        return config(settings.effective(), out).map(done);
    }
    crate::harness::harness(settings, out)
}

fn config(effective: &[Effective], out: &Out) -> Result<(), Fault> {
    if out.is_json() {
        let rows: serde_json::Map<String, Json> = effective
            .iter()
            .map(|row| (row.key.to_owned(), json!({ "value": row.value, "origin": row.origin })))
            .collect();
        return out.json(&json!({ "settings": rows }));
    }
    let rows: Vec<Vec<String>> =
        effective.iter().map(|row| vec![row.key.to_owned(), row.value.clone(), row.origin.clone()]).collect();
    out.table(&["SETTING", "VALUE", "ORIGIN"], &rows)
}

fn openapi(operator: bool, out: &Out) -> Result<(), Fault> {
    out.json(&if operator { crate::api::operator_document() } else { crate::api::tenant_document() })
}
