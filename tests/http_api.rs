//! The HTTP API over real sockets, in process: the memory store, an engine whose steps each test chooses.

// Helpers of a test may stop at the first surprise too.
#![allow(clippy::unwrap_used)]

#[path = "http_api/actions.rs"]
mod actions;
#[path = "http_api/artifact_folders.rs"]
mod artifact_folders;
#[path = "http_api/artifact_links.rs"]
mod artifact_links;
#[path = "http_api/artifacts.rs"]
mod artifacts;
#[path = "http_api/deliveries.rs"]
mod deliveries;
#[path = "http_api/events.rs"]
mod events;
#[path = "http_api/log.rs"]
mod log;
#[path = "http_api/matrix.rs"]
mod matrix;
#[path = "http_api/models.rs"]
mod models;
#[path = "http_api/operator.rs"]
mod operator;
#[path = "http_api/pipeline.rs"]
mod pipeline;
#[path = "http_api/resources.rs"]
mod resources;
#[path = "http_api/sandbox.rs"]
mod sandbox;
#[path = "http_api/sandbox_settings.rs"]
mod sandbox_settings;
#[path = "http_api/sandboxes.rs"]
mod sandboxes;
#[path = "http_api/session_sandbox.rs"]
mod session_sandbox;
#[path = "http_api/signing_keys.rs"]
mod signing_keys;
#[path = "http_api/support.rs"]
mod support;
