//! Shapes of Action endpoints, callbacks, decisions on effects, and signing keys (spec: http-api, sections 10 and 14).

use nylorun_actors::model::shape::{
    ANY, BOOL, COUNT, FILLED, IDEMPOTENCY_KEY, OBJECT, Shape, TEXT, may, must,
};

use super::{ISO, MAX, TEXT_OR_NULL};
use crate::api::endpoints::is_endpoint_url;

// --- Action endpoints ---

static ENDPOINT_URL: Shape = Shape::Matching {
    what: "an http or https URL of at most 2048 characters, without credentials and fragment",
    pattern: "",
    check: is_endpoint_url,
};
static ENDPOINT_PUT: Shape = Shape::Object(&[
    must("agentId", &FILLED),
    must("url", &ENDPOINT_URL),
    must("implementationVersion", &FILLED),
    may("manifestHash", &FILLED),
    may("timeoutMs", &Shape::Int { min: 1_000, max: 840_000 }),
    may("maxConcurrent", &Shape::Int { min: 1, max: 256 }),
]);
/// `PUT /v1/endpoints`.
pub static PUT_ENDPOINTS: Shape =
    Shape::Object(&[must("endpoints", &Shape::List { item: &ENDPOINT_PUT, min: 1, max: 64 })]);
static HEALTH_ERROR: Shape = Shape::Object(&[must("code", &FILLED), must("message", &TEXT)]);
static SERVED: Shape = Shape::Object(&[must("implementationVersion", &TEXT), may("manifestHash", &TEXT)]);
static ENDPOINT_HEALTH: Shape = Shape::Object(&[
    may("lastDeliveryAt", &ISO),
    may("lastSuccessAt", &ISO),
    may("lastError", &HEALTH_ERROR),
    must("consecutiveFailures", &COUNT),
    may("served", &SERVED),
]);
static ENDPOINT: Shape = Shape::Object(&[
    must("agentId", &FILLED),
    must("url", &FILLED),
    must("implementationVersion", &FILLED),
    may("manifestHash", &FILLED),
    must("timeoutMs", &COUNT),
    must("maxConcurrent", &COUNT),
    must("health", &ENDPOINT_HEALTH),
    must("updatedAt", &ISO),
]);
/// `PUT` and `GET /v1/endpoints`.
pub static ENDPOINTS: Shape = Shape::Object(&[
    must("endpoints", &Shape::List { item: &ENDPOINT, min: 0, max: MAX }),
    may("nextCursor", &TEXT_OR_NULL),
]);
/// `DELETE /v1/endpoints/{agentId}`.
pub static ENDPOINT_DELETED: Shape =
    Shape::Object(&[must("agentId", &FILLED), must("deleted", &Shape::True)]);
/// `POST /v1/endpoints/{agentId}/ping`.
pub static PONG: Shape = Shape::Object(&[
    must("agentId", &FILLED),
    must("implementationVersion", &TEXT),
    may("manifestHash", &TEXT),
]);

// --- Actions ---

/// `POST /v1/actions/{actionId}/heartbeat`.
pub static HEARTBEAT: Shape = Shape::Object(&[must("token", &FILLED), must("deadlineAt", &ISO)]);
/// `POST /v1/actions/{actionId}/result`: an outcome. A value may be missing: a function that returns nothing sends none.
pub static OUTCOME: Shape = Shape::Object(&[may("value", &ANY), may("statePatch", &OBJECT)]);
/// Its answer.
pub static ACTION_RECEIPT: Shape = Shape::Object(&[
    must("status", &Shape::Literal("accepted")),
    must("turnId", &TEXT_OR_NULL),
    must("cursor", &TEXT_OR_NULL),
]);

// --- Effects that wait for a decision ---

static OPEN_EFFECT: Shape = Shape::Object(&[
    must("effectId", &FILLED),
    must("kind", &FILLED),
    must("status", &Shape::Enum(&["uncertain", "pending", "dead"])),
    must("agentId", &FILLED),
    may("toolName", &TEXT),
    may("input", &ANY),
    may("error", &TEXT),
    may("generation", &COUNT),
    may("since", &ISO),
]);
/// `GET /v1/sessions/{sessionId}/effects`.
pub static OPEN_EFFECTS: Shape = Shape::Object(&[
    must("effects", &Shape::List { item: &OPEN_EFFECT, min: 0, max: MAX }),
    may("nextCursor", &TEXT_OR_NULL),
]);
static RESOLVE_ERROR: Shape = Shape::Object(&[must("code", &FILLED), must("message", &TEXT)]);
/// `POST /v1/sessions/{sessionId}/effects/{effectId}/resolve`.
pub static RESOLVE: Shape = Shape::Object(&[
    must("requestId", &FILLED),
    must("idempotencyKey", &IDEMPOTENCY_KEY),
    must("resolution", &Shape::Enum(&["completed", "failed", "retry"])),
    may("outcome", &OUTCOME),
    may("error", &RESOLVE_ERROR),
]);

// --- Signing keys ---

static JWK: Shape = Shape::Object(&[
    must("kty", &Shape::Enum(&["EC"])),
    must("crv", &Shape::Enum(&["P-256"])),
    must("x", &FILLED),
    must("y", &FILLED),
]);
static PUBLISHED_KEY: Shape = Shape::Object(&[
    must("kty", &Shape::Enum(&["EC"])),
    must("crv", &Shape::Enum(&["P-256"])),
    must("x", &FILLED),
    must("y", &FILLED),
    must("kid", &FILLED),
    must("alg", &Shape::Enum(&["ES256"])),
    must("use", &Shape::Enum(&["sig"])),
]);
/// `GET /v1/access/jwks`.
pub static JWKS: Shape =
    Shape::Object(&[must("keys", &Shape::List { item: &PUBLISHED_KEY, min: 2, max: 3 })]);
static ISO_OR_NULL: Shape = Shape::Union(&[&ISO, &Shape::Null]);
/// A signing key.
pub static SIGNING_KEY: Shape = Shape::Object(&[
    must("id", &FILLED),
    must("state", &Shape::Enum(&["standby", "current", "previous", "revoked"])),
    must("alg", &Shape::Enum(&["ES256"])),
    must("publicKey", &JWK),
    must("createdAt", &ISO),
    must("activatedAt", &ISO_OR_NULL),
    must("retiredAt", &ISO_OR_NULL),
    must("revokedAt", &ISO_OR_NULL),
]);
/// `GET /v1/access/signing-keys` and the answer to a rotation.
pub static SIGNING_KEYS: Shape = Shape::Object(&[
    must("keys", &Shape::List { item: &SIGNING_KEY, min: 0, max: MAX }),
    may("nextCursor", &TEXT_OR_NULL),
]);
/// `POST /v1/access/signing-keys/rotate`.
pub static ROTATE: Shape = Shape::Object(&[must("requestId", &FILLED), may("force", &BOOL)]);
/// `POST /v1/access/signing-keys/{kid}/revoke`.
pub static REVOKE: Shape = Shape::Object(&[must("requestId", &FILLED)]);
