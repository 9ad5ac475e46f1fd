//! The Tenant's signing keys (spec: security, section 5; http-api, section 14): one signs, the next is published ahead of
//! its time, the last still verifies. Key material is made before the transaction and handed in.

use serde_json::json;

use super::models::Sealed;
use super::{Refusal, settings};
use crate::limits::{SIGNING_KEY_REST_MS, TOKEN_TTL_MS};
use crate::model::Micros;
use crate::model::ids::is_ulid_id;
use crate::model::json::{Json, JsonText};
use crate::ports::store::{KeyState, SigningKeyRow, StoreError, Tx};

/// What every signing key's id begins with.
pub const KEY_PREFIX: &str = "sk_";

/// The only algorithm.
pub const ALG: &str = "ES256";

/// Keys that [`ensure`] may need.
pub const ENSURE_KEYS: usize = 2;

/// Keys that [`rotate`] may need.
pub const ROTATE_KEYS: usize = 3;

/// A key that was made just now.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// `sk_…`.
    pub id: String,
    /// `{kty, crv, x, y}`.
    pub public_jwk: JsonText,
    /// Its private half.
    pub sealed: Sealed,
}

/// Keys at hand for one transaction. What is not needed is thrown away.
#[derive(Debug)]
pub struct Fresh(Vec<NewKey>);

impl Fresh {
    /// Of at least as many keys as the rule may need.
    #[must_use]
    pub fn new(keys: Vec<NewKey>) -> Self {
        Self(keys)
    }

    fn take(&mut self, state: KeyState, now: Micros) -> Result<SigningKeyRow, StoreError> {
        let key = self.0.pop().ok_or_else(|| StoreError::Missing("a fresh signing key".to_owned()))?;
        Ok(SigningKeyRow {
            id: key.id,
            state,
            alg: ALG.to_owned(),
            public_jwk: key.public_jwk,
            created_at: now,
            activated_at: (state == KeyState::Current).then_some(now),
            retired_at: None,
            revoked_at: None,
            kek_id: key.sealed.kek_id,
            nonce: key.sealed.nonce,
            ciphertext: key.sealed.ciphertext,
            wrapped_dek: key.sealed.wrapped_dek,
        })
    }
}

impl From<&SigningKeyRow> for Sealed {
    fn from(row: &SigningKeyRow) -> Self {
        Self {
            kek_id: row.kek_id.clone(),
            nonce: row.nonce.clone(),
            ciphertext: row.ciphertext.clone(),
            wrapped_dek: row.wrapped_dek.clone(),
        }
    }
}

/// Associated data of a sealed private half.
#[must_use]
pub fn aad(tenant: &str, key: &str) -> String {
    format!("nylorun.signing-key:{tenant}:{key}")
}

/// Whether a text may be the id of a signing key.
#[must_use]
pub fn is_key_id(text: &str) -> bool {
    is_ulid_id(text, KEY_PREFIX)
}

/// The key of these rows in a state.
#[must_use]
pub fn in_state(rows: &[SigningKeyRow], state: KeyState) -> Option<&SigningKeyRow> {
    rows.iter().find(|row| row.state == state)
}

/// Whether a set of keys can be published: one signs and its successor is known.
#[must_use]
pub fn is_complete(rows: &[SigningKeyRow]) -> bool {
    in_state(rows, KeyState::Current).is_some() && in_state(rows, KeyState::Standby).is_some()
}

/// Sees to it that there are a current and a standby key, and answers all of them. Needs up to [`ENSURE_KEYS`] keys.
///
/// # Errors
/// The store's. The loser of a race finds the winner's keys here, since it reads them in its own transaction.
pub fn ensure(tx: &mut dyn Tx, fresh: &mut Fresh) -> Result<Vec<SigningKeyRow>, StoreError> {
    let rows = tx.signing_keys()?;
    if is_complete(&rows) {
        return Ok(rows);
    }
    let now = tx.now();
    let mut has_standby = in_state(&rows, KeyState::Standby).is_some();
    if in_state(&rows, KeyState::Current).is_none() {
        match in_state(&rows, KeyState::Standby) {
            Some(row) => {
                activate(tx, row, now)?;
                has_standby = false;
            }
            None => tx.insert_signing_key(&fresh.take(KeyState::Current, now)?)?,
        }
    }
    if !has_standby {
        tx.insert_signing_key(&fresh.take(KeyState::Standby, now)?)?;
    }
    tx.signing_keys()
}

