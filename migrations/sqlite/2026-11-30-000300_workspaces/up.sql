-- Which workspaces there are, as whoever has them said last. A row outlives its session until a sweep has removed the
-- workspace, so nothing refers to sessions here.
CREATE TABLE workspaces (
    key        TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL,
    sandbox_id TEXT,
    backend    TEXT NOT NULL,
    image      TEXT NOT NULL,
    state      TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
);
