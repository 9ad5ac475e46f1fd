//! The record of workspaces of this process: one file, written whole and renamed (spec: sandbox, section 10).

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nylorun_actors::model::json::encode;
use nylorun_actors::model::workspace::WorkspaceRecord;
use serde::{Deserialize, Serialize};

/// Its name.
pub const FILE: &str = "records.json";

#[derive(Default, Serialize, Deserialize)]
struct Whole {
    records: Vec<WorkspaceRecord>,
}

/// The record.
pub struct Records {
    path: PathBuf,
    all: Mutex<BTreeMap<String, WorkspaceRecord>>,
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
        Self { path, all: Mutex::new(all) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, WorkspaceRecord>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<WorkspaceRecord> {
        self.lock().get(key).cloned()
    }

    /// All, by key.
    #[must_use]
    pub fn list(&self) -> Vec<WorkspaceRecord> {
        self.lock().values().cloned().collect()
    }

    /// Writes or replaces one.
    pub fn put(&self, record: WorkspaceRecord) {
        let mut all = self.lock();
        all.insert(record.key.clone(), record);
        self.write(&all);
    }

    /// Takes over one that is written with the next.
    pub fn hold(&self, record: WorkspaceRecord) {
        self.lock().insert(record.key.clone(), record);
    }

    /// Deletes one.
    pub fn delete(&self, key: &str) {
        let mut all = self.lock();
        if all.remove(key).is_some() {
            self.write(&all);
        }
    }

    /// Under the lock, so that the latest state is the last that is written. One that fails is made up for by the next.
    fn write(&self, all: &BTreeMap<String, WorkspaceRecord>) {
        let whole = Whole { records: all.values().cloned().collect() };
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nylorun_actors::model::workspace::WorkspaceState;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn records_survive_and_a_damaged_file_is_an_empty_one() {
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
        records.hold(record("a"));
        assert_eq!(
            (Records::open(dir.path()).list(), records.get("a")),
            (vec![record("b")], Some(record("a")))
        );
        records.delete("b");
        records.delete("c");
        let file = dir.path().join(FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::read_to_string(&file).unwrap().starts_with(r#"{"records":[{"key":"a","#));
        assert_eq!(Records::open(dir.path()).list(), [record("a")]);
        fs::write(&file, "{").unwrap();
        assert_eq!(Records::open(dir.path()).list(), []);
    }
}
