//! What a person may type about Actions: answers, endpoints, effects.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use nylorun_actors::model::json::{self, Json};

/// `approve` and `reject`.
#[derive(Debug, Args)]
#[command(after_help = "\
The answer is given once: typing the command again changes nothing, and another answer to the same interaction \
is refused (exit 1, `request_rejected`).")]
pub struct Verdict {
    /// Id of the session
    pub session: String,
    /// Which interaction [default: the only approval that is pending]
    pub interaction: Option<String>,
    /// Key by which a repeated command is known [default: one for each interaction]
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

/// `respond`.
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
#[command(
    after_help = "VALUE is JSON where it is JSON (`42`, `true`, `\"42\"`, `{\"size\":3}`), and text where it is not."
)]
pub struct Respond {
    /// Id of the session
    pub session: String,
    /// Which interaction [default: the only question that is pending]
    pub interaction: Option<String>,
    /// The answer
    #[arg(allow_hyphen_values = true)]
    pub value: String,
    /// Take the answer as text, whatever it looks like
    #[arg(long)]
    pub text: bool,
    /// Key by which a repeated command is known [default: one for each interaction]
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

/// `endpoints`.
#[derive(Debug, Subcommand)]
pub enum Endpoints {
    /// Register or replace the endpoint of an agent, or all those in a file. Waiting Actions are sent at once
    Put(PutEndpoints),
    /// List the registered ones, and how each has answered lately
    List,
    /// Take an endpoint out. Its pending Actions wait for the next registration
    Rm {
        /// Id of the agent
        agent: String,
    },
    /// Ask an endpoint whether it serves its agent. A good answer revives Actions that were given up
    Ping {
        /// Id of the agent
        agent: String,
    },
}

/// `endpoints put`.
#[derive(Debug, Args)]
pub struct PutEndpoints {
    /// Id of the agent
    #[arg(required_unless_present = "file")]
    pub agent: Option<String>,
    /// Where it listens: an http or https URL
    #[arg(required_unless_present = "file", value_name = "URL")]
    // `url` is the Runtime's, a flag of every command.
    pub address: Option<String>,
    /// Version of the application's code
    #[arg(long, value_name = "TEXT", default_value = "dev")]
    pub implementation_version: String,
    /// How long an answer is waited for [default: 60000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1_000..=840_000))]
    pub timeout_ms: Option<u32>,
    /// Deliveries at once [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub max_concurrent: Option<u32>,
    /// Take a batch from this file instead (`-` reads standard input): `{"endpoints":[{"agentId":…,"url":…,
    /// "implementationVersion":…}]}`, or the list alone. All or none are registered
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["agent", "address", "implementation_version", "timeout_ms", "max_concurrent"]
    )]
    pub file: Option<PathBuf>,
}

/// Which effects are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EffectStatus {
    /// Nobody knows whether they happened.
    Uncertain,
    /// They wait for their endpoint.
    Pending,
    /// They were not delivered for so long that it was given up.
    Dead,
}

impl EffectStatus {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Uncertain => "uncertain",
            Self::Pending => "pending",
            Self::Dead => "dead",
        }
    }
}

/// `effects`.
#[derive(Debug, Subcommand)]
pub enum Effects {
    /// List what a session waits for
    List {
        /// Id of the session
        session: String,
        /// Only those that stand so
        #[arg(long, value_enum)]
        status: Option<EffectStatus>,
    },
    /// Decide what became of an effect that is uncertain or dead
    Resolve(Resolve),
}

/// `effects resolve`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("decision").required(true).args(["completed", "failed", "retry"]))]
#[command(after_help = "\
Find out first what happened outside: an uncertain effect may have been done, and --retry does it again where \
the endpoint does not know. With --completed and --failed the turn goes on as if the tool had answered so.")]
pub struct Resolve {
    /// Id of the session
    pub session: String,
    /// Id of the effect, as `effects list` shows it
    pub effect: String,
    /// It was done: this is its output, in JSON
    #[arg(long, value_name = "JSON", value_parser = value)]
    pub completed: Option<Json>,
    /// It was not done and shall not be: the agent is told that it failed with this code
    #[arg(long, value_name = "CODE")]
    pub failed: Option<String>,
    /// What the agent is told beside the code
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["completed", "retry"])]
    pub message: Option<String>,
    /// Deliver or run it again
    #[arg(long)]
    pub retry: bool,
    /// Key by which a repeated command is known [default: a new one]
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

fn value(text: &str) -> Result<Json, String> {
    json::parse(text.as_bytes())
        .map_err(|error| format!("it is not JSON: {error} (text is JSON in quotes: '\"done\"')"))
}
