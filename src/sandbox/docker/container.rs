//! The container of a workspace: how it is locked down, whose it is, and how it goes.
//!
//! Its first process is the daemon's init, its second one reads from the Runtime, which says nothing: both run as a user of
//! their own, so that a command can end neither, and so that all processes of the user of commands can be ended at once.
//! When the Runtime goes, in whatever way, there is nothing more to read: the second process ends, with it the container and
//! whatever runs in it, and the daemon removes it.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex};

use bollard::container::AttachContainerResults;
use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountTmpfsOptions, MountType, ResourcesUlimits,
};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, ListContainersOptionsBuilder,
    RemoveContainerOptionsBuilder,
};
use nix::unistd::{Pid, Uid, getegid, geteuid};

use super::calls;
use super::daemon::{Daemon, absent, status, words};
use crate::sandbox::backend::{HOST_UID, Space};
use crate::sandbox::files::WORKSPACE;
use crate::sandbox::job::Limits;

/// The user of what keeps a container alive.
const KEEPER: &str = "64532:64532";
/// What keeps it alive.
const KEEP: [&str; 3] = ["/bin/sh", "-c", "read -r _"];

/// What is not seen of the kernel: what Docker hides itself, and what tells of the machine.
const MASKED: [&str; 19] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/block",
    "/sys/bus",
    "/sys/devices/virtual/dmi",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/hypervisor",
    "/sys/kernel",
    "/sys/module",
    "/sys/power",
];

/// The label with the folder of workspaces that a container belongs to.
const INSTANCE: &str = "nylorun.instance";
/// The label with the process that has made it.
const OWNER: &str = "nylorun.owner";
/// The label with the workspace.
const KEY: &str = "nylorun.key";

/// What is not changed of the kernel, though it is seen.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Bytes of what an image has declared a volume: it is empty, and counts as memory.
const VOLUME_BYTES: i64 = 16 << 20;

/// The user and group of commands: those who own the files of workspaces.
pub(super) fn user() -> String {
    let (user, group) = match Uid::effective().is_root() {
        true => (HOST_UID, HOST_UID),
        false => (geteuid().as_raw(), getegid().as_raw()),
    };
    format!("{user}:{group}")
}

/// A container that runs.
#[derive(Clone, Debug)]
pub(super) struct Container {
    pub(super) id: String,
    /// Its first process on this machine, if it is seen from here.
    pub(super) pid: Option<i32>,
    /// What it reads from: it ends with the last of these.
    _lifeline: Arc<Mutex<AttachContainerResults>>,
}

impl Container {
    /// Whether nothing runs in it but what keeps it alive; `None` where that is not seen from here.
    pub(super) fn is_quiet(&self) -> Option<bool> {
        let pid = self.pid?;
        // What a command has left behind is the first process's child, once the command itself is gone.
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        Some(children.split_whitespace().count() <= 1)
    }
}

impl Container {
    /// The process above everything that runs in it, where that is seen from here.
    pub(super) fn above(&self) -> Option<Pid> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid?)).ok()?;
        let above = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        let name = fs::read_to_string(format!("/proc/{above}/comm")).ok()?;
        // Commands are its children as the first process is; whoever else is above that one has more.
        name.contains("shim").then(|| Pid::from_raw(above))
    }

    /// How many of its processes the kernel has killed for their memory, where that is seen from here.
    pub(super) fn starved(&self) -> u64 {
        let groups = self.pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok());
        // Version 2 names no controller, version 1 has a folder for each.
        let files = groups.iter().flat_map(|groups| groups.lines()).filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            match controllers {
                "" => Some(format!("/sys/fs/cgroup{path}/memory.events")),
                "memory" => Some(format!("/sys/fs/cgroup/memory{path}/memory.oom_control")),
                _ => None,
            }
        });
        let texts = files.filter_map(|file| fs::read_to_string(file).ok());
        let counts = texts.flat_map(|text| {
            let counts = text.lines().filter_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
            counts.collect::<Vec<u64>>()
        });
        counts.sum()
    }
}

/// Whether a process is the first one of a workspace's container: the workspace is mounted in it. Its number alone may
/// be another's by now, or one of another machine's.
pub(super) fn holds(pid: i32, key: &str) -> bool {
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(3);
        fields.next().is_some_and(|root| root.contains(key)) && fields.next() == Some(WORKSPACE)
    })
}

/// This process, as a label: its number and when it started.
fn this_process() -> String {
    let pid = std::process::id().to_string();
    format!("{pid} {}", started(&pid).unwrap_or_default())
}

