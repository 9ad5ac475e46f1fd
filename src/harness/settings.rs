//! Settings of `nylorun harness` and where each came from: flags, then variables, then `--config FILE`, then the
//! default (DESIGN.md, section 8; spec: harness-api, section 16; security, section 13).
//!
//! A harness runs what models decide, so it must not hold what core guards: with a variable of core's secrets set it
//! refuses to start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use crate::cli::fault::{Fault, exit};
use crate::host::settings::{Effective, Origin, Setting, SettingsError, file_text};
use crate::sandbox::choice::Preference;
use crate::sandbox::docker::DockerMeans;
use crate::telemetry::{LogFormat, check_filter};

/// Path of the Harness API, added to a URL that has none.
pub(super) const API_PATH: &str = "/nylorun/harness/v1";

/// Runs at once by default.
pub(crate) const MAX_RUNS: usize = 256;

/// Most runs at once: with more, their requests would wait for each other at core's bound of requests in flight.
pub(crate) const MOST_RUNS: usize = 4096;

/// Where workspaces are unless it is said: a folder of the image.
const ROOT: &str = "/harness";

const HEALTH_PORT: u16 = 4300;

/// Fewest characters of the token.
const TOKEN_CHARS: usize = 64;

/// Every setting of a harness, in the order they are shown.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "url",
        env: &["NYLORUN_HARNESS_URL"],
        flag: true,
        default: "",
        what: "Core's harness listener, ws:// or wss://",
    },
    Setting {
        key: "token",
        env: &["NYLORUN_HARNESS_TOKEN"],
        flag: false,
        default: "",
        what: "The token that core expects, 64 or more hex characters",
    },
    Setting {
        key: "token-file",
        env: &["NYLORUN_HARNESS_TOKEN_FILE"],
        flag: true,
        default: "",
        what: "A file with the token, read again for each connection",
    },
    Setting {
        key: "max-runs",
        env: &["NYLORUN_HARNESS_MAX_RUNS"],
        flag: true,
        default: "256",
        what: "Runs at once",
    },
    Setting {
        key: "root",
        env: &["NYLORUN_HARNESS_ROOT"],
        flag: true,
        default: "/harness, where it is there",
        what: "Folder of the workspaces it serves; without one it serves none",
    },
    Setting {
        key: "sandbox",
        env: &["NYLORUN_SANDBOX_BACKEND"],
        flag: true,
        default: "auto",
        what: "What keeps commands apart: auto, namespaces, landlock, docker, process",
    },
    Setting {
        key: "sandbox-image",
        env: &["NYLORUN_SANDBOX_IMAGE"],
        flag: false,
        default: "python:3.13-slim",
        what: "With the backend docker: the image of sandboxes that name none; it must be there, none is fetched",
    },
    Setting {
        key: "docker-host",
        env: &["DOCKER_HOST"],
        flag: false,
        default: "unix:///var/run/docker.sock",
        what: "With the backend docker: the socket of the daemon on this machine",
    },
    Setting {
        key: "health-port",
        env: &["NYLORUN_HARNESS_HEALTH_PORT"],
        flag: true,
        default: "4300",
        what: "Port of GET /health on 127.0.0.1; 0 picks a free one",
    },
    Setting {
        key: "log",
        env: &["NYLORUN_LOG_FORMAT"],
        flag: true,
        default: "text on a terminal, else json",
        what: "`text` or `json`",
    },
    Setting {
        key: "log-filter",
        env: &["NYLORUN_LOG"],
        flag: true,
        default: "info,actix_server=warn",
        what: "Which log lines are written, `tracing` syntax",
    },
];

/// Where the token is.
#[derive(Clone, Debug)]
pub enum Token {
    /// Here.
    Given(SecretString),
    /// In a file, so that it can be replaced while the harness runs.
    File(PathBuf),
}

