//! Bodies and answers, declared once: requests are checked by them, the OpenAPI documents are made of them, and tests
//! hold answers against them (spec: http-api, sections 4 to 8, 15 and 17).

mod actions;
mod artifacts;
mod sandboxes;

use nylorun_actors::model::sandbox::shapes::SESSION_SANDBOX;
use nylorun_actors::model::shape::{
    ANY, BOOL, COUNT, COUNT_FROM_ONE, FILLED, IDEMPOTENCY_KEY, OBJECT, Shape, TEXT, may, must,
};

pub use self::actions::*;
pub use self::artifacts::*;
pub use self::sandboxes::*;

const MAX: usize = usize::MAX;

static ISO: Shape = Shape::Matching {
    what: "an instant",
    pattern: "",
    check: |text| text.ends_with('Z') && text.len() == 24,
};
static TEXT_OR_NULL: Shape = Shape::Union(&[&TEXT, &Shape::Null]);
static TEXTS: Shape = Shape::List { item: &TEXT, min: 0, max: MAX };
static OBJECTS: Shape = Shape::List { item: &OBJECT, min: 0, max: MAX };

// --- Definitions ---

static ABSOLUTE_PATH: Shape = Shape::Matching {
    what: "an absolute path",
    pattern: r"^(/|[A-Za-z]:[\\/])",
    check: |path| {
        let bytes = path.as_bytes();
        path.starts_with('/')
            || (bytes.first().is_some_and(u8::is_ascii_alphabetic)
                && bytes.get(1) == Some(&b':')
                && matches!(bytes.get(2), Some(b'/' | b'\\')))
    },
};

/// `PUT /v1/agents/{agentId}`. The manifest is read by its own reader.
pub static PUT_AGENT: Shape = Shape::Object(&[
    must("requestId", &FILLED),
    must("manifest", &OBJECT),
    must("implementationVersion", &FILLED),
    may("pluginRoots", &Shape::Map(&ABSOLUTE_PATH)),
]);
/// Its answer.
pub static AGENT_PUT: Shape = Shape::Object(&[
    must("agentId", &FILLED),
    must("manifestHash", &FILLED),
    must("implementationVersion", &FILLED),
]);
static AGENT: Shape = Shape::Object(&[
    must("agentId", &FILLED),
    must("manifest", &OBJECT),
    must("manifestHash", &FILLED),
    must("implementationVersion", &FILLED),
]);
/// `GET /v1/agents`.
pub static AGENTS: Shape = Shape::Object(&[
    must("agents", &Shape::List { item: &AGENT, min: 0, max: MAX }),
    may("nextCursor", &TEXT_OR_NULL),
]);

// --- Sessions ---

static SELECTION: Shape = Shape::Object(&[must("serverName", &FILLED), must("credentialId", &FILLED)]);

/// `PUT /v1/sessions/{sessionId}`.
pub static PUT_SESSION: Shape = Shape::Object(&[
    must("requestId", &FILLED),
    must("agentId", &FILLED),
    must("ownerUserId", &FILLED),
    may("info", &OBJECT),
    may("vaultIds", &Shape::List { item: &FILLED, min: 0, max: MAX }),
    may("credentialSelections", &Shape::List { item: &SELECTION, min: 0, max: MAX }),
    may("sandbox", &SESSION_SANDBOX),
]);
static STATUS: Shape = Shape::Enum(&[
    "idle",
    "runnable",
    "running",
    "waiting",
    "paused",
    "uncertain",
    "completed",
    "failed",
    "cancelled",
]);
static UNCERTAIN: Shape = Shape::Object(&[
    must("effectId", &FILLED),
    must("turnId", &FILLED),
    must("kind", &FILLED),
    must("error", &ANY),
]);
static COMPLETED: Shape = Shape::Object(&[must("kind", &Shape::Enum(&["completed"])), must("output", &ANY)]);
static FAILED: Shape =
    Shape::Object(&[must("kind", &Shape::Enum(&["failed"])), must("code", &FILLED), must("message", &TEXT)]);
