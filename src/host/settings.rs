//! Settings and where each came from: flags, then `NYLORUN_*`, then `nylorun.toml`, then the default
//! (DESIGN.md, section 8; spec: security, section 13).
//!
//! A setting has one name everywhere: `--public-url`, `public-url = "…"`; its variable is in [`SETTINGS`]. A blank
//! variable counts as not set. A malformed value refuses to start and names the place it was read from.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nylorun_actors::model::ids::is_ulid_id;
use nylorun_actors::tenant::ModelOnCrash;
use serde::Serialize;

use crate::telemetry::{LogFormat, check_filter};

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
    "database-url", ["NYLORUN_DATABASE_URL"], true, "sqlite://HOME/nylorun.db", "Where the record is kept";
    "tenant-id", ["NYLORUN_TENANT_ID"], true, "a new one", "Id of the Tenant, used on the first start";
    "tenant-name", ["NYLORUN_TENANT_NAME"], true, "default", "Name of the Tenant, used on the first start";
    "log", ["NYLORUN_LOG_FORMAT"], true, "text on a terminal, else json", "`text` or `json`";
    "log-filter", ["NYLORUN_LOG"], true, "info,actix_server=warn", "Which log lines are written, `tracing` syntax";
    "model-on-crash", ["NYLORUN_MODEL_ON_CRASH"], true, "repeat", "A model call that a crash has cut: `repeat` it, or leave it `uncertain`";
    "owner-lease-ms", ["NYLORUN_OWNER_LEASE_MS"], false, "30000", "Life of a session's lease";
    "advance-deadline-ms", ["NYLORUN_ADVANCE_DEADLINE_MS"], false, "3000000", "Age at which an advance is told to end";
    "abort-grace-ms", ["NYLORUN_ABORT_GRACE_MS"], false, "30000", "Time an aborted advance has left";
    "rollover-steps", ["NYLORUN_ROLLOVER_STEPS"], false, "50", "Steps after which a segment rolls over";
    "rollover-ms", ["NYLORUN_ROLLOVER_MS"], false, "1200000", "Time after which a segment rolls over";
    "sweep-interval-ms", ["NYLORUN_SWEEP_INTERVAL_MS"], false, "5000", "Pause between two passes of the sweeper";
    "idle-after-ms", ["NYLORUN_IDLE_AFTER_MS"], false, "15000", "How long a session without work stays in memory";
    "arbiters", ["NYLORUN_ARBITERS"], false, "one per core", "Threads that sessions are spread over";
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
    /// The database file.
    pub database: PathBuf,
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
    /// Milliseconds.
    pub sweep_interval_ms: Option<u64>,
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
        let mut layers = Layers { values: BTreeMap::new(), env };
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

struct Layers<'a> {
    values: BTreeMap<&'static str, (String, Origin)>,
    env: &'a dyn Fn(&str) -> Option<String>,
}

