//! An Action endpoint for the sample agent `orders`: `cargo run --example endpoint`, beside a Runtime that runs.
//!
//! It finds the Runtime as the commands of `nylorun` do, registers agent and endpoint, and writes a line for each
//! delivery. The code is in `src/sample/`; `docs/actions.md` explains it. Options: `--listen HOST:PORT` (a free port of
//! 127.0.0.1), `--url URL` when the Runtime reaches it under another one, `--work SECONDS` for how long a refund takes.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use nylorun::cli::client::Client;
use nylorun::cli::fault::{Fault, exit};
use nylorun::cli::out::Out;
use nylorun::cli::target::Wanted;
use nylorun::sample::join::join;

fn main() -> ExitCode {
    let out = Out::new(false);
    match work(&out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => fault.report(&out),
    }
}

fn work(out: &Out) -> Result<(), Fault> {
    let usage = |message: String| Fault::new(exit::USAGE, "usage", message);
    let mut listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let (mut url, mut takes) = (None, Duration::from_secs(3));
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| usage(format!("{name} needs a value")))?;
        let malformed = || usage(format!("{name} {value} makes no sense"));
        match name.as_str() {
            "--listen" => listen = value.parse().map_err(|_| malformed())?,
            "--url" => url = Some(value),
            "--work" => takes = Duration::from_secs(value.parse().map_err(|_| malformed())?),
            _ => return Err(usage(format!("{name} is no option; --listen, --url and --work are"))),
        }
    }
    let client = Client::new(Wanted::default().tenant()?)?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Fault::new(exit::FAILED, "runtime", format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let told = *out;
        let on_call = Arc::new(move |call: nylorun::sample::endpoint::Call| {
            let _ = told.line(&format!(
                "{:<14} generation {}  {}  {}",
                if call.tool.is_empty() { "ping" } else { call.tool.as_str() },
                call.generation,
                call.status,
                call.action,
            ));
        });
        let joined = join(&client, listen, url, takes, Some(on_call)).await?;
        out.line(&format!("endpoint ready url={}", joined.endpoint.url()))?;
        out.note(&format!("try: nylorun run orders {:?}", nylorun::sample::MESSAGE));
        let _ = tokio::signal::ctrl_c().await;
        joined.leave(&client).await;
        Ok(())
    })
}
