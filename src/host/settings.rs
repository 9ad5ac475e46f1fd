//! Settings and where each came from: flags, then `NYLORUN_*`, then `nylorun.toml`, then the default
//! (DESIGN.md, section 8; spec: security, section 13).
//!
//! A setting has one name everywhere: `--public-url`, `public-url = "…"`; its variable is in [`SETTINGS`]. A blank
//! variable counts as not set. A malformed value refuses to start and names the place it was read from.

mod layers;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nylorun_actors::tenant::{HarnessMode, ModelOnCrash};
use serde::Serialize;

use self::layers::Layers;
pub(crate) use self::layers::file_text;
use crate::blobs::S3Settings;
use crate::gates::OutboundPolicy;
use crate::harness_api::HarnessTokens;
use crate::sandbox::choice::Preference;
use crate::sandbox::docker::DockerMeans;
use crate::telemetry::LogFormat;

/// What one setting is.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name: the flag without `--`, and the key in `nylorun.toml`.
    pub key: &'static str,
    /// Its variables.
    pub env: &'static [&'static str],
    /// Whether `serve` has a flag for it.
    pub flag: bool,
    /// Its default in words.
    pub default: &'static str,
    /// What it is for.
    pub what: &'static str,
}

macro_rules! settings {
    ($($key:literal, $env:expr, $flag:literal, $default:literal, $what:literal;)*) => {
        /// Every setting of this build, in the order they are shown.
        pub const SETTINGS: &[Setting] =
            &[$(Setting { key: $key, env: &$env, flag: $flag, default: $default, what: $what }),*];
    };
}

