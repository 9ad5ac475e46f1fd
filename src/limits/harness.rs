//! Bounds of a harness: its connection, its runs; between them those of the [`sandbox`] that it serves.

use super::{Row, ms, row, sandbox, time};
use crate::harness::channel::REQUESTS;
use crate::harness::lease::{HELLO_WAIT, LEASE_RETRY, LOST_GRACE, STOP_GRACE};
use crate::harness::settings::{MAX_RUNS, MOST_RUNS};
use crate::harness::socket::{HANDSHAKE_WAIT, LASTED, RETRY_FIRST_MS, RETRY_LONGEST_MS};
use crate::harness::workspaces::SERVED;
use crate::harness::{OUTBOX_FRAMES, OUTBOX_REFUSALS};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = requests();
    rows.extend(sandbox::rows());
    rows.extend(connection());
    rows
}

/// What it does at once.
fn requests() -> Vec<Row> {
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
    ]
}

/// What its connection may take.
fn connection() -> Vec<Row> {
    vec![
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
