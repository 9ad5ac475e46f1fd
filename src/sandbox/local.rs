//! The backends whose workspaces are served by helpers of this program on this machine: `namespaces`, `landlock` and
//! `process`. They differ in the cage that a helper builds around itself.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nylorun_actors::model::json::Json;
use nylorun_actors::model::workspace::ToolOutcome;
use tokio::sync::watch;

use super::backend::{Backend, HOST_UID, Space, Works, needs_network};
use super::cgroups::Cgroups;
use super::choice::{Kind, Means};
use super::family;
use super::folders;
use super::input::Input;
use super::job::{Answer, ByKernel, Cage, Ground, Job, Limits, Work};
use super::run::{Cancelled, Disk, Ran, RunError, Runner};
use super::usage::{Usage, Usages};
use super::way_out;
use crate::gates::egress::allow::Allow;

/// How long a probe may take.
const PROBE_WAIT: Duration = Duration::from_secs(10);
/// How long a workspace that is opened waits until it is known what it has on disk.
const COUNT_WAIT: Duration = Duration::from_millis(250);

/// A backend of helpers.
pub struct Local {
    kind: Kind,
    cage: Cage,
    means: Means,
    runner: Runner,
    /// What the kernel limits; looked for with the probe.
    groups: OnceLock<Result<Cgroups, String>>,
    usages: Usages,
}

impl Local {
    /// The one with this cage.
    #[must_use]
    pub fn new(kind: Kind, cage: Cage, means: &Means) -> Self {
        let ground = Ground { cage, root: means.root.clone(), host_uid: HOST_UID, groups: Vec::new() };
        let runner = Runner::new(means.program.clone(), ground);
        let usages = means.usages.clone();
        Self { kind, cage, means: means.clone(), runner, groups: OnceLock::new(), usages }
    }

    fn groups(&self) -> Option<&Cgroups> {
        self.groups.get().and_then(|found| found.as_ref().ok())
    }

    fn job(&self, space: &Space, work: Work) -> Job {
        // Tools of ours are one process, take little, and start nothing.
        let groups = self.groups().filter(|_| matches!(work, Work::Command(_)));
        let kernel = groups.map(Cgroups::limits).unwrap_or_default();
        Job {
            folder: space.folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            limits: space.limits,
            kernel: ByKernel { memory: kernel.0, processes: kernel.1 },
            hosts: self.hosts(space, &work),
            work,
        }
    }

    /// Runs the job of a command, in a group where there are any.
    async fn run(
        &self,
        job: &Job,
        within: Duration,
        sign: Cancelled,
        disk: Option<Disk>,
    ) -> Result<Ran, RunError> {
        let group = match self.groups() {
            // The group's limits are those of the workspace, whatever else the job may not do.
            Some(groups) => Some(
                groups
                    .group(&job.limits)
                    .await
                    .map_err(|error| RunError::NoCage(format!("the limits cannot be set: {error}")))?,
            ),
            None => None,
        };
        self.runner.command(job, group, within, sign, disk, &self.means.egress).await
    }

    /// What a piece of work may reach: tools of ours reach nothing, and what cannot be had is refused before.
    fn hosts(&self, space: &Space, work: &Work) -> Allow {
        let out = self.cage == Cage::Namespaces && matches!(work, Work::Command(_));
        out.then(|| way_out::allow(&space.spec).ok()).flatten().unwrap_or_default()
    }

    async fn tried(&self) -> Result<Works, String> {
        let root = self.means.root.clone();
        let found = tokio::task::spawn_blocking(move || Cgroups::find(&instance(&root)));
        let found = found.await.unwrap_or_else(|error| Err(error.to_string()));
        let limits = self.enforced(found.as_ref().ok());
        self.runner.groups_in(found.as_ref().map(Cgroups::places).unwrap_or_default());
        // A second probe finds the same.
        let _ = self.groups.set(found);
        let root = self.means.root.clone();
        let through = self.cage == Cage::Namespaces;
        let made = tokio::task::spawn_blocking(move || {
            let folder = Folder::make(&root)?;
            folders::admit(&root, through).map(|()| folder)
        });
        let folder = made.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let space = Space {
            key: "probe".to_owned(),
            folder: folder.0.clone(),
            spec: Json::Null,
            limits: Limits::default(),
        };
        let (_never, sign) = watch::channel(false);
        let answer = self.runner.answer(&self.job(&space, Work::Probe), PROBE_WAIT, sign.clone()).await;
        let version = match answer.map_err(|error| error.to_string())? {
            Answer::Tool(ToolOutcome::Completed { output }) => output.as_str().map(str::to_owned),
            other => return Err(format!("a helper answered something else: {other:?}")),
        };
        // A command goes a longer way than a tool.
        let job = self.job(&space, Work::Command("exit 7".to_owned()));
        let ran = self.run(&job, PROBE_WAIT, sign, None).await;
        match ran.map_err(|error| error.to_string())? {
            Ran { end: super::run::End::Exit(7), .. } => Ok(Works { version, limits }),
            Ran { stderr, .. } => Err(format!("a command does not run: {}", stderr.text().0.trim())),
        }
    }

    /// Each limit and what enforces it.
    fn enforced(&self, groups: Option<&Cgroups>) -> Vec<(&'static str, String)> {
        let (memory, processes, cpus) = groups.map(Cgroups::limits).unwrap_or_default();
        let group = groups.map_or("", Cgroups::name);
        let watched = if family::told() { "a watcher and rlimits" } else { "rlimits of each process" };
        let by = |kernel: bool, else_by: &str| if kernel { group } else { else_by }.to_owned();
        vec![
            ("CPUs", by(cpus, "affinity")),
            ("memory", by(memory, watched)),
            ("processes", by(processes, watched)),
            ("disk", "a watcher".to_owned()),
        ]
    }
}

