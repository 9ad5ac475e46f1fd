//! Why a rule says no. The API turns each into a status and a code (spec: http-api, sections 2.2, 6 and 7).

use crate::model::ids::TurnId;
use crate::model::json::Json;
use crate::ports::store::StoreError;

/// Seconds after which a caller tries again that a sandbox was in the way of.
const SANDBOX_RETRY_S: u32 = 5;

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
    /// A sandbox is in the way: 409, or 403 where it is not granted.
    #[error("{message}")]
    Sandbox {
        /// Why.
        why: SandboxRefusal,
        /// In words.
        message: String,
        /// Seconds after which it may pass.
        retry_after_s: Option<u32>,
    },
    /// 409 `limit_exceeded`: the Tenant has as many as it may.
    #[error("{message}")]
    Limit {
        /// Of what.
        limit: &'static str,
        /// How many.
        max: i64,
        /// In words.
        message: String,
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

/// How a sandbox is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxRefusal {
    /// 409 `sandbox_busy`: somebody else works in it, or it is being deleted.
    Busy,
    /// 409 `sandbox_unavailable`: it is not there, or cannot be had here.
    Unavailable,
    /// 403 `sandbox_not_granted`: the caller's grants do not reach it.
    NotGranted,
}

impl Refusal {
    /// A sandbox in the way.
    #[must_use]
    pub fn sandbox(why: SandboxRefusal, message: impl Into<String>) -> Self {
        Self::Sandbox { why, message: message.into(), retry_after_s: None }
    }

    /// A sandbox in the way for a moment.
    #[must_use]
    pub fn sandbox_for_now(why: SandboxRefusal, message: impl Into<String>) -> Self {
        Self::Sandbox { why, message: message.into(), retry_after_s: Some(SANDBOX_RETRY_S) }
    }

    /// A 400 whose message is every problem.
    #[must_use]
    pub fn problems(problems: &[String]) -> Self {
        Self::invalid(problems.join(" "))
    }

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
