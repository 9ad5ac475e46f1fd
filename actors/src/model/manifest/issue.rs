//! One problem of a manifest and where it is (spec: http-api, section 2.2; the shape of `details.issues`).

use std::fmt;

use serde::{Serialize, Serializer};

/// One step of a path into a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathItem {
    /// A member of an object.
    Key(String),
    /// An item of an array.
    Index(usize),
}

impl From<&str> for PathItem {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for PathItem {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

impl Serialize for PathItem {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Key(key) => to.serialize_str(key),
            Self::Index(index) => to.serialize_u64(*index as u64),
        }
    }
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Issue {
    /// Where it is, from the root of the document.
    pub path: Vec<PathItem>,
    /// `invalid_type`, `invalid_value`, `invalid_format`, `too_small`, `too_big`, `unrecognized_keys` or `custom`.
    pub code: &'static str,
    /// What is wrong, for a person.
    pub message: String,
}

/// `capabilities[0].tools[1].name: message`.
impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, item) in self.path.iter().enumerate() {
            match item {
                PathItem::Key(key) if i == 0 => write!(f, "{key}")?,
                PathItem::Key(key) => write!(f, ".{key}")?,
                PathItem::Index(index) => write!(f, "[{index}]")?,
            }
        }
        if !self.path.is_empty() {
            f.write_str(": ")?;
        }
        f.write_str(&self.message)
    }
}
