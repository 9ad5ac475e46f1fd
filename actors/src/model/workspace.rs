//! Workspaces: what is asked of them, what they answer, what is claimed of them, how they are named
//! (spec: harness-api, sections 7.4 and 15; sandbox, sections 10 to 16).

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::ids::{RunId, SessionId, TenantId, TurnId};
use super::json::Json;

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

/// Which backend serves workspaces, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceReport {
    /// What was asked for: `auto` or `virtual`.
    pub preference: String,
    /// The backend, as clients know it.
    pub backend: Option<String>,
    /// `process` or `container`.
    pub isolation: Option<String>,
    /// In words.
    pub reason: String,
    /// What was tried.
    pub probes: Vec<Probe>,
    /// The image that a spec without one means.
    pub default_image: String,
}

/// One backend that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Its name.
    pub name: String,
    /// Whether it works here.
    pub available: bool,
    /// `process` or `container`.
    pub isolation: String,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The image that a spec without one means.
pub const DEFAULT_IMAGE: &str = "python:3.13-slim";

impl WorkspaceReport {
    /// Nobody serves workspaces.
    #[must_use]
    pub fn none(preference: &str, reason: impl Into<String>) -> Self {
        Self {
            preference: preference.to_owned(),
            backend: None,
            isolation: None,
            reason: reason.into(),
            probes: Vec::new(),
            default_image: DEFAULT_IMAGE.to_owned(),
        }
    }
}

/// `workspace.sweep`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceSweep {
    /// Milliseconds since 1970; absent: the harness's own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<f64>,
}

/// Its answer: every workspace that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweptWorkspaces {
    /// Their records.
    pub workspaces: Vec<WorkspaceRecord>,
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

/// Where a workspace stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceState {
    /// It is being opened.
    Creating,
    /// It is open.
    Running,
    /// Its files are there, and nothing else.
    Stopped,
}

impl WorkspaceState {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Stopped => "stopped",
        }
    }

    /// The state of a stored name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Creating, Self::Running, Self::Stopped].into_iter().find(|state| state.as_str() == name)
    }
}

/// A workspace as whoever has it knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkspaceRecord {
    /// Its key.
    pub key: String,
    /// The session whose log has its events.
    pub session_id: SessionId,
    /// The sandbox resource that it is, when it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// Which backend.
    pub backend: String,
    /// Which image.
    pub image: String,
    /// Where it stands.
    pub state: WorkspaceState,
    /// ISO instant.
    pub created_at: String,
    /// ISO instant.
    pub updated_at: String,
}

/// `event`: a claim of what happened in a workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Claim {
    /// The run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The session.
    pub session_id: SessionId,
    /// The turn, or null.
    pub turn_id: Option<TurnId>,
    /// `sandbox.state` or `sandbox.exec`.
    #[serde(rename = "type")]
    pub kind: ClaimKind,
    /// Its payload.
    #[serde(default)]
    pub payload: Json,
    /// The workspace's record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<WorkspaceRecord>,
}

/// What may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimKind {
    /// A workspace changed its state.
    #[serde(rename = "sandbox.state")]
    State,
    /// A command ran in it.
    #[serde(rename = "sandbox.exec")]
    Exec,
}

/// What every key of a Tenant's workspaces starts with.
#[must_use]
pub fn key_prefix(tenant: &TenantId) -> String {
    format!("nylorun-{tenant}-")
}

/// Key of a session's own workspace.
#[must_use]
pub fn session_key(tenant: &TenantId, session: &SessionId) -> String {
    format!("{}{}", key_prefix(tenant), digest(session.as_str()))
}

/// Key of a sandbox resource's workspace.
#[must_use]
pub fn sandbox_key(tenant: &TenantId, sandbox: &str) -> String {
    format!("{}sbx-{}", key_prefix(tenant), digest(sandbox))
}

fn digest(text: &str) -> String {
    hex::encode(&Sha256::digest(text.as_bytes())[..8])
}

#[cfg(test)]
mod tests {
    use super::super::json::encode;
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_the_tenants_prefix_and_16_hex_characters_of_a_hash() {
        let tenant = TenantId::from("tn_x");
        // printf s-42 | sha256sum
        assert_eq!(session_key(&tenant, &"s-42".into()), format!("nylorun-tn_x-{}", digest("s-42")));
        assert_eq!(digest("abc"), "ba7816bf8f01cfea");
        assert_eq!(sandbox_key(&tenant, "abc"), "nylorun-tn_x-sbx-ba7816bf8f01cfea");
        let of = |sandbox: Option<&str>| WorkspaceSession {
            owner_id: "abc".into(),
            sandbox_id: sandbox.map(str::to_owned),
            active_turn_id: None,
        };
        assert_eq!(of(None).key(&tenant), "nylorun-tn_x-ba7816bf8f01cfea");
        assert_eq!(of(Some("abc")).key(&tenant), "nylorun-tn_x-sbx-ba7816bf8f01cfea");
    }

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
