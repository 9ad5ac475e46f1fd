//! Artifacts (spec: http-api, section 12).

use super::{COUNT, COUNT_FROM_ONE, FILLED, ISO, MAX, Shape, TEXT, TEXT_OR_NULL, may, must};
use nylorun_actors::model::artifact::MOST_VERSIONS;

/// The largest integer that every client reads exactly.
const SAFE: i64 = (1 << 53) - 1;

static KIND: Shape = Shape::Enum(&["file", "folder"]);
static VERSION: Shape = Shape::Object(&[
    must("version", &COUNT_FROM_ONE),
    must("size", &COUNT),
    must("sha256", &FILLED),
    must("contentType", &FILLED),
    must("source", &Shape::Enum(&["upload", "engine", "export"])),
    must("createdAt", &ISO),
]);
/// `GET /v1/artifacts/{id}`.
pub static ARTIFACT: Shape = Shape::Object(&[
    must("artifactId", &FILLED),
    must("kind", &KIND),
    must("name", &FILLED),
    must("contentType", &FILLED),
    may("sessionId", &FILLED),
    must("latestVersion", &COUNT_FROM_ONE),
    may("labels", &Shape::Map(&TEXT)),
    must("createdAt", &ISO),
    must("updatedAt", &ISO),
    may("versions", &Shape::List { item: &VERSION, min: 1, max: MAX }),
]);
/// `GET /v1/artifacts`.
pub static ARTIFACTS: Shape = Shape::Object(&[
    must("artifacts", &Shape::List { item: &ARTIFACT, min: 0, max: MAX }),
    may("nextCursor", &TEXT_OR_NULL),
]);
/// Answer to an upload.
pub static ARTIFACT_UPLOADED: Shape =
    Shape::Object(&[must("artifact", &ARTIFACT), must("version", &VERSION)]);
/// Answer to a `DELETE`.
pub static ARTIFACT_DELETED: Shape =
    Shape::Object(&[must("artifactId", &FILLED), must("deleted", &Shape::True)]);

static ENTRY: Shape = Shape::Object(&[
    must("path", &FILLED),
    must("size", &COUNT),
    must("sha256", &FILLED),
    must("contentType", &FILLED),
]);
static ENTRIES: Shape = Shape::List { item: &ENTRY, min: 0, max: MAX };
/// `GET …/tree`.
pub static ARTIFACT_TREE: Shape = Shape::Object(&[
    must("artifactId", &FILLED),
    must("version", &COUNT_FROM_ONE),
    must("entries", &ENTRIES),
]);
static CHANGED: Shape = Shape::Object(&[must("path", &FILLED), must("from", &ENTRY), must("to", &ENTRY)]);
/// `GET …/diff`.
pub static ARTIFACT_DIFF: Shape = Shape::Object(&[
    must("artifactId", &FILLED),
    may("from", &COUNT_FROM_ONE),
    must("to", &COUNT_FROM_ONE),
    must("added", &ENTRIES),
    must("removed", &ENTRIES),
    must("changed", &Shape::List { item: &CHANGED, min: 0, max: MAX }),
]);

/// `POST /v1/artifacts/{id}/links`.
pub static ARTIFACT_LINK: Shape = Shape::Object(&[
    may("requestId", &FILLED),
    may("version", &Shape::Int { min: 1, max: MOST_VERSIONS }),
    may("expiresIn", &Shape::Int { min: 1, max: 900 }),
    may("file", &Shape::Text { min: 1, max: 1024 }),
]);
/// Its answer.
pub static ARTIFACT_LINKED: Shape = Shape::Object(&[
    must("path", &FILLED),
    must("artifactId", &FILLED),
    must("version", &COUNT_FROM_ONE),
    may("file", &FILLED),
    must("expiresAt", &ISO),
]);

/// `PUT /v1/tenant/artifacts`.
pub static PUT_ARTIFACT_SETTINGS: Shape = Shape::Object(&[
    may("requestId", &FILLED),
    may(
        "limits",
        &Shape::Object(&[
            may("fileBytes", &Shape::Int { min: 1, max: SAFE }),
            may("totalBytes", &Shape::Int { min: 1, max: SAFE }),
        ]),
    ),
]);
/// `GET /v1/tenant/artifacts`.
pub static ARTIFACT_SETTINGS: Shape = Shape::Object(&[
    must(
        "limits",
        &Shape::Object(&[must("fileBytes", &COUNT_FROM_ONE), must("totalBytes", &COUNT_FROM_ONE)]),
    ),
    must("usedBytes", &COUNT),
]);
