//! The Tenant's signing keys in the store (spec: security, section 5).

use super::StoreResult;
use crate::model::Micros;
use crate::model::json::JsonText;

/// Where a signing key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyState {
    /// Published, so that verifiers know it before it signs.
    Standby,
    /// Signs.
    Current,
    /// Signs no more; what it signed still verifies.
    Previous,
    /// Neither published nor verified with.
    Revoked,
}

impl KeyState {
    /// All of them, in the order in which a key goes through them.
    pub const ALL: [Self; 4] = [Self::Standby, Self::Current, Self::Previous, Self::Revoked];

    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Standby => "standby",
            Self::Current => "current",
            Self::Previous => "previous",
            Self::Revoked => "revoked",
        }
    }

    /// The state of a wire name.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// One signing key.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKeyRow {
    /// `sk_` and a lowercase Crockford ULID; `kid` of what it signs.
    pub id: String,
    /// Where it stands.
    pub state: KeyState,
    /// `ES256`.
    pub alg: String,
    /// `{kty, crv, x, y}`.
    pub public_jwk: JsonText,
    /// When it was made.
    pub created_at: Micros,
    /// When it began to sign.
    pub activated_at: Option<Micros>,
    /// When it ceased to sign.
    pub retired_at: Option<Micros>,
    /// When it was revoked.
    pub revoked_at: Option<Micros>,
    /// Hex SHA-256 of the key that wraps the private half.
    pub kek_id: String,
    /// 12 bytes.
    pub nonce: Vec<u8>,
    /// The private half, PKCS#8 in PEM, sealed: body and tag.
    pub ciphertext: Vec<u8>,
    /// 60 bytes.
    pub wrapped_dek: Vec<u8>,
}

impl std::fmt::Debug for SigningKeyRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKeyRow")
            .field("id", &self.id)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// What can be read of signing keys.
pub trait KeyReads {
    /// All of them, revoked ones too, by id.
    fn signing_keys(&mut self) -> StoreResult<Vec<SigningKeyRow>>;
    /// One by its id.
    fn signing_key(&mut self, id: &str) -> StoreResult<Option<SigningKeyRow>>;
    /// The one that signs.
    fn current_signing_key(&mut self) -> StoreResult<Option<SigningKeyRow>>;
}

/// What is written of signing keys. There is at most one standby, one current and one previous key at any time: a write
/// that would make a second one fails with [`StoreError::Conflict`](super::StoreError::Conflict).
pub trait KeyTx {
    /// Writes a new key.
    ///
    /// # Errors
    /// [`StoreError::Conflict`](super::StoreError::Conflict) when the id exists or its state is taken.
    fn insert_signing_key(&mut self, row: &SigningKeyRow) -> StoreResult<()>;
    /// Writes a key's state and its times, and nothing else of it.
    ///
    /// # Errors
    /// [`StoreError::Missing`](super::StoreError::Missing) without the key, [`StoreError::Conflict`](super::StoreError::Conflict) when its new state is taken.
    fn put_signing_key_state(&mut self, row: &SigningKeyRow) -> StoreResult<()>;
}
