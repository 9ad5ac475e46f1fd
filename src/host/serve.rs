//! `nylorun serve`: the home, the listeners, the Tenant behind them, and the end of it all
//! (spec: http-api, sections 1.1 and 1.4; durability, section 19; DESIGN.md, section 8).

use std::io::IsTerminal;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpServer};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nylorun_actors::limits::HARNESS_PING_MS;
use nylorun_actors::tenant::HarnessMode;
use secrecy::{ExposeSecret, SecretString};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::home::{HARNESS_TOKEN, Home, HomeError, LinkFile};
use super::listen::{Bound, ListenError, bind};
use super::lock::HomeLock;
use super::open::{OpenFailure, Opened, Opener};
use super::settings::Settings;
use crate::api::{ApiState, HostFacts, HostNames, Listener, ListenerKind, note_socket};
use crate::cli::client::Client;
use crate::cli::fault::{Fault, exit};
use crate::cli::out::Out;
use crate::cli::sample;
use crate::cli::target::{Source, Target};
use crate::harness_api::limits::CONNECTIONS;
use crate::harness_api::{HarnessListener, ListenerConfig, TokenError};
use crate::telemetry::{self, LogFormat};

/// How long requests may take to finish once the Host stops (spec: http-api, section 1.4).
pub(crate) const REQUEST_GRACE_SECONDS: u64 = 10;

/// How long an idle connection is kept for its client's next request.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// The pause between two attempts to open a store that is not reachable: it doubles up to the longest.
pub(crate) const RETRY_FIRST: Duration = Duration::from_secs(1);
pub(crate) const RETRY_LONGEST: Duration = Duration::from_secs(30);

/// Runs the Host until it is told to stop. `with_sample` plants the sample agent before it says that it is ready.
///
/// # Errors
/// Why it does not start, with the exit code.
pub fn serve(settings: Settings, with_sample: bool, out: &Out) -> Result<u8, Fault> {
    let format = settings.log.unwrap_or(if std::io::stderr().is_terminal() && !out.is_json() {
        LogFormat::Text
    } else {
        LogFormat::Json
    });
    telemetry::init(format, &settings.log_filter)
        .map_err(|error| Fault::new(exit::USAGE, "setting-malformed", error.to_string()))?;

    let home = Home::prepare(&settings.home)?;
    // Held to the end of this function: one process per home.
    let _lock = HomeLock::take(home.root())?;
    let bound = Listeners::bind(&settings)?;
    let port = bound.public.address.port();
    let host = home.host_file(&settings.listen.host, port, settings.allow_non_loopback)?;
    let admin_key = home.admin_key()?;
    let local_key = home.local_key()?;

    let (stop, stopping) = mpsc::channel(4);
    let facts = HostFacts {
        host_id: host.host_id.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        home: home.root().display().to_string(),
    };
    let state = ApiState::new(facts, admin_key.expose_secret(), move || {
        // A full channel has a stop in it already.
        let _ = stop.try_send(());
    });
    let url = settings.public_url.clone().unwrap_or_else(|| bound.public.url());
    state.set_url(url);
    let link = LinkFile {
        format: super::home::LINK_FORMAT,
        tenant_id: None,
        host_url: bound.public.url(),
        host_id: host.host_id,
        operator_url: bound.operator.as_ref().map(Bound::url),
    };
    let harnesses = match bound.harness {
        Some(bound) => Some((bound, harness_config(&settings, &home)?)),
        None => None,
    };
    let opener = Opener { settings, home: home.clone(), local_key, admin_key };
    let host = Host { out: *out, home, opener, state, link, harness_url: None, with_sample };
    let sockets = Sockets { public: bound.public, operator: bound.operator, harnesses };
    actix::System::new().block_on(host.run(sockets, stopping))
}

/// Every listener of the Host, bound. When one fails the others are dropped with it: half a Host is never open.
struct Listeners {
    public: Bound,
    operator: Option<Bound>,
    harness: Option<Bound>,
}

impl Listeners {
    fn bind(settings: &Settings) -> Result<Self, Fault> {
        let permitted = settings.allow_non_loopback;
        let public =
            bind(&settings.listen, permitted, &settings.allowed_hosts).map_err(told("", "listen"))?;
        let operator = match &settings.operator_listen {
            Some(listen) => {
                let bound = bind(listen, permitted, &settings.operator_allowed_hosts);
                Some(bound.map_err(told("ADMIN_", "operator-listen"))?)
            }
            None => None,
        };
        let harness = match settings.harness {
            HarnessMode::Remote => {
                let bound = bind(&settings.harness_listen, permitted, &settings.harness_allowed_hosts);
                Some(bound.map_err(told("HARNESS_", "harness-listen"))?)
            }
            HarnessMode::InProcess => None,
        };
        Ok(Self { public, operator, harness })
    }
}

