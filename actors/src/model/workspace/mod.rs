//! Workspaces: what is asked of them, what they answer, what is claimed of them, how they are named
//! (spec: harness-api, sections 7.4 and 15; sandbox, sections 10 to 16).
//!
//! | File | Has |
//! |---|---|
//! | [`call`] | the six tools, and every request |
//! | [`answer`] | what requests are answered with |
//! | [`report`] | which backend serves workspaces, and why |
//! | [`record`] | what is known of a workspace, and what is claimed of it |
//! | [`key`] | names |

pub mod answer;
pub mod call;
pub mod key;
pub mod record;
pub mod report;

pub use answer::{BytesAnswer, FileEntry, FileStamp, ListAnswer, Listing, SweptWorkspaces, ToolOutcome};
pub use call::{
    BytesOf, FilesOf, Removal, Tool, WorkspaceBytes, WorkspaceCall, WorkspaceList, WorkspaceSession,
    WorkspaceSweep,
};
pub use key::{key_prefix, sandbox_key, session_key};
pub use record::{Claim, ClaimKind, WorkspaceRecord, WorkspaceState};
pub use report::{DEFAULT_IMAGE, Probe, WorkspaceReport};
