//! What workspaces answer (spec: harness-api, section 15.2; sandbox, sections 13 to 16).

use serde::{Deserialize, Serialize};

use super::WorkspaceRecord;
use crate::model::json::Json;

/// What a tool came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ToolOutcome {
    /// It ran. A command that exits with another code than 0 has run, too.
    Completed {
        /// What it gave.
        #[serde(default)]
        output: Json,
    },
    /// It is known not to have done what was asked.
    Failed {
        /// Why, for machines.
        code: String,
        /// Why, in words.
        message: String,
    },
}

impl ToolOutcome {
    /// A failure.
    #[must_use]
    pub fn failed(code: &str, message: impl Into<String>) -> Self {
        Self::Failed { code: code.to_owned(), message: message.into() }
    }
}

/// Answer to a [`WorkspaceList`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ListAnswer {
    /// The files.
    Listed {
        /// The directory.
        path: String,
        /// What is in it.
        listing: Listing,
    },
    /// There is no such directory.
    Missing {
        /// The directory.
        path: String,
    },
    /// It could not be read.
    Failed {
        /// Why, for machines.
        code: String,
        /// Why, in words.
        message: String,
    },
}

/// Regular files below a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// In sorted depth-first order.
    pub entries: Vec<FileEntry>,
    /// Whether there are more.
    pub truncated: bool,
}

/// A file below a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Relative to the directory.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Which file it is and when it last changed. Absent when that is not known, or when it could change once more without
    /// a difference here. Ours alone: no listing that leaves the process has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<FileStamp>,
}

/// What no change of a file leaves as it was: two listings with the same stamp are of the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    /// The device that it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// When its bytes changed, ns since 1970; who may write it may set this.
    pub modified: i64,
    /// When anything of it changed, ns since 1970; the system sets it.
    pub changed: i64,
}

impl ListAnswer {
    /// The answer as others know it: paths and sizes alone.
    #[must_use]
    pub fn plain(mut self) -> Self {
        if let Self::Listed { listing, .. } = &mut self {
            listing.entries.iter_mut().for_each(|entry| entry.stamp = None);
        }
        self
    }
}

/// Answer to a [`WorkspaceBytes`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum BytesAnswer {
    /// The file.
    Read {
        /// Its path.
        path: String,
        /// Its bytes.
        base64: String,
    },
    /// There is no such file.
    Missing {
        /// Its path.
        path: String,
    },
    /// It could not be read.
    Failed {
        /// Why, for machines.
        code: String,
        /// Why, in words.
        message: String,
    },
}

/// Its answer: every workspace that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweptWorkspaces {
    /// Their records.
    pub workspaces: Vec<WorkspaceRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::json::encode;
    use serde_json::json;

    #[test]
    fn answers_are_told_apart_by_their_kind() {
        let outcome = |value| serde_json::from_value::<ToolOutcome>(value);
        assert_eq!(
            outcome(json!({"kind": "completed", "output": "x"})).unwrap(),
            ToolOutcome::Completed { output: json!("x") }
        );
        assert_eq!(
            encode(&ToolOutcome::failed("sandbox.not_found", "no")),
            r#"{"kind":"failed","code":"sandbox.not_found","message":"no"}"#
        );
        for bad in [json!({"kind": "other"}), json!({"kind": "failed", "code": "c"}), json!("completed")] {
            assert!(outcome(bad.clone()).is_err(), "{bad}");
        }
        let listed = json!({"kind": "listed", "path": "d", "listing": {"entries": [{"path": "a", "size": 1}], "truncated": false}});
        assert!(serde_json::from_value::<ListAnswer>(listed).is_ok());
        let missing = json!({"kind": "missing", "path": "d"});
        assert!(serde_json::from_value::<ListAnswer>(missing.clone()).is_ok());
        assert!(serde_json::from_value::<BytesAnswer>(missing).is_ok());
    }
}
