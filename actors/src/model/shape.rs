//! What a JSON document must look like, as data: one declaration checks a body, finds all of its problems at once and
//! describes it in the API's documents (spec: http-api, sections 2.2 and 24, item 6).

use std::fmt::Write as _;

use super::json::{Json, JsonMap, utf16_units};
pub use super::manifest::{Issue, PathItem};
use crate::limits::BODY_ISSUES;

/// A shape. Built in `static`s; members point to one another.
#[derive(Clone, Copy)]
pub enum Shape {
    /// Anything, null included.
    Any,
    /// Null.
    Null,
    /// `true` or `false`.
    Bool,
    /// A string of so many UTF-16 units.
    Text {
        /// At least.
        min: usize,
        /// At most.
        max: usize,
    },
    /// A string that a function accepts.
    Matching {
        /// In words: "an absolute path".
        what: &'static str,
        /// A regular expression for the API's documents, `""` for none.
        pattern: &'static str,
        /// Whether it is one.
        check: fn(&str) -> bool,
    },
    /// A whole number within bounds.
    Int {
        /// At least.
        min: i64,
        /// At most.
        max: i64,
    },
    /// A finite number above or at `min`.
    Number {
        /// At least.
        min: f64,
    },
    /// Exactly this string.
    Literal(&'static str),
    /// Exactly `true`.
    True,
    /// Exactly `false`.
    False,
    /// One of these strings.
    Enum(&'static [&'static str]),
    /// An array of so many items.
    List {
        /// Each of them.
        item: &'static Shape,
        /// At least.
        min: usize,
        /// At most.
        max: usize,
    },
    /// An object with these members and no others.
    Object(&'static [Member]),
    /// An object with these members; others pass.
    Loose(&'static [Member]),
    /// An object whose members all look alike.
    Map(&'static Shape),
    /// An object told apart by a string member.
    Tagged {
        /// The member.
        tag: &'static str,
        /// Its values, each with the shape of the whole object.
        cases: &'static [(&'static str, &'static Shape)],
    },
    /// The first of these that fits.
    Union(&'static [&'static Shape]),
}

/// A member of an object.
#[derive(Clone, Copy)]
pub struct Member {
    /// Its name.
    pub name: &'static str,
    /// What it must look like.
    pub shape: &'static Shape,
    /// Whether it must be there.
    pub required: bool,
}

/// A member that must be there.
#[must_use]
pub const fn must(name: &'static str, shape: &'static Shape) -> Member {
    Member { name, shape, required: true }
}

/// A member that may be there.
#[must_use]
pub const fn may(name: &'static str, shape: &'static Shape) -> Member {
    Member { name, shape, required: false }
}

/// A string that is not empty.
pub static FILLED: Shape = Shape::Text { min: 1, max: usize::MAX };
/// Any string.
pub static TEXT: Shape = Shape::Text { min: 0, max: usize::MAX };
/// Anything.
pub static ANY: Shape = Shape::Any;
/// A boolean.
pub static BOOL: Shape = Shape::Bool;
/// Any object.
pub static OBJECT: Shape = Shape::Map(&Shape::Any);
/// A whole number from 0.
pub static COUNT: Shape = Shape::Int { min: 0, max: i64::MAX };
/// A whole number from 1.
pub static COUNT_FROM_ONE: Shape = Shape::Int { min: 1, max: i64::MAX };
/// An idempotency key.
pub static IDEMPOTENCY_KEY: Shape = Shape::Text { min: 1, max: 256 };

/// A problem that only words describe, at a path of members.
#[must_use]
pub fn issue(path: &[&str], message: impl Into<String>) -> Issue {
    Issue {
        path: path.iter().map(|key| PathItem::from(*key)).collect(),
        code: "custom",
        message: message.into(),
    }
}

/// `{path, code, message}`, as `details.issues` has it.
#[must_use]
pub fn issue_json(issue: &Issue) -> Json {
    serde_json::to_value(issue).unwrap_or_default()
}

impl Shape {
    /// Every problem of a document, in the order of the shape; at most [`BODY_ISSUES`], the last of which then counts
    /// the rest.
    #[must_use]
    pub fn check(&self, value: &Json) -> Vec<Issue> {
        let mut checker = Checker { path: Vec::new(), issues: Vec::new(), unlisted: 0 };
        checker.value(self, value);
        if checker.unlisted > 0 {
            checker.issues.push(issue(&[], format!("{} more problems are not listed", checker.unlisted)));
        }
        checker.issues
    }

    /// Whether a document fits.
    #[must_use]
    pub fn fits(&self, value: &Json) -> bool {
        self.check(value).is_empty()
    }

    fn expects(&self) -> &'static str {
        match self {
            Self::Any => "anything",
            Self::Null => "null",
            Self::Bool | Self::True | Self::False => "a boolean",
            Self::Text { .. } | Self::Matching { .. } | Self::Literal(_) | Self::Enum(_) => "a string",
            Self::Int { .. } => "a whole number",
            Self::Number { .. } => "a number",
            Self::List { .. } => "an array",
            Self::Object(_) | Self::Loose(_) | Self::Map(_) | Self::Tagged { .. } => "an object",
            Self::Union(_) => "another value",
        }
    }
}

/// Unknown members that an issue names.
const UNKNOWN_NAMES: usize = 20;

struct Checker {
    path: Vec<PathItem>,
    issues: Vec<Issue>,
    unlisted: usize,
}

impl Checker {
    fn add(&mut self, code: &'static str, message: impl Into<String>) {
        if self.issues.len() + 1 < BODY_ISSUES {
            self.issues.push(Issue { path: self.path.clone(), code, message: message.into() });
        } else {
            self.unlisted += 1;
        }
    }

