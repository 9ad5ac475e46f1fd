//! The record of workspaces of this process: one file, written whole and renamed (spec: sandbox, section 10), and beside it
//! what has changed since it was, a line for each change. So a change costs the same however many workspaces there are,
//! and is there when this process is killed. Who closes in order leaves the one file alone.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nylorun_actors::model::json::encode;
use nylorun_actors::model::workspace::WorkspaceRecord;
use serde::{Deserialize, Serialize};

/// Its name.
pub const FILE: &str = "records.json";
/// The name of what has changed since it was written.
pub const CHANGES: &str = "records.changes";
/// The file is written whole when there are as many changes as records, and this many more.
const FEW: usize = 256;

#[derive(Default, Serialize, Deserialize)]
struct Whole {
    records: Vec<WorkspaceRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Change {
    Put(WorkspaceRecord),
    Delete(String),
}

/// The record.
pub struct Records {
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    all: BTreeMap<String, WorkspaceRecord>,
    changes: Option<File>,
    /// Lines in it.
    lines: usize,
}

impl State {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Put(record) => drop(self.all.insert(record.key.clone(), record)),
            Change::Delete(key) => drop(self.all.remove(&key)),
        }
    }
}

impl Records {
    /// Those of a folder. A file that cannot be read counts as empty: its workspaces are found by their folders.
    #[must_use]
    pub fn open(root: &Path) -> Self {
        let path = root.join(FILE);
        let whole: Whole = match fs::read(&path).map(|text| serde_json::from_slice(&text)) {
            Ok(Ok(whole)) => whole,
            Ok(Err(error)) => {
                tracing::warn!(path = %path.display(), %error, "the record of workspaces cannot be read");
                Whole::default()
            }
            Err(_) => Whole::default(),
        };
        let all = whole.records.into_iter().map(|record| (record.key.clone(), record)).collect();
        let mut state = State { all, ..State::default() };
        let changes = fs::read(root.join(CHANGES)).unwrap_or_default();
        // The last line may have been cut off by the end of its process.
        let lines = changes.split(|byte| *byte == b'\n').map_while(|line| serde_json::from_slice(line).ok());
        lines.for_each(|change| state.apply(change));
        let records = Self { root: root.to_owned(), state: Mutex::new(state) };
        if !changes.is_empty() {
            records.settle();
        }
        records
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<WorkspaceRecord> {
        self.lock().all.get(key).cloned()
    }

    /// All, by key.
    #[must_use]
    pub fn list(&self) -> Vec<WorkspaceRecord> {
        self.lock().all.values().cloned().collect()
    }

    /// Writes or replaces one.
    pub fn put(&self, record: WorkspaceRecord) {
        self.change(&mut self.lock(), Change::Put(record));
    }

    /// Deletes one.
    pub fn delete(&self, key: &str) {
        let mut state = self.lock();
        if state.all.contains_key(key) {
            self.change(&mut state, Change::Delete(key.to_owned()));
        }
    }

    /// Writes the file whole, and removes what had changed since it was.
    pub fn settle(&self) {
        self.write(&mut self.lock());
    }

    /// Under the lock, so that changes are written in order. One that fails is made up for by the next.
    fn change(&self, state: &mut State, change: Change) {
        let mut line = encode(&change).into_bytes();
        line.push(b'\n');
        state.apply(change);
        state.lines = state.lines.saturating_add(1);
        if state.lines > state.all.len() + FEW {
            return self.write(state);
        }
        let written = match &mut state.changes {
            Some(file) => file.write_all(&line),
            None => {
                let path = self.root.join(CHANGES);
                let file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path);
                file.and_then(|mut file| {
                    file.write_all(&line)?;
                    state.changes = Some(file);
                    Ok(())
                })
            }
        };
        if written.is_err() {
            self.write(state);
        }
    }

    fn write(&self, state: &mut State) {
        let whole = Whole { records: state.all.values().cloned().collect() };
        let path = self.root.join(FILE);
        let temp = path.with_extension("tmp");
        let written = (|| {
            let mut file =
                fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
            file.write_all(encode(&whole).as_bytes())?;
            fs::rename(&temp, &path)?;
            // Whoever is killed here finds changes that the file has already.
            match fs::remove_file(self.root.join(CHANGES)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        })();
        match written {
            Ok(()) => (state.changes, state.lines) = (None, 0),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the record of workspaces cannot be written");
                // Half of a line may be there, behind which nothing is read: whole with the next change.
                state.lines = usize::MAX;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nylorun_actors::model::workspace::WorkspaceState;
    use std::os::unix::fs::PermissionsExt as _;

    fn record(key: &str) -> WorkspaceRecord {
        WorkspaceRecord {
            key: key.into(),
            session_id: "s".into(),
            sandbox_id: None,
            backend: "virtual".into(),
            image: "i".into(),
            state: WorkspaceState::Running,
            created_at: "a".into(),
            updated_at: "b".into(),
        }
    }

    #[test]
    fn records_survive_and_a_damaged_file_is_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path());
        records.put(record("b"));
        records.put(record("a"));
        records.delete("b");
        records.delete("c");
        records.settle();
        let file = dir.path().join(FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::read_to_string(&file).unwrap().starts_with(r#"{"records":[{"key":"a","#));
        assert!(!dir.path().join(CHANGES).exists());
        assert_eq!(Records::open(dir.path()).list(), [record("a")]);
        fs::write(&file, "{").unwrap();
        assert_eq!(Records::open(dir.path()).list(), []);
    }

    #[test]
    fn what_a_killed_process_has_changed_is_there_but_for_half_a_line_and_the_next_writes_it_whole() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path());
        for key in ["a", "b", "c"] {
            records.put(record(key));
        }
        records.delete("b");
        drop(records);
        let changes = dir.path().join(CHANGES);
        assert_eq!(fs::metadata(&changes).unwrap().permissions().mode() & 0o777, 0o600);
        let mut cut = fs::OpenOptions::new().append(true).open(&changes).unwrap();
        cut.write_all(br#"{"delete":"#).unwrap();
        let again = Records::open(dir.path());
        assert_eq!(again.list(), [record("a"), record("c")], "b is deleted, and the half line says nothing");
        assert!(!changes.exists() && dir.path().join(FILE).exists());
        again.put(record("d"));
        assert_eq!(Records::open(dir.path()).list().len(), 3);
        fs::write(dir.path().join(CHANGES), "{").unwrap();
        let last = Records::open(dir.path());
        last.put(record("e"));
        assert_eq!(Records::open(dir.path()).list().len(), 4, "behind a half line that is all there is, too");
    }

    #[test]
    fn the_changes_do_not_outgrow_the_record() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path());
        (0..5 * FEW).for_each(|_| records.put(record("a")));
        let changes = fs::read_to_string(dir.path().join(CHANGES)).unwrap_or_default();
        assert!(changes.lines().count() <= FEW + 1, "{}", changes.lines().count());
        assert_eq!(Records::open(dir.path()).list(), [record("a")]);
    }
}
