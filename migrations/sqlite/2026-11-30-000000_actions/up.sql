-- Actions and the endpoints that do them. A pending Action is its own place in the outbox.

CREATE TABLE actions (
    no          INTEGER NOT NULL PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    session_id  TEXT    NOT NULL,
    turn_id     TEXT    NOT NULL,
    agent_id    TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    generation  BIGINT  NOT NULL,
    deadline_at BIGINT,
    retry_at    BIGINT,
    parked_at   BIGINT,
    since       BIGINT  NOT NULL,
    body        TEXT    NOT NULL,
    receipt     TEXT,
    -- The agent while somebody may still do it, then null: what the partial index holds.
    open_for    TEXT
);
CREATE INDEX actions_open ON actions (open_for, session_id) WHERE open_for IS NOT NULL;
CREATE INDEX actions_session ON actions (session_id);

CREATE TABLE endpoints (
    agent_id               TEXT   NOT NULL PRIMARY KEY,
    url                    TEXT   NOT NULL,
    implementation_version TEXT   NOT NULL,
    manifest_hash          TEXT,
    timeout_ms             BIGINT NOT NULL,
    max_concurrent         BIGINT NOT NULL,
    health                 TEXT   NOT NULL,
    updated_at             BIGINT NOT NULL
);
