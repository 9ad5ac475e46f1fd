//! What a person may type.

pub mod actions;
pub mod artifacts;
pub mod sandboxes;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use nylorun_actors::model::json::Json;
use serde_json::json;

use self::actions::{Effects, Endpoints, Respond, Verdict};
use self::artifacts::Artifacts;
use self::sandboxes::Sandboxes;
use super::target::Wanted;

/// A self-hosted, durable runtime for AI agents.
#[derive(Debug, Parser)]
#[command(name = "nylorun", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 not running, 4 another Host on the port, 5 too old, \
6 no Runtime at the URL, 7 not ready, 98 port in use, 99 non-loopback refused, 130 and 143 signals."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How to reach the Runtime, and how to answer.
    #[command(flatten)]
    pub global: Global,
}

/// Flags of every command.
#[derive(Debug, Args)]
pub struct Global {
    /// Answer in JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,
    /// Home directory [default: NYLORUN_HOME, else ~/.nylorun]
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// Runtime to speak to, with --key [default: NYLORUN_RUNTIME_URL, else the Project link, else the home]
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,
    /// Key to speak with (seen by other users of this machine: prefer NYLORUN_SERVER_KEY)
    #[arg(long, global = true, value_name = "KEY", hide_default_value = true)]
    pub key: Option<String>,
}

impl Global {
    /// What they say about the target.
    #[must_use]
    pub fn wanted(&self) -> Wanted {
        Wanted { url: self.url.clone(), key: self.key.clone(), home: self.home.clone() }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the Runtime
    Serve(Serve),
    /// Start a harness that takes runs of a core on another machine or process. It holds no store and no secrets
    Harness(Harness),
    /// Send a message to an agent and watch the turn
    Run(Run),
    /// Register and list agent definitions
    #[command(subcommand)]
    Agents(Agents),
    /// Look at sessions
    #[command(subcommand)]
    Sessions(Sessions),
    /// Cancel what a session does
    Cancel {
        /// Id of the session
        session: String,
        /// Why; recorded with the cancel
        #[arg(long)]
        reason: Option<String>,
    },
    /// Approve what a paused turn asks for
    Approve(Verdict),
    /// Reject what a paused turn asks for. The tool does not run, and the agent is told
    Reject(Verdict),
    /// Answer a question of a paused turn
    Respond(Respond),
    /// Effects that wait for a decision: uncertain ones, and Actions whose delivery was given up
    #[command(subcommand)]
    Effects(Effects),
    /// Action endpoints: where the application's own code runs tools
    #[command(subcommand)]
    Endpoints(Endpoints),
    /// Files that agents and people keep, in versions
    #[command(subcommand)]
    Artifacts(Artifacts),
    /// Sandboxes that outlive sessions, and commands in the sandbox of a session
    #[command(subcommand)]
    Sandboxes(Sandboxes),
    /// Say how the Runtime does
    Status {
        /// Show every actor and what it waits for (needs the admin key)
        #[arg(long)]
        actors: bool,
    },
    /// Check whether a Runtime can start and work here, and what can keep sandboxes apart
    Doctor(Settings),
    /// Choose the model
    #[command(subcommand)]
    Model(Model),
    /// Application keys (needs the admin key: the home's, or NYLORUN_ADMIN_URL and NYLORUN_ADMIN_KEY)
    #[command(subcommand)]
    Keys(Keys),
    /// The keys that sign what the Runtime sends to Action endpoints
    #[command(subcommand)]
    SigningKeys(SigningKeys),
    /// Show the effective settings and where each came from
    Config(Settings),
    /// Print the OpenAPI document of the API
    Openapi {
        /// The operator API's document
        #[arg(long)]
        operator: bool,
    },
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Register sample agents, run a turn and one with tools and an approval, and explain what happened
    Quickstart {
        /// What the first agent is told
        #[arg(default_value = "hello")]
        message: String,
        /// Approve by itself, without a person at a terminal
        #[arg(long, short)]
        yes: bool,
    },
    /// Measure
    #[command(subcommand)]
    Bench(Bench),
}

/// `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Its settings.
    #[command(flatten)]
    pub settings: Settings,
    /// Register the sample agent `assistant` when there is none, and choose the built-in fixture model when no model
    /// is configured, so that `nylorun run assistant hello` works at once
    #[arg(long)]
    pub sample: bool,
}

