//! Why a rule says no. The API turns each into a status and a code (spec: http-api, sections 2.2, 6 and 7).

use crate::model::ids::TurnId;
use crate::model::json::Json;
use crate::ports::store::StoreError;

/// A refused request. Nothing was written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Missing, or not the caller's: the same 404.
    #[error("{0}")]
    NotFound(String),
    /// 409.
    #[error("{message}")]
    Conflict {
        /// In words.
        message: String,
        /// The turn that is in the way.
        active_turn: Option<TurnId>,
        /// Machine-readable reason, an object.
        details: Option<Json>,
    },
    /// 400, with every problem at once.
    #[error("{message}")]
    Invalid {
        /// In words.
        message: String,
        /// `[{path, code, message}]`.
        issues: Vec<Json>,
    },
    /// 403 `request_rejected`.
    #[error("{0}")]
    Forbidden(String),
    /// 409 `placement_refused`.
    #[error("{message}")]
    Placement {
        /// In words.
        message: String,
        /// `{harness, host, allowed}`.
        details: Json,
    },
    /// 413 `limit_exceeded`.
    #[error("{message}")]
    TooLarge {
        /// In words.
        message: String,
        /// The limit that is passed, bytes.
        limit: i64,
    },
    /// 503: a bound is reached; it may pass.
    #[error("{0}")]
    Busy(String),
    /// 503: the Tenant is stopping.
    #[error("the Tenant is closing")]
    Closing,
    /// 503 while it passes, else 500.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Refusal {
    /// A 409 with nothing but words.
    #[must_use]
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::Conflict { message: message.into(), active_turn: None, details: None }
    }

    /// A 400 without a list.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), issues: Vec::new() }
    }

    /// A 404 for something of this kind: "session", "definition".
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::NotFound(format!("No such {what}"))
    }
}
