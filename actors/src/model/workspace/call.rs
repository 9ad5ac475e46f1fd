//! What is asked of workspaces (spec: harness-api, sections 7.2 and 7.4; sandbox, sections 13 to 16).

use serde::{Deserialize, Serialize};

use super::{sandbox_key, session_key};
use crate::model::ids::{SessionId, TenantId, TurnId};
use crate::model::json::Json;

/// One of the six tools of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// Runs a command.
    Bash,
    /// Reads a page of a file.
    Read,
    /// Writes a file whole.
    Write,
    /// Replaces text in a file.
    Edit,
    /// Searches in files.
    Grep,
    /// Finds files by name.
    Glob,
}

impl Tool {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Bash, Self::Read, Self::Write, Self::Edit, Self::Grep, Self::Glob];

    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Read => "read",
            Self::Write => "write",
            Self::Edit => "edit",
            Self::Grep => "grep",
            Self::Glob => "glob",
        }
    }

    /// The tool of a wire name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.as_str() == name)
    }

    /// The Harness API's method for it.
    #[must_use]
    pub fn method(self) -> &'static str {
        match self {
            Self::Bash => "workspace.exec",
            Self::Read | Self::Grep | Self::Glob => "workspace.read",
            Self::Write | Self::Edit => "workspace.write",
        }
    }

    /// Whether it may change something: cut off, its fate is unknown.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Bash | Self::Write | Self::Edit)
    }
}

/// Whose workspace, and for which turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkspaceSession {
    /// The session that owns the workspace.
    pub owner_id: SessionId,
    /// The sandbox resource that it is, when it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// The turn that events belong to.
    pub active_turn_id: Option<TurnId>,
}

impl WorkspaceSession {
    /// The workspace's key in a Tenant.
    #[must_use]
    pub fn key(&self, tenant: &TenantId) -> String {
        match &self.sandbox_id {
            Some(id) => sandbox_key(tenant, id),
            None => session_key(tenant, &self.owner_id),
        }
    }
}

/// `workspace.exec`, `.read` and `.write` of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceCall {
    /// Whose.
    pub session: WorkspaceSession,
    /// What it was opened with; `{}` when nothing is known.
    #[serde(default)]
    pub spec: Json,
    /// Which tool.
    pub tool: Tool,
    /// The tool's input.
    #[serde(default)]
    pub input: Json,
}

/// `workspace.read` of a directory's files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceList {
    /// Whose.
    pub session: WorkspaceSession,
    /// What it was opened with.
    #[serde(default)]
    pub spec: Json,
    /// Which.
    pub list: FilesOf,
}

/// Files of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FilesOf {
    /// The directory.
    pub dir: String,
    /// At most so many.
    pub max_entries: u64,
}

/// `workspace.read` of a file's bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceBytes {
    /// Whose.
    pub session: WorkspaceSession,
    /// What it was opened with.
    #[serde(default)]
    pub spec: Json,
    /// Which.
    pub bytes: BytesOf,
}

/// Bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BytesOf {
    /// The file.
    pub path: String,
    /// Files with more are refused.
    pub max_bytes: u64,
}

/// `workspace.sweep`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceSweep {
    /// Milliseconds since 1970; absent: the harness's own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<f64>,
}

/// `workspace.remove`: workspaces by key, those of sandbox resources, or all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Removal {
    /// These keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    /// Those of these sandbox resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_ids: Option<Vec<String>>,
    /// Everything; only ever true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

impl Removal {
    /// Workspaces by key.
    #[must_use]
    pub fn keys(keys: Vec<String>) -> Self {
        Self { keys: Some(keys), ..Self::default() }
    }

    /// The workspace of a sandbox resource.
    #[must_use]
    pub fn sandbox(id: &str) -> Self {
        Self { sandbox_ids: Some(vec![id.to_owned()]), ..Self::default() }
    }

    /// Every workspace.
    #[must_use]
    pub fn everything() -> Self {
        Self { all: true, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::json::encode;
    use serde_json::json;

    #[test]
    fn a_call_has_exactly_the_members_of_the_spec() {
        let session = WorkspaceSession { owner_id: "s".into(), sandbox_id: None, active_turn_id: None };
        let input = json!({"command": "ls"});
        let call = WorkspaceCall { session: session.clone(), spec: json!({}), tool: Tool::Bash, input };
        let text = r#"{"session":{"ownerId":"s","activeTurnId":null},"spec":{},"tool":"bash","input":{"command":"ls"}}"#;
        assert_eq!(encode(&call), text);
        let attached = WorkspaceSession {
            sandbox_id: Some("team/box".into()),
            active_turn_id: Some("t".into()),
            ..session.clone()
        };
        let list = FilesOf { dir: "/workspace/outputs".into(), max_entries: 3 };
        assert_eq!(
            encode(&WorkspaceList { session: attached, spec: json!({}), list }),
            r#"{"session":{"ownerId":"s","sandboxId":"team/box","activeTurnId":"t"},"spec":{},"list":{"dir":"/workspace/outputs","maxEntries":3}}"#
        );
        let bytes = BytesOf { path: "a".into(), max_bytes: 9 };
        assert_eq!(
            encode(&WorkspaceBytes { session, spec: json!({}), bytes }),
            r#"{"session":{"ownerId":"s","activeTurnId":null},"spec":{},"bytes":{"path":"a","maxBytes":9}}"#
        );
        assert_eq!(encode(&WorkspaceSweep::default()), "{}");
        assert_eq!(encode(&Removal::everything()), r#"{"all":true}"#);
        assert_eq!(encode(&Removal::keys(vec!["k".into()])), r#"{"keys":["k"]}"#);
        assert_eq!(encode(&Removal::sandbox("b")), r#"{"sandboxIds":["b"]}"#);
    }
}