/// `harness`.
#[derive(Debug, Args)]
#[command(after_help = "\
--url names core's harness listener here: ws://HOST:4200 or wss://… [NYLORUN_HARNESS_URL]. The token is read from
--token-file, else from NYLORUN_HARNESS_TOKEN; it is never a flag, since flags are seen by other users. Each flag wins
over its variable, that over --config FILE. A harness refuses to start while a variable of core's secrets is set.

It ends in order on SIGTERM: its runs go to other harnesses. Exit codes: 0 stopped, 2 a setting is missing, malformed or
forbidden, 98 the health port is in use.")]
pub struct Harness {
    /// Settings file, with the names of these flags as keys
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// File with the token, read again for each connection [NYLORUN_HARNESS_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Runs at once [NYLORUN_HARNESS_MAX_RUNS, default: 256]
    #[arg(long, value_name = "N")]
    pub max_runs: Option<String>,
    /// Folder of the workspaces it serves; without one it serves none [NYLORUN_HARNESS_ROOT, default: /harness]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// What keeps commands apart: auto, namespaces, landlock, docker, process [NYLORUN_SANDBOX_BACKEND, default: auto]
    #[arg(long, value_name = "BACKEND")]
    pub sandbox: Option<String>,
    /// Port of GET /health on 127.0.0.1; 0 picks a free one [NYLORUN_HARNESS_HEALTH_PORT, default: 4300]
    #[arg(long, value_name = "PORT")]
    pub health_port: Option<String>,
    /// Log format: text or json [default: text on a terminal]
    #[arg(long, value_name = "FORMAT")]
    pub log: Option<String>,
    /// Which log lines are written
    #[arg(long, value_name = "FILTER")]
    pub log_filter: Option<String>,
    /// Show the effective settings and where each came from, and do nothing else
    #[arg(long)]
    pub show_config: bool,
}

