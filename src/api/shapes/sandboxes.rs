//! Sandboxes as a resource, and the Tenant's settings of them (spec: http-api, sections 11 and 15.4).

use nylorun_actors::model::sandbox::shapes::{CONFIG, CONFIG_IN_FORCE, SANDBOX_ID, SPEC};
pub use nylorun_actors::model::sandbox::shapes::{PUT_CONFIG as PUT_SANDBOX_SETTINGS, PUT_SANDBOX};
use nylorun_actors::model::shape::{ANY, BOOL, COUNT, FILLED, OBJECT, Shape, TEXT, may, must};

use super::{ISO, MAX, TEXT_OR_NULL};

/// The configuration that a seed brings.
pub(super) static SANDBOX_CONFIG: &Shape = &CONFIG;

static KIND: Shape = Shape::Enum(&["virtual", "pod"]);
static STATE: Shape = Shape::Enum(&["ready", "creating", "running", "stopped"]);
static LABELS: Shape = Shape::Map(&TEXT);
static ATTACHED: Shape = Shape::Object(&[must("id", &FILLED), must("activeTurnId", &TEXT_OR_NULL)]);
static POD: Shape = Shape::Object(&[
    must("desired", &Shape::Enum(&["running", "suspended", "deleted"])),
    must(
        "observed",
        &Shape::Enum(&["creating", "running", "suspended", "expired", "lost", "failed", "deleting"]),
    ),
    must("volumeGeneration", &COUNT),
    must("hostEpoch", &COUNT),
    may("expiresAt", &ISO),
    may("reason", &TEXT),
]);
/// A sandbox.
pub static SANDBOX: Shape = Shape::Object(&[
    must("id", &SANDBOX_ID),
    must("kind", &KIND),
    must("labels", &LABELS),
    must("spec", &SPEC),
    must("state", &STATE),
    may("pod", &POD),
    must("sessions", &Shape::List { item: &ATTACHED, min: 0, max: MAX }),
    must("createdAt", &ISO),
    must("updatedAt", &ISO),
]);
/// `GET /v1/sandboxes`.
pub static SANDBOXES: Shape = Shape::Object(&[
    must("sandboxes", &Shape::List { item: &SANDBOX, min: 0, max: MAX }),
    may("nextCursor", &TEXT_OR_NULL),
]);
/// `DELETE /v1/sandboxes/{sandboxId}`.
pub static SANDBOX_DELETED: Shape = Shape::Object(&[must("id", &SANDBOX_ID), must("deleted", &BOOL)]);
static SANDBOX_EVENT: Shape = Shape::Object(&[
    must("schema", &Shape::Literal("nylorun.sandbox-event/1")),
    must("eventId", &FILLED),
    must("tenantId", &FILLED),
    must("sandboxId", &SANDBOX_ID),
    must("seq", &COUNT),
    must("time", &ISO),
    must("type", &FILLED),
    must("payload", &OBJECT),
]);
/// `GET /v1/sandboxes/{sandboxId}/events`.
pub static SANDBOX_EVENTS: Shape =
    Shape::Object(&[must("events", &Shape::List { item: &SANDBOX_EVENT, min: 0, max: MAX })]);

static ISOLATION: Shape = Shape::Enum(&["process", "container"]);
static BACKEND: Shape = Shape::Enum(&["virtual", "local"]);
static PROBE: Shape = Shape::Object(&[
    must("name", &BACKEND),
    must("available", &BOOL),
    must("isolation", &ISOLATION),
    may("reason", &TEXT),
    may("version", &TEXT),
]);
/// `GET` and `PUT /v1/tenant/sandbox`.
pub static SANDBOX_SETTINGS: Shape = Shape::Object(&[
    must("preference", &Shape::Enum(&["auto", "virtual", "local"])),
    must("backend", &Shape::Union(&[&BACKEND, &Shape::Null])),
    must("isolation", &Shape::Union(&[&ISOLATION, &Shape::Null])),
    must("reason", &TEXT),
    must("probes", &Shape::List { item: &PROBE, min: 0, max: MAX }),
    must("defaultImage", &FILLED),
    must("config", &CONFIG_IN_FORCE),
    may("cluster", &ANY),
]);
