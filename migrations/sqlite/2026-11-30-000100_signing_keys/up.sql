-- The Tenant's signing keys. The private half is sealed under the vault's key.
CREATE TABLE signing_keys (
    id           TEXT   NOT NULL PRIMARY KEY,
    state        TEXT   NOT NULL,
    alg          TEXT   NOT NULL,
    public_jwk   TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    activated_at BIGINT,
    retired_at   BIGINT,
    revoked_at   BIGINT,
    kek_id       TEXT   NOT NULL,
    nonce        BLOB   NOT NULL,
    ciphertext   BLOB   NOT NULL,
    wrapped_dek  BLOB   NOT NULL
);
-- One key stands by, one signs, one is the last that signed.
CREATE UNIQUE INDEX signing_keys_state ON signing_keys (state) WHERE state <> 'revoked';
