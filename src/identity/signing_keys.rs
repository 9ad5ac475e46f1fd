//! The Tenant's signing keys at work: made, sealed, opened and remembered (spec: security, section 5).
//!
//! What a key may do is asked of the store each time, so that a rotation or a revocation counts at once in every
//! process. Only the key objects are remembered: the current private one, and public ones by kid.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use josekit::jwk::Jwk;
use josekit::jwk::KeyPair as _;
use josekit::jws::ES256;
use josekit::jws::alg::ecdsa::{EcdsaJwsSigner, EcdsaJwsVerifier};
use nylorun_actors::model::ids::{TenantId, ulid};
use nylorun_actors::model::json::{Json, JsonMap, JsonText};
use nylorun_actors::ports::store::{KeyState, SigningKeyRow, StoreHandle};
use nylorun_actors::ports::{Clock, Entropy, StoreError};
use nylorun_actors::rules::models::Sealed;
use nylorun_actors::rules::signing::{self, ENSURE_KEYS, Fresh, KEY_PREFIX, NewKey, ROTATE_KEYS};
use serde_json::json;
use zeroize::Zeroizing;

use super::IdentityError;
use crate::vault::Vault;

/// Public key objects remembered. There are three living keys at a time; the rest are revoked ones that somebody asks for.
pub const KNOWN_PUBLIC_KEYS: usize = 64;

/// Who writes keys when nobody asked for it.
const HOST: &str = "host";

/// The Tenant's signing keys.
pub struct SigningKeys {
    store: StoreHandle,
    vault: Arc<Vault>,
    tenant: TenantId,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    private: Mutex<Option<Arc<Signer>>>,
    public: RwLock<HashMap<String, Arc<EcdsaJwsVerifier>>>,
}

/// The current key, ready to sign.
pub(super) struct Signer {
    pub kid: String,
    pub key: EcdsaJwsSigner,
}

/// A key that something claims to be signed with.
pub(super) struct Known {
    pub revoked: bool,
    pub key: Arc<EcdsaJwsVerifier>,
}

impl SigningKeys {
    /// The keys of this Tenant, in this store, sealed by this vault.
    #[must_use]
    pub fn new(
        store: StoreHandle,
        vault: Arc<Vault>,
        tenant: TenantId,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self { store, vault, tenant, clock, entropy, private: Mutex::default(), public: RwLock::default() }
    }

    /// `iss` of what they sign.
    #[must_use]
    pub fn issuer(&self) -> String {
        format!("urn:nylorun:tenant:{}", self.tenant)
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(super) fn entropy(&self) -> &dyn Entropy {
        &*self.entropy
    }

    /// All keys, revoked ones too, by id.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self) -> Result<Vec<SigningKeyRow>, IdentityError> {
        Ok(self.store.read(|reads| reads.signing_keys()).await?)
    }

    /// The set that verifiers fetch. Keys that are missing are made first, so that nobody caches a set without the key
    /// that signs next.
    ///
    /// # Errors
    /// The store's, the vault's.
    pub async fn published(&self) -> Result<Json, IdentityError> {
        let rows = self.list().await?;
        let rows = if signing::is_complete(&rows) { rows } else { self.ensure().await? };
        Ok(signing::jwks(&rows)?)
    }

    async fn ensure(&self) -> Result<Vec<SigningKeyRow>, IdentityError> {
        let mut fresh = self.fresh(ENSURE_KEYS)?;
        let before = self.list().await?.len();
        let rows = self.store.tx(move |tx| signing::ensure(tx, &mut fresh)).await?;
        if rows.len() > before {
            tracing::info!(actor = HOST, keys = rows.len(), "signing keys were made");
        }
        Ok(rows)
    }

    /// The standby key signs from now on. Answers all keys.
    ///
    /// # Errors
    /// 409 while tokens of the previous key may live, unless `force`; the store's, the vault's.
    pub async fn rotate(&self, force: bool, actor: &str) -> Result<Vec<SigningKeyRow>, IdentityError> {
        let (mut fresh, who) = (self.fresh(ROTATE_KEYS)?, actor.to_owned());
        let rows = self.store.tx(move |tx| signing::rotate(tx, &mut fresh, force, &who)).await?;
        tracing::info!(actor, force, "the signing key was rotated");
        Ok(rows)
    }

