//! What a helper process is given to do, and in which cage.
//!
//! Everything that touches a workspace runs in a helper: a copy of this program, started with [`ARGUMENT`] (see
//! [`super::stem`]). It builds what it can of its cage on its [`Ground`], reads one [`Job`] from its socket, completes the
//! cage, says that it stands, and works. So a path that a tool is told, or a link that a command has made, is resolved
//! inside the cage by the kernel, and no check of ours stands between it and the host.

use std::path::PathBuf;

use nylorun_actors::model::workspace::{BytesAnswer, ListAnswer, ToolOutcome};
use serde::{Deserialize, Serialize};

use super::control::{frame, hear};
use super::files::{self, Place};
use super::input::Input;
use super::limits::{CPUS, DISK_BYTES, INODES, MEMORY_BYTES, OPEN_FILES, PROCESSES};
use super::search::{self, Search};
use crate::gates::egress::allow::Allow;

/// The first argument of a helper. Its [`Ground`] follows, as JSON.
pub const ARGUMENT: &str = "__sandbox";

/// What is the same for all helpers of a stem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ground {
    /// How they are kept apart.
    pub cage: Cage,
    /// The folder of all workspaces.
    pub root: PathBuf,
    /// The user on the host whom helpers of root become.
    pub host_uid: u32,
    /// Where groups of commands are made.
    pub groups: Vec<PathBuf>,
}

/// How a helper is kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cage {
    /// Namespaces of its own, a system of its own, a filter over system calls.
    Namespaces,
    /// Landlock and a filter over system calls.
    Landlock,
    /// Not at all but for limits.
    None,
}

/// What the commands of a workspace may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// CPUs.
    pub cpus: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Files and folders on disk.
    pub inodes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpus: CPUS,
            memory_bytes: MEMORY_BYTES,
            processes: PROCESSES,
            open_files: OPEN_FILES,
            disk_bytes: DISK_BYTES,
            inodes: INODES,
        }
    }
}

/// One piece of work in a workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Nothing: the cage stands. The answer is its version, or null.
    Probe,
    /// A command for the shell; its output is the helper's, its exit the helper's.
    Command(String),
    /// One of the other tools; the outcome is written as JSON.
    Tool(Input),
    /// Files below a directory, as JSON.
    List(String, u64),
    /// A file's bytes, as JSON.
    Bytes(String, u64),
}

/// What a helper is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The name of the folder in the ground's root with `workspace` and `tmp` in it.
    pub folder: String,
    /// What it may use.
    pub limits: Limits,
    /// What the group limits whose descriptors come with the request; nothing where none comes.
    pub kernel: ByKernel,
    /// What it may reach; only where the cage has a network of its own.
    pub hosts: Allow,
    /// What it does.
    pub work: Work,
}

/// What the kernel limits for all processes of a command together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByKernel {
    /// Memory.
    pub memory: bool,
    /// Processes and threads.
    pub processes: bool,
}

impl Job {
    /// Reads one that means nothing. The first that a copy of a process reads takes longer than all that follow: what it
    /// touches is not in its memory yet.
    pub fn rehearse() {
        let limits = Limits::default();
        let (kernel, hosts) = (ByKernel::default(), Allow::default());
        let job =
            Self { folder: "-".repeat(80), limits, kernel, hosts, work: Work::Command("true".to_owned()) };
        // It reads as it was written.
        let _ = hear::<Self>(frame(&job).as_slice());
    }

    /// Whether what its processes take has to be looked at: only commands start any.
    #[must_use]
    pub fn watched(&self) -> bool {
        matches!(self.work, Work::Command(_)) && !(self.kernel.memory && self.kernel.processes)
    }
}

/// What work other than a command comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Of a tool, or of a probe.
    Tool(ToolOutcome),
    /// Of [`Work::List`].
    List(ListAnswer),
    /// Of [`Work::Bytes`].
    Bytes(BytesAnswer),
}

impl Work {
    /// Does the work. `version`: what the cage has to say of itself. `None` for a command, which is no work of ours.
    #[must_use]
    pub fn run(&self, place: &Place, version: Option<&str>) -> Option<Answer> {
        Some(match self {
            Self::Probe => Answer::Tool(ToolOutcome::Completed { output: version.into() }),
            Self::Command(_) | Self::Tool(Input::Bash { .. }) => return None,
            Self::List(dir, most) => Answer::List(files::list(place, dir, *most)),
            Self::Bytes(path, most) => Answer::Bytes(files::bytes(place, path, *most)),
            Self::Tool(input) => Answer::Tool(match input {
                Input::Read { path, offset, limit } => files::read(place, path, *offset, *limit),
                Input::Write { path, content } => files::write(place, path, content),
                Input::Edit { path, old, new, all } => files::edit(place, path, old, new, *all),
                Input::Grep { pattern, path, glob, ignore_case, most } => search::grep(
                    place,
                    &Search {
                        pattern,
                        path: path.as_deref(),
                        glob: glob.as_deref(),
                        ignore_case: *ignore_case,
                        most: *most,
                    },
                ),
                Input::Glob { pattern, path } => search::glob(place, pattern, path.as_deref()),
                Input::Bash { .. } => return None,
            }),
        })
    }
}
