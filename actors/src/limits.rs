//! Every bound of the tree: one home, one owner, a stated behaviour. `docs/limits.md` is generated from [`LIMITS`].

/// One bound, for the page that people read.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// What is bounded.
    pub what: &'static str,
    /// Its value with its unit.
    pub value: &'static str,
    /// Who owns it.
    pub owner: &'static str,
    /// What happens when it is reached.
    pub at_it: &'static str,
    /// The setting that changes it, or "fixed".
    pub setting: &'static str,
}

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $value:expr, $what:literal, $text:literal, $owner:literal, $at:literal, $setting:literal;)*) => {
        $($(#[$doc])* pub const $name: $ty = $value;)*
        /// The bounds of this crate, in the order of the page.
        pub const LIMITS: &[Limit] = &[$(Limit { what: $what, value: $text, owner: $owner, at_it: $at, setting: $setting }),*];

        /// Name, value and the text that tells it.
        #[cfg(test)]
        fn told() -> Vec<(&'static str, u64, &'static str)> {
            vec![$((stringify!($name), u64::try_from($name).unwrap(), $text)),*]
        }
    };
}

limits! {
    /// Entries of one `transcript.updated` event, bytes of JSON.
    TRANSCRIPT_CHUNK_BYTES: usize = 48 * 1024, "entries of one transcript edit", "48 KiB of JSON",
        "model/transcript", "the edit is cut; a larger single entry travels alone", "fixed";
    /// A served event, bytes of JSON.
    EVENT_BYTES: usize = 1024 * 1024, "one served event", "1 MiB of JSON",
        "rules/event", "larger values are cut in the event's copy and marked; the whole value stays in the effect row", "fixed";
    /// Messages waiting for one session.
    SESSION_MAILBOX: usize = 64, "messages waiting for one session", "64",
        "session", "senders wait", "fixed";
    /// Messages waiting for one harness.
    HARNESS_MAILBOX: usize = 256, "messages waiting for one harness", "256",
        "harness", "senders wait", "fixed";
    /// One frame of the Harness API, bytes.
    HARNESS_FRAME_BYTES: usize = 64 * 1024 * 1024, "one frame of the Harness API", "64 MiB",
        "harness/wire", "a start that is larger fails its turn; a larger frame of a peer closes its connection", "fixed";
    /// Requests of one connection in flight, and as many leases beside them.
    HARNESS_REQUESTS: usize = 1024, "requests of one harness in flight, and as many leases", "1024",
        "harness/wire", "a further one is answered `unavailable`", "fixed";
    /// Milliseconds between two pings of a connection.
    HARNESS_PING_MS: u64 = 30_000, "pause between two pings of a harness", "30 s",
        "harness", "a ping is sent and the peer's silence is looked at", "fixed";
    /// Silence after which a connection is dropped, ms.
    HARNESS_SILENCE_MS: u64 = 90_000, "silence of a harness, or frames it does not read", "90 s",
        "harness/wire", "the connection is dropped and its runs are taken over at once", "fixed";
    /// Sessions whose last harness is remembered.
    AFFINITIES: usize = 100_000, "sessions whose last harness is remembered", "100,000",
        "supervisor/broker", "all are forgotten; the next run of each goes to the oldest lease", "fixed";
    /// Requests of core that one harness has not answered yet.
    HARNESS_ASKED: usize = 256, "requests about workspaces that one harness has not answered", "256",
        "harness/asked", "a further one is refused with 503", "fixed";
    /// Time a harness has to answer for a tool or a file, ms.
    WORKSPACE_ANSWER_MS: u64 = 900_000, "time a harness has for one tool call of a route, those before it in its workspace included", "900 s",
        "harness/asked", "the harness is told to stop and the caller gets 503", "fixed";
    /// Time a harness has to answer a sweep or a removal, ms.
    WORKSPACE_SWEEP_MS: u64 = 60_000, "time a harness has for a sweep or a removal of workspaces", "60 s",
        "harness/asked", "the next sweep tries again", "fixed";
    /// Time a harness has to say what it serves workspaces with, ms.
    WORKSPACE_REPORT_MS: u64 = 2_000, "time a harness has to report its sandbox backend", "2 s",
        "harness/asked", "the status shows none", "fixed";
    /// Workspaces whose harness is remembered.
    WORKSPACE_PLACES: usize = 100_000, "workspaces whose harness is remembered", "100,000",
        "supervisor/places", "all are forgotten and looked for again when needed", "fixed";
    /// Time that the harness with a workspace may be away before another opens it anew, ms.
    WORKSPACE_AWAIT_MS: u64 = 30_000, "absence of the harness that has a workspace", "30 s",
        "supervisor/places", "calls are refused with 503 until then; afterwards another harness opens the workspace, empty", "fixed";
    /// Milliseconds between two sweeps of workspaces.
    WORKSPACE_SWEEP_EVERY_MS: u64 = 60_000, "pause between two sweeps of workspaces", "60 s",
        "sweeper", "idle ones stop, those without an owner are removed", "fixed";
    /// Bytes of one artifact, unless the Tenant says otherwise.
    ARTIFACT_FILE_BYTES: i64 = 100 * 1024 * 1024, "one artifact", "100 MiB",
        "artifacts", "413 `limit_exceeded`; a declared length over it is refused unread, a body is cut there, nothing is stored", "`PUT /v1/tenant/artifacts`";
    /// Bytes of all artifacts, unless the Tenant says otherwise.
    ARTIFACT_TOTAL_BYTES: i64 = 10 * 1024 * 1024 * 1024, "all artifacts together", "10 GiB",
        "artifacts", "413 `limit_exceeded`; nothing is stored", "`PUT /v1/tenant/artifacts`";
    /// Uploads in progress.
    UPLOADS: usize = 64, "uploads of artifacts in progress", "64",
        "artifacts", "a further one is refused with 503", "fixed";
    /// Bytes of a folder's manifest that are read into memory.
    FOLDER_MANIFEST_BYTES: usize = 64 * 1024 * 1024, "the list of a folder artifact's files", "64 MiB",
        "artifacts", "more than the files of the largest export need; a longer one counts as damaged", "fixed";
    /// Files of one export.
    EXPORT_FILES: usize = 10_000, "files of one turn-end export", "10,000",
        "artifacts/export", "`artifact.export.skipped`, reason `too_many_files`; nothing is stored", "fixed";
    /// Bytes of one export.
    EXPORT_BYTES: i64 = 1024 * 1024 * 1024, "bytes of one turn-end export", "1 GiB",
        "artifacts/export", "`artifact.export.skipped`, reason `too_large`; nothing is stored", "fixed";
    /// Time of one attempt of an export, ms.
    EXPORT_MS: u64 = 300_000, "time of a turn-end export", "300 s",
        "artifacts/export", "`artifact.export.failed`; the turn stands as it is", "fixed";
    /// Files of exports that are remembered, so that they are not read again.
    EXPORT_REMEMBERED: usize = 100_000, "files of turn-end exports that are not read again while they do not change", "100,000",
        "artifacts/exported", "all are forgotten; the next export of each session reads its files", "fixed";
    /// Age from which a blob that nobody names is removed, ms.
    BLOB_GRACE_MS: u64 = 3_600_000, "age of bytes that no artifact names", "3600 s",
        "artifacts/sweep", "older ones are removed", "fixed";
    /// Milliseconds between two looks for such blobs.
    BLOB_SWEEP_EVERY_MS: u64 = 1_800_000, "pause between two looks for bytes that no artifact names", "1800 s",
        "sweeper", "the first look is at the start", "fixed";
    /// Messages waiting for the TenantSupervisor.
    SUPERVISOR_MAILBOX: usize = 1024, "messages waiting for the TenantSupervisor", "1024",
        "supervisor", "senders wait", "fixed";
    /// Messages waiting for one Action endpoint's actor.
    ENDPOINT_MAILBOX: usize = 64, "messages waiting for one Action endpoint", "64",
        "endpoint", "a nudge to look is dropped, since one waits already; other senders wait", "fixed";
    /// Actions that one look claims for an endpoint.
    DELIVERIES_AT_ONCE: usize = 64, "Actions that one look claims for an endpoint", "64",
        "endpoint", "the next look follows at once", "fixed";
    /// Pause after the first failure of an endpoint, ms; doubling.
    DELIVERY_BACKOFF_MS: i64 = 250, "pause after an endpoint's first failure, ms", "250",
        "rules/delivery", "it doubles with each failure in a row, less up to a quarter by chance; `Retry-After` goes before it", "fixed";
    /// The longest such pause, ms.
    DELIVERY_BACKOFF_MOST_MS: i64 = 30_000, "longest pause between two tries of a failing endpoint", "30 s",
        "rules/delivery", "an Action older than the most age is parked instead", "fixed";
    /// Pause between two `action.delivery_failed` of one Action, ms.
    DELIVERY_FAILED_EVERY_MS: u64 = 10_000, "pause between two `action.delivery_failed` of one Action", "10 s",
        "endpoint", "failures between them are in the endpoint's health only", "fixed";
    /// How long a stop waits for endpoints to answer, ms.
    DELIVERY_DRAIN_MS: u64 = 5_000, "how long a stop waits for answers of Action endpoints", "5 s",
        "endpoint", "the deliveries are cut; the deadline of each decides", "fixed";
    /// The longest that a ping of an endpoint is waited for, ms.
    PING_MOST_MS: i64 = 10_000, "answer to a ping of an Action endpoint", "10 s",
        "endpoint", "the ping fails with 502; an endpoint's own shorter time-out goes before it", "fixed";
    /// Transactions waiting for the store's writer.
    WRITE_QUEUE: usize = 4096, "transactions waiting for the writer", "4096",
        "ports/store", "callers wait", "fixed";
    /// Reads waiting for a reader.
    READ_QUEUE: usize = 1024, "reads waiting for a connection", "1024",
        "ports/store", "callers wait", "fixed";
    /// Transactions of one group commit.
    COMMIT_GROUP: usize = 256, "transactions of one group commit", "256",
        "store", "the rest goes into the next group", "fixed";
    /// Events an observer may be behind the live feed before it reads the record again.
    FEED_QUEUE: usize = 256, "live events kept for an observer", "256",
        "feeds", "the observer catches up from the record; nobody else is slowed", "fixed";
    /// Events of one page read from the record.
    RECORD_PAGE: usize = 500, "events of one read of the record", "500",
        "history", "the next page is read when this one is sent", "fixed";
    /// Parsed manifests kept in memory.
    MANIFEST_CACHE: usize = 256, "parsed manifests kept in memory", "256",
        "tenant/tree", "all are dropped and parsed again when needed", "fixed";
    /// Live observers of one session.
    OBSERVERS_PER_SESSION: usize = 10_000, "observers of one session", "10,000",
        "tenant/feeds", "a further one is refused with 503", "fixed";
    /// Edits after which the fold of an ended turn is written down.
    FOLD_SNAPSHOT_EDITS: usize = 64, "transcript edits between two fold snapshots", "64",
        "rules/history", "a snapshot is written when the turn has ended", "fixed";
    /// Attempts of one segment without a new recorded effect.
    ATTEMPTS_WITHOUT_PROGRESS: u32 = 5, "attempts of a segment that record nothing new", "5",
        "session", "the turn fails, and its message says so; restarts and deploys do not count", "fixed";
    /// The same where a connection's end has cut each.
    DROPS_WITHOUT_PROGRESS: u32 = 200, "attempts of a segment that a lost connection has cut and that record nothing new", "200",
        "session", "the turn fails, and its message says so", "fixed";
    /// Pages of the sweeper, rows.
    SWEEP_PAGE: usize = 100, "rows of one page of the sweeper", "100",
        "sweeper", "the next page follows while the pass has time left, else the next pass resumes there", "fixed";
    /// Milliseconds one sweep step may take.
    SWEEP_BUDGET_MS: i64 = 2_000, "time of one sweep step", "2 s",
        "sweeper", "the step resumes in the next pass", "fixed";
    /// Failures after which a wake is parked for an operator.
    WAKE_PARK_AFTER: u32 = 10, "failed hand-overs of one wake", "10",
        "sweeper", "the wake is parked, logged once and shown in status", "fixed";
    /// Milliseconds that a removal of a deleted sandbox's files is waited for.
    SANDBOX_REMOVAL_MS: u64 = 5_000, "wait for the removal of a deleted sandbox's files", "5 s",
        "workspaces", "the delete is answered, the removal goes on, and the id is 409 `sandbox_busy` until it is done", "fixed";
    /// Problems that the reading of one manifest lists.
    MANIFEST_ISSUES: usize = 256, "problems listed for one manifest", "256",
        "model/manifest", "the last one counts the rest", "fixed";
    /// Problems that the check of one request body lists.
    BODY_ISSUES: usize = 100, "problems listed for one request body", "100",
        "model/shape", "the last one counts the rest", "fixed";
    /// Documents and nodes inside each other in one manifest.
    MANIFEST_DEPTH: usize = 32, "nesting of documents and nodes in a manifest", "32",
        "model/manifest", "the manifest is refused where it nests deeper", "fixed";
    /// Life of a token that the Tenant signs, milliseconds.
    TOKEN_TTL_MS: i64 = 900_000, "life of a token that the Tenant signs", "900 s",
        "identity/tokens", "a longer wish is cut; a token that claims more is refused", "fixed";
    /// Rest of a key that was retired before the next rotation may revoke it, milliseconds.
    SIGNING_KEY_REST_MS: i64 = 960_000, "rest of a retired signing key before the next rotation", "960 s",
        "rules/signing", "409 with `retryAfterSeconds`; `force` rotates all the same", "fixed";
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_text_tells_its_value() {
        for (name, value, text) in super::told() {
            let mut words = text.split(' ');
            let number: u64 = words.next().unwrap().replace(',', "").parse().unwrap();
            let unit = match words.next() {
                Some("KiB") => 1024,
                Some("MiB") => 1024 * 1024,
                Some("GiB") => 1024 * 1024 * 1024,
                Some("s") if name.ends_with("_MS") => 1000,
                None => 1,
                other => panic!("{name} has the unit {other:?}"),
            };
            assert_eq!(number * unit, value, "{name}");
        }
    }
}