/// What a sandbox tool came to.
pub static TOOL_OUTCOME: Shape = Shape::Union(&[&COMPLETED, &FAILED]);
/// A session.
pub static SESSION: Shape = Shape::Object(&[
    must("id", &FILLED),
    must("agentId", &FILLED),
    must("ownerUserId", &FILLED),
    must("manifestHash", &FILLED),
    must("implementationVersion", &FILLED),
    must("status", &STATUS),
    must("activeTurnId", &TEXT_OR_NULL),
    must("vaultIds", &TEXTS),
    must("credentialSelections", &Shape::List { item: &SELECTION, min: 0, max: MAX }),
    must("sandboxOwnerId", &TEXT_OR_NULL),
    may("sandboxId", &TEXT),
    must("sandbox", &ANY),
    may("sandboxSource", &Shape::Enum(&["default", "inline", "shared", "sandbox"])),
    must("mcpSnapshot", &ANY),
    must("mcpDiagnostics", &OBJECTS),
    may("waits", &ANY),
    may("error", &TEXT),
    must("actions", &OBJECTS),
    must("uncertainEffects", &Shape::List { item: &UNCERTAIN, min: 0, max: MAX }),
]);
static SESSION_ROW: Shape = Shape::Object(&[
    must("id", &FILLED),
    must("agentId", &FILLED),
    must("ownerUserId", &FILLED),
    must("status", &STATUS),
    must("activeTurnId", &TEXT_OR_NULL),
]);
/// `GET /v1/sessions`.
pub static SESSIONS: Shape = Shape::Object(&[
    must("sessions", &Shape::List { item: &SESSION_ROW, min: 0, max: MAX }),
    may("nextCursor", &TEXT_OR_NULL),
]);
/// The answer to a command.
pub static RECEIPT: Shape = Shape::Loose(&[
    must("status", &Shape::Literal("accepted")),
    must("turnId", &TEXT_OR_NULL),
    must("cursor", &TEXT_OR_NULL),
    must("requestId", &FILLED),
]);
/// An event.
pub static EVENT: Shape = Shape::Loose(&[
    must("schema", &Shape::Literal("nylorun.event/2")),
    must("eventId", &FILLED),
    must("tenantId", &FILLED),
    must("sessionId", &FILLED),
    must("runId", &TEXT_OR_NULL),
    must("turnId", &TEXT_OR_NULL),
    must("incarnation", &COUNT),
    must("epoch", &COUNT),
    must("seq", &COUNT),
    must("cursor", &FILLED),
    must("time", &ISO),
    must("schemaVersion", &COUNT_FROM_ONE),
    must("source", &Shape::Object(&[must("kind", &FILLED), must("id", &FILLED)])),
    must("evidence", &Shape::Enum(&["observed", "measured", "attested", "claimed", "asserted"])),
    must("visibility", &Shape::Enum(&["public", "internal", "restricted"])),
    must("retention", &Shape::Enum(&["full", "metadata"])),
    must("type", &FILLED),
    must("payload", &OBJECT),
]);
/// `GET /v1/sessions/{sessionId}/items`.
pub static ITEMS: Shape = Shape::Loose(&[
    must("items", &Shape::List { item: &EVENT, min: 0, max: MAX }),
    must("cursor", &TEXT_OR_NULL),
    may("nextCursor", &TEXT_OR_NULL),
]);

// --- Health, documents, identity ---

static PROTOCOL: Shape = Shape::Object(&[must("min", &COUNT), must("max", &COUNT), must("features", &TEXTS)]);
/// `GET /health`.
pub static HEALTH: Shape = Shape::Object(&[
    must("status", &Shape::Literal("ok")),
    must("service", &Shape::Literal("nylorun-runtime")),
    must("version", &FILLED),
    must("protocol", &PROTOCOL),
    must("coreVersion", &FILLED),
    must("hostId", &FILLED),
    must("pid", &COUNT),
]);
static HARNESS: Shape = Shape::Object(&[
    must("mode", &Shape::Enum(&["in-process", "remote"])),
    must("connected", &COUNT),
    must("workspace", &BOOL),
]);
/// `GET /ready`.
pub static READY: Shape = Shape::Loose(&[
    must("status", &Shape::Enum(&["ready", "not_ready"])),
    must("service", &Shape::Literal("nylorun-runtime")),
    must("checks", &Shape::Map(&Shape::Bool)),
]);
/// `GET /v1/me`.
pub static ME: Shape = Shape::Object(&[
    may("subject", &FILLED),
    must("scopes", &TEXTS),
    must("agents", &Shape::Union(&[&Shape::Literal("*"), &TEXTS])),
    may("sandboxes", &TEXTS),
    must("via", &FILLED),
]);

// --- Tenant settings ---

