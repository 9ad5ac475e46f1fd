//! A prompt: a list of items whose long, old part is shared instead of copied for every call.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::call::PromptItem;

/// Prompt items in order: a head (instructions), the shared items of earlier turns, and what is new.
///
/// A session with ten thousand turns behind it has a long prompt; taking a reference on each of its items for each
/// call would cost more than the rest of the step, so the old part travels as one reference.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    head: Vec<PromptItem>,
    shared: Arc<Vec<PromptItem>>,
    tail: Vec<PromptItem>,
}

impl Prompt {
    /// A prompt of three parts.
    #[must_use]
    pub fn new(head: Vec<PromptItem>, shared: Arc<Vec<PromptItem>>, tail: Vec<PromptItem>) -> Self {
        Self { head, shared, tail }
    }

    /// Every item in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &PromptItem> {
        self.head.iter().chain(self.shared.iter()).chain(&self.tail)
    }

    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.shared.len() + self.tail.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The last item.
    #[must_use]
    pub fn last(&self) -> Option<&PromptItem> {
        self.iter().next_back()
    }
}

impl From<Vec<PromptItem>> for Prompt {
    fn from(tail: Vec<PromptItem>) -> Self {
        Self { tail, ..Self::default() }
    }
}

impl PartialEq for Prompt {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Serialize for Prompt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Prompt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_prompt_of_parts_reads_and_compares_as_one_list() {
        let items: Vec<PromptItem> = (0..4).map(|n| Arc::new(json!({"n": n}))).collect();
        let whole = Prompt::from(items.clone());
        let parts = Prompt::new(items[..1].to_vec(), Arc::new(items[1..3].to_vec()), items[3..].to_vec());
        assert_eq!(parts, whole);
        assert_eq!(parts.len(), 4);
        assert_eq!(parts.last(), Some(&items[3]));
        assert_eq!(serde_json::to_value(&parts).unwrap(), serde_json::to_value(&items).unwrap());
        assert_eq!(
            serde_json::from_value::<Prompt>(json!([{"n": 0}])).unwrap(),
            Prompt::from(items[..1].to_vec())
        );
        assert_ne!(parts, Prompt::from(items[..3].to_vec()));
        assert_eq!(Prompt::new(items, Arc::default(), vec![]).last().map(|i| i["n"].clone()), Some(json!(3)));
    }
}
