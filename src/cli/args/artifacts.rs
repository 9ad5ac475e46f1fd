//! What a person may type about artifacts.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `artifacts`.
#[derive(Debug, Subcommand)]
pub enum Artifacts {
    /// List artifacts, oldest first
    List {
        /// Only of this session
        #[arg(long, value_name = "ID")]
        session: Option<String>,
    },
    /// Show an artifact and its versions
    Show {
        /// Id of the artifact
        artifact: String,
    },
    /// Keep a file as a new artifact, or as the next version of one
    Put(Put),
    /// Read the bytes of a file, or of one file of a folder
    #[command(disable_version_flag = true)]
    Get(Get),
    /// List the files of a folder
    #[command(disable_version_flag = true)]
    Tree(At),
    /// Say what changed in a folder since an earlier version
    #[command(disable_version_flag = true)]
    Diff {
        /// Which version.
        #[command(flatten)]
        at: At,
        /// Compare with this version [default: the one before]
        #[arg(long, value_name = "N")]
        from: Option<String>,
    },
    /// Read a folder as a zip archive
    #[command(disable_version_flag = true)]
    Zip {
        /// Which version.
        #[command(flatten)]
        at: At,
        /// Where to write it
        #[command(flatten)]
        to: To,
    },
    /// Make a link that lets whoever has it read one version for a while
    #[command(disable_version_flag = true)]
    Link(Link),
    /// Delete an artifact with its versions and bytes
    Rm {
        /// Id of the artifact
        artifact: String,
    },
}

/// A version of an artifact.
#[derive(Debug, Args)]
pub struct At {
    /// Id of the artifact
    pub artifact: String,
    /// Which version: a number, or `latest`
    #[arg(long, value_name = "N", default_value = "latest")]
    pub version: String,
}

/// Where bytes go.
#[derive(Debug, Args)]
pub struct To {
    /// Write to this file; `-` is standard output [default: standard output, unless it is a terminal]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `artifacts put`.
#[derive(Debug, Args)]
pub struct Put {
    /// The file; `-` reads standard input
    pub file: PathBuf,
    /// What it is called [default: the file's name]
    #[arg(long, conflicts_with = "artifact")]
    pub name: Option<String>,
    /// The session that it belongs to [default: none, the Tenant's own]
    #[arg(long, value_name = "ID", conflicts_with = "artifact")]
    pub session: Option<String>,
    /// A label, `key=value`; may be given several times
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "artifact")]
    pub label: Vec<String>,
    /// Its media type [default: by its name]
    #[arg(long = "type", value_name = "TYPE")]
    pub content_type: Option<String>,
    /// Add a version to this artifact instead
    #[arg(long, value_name = "ID")]
    pub artifact: Option<String>,
}

/// `artifacts get`.
#[derive(Debug, Args)]
pub struct Get {
    /// Which version.
    #[command(flatten)]
    pub at: At,
    /// The file of a folder
    #[arg(long, value_name = "PATH")]
    pub file: Option<String>,
    /// Where to write it.
    #[command(flatten)]
    pub to: To,
}

/// `artifacts link`.
#[derive(Debug, Args)]
pub struct Link {
    /// Id of the artifact
    pub artifact: String,
    /// Which version [default: the newest now]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=999_999_999))]
    pub version: Option<u32>,
    /// One file of a folder [default: the folder's zip archive]
    #[arg(long, value_name = "PATH")]
    pub file: Option<String>,
    /// Seconds for which it can be followed
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=900))]
    pub expires: u32,
}
