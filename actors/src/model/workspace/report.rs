//! Which backend serves workspaces, and why (spec: sandbox, section 12).

use serde::{Deserialize, Serialize};

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
