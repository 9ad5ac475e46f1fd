//! `bench sandbox`: how long a command takes in a workspace that was never used and in one that is open, a tool, and a
//! search, for each backend that works here; and what idle workspaces cost.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nylorun_actors::model::ids::TenantId;
use nylorun_actors::model::json::Json;
use nylorun_actors::model::workspace::{
    Claim, Removal, Tool, ToolOutcome, WorkspaceCall, WorkspaceSession, session_key,
};
use nylorun_actors::ports::clock::SystemClock;
use nylorun_actors::ports::workspaces::{Claims, WorkspaceManager as _};
use serde_json::json;

use super::server::{Scratch, memory};
use super::{Latencies, round};
use crate::cli::args::BenchSandbox;
use crate::cli::fault::{Fault, exit};
use crate::cli::out::Out;
use crate::sandbox::choice::{self, Choice, Kind, Means, Preference};
use crate::sandbox::docker::DockerMeans;
use crate::sandbox::helper;
use crate::sandbox::manager::{Manager, Parts};

/// Times that a search is measured.
const SEARCHES: usize = 7;
/// Files in one folder of the tree that is searched.
const IN_FOLDER: u32 = 100;
/// What is searched for: it is in one file of a thousand.
const WORD: &str = "needle_in_the_hay";

/// Nobody listens.
struct Nobody;

impl Claims for Nobody {
    fn claim(&self, _: Claim) -> BoxFuture<'static, ()> {
        async {}.boxed()
    }
}

/// Runs the measurement and prints it.
///
/// # Errors
/// When a backend that was named does not work here, or a command fails.
pub async fn run(bench: &BenchSandbox, out: &Out) -> Result<(), Fault> {
    let scratch = Scratch::make(bench.dir.as_deref())?;
    let root = bench.root.clone().unwrap_or_else(|| scratch.path().join("sandboxes"));
    let named = bench.backend.as_deref().map(Preference::from_name).transpose().map_err(|why| told(&why))?;
    let kinds = match named {
        Some(Preference::Only(kind)) => vec![kind],
        Some(Preference::Auto) | None => Kind::ALL.to_vec(),
    };
    let program = helper::program().map_err(|error| told(&error))?;
    let (mut reports, mut skipped) = (Vec::new(), Vec::new());
    for kind in kinds {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let docker = DockerMeans::of(var("DOCKER_HOST"), var("NYLORUN_SANDBOX_IMAGE"));
        let means = Means { docker, ..Means::new(program.clone(), root.join(kind.name())) };
        if let Err(why) = choice::probe(kind, &means).await {
            if named.is_some_and(|named| named == Preference::Only(kind)) {
                return Err(told(&format!("{}: {why}", kind.name())));
            }
            skipped.push(json!({ "backend": kind.name(), "reason": why }));
            continue;
        }
        let report = match Bench::new(kind, means, bench)?.measure().await {
            Ok(report) => report,
            Err(fault) if named.is_some() => return Err(fault),
            Err(fault) => {
                skipped.push(json!({ "backend": kind.name(), "reason": fault.message }));
                continue;
            }
        };
        if !out.is_json() {
            print(&report, out)?;
        }
        reports.push(report);
    }
    if out.is_json() {
        return out.json(&json!({ "bench": "sandbox", "backends": reports, "skipped": skipped }));
    }
    for skip in skipped {
        out.line(&format!("{} was skipped: {}", text(&skip["backend"]), text(&skip["reason"])))?;
    }
    Ok(())
}

fn told(error: &dyn std::fmt::Display) -> Fault {
    Fault::new(exit::FAILED, "bench", error.to_string())
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or("-")
}

fn print(report: &Json, out: &Out) -> Result<(), Fault> {
    out.line(&format!("{}  {}", text(&report["backend"]), text(&report["reason"])))?;
    for (name, what) in [
        ("cold", "first command of a workspace"),
        ("command", "a further command"),
        ("tool", "a tool (read)"),
    ] {
        let of = &report[name];
        out.line(&format!(
            "  {what:<30} p50 {:>8} ms  p95 {:>8} ms  p99 {:>8} ms",
            of["p50Ms"], of["p95Ms"], of["p99Ms"]
        ))?;
    }
    let idle = &report["idle"];
    if !idle.is_null() {
        out.line(&format!(
            "  {} idle workspaces: {} KiB more in this process, {} KiB in its helper",
            idle["workspaces"], idle["ownKib"], idle["helperKib"]
        ))?;
    }
    let grep = &report["grep"];
    if grep.is_null() {
        return Ok(());
    }
    out.line(&format!(
        "  grep over {} files: {} ms; rg: {} ms; {} times",
        grep["files"], grep["ms"], grep["rgMs"], grep["times"]
    ))
}

struct Bench<'a> {
    kind: Kind,
    root: PathBuf,
    manager: Manager,
    ask: &'a BenchSandbox,
    claims: Arc<dyn Claims>,
}

impl<'a> Bench<'a> {
    fn new(kind: Kind, means: Means, ask: &'a BenchSandbox) -> Result<Self, Fault> {
        let root = means.root.clone();
        let parts = Parts {
            tenant: TenantId::from("bench"),
            root: root.clone(),
            choice: Arc::new(Choice::new(Preference::Only(kind), means)),
            clock: Arc::new(SystemClock),
        };
        let manager = Manager::new(parts).map_err(|error| told(&error))?;
        Ok(Self { kind, root, manager, ask, claims: Arc::new(Nobody) })
    }

