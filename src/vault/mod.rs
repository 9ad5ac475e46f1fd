//! Envelope encryption and what is kept with it (spec: security, section 6).
//!
//! A [`Vault`] holds the key encryption key of the Tenant. It seals and opens in memory only and never writes to the
//! store itself: that is the rules' work, inside their transaction. Keys and plaintext are wiped when they are dropped
//! and appear in no `Debug` text, no log and no error.

mod kek;
pub mod providers;
mod seal;

use std::path::Path;

use nylorun_actors::model::canonical::canonical;
use nylorun_actors::model::json::Json;
use nylorun_actors::ports::store::CredentialRow;
use nylorun_actors::rules::models::{ModelBinding, Sealed};
use zeroize::Zeroizing;

pub use kek::{KEK_FILE, Kek};
pub use providers::SealedProviders;

/// Why a vault does not work.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The key's file could not be read or written.
    #[error("the vault key file {path} cannot be used: {source}")]
    File {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The key's file does not hold 32 bytes in base64.
    #[error("the vault key file {0} does not hold a key of 32 bytes in base64")]
    Malformed(String),
    /// A sealed value does not open; nothing more is said on purpose.
    #[error("credential could not be read")]
    Unreadable,
}

/// Seals and opens the Tenant's secrets.
#[derive(Debug)]
pub struct Vault {
    kek: Kek,
}

impl Vault {
    /// A vault with this key.
    #[must_use]
    pub fn new(kek: Kek) -> Self {
        Self { kek }
    }

    /// The vault of a home directory; `None` when it has no key file yet.
    ///
    /// # Errors
    /// [`VaultError::File`] and [`VaultError::Malformed`].
    pub fn load(home: &Path) -> Result<Option<Self>, VaultError> {
        Ok(Kek::load(home)?.map(Self::new))
    }

    /// The vault of a home directory; its key is made when there is none. Not for a Tenant that already has sealed
    /// rows: they would be unreadable for ever.
    ///
    /// # Errors
    /// [`VaultError::File`] and [`VaultError::Malformed`].
    pub fn load_or_create(home: &Path) -> Result<Self, VaultError> {
        Kek::load_or_create(home).map(Self::new)
    }

    /// Hex SHA-256 of the key.
    #[must_use]
    pub fn kek_id(&self) -> &str {
        self.kek.id()
    }

    /// Seals a plaintext under associated data.
    ///
    /// # Errors
    /// [`VaultError::Unreadable`] when the cipher refuses, which it does for no size that fits memory.
    pub fn seal(&self, aad: &str, plaintext: &[u8]) -> Result<Sealed, VaultError> {
        seal::seal(&self.kek, aad.as_bytes(), plaintext)
    }

    /// Opens what [`Vault::seal`] made.
    ///
    /// # Errors
    /// [`VaultError::Unreadable`], without detail.
    pub fn open(&self, aad: &str, sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        seal::open(&self.kek, aad.as_bytes(), sealed)
    }

    /// Opens the credential of a model provider.
    ///
    /// # Errors
    /// [`VaultError::Unreadable`].
    pub fn open_model(&self, row: &CredentialRow) -> Result<(ModelBinding, Zeroizing<Vec<u8>>), VaultError> {
        let binding: ModelBinding = row.binding.decode().map_err(|_| VaultError::Unreadable)?;
        let plaintext = self.open(&binding.aad(), &Sealed::of(row))?;
        Ok((binding, plaintext))
    }

    /// A keyed hash of a body: what an idempotency row keeps, so that a stolen row does not let anybody guess the
    /// secret inside the body (spec: security, section 17, item 9).
    #[must_use]
    pub fn fingerprint(&self, body: &Json) -> String {
        let text = Zeroizing::new(canonical(body));
        seal::fingerprint(&self.kek, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_of_the_key_is_in_the_debug_text() {
        let vault = Vault::new(Kek::from_bytes([7; 32]));
        let text = format!("{vault:?}");
        assert!(!text.contains("7, 7") && !text.contains(vault.kek_id()), "{text}");
    }

    #[test]
    fn a_fingerprint_depends_on_the_body_and_on_the_key_but_not_on_the_order_of_members() {
        let (a, b) = (Vault::new(Kek::from_bytes([1; 32])), Vault::new(Kek::from_bytes([2; 32])));
        let body = json!({"x": 1, "y": 2});
        assert_eq!(a.fingerprint(&body), a.fingerprint(&json!({"y": 2, "x": 1})));
        assert_ne!(a.fingerprint(&body), a.fingerprint(&json!({"x": 1, "y": 3})));
        assert_ne!(a.fingerprint(&body), b.fingerprint(&body));
    }
}
