//! What of the host's system is seen in cages, and whether it is still what it was when a cage was begun.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Files and folders of `/etc` that programs need and that tell nothing of the host.
pub const ETC: [&str; 14] = [
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "perl",
    "protocols",
    "python3",
    "services",
    "ssl/certs",
    "terminfo",
];

/// Where the system is. What is a link in the root is one in the cage, too.
pub const SYSTEM: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Devices that anybody may use.
pub const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// Which files the names of the system meant. A cage shows files, not names: one that was begun before an update of the
/// host would show what was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen(Vec<Option<(u64, u64)>>);

impl Seen {
    /// What they mean now.
    #[must_use]
    pub fn now() -> Self {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> Self {
        let system = SYSTEM.iter().map(|name| root.join(name));
        let etc = ETC.iter().map(|name| root.join("etc").join(name));
        let which = |path: PathBuf| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
        Self(system.chain(etc).map(which).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_system_that_is_replaced_or_comes_is_noticed_and_one_that_is_written_is_the_same() {
        let root = tempfile::tempdir().unwrap();
        let etc = root.path().join("etc");
        fs::create_dir(&etc).unwrap();
        fs::write(etc.join("services"), "a").unwrap();
        let before = Seen::below(root.path());
        fs::write(etc.join("services"), "b").unwrap();
        assert_eq!(Seen::below(root.path()), before);
        fs::write(etc.join("new"), "c").unwrap();
        fs::rename(etc.join("new"), etc.join("services")).unwrap();
        let replaced = Seen::below(root.path());
        assert_ne!(replaced, before);
        fs::create_dir(root.path().join("lib32")).unwrap();
        assert_ne!(Seen::below(root.path()), replaced);
    }
}