static ENV: Shape = Shape::Map(&TEXT);
static AUTH: Shape = Shape::Tagged {
    tag: "type",
    cases: &[
        ("api_key", &Shape::Object(&[must("type", &TEXT), must("key", &FILLED), may("env", &ENV)])),
        (
            "oauth",
            &Shape::Loose(&[
                must("type", &TEXT),
                must("refresh", &FILLED),
                must("access", &FILLED),
                must("expires", &Shape::Number { min: 0.0 }),
            ]),
        ),
    ],
};
static PROVIDER_ID: Shape = Shape::Matching {
    what: "letters, digits, dots, underscores or hyphens",
    pattern: "^[a-zA-Z0-9._-]+$",
    check: |id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)),
};
static MODEL_SETTINGS: Shape = Shape::Object(&[
    may("contextWindow", &Shape::Int { min: 1024, max: i64::MAX }),
    may("maxTokens", &COUNT_FROM_ONE),
    may("reasoning", &ANY),
    may("compat", &OBJECT),
]);
/// `PUT /v1/tenant/model`.
pub static PUT_MODEL: Shape = Shape::Object(&[
    must("requestId", &FILLED),
    must("idempotencyKey", &IDEMPOTENCY_KEY),
    must("provider", &PROVIDER_ID),
    must("model", &FILLED),
    may("baseUrl", &FILLED),
    may("settings", &MODEL_SETTINGS),
    must("auth", &AUTH),
]);
static SEED_MODEL: Shape = Shape::Object(&[
    must("provider", &PROVIDER_ID),
    must("model", &FILLED),
    may("baseUrl", &FILLED),
    may("settings", &MODEL_SETTINGS),
    must("auth", &AUTH),
]);
/// `PUT /v1/tenant/model/selection`.
pub static SELECT_MODEL: Shape = Shape::Object(&[
    must("requestId", &FILLED),
    must("idempotencyKey", &IDEMPOTENCY_KEY),
    must("provider", &PROVIDER_ID),
    must("model", &FILLED),
    may("baseUrl", &FILLED),
]);
/// The model that is used.
pub static MODEL: Shape = Shape::Union(&[
    &Shape::Object(&[must("configured", &Shape::False)]),
    &Shape::Object(&[
        must("configured", &Shape::True),
        must("provider", &FILLED),
        must("model", &FILLED),
        must("authType", &Shape::Enum(&["api_key", "oauth"])),
        may("baseUrl", &FILLED),
        may("settings", &OBJECT),
    ]),
]);
static NAMED: Shape = Shape::Object(&[must("id", &FILLED), must("name", &FILLED)]);
/// `GET /v1/tenant/models`.
pub static MODELS: Shape = Shape::Object(&[must(
    "providers",
    &Shape::List {
        item: &Shape::Object(&[
            must("id", &FILLED),
            must("name", &FILLED),
            must("models", &Shape::List { item: &NAMED, min: 0, max: MAX }),
        ]),
        min: 0,
        max: MAX,
    },
)]);
/// `GET /v1/tenant/providers`.
pub static PROVIDERS: Shape = Shape::Object(&[
    must(
        "providers",
        &Shape::List {
            item: &Shape::Object(&[
                must("id", &FILLED),
                must("name", &FILLED),
                must("model", &FILLED),
                must("authType", &Shape::Enum(&["api_key", "oauth"])),
                may("baseUrl", &FILLED),
                may("settings", &OBJECT),
                must("lastUpdated", &ISO),
                must("active", &BOOL),
            ]),
            min: 0,
            max: MAX,
        },
    ),
    may("nextCursor", &TEXT_OR_NULL),
]);

