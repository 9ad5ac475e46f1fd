//! Commands in a container that runs, and their end: whatever they have started ends with them.

use std::pin::Pin;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::exec::StartExecResults;
use bollard::models::{ExecConfig, ExecInspectResponse};
use futures_util::{Stream, StreamExt as _};
use tokio::time::{sleep, timeout};

use super::container::{Container, user};
use super::daemon::{Daemon, words};
use crate::sandbox::files::WORKSPACE;
use crate::sandbox::run::{Cancelled, Disk, End, Ran, cancelled};
use crate::sandbox::streams::Kept;
use crate::sandbox::usage::Usage;

/// Runs `$1` and ends whatever it has left: `kill -1` is every process of this user but the one that asks.
const COMMAND: &str = "unset HOSTNAME; [ -n \"$2\" ] && ulimit -f 0; s=/bin/sh; [ -x /bin/bash ] && s=/bin/bash; \
                       \"$s\" -c \"$1\" </dev/null; c=$?; kill -9 -1 2>/dev/null; exit $c";
/// Ends every process of this user.
const END: &str = "kill -9 -1 2>/dev/null; exit 0";
/// How long the end of everything may take.
const END_WAIT: Duration = Duration::from_secs(5);
/// How long output is waited for when everything has ended.
const OUTPUT_GRACE: Duration = Duration::from_secs(2);
/// How often it is looked whether something has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Why a command came to nothing.
pub(super) enum Fault {
    /// Nothing ran: the container is not there any more, or starts nothing.
    NotRun(String),
    /// It began and was lost.
    Lost(String),
}

type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>;

#[derive(Default)]
struct Said {
    stdout: Kept,
    stderr: Kept,
}

impl Said {
    async fn drain(&mut self, output: &mut Output) {
        // A stream that breaks has ended; how the command did is asked afterwards.
        while let Some(Ok(said)) = output.next().await {
            match said {
                LogOutput::StdErr { message } => self.stderr.push(&message),
                LogOutput::StdOut { message } | LogOutput::Console { message } => self.stdout.push(&message),
                LogOutput::StdIn { .. } => {}
            }
        }
    }
}

impl Daemon {
    async fn exec(&self, id: &str, script: &[&str], env: Vec<String>) -> Result<(String, Output), Error> {
        let config = ExecConfig {
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            user: Some(user()),
            working_dir: Some(WORKSPACE.to_owned()),
            env: Some(env),
            cmd: Some(["/bin/sh", "-c"].iter().chain(script).map(|&part| part.to_owned()).collect()),
            ..ExecConfig::default()
        };
        let exec = self.api.create_exec(id, config).await?.id;
        match self.api.start_exec(&exec, None).await? {
            StartExecResults::Attached { output, .. } => Ok((exec, output)),
            StartExecResults::Detached => Ok((exec, Box::pin(futures_util::stream::empty()))),
        }
    }

    /// Waits until the daemon knows how something has ended.
    async fn ended(&self, exec: &str) -> Result<ExecInspectResponse, String> {
        let asking = async {
            loop {
                let found = self.api.inspect_exec(exec).await.map_err(|error| words(&error))?;
                if found.running != Some(true) {
                    return Ok(found);
                }
                sleep(LOOK).await;
            }
        };
        timeout(OUTPUT_GRACE, asking).await.unwrap_or_else(|_| Err("it does not end".to_owned()))
    }

    /// Runs a command. Whoever asks has to look for what it has left behind: [`Daemon::quiet`].
    pub(super) async fn command(
        &self,
        container: &Container,
        command: &str,
        env: Vec<String>,
        within: Duration,
        sign: Cancelled,
        disk: Option<Disk>,
    ) -> Result<Ran, Fault> {
        // Of a workspace that is full nothing more is written; `1` says so to the script.
        let full = match &disk {
            Some(Disk { usages, key, folder, limits }) => usages.full(key, folder, limits).await,
            None => None,
        };
        let starved = container.starved();
        let mark = if full.is_some() { "1" } else { "" };
        let started = self.exec(&container.id, &[COMMAND, "sh", command, mark], env).await;
        let (exec, mut output) = started.map_err(|error| Fault::NotRun(words(&error)))?;
        let mut said = Said::default();
        let watching = async {
            match disk {
                Some(Disk { usages, key, folder, limits }) => {
                    usages.watch(&key, folder, limits, container.above()).await
                }
                None => std::future::pending().await,
            }
        };
        let cut = tokio::select! {
            biased;
            () = said.drain(&mut output) => None,
            () = cancelled(sign) => Some(End::Cancelled),
            () = sleep(within) => Some(End::TimedOut),
            over = watching => Some(End::Over(over)),
        };
        let end = match cut {
            Some(end) => {
                // Without it there is nothing that could go on saying something.
                let _ended = self.end_all(container).await;
                let _ = timeout(OUTPUT_GRACE, said.drain(&mut output)).await;
                end
            }
            None => {
                let ended = self.ended(&exec).await.map_err(Fault::Lost)?;
                if ended.pid.unwrap_or(0) == 0 {
                    return Err(Fault::NotRun(said.stdout.text().0.trim().to_owned()));
                }
                let code = ended.exit_code.and_then(|code| i32::try_from(code).ok());
                End::Exit(code.ok_or_else(|| Fault::Lost("nobody knows how it ended".to_owned()))?)
            }
        };
        let mut notes: Vec<String> = full.iter().map(Usage::is_full).collect();
        if container.starved() > starved {
            notes.push("A process was killed: all of the sandbox's memory was taken.".to_owned());
        }
        Ok(Ran { end, stdout: said.stdout, stderr: said.stderr, notes })
    }

    /// Ends every process of commands. Whether that could be done: a container that is full of processes starts no
    /// other one.
    async fn end_all(&self, container: &Container) -> bool {
        let ending = async {
            let (exec, mut output) = self.exec(&container.id, &[END], Vec::new()).await.ok()?;
            Said::default().drain(&mut output).await;
            let ended = self.ended(&exec).await.ok()?;
            (ended.exit_code == Some(0)).then_some(())
        };
        matches!(timeout(END_WAIT, ending).await, Ok(Some(())))
    }

    /// Sees to it that nothing of a command is left. `false`: the container itself has to go.
    pub(super) async fn quiet(&self, container: &Container) -> bool {
        match container.is_quiet() {
            Some(true) => true,
            Some(false) => {
                is_soon_quiet(container).await
                    || (self.end_all(container).await && is_soon_quiet(container).await)
            }
            None => self.end_all(container).await,
        }
    }
}

/// Whether what was killed is gone before long.
async fn is_soon_quiet(container: &Container) -> bool {
    for _ in 0..40 {
        if container.is_quiet() != Some(false) {
            return true;
        }
        sleep(LOOK).await;
    }
    false
}
