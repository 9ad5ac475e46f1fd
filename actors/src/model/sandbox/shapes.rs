//! What requests about sandboxes look like (spec: sandbox, sections 3, 5 and 6; http-api, sections 6.1, 11 and 15.4).

use super::id::{is_label_key, is_label_value, is_sandbox_id};
use crate::model::manifest::{is_host_pattern, parse_duration_ms, parse_size_bytes};
use crate::model::shape::{FILLED, Shape, TEXT, may, must};

const MAX: usize = usize::MAX;

/// A host name or a pattern.
pub static HOST_PATTERN: Shape = Shape::Matching {
    what: "a host name or a \"*.\" pattern, without scheme, port or path",
    pattern: "",
    check: is_host_pattern,
};
/// A size.
pub static SIZE: Shape = Shape::Matching {
    what: "a size such as 512MiB",
    pattern: "",
    check: |text| parse_size_bytes(text).is_some(),
};
/// A duration.
pub static DURATION: Shape = Shape::Matching {
    what: "a duration such as 15m",
    pattern: "",
    check: |text| parse_duration_ms(text).is_some(),
};
/// Longest time between asking a sandbox to stop and ending it, ms.
pub const STOP_GRACE_MOST_MS: u64 = 30_000;
static STOP_GRACE: Shape = Shape::Matching {
    what: "a duration of at most 30s",
    pattern: "",
    check: |text| parse_duration_ms(text).is_some_and(|ms| ms <= STOP_GRACE_MOST_MS),
};
/// A sandbox's id.
pub static SANDBOX_ID: Shape = Shape::Matching {
    what: "1 to 200 characters in segments between slashes, each of letters, digits, dots, underscores and hyphens and begun by a letter or a digit",
    pattern: "^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$",
    check: is_sandbox_id,
};
static HOSTS: Shape = Shape::List { item: &HOST_PATTERN, min: 0, max: MAX };
/// `{allow?}`.
pub static NETWORK: Shape = Shape::Object(&[may("allow", &HOSTS)]);
/// `{cpus?, memory?}`.
pub static RESOURCES: Shape =
    Shape::Object(&[may("cpus", &Shape::Int { min: 1, max: 64 }), may("memory", &SIZE)]);

/// What a session may ask for inline.
pub static INLINE: Shape =
    Shape::Object(&[may("image", &FILLED), may("network", &NETWORK), may("resources", &RESOURCES)]);
/// `sandbox` of `PUT /v1/sessions/{sessionId}`.
pub static SESSION_SANDBOX: Shape = Shape::Union(&[
    &Shape::False,
    &Shape::Object(&[must("id", &SANDBOX_ID)]),
    &Shape::Object(&[must("session", &FILLED)]),
    &INLINE,
]);

/// Values of labels; their keys are looked at apart.
static LABELS: Shape = Shape::Map(&Shape::Matching {
    what: "at most 256 printable ASCII characters",
    pattern: "",
    check: is_label_value,
});
/// `PUT /v1/sandboxes/{sandboxId}`.
pub static PUT_SANDBOX: Shape = Shape::Object(&[
    may("requestId", &FILLED),
    may("kind", &Shape::Enum(&["virtual", "pod"])),
    may("labels", &LABELS),
    may("image", &FILLED),
    may("network", &NETWORK),
    may("resources", &RESOURCES),
    may("storage", &SIZE),
    may("lifecycle", &Shape::Object(&[may("ttl", &DURATION)])),
]);

/// Whether a key of a label is one, in words when it is not.
#[must_use]
pub fn label_key_problem(key: &str) -> Option<String> {
    (!is_label_key(key)).then(|| {
        format!(
            "\"{key:.80}\" is no label key: 1 to 63 letters, digits, dots, underscores, slashes and hyphens, with a letter or a digit at each end"
        )
    })
}

static DEFAULT: Shape = Shape::Union(&[&Shape::Enum(&["none", "virtual"]), &INLINE]);
static SANDBOXES: Shape = Shape::Int { min: 0, max: 100_000 };
static LIMITS: Shape = Shape::Object(&[
    may("network", &HOSTS),
    may("resources", &RESOURCES),
    may("defaultResources", &RESOURCES),
    may("idle", &DURATION),
    may("sandboxes", &SANDBOXES),
    may("ttl", &DURATION),
]);
static ON_EXPIRY: Shape = Shape::Enum(&["retain", "delete"]);
static LIFECYCLE: Shape = Shape::Object(&[may("onExpiry", &ON_EXPIRY), may("stopGrace", &STOP_GRACE)]);
static PLACEMENT: Shape = Shape::Map(&Shape::Object(&[must(
    "hosts",
    &Shape::List { item: &Shape::Enum(&["harness-container", "sandbox"]), min: 1, max: MAX },
)]));
/// The configuration as it is stored.
pub static CONFIG: Shape = Shape::Object(&[
    may("default", &DEFAULT),
    may("limits", &LIMITS),
    may("lifecycle", &LIFECYCLE),
    may("placement", &PLACEMENT),
]);
/// `PUT /v1/tenant/sandbox`.
pub static PUT_CONFIG: Shape = Shape::Object(&[
    may("requestId", &FILLED),
    may("default", &DEFAULT),
    may("limits", &LIMITS),
    may("lifecycle", &LIFECYCLE),
    may("placement", &PLACEMENT),
]);

static MIB: Shape = Shape::Object(&[
    must("cpus", &Shape::Int { min: 1, max: 64 }),
    must("memoryMiB", &Shape::Int { min: 1, max: i64::MAX }),
]);
/// The configuration as it is shown, every default in force.
pub static CONFIG_IN_FORCE: Shape = Shape::Object(&[
    must("default", &DEFAULT),
    must(
        "limits",
        &Shape::Object(&[
            must("network", &HOSTS),
            must("resources", &MIB),
            must("defaultResources", &MIB),
            must("idle", &DURATION),
            must("sandboxes", &SANDBOXES),
            may("ttl", &DURATION),
        ]),
    ),
    must("lifecycle", &Shape::Object(&[must("onExpiry", &ON_EXPIRY), must("stopGrace", &STOP_GRACE)])),
    must("placement", &PLACEMENT),
]);
/// A spec.
pub static SPEC: Shape = Shape::Object(&[
    may("image", &FILLED),
    must("network", &Shape::Object(&[must("preset", &TEXT), may("allow", &HOSTS)])),
    must(
        "resources",
        &Shape::Object(&[must("cpus", &Shape::Int { min: 1, max: 64 }), must("memory", &SIZE)]),
    ),
    must("idle", &DURATION),
    may("storage", &SIZE),
    may("lifecycle", &Shape::Object(&[may("ttl", &DURATION)])),
]);
