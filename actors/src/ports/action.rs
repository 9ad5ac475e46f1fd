//! How a delivery reaches an Action endpoint (spec: http-api, section 10.3; security, sections 4.4 and 8).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::model::Json;
use crate::model::ids::AgentId;

/// What is posted to an endpoint: an Action, or a ping.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The endpoint's URL; also the token's audience.
    pub url: Arc<str>,
    /// Agent that the endpoint serves (`agt` of the token).
    pub agent: AgentId,
    /// The Action's id, which is `sub` of the token and the `Idempotency-Key`; `None` is a ping.
    pub action: Option<Arc<str>>,
    /// Its generation (`gen` of the token); 0 for a ping.
    pub generation: i64,
    /// The exact body, whose hash is signed (`bdy`).
    pub body: Arc<str>,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// Life of the token, seconds; the transport clamps it to 1 to 900.
    pub token_ttl_s: u64,
}

/// What came of a POST.
#[derive(Clone, PartialEq, Eq)]
pub enum Answered {
    /// A whole answer of at most 8 MiB.
    Response {
        /// HTTP status.
        status: u16,
        /// Whether `Nylorun-Outcome` is `1`.
        tagged: bool,
        /// The `Retry-After` header (seconds, fractions allowed, or a date), at most five minutes; `None` for one that is
        /// missing, malformed, zero or past.
        retry_after: Option<Duration>,
        /// The body.
        body: Vec<u8>,
    },
    /// An answer beyond the limit.
    TooLarge {
        /// HTTP status.
        status: u16,
    },
    /// It failed before the request's body was flushed, so the endpoint cannot have acted: refused, DNS, TLS, an address
    /// that the policy refuses, no signing key.
    NotSent {
        /// `ENDPOINT_ADDRESS_REFUSED`, `CONNECT`, `ABORTED`, …
        code: &'static str,
        /// In words, for the log and the endpoint's health; never of the body.
        message: String,
    },
    /// It was sent and no whole answer came: what the endpoint did is unknown.
    Lost {
        /// `ABORTED` (the time was up), `RESET`, …
        code: &'static str,
        /// In words.
        message: String,
    },
}

impl std::fmt::Debug for Answered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // An answer's body is a tool's output: it must not reach a log.
        match self {
            Self::Response { status, tagged, body, .. } => f
                .debug_struct("Response")
                .field("status", status)
                .field("tagged", tagged)
                .field("bytes", &body.len())
                .finish_non_exhaustive(),
            Self::TooLarge { status } => f.debug_struct("TooLarge").field("status", status).finish(),
            Self::NotSent { code, message } => {
                f.debug_struct("NotSent").field("code", code).field("message", message).finish()
            }
            Self::Lost { code, message } => {
                f.debug_struct("Lost").field("code", code).field("message", message).finish()
            }
        }
    }
}

/// Signs and posts deliveries. Dropping the future aborts the POST.
pub trait ActionTransport: Send + Sync + 'static {
    /// Posts one delivery. Never fails: what went wrong is an answer.
    fn post(&self, delivery: Delivery) -> BoxFuture<'static, Answered>;

    /// Why a URL must not be registered under the policy, in words.
    ///
    /// # Errors
    /// One text for each problem.
    fn check_url(&self, url: &str) -> Result<(), Vec<String>>;
}

/// The transport of a Tenant that reaches no endpoint: every Action waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTransport;

impl ActionTransport for NoTransport {
    fn post(&self, _delivery: Delivery) -> BoxFuture<'static, Answered> {
        let message = "this Runtime reaches no Action endpoint".to_owned();
        Box::pin(std::future::ready(Answered::NotSent { code: "NO_TRANSPORT", message }))
    }

    fn check_url(&self, _url: &str) -> Result<(), Vec<String>> {
        Ok(())
    }
}

/// Checks values against JSON Schemas of tools.
pub trait Schemas: Send + Sync + 'static {
    /// Whether a value matches.
    ///
    /// # Errors
    /// In words, when it does not, or when the schema cannot be evaluated.
    fn check(&self, schema: &Json, value: &Json) -> Result<(), String>;
}