/// What the groups of a folder of workspaces are called.
fn instance(root: &std::path::Path) -> String {
    use sha2::Digest as _;
    let root = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    hex::encode(&sha2::Sha256::digest(root.as_os_str().as_encoded_bytes())[..8])
}

impl Backend for Local {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn probe(&self) -> BoxFuture<'_, Result<Works, String>> {
        self.tried().boxed()
    }

    fn unmet(&self, spec: &Json) -> Option<String> {
        match self.cage {
            // A network of its own, whose only way out is the proxy.
            Cage::Namespaces => way_out::allow(spec).err(),
            Cage::Landlock => needs_network(spec).map(|why| {
                format!("{why} Landlock knows ports and no addresses, so no list of hosts can be kept.")
            }),
            Cage::None => needs_network(spec),
        }
    }

    fn open<'a>(&'a self, space: &'a Space, new: bool) -> BoxFuture<'a, Result<(), String>> {
        async move {
            // Somebody may have made it again.
            folders::admit(&self.means.root, self.cage == Cage::Namespaces)
                .map_err(|error| error.to_string())?;
            if new {
                self.usages.begin(&space.key);
                return Ok(());
            }
            let (usages, key, folder) = (self.usages.clone(), space.key.clone(), space.folder.clone());
            let counted = tokio::spawn(async move { usages.look(&key, &folder).await });
            // A large tree is counted while the first command runs.
            let _ = tokio::time::timeout(COUNT_WAIT, counted).await;
            Ok(())
        }
        .boxed()
    }

    fn command<'a>(
        &'a self,
        space: &'a Space,
        command: &'a str,
        within: Duration,
        sign: Cancelled,
    ) -> BoxFuture<'a, Result<Ran, RunError>> {
        async move {
            let mut job = self.job(space, Work::Command(command.to_owned()));
            let full = self.usages.full(&space.key, &space.folder, &space.limits).await;
            if full.is_some() {
                job.limits.disk_bytes = 0;
            }
            let disk = Disk {
                usages: self.usages.clone(),
                key: space.key.clone(),
                folder: space.folder.clone(),
                limits: space.limits,
            };
            let mut ran = self.run(&job, within, sign, Some(disk)).await?;
            if let Some(usage) = full {
                ran.notes.push(usage.is_full());
            }
            self.usages.look_soon(&space.key, &space.folder);
            Ok(ran)
        }
        .boxed()
    }

    fn work<'a>(
        &'a self,
        space: &'a Space,
        work: Work,
        within: Duration,
        sign: Cancelled,
    ) -> BoxFuture<'a, Result<Answer, RunError>> {
        async move {
            let adds = match &work {
                Work::Tool(Input::Write { content, .. }) => Some(content.len() as u64),
                Work::Tool(Input::Edit { new, .. }) => Some(new.len() as u64),
                _ => None,
            };
            if let (Some(bytes), Some(has)) = (adds, self.usages.last(&space.key)) {
                let then = Usage { bytes: has.bytes + bytes, inodes: has.inodes + 1 };
                if let Some(over) = then.over(&space.limits) {
                    // It may have been emptied since it was counted.
                    let (has, _) = self.usages.look(&space.key, &space.folder).await;
                    let then = Usage { bytes: has.bytes + bytes, inodes: has.inodes + 1 };
                    if then.over(&space.limits).is_some() {
                        let message =
                            format!("Nothing was written: {}; it has {}.", over.in_words(), has.in_words());
                        return Ok(Answer::Tool(ToolOutcome::failed("sandbox.write_failed", message)));
                    }
                }
            }
            let answer = self.runner.answer(&self.job(space, work), within, sign).await;
            if let Some(bytes) = adds {
                self.usages.add(&space.key, bytes);
            }
            answer
        }
        .boxed()
    }

    fn stop<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), String>> {
        self.usages.forget(key);
        async { Ok(()) }.boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async move {
            if let Some(groups) = self.groups().cloned() {
                groups.forget().await;
            }
        }
        .boxed()
    }
}

/// A folder for a probe that goes with it, beside the workspaces: the next probe removes what a process that was killed
/// in one has left.
struct Folder(PathBuf);

/// How folders of probes begin; the number of their process follows.
pub(super) const PROBES: &str = ".probe-";

impl Drop for Folder {
    fn drop(&mut self) {
        // Nobody but the probe has used it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn make(root: &std::path::Path) -> std::io::Result<Self> {
        folders::root(root)?;
        folders::sweep(root, PROBES);
        let folder = Self(folders::of_this_process(root, PROBES));
        folders::make(&folder.0)?;
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_removes_what_one_that_was_killed_has_left_and_itself() {
        let root = tempfile::tempdir().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let left = root.path().join(format!("{PROBES}{}-00000000", ended.id()));
        let others = root.path().join(format!("{PROBES}1-00000000"));
        let workspace = root.path().join("nylorun-tn_x-0123");
        for folder in [&left, &others, &workspace] {
            std::fs::create_dir_all(folder.join("workspace")).unwrap();
        }
        let folder = Folder::make(root.path()).unwrap();
        let made = folder.0.clone();
        assert!(!left.exists() && others.exists() && workspace.exists() && made.join("tmp").exists());
        drop(folder);
        assert!(!made.exists());
    }
}
