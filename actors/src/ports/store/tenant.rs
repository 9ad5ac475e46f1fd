//! What belongs to the Tenant and not to a session: settings, principals, credentials, answers of idempotent writes, audit,
//! usage.

use super::StoreResult;
use super::rows::{AuditRow, CredentialRow, IdempotencyRow, PrincipalRow, UsageRow};

/// What can be read of it.
pub trait TenantReads {
    /// A Tenant setting.
    fn setting(&mut self, key: &str) -> StoreResult<Option<String>>;
    /// Principal by SHA-256 of its key.
    fn principal_by_hash(&mut self, hash: &str) -> StoreResult<Option<PrincipalRow>>;
    /// Principals by id.
    fn principals(&mut self) -> StoreResult<Vec<PrincipalRow>>;
    /// A sealed credential.
    fn credential(&mut self, vault: &str, id: &str) -> StoreResult<Option<CredentialRow>>;
    /// Credentials of a vault by id.
    fn credentials(&mut self, vault: &str) -> StoreResult<Vec<CredentialRow>>;
    /// A stored answer.
    fn idempotency(&mut self, key: &str) -> StoreResult<Option<IdempotencyRow>>;
    /// Usage rows of an effect, by creation.
    fn usage_of_effect(&mut self, effect: &str) -> StoreResult<Vec<UsageRow>>;
}

/// What a transaction writes of it.
pub trait TenantTx {
    /// Writes a Tenant setting.
    fn put_setting(&mut self, key: &str, value: &str) -> StoreResult<()>;
    /// Deletes a Tenant setting.
    fn delete_setting(&mut self, key: &str) -> StoreResult<()>;
    /// Writes or replaces a principal.
    ///
    /// # Errors
    /// [`StoreError::Conflict`](super::StoreError::Conflict) when another principal has this key.
    fn put_principal(&mut self, row: &PrincipalRow) -> StoreResult<()>;
    /// Deletes a principal; whether it was there.
    fn delete_principal(&mut self, id: &str) -> StoreResult<bool>;
    /// Writes or replaces a credential.
    fn put_credential(&mut self, row: &CredentialRow) -> StoreResult<()>;
    /// Deletes a credential; whether it was there.
    fn delete_credential(&mut self, vault: &str, id: &str) -> StoreResult<bool>;
    /// Keeps an answer.
    ///
    /// # Errors
    /// [`StoreError::Conflict`](super::StoreError::Conflict) when there is one under this key.
    fn put_idempotency(&mut self, key: &str, row: &IdempotencyRow) -> StoreResult<()>;
    /// Appends to the audit.
    fn put_audit(&mut self, row: &AuditRow) -> StoreResult<()>;
    /// Appends to the usage ledger.
    fn put_usage(&mut self, row: &UsageRow) -> StoreResult<()>;
}
