//! Identifiers and their patterns (spec: http-api, section 2.4).

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Arc<str>);

        impl $name {
            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(Arc::from(text))
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(Arc::from(text))
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_id!(
    /// A Tenant: `tn_` and a lowercase Crockford ULID.
    TenantId
);
text_id!(
    /// A session: opaque, chosen by the client, not empty.
    SessionId
);
text_id!(
    /// A turn: a UUID v4.
    TurnId
);
text_id!(
    /// A definition's id, the manifest's own `id`.
    AgentId
);
text_id!(
    /// A run: one segment handed to one harness. A fresh UUID for every offer.
    RunId
);
text_id!(
    /// An effect: `<turnId>:<segment>:<identity>`, deterministic.
    EffectId
);
text_id!(
    /// A worker process: `worker-<hostname>-<pid>-<8 hex>`. Always with a random part.
    WorkerId
);

const CROCKFORD: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// A lowercase Crockford ULID (26 characters) of a time in milliseconds and 80 random bits.
#[must_use]
pub fn ulid(ms: i64, random: u128) -> String {
    let ms = u128::try_from(ms).unwrap_or(0) & ((1 << 48) - 1);
    let value = (ms << 80) | (random & ((1 << 80) - 1));
    (0..26).map(|i| CROCKFORD[((value >> (125 - 5 * i)) & 31) as usize] as char).collect()
}

/// Whether `text` is `prefix` and a lowercase Crockford ULID.
#[must_use]
pub fn is_ulid_id(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix)
        .is_some_and(|rest| rest.len() == 26 && rest.bytes().all(|b| CROCKFORD.contains(&b)))
}

/// Whether `text` may name an operator key: `^[a-z][a-z0-9-]{0,31}$`.
#[must_use]
pub fn is_operator_key_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    matches!(bytes.next(), Some(b'a'..=b'z'))
        && text.len() <= 32
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether `text` is a key: 64 lowercase hexadecimal characters.
#[must_use]
pub fn is_key(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Whether `text` may be a subject: 1 to 200 visible ASCII characters, spaces only inside, not reserved.
#[must_use]
pub fn is_subject(text: &str) -> bool {
    let visible = |b: u8| (0x21..=0x7e).contains(&b);
    let bytes = text.as_bytes();
    let edges = bytes.first().is_some_and(|b| visible(*b)) && bytes.last().is_some_and(|b| visible(*b));
    edges
        && bytes.len() <= 200
        && bytes.iter().all(|b| (0x20..=0x7e).contains(b))
        && text != "host"
        && text != "installation"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_ids_are_lowercase_crockford_ulids() {
        let id = format!("tn_{}", ulid(1_700_000_000_000, u128::MAX));
        assert!(is_ulid_id(&id, "tn_"), "{id}");
        assert_eq!(ulid(0, 0), "0".repeat(26));
        assert!(!is_ulid_id("tn_UPPER", "tn_"));
    }

    #[test]
    fn subjects_are_visible_ascii_with_inner_spaces_and_two_reserved_words() {
        assert!(is_subject("ada lovelace"));
        assert!(is_subject("a"));
        for bad in ["", " a", "a ", "host", "installation", "é", "a\tb", &"x".repeat(201)] {
            assert!(!is_subject(bad), "{bad:?}");
        }
    }

    #[test]
    fn operator_key_names_start_with_a_letter() {
        assert!(is_operator_key_name("ci-1"));
        for bad in ["", "1a", "A", "a_b", &"a".repeat(33)] {
            assert!(!is_operator_key_name(bad), "{bad:?}");
        }
    }
}
