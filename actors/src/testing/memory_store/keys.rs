//! Signing keys of the in-memory store.

use super::tx::MemoryTx;
use crate::ports::store::{KeyReads, KeyState, KeyTx, SigningKeyRow, StoreError, StoreResult};

impl KeyReads for MemoryTx<'_> {
    fn signing_keys(&mut self) -> StoreResult<Vec<SigningKeyRow>> {
        Ok(self.data.tables.signing_keys.values().cloned().collect())
    }

    fn signing_key(&mut self, id: &str) -> StoreResult<Option<SigningKeyRow>> {
        Ok(self.data.tables.signing_keys.get(id).cloned())
    }

    fn current_signing_key(&mut self) -> StoreResult<Option<SigningKeyRow>> {
        let mut rows = self.data.tables.signing_keys.values();
        Ok(rows.find(|row| row.state == KeyState::Current).cloned())
    }
}

impl KeyTx for MemoryTx<'_> {
    fn insert_signing_key(&mut self, row: &SigningKeyRow) -> StoreResult<()> {
        self.state_is_free(row)?;
        self.insert(|t| &mut t.signing_keys, row.id.clone(), row.clone())
    }

    fn put_signing_key_state(&mut self, row: &SigningKeyRow) -> StoreResult<()> {
        let Some(stored) = self.data.tables.signing_keys.get(&row.id).cloned() else {
            return Err(StoreError::Missing(format!("signing key {}", row.id)));
        };
        self.state_is_free(row)?;
        let changed = SigningKeyRow {
            state: row.state,
            activated_at: row.activated_at,
            retired_at: row.retired_at,
            revoked_at: row.revoked_at,
            ..stored
        };
        self.set(|t| &mut t.signing_keys, row.id.clone(), Some(changed));
        Ok(())
    }
}

impl MemoryTx<'_> {
    fn state_is_free(&self, row: &SigningKeyRow) -> StoreResult<()> {
        let mut others = self.data.tables.signing_keys.values().filter(|other| other.id != row.id);
        if row.state != KeyState::Revoked && others.any(|other| other.state == row.state) {
            return Err(StoreError::Conflict(format!("another key is {}", row.state.as_str())));
        }
        Ok(())
    }
}