impl Harness {
    /// As `(key, value)` pairs, with the URL.
    #[must_use]
    pub fn pairs(&self, url: Option<&String>) -> Vec<(&'static str, String)> {
        let text = |key: &'static str, value: Option<&String>| value.map(|value| (key, value.clone()));
        [
            text("url", url),
            self.token_file.as_ref().map(|path| ("token-file", path.display().to_string())),
            text("max-runs", self.max_runs.as_ref()),
            self.root.as_ref().map(|path| ("root", path.display().to_string())),
            text("sandbox", self.sandbox.as_ref()),
            text("health-port", self.health_port.as_ref()),
            text("log", self.log.as_ref()),
            text("log-filter", self.log_filter.as_ref()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Settings as flags. Each wins over its variable and over the settings file.
#[derive(Debug, Default, Args)]
pub struct Settings {
    /// Settings file [default: nylorun.toml in the home]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the API listens; port 0 picks a free one
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Permit to listen beyond this machine
    #[arg(long)]
    pub allow_non_loopback: bool,
    /// Values of the `Host` header that are served besides the loopback names
    #[arg(long, value_name = "NAME:PORT,…")]
    pub allowed_hosts: Option<String>,
    /// A listener of its own for the operator API
    #[arg(long, value_name = "HOST:PORT")]
    pub operator_listen: Option<String>,
    /// As --allowed-hosts, for the operator listener
    #[arg(long, value_name = "NAME:PORT,…")]
    pub operator_allowed_hosts: Option<String>,
    /// URL that clients use when it is not the listener's own
    #[arg(long, value_name = "URL")]
    pub public_url: Option<String>,
    /// Where runs are executed: in-process, or remote in harnesses that connect
    #[arg(long, value_name = "WHERE")]
    pub harness: Option<String>,
    /// Where harnesses connect, with --harness remote; port 0 picks a free one
    #[arg(long, value_name = "HOST:PORT")]
    pub harness_listen: Option<String>,
    /// As --allowed-hosts, for the harness listener
    #[arg(long, value_name = "NAME:PORT,…")]
    pub harness_allowed_hosts: Option<String>,
    /// What keeps the commands of sandboxes apart: auto, or a backend by its name
    #[arg(long, value_name = "BACKEND")]
    pub sandbox: Option<String>,
    /// Where the record is kept: sqlite://PATH
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
    /// Id of a new Tenant
    #[arg(long, value_name = "ID")]
    pub tenant_id: Option<String>,
    /// Name of a new Tenant
    #[arg(long, value_name = "NAME")]
    pub tenant_name: Option<String>,
    /// Log format: text or json [default: text on a terminal]
    #[arg(long, value_name = "FORMAT")]
    pub log: Option<String>,
    /// Which log lines are written
    #[arg(long, value_name = "FILTER")]
    pub log_filter: Option<String>,
    /// A model call that a crash has cut: repeat or uncertain
    #[arg(long, value_name = "WHAT")]
    pub model_on_crash: Option<String>,
}

impl Settings {
    /// As `(key, value)` pairs, with the home.
    #[must_use]
    pub fn pairs(&self, home: Option<&PathBuf>) -> Vec<(&'static str, String)> {
        let text = |key: &'static str, value: &Option<String>| value.clone().map(|value| (key, value));
        [
            home.map(|home| ("home", home.display().to_string())),
            text("listen", &self.listen),
            self.allow_non_loopback.then(|| ("allow-non-loopback", "true".to_owned())),
            text("allowed-hosts", &self.allowed_hosts),
            text("operator-listen", &self.operator_listen),
            text("operator-allowed-hosts", &self.operator_allowed_hosts),
            text("public-url", &self.public_url),
            text("harness", &self.harness),
            text("harness-listen", &self.harness_listen),
            text("harness-allowed-hosts", &self.harness_allowed_hosts),
            text("sandbox", &self.sandbox),
            text("database-url", &self.database_url),
            text("tenant-id", &self.tenant_id),
            text("tenant-name", &self.tenant_name),
            text("log", &self.log),
            text("log-filter", &self.log_filter),
            text("model-on-crash", &self.model_on_crash),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Id of the agent
    pub agent: String,
    /// What it is told
    pub message: String,
    /// Session to go on with, or to open [default: a new one]
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Whose session a new one is
    #[arg(long, value_name = "USER", default_value = "local")]
    pub owner: String,
    /// Give a new session a sandbox of its own; `=ID` attaches it to that sandbox, `=session:ID` shares that session's,
    /// `=none` is none whatever the Tenant's default is
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub sandbox: Option<String>,
}

impl Run {
    /// What the session is opened with; absent: the Tenant's default.
    #[must_use]
    pub fn sandbox(&self) -> Option<Json> {
        Some(match self.sandbox.as_deref()? {
            "" => json!({}),
            "none" => json!(false),
            which => match which.strip_prefix("session:") {
                Some(session) => json!({ "session": session }),
                None => json!({ "id": which }),
            },
        })
    }
}

/// `agents`.
#[derive(Debug, Subcommand)]
pub enum Agents {
    /// Register or replace the definition in a file (`-` reads standard input)
    Put {
        /// A manifest in JSON
        file: PathBuf,
        /// Version of the application's code
        #[arg(long, value_name = "TEXT", default_value = "dev")]
        implementation_version: String,
    },
    /// List the registered ones
    List,
}

/// `sessions`.
#[derive(Debug, Subcommand)]
pub enum Sessions {
    /// List sessions
    List {
        /// Only those of this agent
        #[arg(long)]
        agent: Option<String>,
    },
    /// Show one
    Show {
        /// Id of the session
        session: String,
    },
    /// Print its events
    Events {
        /// Id of the session
        session: String,
        /// Start after this cursor
        #[arg(long)]
        cursor: Option<String>,
        /// Keep watching
        #[arg(long, short)]
        follow: bool,
    },
}

/// `model`.
#[derive(Debug, Subcommand)]
pub enum Model {
    /// Configure a provider and make it active. The key is read from the variable that --key-env names, else from
    /// MODEL_PROVIDER_API_KEY, else from standard input
    Set {
        /// Provider, for example `openai`, `anthropic`, or `custom` with --base-url
        #[arg(required_unless_present = "fixture")]
        provider: Option<String>,
        /// Model of the provider
        #[arg(required_unless_present = "fixture")]
        model: Option<String>,
        /// Base URL of a `custom` provider
        #[arg(long, value_name = "URL")]
        base_url: Option<String>,
        /// Variable that holds the provider's key
        #[arg(long, value_name = "NAME", conflicts_with = "no_key")]
        key_env: Option<String>,
        /// The provider takes no key
        #[arg(long)]
        no_key: bool,
        /// Choose the built-in fixture model, when nothing was chosen before
        #[arg(long, conflicts_with_all = ["provider", "model", "base_url", "key_env", "no_key"])]
        fixture: bool,
    },
    /// Show the active model
    Show,
    /// List the configured providers
    List {
        /// Everything that could be configured instead
        #[arg(long)]
        catalog: bool,
    },
}

/// `keys`.
#[derive(Debug, Subcommand)]
pub enum Keys {
    /// Make a key, or replace one. It is shown once
    Put {
        /// Name of the key
        name: String,
    },
    /// List the names
    List,
    /// Delete a key; it stops working at once
    Rm {
        /// Name of the key
        name: String,
    },
}

/// `signing-keys`.
#[derive(Debug, Subcommand)]
pub enum SigningKeys {
    /// List them, revoked ones too
    List,
    /// Sign with the standby key from now on, and make a new one that stands by
    Rotate {
        /// Also while tokens of the previous key may still be alive; they are refused from then on
        #[arg(long)]
        force: bool,
    },
    /// Refuse from now on whatever a key has signed
    Revoke {
        /// Id of the key, `sk_…`; not of the current one
        id: String,
    },
}

/// `bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Whole turns over HTTP, against the Runtime of --url or a temporary one
    Turns(BenchTurns),
    /// Durable appends, straight into a temporary SQLite store
    Appends(BenchAppends),
    /// Commands in workspaces of the sandbox backends that work here
    Sandbox(BenchSandbox),
}

/// What a measured turn does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TurnKind {
    /// One model call.
    Hello,
    /// Model, a tool that the harness runs, model.
    Step,
}

/// `bench turns`.
#[derive(Debug, Args)]
pub struct BenchTurns {
    /// Sessions
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub sessions: u32,
    /// Turns of each session
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub turns: u32,
    /// Sessions that work at once [default: all]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub concurrency: Option<u32>,
    /// What a turn does
    #[arg(long, value_enum, default_value_t = TurnKind::Step)]
    pub kind: TurnKind,
    /// Turns that each session has behind it before the clock starts
    #[arg(long, default_value_t = 0)]
    pub history: u32,
    /// Use the Runtime that runs, found as other commands find it, instead of a temporary one
    #[arg(long)]
    pub running: bool,
    /// Where the temporary Runtime keeps its files [default: the system's directory for such files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// `bench appends`.
#[derive(Debug, Args)]
pub struct BenchAppends {
    /// Transactions in flight
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub in_flight: u32,
    /// How long, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,
    /// Sessions that are written to
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub sessions: u32,
    /// Directory of the temporary store [default: the system's]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// `bench sandbox`.
#[derive(Debug, Args)]
pub struct BenchSandbox {
    /// Only this backend: namespaces, landlock, docker or process [default: all that work]
    #[arg(long, value_name = "BACKEND")]
    pub backend: Option<String>,
    /// Measurements of each kind
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// The command that is run
    #[arg(long, value_name = "TEXT", default_value = "true")]
    pub command: String,
    /// Milliseconds between two commands or tools, as an agent's model takes some; 0: back to back
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub pause: u64,
    /// Also leave so many workspaces idle, and tell their memory
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub idle: u32,
    /// Also search a tree of so many files, and compare with `rg`
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub files: u32,
    /// Where temporary files are [default: the system's directory for such files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Keep the workspaces below this folder, which stays
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}
