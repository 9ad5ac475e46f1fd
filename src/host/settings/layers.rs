//! Laying the sources of settings over each other, and reading each value as what it is meant to be.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nylorun_actors::model::ids::is_ulid_id;
use nylorun_actors::model::manifest::parse_duration_ms;
use nylorun_actors::tenant::{HarnessMode, ModelOnCrash};

use super::{Effective, Listen, Origin, SETTINGS, Settings, SettingsError, parse_port};
use crate::blobs::S3Settings;
use crate::gates::OutboundPolicy;
use crate::harness_api::HarnessTokens;
use crate::sandbox::choice::Preference;
use crate::sandbox::docker::DockerMeans;
use crate::telemetry::{LogFormat, check_filter};

/// Values of all layers; the first one to set a key wins.
pub(super) struct Layers<'a> {
    values: BTreeMap<&'static str, (String, Origin)>,
    env: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Layers<'a> {
    pub(super) fn new(env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { values: BTreeMap::new(), env }
    }

    fn var(&self, name: &str) -> Option<String> {
        (self.env)(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn add(&mut self, key: &'static str, value: String, origin: Origin) {
        self.values.entry(key).or_insert((value, origin));
    }

    pub(super) fn take_flags(&mut self, flags: &[(&'static str, String)]) {
        for (key, value) in flags {
            self.add(key, value.clone(), Origin::Flag(key));
        }
    }

    pub(super) fn take_env(&mut self) -> Result<(), SettingsError> {
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
                    let off = setting.key == "operator-listen";
                    let wanted = if off { port.clone() } else { host.or(port.clone()) };
                    if wanted.is_none() {
                        continue;
                    }
                    let host = self.var(host_name).unwrap_or_else(|| "0.0.0.0".to_owned());
                    let port = match port {
                        Some(text) => parse_port(&text).map_err(|why| SettingsError::Malformed {
                            place: (*port_name).to_owned(),
                            why,
                        })?,
                        None if setting.key == "harness-listen" => HARNESS_PORT,
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

    pub(super) fn take_file(&mut self, path: &Path) -> Result<(), SettingsError> {
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

    pub(super) fn home(&self) -> Result<PathBuf, SettingsError> {
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
        self.number_from(key, 1)
    }

    fn number_from<T: FromStr + PartialOrd + From<u8>>(
        &self,
        key: &'static str,
        least: u8,
    ) -> Result<Option<T>, SettingsError> {
        self.get(key, |text| {
            text.parse::<T>()
                .ok()
                .filter(|number| *number >= T::from(least))
                .ok_or_else(|| format!("`{text}` is not a whole number from {least} on"))
        })
    }

    /// A duration such as `90m`, in milliseconds.
    fn duration(&self, key: &'static str) -> Result<Option<i64>, SettingsError> {
        self.get(key, |text| {
            parse_duration_ms(text)
                .and_then(|ms| i64::try_from(ms).ok())
                .ok_or_else(|| format!("`{text}` is not a duration such as `90m` or `24h`"))
        })
    }

    /// The S3 service of artifacts, if one is named.
    fn object_store(&self) -> Result<Option<S3Settings>, SettingsError> {
        let Some(endpoint) = self.get("object-store-endpoint", url)? else { return Ok(None) };
        let origin = self.values.get("object-store-endpoint").map_or(&Origin::Default, |(_, origin)| origin);
        let refuse = |why: &str| {
            let place = place("object-store-endpoint", origin);
            Err(SettingsError::Malformed { place, why: why.to_owned() })
        };
        let text = |key| self.get(key, |text| Ok(text.to_owned()));
        let keys = (text("object-store-access-key")?, text("object-store-secret-key")?);
        let (Some(access_key), Some(secret_key)) = keys else {
            return refuse("it needs object-store-access-key and object-store-secret-key beside it");
        };
        Ok(Some(S3Settings {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            access_key: access_key.into(),
            secret_key: secret_key.into(),
            bucket: text("object-store-bucket")?.unwrap_or_else(|| "nylorun".to_owned()),
            region: text("object-store-region")?.unwrap_or_else(|| "us-east-1".to_owned()),
        }))
    }

    pub(super) fn settle(self) -> Result<Settings, SettingsError> {
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
        let (harness, harness_listen) = self.harness(&listen, operator_listen.as_ref())?;
        let mut settings = Settings {
            harness,
            harness_listen,
            harness_allowed_hosts: self.get("harness-allowed-hosts", hosts)?.unwrap_or_default(),
            harness_tokens: self.get("harness-token", |text| {
                HarnessTokens::from_str(text).map_err(|error| error.to_string())
            })?,
            harness_connections: self.number("harness-connections")?,
            sandbox: self.get("sandbox", Preference::from_name)?.unwrap_or_default(),
            docker: DockerMeans::of(self.get("docker-host", given)?, self.get("sandbox-image", given)?),
            object_store: self.object_store()?,
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
                .unwrap_or_else(|| "info,actix_server=warn,object_store=warn".to_owned()),
            model_on_crash: self
                .get("model-on-crash", |text| match text {
                    "repeat" => Ok(ModelOnCrash::Repeat),
                    "uncertain" => Ok(ModelOnCrash::Uncertain),
                    other => Err(format!("`{other}` is neither `repeat` nor `uncertain`")),
                })?
                .unwrap_or_default(),
            outbound: self.outbound()?,
            owner_lease_ms: self.number("owner-lease-ms")?,
            advance_deadline_ms: self.number("advance-deadline-ms")?,
            abort_grace_ms: self.number("abort-grace-ms")?,
            rollover_steps: self.number("rollover-steps")?,
            rollover_ms: self.number("rollover-ms")?,
            sandbox_retention_ms: self.duration("sandbox-retention")?,
            sweep_interval_ms: self.number("sweep-interval-ms")?,
            action_hold_ms: self.number_from("action-hold-ms", 0)?,
            action_lease_ms: self.number("action-lease-ms")?,
            delivery_max_age_ms: self.duration("delivery-max-age")?,
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

    /// Where runs are executed, and where harnesses connect: never on the port of another listener.
    fn harness(
        &self,
        listen: &Listen,
        operator: Option<&Listen>,
    ) -> Result<(HarnessMode, Listen), SettingsError> {
        let mode = self.get("harness", |text| match text {
            "in-process" => Ok(HarnessMode::InProcess),
            "remote" => Ok(HarnessMode::Remote),
            other => Err(format!("`{other}` is neither `in-process` nor `remote`")),
        })?;
        let mode = mode.unwrap_or_default();
        let container = self.var("NYLORUN_HARNESS_ALLOWED_HOSTS").is_some();
        let default = if container { "0.0.0.0" } else { "127.0.0.1" };
        let harness = self
            .get("harness-listen", Listen::from_str)?
            .unwrap_or_else(|| Listen { host: default.to_owned(), port: HARNESS_PORT });
        let taken = [Some(listen), operator].into_iter().flatten().any(|other| other.port == harness.port);
        if mode == HarnessMode::Remote && harness.port != 0 && taken {
            let origin = self.values.get("harness-listen").map_or(&Origin::Default, |(_, origin)| origin);
            return Err(SettingsError::Malformed {
                place: place("harness-listen", origin),
                why: "the harnesses' port must differ from the API's and the operator's".to_owned(),
            });
        }
        Ok((mode, harness))
    }

    /// Where Action deliveries may go.
    fn outbound(&self) -> Result<OutboundPolicy, SettingsError> {
        let allowed = |key| {
            let choice = self.get(key, |text| match text {
                "allow" => Ok(true),
                "refuse" => Ok(false),
                other => Err(format!("`{other}` is neither `allow` nor `refuse`")),
            });
            Ok::<_, SettingsError>(choice?.unwrap_or(true))
        };
        let docker_host = self.get("endpoint-loopback", |text| match text {
            "docker-host" => Ok(true),
            other => Err(format!("`{other}` is not `docker-host`")),
        })?;
        let policy = OutboundPolicy {
            http: allowed("endpoint-http")?,
            private: allowed("endpoint-private")?,
            docker_host: docker_host.unwrap_or(false),
        };
        if policy.docker_host && !policy.private {
            let origin = self.values.get("endpoint-loopback").map_or(&Origin::Default, |(_, origin)| origin);
            return Err(SettingsError::Malformed {
                place: place("endpoint-loopback", origin),
                why: "the machine that runs a container has a private address, which `endpoint-private` refuses"
                    .to_owned(),
            });
        }
        Ok(policy)
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
                    "harness-listen" => settings.harness_listen.to_string(),
                    // A secret is not shown, not in part either.
                    "harness-token" | "object-store-access-key" | "object-store-secret-key"
                        if set.is_some() =>
                    {
                        "****".to_owned()
                    }
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
const HARNESS_PORT: u16 = 4200;

fn place(key: &str, origin: &Origin) -> String {
    match origin {
        Origin::Flag(key) => format!("--{key}"),
        Origin::Env(name) => (*name).to_owned(),
        Origin::File(path) => format!("`{key}` in {}", path.display()),
        Origin::Default => format!("the default of `{key}`"),
    }
}

/// A value of a settings file as text.
pub(crate) fn file_text(value: &toml::Value) -> Option<String> {
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

fn given(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
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
pub(super) fn mask(value: &str) -> String {
    let Some((scheme, rest)) = value.split_once("://") else { return value.to_owned() };
    let (authority, tail) = rest.split_once('/').map_or((rest, None), |(a, t)| (a, Some(t)));
    let Some((_, host)) = authority.rsplit_once('@') else { return value.to_owned() };
    match tail {
        Some(tail) => format!("{scheme}://****@{host}/{tail}"),
        None => format!("{scheme}://****@{host}"),
    }
}
