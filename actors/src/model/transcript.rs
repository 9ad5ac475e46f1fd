//! The transcript: edits, and the fold that makes it from the record (spec: durability, section 13).

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ids::TurnId;
use super::json::{Json, encode};
use crate::limits::TRANSCRIPT_CHUNK_BYTES;

/// One entry, shared between the fold, its cache and the engine.
pub type Entry = Arc<Json>;

/// Keeps the first `keep` entries, appends `entries`; the result has `length` entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Entries kept.
    pub keep: usize,
    /// Entries appended.
    pub entries: Vec<Entry>,
    /// Length after.
    pub length: usize,
}

/// An edit that does not fit the transcript it is applied to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the transcript does not fold: an edit keeps {keep} of {have} entries and says the result has {length}"
)]
pub struct FoldError {
    keep: usize,
    have: usize,
    length: usize,
}

/// Edits that turn `before` into `after`, cut so that one edit's entries stay under 48 KiB of text
/// (an entry larger than that travels alone). No change gives no edit.
#[must_use]
pub fn edits(before: &[Entry], after: &[Entry]) -> Vec<Edit> {
    let same = |a: &Entry, b: &Entry| Arc::ptr_eq(a, b) || a == b;
    let keep = before.iter().zip(after).take_while(|(a, b)| same(a, b)).count();
    if keep == after.len() {
        return if keep == before.len() {
            Vec::new()
        } else {
            vec![Edit { keep, entries: Vec::new(), length: keep }]
        };
    }
    let mut out = Vec::new();
    let (mut at, mut chunk, mut bytes) = (keep, Vec::new(), 0);
    for entry in &after[keep..] {
        let size = encode(entry.as_ref()).len();
        if !chunk.is_empty() && bytes + size > TRANSCRIPT_CHUNK_BYTES {
            let entries: Vec<Entry> = std::mem::take(&mut chunk);
            let length = at + entries.len();
            out.push(Edit { keep: at, entries, length });
            (at, bytes) = (length, 0);
        }
        chunk.push(Arc::clone(entry));
        bytes += size;
    }
    let length = at + chunk.len();
    out.push(Edit { keep: at, entries: chunk, length });
    out
}

/// Applies an edit.
///
/// # Errors
/// When the edit keeps more than there is or does not give its length; `entries` is unchanged then.
pub fn apply(entries: &mut Vec<Entry>, edit: &Edit) -> Result<(), FoldError> {
    if edit.keep > entries.len() || edit.keep + edit.entries.len() != edit.length {
        return Err(FoldError { keep: edit.keep, have: entries.len(), length: edit.length });
    }
    entries.truncate(edit.keep);
    entries.extend(edit.entries.iter().cloned());
    Ok(())
}

/// What the fold reads of an event.
#[derive(Clone, Debug)]
pub enum FoldStep {
    /// `transcript.updated`.
    Edit(Edit),
    /// `turn.cancelled` or `turn.failed`.
    Reverted,
    /// `turn.completed`.
    Completed,
}

/// The fold of a session's record into its transcript.
#[derive(Clone, Debug)]
pub struct Fold {
    entries: Vec<Entry>,
    cursor: i64,
    /// The turn whose edits may still be reverted, and how to: entries cut by its edits, and the length to go back to.
    open: Option<OpenTurn>,
}

#[derive(Clone, Debug)]
struct OpenTurn {
    turn: Option<TurnId>,
    /// Length of the part that no edit of the turn has touched.
    untouched: usize,
    /// What followed the untouched part before the turn.
    cut: VecDeque<Entry>,
}

impl Default for Fold {
    fn default() -> Self {
        Self { entries: Vec::new(), cursor: -1, open: None }
    }
}

impl Fold {
    /// A fold that starts from a snapshot: these entries at this cursor, with no turn open.
    #[must_use]
    pub fn from_snapshot(entries: Vec<Entry>, cursor: i64) -> Self {
        Self { entries, cursor, open: None }
    }

    /// The transcript.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// `seq` of the last `transcript.updated`, `turn.cancelled` or `turn.failed` read, or -1.
    #[must_use]
    pub fn cursor(&self) -> i64 {
        self.cursor
    }

