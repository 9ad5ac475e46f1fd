//! `nylorun doctor`: whether a Runtime can start and work here, and what is wrong when it cannot. Nothing has to run for
//! it, and nothing is changed.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use nylorun_actors::model::json::Json;
use serde_json::json;

use super::fault::{Fault, exit};
use super::out::Out;
use crate::host::listen;
use crate::host::settings::Settings;
use crate::sandbox::cgroups::Cgroups;
use crate::sandbox::choice::{Kind, Means, Preference, Selection, probe};
use crate::sandbox::helper;
use crate::store;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ok,
    /// It works, and something should be known.
    Warn,
    Fail,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

struct Check {
    name: &'static str,
    state: State,
    message: String,
    /// What to do.
    fix: Option<String>,
}

impl Check {
    fn new(name: &'static str, state: State, message: impl Into<String>) -> Self {
        Self { name, state, message: message.into(), fix: None }
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    fn json(&self) -> Json {
        json!({"name": self.name, "state": self.state.as_str(), "message": self.message, "fix": self.fix})
    }
}

/// Checks everything and tells it. The exit code is 1 when something is in the way.
///
/// # Errors
/// When the answer cannot be written.
pub async fn run(settings: &Settings, out: &Out) -> Result<u8, Fault> {
    let running = running(&settings.home);
    let mut checks = vec![
        versions(),
        home(&settings.home, running),
        database(&settings.database),
        port(settings, running),
    ];
    let sandbox = Sandbox::find(settings).await?;
    checks.push(sandbox.check());
    let failed = checks.iter().any(|check| check.state == State::Fail);
    if out.is_json() {
        out.json(&json!({
            "ok": !failed,
            "checks": checks.iter().map(Check::json).collect::<Vec<_>>(),
            "sandbox": sandbox.json(),
        }))?;
    } else {
        for check in &checks {
            out.line(&format!("{:<5} {:<10} {}", check.state.as_str(), check.name, check.message))?;
            if let Some(fix) = &check.fix {
                out.line(&format!("{:<16} → {fix}", ""))?;
            }
        }
        out.line("")?;
        sandbox.print(out)?;
    }
    Ok(if failed { exit::FAILED } else { exit::OK })
}

fn versions() -> Check {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let message = format!(
        "nylorun {}, protocol {}, Linux {} on {}",
        env!("CARGO_PKG_VERSION"),
        crate::api::protocol::MAX,
        kernel.trim(),
        std::env::consts::ARCH
    );
    Check::new("version", State::Ok, message)
}

/// The process that has the home, if one has. Nothing is written.
fn running(home: &Path) -> Option<Option<u32>> {
    let file = File::open(home.join("lock")).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            let text = std::fs::read_to_string(home.join("lock")).unwrap_or_default();
            Some(text.trim().parse().ok())
        }
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

fn home(home: &Path, running: Option<Option<u32>>) -> Check {
    let shown = home.display();
    // One that is not there is made by the first start, below what is there.
    let there: PathBuf = home.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/")).to_owned();
    if let Err(error) = access(&there, AccessFlags::W_OK | AccessFlags::X_OK) {
        return Check::new("home", State::Fail, format!("{} cannot be written: {error}", there.display()))
            .fix("give it to this user, or choose another with --home DIR or NYLORUN_HOME");
    }
    if home.exists() && !home.is_dir() {
        return Check::new("home", State::Fail, format!("{shown} is no directory"))
            .fix("choose another with --home DIR");
    }
    let message = match running {
        Some(Some(pid)) => format!("{shown}, in use by process {pid}"),
        Some(None) => format!("{shown}, in use"),
        None if home.exists() => format!("{shown} can be written"),
        None => format!("{shown} will be made by the first start"),
    };
    Check::new("home", State::Ok, message)
}

fn database(path: &Path) -> Check {
    let shown = path.display();
    match store::inspect(path) {
        Ok(None) => Check::new("database", State::Ok, format!("{shown} will be made by the first start")),
        Ok(Some(found)) if found.applied < found.known => Check::new(
            "database",
            State::Warn,
            format!(
                "{shown} can be read; schema {} of {}: the next start brings it up to date",
                found.applied, found.known
            ),
        )
        .fix("keep a copy of it before"),
        Ok(Some(found)) => {
            Check::new("database", State::Ok, format!("{shown} can be read; schema {}", found.applied))
        }
        Err(error) => Check::new("database", State::Fail, error.to_string()),
    }
}

fn port(settings: &Settings, running: Option<Option<u32>>) -> Check {
    let name = settings.listen.to_string();
    match listen::bind(&settings.listen, settings.allow_non_loopback, &settings.allowed_hosts) {
        Ok(_) => Check::new("port", State::Ok, format!("{name} is free")),
        Err(listen::ListenError::InUse { .. }) if running.is_some() => {
            Check::new("port", State::Ok, format!("{name} is in use, and so is the home"))
        }
        Err(error) => Check::new("port", State::Fail, error.to_string())
            .fix("choose another with --listen HOST:PORT; port 0 picks a free one"),
    }
}

/// What can keep the commands of sandboxes apart here.
struct Sandbox {
    preference: Preference,
    chosen: Selection,
    backends: Vec<Backend>,
    cgroups: Result<&'static str, String>,
}

struct Backend {
    kind: Kind,
    found: Result<crate::sandbox::backend::Works, String>,
}

impl Sandbox {
    async fn find(settings: &Settings) -> Result<Self, Fault> {
        let program = helper::program().map_err(|error| {
            Fault::new(exit::FAILED, "runtime", format!("this program cannot be found: {error}"))
        })?;
        // Not the Runtime's own: it may be running, and what it holds is not looked at.
        let root = std::env::temp_dir().join(format!("nylorun-doctor-{}", std::process::id()));
        let means = Means { docker: settings.docker.clone(), ..Means::new(program, root.clone()) };
        let chosen = Selection::make(settings.sandbox, &means).await;
        if let Some(backend) = &chosen.backend {
            backend.close().await;
        }
        let mut backends = Vec::new();
        for kind in Kind::ALL {
            let found = match probe(kind, &means).await {
                Ok((backend, works)) => {
                    backend.close().await;
                    Ok(works)
                }
                Err(why) => Err(why),
            };
            backends.push(Backend { kind, found });
        }
        // Empty, if a trial has made it.
        let _ = std::fs::remove_dir(&root);
        let instance = format!("doctor-{}", std::process::id());
        let cgroups = Cgroups::find(&instance);
        if let Ok(groups) = &cgroups {
            groups.forget().await;
        }
        let cgroups = cgroups.map(|groups| groups.name());
        Ok(Self { preference: settings.sandbox, chosen, backends, cgroups })
    }

