//! Settings, principals, credentials, answers, audit and usage of the in-memory store.

use super::tx::MemoryTx;
use crate::ports::store::{
    AuditRow, CredentialRow, IdempotencyRow, PrincipalRow, StoreError, StoreResult, TenantReads, TenantTx,
    UsageRow,
};

impl TenantReads for MemoryTx<'_> {
    fn setting(&mut self, key: &str) -> StoreResult<Option<String>> {
        Ok(self.data.tables.settings.get(key).cloned())
    }

    fn principal_by_hash(&mut self, hash: &str) -> StoreResult<Option<PrincipalRow>> {
        Ok(self.data.tables.principals.values().find(|p| p.token_hash == hash).cloned())
    }

    fn principals(&mut self) -> StoreResult<Vec<PrincipalRow>> {
        Ok(self.data.tables.principals.values().cloned().collect())
    }

    fn credential(&mut self, vault: &str, id: &str) -> StoreResult<Option<CredentialRow>> {
        Ok(self.data.tables.credentials.get(&(vault.to_owned(), id.to_owned())).cloned())
    }

    fn credentials(&mut self, vault: &str) -> StoreResult<Vec<CredentialRow>> {
        Ok(self.data.tables.credentials.values().filter(|c| c.vault_id == vault).cloned().collect())
    }

    fn idempotency(&mut self, key: &str) -> StoreResult<Option<IdempotencyRow>> {
        Ok(self.data.tables.idempotency.get(key).cloned())
    }

    fn usage_of_effect(&mut self, effect: &str) -> StoreResult<Vec<UsageRow>> {
        let mut rows: Vec<_> =
            self.data.tables.usage.values().filter(|u| u.effect_key == effect).cloned().collect();
        rows.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(rows)
    }
}

impl TenantTx for MemoryTx<'_> {
    fn put_setting(&mut self, key: &str, value: &str) -> StoreResult<()> {
        self.set(|t| &mut t.settings, key.to_owned(), Some(value.to_owned()));
        Ok(())
    }

    fn delete_setting(&mut self, key: &str) -> StoreResult<()> {
        self.set(|t| &mut t.settings, key.to_owned(), None);
        Ok(())
    }

    fn put_principal(&mut self, row: &PrincipalRow) -> StoreResult<()> {
        let taken =
            self.data.tables.principals.values().any(|p| p.token_hash == row.token_hash && p.id != row.id);
        if taken {
            return Err(StoreError::Conflict("another principal has this key".to_owned()));
        }
        self.set(|t| &mut t.principals, row.id.clone(), Some(row.clone()));
        Ok(())
    }

    fn delete_principal(&mut self, id: &str) -> StoreResult<bool> {
        let there = self.data.tables.principals.contains_key(id);
        self.set(|t| &mut t.principals, id.to_owned(), None);
        Ok(there)
    }

    fn put_credential(&mut self, row: &CredentialRow) -> StoreResult<()> {
        self.set(|t| &mut t.credentials, (row.vault_id.clone(), row.id.clone()), Some(row.clone()));
        Ok(())
    }

    fn delete_credential(&mut self, vault: &str, id: &str) -> StoreResult<bool> {
        let key = (vault.to_owned(), id.to_owned());
        let there = self.data.tables.credentials.contains_key(&key);
        self.set(|t| &mut t.credentials, key, None);
        Ok(there)
    }

    fn put_idempotency(&mut self, key: &str, row: &IdempotencyRow) -> StoreResult<()> {
        self.insert(|t| &mut t.idempotency, key.to_owned(), row.clone())
    }

    fn put_audit(&mut self, row: &AuditRow) -> StoreResult<()> {
        self.insert(|t| &mut t.audit, row.id.clone(), row.clone())
    }

    fn put_usage(&mut self, row: &UsageRow) -> StoreResult<()> {
        self.insert(|t| &mut t.usage, row.id.clone(), row.clone())
    }
}
