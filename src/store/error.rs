//! What SQLite's and diesel's errors mean for whoever uses the store.

use std::io;
use std::path::PathBuf;

use diesel::result::{DatabaseErrorKind, Error as Diesel};
use nylorun_actors::ports::StoreError;

/// Why a store did not open. Nothing of it was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process (or this one) has it open.
    #[error("the store {} is in use by {}", path.display(), holder(*pid))]
    InUse {
        /// The database.
        path: PathBuf,
        /// The process that holds it, when its lock file says so.
        pid: Option<u32>,
    },
    /// The file or its folder may not be written.
    #[error("the store {} is read-only: {reason}", path.display())]
    ReadOnly {
        /// The database or its lock file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The file is damaged, or holds data that does not belong together.
    #[error("the store {} is corrupt: {reason}", path.display())]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The file is no SQLite database.
    #[error("{} is not a database", path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// A newer version of this program has written it.
    #[error("the store has migration {found}, this program knows {known} of them: use a newer version")]
    SchemaTooNew {
        /// The first migration that is not known here.
        found: String,
        /// Migrations known.
        known: usize,
    },
    /// A migration failed and was undone.
    #[error("a migration of the store failed: {0}")]
    MigrationFailed(String),
    /// No room on the disk.
    #[error("the disk that holds the store {} is full", path.display())]
    Full {
        /// The database.
        path: PathBuf,
    },
    /// Anything else the system refused.
    #[error("the store {} cannot be opened: {reason}", path.display())]
    Io {
        /// The database or its lock file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl OpenError {
    /// The system refused `path`.
    pub(super) fn of_io(path: impl Into<PathBuf>, error: &io::Error) -> Self {
        let path = path.into();
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::ReadOnly { path, reason: error.to_string() }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io { path, reason: error.to_string() },
        }
    }

    /// SQLite refused the database `path`.
    pub(super) fn of_store(path: impl Into<PathBuf>, error: StoreError) -> Self {
        let path = path.into();
        match error {
            StoreError::Full => Self::Full { path },
            StoreError::ReadOnly(reason) => Self::ReadOnly { path, reason },
            StoreError::Corrupt(reason) if reason.contains(NOT_A_DATABASE) => Self::NotADatabase { path },
            StoreError::Corrupt(reason) => Self::Corrupt { path, reason },
            other => Self::Io { path, reason: other.to_string() },
        }
    }
}

const NOT_A_DATABASE: &str = "not a database";

/// The store's error for one of diesel's.
///
/// diesel hands on SQLite's result code only for constraints. For the others there is the message, which SQLite keeps
/// fixed for each code (`sqlite3_errstr`).
pub(super) fn store_error(error: Diesel) -> StoreError {
    match error {
        Diesel::DatabaseError(DatabaseErrorKind::UniqueViolation, info) => {
            StoreError::Conflict(info.message().to_owned())
        }
        Diesel::DatabaseError(DatabaseErrorKind::Unknown, info) => by_message(info.message()),
        Diesel::DatabaseError(_, info) => StoreError::Corrupt(info.message().to_owned()),
        Diesel::DeserializationError(error) => StoreError::Corrupt(error.to_string()),
        Diesel::NotFound => StoreError::Corrupt("a row that is always there is not".to_owned()),
        other => StoreError::Unavailable(other.to_string()),
    }
}

fn by_message(message: &str) -> StoreError {
    let is = |part: &str| message.contains(part);
    if is("database or disk is full") {
        StoreError::Full
    } else if is("readonly database") || is("unable to open database") {
        StoreError::ReadOnly(message.to_owned())
    } else if is("malformed") || is(NOT_A_DATABASE) || is("no such table") || is("no such column") {
        StoreError::Corrupt(message.to_owned())
    } else {
        StoreError::Unavailable(message.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlites_messages_say_what_is_wrong() {
        assert_eq!(by_message("database or disk is full"), StoreError::Full);
        assert!(matches!(by_message("attempt to write a readonly database"), StoreError::ReadOnly(_)));
        assert!(matches!(by_message("unable to open database file"), StoreError::ReadOnly(_)));
        assert!(matches!(by_message("database disk image is malformed"), StoreError::Corrupt(_)));
        assert!(matches!(by_message("file is not a database"), StoreError::Corrupt(_)));
        assert!(matches!(by_message("database is locked"), StoreError::Unavailable(_)));
        assert!(matches!(by_message("disk I/O error"), StoreError::Unavailable(_)));
    }
}
