-- The store of one Tenant. Instants are microseconds since 1970, ids and JSON are text, secrets are sealed bytes.

CREATE TABLE tenant (
    singleton  INTEGER NOT NULL PRIMARY KEY CHECK (singleton = 1),
    id         TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    created_at BIGINT  NOT NULL,
    updated_at BIGINT  NOT NULL,
    -- One more on each reset of sessions.
    generation BIGINT  NOT NULL
);

-- A number for every session id that ever was. It outlives the session, so a session opened again under the id goes on
-- with the record it finds; and it keeps the keys of the big tables small.
CREATE TABLE logs (
    no         INTEGER NOT NULL PRIMARY KEY,
    session_id TEXT    NOT NULL UNIQUE
);

-- The hot row of a session. What is large is in session_pins and session_docs.
CREATE TABLE sessions (
    no               INTEGER NOT NULL PRIMARY KEY,
    id               TEXT    NOT NULL UNIQUE,
    agent_id         TEXT    NOT NULL,
    owner_user_id    TEXT    NOT NULL,
    sandbox_id       TEXT,
    manifest_hash    TEXT    NOT NULL,
    status           TEXT    NOT NULL,
    active_turn_id   TEXT,
    last_turn_id     TEXT,
    owner            TEXT,
    epoch            BIGINT  NOT NULL,
    owner_expires_at BIGINT
);
CREATE INDEX sessions_agent ON sessions (agent_id, id);
CREATE INDEX sessions_owner_user ON sessions (owner_user_id, id);
CREATE INDEX sessions_at_work ON sessions (id) WHERE status IN ('runnable', 'running');

CREATE TABLE session_pins (
    no                     INTEGER NOT NULL PRIMARY KEY REFERENCES sessions (no) ON DELETE CASCADE,
    implementation_version TEXT    NOT NULL,
    plugin_roots           TEXT,
    info                   TEXT,
    creation               TEXT    NOT NULL,
    vault_ids              TEXT,
    credential_selections  TEXT,
    sandbox_owner_id       TEXT,
    sandbox                TEXT,
    sandbox_source         TEXT,
    mcp_snapshot           TEXT,
    mcp_diagnostics        TEXT,
    created_at             BIGINT  NOT NULL
);

CREATE TABLE session_docs (
    no               INTEGER NOT NULL PRIMARY KEY REFERENCES sessions (no) ON DELETE CASCADE,
    checkpoint       TEXT,
    state            TEXT,
    turn_start_state TEXT,
    history_from     BIGINT,
    history_snapshot BIGINT,
    waits            TEXT,
    error            TEXT,
    last_output      TEXT,
    variants         TEXT
);

CREATE TABLE manifests (
    hash TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL
);

CREATE TABLE definitions (
    id                     TEXT NOT NULL PRIMARY KEY,
    manifest_hash          TEXT NOT NULL,
    implementation_version TEXT NOT NULL,
    plugin_roots           TEXT
);

CREATE TABLE commands (
    id       INTEGER NOT NULL PRIMARY KEY,
    log_no   BIGINT  NOT NULL,
    key      TEXT    NOT NULL,
    digest   TEXT    NOT NULL,
    response TEXT    NOT NULL,
    UNIQUE (log_no, key)
);

CREATE TABLE effects (
    no           INTEGER NOT NULL PRIMARY KEY,
    id           TEXT    NOT NULL UNIQUE,
    log_no       BIGINT  NOT NULL,
    turn_id      TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    request_hash TEXT    NOT NULL,
    request      TEXT    NOT NULL,
    outcome      TEXT,
    error        TEXT,
    attempts     BIGINT  NOT NULL,
    slimmed      BOOLEAN NOT NULL,
    -- The session's number until the effect is completed or cancelled, then null: what the partial index holds.
    open_in      BIGINT
);
CREATE INDEX effects_open ON effects (open_in) WHERE open_in IS NOT NULL;

-- The record. A rowid table with a narrow unique index: appends stay at the end of the table whatever the session.
CREATE TABLE events (
    no      INTEGER NOT NULL PRIMARY KEY,
    log_no  BIGINT  NOT NULL,
    seq     BIGINT  NOT NULL,
    kind    TEXT    NOT NULL,
    turn_id TEXT,
    body    TEXT    NOT NULL,
    UNIQUE (log_no, seq)
);

CREATE TABLE fold_snapshots (
    no      INTEGER NOT NULL PRIMARY KEY,
    log_no  BIGINT  NOT NULL,
    cursor  BIGINT  NOT NULL,
    base    BIGINT  NOT NULL,
    keep    BIGINT  NOT NULL,
    entries TEXT    NOT NULL,
    UNIQUE (log_no, cursor)
);

CREATE TABLE wakes (
    -- The oldest come first, and no number is given twice: a late report on a wake that is gone hits no other.
    id         INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    log_no     BIGINT  NOT NULL,
    reason     TEXT    NOT NULL,
    dedupe_key TEXT,
    created_at BIGINT  NOT NULL,
    attempts   BIGINT  NOT NULL,
    retry_at   BIGINT,
    parked_at  BIGINT
);
CREATE INDEX wakes_log ON wakes (log_no);

CREATE TABLE settings (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE principals (
    id         TEXT   NOT NULL PRIMARY KEY,
    role       TEXT   NOT NULL,
    token_hash TEXT   NOT NULL UNIQUE,
    created_at BIGINT NOT NULL
);

CREATE TABLE credentials (
    vault_id    TEXT   NOT NULL,
    id          TEXT   NOT NULL,
    name        TEXT   NOT NULL,
    kind        TEXT   NOT NULL,
    binding     TEXT   NOT NULL,
    expires_at  TEXT,
    created_at  BIGINT NOT NULL,
    rotated_at  BIGINT,
    kek_id      TEXT   NOT NULL,
    nonce       BLOB   NOT NULL,
    ciphertext  BLOB   NOT NULL,
    wrapped_dek BLOB   NOT NULL,
    PRIMARY KEY (vault_id, id)
);

CREATE TABLE idempotency (
    key       TEXT NOT NULL PRIMARY KEY,
    body_hash TEXT NOT NULL,
    response  TEXT NOT NULL
);

CREATE TABLE audit (
    ord     INTEGER NOT NULL PRIMARY KEY,
    id      TEXT    NOT NULL UNIQUE,
    at      BIGINT  NOT NULL,
    actor   TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    target  TEXT,
    outcome TEXT    NOT NULL
);

CREATE TABLE model_usage (
    id                 TEXT    NOT NULL PRIMARY KEY,
    effect_key         TEXT    NOT NULL,
    session_id         TEXT    NOT NULL,
    turn_id            TEXT    NOT NULL,
    agent_id           TEXT    NOT NULL,
    provider           TEXT,
    model              TEXT,
    input_tokens       BIGINT  NOT NULL,
    output_tokens      BIGINT  NOT NULL,
    total_tokens       BIGINT  NOT NULL,
    cached_tokens      BIGINT  NOT NULL,
    cache_write_tokens BIGINT  NOT NULL,
    reasoning_tokens   BIGINT  NOT NULL,
    cost_usd           DOUBLE  NOT NULL,
    duplicate          BOOLEAN NOT NULL,
    created_at         BIGINT  NOT NULL
);
CREATE INDEX model_usage_effect ON model_usage (effect_key);
