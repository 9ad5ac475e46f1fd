//! The transcript and the prompt that it projects to, kept together so that only new entries are projected
//! (spec: engine, section 4.3; request hash: section 3.4).
//!
//! An item of an earlier turn never changes, so it lives in a shared list with a running hash. Items of the turn that
//! runs may depend on it (`replay: "turn"` reasoning is shown only while its turn lasts), so they stay apart until the
//! next turn opens. The entries of one turn stand together at the end of a transcript.

use std::sync::Arc;

use nylorun_actors::model::Json;
use nylorun_actors::model::canonical::{Hasher, Sink, canonical};
use nylorun_actors::model::json::encode;
use nylorun_actors::model::transcript::Entry;
use serde_json::json;

use super::results;
use crate::engine::model::call::PromptItem;
use crate::engine::model::item;
use crate::engine::model::prompt::Prompt;

/// How the request hash of a model effect covers its prompt.
///
/// `Chained` is safe because nobody but the engine that made a model's hash can compute it: core never sees the
/// prompt, it only compares the hash with the one declared before under the same effect id. A chain over the same
/// item texts in the same order differs exactly when the prompt does. It must not be mixed within a session that
/// engines of other peers also run, so the wire channels use `Exact`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PromptHash {
    /// Over the whole prompt, as the wire defines it.
    #[default]
    Exact,
    /// Over a running digest of the transcript's items where their canonical text is longer than [`CHAIN_ABOVE_BYTES`].
    Chained,
}

/// Canonical text of a projected transcript, bytes, above which [`PromptHash::Chained`] stops hashing it whole.
pub const CHAIN_ABOVE_BYTES: usize = 256 * 1024;

/// Hash and length of a run of items.
#[derive(Clone, Debug, Default)]
struct Ledger {
    digest: Hasher,
    bytes: usize,
    items: usize,
}

impl Ledger {
    fn add(&mut self, text: &str, mode: PromptHash) {
        if mode == PromptHash::Chained {
            self.digest.put(text);
            self.digest.put("\n");
        }
        self.bytes += text.len();
        self.items += 1;
    }
}

#[derive(Clone, Debug)]
struct LiveItem {
    item: PromptItem,
    text: Box<str>,
}

/// A transcript with its projection.
#[derive(Clone, Debug)]
pub struct Projection {
    mode: PromptHash,
    entries: Vec<Entry>,
    /// The engine's turn whose entries are live.
    turn: Option<String>,
    /// Items of earlier turns.
    past: Arc<Vec<PromptItem>>,
    /// Their canonical texts; none once only the digest is needed.
    past_texts: Option<Vec<Box<str>>>,
    past_ledger: Ledger,
    /// Where the live entries begin.
    live_from: usize,
    live: Vec<LiveItem>,
    /// Continues `past_ledger`.
    live_ledger: Ledger,
    /// Whether a live item would read differently in another turn.
    bound: bool,
    /// Bytes of the entries' text, roughly.
    entry_bytes: usize,
}

/// A point that a projection can be taken back to.
#[derive(Clone, Debug)]
pub struct Mark {
    entries: usize,
    live: usize,
    live_ledger: Ledger,
    bound: bool,
    entry_bytes: usize,
}

impl Projection {
    /// An empty transcript.
    #[must_use]
    pub fn new(mode: PromptHash) -> Self {
        Self {
            mode,
            entries: Vec::new(),
            turn: None,
            past: Arc::default(),
            past_texts: Some(Vec::new()),
            past_ledger: Ledger::default(),
            live_from: 0,
            live: Vec::new(),
            live_ledger: Ledger::default(),
            bound: false,
            entry_bytes: 0,
        }
    }

    /// Projects a whole transcript, for the time between turns.
    #[must_use]
    pub fn of(entries: &[Entry], mode: PromptHash) -> Self {
        let mut new = Self::new(mode);
        for entry in entries {
            new.push_past(entry);
            new.entries.push(Arc::clone(entry));
        }
        new.live_from = new.entries.len();
        new.live_ledger = new.past_ledger.clone();
        new
    }

    /// How hashes cover it.
    #[must_use]
    pub fn mode(&self) -> PromptHash {
        self.mode
    }

