//! `docs/limits.md`: every bound of this program on one page, made from the places that hold them (DESIGN.md, section 4,
//! rule 10). `tests/docs_limits.rs` compares the page with what this module writes.

mod engine;
mod harness;
mod sandbox;

use std::time::Duration;

use nylorun_actors::limits::{LIMITS as TREE, Limit};
use nylorun_actors::model::ids::WorkerId;
use nylorun_actors::tenant::TenantConfig;

use crate::api::limits::{KEEP_ALIVE, LIMITS as API};
use crate::gates::actions::{ANSWER_BYTES, RETRY_AFTER_MOST};
use crate::gates::outbound::{CONNECT_WAIT, IDLE_CONNECTION, IDLE_CONNECTIONS, URL_CHARS};
use crate::harness_api::limits::LIMITS as HARNESS_API;
use crate::host::serve::{REQUEST_GRACE_SECONDS, RETRY_FIRST, RETRY_LONGEST};
use crate::identity::KNOWN_PUBLIC_KEYS;
use crate::identity::tokens::TOKEN_BYTES;
use crate::store::HOT_SESSIONS;

const HEAD: &str = "\
# Limits

Every bound that is reached in practice, who owns it, and what happens at it. This page is made by `src/limits.rs`
from the constants themselves: change one there, then run
`NYLORUN_UPDATE_DOCS=1 cargo nextest run --workspace docs_limits`. A setting is one of `nylorun config`; \"fixed\" means
that a change needs a build.
";

/// One line of the page.
struct Row {
    what: String,
    value: String,
    owner: String,
    at_it: String,
    setting: String,
}

impl From<&Limit> for Row {
    fn from(limit: &Limit) -> Self {
        row(limit.what, limit.value, limit.owner, limit.at_it, limit.setting)
    }
}

fn row(what: &str, value: impl Into<String>, owner: &str, at_it: &str, setting: &str) -> Row {
    Row {
        what: what.to_owned(),
        value: value.into(),
        owner: owner.to_owned(),
        at_it: at_it.to_owned(),
        setting: setting.to_owned(),
    }
}

/// The page.
#[must_use]
pub fn page() -> String {
    let sections = [
        ("The tree", "`actors/src/limits.rs`", TREE.iter().map(Row::from).collect()),
        ("Times of a turn", "`TenantConfig` in `actors/src/tenant/mod.rs`", times()),
        ("HTTP API", "`src/api/limits.rs`", api()),
        ("Harness listener", "`src/harness_api/limits.rs`", HARNESS_API.iter().map(Row::from).collect()),
        ("Identity and gates", "`src/identity/`, `src/gates/`", gates()),
        ("Engine and models", "`src/engine/`", engine::rows()),
        ("A harness of its own", "`src/harness/`", harness::rows()),
        ("Host and store", "`src/host/serve.rs`, `src/store/`", host()),
    ];
    let mut page = HEAD.to_owned();
    for (title, home, rows) in sections {
        let rows: Vec<Row> = rows;
        page.push_str(&format!("\n## {title}\n\nThey live in {home}.\n\n"));
        page.push_str("| What | Bound | Owner | What happens at it | Setting |\n|---|---|---|---|---|\n");
        for Row { what, value, owner, at_it, setting } in rows {
            page.push_str(&format!("| {what} | {value} | {owner} | {at_it} | {setting} |\n"));
        }
    }
    page
}

