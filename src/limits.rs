//! `docs/limits.md`: every bound of this program on one page, made from the places that hold them (DESIGN.md, section 4,
//! rule 10). `tests/docs_limits.rs` compares the page with what this module writes.

use std::time::Duration;

use nylorun_actors::limits::{LIMITS as TREE, Limit};
use nylorun_actors::model::ids::WorkerId;
use nylorun_actors::tenant::TenantConfig;

use crate::api::limits::{KEEP_ALIVE, LIMITS as API};
use crate::engine::agent::delegate::EVIDENCE_CHARS;
use crate::engine::agent::hooks::RETRIES;
use crate::engine::agent::projection::CHAIN_ABOVE_BYTES;
use crate::engine::model::provider::{MESSAGE_CHARS, ProviderLimits};
use crate::engine::model::script::{MAX_DELAY_MS, MAX_STEPS};
use crate::engine::run::sandbox::{KILL_WAIT, STOP_GRACE as TOOL_GRACE};
use crate::engine::run::{DEFINITIONS, cache, kit};
use crate::gates::actions::{ANSWER_BYTES, RETRY_AFTER_MOST};
use crate::gates::egress::{self, head::HEAD_BYTES};
use crate::gates::outbound::{CONNECT_WAIT, IDLE_CONNECTION, IDLE_CONNECTIONS, URL_CHARS};
use crate::harness::channel::REQUESTS;
use crate::harness::lease::{HELLO_WAIT, LEASE_RETRY, LOST_GRACE, STOP_GRACE};
use crate::harness::settings::{MAX_RUNS, MOST_RUNS};
use crate::harness::socket::{HANDSHAKE_WAIT, LASTED, RETRY_FIRST_MS, RETRY_LONGEST_MS};
use crate::harness::workspaces::SERVED;
use crate::harness::{OUTBOX_FRAMES, OUTBOX_REFUSALS};
use crate::harness_api::limits::LIMITS as HARNESS_API;
use crate::host::sandboxes::CLOSE_WAIT;
use crate::host::serve::{REQUEST_GRACE_SECONDS, RETRY_FIRST, RETRY_LONGEST};
use crate::identity::KNOWN_PUBLIC_KEYS;
use crate::identity::tokens::TOKEN_BYTES;
use crate::sandbox::limits as sandbox;
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
        ("Engine and models", "`src/engine/`", engine()),
        ("A harness of its own", "`src/harness/`", harness()),
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

fn engine() -> Vec<Row> {
    let limits = ProviderLimits::default();
    let provider = "engine/model/provider";
    vec![
        row(
            "attempts of one model call",
            limits.attempts.to_string(),
            provider,
            "the last failure stands and the turn fails with `model.<code>`",
            "fixed",
        ),
        row(
            "wait before another attempt",
            format!("{} doubling up to {}", time(limits.base_delay), time(limits.max_delay)),
            provider,
            "a provider that asks for more gets no further attempt",
            "fixed",
        ),
        row(
            "one model call with its attempts",
            time(limits.request_timeout),
            provider,
            "it fails as `timeout`",
            "fixed",
        ),
        row(
            "silence of a provider",
            time(limits.idle_timeout),
            provider,
            "the attempt fails as `timeout`",
            "fixed",
        ),
        row(
            "reaching a provider",
            time(limits.connect_timeout),
            provider,
            "the attempt fails as `transient`",
            "fixed",
        ),
        row(
            "one streamed answer",
            bytes(limits.answer_bytes),
            provider,
            "it fails as `invalid_output`",
            "fixed",
        ),
        row(
            "time between two previews",
            time(limits.preview_interval),
            provider,
            "pieces that come sooner travel together",
            "fixed",
        ),
        row(
            "text of a provider's error",
            format!("{MESSAGE_CHARS} characters"),
            provider,
            "the rest is cut",
            "fixed",
        ),
        row(
            "prompt that is hashed whole",
            bytes(CHAIN_ABOVE_BYTES),
            "engine/agent/projection",
            "in the process a longer one is hashed as a chain (docs/adr/0008)",
            "fixed",
        ),
        row(
            "answers that the hooks of one turn send back",
            RETRIES.to_string(),
            "engine/agent/hooks",
            "the turn fails with `dynamics.exhausted`",
            "fixed",
        ),
        row(
            "last text of a failed sub-agent that its caller reads",
            format!("{EVIDENCE_CHARS} characters"),
            "engine/agent/delegate",
            "the rest is cut",
            "fixed",
        ),
        row(
            "projected transcripts kept between runs",
            bytes(cache::CACHE_BYTES),
            "engine/run/cache",
            "the least recently used is dropped and projected again when needed",
            "fixed",
        ),
        row(
            "definitions kept ready",
            DEFINITIONS.to_string(),
            "engine/run/definitions",
            "all are dropped and read again when needed",
            "fixed",
        ),
        row(
            "fixture scripts of manifests kept ready",
            kit::MOST.to_string(),
            "engine/run/kit",
            "all are dropped and read again when needed",
            "fixed",
        ),
        row(
            "delay in a fixture script",
            ms(MAX_DELAY_MS),
            "engine/model/script",
            "the script is refused",
            "fixed",
        ),
        row(
            "steps of one list in a fixture script",
            MAX_STEPS.to_string(),
            "engine/model/script",
            "the script is refused",
            "fixed",
        ),
    ]
}

