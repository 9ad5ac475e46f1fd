//! Bounds of sandboxes and of the egress proxy, which are where runs are executed.

use super::{Row, row, time};
use crate::engine::run::sandbox::{KILL_WAIT, STOP_GRACE as TOOL_GRACE};
use crate::gates::egress::{self, head::HEAD_BYTES};
use crate::host::sandboxes::CLOSE_WAIT;
use crate::sandbox::limits as sandbox;

pub(super) fn rows() -> Vec<Row> {
    vec![
        row(
            "each stream of a command in a sandbox",
            format!("{} characters", sandbox::STREAM_CHARS),
            "sandbox/streams",
            "its middle is left out; the command runs on",
            "fixed",
        ),
        row(
            "what `read`, `grep` or `glob` answer in all",
            format!("{} characters", sandbox::ANSWER_CHARS),
            "sandbox/files",
            "the answer says where to go on",
            "fixed",
        ),
        row(
            "a command in a sandbox",
            format!("{} s, at most {} s", sandbox::COMMAND_SECONDS, sandbox::COMMAND_SECONDS_MOST),
            "sandbox/run",
            "it is killed with all that it has started: exit code 124",
            "the call's `timeout`",
        ),
        row(
            "the text of a command",
            format!("{} KiB", sandbox::COMMAND_BYTES.div_ceil(1024)),
            "sandbox/input",
            "nothing is run: `tool.invalid-input`",
            "fixed",
        ),
        row(
            "every other tool",
            format!("{} s", sandbox::HELPER_SECONDS),
            "sandbox/search",
            "what was found is answered, with a line that says so",
            "fixed",
        ),
        row(
            "a file that `edit` changes",
            format!("{} MiB", sandbox::EDIT_BYTES / (1024 * 1024)),
            "sandbox/files",
            "the edit fails, also one that would make it larger",
            "fixed",
        ),
        row(
            "a line in which `grep` searches",
            format!("{} MiB", sandbox::SEARCH_LINE_BYTES >> 20),
            "sandbox/search",
            "its file is left out; the answer says so where nothing else was found",
            "fixed",
        ),
        row(
            "files that `glob` looks at, and shows",
            format!("{}, {}", sandbox::GLOB_LOOKS, sandbox::GLOB_FILES),
            "sandbox/search",
            "the answer says so",
            "fixed",
        ),
        row(
            "processes and threads in a sandbox",
            sandbox::PROCESSES.to_string(),
            "sandbox/cgroups, sandbox/keeper",
            "a further one is refused to the command; where only a watcher counts them, the command is killed",
            "fixed",
        ),
        row(
            "memory of all processes of a sandbox",
            format!("{} GiB", sandbox::MEMORY_BYTES >> 30),
            "sandbox/cgroups, sandbox/keeper",
            "one of them is killed, and the command's standard error says so; where only a watcher counts, all of them",
            "the sandbox's `resources`",
        ),
        row(
            "files of a workspace on disk, temporary ones too",
            format!("{} GiB in {} files", sandbox::DISK_BYTES >> 30, sandbox::INODES),
            "sandbox/usage",
            "the command is killed; until files are deleted, commands and tools cannot write",
            "fixed",
        ),
        row(
            "CPUs of a sandbox",
            sandbox::CPUS.to_string(),
            "sandbox/helper",
            "its processes share them",
            "the sandbox's `resources`",
        ),
        row(
            "a workspace without use",
            format!("{} min", sandbox::IDLE_MS / 60_000),
            "sandbox/manager",
            "it stops; its files stay",
            "the sandbox's `idle`",
        ),
        row(
            "a sandbox tool that runs when its process stops",
            format!("{}, then {} ms", time(TOOL_GRACE), KILL_WAIT.as_millis()),
            "engine/run/sandbox",
            "it is killed: `uncertain` if it writes, else failed",
            "fixed",
        ),
        row(
            "workspaces that stop when `serve` does",
            time(CLOSE_WAIT),
            "host/sandboxes",
            "they end with the process; the next start says so in the record",
            "fixed",
        ),
        row(
            "connections of a sandbox through the egress proxy",
            egress::TUNNELS.to_string(),
            "gates/egress",
            "a further one is answered 429",
            "fixed",
        ),
        row(
            "the head of a request to the egress proxy",
            format!("{} KiB, {} s", HEAD_BYTES / 1024, egress::HEAD_WAIT.as_secs()),
            "gates/egress",
            "it is answered 431 or 408 and closed",
            "fixed",
        ),
        row(
            "resolving a host of a sandbox, and connecting to one of its addresses",
            format!("{} s each", egress::DIAL_WAIT.as_secs()),
            "gates/egress",
            "the next address is tried; after the last the request is answered 502",
            "fixed",
        ),
        row(
            "a connection of a sandbox without traffic",
            format!("{} min", egress::IDLE.as_secs() / 60),
            "gates/egress",
            "it is closed",
            "fixed",
        ),
    ]
}