fn times() -> Vec<Row> {
    let config = TenantConfig::new(WorkerId::from("worker"));
    let rollover_steps = config.rollover.steps.unwrap_or_default();
    let rollover_ms = config.rollover.ms.unwrap_or_default();
    vec![
        row(
            "life of a session's lease without a renewal",
            ms(config.owner_lease_ms.unsigned_abs()),
            "rules/ownership",
            "the lease is free; the next take mints a new epoch",
            "`owner-lease-ms`",
        ),
        row(
            "age of an advance",
            ms(config.advance_deadline_ms.unsigned_abs()),
            "session/ending",
            "the run is told `deadline`; a turn that has not ended then fails with that message",
            "`advance-deadline-ms`",
        ),
        row(
            "time that a run has after it was told to stop",
            ms(config.abort_grace_ms.unsigned_abs()),
            "session/ending",
            "the run is abandoned; the epoch fences what it still says",
            "`abort-grace-ms`",
        ),
        row(
            "steps of one segment",
            rollover_steps.to_string(),
            "engine/agent",
            "the segment ends between two steps and the next one goes on",
            "`rollover-steps`",
        ),
        row("time of one segment", ms(rollover_ms), "engine/agent", "as its steps", "`rollover-ms`"),
        row(
            "wait of a run for a pending Action",
            ms(config.action_hold_ms),
            "engine/run/hold",
            "the segment ends as `waiting`",
            "`action-hold-ms`",
        ),
        row(
            "life of a background delivery without a heartbeat",
            ms(config.action_lease_ms.unsigned_abs()),
            "rules/actions",
            "the delivery is lost: a tool's becomes `uncertain`, others are delivered again",
            "`action-lease-ms`",
        ),
        row(
            "pause between two passes of the sweeper",
            ms(config.sweep_interval_ms),
            "sweeper",
            "the next pass begins",
            "`sweep-interval-ms`",
        ),
        row(
            "time of a session without work in memory",
            ms(config.idle_after_ms),
            "session",
            "its actor leaves memory with its folded transcript",
            "`idle-after-ms`",
        ),
        row(
            "age of an Action that does not reach its endpoint",
            ms(config.delivery_max_age_ms.unsigned_abs()),
            "rules/delivery",
            "it is parked: no more calls, `dead` in status, until a registration, a good ping or an operator revives it",
            "`delivery-max-age`",
        ),
    ]
}

fn api() -> Vec<Row> {
    let mut rows: Vec<Row> = API.iter().map(Row::from).collect();
    rows.push(row(
        "silence on an event stream",
        time(KEEP_ALIVE),
        "api/events",
        "a keep-alive comment is sent",
        "fixed",
    ));
    rows
}

fn gates() -> Vec<Row> {
    vec![
        row(
            "a token that is looked at",
            bytes(TOKEN_BYTES),
            "identity/tokens",
            "a longer one is refused before any key is read",
            "fixed",
        ),
        row(
            "public key objects remembered",
            KNOWN_PUBLIC_KEYS.to_string(),
            "identity/signing_keys",
            "all are forgotten and made again from their rows",
            "fixed",
        ),
        row(
            "the URL of an endpoint",
            format!("{URL_CHARS} characters"),
            "gates/outbound",
            "it is refused",
            "fixed",
        ),
        row(
            "one attempt to connect to an endpoint, TLS included",
            time(CONNECT_WAIT),
            "gates/outbound",
            "nothing was sent; the delivery is tried again",
            "fixed",
        ),
        row(
            "idle time of a connection to an endpoint",
            time(IDLE_CONNECTION),
            "gates/outbound",
            "it is closed",
            "fixed",
        ),
        row(
            "idle connections to one endpoint",
            IDLE_CONNECTIONS.to_string(),
            "gates/outbound",
            "further ones are closed after their answer",
            "fixed",
        ),
        row(
            "wait that an endpoint can ask for with `Retry-After`",
            time(RETRY_AFTER_MOST),
            "gates/actions",
            "a longer one is cut",
            "fixed",
        ),
        row(
            "the answer of an endpoint",
            bytes(ANSWER_BYTES),
            "gates/actions",
            "reading stops; the Action fails with `endpoint.answer-too-large`",
            "fixed",
        ),
    ]
}

fn host() -> Vec<Row> {
    vec![
        row(
            "requests that run when the Host stops",
            time(Duration::from_secs(REQUEST_GRACE_SECONDS)),
            "host/serve",
            "their connections are closed",
            "fixed",
        ),
        row(
            "pause before a store that is not reachable is opened again",
            format!("{} doubling up to {}", time(RETRY_FIRST), time(RETRY_LONGEST)),
            "host/serve",
            "it is tried again",
            "fixed",
        ),
        row(
            "sessions that the writer knows without reading",
            HOT_SESSIONS.to_string(),
            "store/hot",
            "all are forgotten and read again when needed",
            "fixed",
        ),
    ]
}

fn bytes(count: usize) -> String {
    match count {
        n if n % (1024 * 1024) == 0 => format!("{} MiB", n / (1024 * 1024)),
        n if n % 1024 == 0 => format!("{} KiB", n / 1024),
        n => format!("{n} bytes"),
    }
}

fn time(span: Duration) -> String {
    ms(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

fn ms(count: u64) -> String {
    match count {
        0 => "0".to_owned(),
        n if n % 3_600_000 == 0 => format!("{} h", n / 3_600_000),
        n if n % 60_000 == 0 => format!("{} min", n / 60_000),
        n if n % 1000 == 0 => format!("{} s", n / 1000),
        n => format!("{n} ms"),
    }
}
