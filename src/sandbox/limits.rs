//! The bounds of workspaces and their tools. `docs/limits.md` is made from them.

/// Characters of each stream of a command that are kept: a half from each end.
pub const STREAM_CHARS: usize = 30_000;
/// Characters of a line that `read` and `grep` show.
pub const LINE_CHARS: usize = 2_000;
/// Characters that `read`, `grep` and `glob` answer in all.
pub const ANSWER_CHARS: usize = 400_000;
/// Lines that `read` shows unless it is told otherwise, and at most.
pub const READ_LINES: u64 = 2_000;
/// See [`READ_LINES`].
pub const READ_LINES_MOST: u64 = 5_000;
/// Seconds that a command has unless it is told otherwise, and at most.
pub const COMMAND_SECONDS: f64 = 120.0;
/// See [`COMMAND_SECONDS`].
pub const COMMAND_SECONDS_MOST: f64 = 600.0;
/// Matches that `grep` shows unless it is told otherwise, and at most.
pub const GREP_MATCHES: u64 = 200;
/// See [`GREP_MATCHES`].
pub const GREP_MATCHES_MOST: u64 = 1_000;
/// Files that `glob` shows.
pub const GLOB_FILES: usize = 500;
/// Files that `glob` looks at.
pub const GLOB_LOOKS: usize = 20_000;
/// Largest file that `edit` changes, bytes.
pub const EDIT_BYTES: u64 = 64 * 1024 * 1024;
/// Seconds that everything but a command may take.
pub const HELPER_SECONDS: u64 = 60;
/// Characters of a command that its event shows.
pub const EVENT_COMMAND_CHARS: usize = 500;
/// Characters of a path that an event shows: a longer one leads nowhere.
pub const EVENT_PATH_CHARS: usize = 4_096;
/// Bytes of the longest line in which `grep` searches: each of its threads holds one.
pub const SEARCH_LINE_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of a command: the system takes no longer argument for the shell.
pub const COMMAND_BYTES: usize = 128 * 1024 - 1;
/// Milliseconds without use after which a workspace stops.
pub const IDLE_MS: u64 = 15 * 60_000;
/// CPUs of a sandbox that names none.
pub const CPUS: u32 = 2;
/// Memory of a sandbox that names none, all its processes together, bytes.
pub const MEMORY_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// Processes and threads of a sandbox.
pub const PROCESSES: u64 = 512;
/// Files that one process may have open.
pub const OPEN_FILES: u64 = 4_096;
/// Bytes that a workspace may have on disk, temporary files included.
pub const DISK_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// Files and folders that a workspace may have on disk, temporary ones included.
pub const INODES: u64 = 400_000;
