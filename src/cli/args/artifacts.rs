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
    /// Show how large artifacts may be and how large they are, or say how large they may be
    Limits(Limits),
}

/// `artifacts limits`.
#[derive(Debug, Args)]
pub struct Limits {
    /// Bytes of one artifact, such as 500MiB [default when another is given: 100MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub file: Option<u64>,
    /// Bytes of all artifacts together, such as 50GiB [default when another is given: 10GiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub total: Option<u64>,
    /// Both as they are by default
    #[arg(long, conflicts_with_all = ["file", "total"])]
    pub reset: bool,
}

/// Bytes, with a unit of powers of 1024 or none.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let bits = ["", "KiB", "MiB", "GiB", "TiB"].into_iter().position(|name| name == unit);
    let bits = bits.or((unit == "B").then_some(0)).map(|power| 10 * power);
    let bytes = number.parse::<u64>().ok().zip(bits).and_then(|(number, bits)| number.checked_mul(1 << bits));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "a size is a number of bytes, such as 500MiB".to_owned())
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

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn a_size_is_a_number_with_a_unit_or_none() {
        for (text, bytes) in [("1", 1), ("7B", 7), ("2KiB", 2048), ("500MiB", 500 << 20), ("3TiB", 3 << 40)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "0", "0MiB", "MiB", "1MB", "1 MiB", "-1", "1.5GiB", "99999999999TiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
