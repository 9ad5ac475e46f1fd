//! The backend `docker`: a container for each workspace, from the first command until the workspace stops
//! (spec: sandbox, section 12; DESIGN.md, section 8).
//!
//! | File | Has |
//! |---|---|
//! | [`daemon`] | the daemon on this machine |
//! | [`container`] | how a container is locked down, whose it is |
//! | [`calls`] | the filter over its system calls |
//! | [`exec`] | commands, and the end of all that they have started |
//! | [`network`] | the socket through which hosts of a list are reached |
//! | [`sight`] | what the other tools see |
//!
//! Files stay on the host, in the folders that every backend has, and are mounted. So the tools but for `bash` do not ask
//! the container at all: a helper of this program works on the folders in a cage of its own, as in the other backends. A
//! program in the image could answer anything; and what reads a file of the container from outside would have to follow
//! its links. The cage shows `/workspace` and `/tmp` as the container does; the image's own files only `bash` sees.

mod calls;
mod container;
mod daemon;
mod exec;
mod network;
mod sight;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nylorun_actors::model::json::Json;
use nylorun_actors::model::workspace::DEFAULT_IMAGE;
use tokio::sync::{OnceCell, watch};

use self::container::Container;
use self::daemon::Daemon;
use self::exec::Fault;
use super::backend::{Backend, Isolation, Space, Works};
use super::choice::{Kind, Means};
use super::files::WORKSPACE;
use super::folders::Folders;
use super::job::{Answer, Limits, Work};
use super::run::{Cancelled, Disk, End, Ran, RunError};
use super::way_out::{self, Serving};
use crate::gates::egress::allow::Allow;

/// How long a trial's command may take.
const TRIAL_WAIT: Duration = Duration::from_secs(20);

/// What an operator says of containers.
#[derive(Clone, Debug)]
pub struct DockerMeans {
    /// Where the daemon is, as in `DOCKER_HOST`; `None`: at the usual place.
    pub host: Option<String>,
    /// The image of a sandbox that names none.
    pub image: String,
}

impl Default for DockerMeans {
    fn default() -> Self {
        Self::of(None, None)
    }
}

impl DockerMeans {
    /// What was set, and the usual for what was not.
    #[must_use]
    pub fn of(host: Option<String>, image: Option<String>) -> Self {
        Self { host, image: image.unwrap_or_else(|| DEFAULT_IMAGE.to_owned()) }
    }
}

/// The backend.
pub struct Docker(Arc<Inner>);

struct Inner {
    means: Means,
    daemon: OnceCell<Daemon>,
    /// What the other tools are done by.
    tools: OnceCell<Arc<dyn Backend>>,
    live: Mutex<HashMap<String, Live>>,
    /// Containers that nobody uses any more and that could not be removed: the daemon did not answer.
    left: Mutex<Vec<String>>,
}

/// A workspace with a container.
#[derive(Clone)]
struct Live {
    container: Container,
    allow: Allow,
    serving: Option<Arc<Serving>>,
}

impl Docker {
    /// Nothing is asked of the daemon yet.
    #[must_use]
    pub fn new(means: Means) -> Self {
        Self(Arc::new(Inner {
            means,
            daemon: OnceCell::new(),
            tools: OnceCell::new(),
            live: Mutex::default(),
            left: Mutex::default(),
        }))
    }
}