impl Token {
    /// The token as it is now.
    ///
    /// # Errors
    /// In words; never with the token in them.
    pub fn read(&self) -> Result<SecretString, String> {
        match self {
            Self::Given(token) => Ok(token.clone()),
            Self::File(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("cannot read the token file {}: {error}", path.display()))?;
                token(text.trim()).map_err(|why| format!("{}: {why}", path.display()))
            }
        }
    }
}

fn token(text: &str) -> Result<SecretString, String> {
    if text.len() >= TOKEN_CHARS && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(SecretString::from(text));
    }
    Err(format!("the token has {TOKEN_CHARS} or more characters, all of them hex digits"))
}

/// The settings of this harness.
#[derive(Clone, Debug)]
pub struct HarnessSettings {
    /// Core's listener, with its path.
    pub url: String,
    /// The token.
    pub token: Token,
    /// Runs at once.
    pub max_runs: usize,
    /// Folder of workspaces; none: it serves none.
    pub root: Option<PathBuf>,
    /// What keeps commands apart.
    pub sandbox: Preference,
    /// What containers of sandboxes are made of.
    pub docker: DockerMeans,
    /// Port of `GET /health`.
    pub health_port: u16,
    /// `None`: text on a terminal, else JSON.
    pub log: Option<LogFormat>,
    /// Which lines are written.
    pub log_filter: String,
    effective: Vec<Effective>,
}

impl HarnessSettings {
    /// Every setting with its value and origin; the token itself is not shown.
    #[must_use]
    pub fn effective(&self) -> &[Effective] {
        &self.effective
    }

    /// Reads all layers. `flags` are `(key, value)` of the command line, `vars` the environment.
    ///
    /// # Errors
    /// What refuses to start: a forbidden variable, a missing or a malformed value.
    pub fn load(
        flags: &[(&'static str, String)],
        config: Option<&Path>,
        vars: &BTreeMap<String, String>,
    ) -> Result<Self, Fault> {
        forbid(vars)?;
        let mut values = Values::default();
        for (key, value) in flags {
            values.add(key, value, Origin::Flag(key));
        }
        for setting in SETTINGS {
            for name in setting.env {
                if let Some(value) = vars.get(*name).map(|text| text.trim()).filter(|text| !text.is_empty()) {
                    values.add(setting.key, value, Origin::Env(name));
                }
            }
        }
        if let Some(path) = config {
            values.take_file(path)?;
        }
        values.settle()
    }
}

/// Core's secrets have no business here.
fn forbid(vars: &BTreeMap<String, String>) -> Result<(), Fault> {
    const FORBIDDEN: [&str; 3] = ["NYLORUN_DATABASE_URL", "NYLORUN_GATES_TOKEN", "NYLORUN_KEYS_URL"];
    let set = vars.iter().find(|(name, value)| {
        (FORBIDDEN.contains(&name.as_str()) || name.starts_with("NYLORUN_RESTATE_"))
            && !value.trim().is_empty()
    });
    let Some((name, _)) = set else { return Ok(()) };
    let message = format!("{name} is set, and a harness must not have it: it runs what models decide");
    Err(Fault::new(exit::USAGE, "setting-forbidden", message)
        .fix(format!("remove {name} from this process's environment; core alone needs it")))
}

fn missing(what: &str, fix: &str) -> Fault {
    Fault::new(exit::USAGE, "setting-missing", format!("a harness needs {what}")).fix(fix)
}

#[derive(Default)]
struct Values(BTreeMap<&'static str, (String, Origin)>);

impl Values {
    fn add(&mut self, key: &'static str, value: &str, origin: Origin) {
        self.0.entry(key).or_insert_with(|| (value.to_owned(), origin));
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
                why: "it must be a string or a number".to_owned(),
            })?;
            self.add(setting.key, &value, Origin::File(path.to_owned()));
        }
        Ok(())
    }