    fn below(&mut self, step: PathItem, shape: &Shape, value: &Json) {
        self.path.push(step);
        self.value(shape, value);
        self.path.pop();
    }

    fn value(&mut self, shape: &Shape, value: &Json) {
        match (shape, value) {
            (Shape::Any, _) | (Shape::Null, Json::Null) | (Shape::Bool, Json::Bool(_)) => {}
            (Shape::True, Json::Bool(given)) => self.literal(*given, "true"),
            (Shape::False, Json::Bool(given)) => self.literal(!*given, "false"),
            (Shape::Text { min, max }, Json::String(text)) => self.text(text, *min, *max),
            (Shape::Matching { what, check, .. }, Json::String(text)) => {
                if !check(text) {
                    self.add("invalid_format", format!("must be {what}"));
                }
            }
            (Shape::Literal(word), Json::String(text)) => self.literal(text == word, word),
            (Shape::Enum(words), Json::String(text)) => {
                if !words.contains(&text.as_str()) {
                    self.add("invalid_value", format!("must be one of {}", words.join(", ")));
                }
            }
            (Shape::Int { min, max }, Json::Number(number)) => self.int(number, *min, *max),
            (Shape::Number { min }, Json::Number(number)) => {
                if number.as_f64().is_none_or(|n| n < *min) {
                    self.add("too_small", format!("must be at least {min}"));
                }
            }
            (Shape::List { item, min, max }, Json::Array(items)) => {
                self.size(items.len(), *min, *max, "items");
                // A list that is too long is not looked into: its problems could be more than anybody reads.
                for (at, value) in items.iter().enumerate().take(*max) {
                    self.below(PathItem::Index(at), item, value);
                }
            }
            (Shape::Object(members), Json::Object(map)) => {
                self.members(members, map);
                self.unknown(members, map);
            }
            (Shape::Loose(members), Json::Object(map)) => self.members(members, map),
            (Shape::Map(each), Json::Object(map)) => {
                for (name, value) in map {
                    self.below(PathItem::Key(name.clone()), each, value);
                }
            }
            (Shape::Tagged { tag, cases }, Json::Object(map)) => self.tagged(tag, cases, map, value),
            (Shape::Union(shapes), _) => self.union(shapes, value),
            _ => self.add("invalid_type", format!("expected {}, got {}", shape.expects(), name_of(value))),
        }
    }

    fn literal(&mut self, fits: bool, word: &str) {
        if !fits {
            self.add("invalid_value", format!("must be {word}"));
        }
    }

    fn text(&mut self, text: &str, min: usize, max: usize) {
        // A string has at most as many UTF-16 units as bytes, so most are never counted.
        let units = if min <= 1 && text.len() <= max { text.len() } else { utf16_units(text).count() };
        self.size(units, min, max, "characters");
    }