impl Inner {
    fn live(&self) -> MutexGuard<'_, HashMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn daemon(&self) -> Result<&Daemon, String> {
        self.daemon.get_or_try_init(|| Daemon::connect(self.means.docker.host.as_deref())).await
    }

    fn image<'a>(&'a self, spec: &'a Json) -> &'a str {
        spec["image"].as_str().unwrap_or(&self.means.docker.image)
    }

    /// What keeps the containers of different folders of workspaces apart.
    fn instance(&self) -> String {
        self.means.root.display().to_string()
    }

    /// What the other tools are done by: the strongest cage that stands here.
    async fn tools(&self) -> Result<&Arc<dyn Backend>, String> {
        let find = async || {
            let mut reasons = Vec::new();
            for kind in [Kind::Namespaces, Kind::Landlock] {
                match super::choice::probe(kind, &self.means).await {
                    Ok((backend, _)) => return Ok(backend),
                    Err(reason) => reasons.push(format!("{}: {reason}", kind.name())),
                }
            }
            Err(format!("nothing keeps its tools apart from the host: {}", reasons.join("; ")))
        };
        self.tools.get_or_try_init(find).await
    }

    /// The container of a workspace, with the way out that its spec asks for; started if it is not there.
    async fn container(&self, space: &Space) -> Result<Container, String> {
        let allow = way_out::allow(&space.spec)?;
        let live = self.live().get(&space.key).cloned();
        let daemon = self.daemon().await?;
        let live = match live {
            Some(live) if live.allow == allow => return Ok(live.container),
            Some(live) => live,
            None => {
                self.tidy(daemon).await;
                let container = daemon.start(space, self.image(&space.spec), &self.instance()).await?;
                Live { container, allow: Allow::default(), serving: None }
            }
        };
        // Known before anything else can fail, so that it is removed.
        let mut live = Live { serving: None, ..live };
        self.live().insert(space.key.clone(), live.clone());
        if !allow.is_empty() {
            let listener = network::bind(&live.container, &space.key).await;
            let listener = listener.map_err(|why| format!("the container has no way out: {why}"))?;
            let serving = way_out::serve(&self.means.egress, listener, &space.key, allow.clone());
            live.serving = Some(Arc::new(serving.map_err(|error| error.to_string())?));
        }
        live.allow = allow;
        self.live().insert(space.key.clone(), live.clone());
        Ok(live.container)
    }

    /// Removes a workspace's container. One that cannot be removed now is removed later: nothing uses it any more.
    async fn stop(&self, key: &str) -> Result<(), String> {
        let Some(live) = self.live().remove(key) else { return Ok(()) };
        let id = live.container.id;
        let removed = self.daemon().await?.remove(&id).await;
        if removed.is_err() {
            self.left.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        }
        removed
    }

    /// Removes what could not be removed before.
    async fn tidy(&self, daemon: &Daemon) {
        let left = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        for id in left {
            if let Err(error) = daemon.remove(&id).await {
                tracing::debug!(id, error, "a container is still not removed");
                self.left.lock().unwrap_or_else(PoisonError::into_inner).push(id);
            }
        }
    }

    async fn command(
        self: &Arc<Self>,
        space: &Space,
        command: &str,
        within: Duration,
        sign: Cancelled,
    ) -> Result<Ran, RunError> {
        let env = [("HOME", WORKSPACE), ("TMPDIR", "/tmp"), ("LANG", "C.UTF-8"), ("TERM", "dumb")];
        let env = env.map(|(name, value)| format!("{name}={value}")).into_iter();
        let proxy = way_out::variables(&way_out::allow(&space.spec).unwrap_or_default()).into_iter();
        let env: Vec<String> = env.chain(proxy.map(|(name, value)| format!("{name}={value}"))).collect();
        let daemon = self.daemon().await.map_err(RunError::NoCage)?;
        for again in [true, false] {
            let container = self.container(space).await.map_err(RunError::NoCage)?;
            let starved = container.starved();
            let mut left = Left { docker: Some(Arc::clone(self)), key: space.key.clone() };
            let disk = Disk {
                usages: self.means.usages.clone(),
                key: space.key.clone(),
                folder: space.folder.clone(),
                limits: space.limits,
            };
            let ran =
                daemon.command(&container, command, env.clone(), within, sign.clone(), Some(disk)).await;
            left.docker = None;
            match ran {
                Ok(ran) => {
                    // Memory may be taken by what is no process: it goes with the container.
                    if !daemon.quiet(&container).await || container.starved() > starved {
                        self.stop(&space.key).await.map_err(RunError::Lost)?;
                    }
                    self.means.usages.look_soon(&space.key, &space.folder);
                    return Ok(ran);
                }
                // Its container has ended, as when the daemon was started again: it gets another.
                Err(Fault::NotRun(why)) => {
                    // Why nothing ran says more than why it is still there.
                    let _ = self.stop(&space.key).await;
                    if !again {
                        return Err(RunError::NoCage(why));
                    }
                }
                Err(Fault::Lost(why)) => {
                    let _ = self.stop(&space.key).await;
                    return Err(RunError::Lost(why));
                }
            }
        }
        Err(RunError::NoCage("it does not start".to_owned()))
    }

    /// Tries whether a container gets the workspace's files and starts commands.
    async fn trial(&self) -> Result<(), String> {
        let folders = Folders::open(self.means.root.clone()).map_err(|error| error.to_string())?;
        let key = format!("probe-{}-{:08x}", std::process::id(), rand::random::<u32>());
        folders.make(&key).await.map_err(|error| error.to_string())?;
        let space =
            Space { key: key.clone(), folder: folders.of(&key), spec: Json::Null, limits: Limits::default() };
        let tried = self.tried(&space, &folders.workspace(&key)).await;
        let stopped = self.stop(&key).await;
        folders.remove(&key).await.map_err(|error| error.to_string())?;
        tried.and(stopped)
    }

    async fn tried(&self, space: &Space, workspace: &Path) -> Result<(), String> {
        let token = format!("{:016x}", rand::random::<u64>());
        std::fs::write(workspace.join("token"), &token).map_err(|error| error.to_string())?;
        let container = self.container(space).await?;
        let (_never, sign) = watch::channel(false);
        let command = "cat token && echo made > made && while read -r name mode; do \
                       [ \"$name\" != Seccomp: ] || echo \" $mode\"; done < /proc/self/status";
        let ran = self.daemon().await?.command(&container, command, Vec::new(), TRIAL_WAIT, sign, None).await;
        let ran = ran.map_err(|(Fault::NotRun(why) | Fault::Lost(why))| {
            format!("a container of {} starts no command: {why}", self.image(&Json::Null))
        })?;
        let made = std::fs::read_to_string(workspace.join("made")).unwrap_or_default();
        match (ran.end, ran.stdout.text().0) {
            (End::Exit(0), said) if said == format!("{token} 2\n") && made == "made\n" => Ok(()),
            (End::Exit(0), said) if said.starts_with(&token) && made == "made\n" => {
                Err("the daemon puts no filter over the system calls of a container".to_owned())
            }
            (end, said) => Err(format!(
                "a container does not get the files of a workspace: {end:?}, {:?}, {:?}",
                said.trim(),
                ran.stderr.text().0.trim()
            )),
        }
    }

    async fn probe(&self) -> Result<Works, String> {
        let daemon = self.daemon().await?;
        daemon.limits().await?;
        daemon.image(&self.means.docker.image).await?;
        self.tools().await?;
        let live: Vec<String> = self.live().values().map(|live| live.container.id.clone()).collect();
        let left = daemon.remove_leftovers(&self.instance(), &live).await?;
        if left > 0 {
            tracing::info!(left, "containers of an earlier process were removed");
        }
        self.trial().await?;
        let by_group = ["CPUs", "memory", "processes"].map(|what| (what, "the container's control group"));
        let limits = by_group.into_iter().chain([("disk", "a watcher")]);
        let version = format!("{}, image {}", daemon.version, self.means.docker.image);
        Ok(Works {
            version: Some(version),
            limits: limits.map(|(what, how)| (what, how.to_owned())).collect(),
        })
    }
}

