//! Which backend is used: what an operator asked for, what works here, and what is said of it (spec: sandbox, section 12).

use std::path::PathBuf;
use std::sync::Arc;

use nylorun_actors::model::workspace::{Probe, WorkspaceReport};
use tokio::sync::OnceCell;

use super::backend::{Backend, Isolation, Works};
use super::docker::{Docker, DockerMeans};
use super::job::{Cage, Limits};
use super::local::Local;
use super::usage::Usages;
use crate::gates::egress::Egress;

/// The backends that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Namespaces of its own and a filter over system calls.
    Namespaces,
    /// Landlock and a filter over system calls.
    Landlock,
    /// Containers of a Docker daemon.
    Docker,
    /// Limits alone: whoever runs a command runs it as this process. Only by name.
    Process,
}

/// What backends are made of.
#[derive(Clone, Debug)]
pub struct Means {
    /// The program that helpers are: this one.
    pub program: PathBuf,
    /// What a workspace may use whose sandbox does not say.
    pub limits: Limits,
    /// The folder of the workspaces. What is left behind in the system is told by it to be ours.
    pub root: PathBuf,
    /// What containers are made of.
    pub docker: DockerMeans,
    /// The way to the hosts that sandboxes may reach.
    pub egress: Egress,
    /// What workspaces were found to have on disk.
    pub usages: Usages,
}