    /// Nothing that this key signed verifies any more.
    ///
    /// # Errors
    /// 404 for an unknown key, 409 for the current one, the store's.
    pub async fn revoke(&self, id: &str, actor: &str) -> Result<SigningKeyRow, IdentityError> {
        let (key, who) = (id.to_owned(), actor.to_owned());
        let row = self.store.tx(move |tx| signing::revoke(tx, &key, &who)).await?;
        tracing::info!(actor, kid = row.id, "a signing key was revoked");
        Ok(row)
    }

    /// The key that signs now.
    pub(super) async fn signer(&self) -> Result<Arc<Signer>, IdentityError> {
        let current = self.store.read(|reads| reads.current_signing_key()).await?;
        let row = match current {
            Some(row) => row,
            None => {
                let rows = self.ensure().await?;
                let missing = || StoreError::Missing("the current signing key".to_owned());
                signing::in_state(&rows, KeyState::Current).cloned().ok_or_else(missing)?
            }
        };
        let known = self.private.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(signer) = known.filter(|signer| signer.kid == row.id) {
            return Ok(signer);
        }
        let aad = signing::aad(self.tenant.as_str(), &row.id);
        let pem = self.vault.open(&aad, &Sealed::from(&row));
        let pem = pem.map_err(|_| IdentityError::Sealed(row.id.clone()))?;
        let mut key =
            ES256.signer_from_pem(&pem).map_err(|_| IdentityError::Library("read a signing key"))?;
        key.set_key_id(&row.id);
        let signer = Arc::new(Signer { kid: row.id, key });
        *self.private.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&signer));
        Ok(signer)
    }

    /// The key of this id, `None` when there is none.
    pub(super) async fn known(&self, kid: &str) -> Result<Option<Known>, StoreError> {
        let id = kid.to_owned();
        let row: Option<SigningKeyRow> = self.store.read(move |reads| reads.signing_key(&id)).await?;
        let Some(row) = row else { return Ok(None) };
        let revoked = row.state == KeyState::Revoked;
        if let Some(key) = self.public.read().unwrap_or_else(PoisonError::into_inner).get(kid) {
            return Ok(Some(Known { revoked, key: Arc::clone(key) }));
        }
        let key = Arc::new(verifier(&row)?);
        let mut public = self.public.write().unwrap_or_else(PoisonError::into_inner);
        if public.len() >= KNOWN_PUBLIC_KEYS {
            public.clear();
        }
        public.insert(row.id, Arc::clone(&key));
        Ok(Some(Known { revoked, key }))
    }

    fn fresh(&self, count: usize) -> Result<Fresh, IdentityError> {
        Ok(Fresh::new((0..count).map(|_| self.make()).collect::<Result<_, _>>()?))
    }

    /// A key pair, its private half sealed before it leaves this function.
    fn make(&self) -> Result<NewKey, IdentityError> {
        let id = format!("{KEY_PREFIX}{}", ulid(self.clock.now().millis(), self.entropy.bits()));
        let pair = ES256.generate_key_pair().map_err(|_| IdentityError::Library("make a signing key"))?;
        let public = pair.to_jwk_public_key();
        let member = |name: &str| public.parameter(name).cloned().unwrap_or_default();
        let public_jwk = json!({"kty": "EC", "crv": member("crv"), "x": member("x"), "y": member("y")});
        let pem = Zeroizing::new(pair.to_pem_private_key());
        let sealed = self.vault.seal(&signing::aad(self.tenant.as_str(), &id), &pem)?;
        Ok(NewKey { id, public_jwk: JsonText::of(&public_jwk), sealed })
    }
}

fn verifier(row: &SigningKeyRow) -> Result<EcdsaJwsVerifier, StoreError> {
    let corrupt = || StoreError::Corrupt(format!("signing key {}", row.id));
    let map: JsonMap = row.public_jwk.decode().map_err(|_| corrupt())?;
    let jwk = Jwk::from_map(map).map_err(|_| corrupt())?;
    ES256.verifier_from_jwk(&jwk).map_err(|_| corrupt())
}