fn harness() -> Vec<Row> {
    vec![
        row(
            "runs at once",
            format!("{MAX_RUNS}, at most {MOST_RUNS}"),
            "harness/lease",
            "no lease is parked until one ends",
            "`max-runs`",
        ),
        row(
            "requests to core in flight, leases apart",
            REQUESTS.to_string(),
            "harness/channel",
            "further ones wait",
            "fixed",
        ),
        row(
            "requests that wait for the socket",
            OUTBOX_FRAMES.to_string(),
            "harness/outbox",
            "their senders wait",
            "fixed",
        ),
        row(
            "answers to core that wait for the socket",
            OUTBOX_REFUSALS.to_string(),
            "harness/outbox",
            "the connection is closed",
            "fixed",
        ),
        row(
            "requests of core about workspaces that one harness serves at once",
            SERVED.to_string(),
            "harness/workspaces",
            "a further one is answered `unavailable`",
            "fixed",
        ),
        row(
            "each stream of a command in a sandbox",
            format!("{} characters", sandbox::STREAM_CHARS),
            "sandbox/streams",
            "its middle is left out; the command runs on",
            "fixed",
        ),
        row(
            "what `read`, `grep` or `glob` answer in all",
            format!("{} characters", sandbox::ANSWER_CHARS),
            "sandbox/files",
            "the answer says where to go on",
            "fixed",
        ),
        row(
            "a command in a sandbox",
            format!("{} s, at most {} s", sandbox::COMMAND_SECONDS, sandbox::COMMAND_SECONDS_MOST),
            "sandbox/run",
            "it is killed with all that it has started: exit code 124",
            "the call's `timeout`",
        ),
        row(
            "the text of a command",
            format!("{} KiB", sandbox::COMMAND_BYTES.div_ceil(1024)),
            "sandbox/input",
            "nothing is run: `tool.invalid-input`",
            "fixed",
        ),
        row(
            "every other tool",
            format!("{} s", sandbox::HELPER_SECONDS),
            "sandbox/search",
            "what was found is answered, with a line that says so",
            "fixed",
        ),
        row(
            "a file that `edit` changes",
            format!("{} MiB", sandbox::EDIT_BYTES / (1024 * 1024)),
            "sandbox/files",
            "the edit fails, also one that would make it larger",
            "fixed",
        ),
        row(
            "files that `glob` looks at, and shows",
            format!("{}, {}", sandbox::GLOB_LOOKS, sandbox::GLOB_FILES),
            "sandbox/search",
            "the answer says so",
            "fixed",
        ),
        row(
            "processes and threads in a sandbox",
            sandbox::PROCESSES.to_string(),
            "sandbox/cgroups, sandbox/keeper",
            "a further one is refused to the command; where only a watcher counts them, the command is killed",
            "fixed",
        ),
        row(
            "memory of all processes of a sandbox",
            format!("{} GiB", sandbox::MEMORY_BYTES >> 30),
            "sandbox/cgroups, sandbox/keeper",
            "one of them is killed, and the command's standard error says so; where only a watcher counts, all of them",
            "the sandbox's `resources`",
        ),
        row(
            "files of a workspace on disk, temporary ones too",
            format!("{} GiB in {} files", sandbox::DISK_BYTES >> 30, sandbox::INODES),
            "sandbox/usage",
            "the command is killed; until files are deleted, commands and tools cannot write",
            "fixed",
        ),
        row(
            "CPUs of a sandbox",
            sandbox::CPUS.to_string(),
            "sandbox/helper",
            "its processes share them",
            "the sandbox's `resources`",
        ),
        row(
            "a workspace without use",
            format!("{} min", sandbox::IDLE_MS / 60_000),
            "sandbox/manager",
            "it stops; its files stay",
            "the sandbox's `idle`",
        ),
        row(
            "a sandbox tool that runs when its process stops",
            format!("{}, then {} ms", time(TOOL_GRACE), KILL_WAIT.as_millis()),
            "engine/run/sandbox",
            "it is killed: `uncertain` if it writes, else failed",
            "fixed",
        ),
        row(
            "workspaces that stop when `serve` does",
            time(CLOSE_WAIT),
            "host/sandboxes",
            "they end with the process; the next start says so in the record",
            "fixed",
        ),
        row(
            "connections of a sandbox through the egress proxy",
            egress::TUNNELS.to_string(),
            "gates/egress",
            "a further one is answered 429",
            "fixed",
        ),
        row(
            "the head of a request to the egress proxy",
            format!("{} KiB, {} s", HEAD_BYTES / 1024, egress::HEAD_WAIT.as_secs()),
            "gates/egress",
            "it is answered 431 or 408 and closed",
            "fixed",
        ),
        row(
            "resolving a host of a sandbox, and connecting to one of its addresses",
            format!("{} s each", egress::DIAL_WAIT.as_secs()),
            "gates/egress",
            "the next address is tried; after the last the request is answered 502",
            "fixed",
        ),
        row(
            "a connection of a sandbox without traffic",
            format!("{} min", egress::IDLE.as_secs() / 60),
            "gates/egress",
            "it is closed",
            "fixed",
        ),
        row("an output larger than a frame", "64 MiB", "harness/run", "the turn fails and says so", "fixed"),
        row(
            "connecting, with TLS and upgrade",
            time(HANDSHAKE_WAIT),
            "harness/socket",
            "it is tried again",
            "fixed",
        ),
        row(
            "core's answer to `hello`",
            time(HELLO_WAIT),
            "harness/lease",
            "the connection is closed",
            "fixed",
        ),
        row(
            "pause before the next connection",
            format!("{}, with jitter up to {}", ms(RETRY_FIRST_MS), ms(RETRY_LONGEST_MS)),
            "harness/socket",
            format!("it is tried again; a connection of more than {} makes the pauses short", time(LASTED))
                .as_str(),
            "fixed",
        ),
        row(
            "pause before a lease is asked for again",
            time(LEASE_RETRY),
            "harness/lease",
            "it is asked for again",
            "fixed",
        ),
        row(
            "time that runs of a lost connection have",
            time(LOST_GRACE),
            "harness/lease",
            "they are dropped",
            "fixed",
        ),
        row(
            "time that runs have once the harness is told to stop",
            time(STOP_GRACE),
            "harness/lease",
            "they are dropped; core takes them over at once",
            "fixed",
        ),
    ]
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
