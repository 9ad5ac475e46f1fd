//! The wire protocol's range and features (spec: http-api, section 2.3).

use std::sync::LazyLock;

use actix_web::web::Bytes;
use nylorun_actors::model::json::{Json, encode};
use serde_json::json;

/// Oldest protocol that is served.
pub const MIN: u32 = 4;
/// Newest protocol that is served.
pub const MAX: u32 = 7;

/// What clients may rely on. Those of 0.17 first, then ours.
pub const FEATURES: &[&str] = &[
    "runtime-tenants",
    "admin-status",
    "studio-principal",
    "action-endpoints",
    "artifacts",
    "tenant-fixture-model",
    "transcript-events",
    "subject-headers",
    "sandboxes",
    "operator-keys",
    "list-pages",
    "event-previews",
    "fixture-scripts",
    "effect-resolution",
];

/// `{min, max, features}`.
#[must_use]
pub fn range() -> Json {
    json!({"min": MIN, "max": MAX, "features": FEATURES})
}

/// Whether a `Nylorun-Protocol` value is decimal digits inside the range.
#[must_use]
pub fn serves(value: &str) -> bool {
    !value.is_empty()
        && value.bytes().all(|b| b.is_ascii_digit())
        && value.parse::<u32>().is_ok_and(|version| (MIN..=MAX).contains(&version))
}

/// The body of a 426.
pub(super) static REFUSED: LazyLock<Bytes> = LazyLock::new(|| {
    Bytes::from(encode(&json!({"status": "rejected", "code": "protocol_unsupported", "protocol": range()})))
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_digits_inside_the_range() {
        for good in ["4", "7", "007"] {
            assert!(serves(good), "{good}");
        }
        for bad in ["", "3", "8", "7.0", "+7", " 7", "7, 7", "x", "99999999999999999999"] {
            assert!(!serves(bad), "{bad}");
        }
    }

    #[test]
    fn what_0_17_clients_need_is_listed_and_what_is_gone_is_not() {
        for needed in ["admin-status", "artifacts", "studio-principal", "action-endpoints", "runtime-tenants"]
        {
            assert!(FEATURES.contains(&needed), "{needed}");
        }
        for gone in ["subject-tokens", "browser-access", "derived-principals"] {
            assert!(!FEATURES.contains(&gone), "{gone}");
        }
    }
}
