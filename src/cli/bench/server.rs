//! A temporary Runtime of this very binary in a directory of its own, and what the kernel says about a process.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cli::fault::{Fault, exit};

/// A directory that goes away with its owner.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one below `parent`, else below the system's directory for temporary files.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(parent: Option<&Path>) -> Result<Self, Fault> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let path = parent.join(format!("nylorun-bench-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir_all(&path)
            .map_err(|error| Fault::new(exit::FAILED, "bench", format!("{}: {error}", path.display())))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays in a directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A temporary Runtime. It is stopped when this is dropped.
pub struct TemporaryServer {
    child: Child,
    /// Its home.
    pub home: Scratch,
}

impl TemporaryServer {
    /// Starts one and waits until it is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn start(parent: Option<&Path>) -> Result<Self, Fault> {
        let told = |why: String| {
            Fault::new(exit::NOT_READY, "bench", format!("the temporary Runtime did not start: {why}"))
        };
        let home = Scratch::make(parent)?;
        let binary = std::env::current_exe().map_err(|error| told(error.to_string()))?;
        let mut command = Command::new(binary);
        // Whatever is set for the Runtime of this machine must not reach this one.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("NYLORUN_") {
                command.env_remove(name);
            }
        }
        let child = command
            .args(["serve", "--listen", "127.0.0.1:0", "--log", "json", "--log-filter", "warn", "--home"])
            .arg(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| told(error.to_string()))?;
        let mut server = Self { child, home };
        let Some(stdout) = server.child.stdout.take() else {
            return Err(told("it has no output".to_owned()));
        };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).map_err(|error| told(error.to_string()))?;
        if line.starts_with("nylorun ready") {
            Ok(server)
        } else {
            Err(told("it ended; its log says why".to_owned()))
        }
    }
}

impl Drop for TemporaryServer {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let until = Instant::now() + Duration::from_secs(15);
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resident bytes of a process now, and at its peak. `None` when the process is not on this machine.
pub fn memory(pid: u64) -> Option<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib * 1024)
    };
    Some((field("VmRSS:")?, field("VmHWM:")?))
}
