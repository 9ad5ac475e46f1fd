//! Canonical JSON in its two key orders, and the hashes made of it (spec: engine, section 1.6; harness-api, section 11.1).

use crate::model::Json;

/// Canonical text with object keys sorted by UTF-16 code unit: for request hashes and idempotency comparisons.
#[must_use]
pub fn canonical(value: &Json) -> String {
    value.to_string()
}