/// Removes the container of a command whose future is dropped before its end: nobody else knows what runs in there.
struct Left {
    docker: Option<Arc<Inner>>,
    key: String,
}

impl Drop for Left {
    fn drop(&mut self) {
        if let (Some(docker), Ok(runtime)) = (self.docker.take(), tokio::runtime::Handle::try_current()) {
            let key = std::mem::take(&mut self.key);
            runtime.spawn(async move {
                if let Err(error) = docker.stop(&key).await {
                    tracing::warn!(
                        key,
                        error,
                        "the container of a command that was given up cannot be removed"
                    );
                }
            });
        }
    }
}

impl Backend for Docker {
    fn kind(&self) -> Kind {
        Kind::Docker
    }

    fn isolation(&self) -> Isolation {
        Isolation::Container
    }

    fn probe(&self) -> BoxFuture<'_, Result<Works, String>> {
        self.0.probe().boxed()
    }

    fn unmet(&self, spec: &Json) -> Option<String> {
        match way_out::allow(spec) {
            Ok(allow) if allow.is_empty() => None,
            Ok(_) => network::unmet(),
            Err(why) => Some(why),
        }
    }

    fn open<'a>(&'a self, space: &'a Space, new: bool) -> BoxFuture<'a, Result<(), String>> {
        async move {
            self.0.container(space).await?;
            // It counts what is there already.
            self.0.tools().await?.open(space, new).await
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
        self.0.command(space, command, within, sign).boxed()
    }

    fn work<'a>(
        &'a self,
        space: &'a Space,
        work: Work,
        within: Duration,
        sign: Cancelled,
    ) -> BoxFuture<'a, Result<Answer, RunError>> {
        async move {
            if let Some(answer) = sight::refusal(&work) {
                return Ok(answer);
            }
            let tools = self.0.tools().await.map_err(RunError::NoCage)?;
            tools.work(space, work, within, sign).await
        }
        .boxed()
    }

    fn stop<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), String>> {
        self.0.means.usages.forget(key);
        self.0.stop(key).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async move {
            let keys: Vec<String> = self.0.live().keys().cloned().collect();
            for key in keys {
                if let Err(error) = self.0.stop(&key).await {
                    tracing::warn!(key, error, "a container cannot be removed");
                }
            }
            if let Some(daemon) = self.0.daemon.get() {
                self.0.tidy(daemon).await;
            }
            if let Some(tools) = self.0.tools.get() {
                tools.close().await;
            }
        }
        .boxed()
    }
}