    fn check(&self) -> Check {
        let reason = self.chosen.report.reason.clone();
        match &self.chosen.backend {
            Some(backend) if backend.kind().warning().is_some() => Check::new("sandbox", State::Warn, reason)
                .fix("choose `auto`, unless everything that commands can reach is yours to lose"),
            Some(_) => Check::new("sandbox", State::Ok, reason),
            None => Check::new("sandbox", State::Warn, format!("sandbox tools will fail: {reason}")).fix(
                "let ordinary users make namespaces, use a kernel with Landlock (ABI 6), or start a Docker daemon",
            ),
        }
    }

    fn json(&self) -> Json {
        let backends = self.backends.iter().map(|backend| {
            let works = backend.found.as_ref().ok();
            let limits = works.map(|works| {
                works
                    .limits
                    .iter()
                    .map(|(what, how)| ((*what).to_owned(), json!(how)))
                    .collect::<serde_json::Map<_, _>>()
            });
            json!({
                "name": backend.kind.name(),
                "available": works.is_some(),
                "reason": backend.found.as_ref().err(),
                "version": works.and_then(|works| works.version.clone()),
                "limits": limits,
                "warning": backend.kind.warning(),
            })
        });
        let preference = match self.preference {
            Preference::Auto => "auto",
            Preference::Only(kind) => kind.name(),
        };
        json!({
            "preference": preference,
            "backend": self.chosen.backend.as_ref().map(|backend| backend.kind().name()),
            "reason": self.chosen.report.reason,
            "backends": backends.collect::<Vec<_>>(),
            "cgroups": {"available": self.cgroups.is_ok(), "version": self.cgroups.as_ref().ok(), "reason": self.cgroups.as_ref().err()},
        })
    }

    fn print(&self, out: &Out) -> Result<(), Fault> {
        let chosen = self.chosen.backend.as_ref().map(|backend| backend.kind());
        let rows: Vec<Vec<String>> = self
            .backends
            .iter()
            .map(|backend| {
                let (works, more) = match &backend.found {
                    Ok(works) => {
                        let version = works.version.as_ref().map(|v| format!("{v}; ")).unwrap_or_default();
                        ("yes", format!("{version}{}", works.limits_in_words()))
                    }
                    Err(why) => ("no", why.clone()),
                };
                let used = if chosen == Some(backend.kind) { "used" } else { "" };
                vec![backend.kind.name().to_owned(), works.to_owned(), used.to_owned(), more]
            })
            .collect();
        out.table(&["BACKEND", "WORKS", "", "LIMITS, OR WHY NOT"], &rows)?;
        if let Err(why) = &self.cgroups {
            out.line(&format!("control groups cannot be used: {why}"))?;
        }
        Ok(())
    }
}
