//! The backends: how commands of a workspace are kept apart, which of them works here, and what each cannot do
//! (spec: sandbox, section 12; DESIGN.md, section 8).
//!
//! On the wire every one of ours is `virtual` with the isolation `process`: clients and harnesses know no other names.

use std::time::Duration;

use nylorun_actors::model::json::Json;
use nylorun_actors::model::manifest::{parse_duration_ms, parse_size_bytes};
use nylorun_actors::model::workspace::{DEFAULT_IMAGE, Probe, WorkspaceReport};
use tokio::sync::watch;

use super::job::{Cage, Job, Limits, Work};
use super::limits::{CPUS, DISK_BYTES, IDLE_MS, MEMORY_BYTES, OPEN_FILES, PROCESSES};
use super::run::Runner;

/// The user on the host whom helpers of root become. Nobody else should have it.
pub const HOST_UID: u32 = 64_533;

/// How long a probe may take.
const PROBE_WAIT: Duration = Duration::from_secs(10);

/// A way to keep commands apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Namespaces and a filter over system calls.
    Namespaces,
    /// Limits alone: whoever runs a command runs it as this process. Only by name.
    Process,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preference {
    /// Whatever keeps apart and works here.
    #[default]
    Auto,
    /// This one, or none.
    Only(Backend),
}

impl Preference {
    /// The preference of a name.
    ///
    /// # Errors
    /// The names that there are.
    pub fn from_name(name: &str) -> Result<Self, String> {
        match name.trim().to_lowercase().as_str() {
            "" | "auto" | "virtual" => Ok(Self::Auto),
            "namespaces" => Ok(Self::Only(Backend::Namespaces)),
            "process" => Ok(Self::Only(Backend::Process)),
            other => Err(format!(
                "{other:?} is no sandbox backend; there are auto, virtual, namespaces and process"
            )),
        }
    }

    fn backends(self) -> Vec<Backend> {
        match self {
            Self::Auto => vec![Backend::Namespaces],
            Self::Only(backend) => vec![backend],
        }
    }
}

impl Backend {
    /// The name that operators know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Process => "process",
        }
    }

    /// How its helpers are kept apart.
    #[must_use]
    pub fn cage(self) -> Cage {
        match self {
            Self::Namespaces => Cage::Namespaces,
            Self::Process => Cage::None,
        }
    }

    /// Whether it works here.
    async fn probe(self, runner: &Runner) -> Result<(), String> {
        let folder = Folder::make().map_err(|error| error.to_string())?;
        let job = Job {
            cage: self.cage(),
            folder: folder.0.clone(),
            host_uid: HOST_UID,
            limits: limits(&Json::Null),
            work: Work::Probe,
        };
        let (_never, sign) = watch::channel(false);
        let answer = runner.answer(&job, PROBE_WAIT, sign).await;
        answer.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// A folder for a probe that goes with it.
struct Folder(std::path::PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Nobody but the probe has used it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn make() -> std::io::Result<Self> {
        let name = format!("nylorun-probe-{}-{:08x}", std::process::id(), rand::random::<u32>());
        let folder = Self(std::env::temp_dir().join(name));
        for name in ["workspace", "tmp"] {
            std::fs::create_dir_all(folder.0.join(name))?;
        }
        Ok(folder)
    }
}

/// Which backend is used, and why. Chosen once, for as long as the process lives.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The one.
    pub backend: Option<Backend>,
    /// What is said of it.
    pub report: WorkspaceReport,
}

impl Selection {
    /// Tries what is asked for, in order.
    pub async fn make(preference: Preference, runner: &Runner) -> Self {
        let (mut chosen, mut probes, mut skipped) = (None, Vec::new(), Vec::new());
        for backend in preference.backends() {
            let probed = backend.probe(runner).await;
            let reason = probed.as_ref().err().cloned();
            probes.push(Probe {
                name: "virtual".to_owned(),
                available: probed.is_ok(),
                isolation: "process".to_owned(),
                reason: reason.clone(),
                version: None,
            });
            match reason {
                None => {
                    chosen = Some(backend);
                    break;
                }
                Some(reason) => skipped.push(format!("{}: {reason}", backend.name())),
            }
        }
        let reason = match chosen {
            Some(backend) if skipped.is_empty() => format!("{} works here", backend.name()),
            Some(backend) => format!("{} works here; not {}", backend.name(), skipped.join("; ")),
            None => format!("no backend works here: {}", skipped.join("; ")),
        };
        let report = WorkspaceReport {
            preference: if preference == Preference::Auto { "auto" } else { "virtual" }.to_owned(),
            backend: chosen.map(|_| "virtual".to_owned()),
            isolation: chosen.map(|_| "process".to_owned()),
            reason,
            probes,
            default_image: DEFAULT_IMAGE.to_owned(),
        };
        Self { backend: chosen, report }
    }
}

/// Why a spec cannot be had with our backends: they have no network, and no images.
#[must_use]
pub fn unmet(spec: &Json) -> Option<String> {
    let network = &spec["network"];
    let allows = network["allow"].as_array().is_some_and(|hosts| !hosts.is_empty());
    let preset = network["preset"].as_str().is_some_and(|preset| preset != "none");
    (allows || preset).then(|| "The sandbox asks for a network, and this backend has none.".to_owned())
}

/// What commands of a spec may use.
#[must_use]
pub fn limits(spec: &Json) -> Limits {
    let resources = &spec["resources"];
    let cpus = resources["cpus"].as_u64().and_then(|cpus| u32::try_from(cpus).ok()).filter(|cpus| *cpus > 0);
    Limits {
        cpus: cpus.unwrap_or(CPUS),
        memory_bytes: resources["memory"].as_str().and_then(parse_size_bytes).unwrap_or(MEMORY_BYTES),
        processes: PROCESSES,
        open_files: OPEN_FILES,
        file_bytes: DISK_BYTES,
    }
}

/// Milliseconds without use after which a workspace of a spec stops.
#[must_use]
pub fn idle_ms(spec: &Json) -> u64 {
    spec["idle"].as_str().and_then(parse_duration_ms).unwrap_or(IDLE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_spec_with_a_network_is_not_met_and_limits_are_its_own_or_the_defaults() {
        for met in [json!({}), json!(null), json!({"network": {"preset": "none", "allow": []}})] {
            assert_eq!(unmet(&met), None, "{met}");
        }
        for not in [json!({"network": {"preset": "dev"}}), json!({"network": {"allow": ["a.example"]}})] {
            assert!(unmet(&not).is_some(), "{not}");
        }
        let spec = json!({"resources": {"cpus": 3, "memory": "256MiB"}, "idle": "1m"});
        assert_eq!((limits(&spec).cpus, limits(&spec).memory_bytes, idle_ms(&spec)), (3, 256 << 20, 60_000));
        assert_eq!((limits(&json!({})).cpus, idle_ms(&json!({}))), (CPUS, IDLE_MS));
    }

    #[test]
    fn a_backend_that_keeps_nothing_apart_is_had_only_by_its_name() {
        assert_eq!(Preference::from_name(" Auto "), Ok(Preference::Auto));
        assert_eq!(Preference::from_name("virtual"), Ok(Preference::Auto));
        assert!(!Preference::Auto.backends().contains(&Backend::Process));
        assert_eq!(Preference::from_name("process"), Ok(Preference::Only(Backend::Process)));
        assert!(Preference::from_name("docker").unwrap_err().contains("namespaces"));
    }
}
