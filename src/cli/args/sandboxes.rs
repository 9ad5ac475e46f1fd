//! What may be typed about sandboxes.

use clap::{Args, Subcommand};

/// `sandboxes`.
#[derive(Debug, Subcommand)]
pub enum Sandboxes {
    /// List sandboxes that outlive sessions
    List {
        /// Only those with this label; may be said several times, all must fit
        #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
        label: Vec<(String, String)>,
    },
    /// Show one, with the sessions that are attached to it
    Show {
        /// Id of the sandbox
        id: String,
    },
    /// Make one, or say that it shall be so: what it has is never changed, but for its labels
    Put(PutSandbox),
    /// Stop the pod of one; its files stay
    Stop {
        /// Id of the sandbox
        id: String,
    },
    /// Give a pod's sandbox an empty volume
    Reset {
        /// Id of the sandbox
        id: String,
    },
    /// Delete one with its files
    Rm {
        /// Id of the sandbox
        id: String,
    },
    /// Print what happened to one
    Events {
        /// Id of the sandbox
        id: String,
        /// The first event to print, by number
        #[arg(long, value_name = "N", default_value_t = 0)]
        from: u64,
    },
    /// Run a command in the sandbox of a session, and exit with its code
    Exec(Exec),
    /// Run commands in the sandbox of a session, line by line
    Shell(Shell),
}

/// `sandboxes put`.
#[derive(Debug, Args)]
pub struct PutSandbox {
    /// Id of the sandbox: segments of letters, digits, `.`, `_` and `-`, with slashes between them
    pub id: String,
    /// What it is: virtual, or pod where the Runtime has pods [default: virtual]
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// A label; with any, they replace those it has
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
    /// A host that may be reached, `name.example` or `*.name.example`
    #[arg(long, value_name = "HOST")]
    pub allow: Vec<String>,
    /// CPUs
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,
    /// Memory, such as 512MiB
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Image of a pod
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Storage of a pod, such as 10GiB
    #[arg(long, value_name = "SIZE")]
    pub storage: Option<String>,
    /// Life of a pod, such as 12h
    #[arg(long, value_name = "DURATION")]
    pub ttl: Option<String>,
}

/// Which sandbox a command runs in: TARGET is a session, else a sandbox that a session is attached to.
const TARGETS: &str = "\
TARGET is the id of a session that has a sandbox. If there is no such session it is taken for the
id of a sandbox, and a session that is attached to it lends it. While a turn runs in the session, or
in another that is attached to the same sandbox, that is the turn's, and commands are refused.";

/// `sandboxes exec`.
#[derive(Debug, Args)]
#[command(after_help = format!("{TARGETS}

One word is a line for the shell: `exec S -- 'ls *.txt | wc -l'`. Several are a command with its
arguments, which reach it as they are: `exec S -- echo \"a  b\"`. The command has no standard input
and no terminal. Its two outputs are told when it has ended, at most 30,000 characters of each.

Exit code: the command's; 124 when its time was over; 1 when it could not be run, 2 to 7 as for
other commands."))]
pub struct Exec {
    /// Id of a session, or of a sandbox
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Seconds that it may take, at most 600 [default: 120]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=600))]
    pub timeout: Option<u32>,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `sandboxes shell`.
#[derive(Debug, Args)]
#[command(after_help = format!("{TARGETS}

This is no terminal in the sandbox. Each line is a command of its own, whose output comes when it
has ended, and which may take 120 s or what --timeout says. From one line to the next stay the
working directory and the variables, not arrays, functions, aliases, options, or what runs in the
background. Programs that want to be typed at do not work.

Ctrl-C ends a command that runs; `exit` or Ctrl-D ends the shell, with the exit code of the last
command."))]
pub struct Shell {
    /// Id of a session, or of a sandbox
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Seconds that each line may take, at most 600 [default: 120]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=600))]
    pub timeout: Option<u32>,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not KEY=VALUE")),
    }
}
