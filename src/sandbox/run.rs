//! Runs helpers: asks the stem for one, gives it its job, keeps what it says within bounds, ends it with everything that
//! it has started when its time is over or nobody waits for it.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::{oneshot, watch};

use super::cgroups::Group;
use super::control::{Ended, Over, Said, frame, heard};
use super::job::{Answer, Ground, Job, Limits};
use super::starts::Stem;
use super::stem::Request;
use super::streams::Kept;
use super::usage::Usages;
use super::way_out::{self, Serving};
use crate::gates::egress::Egress;

/// How long output is waited for once a command has ended: only what it left behind outside a cage may hold it open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);
/// How long a helper has to end what it has started once it is told to.
const END_WAIT: Duration = Duration::from_secs(10);

/// How many helpers are asked when what they have begun is of no use: those that waited when the reason came up are two, the
/// third has begun after it.
const TRIES: u32 = 4;

/// Starts helpers. Cheap to clone; the clones share a stem.
#[derive(Clone, Debug)]
pub struct Runner {
    stem: Arc<Stem>,
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
    /// It went over a limit of its workspace.
    Over(Over),
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
    /// For whoever reads its standard error: what happened to it that it cannot have said itself.
    pub notes: Vec<String>,
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

/// Why one helper did nothing, or not all of it.
enum Failed {
    /// What it had begun is of no use; another may be asked.
    Stale(String),
    Run(RunError),
}

impl From<RunError> for Failed {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl From<Failed> for RunError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Stale(why) => Self::NoCage(why),
            Failed::Run(error) => error,
        }
    }
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

/// The disk of a workspace, looked at while a command runs.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Where it is kept what was found.
    pub usages: Usages,
    /// Of which workspace.
    pub key: String,
    /// Its folder.
    pub folder: PathBuf,
    /// What it may have.
    pub limits: Limits,
}

fn no_cage(error: std::io::Error) -> RunError {
    RunError::NoCage(error.to_string())
}

fn lost(error: std::io::Error) -> RunError {
    RunError::Lost(error.to_string())
}

impl Runner {
    /// Helpers are this program, on this ground.
    #[must_use]
    pub fn new(program: PathBuf, ground: Ground) -> Self {
        Self { stem: Arc::new(Stem::new(program, ground)) }
    }

    /// Says where groups of commands are made, before the first helper is asked: what is left there when this process is
    /// killed goes with its helpers.
    pub fn groups_in(&self, places: Vec<PathBuf>) {
        self.stem.groups_in(places);
    }

    async fn start(
        &self,
        job: &Job,
        stdout: OwnedFd,
        stderr: OwnedFd,
        doors: Vec<OwnedFd>,
    ) -> std::io::Result<UnixStream> {
        let (mut own, control) = pair()?;
        self.stem.ask(Request { control, stdout, stderr, doors }).await?;
        own.write_all(&frame(job)).await?;
        Ok(own)
    }

    /// Runs a command. `group`: in which the kernel limits it; `disk`: what is looked at meanwhile; `egress`: how the
    /// job's hosts are reached.
    ///
    /// # Errors
    /// [`RunError::NoCage`] and [`RunError::Lost`]; a command that fails is no error.
    pub async fn command(
        &self,
        job: &Job,
        group: Option<Group>,
        within: Duration,
        sign: Cancelled,
        disk: Option<Disk>,
        egress: &Egress,
    ) -> Result<Ran, RunError> {
        let mut tries = 1..TRIES;
        let ran = loop {
            match self.try_command(job, group.as_ref(), within, sign.clone(), disk.clone(), egress).await {
                Err(Failed::Stale(_)) if tries.next().is_some() => {}
                ran => break ran,
            }
        };
        let mut ran = match ran {
            Ok(ran) => ran,
            Err(error) => {
                // Whoever was to end it may be gone itself: nothing of it runs beside the next command.
                if let Some(group) = group {
                    group.end().await;
                }
                return Err(error.into());
            }
        };
        if group.is_some_and(|group| group.starved()) {
            let most = super::control::size(job.limits.memory_bytes);
            ran.notes.push(format!(
                "A process was killed: the sandbox has {most} of memory, and all of it was taken."
            ));
        }
        Ok(ran)
    }

    async fn try_command(
        &self,
        job: &Job,
        group: Option<&Group>,
        within: Duration,
        sign: Cancelled,
        disk: Option<Disk>,
        egress: &Egress,
    ) -> Result<Ran, Failed> {
        let ((stdout, out), (stderr, err)) = (reader().map_err(no_cage)?, reader().map_err(no_cage)?);
        let door = if job.hosts.is_empty() { None } else { Some(pair().map_err(no_cage)?) };
        let (door, its_door) = door.unzip();
        let group = group.map_or_else(|| Ok(Vec::new()), Group::doors).map_err(no_cage)?;
        let doors = its_door.into_iter().chain(group).collect();
        let mut control = self.start(job, out, err, doors).await.map_err(no_cage)?;
        let (mut hears, mut says) = control.split();
        let (stdout, stderr) = (Drained::of(stdout), Drained::of(stderr));
        let (here, number) = oneshot::channel();
        let ending = ended(&mut hears, here);
        let watching = async {
            let keeper = number.await.ok().and_then(|number| i32::try_from(number).ok());
            match disk {
                Some(Disk { usages, key, folder, limits }) => {
                    usages.watch(&key, folder, limits, keeper.map(Pid::from_raw)).await
                }
                None => std::future::pending().await,
            }
        };
        tokio::pin!(ending);
        let waited = tokio::select! {
            biased;
            ended = &mut ending => Ok(ended),
            () = cancelled(sign) => Err(End::Cancelled),
            () = tokio::time::sleep(within) => Err(End::TimedOut),
            over = watching => Err(End::Over(over)),
            // As long as the command runs, and no longer.
            never = let_out(door, job, egress) => match never {},
        };
        let (ended, cut) = match waited {
            Ok(ended) => (ended, None),
            Err(end) => {
                // Any word means the end; one that does not hear it is gone.
                let _ = says.write_all(b"end").await;
                let ended = tokio::time::timeout(END_WAIT, ending).await;
                let late = Err(RunError::Lost("its processes do not end".to_owned()).into());
                (ended.unwrap_or(late), Some(end))
            }
        };
        let ended = ended?;
        let (stdout, stderr) = (stdout.end().await, stderr.end().await);
        let end = match (cut, ended.over) {
            (Some(end), _) => end,
            (None, Some(over)) => End::Over(over),
            (None, None) => End::Exit(ended.code),
        };
        Ok(Ran { end, stdout, stderr, notes: Vec::new() })
    }