/// What the harness listener is told. Its token is made on the first start that needs one.
fn harness_config(settings: &Settings, home: &Home) -> Result<ListenerConfig, Fault> {
    let tokens = match &settings.harness_tokens {
        Some(tokens) => tokens.clone(),
        None => {
            let path = home.path(HARNESS_TOKEN);
            let (token, fresh) = home.harness_token()?;
            if fresh {
                tracing::info!(path = %path.display(), "a harness token was made");
            }
            token
                .expose_secret()
                .parse()
                .map_err(|error: TokenError| HomeError::Malformed { path, why: error.to_string() })?
        }
    };
    let connections = settings.harness_connections.and_then(|n| usize::try_from(n).ok());
    let connections = connections.unwrap_or(CONNECTIONS);
    allow_files(connections);
    Ok(ListenerConfig { tokens, connections, ping_every: Duration::from_millis(HARNESS_PING_MS) })
}

/// Each connection has two file descriptors; the usual soft limit is for a few hundred.
fn allow_files(connections: usize) {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_mul(2).saturating_add(4096);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let raised = wanted.max(soft).min(hard);
    if raised > soft && setrlimit(Resource::RLIMIT_NOFILE, raised, hard).is_err() || raised < wanted {
        tracing::warn!(
            limit = raised.min(hard),
            wanted,
            "fewer files may be open than `harness-connections` can need"
        );
    }
}

/// `prefix`: of the listener's variables.
fn told(prefix: &'static str, flag: &'static str) -> impl Fn(ListenError) -> Fault {
    move |error| {
        let message = error.to_string();
        match error {
            ListenError::InUse { .. } => Fault::new(exit::PORT_IN_USE, "port-in-use", message).fix(format!(
                "stop the process that listens there, or choose another with --{flag} HOST:PORT"
            )),
            ListenError::NotLoopback { .. } => {
                let hosts = flag.replace("listen", "allowed-hosts");
                Fault::new(exit::NOT_LOOPBACK, "non-loopback-refused", message).fix(format!(
                    "list the names it is served under in `{hosts}` (NYLORUN_{prefix}ALLOWED_HOSTS), or say \
                     --allow-non-loopback; whoever reaches the port and has a key may use it"
                ))
            }
            ListenError::Other { .. } => Fault::new(exit::FAILED, "listen", message),
        }
    }
}

/// The bound sockets with what each needs.
struct Sockets {
    public: Bound,
    operator: Option<Bound>,
    harnesses: Option<(Bound, ListenerConfig)>,
}

struct Host {
    out: Out,
    home: Home,
    opener: Opener,
    state: ApiState,
    link: LinkFile,
    /// Where harnesses connect, if they do.
    harness_url: Option<String>,
    with_sample: bool,
}

/// The URL that a harness on this machine connects to.
fn harness_url(bound: &Bound) -> String {
    format!("{}{}", bound.url().replacen("http", "ws", 1), crate::harness_api::PATH)
}

impl Host {
    async fn run(mut self, sockets: Sockets, mut stopping: mpsc::Receiver<()>) -> Result<u8, Fault> {
        let mut signals = Signals::install()?;
        let Sockets { public, operator, harnesses } = sockets;
        let mut handles = Vec::new();
        let kind = ListenerKind::Public { operator_elsewhere: operator.is_some() };
        handles.push(self.listen(public, kind)?);
        if let Some(operator) = operator {
            handles.push(self.listen(operator, ListenerKind::Operator)?);
        }
        let harnesses = match harnesses {
            Some((bound, config)) => {
                self.harness_url = Some(harness_url(&bound));
                let listener = HarnessListener::start(bound, self.state.clone(), config);
                Some(listener.map_err(|error| Fault::new(exit::FAILED, "listen", error.to_string()))?)
            }
            None => None,
        };
        let opened = tokio::select! {
            biased;
            _ = signals.first() => Ended::Asked,
            _ = stopping.recv() => Ended::Asked,
            opened = self.open() => Ended::Opened(opened),
        };
        let opened = match opened {
            Ended::Opened(Ok(opened)) => Some(opened),
            Ended::Opened(Err(fault)) => {
                self.stop(handles, None, harnesses, &mut signals).await;
                return Err(fault);
            }
            Ended::Asked => {
                self.stop(handles, None, harnesses, &mut signals).await;
                return Ok(exit::OK);
            }
        };
        tokio::select! {
            name = signals.first() => tracing::info!(signal = name, "stopping"),
            _ = stopping.recv() => tracing::info!("stopping: an operator asked for it"),
        }
        self.stop(handles, opened, harnesses, &mut signals).await;
        Ok(exit::OK)
    }

