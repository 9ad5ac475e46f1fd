//! Every bound of the HTTP API (the table of `docs/limits.md` is made from these and the tree's).

use std::time::Duration;

use nylorun_actors::limits::Limit;

/// A request body, bytes.
pub const BODY_BYTES: usize = 1024 * 1024;
/// Silence of a client that is sending a body.
pub const BODY_IDLE: Duration = Duration::from_secs(30);
/// Rows of one page of a list.
pub const PAGE_ROWS: i64 = 200;
/// Events of a sandbox in one answer.
pub const SANDBOX_EVENTS: usize = 10_000;
/// One readiness probe.
pub const READY_TIME: Duration = Duration::from_secs(2);
/// Readiness probes at once.
pub const READY_PROBES: usize = 4;
/// Pause between two keep-alive comments of a stream.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Keys remembered, known and unknown each.
pub const CACHED_KEYS: usize = 4096;
/// Refused credentials of one peer that are answered at once.
pub const FREE_REFUSALS: f64 = 100.0;
/// Refusals that a peer gets back each second.
pub const REFUSALS_PER_SECOND: f64 = 10.0;
/// The longest that a refusal is held back.
pub const REFUSAL_DELAY: Duration = Duration::from_secs(1);
/// Peers remembered for their refusals.
pub const REFUSED_PEERS: usize = 4096;
/// Characters of a request id that is taken over.
pub const REQUEST_ID: usize = 128;

/// The same, for people.
pub const LIMITS: &[Limit] = &[
    Limit {
        what: "one request body",
        value: "1 MiB",
        owner: "api/body",
        at_it: "413 `request_rejected`; no more than that is ever held, and a declared length over it is refused unread",
        setting: "fixed",
    },
    Limit {
        what: "silence inside a request body",
        value: "30 s",
        owner: "api/body",
        at_it: "400 `request_rejected`",
        setting: "fixed",
    },
    Limit {
        what: "rows of one page of a list",
        value: "200",
        owner: "api/page",
        at_it: "400 `request_rejected`",
        setting: "`limit`",
    },
    Limit {
        what: "events of a sandbox in one answer",
        value: "10,000",
        owner: "api/sandboxes",
        at_it: "the rest is read with `from`",
        setting: "`limit`",
    },
    Limit {
        what: "one readiness probe",
        value: "2 s",
        owner: "api/health",
        at_it: "the check reads `false`",
        setting: "fixed",
    },
    Limit {
        what: "readiness probes at once",
        value: "4",
        owner: "api/health",
        at_it: "further ones wait inside their 2 s",
        setting: "fixed",
    },
    Limit {
        what: "events held for one stream",
        value: "1, beside the socket's buffer",
        owner: "api/events",
        at_it: "the next event is asked for when the client has room; a slow client slows itself alone",
        setting: "fixed",
    },
    Limit {
        what: "keys remembered, known and unknown each",
        value: "4096",
        owner: "api/key_cache",
        at_it: "all are forgotten and looked up again",
        setting: "fixed",
    },
    Limit {
        what: "refused credentials of one peer",
        value: "100 at once, 10 more each second",
        owner: "api/throttle",
        at_it: "each further refusal is held back, up to 1 s; a valid key never is",
        setting: "fixed",
    },
    Limit {
        what: "peers remembered for their refusals",
        value: "4096",
        owner: "api/throttle",
        at_it: "those that have not been refused for longest are forgotten",
        setting: "fixed",
    },
    Limit {
        what: "a request id that is taken over",
        value: "128 characters",
        owner: "api/request_log",
        at_it: "a fresh one is made instead",
        setting: "fixed",
    },
];
