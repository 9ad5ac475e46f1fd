//! Which Runtime a command speaks to (spec: engine, sections 10.1 and 11): `--url` and `--key`, else
//! `NYLORUN_RUNTIME_URL` and `NYLORUN_SERVER_KEY`, else the Project link upwards from here, else the home.
//! Sources never mix: half a pair is an error.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::fault::{Fault, exit};
use crate::host::home::{Home, LinkFile};

/// Where a target was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Flags.
    Flags,
    /// Variables.
    Environment,
    /// A `.nylorun` directory of a Project, or the home.
    Link(PathBuf),
}

/// A Runtime and the key to speak to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Base URL without a trailing slash.
    pub url: String,
    /// The bearer.
    pub key: SecretString,
    /// Which Host should answer.
    pub host_id: Option<String>,
    /// Where this was found.
    pub source: Source,
}

/// What the command line says about the target.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// `--url`.
    pub url: Option<String>,
    /// `--key`.
    pub key: Option<String>,
    /// `--home`.
    pub home: Option<PathBuf>,
}

impl Wanted {
    /// The home directory: the flag, else `NYLORUN_HOME`, else `~/.nylorun`.
    ///
    /// # Errors
    /// When there is none of them.
    pub fn home(&self) -> Result<Home, Fault> {
        if let Some(home) = self.home.clone().or_else(|| variable("NYLORUN_HOME").map(PathBuf::from)) {
            return Ok(Home::at(home));
        }
        let user = variable("HOME").ok_or_else(|| {
            Fault::new(exit::USAGE, "no-home", "there is no home directory").fix("set --home or NYLORUN_HOME")
        })?;
        Ok(Home::at(Path::new(&user).join(".nylorun")))
    }

    /// The Tenant API's target.
    ///
    /// # Errors
    /// When nothing names one, or half a pair does.
    pub fn tenant(&self) -> Result<Target, Fault> {
        if let Some(target) = pair(&self.url, "--url", &self.key, "--key", Source::Flags)? {
            return Ok(target);
        }
        if self.home.is_none() {
            let (url, key) = (variable("NYLORUN_RUNTIME_URL"), variable("NYLORUN_SERVER_KEY"));
            let names = ("NYLORUN_RUNTIME_URL", "NYLORUN_SERVER_KEY");
            if let Some(target) = pair(&url, names.0, &key, names.1, Source::Environment)? {
                return Ok(target);
            }
            if let Some(project) = project()? {
                return linked(&project);
            }
        }
        linked(&self.home()?)
    }

    /// The operator API's target.
    ///
    /// # Errors
    /// When nothing names one, or half a pair does.
    pub fn operator(&self) -> Result<Target, Fault> {
        if let Some(target) = pair(&self.url, "--url", &self.key, "--key", Source::Flags)? {
            return Ok(target);
        }
        if self.home.is_none() {
            let (url, key) = (variable("NYLORUN_ADMIN_URL"), variable("NYLORUN_ADMIN_KEY"));
            let names = ("NYLORUN_ADMIN_URL", "NYLORUN_ADMIN_KEY");
            if let Some(target) = pair(&url, names.0, &key, names.1, Source::Environment)? {
                return Ok(target);
            }
        }
        let home = self.home()?;
        let Some(link) = home.link()? else { return Err(not_linked(&home)) };
        let Some(key) = home.stored_admin_key()? else { return Err(not_linked(&home)) };
        Ok(Target {
            url: link.operator_url.unwrap_or(link.host_url),
            key,
            host_id: Some(link.host_id),
            source: Source::Link(home.root().to_owned()),
        })
    }
}

fn pair(
    url: &Option<String>,
    url_name: &str,
    key: &Option<String>,
    key_name: &str,
    source: Source,
) -> Result<Option<Target>, Fault> {
    let missing = |there: &str, missing: &str| {
        Fault::new(exit::USAGE, "connection_missing", format!("{there} is set and {missing} is not"))
            .fix(format!("set both {url_name} and {key_name}, or neither"))
    };
    match (url, key) {
        (Some(url), Some(key)) => {
            let parsed = reqwest::Url::parse(url).ok().filter(|u| matches!(u.scheme(), "http" | "https"));
            if parsed.is_none() {
                return Err(Fault::new(
                    exit::USAGE,
                    "connection_missing",
                    format!("{url_name} is not an http or https URL"),
                ));
            }
            let url = url.trim_end_matches('/').to_owned();
            Ok(Some(Target { url, key: SecretString::from(key.as_str()), host_id: None, source }))
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err(missing(url_name, key_name)),
        (None, Some(_)) => Err(missing(key_name, url_name)),
    }
}

fn linked(home: &Home) -> Result<Target, Fault> {
    let Some(LinkFile { host_url, host_id, .. }) = home.link()? else { return Err(not_linked(home)) };
    let Some(credentials) = home.stored_credentials()? else { return Err(not_linked(home)) };
    Ok(Target {
        url: host_url.trim_end_matches('/').to_owned(),
        key: credentials.application_key,
        host_id: Some(host_id),
        source: Source::Link(home.root().to_owned()),
    })
}

fn not_linked(home: &Home) -> Fault {
    Fault::new(
        exit::NOT_RUNNING,
        "connection_missing",
        format!("no Runtime is known: {} has no link to one", home.root().display()),
    )
    .fix("start one with `nylorun serve` (or `make run`), or set NYLORUN_RUNTIME_URL and NYLORUN_SERVER_KEY")
}

/// The nearest `.nylorun` directory upwards from here that is a link.
fn project() -> Result<Option<Home>, Fault> {
    let Ok(here) = std::env::current_dir() else { return Ok(None) };
    for directory in here.ancestors() {
        let home = Home::at(directory.join(".nylorun"));
        if home.link()?.is_some() {
            return Ok(Some(home));
        }
    }
    Ok(None)
}

/// A variable that is set and not blank.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}