    fn size(&mut self, size: usize, min: usize, max: usize, what: &str) {
        if size < min {
            self.add("too_small", format!("must have at least {min} {what}"));
        } else if size > max {
            self.add("too_big", format!("must have at most {max} {what}"));
        }
    }

    fn int(&mut self, number: &serde_json::Number, min: i64, max: i64) {
        match whole(number) {
            None => self.add("invalid_type", "expected a whole number"),
            Some(n) if n < min => self.add("too_small", format!("must be at least {min}")),
            Some(n) if n > max => self.add("too_big", format!("must be at most {max}")),
            Some(_) => {}
        }
    }

    fn members(&mut self, members: &[Member], map: &JsonMap) {
        for member in members {
            match map.get(member.name) {
                Some(value) => self.below(PathItem::Key(member.name.to_owned()), member.shape, value),
                None if member.required => {
                    self.path.push(PathItem::Key(member.name.to_owned()));
                    self.add("invalid_type", format!("expected {}, got nothing", member.shape.expects()));
                    self.path.pop();
                }
                None => {}
            }
        }
    }

    fn unknown(&mut self, members: &[Member], map: &JsonMap) {
        let mut unknown = String::new();
        let mut names = map.keys().filter(|name| !members.iter().any(|m| m.name == name.as_str()));
        for name in names.by_ref().take(UNKNOWN_NAMES) {
            let _ = write!(unknown, "{}\"{name:.100}\"", if unknown.is_empty() { "" } else { ", " });
        }
        let more = names.count();
        if more > 0 {
            let _ = write!(unknown, " and {more} more");
        }
        if !unknown.is_empty() {
            self.add("unrecognized_keys", format!("unknown members: {unknown}"));
        }
    }

    fn tagged(&mut self, tag: &str, cases: &[(&'static str, &'static Shape)], map: &JsonMap, value: &Json) {
        let given = map.get(tag).and_then(Json::as_str);
        if let Some((_, shape)) = cases.iter().find(|(name, _)| Some(*name) == given) {
            return self.value(shape, value);
        }
        let names: Vec<&str> = cases.iter().map(|(name, _)| *name).collect();
        self.path.push(PathItem::Key(tag.to_owned()));
        self.add("invalid_union", format!("must be one of {}", names.join(", ")));
        self.path.pop();
    }

    fn union(&mut self, shapes: &[&'static Shape], value: &Json) {
        let mut closest: Option<Self> = None;
        for shape in shapes {
            let mut attempt = Self { path: self.path.clone(), issues: Vec::new(), unlisted: 0 };
            attempt.value(shape, value);
            if attempt.issues.is_empty() {
                return;
            }
            // Whoever gets the type of the value right is the one that was meant.
            let wrong_type = |i: &Issue| i.code == "invalid_type" && i.path.len() == self.path.len();
            let better = !attempt.issues.iter().any(wrong_type)
                && closest.as_ref().is_none_or(|c| attempt.issues.len() < c.issues.len());
            if better {
                closest = Some(attempt);
            }
        }
        match closest {
            Some(meant) => {
                let room = (BODY_ISSUES - 1).saturating_sub(self.issues.len());
                self.unlisted += meant.unlisted + meant.issues.len().saturating_sub(room);
                self.issues.extend(meant.issues.into_iter().take(room));
            }
            None => self.add("invalid_union", format!("{} is none of what is allowed here", name_of(value))),
        }
    }
}

/// The whole number that a JSON number is for a JavaScript peer (`1.0` is 1), within the exact range of a double.
#[must_use]
pub fn whole(number: &serde_json::Number) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    number.as_i64().or_else(|| {
        let n = number.as_f64()?;
        // The guard keeps the conversion exact.
        #[expect(clippy::cast_possible_truncation)]
        (n.fract() == 0.0 && n.abs() <= EXACT).then_some(n as i64)
    })
}

fn name_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    static PART: Shape =
        Shape::Object(&[must("kind", &Shape::Literal("p")), may("n", &Shape::Int { min: 1, max: 5 })]);
    static BODY: Shape = Shape::Object(&[
        must("id", &FILLED),
        must("parts", &Shape::List { item: &PART, min: 1, max: 2 }),
        may("pick", &Shape::Union(&[&Shape::False, &PART])),
        may(
            "t",
            &Shape::Tagged {
                tag: "type",
                cases: &[("a", &Shape::Object(&[must("type", &TEXT), must("x", &BOOL)]))],
            },
        ),
    ]);