/// Gives the signing to the standby key, and answers all keys. Needs up to [`ROTATE_KEYS`] keys.
///
/// # Errors
/// 409 with `retryAfterSeconds` while tokens of the previous key may live, unless `force`; the store's.
pub fn rotate(
    tx: &mut dyn Tx,
    fresh: &mut Fresh,
    force: bool,
    actor: &str,
) -> Result<Vec<SigningKeyRow>, Refusal> {
    let rows = ensure(tx, fresh)?;
    let now = tx.now();
    if let Some(previous) = in_state(&rows, KeyState::Previous) {
        let wait = previous.retired_at.map_or(0, |at| at.plus_ms(SIGNING_KEY_REST_MS).0 - now.0);
        if wait > 0 && !force {
            return Err(Refusal::Conflict {
                message: "Tokens of the previous key may still be alive".to_owned(),
                active_turn: None,
                details: Some(json!({"retryAfterSeconds": wait.unsigned_abs().div_ceil(1_000_000)})),
            });
        }
        retire_for_good(tx, previous, now)?;
    }
    // In this order no two keys are ever in one state.
    if let Some(current) = in_state(&rows, KeyState::Current) {
        let mut row = current.clone();
        (row.state, row.retired_at) = (KeyState::Previous, Some(now));
        tx.put_signing_key_state(&row)?;
    }
    if let Some(standby) = in_state(&rows, KeyState::Standby) {
        activate(tx, standby, now)?;
    }
    let standby = fresh.take(KeyState::Standby, now)?;
    tx.insert_signing_key(&standby)?;
    settings::audit(tx, actor, "signing_key.rotate", None)?;
    Ok(tx.signing_keys()?)
}

/// Revokes a key: nothing that it signed verifies any more. A revoked one stays as it is.
///
/// # Errors
/// 404 for an unknown or malformed id, 409 for the current key, the store's.
pub fn revoke(tx: &mut dyn Tx, id: &str, actor: &str) -> Result<SigningKeyRow, Refusal> {
    let found = if is_key_id(id) { tx.signing_key(id)? } else { None };
    let row = found.ok_or_else(|| Refusal::not_found("signing key"))?;
    match row.state {
        KeyState::Revoked => Ok(row),
        KeyState::Current => Err(Refusal::conflict("The current key cannot be revoked: rotate first")),
        KeyState::Standby | KeyState::Previous => {
            let now = tx.now();
            let row = retire_for_good(tx, &row, now)?;
            settings::audit(tx, actor, "signing_key.revoke", Some(id))?;
            Ok(row)
        }
    }
}

fn activate(tx: &mut dyn Tx, row: &SigningKeyRow, now: Micros) -> Result<(), StoreError> {
    let mut row = row.clone();
    (row.state, row.activated_at) = (KeyState::Current, Some(now));
    tx.put_signing_key_state(&row)
}

fn retire_for_good(tx: &mut dyn Tx, row: &SigningKeyRow, now: Micros) -> Result<SigningKeyRow, StoreError> {
    let mut row = row.clone();
    (row.state, row.revoked_at) = (KeyState::Revoked, Some(now));
    tx.put_signing_key_state(&row)?;
    Ok(row)
}

/// A key as applications see it.
///
/// # Errors
/// [`StoreError::Corrupt`].
pub fn view(row: &SigningKeyRow) -> Result<Json, StoreError> {
    let at = |at: Option<Micros>| at.map(Micros::to_iso);
    Ok(json!({
        "id": row.id,
        "state": row.state.as_str(),
        "alg": row.alg,
        "publicKey": public(row)?,
        "createdAt": row.created_at.to_iso(),
        "activatedAt": at(row.activated_at),
        "retiredAt": at(row.retired_at),
        "revokedAt": at(row.revoked_at),
    }))
}

/// The set that verifiers fetch: every key that is not revoked.
///
/// # Errors
/// [`StoreError::Corrupt`].
pub fn jwks(rows: &[SigningKeyRow]) -> Result<Json, StoreError> {
    let published = rows.iter().filter(|row| row.state != KeyState::Revoked);
    let keys = published.map(|row| {
        let jwk = public(row)?;
        Ok(json!({
            "kty": jwk["kty"], "crv": jwk["crv"], "x": jwk["x"], "y": jwk["y"],
            "kid": row.id, "alg": row.alg, "use": "sig",
        }))
    });
    Ok(json!({"keys": keys.collect::<Result<Vec<Json>, StoreError>>()?}))
}

fn public(row: &SigningKeyRow) -> Result<Json, StoreError> {
    row.public_jwk.decode().map_err(|_| StoreError::Corrupt(format!("signing key {}", row.id)))
}

// A key rests at least as long as its longest token lives, and the clocks' tolerance.
const _: () = assert!(SIGNING_KEY_REST_MS >= TOKEN_TTL_MS + 60_000);

#[cfg(test)]
mod tests;