impl Layers<'_> {
    fn var(&self, name: &str) -> Option<String> {
        (self.env)(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn add(&mut self, key: &'static str, value: String, origin: Origin) {
        self.values.entry(key).or_insert((value, origin));
    }

    fn take_flags(&mut self, flags: &[(&'static str, String)]) {
        for (key, value) in flags {
            self.add(key, value.clone(), Origin::Flag(key));
        }
    }

    fn take_env(&mut self) -> Result<(), SettingsError> {
        for setting in SETTINGS {
            match setting.env {
                [name] => {
                    if let Some(value) = self.var(name) {
                        self.add(setting.key, value, Origin::Env(name));
                    }
                }
                [host_name, port_name] => {
                    let (host, port) = (self.var(host_name), self.var(port_name));
                    // The operator's listener is off until a port turns it on.
                    let wanted = if setting.key == "listen" { host.or(port.clone()) } else { port.clone() };
                    if wanted.is_none() {
                        continue;
                    }
                    let host = self.var(host_name).unwrap_or_else(|| "0.0.0.0".to_owned());
                    let port = match port {
                        Some(text) => parse_port(&text).map_err(|why| SettingsError::Malformed {
                            place: (*port_name).to_owned(),
                            why,
                        })?,
                        None => CONTAINER_PORT,
                    };
                    let origin =
                        Origin::Env(if self.var(port_name).is_some() { port_name } else { host_name });
                    let host = host.trim_matches(['[', ']']).to_owned();
                    self.add(setting.key, Listen { host, port }.to_string(), origin);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn take_file(&mut self, path: &Path) -> Result<(), SettingsError> {
        let told = |why: String| SettingsError::File { path: path.display().to_string(), why };
        let text = std::fs::read_to_string(path).map_err(|error| told(error.to_string()))?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| told(error.to_string()))?;
        for (key, value) in table {
            let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
                return Err(SettingsError::UnknownKey {
                    path: path.display().to_string(),
                    key,
                    known: SETTINGS.iter().map(|s| s.key).collect::<Vec<_>>().join(", "),
                });
            };
            let value = file_text(&value).ok_or_else(|| SettingsError::Malformed {
                place: format!("`{key}` in {}", path.display()),
                why: "it must be a string, a number, a boolean, or a list of strings".to_owned(),
            })?;
            self.add(setting.key, value, Origin::File(path.to_owned()));
        }
        Ok(())
    }

    fn home(&self) -> Result<PathBuf, SettingsError> {
        if let Some((home, _)) = self.values.get("home") {
            return Ok(PathBuf::from(home));
        }
        let user = self.var("HOME").ok_or(SettingsError::NoHome)?;
        Ok(PathBuf::from(user).join(".nylorun"))
    }

    /// The value of a setting, parsed; `None` when nobody set it.
    fn get<T>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, SettingsError> {
        let Some((value, origin)) = self.values.get(key) else { return Ok(None) };
        parse(value).map(Some).map_err(|why| SettingsError::Malformed { place: place(key, origin), why })
    }

    fn number<T: FromStr + PartialOrd + From<u8>>(
        &self,
        key: &'static str,
    ) -> Result<Option<T>, SettingsError> {
        self.get(key, |text| {
            text.parse::<T>()
                .ok()
                .filter(|number| *number >= T::from(1))
                .ok_or_else(|| format!("`{text}` is not a whole number from 1 on"))
        })
    }

    fn settle(self) -> Result<Settings, SettingsError> {
        let home = std::path::absolute(self.home()?)
            .map_err(|error| SettingsError::Malformed { place: "home".to_owned(), why: error.to_string() })?;
        let container = self.var("NYLORUN_ALLOWED_HOSTS").is_some();
        let listen = self.get("listen", Listen::from_str)?.unwrap_or(if container {
            Listen { host: "0.0.0.0".to_owned(), port: CONTAINER_PORT }
        } else {
            Listen { host: "127.0.0.1".to_owned(), port: DEFAULT_PORT }
        });
        let operator_listen =
            self.get("operator-listen", |text| {
                if text == "off" { Ok(None) } else { Listen::from_str(text).map(Some) }
            })?
            .flatten();
        if operator_listen.as_ref().is_some_and(|o| o.port != 0 && o.port == listen.port) {
            let origin = self.values.get("operator-listen").map_or(&Origin::Default, |(_, origin)| origin);
            return Err(SettingsError::Malformed {
                place: place("operator-listen", origin),
                why: "the operator's port must differ from the API's".to_owned(),
            });
        }
        let mut settings = Settings {
            database: self.database(&home)?,
            allow_non_loopback: self.get("allow-non-loopback", boolean)?.unwrap_or(false),
            allowed_hosts: self.get("allowed-hosts", hosts)?.unwrap_or_default(),
            operator_allowed_hosts: self.get("operator-allowed-hosts", hosts)?.unwrap_or_default(),
            public_url: self.get("public-url", url)?,
            tenant_id: self.get("tenant-id", |text| {
                if is_ulid_id(text, "tn_") {
                    Ok(text.to_owned())
                } else {
                    Err(format!("`{text}` is not `tn_` and 26 characters of lowercase Crockford base 32"))
                }
            })?,
            tenant_name: self
                .get("tenant-name", |text| Ok(text.to_owned()))?
                .unwrap_or_else(|| "default".to_owned()),
            log: self.get("log", LogFormat::from_str)?,
            log_filter: self
                .get("log-filter", |text| {
                    check_filter(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
                })?
                .unwrap_or_else(|| "info,actix_server=warn".to_owned()),
            model_on_crash: self
                .get("model-on-crash", |text| match text {
                    "repeat" => Ok(ModelOnCrash::Repeat),
                    "uncertain" => Ok(ModelOnCrash::Uncertain),
                    other => Err(format!("`{other}` is neither `repeat` nor `uncertain`")),
                })?
                .unwrap_or_default(),
            owner_lease_ms: self.number("owner-lease-ms")?,
            advance_deadline_ms: self.number("advance-deadline-ms")?,
            abort_grace_ms: self.number("abort-grace-ms")?,
            rollover_steps: self.number("rollover-steps")?,
            rollover_ms: self.number("rollover-ms")?,
            sweep_interval_ms: self.number("sweep-interval-ms")?,
            idle_after_ms: self.number("idle-after-ms")?,
            arbiters: self.number("arbiters")?,
            open_timeout_ms: self.number("open-timeout-ms")?.unwrap_or(30_000),
            home,
            listen,
            operator_listen,
            effective: Vec::new(),
        };
        settings.effective = self.effective(&settings);
        Ok(settings)
    }

    fn database(&self, home: &Path) -> Result<PathBuf, SettingsError> {
        let Some((url, origin)) = self.values.get("database-url") else { return Ok(home.join("nylorun.db")) };
        let place = place("database-url", origin);
        let Some((scheme, path)) = url.split_once("://") else {
            // The value is not repeated: it may hold a password.
            return Err(SettingsError::Malformed {
                place,
                why: "it is not a URL; use sqlite://PATH".to_owned(),
            });
        };
        match scheme {
            "sqlite" if path.is_empty() => {
                Err(SettingsError::Malformed { place, why: "it names no file".to_owned() })
            }
            "sqlite" => std::path::absolute(path)
                .map_err(|error| SettingsError::Malformed { place, why: error.to_string() }),
            other => Err(SettingsError::Database { place, scheme: other.to_owned() }),
        }
    }

    fn effective(&self, settings: &Settings) -> Vec<Effective> {
        SETTINGS
            .iter()
            .map(|setting| {
                let set = self.values.get(setting.key);
                let origin = set.map_or(Origin::Default, |(_, origin)| origin.clone());
                let value = match setting.key {
                    "home" => settings.home.display().to_string(),
                    "listen" => settings.listen.to_string(),
                    "database-url" => format!("sqlite://{}", settings.database.display()),
                    _ => set.map_or_else(|| setting.default.to_owned(), |(value, _)| mask(value)),
                };
                Effective { key: setting.key, value, origin: origin.to_string() }
            })
            .collect()
    }
}

const DEFAULT_PORT: u16 = 8787;
const CONTAINER_PORT: u16 = 4000;

fn place(key: &str, origin: &Origin) -> String {
    match origin {
        Origin::Flag(key) => format!("--{key}"),
        Origin::Env(name) => (*name).to_owned(),
        Origin::File(path) => format!("`{key}` in {}", path.display()),
        Origin::Default => format!("the default of `{key}`"),
    }
}

fn file_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Array(items) => {
            let items: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
            items.map(|items| items.join(","))
        }
        _ => None,
    }
}

fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" => Ok(false),
        other => Err(format!("`{other}` is neither `true` nor `false`")),
    }
}

fn hosts(text: &str) -> Result<Vec<String>, String> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let (host, port) = name.rsplit_once(':').ok_or_else(|| format!("`{name}` is not name:port"))?;
            parse_port(port)?;
            if host.is_empty() || host.contains(['/', ' ', '@']) {
                return Err(format!("`{name}` is not name:port"));
            }
            Ok(name.to_ascii_lowercase())
        })
        .collect()
}

fn url(text: &str) -> Result<String, String> {
    let parsed = reqwest::Url::parse(text).map_err(|error| format!("it is not a URL: {error}"))?;
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none() {
        return Err("it must be an http or https URL".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// Hides the password of a URL.
fn mask(value: &str) -> String {
    let Some((scheme, rest)) = value.split_once("://") else { return value.to_owned() };
    let (authority, tail) = rest.split_once('/').map_or((rest, None), |(a, t)| (a, Some(t)));
    let Some((_, host)) = authority.rsplit_once('@') else { return value.to_owned() };
    match tail {
        Some(tail) => format!("{scheme}://****@{host}/{tail}"),
        None => format!("{scheme}://****@{host}"),
    }
}

#[cfg(test)]
mod tests;