/// `PUT /v1/tenant/config/seed`.
pub static SEED: Shape = Shape::Object(&[
    must("requestId", &FILLED),
    may(
        "sandbox",
        &Shape::Object(&[may("backend", &Shape::Enum(&["auto", "virtual"])), may("config", SANDBOX_CONFIG)]),
    ),
    may("model", &SEED_MODEL),
    may("fixtureModel", &Shape::True),
]);
static SEEDED: Shape = Shape::List {
    item: &Shape::Enum(&["sandbox.backend", "sandbox.config", "model.fixture", "model"]),
    min: 0,
    max: 4,
};
/// Its answer.
pub static SEED_ANSWER: Shape = Shape::Object(&[must("applied", &SEEDED), must("kept", &SEEDED)]);
/// `GET /v1/tenant`.
pub static TENANT: Shape = Shape::Object(&[
    must(
        "tenant",
        &Shape::Object(&[
            must("id", &FILLED),
            must("name", &TEXT),
            must("createdAt", &ISO),
            must("updatedAt", &ISO),
            must("schemaVersion", &COUNT),
        ]),
    ),
    must("path", &TEXT),
    must(
        "checks",
        &Shape::Object(&[
            must("store", &BOOL),
            must("scheduler", &BOOL),
            must("model", &BOOL),
            must("endpoints", &BOOL),
            must("schema", &BOOL),
        ]),
    ),
    must("model", &MODEL),
    must(
        "agents",
        &Shape::List {
            item: &Shape::Object(&[
                must("agentId", &FILLED),
                must("registered", &BOOL),
                must("endpoint", &BOOL),
            ]),
            min: 0,
            max: MAX,
        },
    ),
    must(
        "counts",
        &Shape::Object(&[
            must("sessions", &COUNT),
            must("runningSessions", &COUNT),
            must("pendingActions", &COUNT),
            must("uncertainEffects", &COUNT),
            may("deadActions", &COUNT),
        ]),
    ),
    must("sandbox", &Shape::Object(&[must("backend", &TEXT_OR_NULL), must("retained", &COUNT)])),
    may("harness", &HARNESS),
]);

// --- Operator ---

static OPERATOR_TENANT: Shape = Shape::Object(&[
    must("id", &TEXT_OR_NULL),
    must("name", &TEXT_OR_NULL),
    must("state", &Shape::Enum(&["open", "unavailable"])),
    must("envelope", &ANY),
    may("cause", &Shape::Object(&[must("code", &FILLED), must("message", &TEXT), must("repair", &TEXT)])),
]);
/// `GET /v1/admin/status` and `/v1/admin/host`.
pub static ADMIN_STATUS: Shape = Shape::Object(&[
    must("service", &Shape::Literal("nylorun-runtime")),
    must("version", &FILLED),
    must("protocol", &PROTOCOL),
    must("tenant", &OPERATOR_TENANT),
    must(
        "aggregate",
        &Shape::Object(&[
            must("runningSessions", &COUNT),
            must("inFlightDeliveries", &COUNT),
            must("pendingActions", &COUNT),
            must("uncertainEffects", &COUNT),
            may("harness", &HARNESS),
        ]),
    ),
    may("host", &Shape::Object(&[must("hostId", &FILLED), must("url", &TEXT), must("pid", &COUNT)])),
]);
/// `POST /v1/admin/host/shutdown`.
pub static SHUTDOWN: Shape = Shape::Object(&[must("status", &Shape::Literal("shutting_down"))]);
static KEY_ROW: Shape = Shape::Object(&[must("id", &FILLED), must("role", &FILLED), must("createdAt", &ISO)]);
/// `GET /v1/admin/keys`.
pub static KEYS: Shape = Shape::Object(&[
    must("keys", &Shape::List { item: &KEY_ROW, min: 0, max: MAX }),
    may("nextCursor", &TEXT_OR_NULL),
]);
/// `PUT /v1/admin/keys/{id}`.
pub static KEY_PUT: Shape = Shape::Object(&[
    must("id", &FILLED),
    must("role", &Shape::Literal("application")),
    must("createdAt", &ISO),
    must(
        "key",
        &Shape::Matching {
            what: "64 lowercase hexadecimal characters",
            pattern: "^[0-9a-f]{64}$",
            check: nylorun_actors::model::ids::is_key,
        },
    ),
    must("rotated", &BOOL),
]);
/// `DELETE /v1/admin/keys/{id}`.
pub static KEY_DELETED: Shape = Shape::Object(&[must("id", &FILLED), must("deleted", &Shape::True)]);
/// `GET /v1/admin/actors`.
pub static ACTORS: Shape = Shape::Loose(&[must(
    "actors",
    &Shape::List {
        item: &Shape::Loose(&[must("kind", &FILLED), must("id", &TEXT), must("state", &ANY)]),
        min: 0,
        max: MAX,
    },
)]);
/// `PUT /v1/admin/fixture`.
pub static PUT_FIXTURE: Shape = Shape::Object(&[must("script", &ANY)]);
/// The fixture model, as the operator sees it.
pub static FIXTURE: Shape = Shape::Loose(&[must("fixtureModel", &BOOL), must("script", &ANY)]);
