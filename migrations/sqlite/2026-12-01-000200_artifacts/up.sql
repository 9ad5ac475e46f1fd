-- Artifacts. Their bytes lie in blobs outside of the database; a blob counts once a row here names it.

CREATE TABLE artifacts (
    id             TEXT   NOT NULL PRIMARY KEY,
    kind           TEXT   NOT NULL,
    name           TEXT   NOT NULL,
    content_type   TEXT   NOT NULL,
    session_id     TEXT,
    latest_version BIGINT NOT NULL,
    labels         TEXT,
    created_at     BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL
);
CREATE INDEX artifacts_session ON artifacts (session_id, id) WHERE session_id IS NOT NULL;

CREATE TABLE artifact_versions (
    artifact_id  TEXT   NOT NULL REFERENCES artifacts (id) ON DELETE CASCADE,
    version      BIGINT NOT NULL,
    blob_key     TEXT   NOT NULL UNIQUE,
    blob_size    BIGINT NOT NULL,
    size         BIGINT NOT NULL,
    sha256       TEXT   NOT NULL,
    content_type TEXT   NOT NULL,
    source       TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (artifact_id, version)
);

-- The files of a folder's version, by their hash. The same bytes are one blob, whoever names them.
CREATE TABLE artifact_content (
    artifact_id TEXT   NOT NULL,
    version     BIGINT NOT NULL,
    sha256      TEXT   NOT NULL,
    blob_key    TEXT   NOT NULL,
    size        BIGINT NOT NULL,
    crc32       BIGINT NOT NULL,
    PRIMARY KEY (artifact_id, version, sha256),
    FOREIGN KEY (artifact_id, version) REFERENCES artifact_versions (artifact_id, version) ON DELETE CASCADE
);
CREATE INDEX artifact_content_hash ON artifact_content (sha256);
CREATE INDEX artifact_content_blob ON artifact_content (blob_key);

-- Bytes of all blobs that are named, each once. Kept by the triggers, so that no way to write a row forgets it.
CREATE TABLE artifact_total (
    singleton INTEGER NOT NULL PRIMARY KEY CHECK (singleton = 1),
    bytes     BIGINT  NOT NULL
);
INSERT INTO artifact_total (singleton, bytes) VALUES (1, 0);

CREATE TRIGGER artifact_version_added AFTER INSERT ON artifact_versions BEGIN
    UPDATE artifact_total SET bytes = bytes + NEW.blob_size;
END;
CREATE TRIGGER artifact_version_removed AFTER DELETE ON artifact_versions BEGIN
    UPDATE artifact_total SET bytes = bytes - OLD.blob_size;
END;
CREATE TRIGGER artifact_content_added AFTER INSERT ON artifact_content
WHEN (SELECT count(*) FROM (SELECT 1 FROM artifact_content WHERE sha256 = NEW.sha256 LIMIT 2)) = 1 BEGIN
    UPDATE artifact_total SET bytes = bytes + NEW.size;
END;
CREATE TRIGGER artifact_content_removed AFTER DELETE ON artifact_content
WHEN NOT EXISTS (SELECT 1 FROM artifact_content WHERE sha256 = OLD.sha256) BEGIN
    UPDATE artifact_total SET bytes = bytes - OLD.size;
END;