    /// Whether a turn's edits may still be reverted.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Reads one event.
    ///
    /// # Errors
    /// When an edit does not fit.
    pub fn read(&mut self, seq: i64, turn: Option<&TurnId>, step: &FoldStep) -> Result<(), FoldError> {
        match step {
            FoldStep::Edit(edit) => {
                if self.open.as_ref().map(|o| o.turn.as_ref()) != Some(turn) {
                    self.open = Some(OpenTurn {
                        turn: turn.cloned(),
                        untouched: self.entries.len(),
                        cut: VecDeque::new(),
                    });
                }
                if edit.keep <= self.entries.len()
                    && let Some(open) = self.open.as_mut()
                    && edit.keep < open.untouched
                {
                    for entry in self.entries[edit.keep..open.untouched].iter().rev() {
                        open.cut.push_front(Arc::clone(entry));
                    }
                    open.untouched = edit.keep;
                }
                apply(&mut self.entries, edit)?;
                self.cursor = seq;
            }
            FoldStep::Reverted => {
                if let Some(open) = self.open.take()
                    && open.turn.as_ref() == turn
                {
                    self.entries.truncate(open.untouched);
                    self.entries.extend(open.cut);
                }
                self.cursor = seq;
            }
            FoldStep::Completed => self.open = None,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn list(items: &[u32]) -> Vec<Entry> {
        items.iter().map(|i| Arc::new(json!({ "n": i }))).collect()
    }

    fn turn(name: &str) -> TurnId {
        TurnId::from(name)
    }

    #[test]
    fn no_change_gives_no_edit_and_a_truncation_gives_one_without_entries() {
        assert!(edits(&list(&[1, 2]), &list(&[1, 2])).is_empty());
        let cut = edits(&list(&[1, 2, 3]), &list(&[1]));
        assert_eq!(cut, vec![Edit { keep: 1, entries: vec![], length: 1 }]);
    }

    #[test]
    fn edits_are_cut_at_48_kib_and_a_larger_entry_travels_alone() {
        let big = |n: usize| Arc::new(Json::String("x".repeat(n)));
        let after = vec![big(30_000), big(30_000), big(100_000), big(10)];
        let cut = edits(&[], &after);
        assert_eq!(
            cut.iter().map(|e| (e.keep, e.length)).collect::<Vec<_>>(),
            vec![(0, 1), (1, 2), (2, 3), (3, 4)]
        );
    }

    #[test]
    fn a_failed_or_cancelled_turn_restores_what_was_before_its_first_edit() {
        let mut fold = Fold::default();
        let base = edits(&[], &list(&[1, 2, 3]));
        fold.read(0, Some(&turn("a")), &FoldStep::Edit(base[0].clone())).unwrap();
        fold.read(1, Some(&turn("a")), &FoldStep::Completed).unwrap();
        let compaction = Edit { keep: 0, entries: list(&[9]), length: 1 };
        fold.read(2, Some(&turn("b")), &FoldStep::Edit(compaction)).unwrap();
        let more = Edit { keep: 1, entries: list(&[10]), length: 2 };
        fold.read(3, Some(&turn("b")), &FoldStep::Edit(more)).unwrap();
        fold.read(4, Some(&turn("b")), &FoldStep::Reverted).unwrap();
        assert_eq!(fold.entries(), list(&[1, 2, 3]));
        assert_eq!(fold.cursor(), 4);
    }

    #[test]
    fn a_revert_of_another_turn_forgets_the_open_one() {
        let mut fold = Fold::default();
        fold.read(0, Some(&turn("a")), &FoldStep::Edit(edits(&[], &list(&[1]))[0].clone())).unwrap();
        fold.read(1, None, &FoldStep::Reverted).unwrap();
        fold.read(2, Some(&turn("a")), &FoldStep::Reverted).unwrap();
        assert_eq!(fold.entries(), list(&[1]));
        assert_eq!(fold.cursor(), 2);
    }

    #[test]
    fn an_edit_that_keeps_too_much_or_has_another_length_is_refused() {
        let mut fold = Fold::default();
        let long = Edit { keep: 1, entries: vec![], length: 1 };
        assert!(fold.read(0, None, &FoldStep::Edit(long)).is_err());
        let wrong = Edit { keep: 0, entries: list(&[1]), length: 2 };
        assert!(fold.read(0, None, &FoldStep::Edit(wrong)).is_err());
        assert_eq!(fold.cursor(), -1);
    }

    proptest! {
        #[test]
        fn edits_fold_to_the_same_list(before in prop::collection::vec(0u32..4, 0..12), after in prop::collection::vec(0u32..4, 0..12)) {
            let (before, after) = (list(&before), list(&after));
            let mut folded = before.clone();
            for edit in edits(&before, &after) {
                apply(&mut folded, &edit).unwrap();
            }
            prop_assert_eq!(folded, after);
        }

        #[test]
        fn reverting_a_turn_restores_the_list_before_it(lists in prop::collection::vec(prop::collection::vec(0u32..4, 0..8), 1..6)) {
            let mut fold = Fold::default();
            let mut seq = 0;
            let start = list(&lists[0]);
            for edit in edits(&[], &start) {
                fold.read(seq, Some(&turn("a")), &FoldStep::Edit(edit)).unwrap();
                seq += 1;
            }
            fold.read(seq, Some(&turn("a")), &FoldStep::Completed).unwrap();
            for next in &lists[1..] {
                let next = list(next);
                for edit in edits(fold.entries(), &next) {
                    seq += 1;
                    fold.read(seq, Some(&turn("b")), &FoldStep::Edit(edit)).unwrap();
                }
                prop_assert_eq!(fold.entries(), &next[..]);
            }
            fold.read(seq + 1, Some(&turn("b")), &FoldStep::Reverted).unwrap();
            prop_assert_eq!(fold.entries(), &start[..]);
        }
    }
}