    /// The transcript.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Makes `turn` the turn that runs. Only what the last turn left is looked at again, unless `turn` has entries
    /// that were projected as an earlier turn's (a projection that was not made by this engine's last segment).
    pub fn open(&mut self, turn: &str) {
        if self.turn.as_deref() == Some(turn) {
            return;
        }
        self.close();
        let old = self.entries.iter().rev().take_while(|entry| turn_of(entry) == turn).count();
        if old > 0 {
            let tail = self.entries.split_off(self.entries.len() - old);
            *self = Self::of(&self.entries, self.mode);
            self.turn = Some(turn.to_owned());
            tail.into_iter().for_each(|entry| self.push(entry));
        }
        self.turn = Some(turn.to_owned());
    }

    /// Appends an entry of the turn that runs.
    pub fn push(&mut self, entry: Entry) {
        let before = self.live_ledger.bytes;
        let (items, bound) = project(&entry, self.turn.as_deref());
        for item in items {
            let text = canonical(&item).into_boxed_str();
            self.live_ledger.add(&text, self.mode);
            self.live.push(LiveItem { item, text });
        }
        self.bound |= bound;
        self.entry_bytes += ENTRY_OVERHEAD + self.live_ledger.bytes - before;
        self.entries.push(entry);
    }

    /// Where it stands.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark {
            entries: self.entries.len(),
            live: self.live.len(),
            live_ledger: self.live_ledger.clone(),
            bound: self.bound,
            entry_bytes: self.entry_bytes,
        }
    }

    /// Forgets what was pushed since `mark`; the turn must be the same as then.
    pub fn rollback(&mut self, mark: Mark) {
        self.entries.truncate(mark.entries);
        self.live.truncate(mark.live);
        self.live_ledger = mark.live_ledger;
        self.bound = mark.bound;
        self.entry_bytes = mark.entry_bytes;
    }

    /// The prompt, with `head` before the transcript.
    #[must_use]
    pub fn prompt(&self, head: Option<&PromptItem>) -> Prompt {
        let tail = self.live.iter().map(|live| Arc::clone(&live.item)).collect();
        Prompt::new(head.into_iter().cloned().collect(), Arc::clone(&self.past), tail)
    }

    /// Writes the canonical form of the prompt that the request hash covers: the list itself, or in its place
    /// `{"chain", "count", "head"}` where the mode allows it and the list is long.
    pub fn hash_prompt(&self, head: Option<&str>, hasher: &mut Hasher) {
        let chained = self.mode == PromptHash::Chained && self.live_ledger.bytes > CHAIN_ABOVE_BYTES;
        match &self.past_texts {
            Some(texts) if !chained => {
                hasher.put("[");
                let live = self.live.iter().map(|live| &live.text);
                let all = head.into_iter().chain(texts.iter().chain(live).map(AsRef::as_ref));
                for (n, text) in all.enumerate() {
                    if n > 0 {
                        hasher.put(",");
                    }
                    hasher.put(text);
                }
                hasher.put("]");
            }
            _ => {
                let digest = self.live_ledger.digest.clone().finish();
                hasher.put(&format!(r#"{{"chain":"{digest}","count":{},"head":"#, self.live_ledger.items));
                hasher.put(head.unwrap_or("null"));
                hasher.put("}");
            }
        }
    }

    /// Bytes that it holds in memory, roughly: entries, items and texts are each about as long as the texts.
    #[must_use]
    pub fn weight(&self) -> usize {
        let texts = if self.past_texts.is_some() { self.live_ledger.bytes } else { 0 };
        self.entry_bytes + self.live_ledger.bytes + texts
    }

    /// Moves the live items to the past, projecting those again that read differently now.
    fn close(&mut self) {
        self.turn = None;
        let live = std::mem::take(&mut self.live);
        if std::mem::take(&mut self.bound) {
            // The entries are there already: only what their items weigh is counted again, and is put back.
            let weighed = self.entry_bytes;
            for at in self.live_from..self.entries.len() {
                let entry = Arc::clone(&self.entries[at]);
                self.push_past(&entry);
            }
            self.entry_bytes = weighed;
        } else {
            let past = Arc::make_mut(&mut self.past);
            for LiveItem { item, text } in live {
                past.push(item);
                if let Some(texts) = &mut self.past_texts {
                    texts.push(text);
                }
            }
            self.past_ledger = self.live_ledger.clone();
        }
        self.drop_texts();
        self.live_from = self.entries.len();
        self.live_ledger = self.past_ledger.clone();
    }

    fn push_past(&mut self, entry: &Entry) {
        let before = self.past_ledger.bytes;
        let past = Arc::make_mut(&mut self.past);
        for item in project(entry, None).0 {
            let text = canonical(&item).into_boxed_str();
            self.past_ledger.add(&text, self.mode);
            past.push(item);
            if let Some(texts) = &mut self.past_texts {
                texts.push(text);
            }
        }
        self.entry_bytes += ENTRY_OVERHEAD + self.past_ledger.bytes - before;
        self.drop_texts();
    }

    /// The past only grows, so once it is long enough to be chained its texts are never read again.
    fn drop_texts(&mut self) {
        if self.mode == PromptHash::Chained && self.past_ledger.bytes > CHAIN_ABOVE_BYTES {
            self.past_texts = None;
        }
    }
}

/// What an entry holds beside its texts, bytes, roughly.
const ENTRY_OVERHEAD: usize = 200;

/// The engine's turn of an entry.
#[must_use]
pub fn turn_of(entry: &Json) -> &str {
    entry.get("turnId").and_then(Json::as_str).unwrap_or("")
}

/// The items of an entry while `turn` runs, and whether they would be others while another turn ran.
#[must_use]
pub fn project(entry: &Json, turn: Option<&str>) -> (Vec<PromptItem>, bool) {
    let text = |key: &str| entry.get(key).and_then(Json::as_str).unwrap_or("");
    match text("kind") {
        "input" => (entry.get("event").and_then(project_event).into_iter().collect(), false),
        "candidate" => {
            project_candidate(&entry["candidate"], turn.is_some_and(|turn| turn_of(entry) == turn))
        }
        "tool-results" => {
            let results = entry.get("results").and_then(Json::as_array).into_iter().flatten();
            let item = |result| {
                let (call_id, tool_name) = results::key(result);
                let (status, text) = results::for_model(result);
                item::tool_result(call_id, tool_name, status, &text)
            };
            (results.map(item).collect(), false)
        }
        "compaction" => {
            let text = format!(
                "The conversation so far was summarized to save space.\n\n<summary>\n{}\n</summary>",
                text("summary")
            );
            (vec![item::user_text(&text)], false)
        }
        _ => (Vec::new(), false),
    }
}

fn project_event(event: &Json) -> Option<PromptItem> {
    if !matches!(event.get("kind").and_then(Json::as_str), Some("user-message" | "interrupt")) {
        return None;
    }
    Some(match (event.get("text").and_then(Json::as_str), event.get("content").and_then(Json::as_array)) {
        (Some(text), _) => item::user_text(text),
        (None, Some(parts)) => item::user_parts(parts.clone()),
        (None, None) => return None,
    })
}

fn project_candidate(candidate: &Json, current: bool) -> (Vec<PromptItem>, bool) {
    let (mut blocks, mut bound) = (Vec::new(), false);
    for block in candidate.get("output").and_then(Json::as_array).into_iter().flatten() {
        match block.get("type").and_then(Json::as_str) {
            Some("reasoning") => match block.get("providerMetadata") {
                None => {}
                Some(metadata) if replays_for_its_turn(metadata) => {
                    bound = true;
                    if current {
                        blocks.push(block.clone());
                    }
                }
                Some(_) => blocks.push(block.clone()),
            },
            Some("json") => blocks.push(item::text_part(&encode(block.get("value").unwrap_or(&Json::Null)))),
            _ => blocks.push(block.clone()),
        }
    }
    if blocks.is_empty() {
        return (Vec::new(), bound);
    }
    let producer = candidate.pointer("/evidence/extras/producer");
    (vec![item::assistant(blocks, producer)], bound)
}

/// Whether reasoning goes back to the model only while its own turn lasts: `replay: "turn"` in the metadata, or in the
/// part of it that a provider keeps under its own name.
fn replays_for_its_turn(metadata: &Json) -> bool {
    let turn = |value: &Json| value.get("replay").and_then(Json::as_str) == Some("turn");
    turn(metadata) || metadata.as_object().is_some_and(|parts| parts.values().any(turn))
}

/// How many answers of a model a turn has, and the results that its last entry holds.
#[must_use]
pub fn progress(entries: &[Entry], turn: &str) -> u32 {
    let mine = entries.iter().rev().take_while(|entry| turn_of(entry) == turn);
    let answers = mine.filter(|entry| entry.get("kind") == Some(&json!("candidate"))).count();
    u32::try_from(answers).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "projection_tests.rs"]
mod tests;