    fn get<T>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, SettingsError> {
        let Some((value, origin)) = self.0.get(key) else { return Ok(None) };
        parse(value).map(Some).map_err(|why| SettingsError::Malformed { place: origin.to_string(), why })
    }

    fn settle(self) -> Result<HarnessSettings, Fault> {
        let number = |text: &str, least: u64, most: u64| {
            text.parse::<u64>()
                .ok()
                .filter(|n| (least..=most).contains(n))
                .ok_or_else(|| format!("`{text}` is not a whole number from {least} to {most}"))
        };
        let url = self.get("url", url)?.ok_or_else(|| {
            missing(
                "the URL of core's harness listener",
                "say --url ws://HOST:4200, or set NYLORUN_HARNESS_URL",
            )
        })?;
        let given = self.get("token", token)?;
        let token = match (self.get("token-file", |text| Ok(PathBuf::from(text)))?, given) {
            (Some(path), _) => Token::File(path),
            (None, Some(token)) => Token::Given(token),
            (None, None) => {
                return Err(missing(
                    "the token that core expects",
                    "set NYLORUN_HARNESS_TOKEN to what core has, or name a file with --token-file",
                ));
            }
        };
        // One that is malformed from the start is a mistake; later ones are waited out.
        token
            .read()
            .map_err(|why| SettingsError::Malformed { place: "the harness token".to_owned(), why })?;
        let max_runs = self.get("max-runs", |text| number(text, 1, MOST_RUNS as u64))?;
        let root = self.get("root", absolute)?;
        let sandbox = self.get("sandbox", Preference::from_name)?.unwrap_or_default();
        let given = |text: &str| Ok(text.to_owned());
        let docker = DockerMeans::of(self.get("docker-host", given)?, self.get("sandbox-image", given)?);
        let health_port = self.get("health-port", |text| number(text, 0, u64::from(u16::MAX)))?;
        let log_filter = self.get("log-filter", |text| {
            check_filter(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
        })?;
        Ok(HarnessSettings {
            max_runs: max_runs.and_then(|n| usize::try_from(n).ok()).unwrap_or(MAX_RUNS),
            root: root.or_else(|| Some(PathBuf::from(ROOT)).filter(|root| root.is_dir())),
            sandbox,
            docker,
            health_port: health_port.and_then(|n| u16::try_from(n).ok()).unwrap_or(HEALTH_PORT),
            log: self.get("log", str::parse)?,
            log_filter: log_filter.unwrap_or_else(|| "info,actix_server=warn".to_owned()),
            effective: self.effective(&url),
            url,
            token,
        })
    }

    fn effective(&self, url: &str) -> Vec<Effective> {
        let row = |setting: &Setting| {
            let set = self.0.get(setting.key);
            let value = match (setting.key, set) {
                ("url", _) => url.to_owned(),
                ("token", Some(_)) => "****".to_owned(),
                (_, Some((value, _))) => value.clone(),
                (_, None) => setting.default.to_owned(),
            };
            let origin = set.map_or(Origin::Default, |(_, origin)| origin.clone()).to_string();
            Effective { key: setting.key, value, origin }
        };
        SETTINGS.iter().map(row).collect()
    }
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(format!("`{text}` is no absolute path")) }
}

/// The listener's URL; one without a path gets the API's.
fn url(text: &str) -> Result<String, String> {
    let mut parsed = reqwest::Url::parse(text).map_err(|error| format!("it is not a URL: {error}"))?;
    if !matches!(parsed.scheme(), "ws" | "wss") || parsed.host_str().is_none() {
        return Err("it must be a ws:// or wss:// URL".to_owned());
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        // Not shown: it may be a secret.
        return Err("it must not hold a name or a password; the token has a setting of its own".to_owned());
    }
    if matches!(parsed.path(), "" | "/") {
        parsed.set_path(API_PATH);
    }
    parsed.set_fragment(None);
    Ok(parsed.to_string())
}

#[cfg(test)]
mod tests;