    /// Does other work.
    ///
    /// # Errors
    /// As [`RunError`] says.
    pub async fn answer(&self, job: &Job, within: Duration, sign: Cancelled) -> Result<Answer, RunError> {
        let mut tries = 1..TRIES;
        loop {
            match self.try_answer(job, within, sign.clone()).await {
                Err(Failed::Stale(_)) if tries.next().is_some() => {}
                answer => return Ok(answer?),
            }
        }
    }

    async fn try_answer(&self, job: &Job, within: Duration, sign: Cancelled) -> Result<Answer, Failed> {
        let null = || std::fs::File::options().write(true).open("/dev/null").map(OwnedFd::from);
        let (stdout, stderr) = (null().map_err(no_cage)?, null().map_err(no_cage)?);
        let mut control = self.start(job, stdout, stderr, Vec::new()).await.map_err(no_cage)?;
        let answering = async {
            let mut answer = None;
            loop {
                match heard(&mut control).await.map_err(lost)? {
                    Some(Said::Stale(why)) => return Err(Failed::Stale(why)),
                    Some(Said::NoCage(why)) => return Err(RunError::NoCage(why).into()),
                    Some(Said::Answer(given)) => answer = Some(given),
                    Some(Said::Ready(_)) => {}
                    Some(Said::Ended(Ended { code, .. })) => {
                        let lost = || RunError::Lost(format!("it ended with {code} and no answer"));
                        return answer.ok_or_else(|| lost().into());
                    }
                    None => return Err(RunError::Lost("it went away".to_owned()).into()),
                }
            }
        };
        tokio::select! {
            biased;
            answer = answering => answer,
            () = cancelled(sign) => Err(RunError::Cancelled.into()),
            () = tokio::time::sleep(within) => Err(RunError::TimedOut.into()),
        }
    }
}

/// Listens until a helper has ended.
async fn ended(from: &mut (impl AsyncRead + Unpin), here: oneshot::Sender<u32>) -> Result<Ended, Failed> {
    let (mut here, mut began) = (Some(here), false);
    loop {
        match heard(from).await.map_err(lost)? {
            Some(Said::Ready(number)) => {
                began = true;
                // It may have been cut off already.
                let _ = here.take().map(|here| here.send(number));
            }
            Some(Said::Stale(why)) => return Err(Failed::Stale(why)),
            Some(Said::NoCage(why)) => return Err(RunError::NoCage(why).into()),
            Some(Said::Answer(_)) => {}
            Some(Said::Ended(ended)) => return Ok(ended),
            None if began => return Err(RunError::Lost("it went away".to_owned()).into()),
            None => return Err(no_cage(std::io::Error::from(ErrorKind::UnexpectedEof)).into()),
        }
    }
}

/// Serves the way out of a job, for as long as it is polled.
async fn let_out(door: Option<UnixStream>, job: &Job, egress: &Egress) -> Infallible {
    let mut _serving: Option<Serving> = None;
    if let Some(door) = door {
        let sandbox = job.folder.as_str();
        let served = match way_out::handed_over(&door).await {
            Ok(Some(listener)) => way_out::serve(egress, listener, sandbox, job.hosts.clone()).map(Some),
            // The cage does not stand, which is told elsewhere.
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        match served {
            Ok(served) => _serving = served,
            Err(error) => tracing::warn!(%sandbox, %error, "a sandbox has no way out"),
        }
    }
    std::future::pending().await
}

/// A socket whose other end is a helper's.
fn pair() -> std::io::Result<(UnixStream, OwnedFd)> {
    let (own, its) = std::os::unix::net::UnixStream::pair()?;
    own.set_nonblocking(true)?;
    Ok((UnixStream::from_std(own)?, its.into()))
}

/// A pipe that is read here.
fn reader() -> std::io::Result<(pipe::Receiver, OwnedFd)> {
    let (reads, writes) = std::io::pipe()?;
    Ok((pipe::Receiver::from_owned_fd(reads.into())?, writes.into()))
}

/// A stream that is read to its end on the side.
struct Drained(tokio::task::JoinHandle<Kept>);

impl Drained {
    fn of(stream: pipe::Receiver) -> Self {
        Self(tokio::spawn(Kept::drain(stream)))
    }

    async fn end(self) -> Kept {
        let abort = self.0.abort_handle();
        let done = tokio::time::timeout(OUTPUT_GRACE, self.0).await;
        abort.abort();
        done.ok().and_then(Result::ok).unwrap_or_default()
    }
}
