//! What exports have read, in memory only: a file whose stamp is as it was is not read again. Forgetting costs time, nothing
//! else: whether its bytes are still kept, the store says.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits::EXPORT_REMEMBERED;
use crate::model::ids::SessionId;
use crate::model::workspace::{FileEntry, FileStamp};

/// A file as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadFile {
    /// The stamp that it had in the listing before.
    pub stamp: FileStamp,
    /// Bytes that were read.
    pub size: u64,
    /// Of these bytes, lowercase hexadecimal.
    pub sha256: String,
}

impl ReadFile {
    /// Whether a listing has the file as it was read.
    pub fn is(&self, file: &FileEntry) -> bool {
        file.stamp == Some(self.stamp) && file.size == self.size
    }
}

/// Files by path.
pub(crate) type ReadFiles = HashMap<String, ReadFile>;

/// Those of each session's last export.
#[derive(Default)]
pub(crate) struct Exported(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    count: usize,
    sessions: HashMap<SessionId, Arc<ReadFiles>>,
}

impl Exported {
    /// What a session's last export has read.
    pub fn of(&self, session: &SessionId) -> Arc<ReadFiles> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.sessions.get(session).cloned().unwrap_or_default()
    }

    /// Remembers what one has read, in place of what the one before has.
    pub fn put(&self, session: &SessionId, files: ReadFiles) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = all.sessions.remove(session) {
            all.count -= old.len();
        }
        if files.is_empty() {
            return;
        }
        if all.count + files.len() > EXPORT_REMEMBERED {
            *all = Remembered::default();
        }
        all.count += files.len();
        all.sessions.insert(session.clone(), Arc::new(files));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(count: usize) -> ReadFiles {
        let stamp = FileStamp { device: 1, inode: 2, modified: 3, changed: 4 };
        let file = |n: usize| (n.to_string(), ReadFile { stamp, size: 5, sha256: String::new() });
        (0..count).map(file).collect()
    }

    #[test]
    fn a_sessions_last_files_are_remembered_and_all_are_forgotten_past_the_bound() {
        let exported = Exported::default();
        let (one, other) = (SessionId::from("one"), SessionId::from("other"));
        exported.put(&one, files(EXPORT_REMEMBERED - 3));
        exported.put(&other, files(3));
        assert_eq!((exported.of(&one).len(), exported.of(&other).len()), (EXPORT_REMEMBERED - 3, 3));
        // In place of its own there is room.
        exported.put(&one, files(5));
        exported.put(&other, files(EXPORT_REMEMBERED - 5));
        assert_eq!((exported.of(&one).len(), exported.of(&other).len()), (5, EXPORT_REMEMBERED - 5));
        exported.put(&one, files(6));
        assert_eq!((exported.of(&one).len(), exported.of(&other).len()), (6, 0));
        exported.put(&one, files(0));
        assert_eq!(exported.of(&one).len(), 0);
    }

    #[test]
    fn a_file_is_as_it_was_read_with_the_same_stamp_and_size_alone() {
        let file = files(1).remove("0").expect("one");
        let entry = |size, stamp| FileEntry { path: "0".to_owned(), size, stamp };
        assert!(file.is(&entry(5, Some(file.stamp))));
        assert!(!file.is(&entry(6, Some(file.stamp))) && !file.is(&entry(5, None)));
        assert!(!file.is(&entry(5, Some(FileStamp { changed: 5, ..file.stamp }))));
    }
}