    fn listen(&self, bound: Bound, kind: ListenerKind) -> Result<ServerHandle, Fault> {
        let listener = Listener { state: self.state.clone(), kind, names: HostNames::listed(&bound.names) };
        let server = HttpServer::new(move || App::new().configure(crate::api::configure(listener.clone())))
            .disable_signals()
            .shutdown_timeout(REQUEST_GRACE_SECONDS)
            .on_connect(note_socket)
            .keep_alive(KEEP_ALIVE)
            .listen(bound.socket)
            .map_err(|error| Fault::new(exit::FAILED, "listen", error.to_string()))?
            .run();
        let handle = server.handle();
        actix::spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "a listener failed");
            }
        });
        Ok(handle)
    }

    /// Opens the Tenant and says so; pends for ever when it is quarantined.
    async fn open(&mut self) -> Result<Opened, Fault> {
        let mut pause = RETRY_FIRST;
        self.home.write_link(&self.link)?;
        let opened = loop {
            let cause = match self.opener.open().await {
                Ok(opened) => break opened,
                Err(OpenFailure::Refuse(fault)) => return Err(fault),
                Err(OpenFailure::Quarantine(cause)) => {
                    tracing::error!(code = cause.code, repair = cause.repair, "not ready: {}", cause.message);
                    self.state.slot().fail(cause);
                    std::future::pending().await
                }
                Err(OpenFailure::Passing(cause)) => cause,
            };
            tracing::error!(code = cause.code, repair = cause.repair, "not ready: {}", cause.message);
            self.state.slot().fail(cause);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_LONGEST);
        };
        self.state.slot().open(opened.tenant.clone(), opened.models.clone(), opened.signing.clone());
        self.link.tenant_id = Some(opened.tenant.id().as_str().to_owned());
        self.home.write_link(&self.link)?;
        if self.with_sample {
            self.plant().await?;
        }
        let operator =
            self.link.operator_url.as_ref().map(|url| format!(" operator={url}")).unwrap_or_default();
        // Nobody may read it; the Host serves all the same.
        let harness = self.harness_url.as_ref().map(|url| format!(" harness={url}")).unwrap_or_default();
        let _ = self.out.line(&format!("nylorun ready api={}{operator}{harness}", self.link.host_url));
        tracing::info!(tenant = opened.tenant.id().as_str(), api = self.link.host_url, "ready");
        if let Some(sandboxes) = &opened.sandboxes {
            sandboxes.settle(opened.tenant.clone());
        }
        if self.with_sample && std::io::stderr().is_terminal() {
            self.out.note(&format!(
                "\nThe Runtime runs. In another terminal:\n\n  nylorun run {} \"hello\"\n  nylorun quickstart\n  nylorun status\n\nCtrl-C stops it; nothing is lost.\n",
                sample::AGENT
            ));
        }
        Ok(opened)
    }

    /// Plants the sample through the API, as everybody else would.
    async fn plant(&self) -> Result<(), Fault> {
        let (key, _): &(SecretString, bool) = &self.opener.local_key;
        let client = Client::new(Target {
            url: self.link.host_url.clone(),
            key: key.clone(),
            host_id: Some(self.link.host_id.clone()),
            source: Source::Link(self.home.root().to_owned()),
        })?;
        let planted = sample::plant(&client).await?;
        tracing::info!(agent = planted.agent, fixture = planted.fixture, "the sample is in place");
        Ok(())
    }

    /// Stops everything in order; a step that fails is logged and the next one follows. A second signal ends the
    /// process at once: what was committed is committed.
    async fn stop(
        &self,
        handles: Vec<ServerHandle>,
        opened: Option<Opened>,
        harnesses: Option<HarnessListener>,
        signals: &mut Signals,
    ) {
        let work = async {
            // Streams end first, or their listeners would wait for them.
            self.state.slot().close();
            futures_util::future::join_all(handles.iter().map(|handle| handle.stop(true))).await;
            match (opened, harnesses) {
                (Some(opened), harnesses) => opened.close(harnesses).await,
                (None, Some(harnesses)) => harnesses.stop().await,
                (None, None) => {}
            }
        };
        tokio::select! {
            () = work => tracing::info!("stopped"),
            name = signals.first() => {
                tracing::warn!(signal = name, "stopped at once by a second signal");
                std::process::exit(i32::from(if name == "SIGINT" { exit::INTERRUPTED } else { exit::TERMINATED }));
            }
        }
    }
}

/// What comes first: the Tenant is open, or the Host is to stop.
enum Ended {
    Opened(Result<Opened, Fault>),
    Asked,
}

/// SIGINT and SIGTERM.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn install() -> Result<Self, Fault> {
        let install =
            |kind| signal(kind).map_err(|error| Fault::new(exit::FAILED, "signals", error.to_string()));
        Ok(Self {
            interrupt: install(SignalKind::interrupt())?,
            terminate: install(SignalKind::terminate())?,
        })
    }

    /// The next signal's name.
    pub(crate) async fn first(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
