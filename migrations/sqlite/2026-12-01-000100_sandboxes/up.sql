-- Sandbox resources: named sandboxes that outlive sessions.
CREATE TABLE sandboxes (
    id         TEXT   NOT NULL PRIMARY KEY,
    kind       TEXT   NOT NULL,
    spec       TEXT   NOT NULL,
    labels     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- Their events. They outlive the resource, and one made again under its id goes on numbering.
CREATE TABLE sandbox_events (
    no         INTEGER NOT NULL PRIMARY KEY,
    sandbox_id TEXT    NOT NULL,
    seq        BIGINT  NOT NULL,
    body       TEXT    NOT NULL,
    UNIQUE (sandbox_id, seq)
);

-- Outbox: workspaces of deleted sandboxes whose files are still to be removed.
CREATE TABLE sandbox_removals (
    sandbox_id TEXT   NOT NULL PRIMARY KEY,
    since      BIGINT NOT NULL
);

CREATE INDEX sessions_sandbox ON sessions (sandbox_id, id) WHERE sandbox_id IS NOT NULL;
CREATE INDEX sessions_sandbox_busy ON sessions (sandbox_id, id)
    WHERE sandbox_id IS NOT NULL AND active_turn_id IS NOT NULL;
