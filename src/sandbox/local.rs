//! The backends whose workspaces are served by helpers of this program on this machine: `namespaces`, `landlock` and
//! `process`. They differ in the cage that a helper builds around itself.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nylorun_actors::model::json::Json;
use tokio::sync::watch;

use super::backend::{Backend, HOST_UID, Space, Works, needs_network};
use super::choice::Kind;
use super::job::{Answer, Cage, Job, Limits, Work};
use super::run::{Cancelled, Ran, RunError, Runner};

/// How long a probe may take.
const PROBE_WAIT: Duration = Duration::from_secs(10);

/// A backend of helpers.
pub struct Local {
    kind: Kind,
    cage: Cage,
    runner: Runner,
}

impl Local {
    /// The one with this cage.
    #[must_use]
    pub fn new(kind: Kind, cage: Cage, runner: Runner) -> Self {
        Self { kind, cage, runner }
    }

    fn job(&self, space: &Space, work: Work) -> Job {
        Job { cage: self.cage, folder: space.folder.clone(), host_uid: HOST_UID, limits: space.limits, work }
    }

    async fn tried(&self) -> Result<Works, String> {
        let folder = Folder::make().map_err(|error| error.to_string())?;
        let space = Space {
            key: "probe".to_owned(),
            folder: folder.0.clone(),
            spec: Json::Null,
            limits: Limits::default(),
        };
        let (_never, sign) = watch::channel(false);
        let answer = self.runner.answer(&self.job(&space, Work::Probe), PROBE_WAIT, sign).await;
        answer.map_err(|error| error.to_string())?;
        let limits = vec![
            ("CPUs", "affinity".to_owned()),
            ("memory", "limits of each process".to_owned()),
            ("processes", "limits of each process".to_owned()),
            ("disk", "limits of each file".to_owned()),
        ];
        Ok(Works { version: None, limits })
    }
}

impl Backend for Local {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn probe(&self) -> BoxFuture<'_, Result<Works, String>> {
        self.tried().boxed()
    }

    fn unmet(&self, spec: &Json) -> Option<String> {
        needs_network(spec)
    }

    fn command<'a>(
        &'a self,
        space: &'a Space,
        command: &'a str,
        within: Duration,
        sign: Cancelled,
    ) -> BoxFuture<'a, Result<Ran, RunError>> {
        let job = self.job(space, Work::Command(command.to_owned()));
        async move { self.runner.command(&job, within, sign).await }.boxed()
    }

    fn work<'a>(
        &'a self,
        space: &'a Space,
        work: Work,
        within: Duration,
        sign: Cancelled,
    ) -> BoxFuture<'a, Result<Answer, RunError>> {
        let job = self.job(space, work);
        async move { self.runner.answer(&job, within, sign).await }.boxed()
    }
}

/// A folder for a probe that goes with it.
struct Folder(PathBuf);

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
