//! Operator keys (spec: security, section 2; http-api, section 17). Only the SHA-256 of a key is ever kept.

use crate::model::ids::is_operator_key_name;
use crate::ports::store::{AuditRow, PrincipalRow, StoreError, Tx};

/// Why a key is not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// 400 `invalid_request`.
    #[error("A key's name is a lowercase letter, then up to 31 lowercase letters, digits or hyphens")]
    BadName,
    /// 400 `request_rejected`.
    #[error("The name {0} is reserved")]
    Reserved(String),
    /// 404 `not_found`.
    #[error("No key {0}")]
    Unknown(String),
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Whether an operator may write or delete a key of this name.
///
/// # Errors
/// [`KeyError::BadName`] and [`KeyError::Reserved`].
pub fn check_name(id: &str) -> Result<(), KeyError> {
    if id == "studio" {
        return Err(KeyError::Reserved(id.to_owned()));
    }
    if is_operator_key_name(id) { Ok(()) } else { Err(KeyError::BadName) }
}

/// Writes a key, or replaces the one of this name. The second value is whether one was replaced.
///
/// # Errors
/// Of the name, or the store's.
pub fn put(tx: &mut dyn Tx, id: &str, token_hash: &str) -> Result<(PrincipalRow, bool), KeyError> {
    check_name(id)?;
    let rotated = tx.principals()?.iter().any(|row| row.id == id);
    let row = PrincipalRow {
        id: id.to_owned(),
        role: "application".to_owned(),
        token_hash: token_hash.to_owned(),
        created_at: tx.now(),
    };
    tx.put_principal(&row)?;
    audit(tx, if rotated { "key.rotate" } else { "key.create" }, id)?;
    Ok((row, rotated))
}

/// Deletes a key.
///
/// # Errors
/// Of the name, [`KeyError::Unknown`], or the store's.
pub fn delete(tx: &mut dyn Tx, id: &str) -> Result<(), KeyError> {
    check_name(id)?;
    if !tx.delete_principal(id)? {
        return Err(KeyError::Unknown(id.to_owned()));
    }
    audit(tx, "key.delete", id)?;
    Ok(())
}

fn audit(tx: &mut dyn Tx, action: &str, target: &str) -> Result<(), StoreError> {
    let row = AuditRow {
        id: tx.uuid(),
        at: tx.now(),
        actor: "operator".to_owned(),
        action: action.to_owned(),
        target: Some(target.to_owned()),
        outcome: "ok".to_owned(),
    };
    tx.put_audit(&row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_before_anything_is_written() {
        assert_eq!(check_name("ci-1"), Ok(()));
        assert_eq!(check_name("studio"), Err(KeyError::Reserved("studio".into())));
        for bad in ["", "CI", "1x", "pr_1", "a b"] {
            assert_eq!(check_name(bad), Err(KeyError::BadName), "{bad}");
        }
    }
}