    fn found(value: &Json) -> Vec<(String, &'static str)> {
        let paths = |issue: &Issue| {
            let steps = issue.path.iter().map(|step| match step {
                PathItem::Key(key) => key.clone(),
                PathItem::Index(at) => at.to_string(),
            });
            steps.collect::<Vec<_>>().join(".")
        };
        BODY.check(value).iter().map(|i| (paths(i), i.code)).collect()
    }

    #[test]
    fn all_problems_are_found_at_once_each_with_its_path() {
        let issues =
            found(&json!({"id": "", "parts": [{"kind": "q", "n": 9}, {"n": 1.5, "z": 1}], "more": 1}));
        let issues: Vec<(&str, &str)> = issues.iter().map(|(p, c)| (p.as_str(), *c)).collect();
        assert_eq!(
            issues,
            [
                ("id", "too_small"),
                ("parts.0.kind", "invalid_value"),
                ("parts.0.n", "too_big"),
                ("parts.1.kind", "invalid_type"),
                ("parts.1.n", "invalid_type"),
                ("parts.1", "unrecognized_keys"),
                ("", "unrecognized_keys"),
            ]
        );
    }

    #[test]
    fn a_union_reports_the_problems_of_the_alternative_that_was_meant() {
        let base = |pick: Json| json!({"id": "a", "parts": [{"kind": "p"}], "pick": pick});
        assert!(found(&base(json!(false))).is_empty());
        assert!(found(&base(json!({"kind": "p"}))).is_empty());
        assert_eq!(found(&base(json!(true))), [("pick".to_owned(), "invalid_value")]);
        assert_eq!(found(&base(json!({"kind": "p", "n": 0}))), [("pick.n".to_owned(), "too_small")]);
        assert_eq!(found(&base(json!(3))), [("pick".to_owned(), "invalid_union")]);
    }

    #[test]
    fn a_tagged_object_is_checked_by_its_own_case_only() {
        let base = |t: Json| json!({"id": "a", "parts": [{"kind": "p"}], "t": t});
        assert!(found(&base(json!({"type": "a", "x": true}))).is_empty());
        assert_eq!(found(&base(json!({"type": "a"}))), [("t.x".to_owned(), "invalid_type")]);
        assert_eq!(found(&base(json!({"type": "b"}))), [("t.type".to_owned(), "invalid_union")]);
        assert_eq!(found(&base(json!([]))), [("t".to_owned(), "invalid_type")]);
    }

    #[test]
    fn a_hostile_document_gets_a_short_list() {
        static NUMBERS: Shape = Shape::List { item: &FILLED, min: 0, max: usize::MAX };
        let found = NUMBERS.check(&json!(vec![1; 100_000]));
        assert_eq!(found.len(), BODY_ISSUES);
        let unlisted = 100_000 - (BODY_ISSUES - 1);
        assert_eq!(found[BODY_ISSUES - 1].message, format!("{unlisted} more problems are not listed"));
        static EITHER: Shape = Shape::Union(&[&Shape::Null, &NUMBERS]);
        assert!(EITHER.check(&json!(vec![1; 100_000])).len() <= BODY_ISSUES);
        let members: JsonMap = (0..10_000).map(|n| (format!("{n}{}", "x".repeat(500)), Json::Null)).collect();
        let found = Shape::Object(&[]).check(&Json::Object(members));
        assert!(found[0].message.len() < 4_000 && found[0].message.ends_with("and 9980 more"));
    }

    #[test]
    fn lengths_are_those_a_javascript_peer_counts() {
        let two = Shape::Text { min: 1, max: 2 };
        assert!(two.fits(&json!("\u{1F600}")));
        assert!(two.fits(&json!("éé")));
        assert!(!two.fits(&json!("abc")));
        assert!(two.fits(&super::super::json::parse(br#""\ud800a""#).unwrap()));
    }

    #[test]
    fn whole_numbers_may_be_written_as_floats() {
        let n = Shape::Int { min: 0, max: 10 };
        assert!(n.fits(&json!(3.0)));
        assert!(!n.fits(&json!(3.5)));
        assert!(!n.fits(&json!(1e300)));
    }
}
