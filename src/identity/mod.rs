//! Who the Tenant is to others: its signing keys and the tokens that it signs (spec: security, sections 4 and 5).
//!
//! [`SigningKeys`] makes key material, seals it with the vault and hands it to the rules; [`tokens`] is what every token
//! has in common, [`delivery`] the one that goes to Action endpoints and comes back. Private halves are in memory as
//! OpenSSL keys only, never in a log, an error or an answer.

pub mod artifact_link;
pub mod delivery;
mod signing_keys;
pub mod tokens;

use nylorun_actors::ports::StoreError;
use nylorun_actors::rules::Refusal;

pub use signing_keys::{KNOWN_PUBLIC_KEYS, SigningKeys};

use crate::vault::VaultError;

/// Why keys could not be used or changed.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A rule said no, or the store.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The private half does not open.
    #[error("the signing key {0} could not be opened")]
    Sealed(String),
    /// The vault does not seal.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// OpenSSL refused; never with a part of a key.
    #[error("the cryptography library refused to {0}")]
    Library(&'static str),
}

impl From<StoreError> for IdentityError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}
