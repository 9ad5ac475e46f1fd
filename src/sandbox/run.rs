//! Runs helpers: starts one, gives it its job, keeps what it says within bounds, ends it with everything it has started
//! when its time is over or nobody waits for it.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use nylorun_actors::model::json::encode;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};

use super::job::{ARGUMENT, Answer, Job, READY};
use super::streams::Kept;

/// Largest answer of a helper, bytes: the largest artifact in base64, and more than any tool says.
const ANSWER_BYTES: u64 = 256 * 1024 * 1024;
/// How long output is waited for once a helper has ended: only what it left behind outside a cage may hold it open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// Starts helpers.
#[derive(Clone, Debug)]
pub struct Runner {
    /// The program that a helper is: this one.
    pub program: PathBuf,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code; 128 and more: by a signal.
    Exit(i32),
    /// Its time was over.
    TimedOut,
    /// Nobody waited for it any more.
    Cancelled,
}

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub end: End,
    /// Standard output.
    pub stdout: Kept,
    /// Standard error.
    pub stderr: Kept,
}

/// Why a helper did nothing, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Its cage could not be built: nothing ran.
    #[error("the sandbox cannot be started: {0}")]
    NoCage(String),
    /// It began and was lost.
    #[error("the sandbox was lost: {0}")]
    Lost(String),
    /// Its time was over.
    #[error("the sandbox did not answer in time")]
    TimedOut,
    /// Nobody waited for it any more.
    #[error("the call was given up")]
    Cancelled,
}

/// A sign that nobody waits any more.
pub type Cancelled = watch::Receiver<bool>;

/// Waits for the sign.
pub async fn cancelled(mut sign: Cancelled) {
    // A sender that is gone without a word never cancels.
    if sign.wait_for(|cancelled| *cancelled).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// A helper with everything that it has started in its group.
struct Helper(Child, Option<Pid>);

impl Helper {
    /// Ends the group, also when the helper itself has ended. Once: afterwards its number may be another's.
    fn kill(&mut self) {
        if let Some(group) = self.1.take() {
            // It may have ended this very moment.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Runner {
    async fn start(&self, job: &Job) -> std::io::Result<Helper> {
        let mut child = Command::new(&self.program)
            .arg(ARGUMENT)
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take();
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let helper = Helper(child, group);
        if let Some(mut stdin) = stdin {
            stdin.write_all(encode(job).as_bytes()).await?;
        }
        Ok(helper)
    }

    /// Runs a command.
    ///
    /// # Errors
    /// [`RunError::NoCage`] and [`RunError::Lost`]; a command that fails is no error.
    pub async fn command(&self, job: &Job, within: Duration, sign: Cancelled) -> Result<Ran, RunError> {
        let no_cage = |error: std::io::Error| RunError::NoCage(error.to_string());
        let mut helper = self.start(job).await.map_err(no_cage)?;
        let (stdout, stderr) = (helper.0.stdout.take(), helper.0.stderr.take());
        let (stands, stood) = oneshot::channel();
        let stdout = tokio::spawn(async move {
            let Some(stdout) = stdout else { return Kept::default() };
            let mut reader = BufReader::new(stdout);
            let mut first = Vec::new();
            let limit = READY.len() as u64 + 1;
            let _ = (&mut reader).take(limit).read_until(b'\n', &mut first).await;
            // Whoever runs the command may have been dropped.
            let _ = stands.send(first.strip_suffix(b"\n") == Some(READY.as_bytes()));
            Kept::drain(reader).await
        });
        let stderr = tokio::spawn(async move {
            match stderr {
                Some(stderr) => Kept::drain(stderr).await,
                None => Kept::default(),
            }
        });
        let waited = tokio::select! {
            biased;
            status = helper.0.wait() => Ok(status),
            () = cancelled(sign) => Err(End::Cancelled),
            () = tokio::time::sleep(within) => Err(End::TimedOut),
        };
        // Also what a command has left in the background where no cage ends it.
        helper.kill();
        let (status, cut) = match waited {
            Ok(status) => (status, None),
            Err(end) => (helper.0.wait().await, Some(end)),
        };
        let status = status.map_err(|error| RunError::Lost(error.to_string()))?;
        let stdout = within_grace(stdout).await.unwrap_or_default();
        let stderr = within_grace(stderr).await.unwrap_or_default();
        let end = match cut {
            Some(end) => end,
            None if !stood.await.unwrap_or(false) => {
                return Err(RunError::NoCage(stderr.text().0.trim().to_owned()));
            }
            None => {
                use std::os::unix::process::ExitStatusExt as _;
                End::Exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
            }
        };
        Ok(Ran { end, stdout, stderr })
    }

    /// Does other work.
    ///
    /// # Errors
    /// As [`RunError`] says.
    pub async fn answer(&self, job: &Job, within: Duration, sign: Cancelled) -> Result<Answer, RunError> {
        let no_cage = |error: std::io::Error| RunError::NoCage(error.to_string());
        let mut helper = self.start(job).await.map_err(no_cage)?;
        let (stdout, stderr) = (helper.0.stdout.take(), helper.0.stderr.take());
        let answering = async {
            let mut said = Vec::new();
            if let Some(stdout) = stdout {
                let read = stdout.take(ANSWER_BYTES).read_to_end(&mut said).await;
                read.map_err(|error| RunError::Lost(error.to_string()))?;
            }
            let mut why = Vec::new();
            if let Some(stderr) = stderr {
                let _ = stderr.take(64 * 1024).read_to_end(&mut why).await;
            }
            let ended = helper.0.wait().await.map_err(|error| RunError::Lost(error.to_string()))?;
            let why = String::from_utf8_lossy(&why).trim().to_owned();
            let Some(text) = said.strip_prefix(READY.as_bytes()) else { return Err(RunError::NoCage(why)) };
            serde_json::from_slice(text).map_err(|error| RunError::Lost(format!("{ended}: {error} {why}")))
        };
        tokio::select! {
            biased;
            answer = answering => answer,
            () = cancelled(sign) => Err(RunError::Cancelled),
            () = tokio::time::sleep(within) => Err(RunError::TimedOut),
        }
    }
}

async fn within_grace<T>(task: tokio::task::JoinHandle<T>) -> Option<T> {
    let abort = task.abort_handle();
    let done = tokio::time::timeout(OUTPUT_GRACE, task).await;
    abort.abort();
    done.ok().and_then(Result::ok)
}