    async fn call(&self, session: &str, tool: Tool, input: Json) -> Result<Json, Fault> {
        let call = WorkspaceCall { session: of(session), spec: json!({}), tool, input };
        match self.manager.call(call, Arc::clone(&self.claims)).await {
            Ok(ToolOutcome::Completed { output }) => Ok(output),
            Ok(ToolOutcome::Failed { code, message }) => Err(told(&format!("{code}: {message}"))),
            Err(error) => Err(told(&error)),
        }
    }

    async fn pause(&self) {
        if self.ask.pause > 0 {
            tokio::time::sleep(Duration::from_millis(self.ask.pause)).await;
        }
    }

    /// One command; microseconds.
    async fn command(&self, session: &str) -> Result<u64, Fault> {
        self.pause().await;
        let began = Instant::now();
        self.call(session, Tool::Bash, json!({ "command": self.ask.command, "timeout": 600 })).await?;
        Ok(micros(began))
    }

    async fn measure(&self) -> Result<Json, Fault> {
        let reason = self.manager.selection().await.report.reason.clone();
        // The helper's program is started once, by the first.
        self.command("warm").await?;
        let (mut cold, mut command, mut tool) =
            (Latencies::default(), Latencies::default(), Latencies::default());
        for run in 0..self.ask.runs {
            cold.0.push(self.command(&format!("cold-{run}")).await?);
        }
        for _ in 0..self.ask.runs {
            command.0.push(self.command("warm").await?);
        }
        self.call("warm", Tool::Write, json!({ "path": "file", "content": "text\n" })).await?;
        for _ in 0..self.ask.runs {
            self.pause().await;
            let began = Instant::now();
            self.call("warm", Tool::Read, json!({ "path": "file" })).await?;
            tool.0.push(micros(began));
        }
        let idle = if self.ask.idle > 0 { Some(self.idle().await?) } else { None };
        let grep = if self.ask.files > 0 { Some(self.grep().await?) } else { None };
        self.manager.remove(Removal::everything()).await.map_err(|error| told(&error))?;
        self.manager.close(None).await;
        Ok(json!({
            "backend": self.kind.name(), "reason": reason, "runs": self.ask.runs, "pauseMs": self.ask.pause,
            "cold": figures(cold), "command": figures(command), "tool": figures(tool),
            "idle": idle, "grep": grep,
        }))
    }

    /// Workspaces that were used and stay open.
    async fn idle(&self) -> Result<Json, Fault> {
        let own = || memory(u64::from(std::process::id())).map(|(now, _)| now);
        let before = (own(), helpers());
        for n in 0..self.ask.idle {
            self.command(&format!("idle-{n}")).await?;
        }
        let grown =
            |then: Option<u64>, now: Option<u64>| now.zip(then).map(|(n, t)| n.saturating_sub(t) / 1024);
        Ok(json!({
            "workspaces": self.ask.idle,
            "ownKib": grown(before.0, own()),
            "helperKib": grown(before.1, helpers()),
        }))
    }

    /// A search over a large tree, and the same with ripgrep where it is.
    async fn grep(&self) -> Result<Json, Fault> {
        self.call("grep", Tool::Bash, json!({ "command": "true" })).await?;
        let folder = self.root.join(session_key(&"bench".into(), &"grep".into())).join("workspace");
        let (files, into) = (self.ask.files, folder.clone());
        let made = tokio::task::spawn_blocking(move || tree(&into, files)).await;
        made.map_err(|error| told(&error))?.map_err(|error| told(&error))?;
        let (mut own, mut rg) = (Latencies::default(), Latencies::default());
        for _ in 0..SEARCHES {
            let began = Instant::now();
            self.call("grep", Tool::Grep, json!({ "pattern": WORD, "max_results": 1000 })).await?;
            own.0.push(micros(began));
            let began = Instant::now();
            let searched = tokio::process::Command::new("rg")
                .args(["-uuu", "-n", "--no-messages", WORD])
                .current_dir(&folder)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .output()
                .await;
            if searched.is_ok_and(|output| output.status.success()) {
                rg.0.push(micros(began));
            }
        }
        let (own, rg) = (own.sorted().at(500), rg.sorted().at(500));
        let times = (rg > 0.0).then(|| round(own / rg));
        Ok(json!({ "files": files, "ms": own, "rgMs": (rg > 0.0).then_some(rg), "times": times }))
    }
}

/// Memory of the helpers that wait for work.
fn helpers() -> Option<u64> {
    let own = std::process::id();
    let children = std::fs::read_dir(format!("/proc/{own}/task")).ok()?.flatten();
    let pids = children.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let numbers =
        |list: String| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u64>>();
    Some(pids.flat_map(numbers).filter_map(memory).map(|(now, _)| now).sum())
}

fn figures(latencies: Latencies) -> Json {
    let sorted = latencies.sorted();
    json!({ "p50Ms": sorted.at(500), "p95Ms": sorted.at(950), "p99Ms": sorted.at(990), "maxMs": sorted.at(1000) })
}

fn micros(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn of(session: &str) -> WorkspaceSession {
    WorkspaceSession { owner_id: session.into(), sandbox_id: None, active_turn_id: None }
}

/// Small files in folders, as a large project has them.
fn tree(folder: &Path, files: u32) -> std::io::Result<()> {
    let line = "let value = compute(input, options)?; // as before\n";
    for n in 0..files {
        let inside = folder
            .join(format!("part-{}", n / (IN_FOLDER * IN_FOLDER)))
            .join(format!("module-{}", n / IN_FOLDER));
        if n % IN_FOLDER == 0 {
            std::fs::create_dir_all(&inside)?;
        }
        let mut text = line.repeat(usize::try_from(10 + n % 50).unwrap_or(10));
        if n % 1000 == 0 {
            text.push_str(WORD);
            text.push('\n');
        }
        std::fs::write(inside.join(format!("file-{n}.rs")), text)?;
    }
    Ok(())
}
