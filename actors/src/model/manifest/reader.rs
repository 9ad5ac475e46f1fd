//! Reads JSON into values and collects every problem on the way.
//!
//! A reading function returns `None` only after it has reported an issue, so callers read all members of an object
//! first and give up afterwards. Objects are closed: [`Reader::object`] reports members that it was not told of.

use std::collections::HashSet;
use std::sync::Arc;

use super::issue::{Issue, PathItem};
use crate::limits::{MANIFEST_DEPTH, MANIFEST_ISSUES};
use crate::model::canonical::canonical_eq;
use crate::model::json::{Json, JsonMap};

/// Says why a member that older or newer documents have is not allowed here.
pub(super) type Hint = fn(&str) -> Option<&'static str>;

/// No hints.
pub(super) fn no_hint(_: &str) -> Option<&'static str> {
    None
}

/// The state of one reading.
pub(super) struct Reader<'a> {
    issues: Vec<Issue>,
    unlisted: usize,
    path: Vec<PathItem>,
    depth: usize,
    first_sandbox: Option<&'a Json>,
}

impl<'a> Reader<'a> {
    pub(super) fn new() -> Self {
        Self { issues: Vec::new(), unlisted: 0, path: Vec::new(), depth: 0, first_sandbox: None }
    }

    /// The value, or every issue.
    pub(super) fn finish<T>(mut self, value: Option<T>) -> Result<T, Vec<Issue>> {
        if self.unlisted > 0 {
            self.path.clear();
            let message = format!("{} more problems are not listed", self.unlisted);
            self.issues.push(Issue { path: Vec::new(), code: "custom", message });
        }
        match value {
            Some(value) if self.issues.is_empty() => Ok(value),
            _ => {
                if self.issues.is_empty() {
                    self.issue("custom", "the document cannot be read");
                }
                Err(self.issues)
            }
        }
    }

    /// Reports a problem of the value that is being read.
    pub(super) fn issue(&mut self, code: &'static str, message: impl Into<String>) {
        if self.issues.len() + 1 < MANIFEST_ISSUES {
            self.issues.push(Issue { path: self.path.clone(), code, message: message.into() });
        } else {
            self.unlisted += 1;
        }
    }

    /// Reports a problem of a member or an item.
    pub(super) fn issue_at(
        &mut self,
        item: impl Into<PathItem>,
        code: &'static str,
        message: impl Into<String>,
    ) {
        self.within(item, |reader| reader.issue(code, message));
    }

    /// Reads one step further down the path.
    pub(super) fn within<T>(&mut self, item: impl Into<PathItem>, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(item.into());
        let value = read(self);
        self.path.pop();
        value
    }

    /// Reads one document or node deeper; a document that nests too deep is reported where it does.
    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.depth == MANIFEST_DEPTH {
            self.issue("too_big", format!("documents and nodes nest deeper than {MANIFEST_DEPTH} levels"));
            return None;
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        Some(value)
    }

    /// Remembers a sandbox: all of one document must be the same.
    pub(super) fn sandbox(&mut self, value: &'a Json) {
        match self.first_sandbox {
            None => self.first_sandbox = Some(value),
            Some(first) if canonical_eq(first, value) => {}
            Some(_) => self.issue("custom", "all sandboxes of a document must be identical"),
        }
    }

