//! Folder artifacts: the manifest that lists a folder's files, and what differs between two of them
//! (spec: http-api, section 12).

use serde::{Deserialize, Serialize};

use super::json::{decode, encode, utf16_units};

/// `format` of a manifest.
pub const FOLDER_FORMAT: &str = "nylorun.folder.v1";
/// The media type of a folder.
pub const FOLDER_TYPE: &str = "application/vnd.nylorun.folder+json";
/// Characters of a file's path.
pub const PATH_CHARS: usize = 1024;

/// A file of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FolderEntry {
    /// Below the folder, with slashes.
    pub path: String,
    /// Bytes.
    pub size: i64,
    /// Of its bytes, lowercase hexadecimal.
    pub sha256: String,
    /// Media type.
    pub content_type: String,
}

/// The files of a folder, by path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderManifest {
    format: String,
    /// Sorted by path.
    pub entries: Vec<FolderEntry>,
}

impl FolderManifest {
    /// The manifest of some files. Their paths must be distinct.
    #[must_use]
    pub fn of(mut entries: Vec<FolderEntry>) -> Self {
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Self { format: FOLDER_FORMAT.to_owned(), entries }
    }

    /// Reads a stored manifest. `None` when it is none.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let manifest: Self = decode(bytes).ok()?;
        (manifest.format == FOLDER_FORMAT).then_some(manifest)
    }

    /// What is stored, and what its hash is of: the same files give the same text.
    #[must_use]
    pub fn text(&self) -> String {
        encode(self)
    }

    /// Bytes of all files.
    #[must_use]
    pub fn size(&self) -> i64 {
        self.entries.iter().map(|entry| entry.size).sum()
    }

    /// The file at a path.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&FolderEntry> {
        let at = self.entries.binary_search_by(|entry| entry.path.as_str().cmp(path)).ok()?;
        self.entries.get(at)
    }
}

/// Whether a path stays below its folder and can be kept: slashes between filled segments, none of them `.` or `..`.
#[must_use]
pub fn is_inner_path(path: &str) -> bool {
    let fine = |segment: &str| !segment.is_empty() && segment != "." && segment != "..";
    !path.contains('\0') && utf16_units(path).count() <= PATH_CHARS && path.split('/').all(fine)
}

/// A file that has other bytes now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Where.
    pub path: String,
    /// As it was.
    pub from: FolderEntry,
    /// As it is.
    pub to: FolderEntry,
}

/// What differs between two folders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FolderDiff {
    /// Files that were not there.
    pub added: Vec<FolderEntry>,
    /// Files that are no longer there.
    pub removed: Vec<FolderEntry>,
    /// Files with other bytes or another type.
    pub changed: Vec<Changed>,
}

/// Compares two folders. Without `from` everything was added.
#[must_use]
pub fn diff(from: Option<&FolderManifest>, to: &FolderManifest) -> FolderDiff {
    let mut diff = FolderDiff::default();
    for entry in &to.entries {
        match from.and_then(|from| from.file(&entry.path)) {
            None => diff.added.push(entry.clone()),
            Some(was) if was == entry => {}
            Some(was) => {
                let path = entry.path.clone();
                diff.changed.push(Changed { path, from: was.clone(), to: entry.clone() });
            }
        }
    }
    let gone = from.into_iter().flat_map(|from| &from.entries).filter(|was| to.file(&was.path).is_none());
    diff.removed = gone.cloned().collect();
    diff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, sha256: &str) -> FolderEntry {
        let content_type = "text/plain".to_owned();
        FolderEntry { path: path.to_owned(), size: 2, sha256: sha256.to_owned(), content_type }
    }

    #[test]
    fn the_same_files_give_the_same_text_and_it_is_read_back() {
        let (a, b) = (entry("a", "1"), entry("a/b", "2"));
        let one = FolderManifest::of(vec![a.clone(), b.clone()]);
        let other = FolderManifest::of(vec![b, a]);
        assert_eq!(one.text(), other.text());
        assert_eq!(
            FolderManifest::of(vec![entry("x", "h")]).text(),
            r#"{"format":"nylorun.folder.v1","entries":[{"path":"x","size":2,"sha256":"h","contentType":"text/plain"}]}"#
        );
        assert_eq!(FolderManifest::read(one.text().as_bytes()), Some(one.clone()));
        assert_eq!(FolderManifest::read(br#"{"format":"x","entries":[]}"#), None);
        assert_eq!(FolderManifest::read(b"{"), None);
        assert_eq!(
            (one.size(), one.file("a/b").map(|e| e.sha256.as_str()), one.file("b")),
            (4, Some("2"), None)
        );
    }

    #[test]
    fn only_paths_below_the_folder_are_kept() {
        for good in ["a", "a/b.c", ".hidden", "a b/…", "a\\b", &"x".repeat(1024)] {
            assert!(is_inner_path(good), "{good}");
        }
        for bad in ["", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\0", &"x".repeat(1025)] {
            assert!(!is_inner_path(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_diff_says_what_was_added_removed_and_changed() {
        let from = FolderManifest::of(vec![entry("a", "1"), entry("b", "1"), entry("c", "1")]);
        let to = FolderManifest::of(vec![entry("b", "1"), entry("c", "2"), entry("d", "1")]);
        let found = diff(Some(&from), &to);
        let paths = |entries: &[FolderEntry]| entries.iter().map(|e| e.path.clone()).collect::<Vec<_>>();
        assert_eq!(
            (paths(&found.added), paths(&found.removed)),
            (vec!["d".to_owned()], vec!["a".to_owned()])
        );
        let changed: Vec<_> =
            found.changed.iter().map(|c| (c.path.as_str(), &*c.from.sha256, &*c.to.sha256)).collect();
        assert_eq!(changed, [("c", "1", "2")]);
        assert_eq!(paths(&diff(None, &to).added), ["b", "c", "d"]);
    }
}
