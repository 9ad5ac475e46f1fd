//! Ids of sandbox resources, the grants that reach them, and their labels (spec: sandbox, sections 6 and 7; security,
//! section 3.4).

use std::collections::BTreeMap;

/// Most characters of an id.
pub const ID_CHARS: usize = 200;
/// Most labels of a sandbox.
pub const LABELS: usize = 32;
/// Most characters of a label's key.
pub const LABEL_KEY_CHARS: usize = 63;
/// Most characters of a label's value.
pub const LABEL_VALUE_CHARS: usize = 256;

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// Whether `text` may be a sandbox's id: segments between slashes, each begun by a letter or a digit.
#[must_use]
pub fn is_sandbox_id(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let segment = |segment: &str| {
        let bytes = segment.as_bytes();
        bytes.first().is_some_and(u8::is_ascii_alphanumeric) && bytes.iter().all(|b| inner(*b))
    };
    text.len() <= ID_CHARS && text.split('/').all(segment)
}

/// Whether `text` may be a grant: an id, or an id and `/*`.
#[must_use]
pub fn is_grant(text: &str) -> bool {
    is_sandbox_id(text.strip_suffix("/*").unwrap_or(text))
}

/// Whether a grant reaches a sandbox: `p/*` reaches what is below `p`, anything else itself alone.
#[must_use]
pub fn grant_reaches(grant: &str, id: &str) -> bool {
    match grant.strip_suffix('*').filter(|prefix| prefix.ends_with('/')) {
        Some(prefix) => id.len() > prefix.len() && id.starts_with(prefix),
        None => grant == id,
    }
}

/// Whether `text` may be a label's key.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edges = [bytes.first(), bytes.last()];
    edges.into_iter().all(|edge| edge.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.len() <= LABEL_KEY_CHARS
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"._/-".contains(b))
}

/// Whether `text` may be a label's value: printable ASCII, or nothing.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.len() <= LABEL_VALUE_CHARS && text.bytes().all(|b| (0x20..=0x7e).contains(&b))
}

/// Reads a filter: `key=value`. `None` without `=` or with an empty key.
#[must_use]
pub fn label_filter(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
}

/// Whether labels have all that a filter asks for.
#[must_use]
pub fn has_labels(labels: &Labels, wanted: &[(String, String)]) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_segments_between_slashes() {
        let long = "a".repeat(200);
        for good in ["a", "team-a/proj_42", "1.2/x", "A", &long] {
            assert!(is_sandbox_id(good), "{good}");
        }
        let longer = "a".repeat(201);
        for bad in ["", "/", "/a", "a/", "a//b", "-a", "a/.b", "a b", "é", "a:b", "a/*", "..", &longer] {
            assert!(!is_sandbox_id(bad), "{bad}");
        }
    }

    #[test]
    fn a_grant_reaches_its_id_or_what_is_below_its_prefix() {
        assert!(grant_reaches("team/box", "team/box") && !grant_reaches("team/box", "team/box2"));
        for below in ["p/a", "p/a/b"] {
            assert!(grant_reaches("p/*", below), "{below}");
        }
        for not in ["p", "pa", "p/", "q/a", "x/p/a"] {
            assert!(!grant_reaches("p/*", not), "{not}");
        }
        assert!(!grant_reaches("*", "a") && !grant_reaches("", "a"));
        assert!(is_grant("a/b") && is_grant("a/b/*"));
        for bad in ["*", "/*", "a*", "a/*/b", "a/**", ""] {
            assert!(!is_grant(bad), "{bad}");
        }
    }

    #[test]
    fn labels_have_bounded_keys_and_printable_values() {
        let longest = "k".repeat(63);
        for good in ["a", "app.example/name", "a_b-c", &longest] {
            assert!(is_label_key(good), "{good}");
        }
        let longer = "k".repeat(64);
        for bad in ["", "-a", "a-", "a b", "/a", "é", &longer] {
            assert!(!is_label_key(bad), "{bad}");
        }
        assert!(is_label_value("") && is_label_value("a b~") && is_label_value(&"v".repeat(256)));
        assert!(!is_label_value("a\nb") && !is_label_value("é") && !is_label_value(&"v".repeat(257)));
    }

    #[test]
    fn a_filter_has_a_key_and_every_filter_must_fit() {
        assert_eq!(label_filter("a=b=c"), Some(("a".into(), "b=c".into())));
        assert_eq!(label_filter("a="), Some(("a".into(), String::new())));
        assert_eq!((label_filter("=b"), label_filter("a"), label_filter("")), (None, None, None));
        let labels = Labels::from([("a".into(), "1".into()), ("b".into(), "2".into())]);
        let wanted = |texts: &[&str]| texts.iter().filter_map(|text| label_filter(text)).collect::<Vec<_>>();
        assert!(has_labels(&labels, &wanted(&[])) && has_labels(&labels, &wanted(&["a=1", "b=2"])));
        assert!(!has_labels(&labels, &wanted(&["a=1", "b=3"])) && !has_labels(&labels, &wanted(&["c="])));
    }
}