settings! {
    "home", ["NYLORUN_HOME"], true, "~/.nylorun", "Directory of keys, link and database; mode 0700";
    "listen", ["NYLORUN_LISTEN_HOST", "NYLORUN_LISTEN_PORT"], true, "127.0.0.1:8787", "Where the API listens; port 0 picks a free one";
    "allow-non-loopback", ["NYLORUN_ALLOW_NON_LOOPBACK"], true, "false", "Permission to listen beyond this machine";
    "allowed-hosts", ["NYLORUN_ALLOWED_HOSTS"], true, "", "Values of the `Host` header that are served, `name:port`, beside the loopback names";
    "operator-listen", ["NYLORUN_ADMIN_LISTEN_HOST", "NYLORUN_ADMIN_LISTEN_PORT"], true, "off", "A listener of its own for the operator API";
    "operator-allowed-hosts", ["NYLORUN_ADMIN_ALLOWED_HOSTS"], true, "", "As `allowed-hosts`, for the operator listener";
    "public-url", ["NYLORUN_PUBLIC_URL"], true, "", "URL that clients use when it is not the listener's own";
    "harness", ["NYLORUN_HARNESS"], true, "in-process", "Where runs are executed: `in-process`, or `remote` in harnesses that connect";
    "harness-listen", ["NYLORUN_HARNESS_LISTEN_HOST", "NYLORUN_HARNESS_LISTEN_PORT"], true, "127.0.0.1:4200", "Where harnesses connect, in mode `remote`; port 0 picks a free one";
    "harness-allowed-hosts", ["NYLORUN_HARNESS_ALLOWED_HOSTS"], true, "", "As `allowed-hosts`, for the harness listener";
    "harness-token", ["NYLORUN_HARNESS_TOKEN"], false, "made in the home", "Token of the harnesses, 64 hexadecimal digits or more; the previous one too, after a comma, while it is replaced";
    "harness-connections", ["NYLORUN_HARNESS_CONNECTIONS"], false, "6000", "Harnesses that may be connected at once";
    "sandbox", ["NYLORUN_SANDBOX_BACKEND"], true, "auto", "What keeps the commands of sandboxes apart, where runs are executed in this process: `auto`, or a backend by its name";
    "sandbox-image", ["NYLORUN_SANDBOX_IMAGE"], false, "python:3.13-slim", "With the backend `docker`: the image of sandboxes that name none; it must be there, none is fetched";
    "sandbox-retention", ["NYLORUN_SANDBOX_RETENTION"], false, "as long as their session or sandbox", "Age from which the files of a sandbox that nobody uses are removed, such as `30d`";
    "docker-host", ["DOCKER_HOST"], false, "unix:///var/run/docker.sock", "With the backend `docker`: the socket of the daemon on this machine";
    "database-url", ["NYLORUN_DATABASE_URL"], true, "sqlite://HOME/nylorun.db", "Where the record is kept";
    "object-store-endpoint", ["NYLORUN_OBJECT_STORE_ENDPOINT"], false, "", "URL of an S3 service that keeps the bytes of artifacts; without it they are in the home";
    "object-store-access-key", ["NYLORUN_OBJECT_STORE_ACCESS_KEY"], false, "", "Id of the key for it";
    "object-store-secret-key", ["NYLORUN_OBJECT_STORE_SECRET_KEY"], false, "", "The key for it";
    "object-store-bucket", ["NYLORUN_OBJECT_STORE_BUCKET"], false, "nylorun", "Its bucket, which must be there";
    "object-store-region", ["NYLORUN_OBJECT_STORE_REGION"], false, "us-east-1", "Its region";
    "tenant-id", ["NYLORUN_TENANT_ID"], true, "a new one", "Id of the Tenant, used on the first start";
    "tenant-name", ["NYLORUN_TENANT_NAME"], true, "default", "Name of the Tenant, used on the first start";
    "log", ["NYLORUN_LOG_FORMAT"], true, "text on a terminal, else json", "`text` or `json`";
    "log-filter", ["NYLORUN_LOG"], true, "info,actix_server=warn,object_store=warn", "Which log lines are written, `tracing` syntax";
    "model-on-crash", ["NYLORUN_MODEL_ON_CRASH"], true, "repeat", "A model call that a crash has cut: `repeat` it, or leave it `uncertain`";
    "owner-lease-ms", ["NYLORUN_OWNER_LEASE_MS"], false, "30000", "Life of a session's lease";
    "advance-deadline-ms", ["NYLORUN_ADVANCE_DEADLINE_MS"], false, "3000000", "Age at which an advance is told to end";
    "abort-grace-ms", ["NYLORUN_ABORT_GRACE_MS"], false, "30000", "Time an aborted advance has left";
    "rollover-steps", ["NYLORUN_ROLLOVER_STEPS"], false, "50", "Steps after which a segment rolls over";
    "rollover-ms", ["NYLORUN_ROLLOVER_MS"], false, "1200000", "Time after which a segment rolls over";
    "sweep-interval-ms", ["NYLORUN_SWEEP_INTERVAL_MS"], false, "5000", "Pause between two passes of the sweeper";
    "action-hold-ms", ["NYLORUN_ACTION_HOLD_MS"], false, "300000", "How long a run waits for an Action before it gives its harness back; 0: not at all";
    "action-lease-ms", ["NYLORUN_ACTION_LEASE_MS"], false, "30000", "Life of a background delivery without a heartbeat";
    "delivery-max-age", ["NYLORUN_DELIVERY_MAX_AGE"], false, "24h", "Age from which an Action whose delivery fails is parked, such as `90m` or `24h`";
    "idle-after-ms", ["NYLORUN_IDLE_AFTER_MS"], false, "15000", "How long a session without work stays in memory";
    "arbiters", ["NYLORUN_ARBITERS"], false, "one per core", "Threads that sessions are spread over";
    "endpoint-http", ["NYLORUN_ENDPOINT_HTTP"], false, "allow", "Action endpoints at `http:` URLs: `allow` or `refuse`";
    "endpoint-private", ["NYLORUN_ENDPOINT_PRIVATE"], false, "allow", "Action endpoints on this machine and in private networks: `allow` or `refuse`; link-local and metadata addresses are always refused";
    "endpoint-loopback", ["NYLORUN_ENDPOINT_LOOPBACK"], false, "", "`docker-host`: `localhost` in an endpoint's URL means the machine that runs this container";
    "open-timeout-ms", ["NYLORUN_OPEN_TIMEOUT_MS"], false, "30000", "How long the Tenant may take to open";
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A flag of the command line.
    Flag(&'static str),
    /// A variable.
    Env(&'static str),
    /// The settings file.
    File(PathBuf),
    /// Nobody set it.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(key) => write!(f, "flag --{key}"),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Why the settings are refused. The process does not start.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SettingsError {
    /// A value does not parse.
    #[error("{place} is malformed: {why}")]
    Malformed {
        /// Where it was read: a variable, a flag, or a key of the file.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// The file has a key that this build does not know.
    #[error("{path} has an unknown key `{key}`; known keys are: {known}")]
    UnknownKey {
        /// The file.
        path: String,
        /// The key.
        key: String,
        /// All known keys.
        known: String,
    },
    /// The file cannot be read or is not TOML.
    #[error("cannot read the settings file {path}: {why}")]
    File {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// There is no home to fall back on.
    #[error("no home directory: set --home or NYLORUN_HOME")]
    NoHome,
    /// A store that this build does not have.
    #[error("{place} names a `{scheme}` database, and this build has SQLite only: use sqlite://PATH")]
    Database {
        /// Where it was read.
        place: String,
        /// The URL's scheme; the rest may hold a password.
        scheme: String,
    },
}

/// A `HOST:PORT` to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// A name or an address, IPv6 without brackets.
    pub host: String,
    /// 0 picks a free one.
    pub port: u16,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = text.rsplit_once(':').ok_or_else(|| format!("`{text}` is not HOST:PORT"))?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(format!("`{text}` has no host"));
        }
        if host.contains(':') && host.parse::<IpAddr>().is_err() {
            return Err(format!("`{host}` is not an address"));
        }
        Ok(Self { host: host.to_owned(), port: parse_port(port)? })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

fn parse_port(text: &str) -> Result<u16, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a port (0 to 65535)"))
}

/// One line of `nylorun config`.
#[derive(Clone, Debug, Serialize)]
pub struct Effective {
    /// The setting's name.
    pub key: &'static str,
    /// Its value, secrets masked.
    pub value: String,
    /// Where it came from.
    pub origin: String,
}

/// The effective settings of this process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of keys, link and database.
    pub home: PathBuf,
    /// The API's listener.
    pub listen: Listen,
    /// Whether a listener may be reached from other machines.
    pub allow_non_loopback: bool,
    /// Extra values of the `Host` header.
    pub allowed_hosts: Vec<String>,
    /// The operator's listener.
    pub operator_listen: Option<Listen>,
    /// Extra values of the `Host` header there.
    pub operator_allowed_hosts: Vec<String>,
    /// URL that clients use.
    pub public_url: Option<String>,
    /// Where runs are executed.
    pub harness: HarnessMode,
    /// The harness listener.
    pub harness_listen: Listen,
    /// Extra values of the `Host` header there.
    pub harness_allowed_hosts: Vec<String>,
    /// The harness tokens; `None`: the home's.
    pub harness_tokens: Option<HarnessTokens>,
    /// Harnesses that may be connected at once.
    pub harness_connections: Option<u64>,
    /// What keeps the commands of sandboxes apart.
    pub sandbox: Preference,
    /// What containers of sandboxes are made of.
    pub docker: DockerMeans,
    /// The database file.
    pub database: PathBuf,
    /// Where the bytes of artifacts are when they are not in the home.
    pub object_store: Option<S3Settings>,
    /// Id for a new Tenant.
    pub tenant_id: Option<String>,
    /// Name for a new Tenant.
    pub tenant_name: String,
    /// `None`: text on a terminal, else JSON.
    pub log: Option<LogFormat>,
    /// Which lines are written.
    pub log_filter: String,
    /// A model call that a crash has cut.
    pub model_on_crash: ModelOnCrash,
    /// Where Action deliveries may go.
    pub outbound: OutboundPolicy,
    /// Milliseconds.
    pub owner_lease_ms: Option<i64>,
    /// Milliseconds.
    pub advance_deadline_ms: Option<i64>,
    /// Milliseconds.
    pub abort_grace_ms: Option<i64>,
    /// Steps.
    pub rollover_steps: Option<u64>,
    /// Milliseconds.
    pub rollover_ms: Option<u64>,
    /// Milliseconds; `None`: they are kept.
    pub sandbox_retention_ms: Option<i64>,
    /// Milliseconds.
    pub sweep_interval_ms: Option<u64>,
    /// Milliseconds; 0 is no hold.
    pub action_hold_ms: Option<u64>,
    /// Milliseconds.
    pub action_lease_ms: Option<i64>,
    /// Milliseconds.
    pub delivery_max_age_ms: Option<i64>,
    /// Milliseconds.
    pub idle_after_ms: Option<u64>,
    /// Threads.
    pub arbiters: Option<u64>,
    /// Milliseconds.
    pub open_timeout_ms: u64,
    effective: Vec<Effective>,
}

impl Settings {
    /// Every setting with its value and origin, in the order of [`SETTINGS`].
    #[must_use]
    pub fn effective(&self) -> &[Effective] {
        &self.effective
    }

    /// Reads all layers. `flags` are `(key, value)` of the command line, `config` its `--config`, `env` the
    /// environment's lookup.
    ///
    /// # Errors
    /// The first value that cannot be used.
    pub fn load(
        flags: &[(&'static str, String)],
        config: Option<&Path>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        let mut layers = Layers::new(env);
        layers.take_flags(flags);
        layers.take_env()?;
        let explicit = config.map(Path::to_owned);
        let file = match &explicit {
            Some(path) => Some(path.clone()),
            None => Some(layers.home()?.join("nylorun.toml")).filter(|path| path.is_file()),
        };
        if let Some(path) = file {
            layers.take_file(&path)?;
        }
        layers.settle()
    }
}

#[cfg(test)]
mod tests;