impl Means {
    /// Helpers of a program for workspaces in a folder; everything else as it usually is.
    #[must_use]
    pub fn new(program: PathBuf, root: PathBuf) -> Self {
        let (limits, docker, egress) = (Limits::default(), DockerMeans::default(), Egress::default());
        Self { program, limits, root, docker, egress, usages: Usages::default() }
    }
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Namespaces, Self::Landlock, Self::Docker, Self::Process];

    /// The order in which `auto` tries them, strongest first.
    ///
    /// Namespaces before Docker, though a container has as much between it and the host: a command starts ten times
    /// faster, nothing of it is root, and no daemon of root's is asked. Landlock after both: what it does not restrict
    /// (looking whether a path exists) commands can do. Never `process`, which keeps nothing apart.
    pub const AUTO: [Self; 3] = [Self::Namespaces, Self::Docker, Self::Landlock];

    /// The name that operators know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Landlock => "landlock",
            Self::Docker => "docker",
            Self::Process => "process",
        }
    }

    /// What an operator must know who has chosen it.
    #[must_use]
    pub fn warning(self) -> Option<&'static str> {
        (self == Self::Process).then_some(
            "the sandbox backend `process` keeps nothing apart: a command can do whatever this process can, read its \
             keys and its database, and reach its network",
        )
    }

    /// Makes it, or says why this program cannot.
    ///
    /// # Errors
    /// In words.
    pub fn make(self, means: &Means) -> Result<Arc<dyn Backend>, String> {
        Ok(match self {
            Self::Namespaces => Arc::new(Local::new(self, Cage::Namespaces, means)),
            Self::Landlock => Arc::new(Local::new(self, Cage::Landlock, means)),
            Self::Process => Arc::new(Local::new(self, Cage::None, means)),
            Self::Docker => Arc::new(Docker::new(means.clone())),
        })
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preference {
    /// The strongest that works here.
    #[default]
    Auto,
    /// This one, or none.
    Only(Kind),
}

impl Preference {
    /// The preference of a name.
    ///
    /// # Errors
    /// The names that there are.
    pub fn from_name(name: &str) -> Result<Self, String> {
        match name.trim().to_lowercase().as_str() {
            "" | "auto" | "virtual" => Ok(Self::Auto),
            other => Kind::ALL.into_iter().find(|kind| kind.name() == other).map(Self::Only).ok_or_else(|| {
                format!(
                    "{other:?} is no sandbox backend; there are auto, virtual, namespaces, landlock, docker and process"
                )
            }),
        }
    }

    /// What is tried, in order.
    #[must_use]
    pub fn kinds(self) -> Vec<Kind> {
        match self {
            Self::Auto => Kind::AUTO.to_vec(),
            Self::Only(kind) => vec![kind],
        }
    }
}

/// Which backend is used, and why.
#[derive(Clone)]
pub struct Selection {
    /// The one.
    pub backend: Option<Arc<dyn Backend>>,
    /// What is said of it.
    pub report: WorkspaceReport,
}

impl Selection {
    /// Tries what is asked for, in order.
    pub async fn make(preference: Preference, means: &Means) -> Self {
        let (mut chosen, mut probes, mut skipped) = (None, Vec::new(), Vec::new());
        for kind in preference.kinds() {
            match probe(kind, means).await {
                Ok((backend, works)) => {
                    let limits = works.limits_in_words();
                    probes.push(of_probe(
                        Ok((backend.isolation(), &works)),
                        format!("{}: {limits}", kind.name()),
                    ));
                    chosen = Some((backend, limits));
                    break;
                }
                Err(reason) => {
                    let reason = format!("{}: {reason}", kind.name());
                    probes.push(of_probe(Err(()), reason.clone()));
                    skipped.push(reason);
                }
            }
        }
        let skipped = skipped.join("; ");
        let reason = match &chosen {
            Some((backend, limits)) => {
                let warning =
                    backend.kind().warning().map(|warning| format!("; {warning}")).unwrap_or_default();
                let not = if skipped.is_empty() { String::new() } else { format!("; not {skipped}") };
                format!("{} works here, with {limits}{warning}{not}", backend.kind().name())
            }
            None => format!("no backend works here: {skipped}"),
        };
        let backend = chosen.map(|(backend, _)| backend);
        let report = WorkspaceReport {
            preference: if preference == Preference::Auto { "auto" } else { "virtual" }.to_owned(),
            backend: backend.as_ref().map(|_| "virtual".to_owned()),
            isolation: backend.as_ref().map(|backend| backend.isolation().as_str().to_owned()),
            reason,
            probes,
            default_image: means.docker.image.clone(),
        };
        Self { backend, report }
    }
}

/// Makes a backend and tries it.
///
/// # Errors
/// In words: it does not work here.
pub async fn probe(kind: Kind, means: &Means) -> Result<(Arc<dyn Backend>, Works), String> {
    let backend = kind.make(means)?;
    let works = backend.probe().await?;
    Ok((backend, works))
}

fn of_probe(found: Result<(Isolation, &Works), ()>, reason: String) -> Probe {
    Probe {
        name: "virtual".to_owned(),
        available: found.is_ok(),
        isolation: found.map_or(Isolation::Process, |(isolation, _)| isolation).as_str().to_owned(),
        reason: Some(reason),
        version: found.ok().and_then(|(_, works)| works.version.clone()),
    }
}

/// What is asked for and what came of it: tried when it is asked for first, then for as long as the process lives.
pub struct Choice {
    preference: Preference,
    means: Means,
    selection: OnceCell<Selection>,
}

impl Choice {
    /// Nothing is tried yet.
    #[must_use]
    pub fn new(preference: Preference, means: Means) -> Self {
        Self { preference, means, selection: OnceCell::new() }
    }

    /// What workspaces may use whose sandbox does not say.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.means.limits
    }

    /// What came of it, if it was tried.
    #[must_use]
    pub fn made(&self) -> Option<&Selection> {
        self.selection.get()
    }

    /// What came of it.
    pub async fn selection(&self) -> &Selection {
        self.selection.get_or_init(|| Selection::make(self.preference, &self.means)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_that_keeps_nothing_apart_is_had_only_by_its_name() {
        assert_eq!(Preference::from_name(" Auto "), Ok(Preference::Auto));
        assert_eq!(Preference::from_name("virtual"), Ok(Preference::Auto));
        assert!(!Preference::Auto.kinds().contains(&Kind::Process));
        for kind in Kind::ALL {
            assert_eq!(Preference::from_name(kind.name()), Ok(Preference::Only(kind)));
            assert_eq!(Preference::Only(kind).kinds(), [kind], "an explicit choice never falls back");
        }
        assert!(Preference::from_name("gvisor").unwrap_err().contains("namespaces"));
        assert!(Kind::Process.warning().is_some_and(|warning| warning.contains("process")));
    }
}
