//! A manager over a folder of its own, and what it claims.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nylorun::sandbox::choice::{Choice, Kind, Means, Preference};
use nylorun::sandbox::job::Limits;
use nylorun::sandbox::manager::{Manager, Parts};
use nylorun_actors::model::Json;
use nylorun_actors::model::workspace::{
    Claim, Tool, ToolOutcome, WorkspaceCall, WorkspaceSession, session_key,
};
use nylorun_actors::ports::clock::SystemClock;
use nylorun_actors::ports::engine::ApiError;
use nylorun_actors::ports::workspaces::{Claims, WorkspaceManager as _};
use serde_json::json;
use tempfile::TempDir;

use super::dockerd::Dockerd;

/// Claims as they come.
#[derive(Default)]
pub struct Heard(pub Mutex<Vec<Claim>>);

impl Claims for Heard {
    fn claim(&self, claim: Claim) -> BoxFuture<'static, ()> {
        self.0.lock().unwrap().push(claim);
        async {}.boxed()
    }
}

impl Heard {
    /// Types and the members of payloads that are asked for.
    pub fn told(&self, members: &[&str]) -> Vec<String> {
        let claims = self.0.lock().unwrap();
        let told = claims.iter().map(|claim| {
            let of = |name: &&str| match &claim.payload[*name] {
                Json::Null => "-".to_owned(),
                Json::String(text) => text.clone(),
                other => other.to_string(),
            };
            members.iter().map(of).collect::<Vec<_>>().join(" ")
        });
        told.collect()
    }
}

pub struct Spaces {
    pub dir: TempDir,
    pub manager: Manager,
    pub heard: Arc<Heard>,
    pub spec: Json,
}

/// Makes each test once for each backend. `every`: `process`, too; `apart`: those that keep apart; `cages`: those of
/// them whose helpers are this program.
macro_rules! for_each_backend {
    (every: $($test:ident)*) => {
        super::support::for_each_backend! { apart: $($test)* }
        super::support::for_each_backend! { process Process: $($test)* }
    };
    (apart: $($test:ident)*) => {
        super::support::for_each_backend! { cages: $($test)* }
        super::support::for_each_backend! { docker Docker: $($test)* }
    };
    (cages: $($test:ident)*) => {
        super::support::for_each_backend! { namespaces Namespaces: $($test)* }
        super::support::for_each_backend! { landlock Landlock: $($test)* }
    };
    ($name:ident $kind:ident: $($test:ident)*) => {
        mod $name {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let kind = nylorun::sandbox::choice::Kind::$kind;
                if crate::support::is_here(kind) {
                    super::$test(kind).await;
                }
            })*
        }
    };
}
pub(crate) use for_each_backend;

/// Whether a backend can be tested here; where not, that is said loudly.
pub fn is_here(kind: Kind) -> bool {
    kind != Kind::Docker || Dockerd::get().is_some()
}

pub const TENANT: &str = "tn_test";

impl Spaces {
    pub fn new(kind: Kind) -> Self {
        Self::with(kind, Limits::default())
    }

    pub fn with(kind: Kind, limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let manager = manager(&dir, kind, limits);
        Self { dir, manager, heard: Arc::default(), spec: json!({}) }
    }

    /// With what a test wants to be otherwise than usual.
    pub fn of(kind: Kind, change: impl FnOnce(&mut Means)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let manager = manager_of(&dir, kind, change);
        Self { dir, manager, heard: Arc::default(), spec: json!({}) }
    }

    pub async fn call(&self, session: &str, tool: Tool, input: Json) -> Result<ToolOutcome, ApiError> {
        self.start(session, tool, input).await
    }

    pub fn start(
        &self,
        session: &str,
        tool: Tool,
        input: Json,
    ) -> BoxFuture<'static, Result<ToolOutcome, ApiError>> {
        let call = WorkspaceCall { session: of(session), spec: self.spec.clone(), tool, input };
        self.manager.call(call, self.heard.clone())
    }

    /// The output of a tool that completes.
    pub async fn output(&self, session: &str, tool: Tool, input: Json) -> Json {
        match self.call(session, tool, input).await.unwrap() {
            ToolOutcome::Completed { output } => output,
            ToolOutcome::Failed { code, message } => panic!("{code}: {message}"),
        }
    }

    /// A command's output.
    pub async fn bash(&self, session: &str, command: &str) -> Json {
        self.output(session, Tool::Bash, json!({"command": command})).await
    }

    /// A command's standard output, if it exits with 0.
    pub async fn says(&self, session: &str, command: &str) -> String {
        let output = self.bash(session, command).await;
        assert_eq!(output["exitCode"], 0, "{command}: {output}");
        output["stdout"].as_str().unwrap().trim_end().to_owned()
    }

    /// The folder of a session's files on the host.
    pub fn folder(&self, session: &str) -> PathBuf {
        let key = session_key(&TENANT.into(), &session.into());
        self.dir.path().join("sandboxes").join(key).join("workspace")
    }
}

/// The program; a copy where an ordinary user finds it, when tests run as one.
pub fn program() -> PathBuf {
    std::env::var_os(super::ordinary::PROGRAM)
        .map_or_else(|| env!("CARGO_BIN_EXE_nylorun").into(), PathBuf::from)
}

pub fn manager(dir: &TempDir, kind: Kind, limits: Limits) -> Manager {
    manager_of(dir, kind, |means| means.limits = limits)
}

pub fn manager_of(dir: &TempDir, kind: Kind, change: impl FnOnce(&mut Means)) -> Manager {
    let root = dir.path().join("sandboxes");
    let mut means = Means::new(program(), root.clone());
    if let Some(docker) = (kind == Kind::Docker).then(Dockerd::get).flatten() {
        means.docker = docker.means();
    }
    change(&mut means);
    let choice = Arc::new(Choice::new(Preference::Only(kind), means));
    Manager::new(Parts { tenant: TENANT.into(), root, choice, clock: Arc::new(SystemClock) }).unwrap()
}

pub fn of(session: &str) -> WorkspaceSession {
    WorkspaceSession { owner_id: session.into(), sandbox_id: None, active_turn_id: None }
}