/// When a process started, in ticks since the machine did.
fn started(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything, parentheses too.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

/// Whether the process of a label is alive, and is not this one.
fn is_anothers(owner: &str) -> bool {
    let Some((pid, since)) = owner.split_once(' ') else { return false };
    owner != this_process() && started(pid).is_some_and(|started| started == since)
}

fn mount(source: String, target: &str) -> Mount {
    Mount {
        target: Some(target.to_owned()),
        source: Some(source),
        typ: Some(MountType::BIND),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

/// A small file system in place of a volume of an image, which would be a folder of the daemon's without a bound.
fn volume(target: &str) -> Mount {
    Mount {
        target: Some(target.to_owned()),
        typ: Some(MountType::TMPFS),
        tmpfs_options: Some(MountTmpfsOptions {
            size_bytes: Some(VOLUME_BYTES),
            mode: Some(0o1777),
            ..MountTmpfsOptions::default()
        }),
        ..Mount::default()
    }
}

fn ulimit(name: &str, most: u64) -> ResourcesUlimits {
    let most = i64::try_from(most).ok();
    ResourcesUlimits { name: Some(name.to_owned()), soft: most, hard: most }
}

/// Whether a path is one of the two that a workspace's folders are mounted at.
fn ours(path: &str) -> bool {
    [WORKSPACE, "/tmp"].contains(&path.trim_end_matches('/'))
}

fn host(space: &Space, volumes: &[String]) -> HostConfig {
    let Limits { cpus, memory_bytes, processes, open_files, disk_bytes, .. } = space.limits;
    let memory = i64::try_from(memory_bytes).ok();
    let source = |name: &str| space.folder.join(name).display().to_string();
    let own = [mount(source("workspace"), WORKSPACE), mount(source("tmp"), "/tmp")];
    let volumes = volumes.iter().filter(|path| !ours(path)).map(|path| volume(path));
    HostConfig {
        network_mode: Some("none".to_owned()),
        // Nothing of the host's: without a network it would still be told its name servers.
        dns: Some(vec!["127.0.0.1".to_owned()]),
        dns_search: Some(vec![".".to_owned()]),
        readonly_rootfs: Some(true),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned(), format!("seccomp={}", calls::filter())]),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        ipc_mode: Some("private".to_owned()),
        // The daemon's: it takes in orphans.
        init: Some(true),
        auto_remove: Some(true),
        memory,
        // As much with swap as without: none.
        memory_swap: memory,
        nano_cpus: Some(i64::from(cpus) * 1_000_000_000),
        // The two that keep it alive are not the workspace's.
        pids_limit: i64::try_from(processes + 2).ok(),
        ulimits: Some(vec![ulimit("core", 0), ulimit("nofile", open_files), ulimit("fsize", disk_bytes)]),
        mounts: Some(own.into_iter().chain(volumes).collect()),
        masked_paths: Some(MASKED.map(str::to_owned).to_vec()),
        readonly_paths: Some(READ_ONLY.map(str::to_owned).to_vec()),
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        ..HostConfig::default()
    }
}

impl Daemon {
    /// Starts the container of a workspace.
    pub(super) async fn start(
        &self,
        space: &Space,
        image: &str,
        instance: &str,
    ) -> Result<Container, String> {
        let volumes = self.image(image).await?;
        let inside =
            |path: &&String| !ours(path) && ["/workspace/", "/tmp/"].iter().any(|of| path.starts_with(of));
        if let Some(path) = volumes.iter().find(inside) {
            // The daemon would make folders of root's in there.
            return Err(format!("the image {image} has a volume at {path}, among the workspace's files"));
        }
        let labels = [(INSTANCE, instance), (OWNER, &this_process()), (KEY, &space.key)];
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            hostname: Some("sandbox".to_owned()),
            user: Some(KEEPER.to_owned()),
            entrypoint: Some(KEEP.map(str::to_owned).to_vec()),
            // Closed for good when its one writer goes.
            attach_stdin: Some(true),
            open_stdin: Some(true),
            stdin_once: Some(true),
            cmd: Some(Vec::new()),
            working_dir: Some(WORKSPACE.to_owned()),
            labels: Some(HashMap::from(labels.map(|(name, value)| (name.to_owned(), value.to_owned())))),
            // An image's own would run in there from time to time.
            healthcheck: Some(HealthConfig {
                test: Some(vec!["NONE".to_owned()]),
                ..HealthConfig::default()
            }),
            host_config: Some(host(space, &volumes)),
            ..ContainerCreateBody::default()
        };
        // Nobody asks for it by name; a number keeps it apart from one that is still going.
        let name = format!("{}-{:08x}", space.key, rand::random::<u32>());
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        let created = self.api.create_container(Some(options), body).await;
        let id = match created {
            Ok(created) => created.id,
            Err(error) if status(&error) == Some(404) => return Err(absent(image)),
            Err(error) => return Err(format!("the container cannot be made: {}", words(&error))),
        };
        let started = async {
            // Before it starts: otherwise it may have read to the end already.
            let options = AttachContainerOptionsBuilder::default().stdin(true).stream(true).build();
            let lifeline = self.api.attach_container(&id, Some(options)).await?;
            self.api.start_container(&id, None).await?;
            let pid = self.api.inspect_container(&id, None).await?.state.and_then(|state| state.pid);
            Ok((pid.and_then(|pid| i32::try_from(pid).ok()), Arc::new(Mutex::new(lifeline))))
        };
        match started.await {
            Ok((pid, lifeline)) => {
                let pid = pid.filter(|pid| holds(*pid, &space.key));
                Ok(Container { id, pid, _lifeline: lifeline })
            }
            Err(error) => {
                let why = format!("the container cannot be started: {}", words(&error));
                match self.remove(&id).await {
                    Ok(()) => Err(why),
                    Err(also) => Err(format!("{why}; it cannot be removed either: {also}")),
                }
            }
        }
    }

    /// Ends a container and removes it. One that is not there is removed already.
    pub(super) async fn remove(&self, id: &str) -> Result<(), String> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        match self.api.remove_container(id, Some(options)).await {
            Ok(()) => Ok(()),
            // 409: somebody else is removing it this moment.
            Err(error) if matches!(status(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(format!("the container cannot be removed: {}", words(&error))),
        }
    }

    /// Removes what an earlier process has left of an instance, as when it was killed before it had started what it had made:
    /// never another instance's, nor one whose process lives.
    pub(super) async fn remove_leftovers(&self, instance: &str, live: &[String]) -> Result<usize, String> {
        let filters = HashMap::from([("label", vec![format!("{INSTANCE}={instance}")])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let found = self.api.list_containers(Some(options)).await.map_err(|error| words(&error))?;
        let mut removed = 0;
        for container in found {
            let Some(id) = container.id else { continue };
            let owner = container.labels.and_then(|labels| labels.get(OWNER).cloned()).unwrap_or_default();
            if !live.contains(&id) && !is_anothers(&owner) {
                self.remove(&id).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}
