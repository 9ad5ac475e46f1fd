//! `nylorun harness`: a harness on its own, with no store and no secrets. It connects to core, takes runs, and runs
//! the same engine as the harness inside core (spec: harness-api, sections 4 to 16; DESIGN.md, section 7).
//!
//! | File | Has |
//! |---|---|
//! | [`channel`], `outbox` | the frame channel: requests in flight, answers, messages from core |
//! | [`lease`] | a connection's life: hello, leases, what ends with it |
//! | `run`, `link` | one run: engine, renewals, output; how the engine speaks over the channel |
//! | [`workspaces`] | core's requests about workspaces, and what is claimed while they are served |
//! | [`socket`] | the WebSocket below a channel, refusals, the pause before the next attempt |
//! | [`settings`], `kit`, `health` | settings; which models are asked; the health port |
//! | this file | the process: connect again and again until told to stop |

pub mod channel;
mod health;
mod kit;
pub mod lease;
mod link;
mod outbox;
mod run;
pub mod settings;
pub mod socket;
pub mod workspaces;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use secrecy::SecretString;
use tokio::time::Instant;

pub use self::outbox::Outgoing;
pub(crate) use self::outbox::{OUTBOX_FRAMES, OUTBOX_REFUSALS};

use self::health::{Connected, Health};
use self::lease::Harness;
use self::settings::{HarnessSettings, Token};
use self::socket::{ConnectError, LASTED, Opened, connect, pause, pump};
use self::workspaces::WorkspaceHost;
use crate::cli::fault::{Fault, exit};
use crate::cli::out::Out;
use crate::engine::run::{AgentEngine, EngineConfig};
use crate::host::serve::Signals;
use crate::sandbox::host::SandboxHost;
use crate::telemetry::{self, LogFormat};

/// Runs a harness until it is told to stop.
///
/// # Errors
/// Why it does not start, with the exit code.
pub fn harness(settings: HarnessSettings, out: &Out) -> Result<u8, Fault> {
    let format = settings.log.unwrap_or(if std::io::stderr().is_terminal() && !out.is_json() {
        LogFormat::Text
    } else {
        LogFormat::Json
    });
    telemetry::init(format, &settings.log_filter)
        .map_err(|error| Fault::new(exit::USAGE, "setting-malformed", error.to_string()))?;
    let kits = kit::keyless();
    // A run crosses a wire here, so hashes cover prompts exactly: the default.
    let engine = AgentEngine::new(EngineConfig::new(kits));
    let health = Health::bind(settings.health_port)?;
    let out = *out;
    actix::System::new().block_on(async move {
        let host = workspace_host(&settings).await?;
        let harness = Harness::with_workspaces(Arc::new(engine), settings.max_runs, host);
        serve(harness, settings, health, out).await
    })
}

/// The workspaces that this harness serves: none without a folder for them, or where nothing keeps commands apart.
async fn workspace_host(settings: &HarnessSettings) -> Result<Option<Arc<dyn WorkspaceHost>>, Fault> {
    let Some(root) = &settings.root else { return Ok(None) };
    let host = SandboxHost::new(root.join("sandboxes"), settings.sandbox, settings.docker.clone()).await;
    let host = host.map_err(|why| Fault::new(exit::FAILED, "runtime", why))?;
    let selection = host.selection();
    match &selection.backend {
        Some(backend) => {
            tracing::info!(root = %root.display(), backend = backend.kind().name(), reason = selection.report.reason, "workspaces are served")
        }
        None => tracing::warn!(reason = selection.report.reason, "no workspaces are served"),
    }
    Ok(Some(Arc::new(host)))
}

async fn serve(harness: Harness, settings: HarnessSettings, health: Health, out: Out) -> Result<u8, Fault> {
    let mut signals = Signals::install()?;
    let connected: Connected = Arc::new(AtomicBool::new(false));
    let url = format!("http://127.0.0.1:{}/health", health.port);
    let listener = health.serve(Arc::clone(&connected))?;
    // Nobody may read it; the harness works all the same.
    let _ = out.line(&format!("nylorun harness ready health={url}"));
    tracing::info!(core = settings.url, max_runs = settings.max_runs, health = url, "ready");
    let working = work(&harness, &settings, &connected);
    tokio::pin!(working);
    tokio::select! {
        biased;
        name = signals.first() => {
            tracing::info!(signal = name, runs = harness.running(), "stopping");
            harness.stop();
        }
        () = &mut working => {}
    }
    tokio::select! {
        biased;
        () = &mut working => tracing::info!("stopped"),
        name = signals.first() => {
            tracing::warn!(signal = name, "stopped at once by a second signal");
            return Ok(if name == "SIGINT" { exit::INTERRUPTED } else { exit::TERMINATED });
        }
    }
    harness.close_workspaces().await;
    listener.stop(false).await;
    Ok(exit::OK)
}

/// Connects, serves, connects again. Ends when the harness was told to stop and its runs have ended.
async fn work(harness: &Harness, settings: &HarnessSettings, connected: &Connected) {
    let mut told = Told::default();
    let mut token = TokenNow { source: &settings.token, last: None };
    let mut attempt = 0;
    while !harness.is_stopping() {
        let connecting = async {
            match token.read() {
                Ok(token) => connect(&settings.url, &token).await,
                Err(why) => Err(ConnectError::Failed(why)),
            }
        };
        let opened = tokio::select! {
            biased;
            () = harness.stopped() => return,
            opened = connecting => opened,
        };
        match opened {
            Ok(Opened { socket, ordered }) => {
                told = Told::default();
                let since = Instant::now();
                connected.store(true, Ordering::Relaxed);
                let connection = harness.connect();
                connection.channel().set_ordered(ordered);
                tokio::join!(pump(socket, connection.channel()), connection.serve());
                connected.store(false, Ordering::Relaxed);
                if since.elapsed() > LASTED {
                    attempt = 0;
                }
            }
            Err(error) => told.tell(&error, attempt),
        }
        tokio::select! {
            biased;
            () = harness.stopped() => {}
            () = tokio::time::sleep(pause(attempt, rand::random())) => {}
        }
        attempt = attempt.saturating_add(1);
    }
}

/// The token for the next attempt. A file that cannot be read just now does not end a harness that was connected.
struct TokenNow<'a> {
    source: &'a Token,
    last: Option<SecretString>,
}

impl TokenNow<'_> {
    fn read(&mut self) -> Result<SecretString, String> {
        match (self.source.read(), &self.last) {
            (Ok(token), _) => {
                self.last = Some(token.clone());
                Ok(token)
            }
            (Err(why), Some(last)) => {
                tracing::warn!("{why}; the token that was read before is used");
                Ok(last.clone())
            }
            (Err(why), None) => Err(why),
        }
    }
}

/// What was logged last, so that an outage of an hour is not an hour of lines.
#[derive(Default)]
struct Told(Option<ConnectError>);

impl Told {
    fn tell(&mut self, error: &ConnectError, attempt: u32) {
        if self.0.as_ref() != Some(error) {
            match error {
                ConnectError::Refused { status } => {
                    tracing::error!(status, attempt, "{error}; it is tried again");
                }
                _ => tracing::warn!(attempt, "{error}; it is tried again"),
            }
            self.0 = Some(error.clone());
        } else if attempt.is_power_of_two() {
            tracing::warn!(attempt, "still: {error}");
        }
    }
}
