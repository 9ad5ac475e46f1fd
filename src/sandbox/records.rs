//! The record of workspaces of this process: one file, written whole and renamed (spec: sandbox, section 10).

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nylorun_actors::model::json::encode;
use nylorun_actors::model::workspace::WorkspaceRecord;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Its name.
pub const FILE: &str = "records.json";

#[derive(Default, Serialize, Deserialize)]
struct Whole {
    records: Vec<WorkspaceRecord>,
}

/// The record. It is written on the side, the latest state last; what must be in the file before something else happens
/// waits for [`Records::written`]. Cheap to clone.
#[derive(Clone)]
pub struct Records(Arc<Inner>);

struct Inner {
    path: PathBuf,
    state: Mutex<State>,
    /// The latest change that is in the file, or that could not be written and has been told.
    written: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    all: BTreeMap<String, WorkspaceRecord>,
    /// Changes so far.
    changes: u64,
    /// Somebody writes, and looks for more when it has.
    writing: bool,
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
        let state = Mutex::new(State { all, ..State::default() });
        Self(Arc::new(Inner { path, state, written: watch::channel(0).0 }))
    }

    /// One.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<WorkspaceRecord> {
        self.0.lock().all.get(key).cloned()
    }

    /// All, by key.
    #[must_use]
    pub fn list(&self) -> Vec<WorkspaceRecord> {
        self.0.lock().all.values().cloned().collect()
    }

    /// Adds or replaces one.
    pub fn put(&self, record: WorkspaceRecord) {
        self.change(|all| {
            all.insert(record.key.clone(), record);
            true
        });
    }

    /// As [`Records::put`], for one that is changed again in a moment: it is written with the next.
    pub fn hold(&self, record: WorkspaceRecord) {
        self.0.lock().all.insert(record.key.clone(), record);
    }

    /// Deletes one.
    pub fn delete(&self, key: &str) {
        self.change(|all| all.remove(key).is_some());
    }

    /// Waits until the file has everything that was changed before.
    pub async fn written(&self) {
        let wanted = self.0.lock().changes;
        // The sender is here.
        let _ = self.0.written.subscribe().wait_for(|written| *written >= wanted).await;
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, WorkspaceRecord>) -> bool) {
        let mut state = self.0.lock();
        if !change(&mut state.all) {
            return;
        }
        state.changes += 1;
        if std::mem::replace(&mut state.writing, true) {
            return;
        }
        drop(state);
        let inner = Arc::clone(&self.0);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || inner.write())),
            Err(_) => inner.write(),
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until the file has everything. One that fails is made up for by the next.
    fn write(&self) {
        loop {
            let (whole, changes) = {
                let state = self.lock();
                (Whole { records: state.all.values().cloned().collect() }, state.changes)
            };
            let temp = self.path.with_extension("tmp");
            let written = (|| {
                let mut file =
                    fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
                file.write_all(encode(&whole).as_bytes())?;
                fs::rename(&temp, &self.path)
            })();
            if let Err(error) = written {
                tracing::warn!(path = %self.path.display(), %error, "the record of workspaces cannot be written");
            }
            let mut state = self.lock();
            self.written.send_replace(changes);
            if state.changes == changes {
                state.writing = false;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nylorun_actors::model::workspace::WorkspaceState;
    use std::os::unix::fs::PermissionsExt as _;

    #[tokio::test]
    async fn records_survive_and_a_damaged_file_is_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let record = |key: &str| WorkspaceRecord {
            key: key.into(),
            session_id: "s".into(),
            sandbox_id: None,
            backend: "virtual".into(),
            image: "i".into(),
            state: WorkspaceState::Running,
            created_at: "a".into(),
            updated_at: "b".into(),
        };
        let records = Records::open(dir.path());
        records.put(record("b"));
        records.written().await;
        records.hold(record("a"));
        assert_eq!((Records::open(dir.path()).list().len(), records.get("a")), (1, Some(record("a"))));
        records.delete("b");
        records.delete("c");
        assert_eq!(records.list(), [record("a")]);
        records.written().await;
        let file = dir.path().join(FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::read_to_string(&file).unwrap().starts_with(r#"{"records":[{"key":"a","#));
        assert_eq!(Records::open(dir.path()).list(), [record("a")]);
        // Many at once are written as one, or as a few.
        for n in 0..500 {
            records.put(record(&format!("k{n}")));
        }
        records.written().await;
        assert_eq!(Records::open(dir.path()).list().len(), 501);
        fs::write(&file, "{").unwrap();
        assert_eq!(Records::open(dir.path()).list(), []);
    }
}