    /// Any object.
    pub(super) fn map(&mut self, value: &'a Json) -> Option<&'a JsonMap> {
        let map = value.as_object();
        if map.is_none() {
            self.expected("an object", value);
        }
        map
    }

    /// A closed object.
    pub(super) fn object(&mut self, value: &'a Json, allowed: &[&str], hint: Hint) -> Option<&'a JsonMap> {
        let map = self.map(value)?;
        let unknown: Vec<&str> =
            map.keys().map(String::as_str).filter(|key| !allowed.contains(key)).collect();
        if !unknown.is_empty() {
            let named: Vec<String> = unknown.iter().take(8).map(|key| format!("\"{key:.64}\"")).collect();
            let mut message =
                format!("unknown member{} {}", if unknown.len() == 1 { "" } else { "s" }, named.join(", "));
            for why in unknown.iter().filter_map(|key| hint(key)) {
                message.push_str("; ");
                message.push_str(why);
            }
            self.issue("unrecognized_keys", message);
        }
        Some(map)
    }

    /// A member that must be there.
    pub(super) fn field<T>(
        &mut self,
        map: &'a JsonMap,
        key: &str,
        read: impl FnOnce(&mut Self, &'a Json) -> Option<T>,
    ) -> Option<T> {
        match map.get(key) {
            Some(value) => self.within(key, |reader| read(reader, value)),
            None => {
                self.issue_at(key, "invalid_type", format!("{key} is required"));
                None
            }
        }
    }

    /// A member that may be missing.
    pub(super) fn optional<T>(
        &mut self,
        map: &'a JsonMap,
        key: &str,
        read: impl FnOnce(&mut Self, &'a Json) -> Option<T>,
    ) -> Option<T> {
        let value = map.get(key)?;
        self.within(key, |reader| read(reader, value))
    }

    /// Any string.
    pub(super) fn text(&mut self, value: &'a Json) -> Option<String> {
        let text = value.as_str();
        if text.is_none() {
            self.expected("a string", value);
        }
        text.map(str::to_owned)
    }

    /// A string of at least one character.
    pub(super) fn name(&mut self, value: &'a Json) -> Option<String> {
        let text = self.text(value)?;
        if text.is_empty() {
            self.issue("too_small", "must not be empty");
            return None;
        }
        Some(text)
    }

    /// One of some words.
    pub(super) fn word<T: Copy>(&mut self, value: &'a Json, words: &[(&str, T)]) -> Option<T> {
        let found = value.as_str().and_then(|text| words.iter().find(|(word, _)| *word == text));
        if found.is_none() {
            let words: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            self.issue("invalid_value", format!("must be {}", words.join(" or ")));
        }
        found.map(|(_, value)| *value)
    }

    /// The literal `true`.
    pub(super) fn constant_true(&mut self, value: &'a Json) -> Option<()> {
        if value != true {
            self.issue("invalid_value", "must be true");
            return None;
        }
        Some(())
    }

    /// A whole number between two bounds, both allowed.
    pub(super) fn integer(&mut self, value: &'a Json, min: u32, max: u32) -> Option<u32> {
        let Some(number) = value.as_f64().filter(|number| number.fract() == 0.0) else {
            self.expected("a whole number", value);
            return None;
        };
        if number < f64::from(min) {
            self.issue("too_small", format!("must be at least {min}"));
            return None;
        }
        if number > f64::from(max) {
            self.issue("too_big", format!("must be at most {max}"));
            return None;
        }
        // Whole and within 32 bits by now.
        Some(number as u32)
    }

    /// A JSON Schema: any object. Its use compiles it.
    pub(super) fn schema(&mut self, value: &'a Json) -> Option<Arc<Json>> {
        self.map(value)?;
        Some(Arc::new(value.clone()))
    }

    /// A JSON object of any content.
    pub(super) fn metadata(&mut self, value: &'a Json) -> Option<Arc<JsonMap>> {
        self.map(value).map(|map| Arc::new(map.clone()))
    }

    /// An array; items that cannot be read are left out (they are reported).
    pub(super) fn list<T>(
        &mut self,
        value: &'a Json,
        mut read: impl FnMut(&mut Self, &'a Json) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Some(items) = value.as_array() else {
            self.expected("an array", value);
            return None;
        };
        let each = items.iter().enumerate();
        Some(each.filter_map(|(i, item)| self.within(i, |reader| read(reader, item))).collect())
    }

    /// An object used as a map, in document order.
    pub(super) fn entries<T>(
        &mut self,
        value: &'a Json,
        mut read: impl FnMut(&mut Self, &'a str, &'a Json) -> Option<T>,
    ) -> Option<Vec<T>> {
        let map = self.map(value)?;
        let each = map.iter();
        Some(
            each.filter_map(|(key, item)| self.within(key.as_str(), |reader| read(reader, key, item)))
                .collect(),
        )
    }

    /// An object used as a map that is left out rather than empty.
    pub(super) fn some_entries<T>(
        &mut self,
        value: &'a Json,
        read: impl FnMut(&mut Self, &'a str, &'a Json) -> Option<T>,
    ) -> Option<Vec<T>> {
        if value.as_object().is_some_and(JsonMap::is_empty) {
            self.issue("too_small", "must be left out when empty");
            return None;
        }
        self.entries(value, read)
    }

    /// Reports the second use of a name.
    pub(super) fn unique<'n>(&mut self, names: &mut HashSet<&'n str>, name: &'n str, what: &str) {
        if !names.insert(name) {
            self.issue("custom", format!("{what} \"{name}\" is used more than once"));
        }
    }

    /// Reports a value of another type.
    pub(super) fn expected(&mut self, what: &str, found: &Json) {
        let found = match found {
            Json::Null => "null",
            Json::Bool(_) => "a boolean",
            Json::Number(_) => "a number",
            Json::String(_) => "a string",
            Json::Array(_) => "an array",
            Json::Object(_) => "an object",
        };
        self.issue("invalid_type", format!("must be {what}, not {found}"));
    }
}
