//! Agent and workflow manifests.
