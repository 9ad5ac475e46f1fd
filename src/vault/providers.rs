//! The Tenant's model providers, opened from the sealed store for each call (spec: security, section 12.1).

use std::sync::{Arc, PoisonError, RwLock};

use futures_util::future::LocalBoxFuture;
use nylorun_actors::model::json::{Json, decode};
use nylorun_actors::ports::store::{CredentialRow, StoreHandle, StoreResult};
use nylorun_actors::rules::{models, settings};
use secrecy::SecretString;
use zeroize::{Zeroize as _, Zeroizing};

use super::{Vault, VaultError};
use crate::engine::model::provider::{ProviderConfig, ProviderSettings};
use crate::engine::model::router::ProviderSource;
use crate::engine::model::script::FixtureScript;

/// What the engine and the API share of the model settings.
pub struct SealedProviders {
    store: StoreHandle,
    vault: Arc<Vault>,
    /// Kept here because a run asks for it without waiting.
    script: RwLock<Option<Arc<FixtureScript>>>,
}

impl SealedProviders {
    /// The settings of a store, its fixture script read.
    ///
    /// # Errors
    /// The store's.
    pub async fn load(store: StoreHandle, vault: Arc<Vault>) -> StoreResult<Self> {
        let providers = Self { store, vault, script: RwLock::default() };
        providers.reload_script().await?;
        Ok(providers)
    }

    /// The vault that they are sealed with.
    #[must_use]
    pub fn vault(&self) -> &Arc<Vault> {
        &self.vault
    }

    /// Reads the fixture script again, after it was changed.
    ///
    /// # Errors
    /// The store's.
    pub async fn reload_script(&self) -> StoreResult<()> {
        let text = self.store.read(|reads| settings::fixture_script(reads)).await?;
        let script = text.and_then(|text| match FixtureScript::parse(&text.decode().ok()?) {
            Ok(script) => Some(Arc::new(script)),
            Err(problems) => {
                tracing::warn!(problems = problems.len(), "the stored fixture script cannot be read");
                None
            }
        });
        *self.script.write().unwrap_or_else(PoisonError::into_inner) = script;
        Ok(())
    }
}

impl ProviderSource for SealedProviders {
    fn active(&self) -> LocalBoxFuture<'static, Result<Option<ProviderConfig>, String>> {
        let (store, vault) = (self.store.clone(), Arc::clone(&self.vault));
        Box::pin(async move {
            let row = store.read(|reads| models::active(reads)).await.map_err(|error| error.to_string())?;
            row.map(|row| config(&vault, &row).map_err(|error| error.to_string())).transpose()
        })
    }

    fn fixture_script(&self) -> Option<Arc<FixtureScript>> {
        self.script.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn config(vault: &Vault, row: &CredentialRow) -> Result<ProviderConfig, VaultError> {
    let (binding, plaintext) = vault.open_model(row)?;
    let secret = Secret::read(&plaintext).ok_or(VaultError::Unreadable)?;
    let settings = match &binding.settings {
        Some(settings) => ProviderSettings::parse(settings).map_err(|_| VaultError::Unreadable)?,
        None => ProviderSettings::default(),
    };
    Ok(ProviderConfig {
        provider: binding.provider,
        model: binding.model,
        base_url: binding.base_url,
        settings,
        key: secret.key,
        other_secrets: secret.others,
    })
}

/// What a sealed model credential holds: `{apiKey, env?}` or `{oauth: {…}}`.
struct Secret {
    key: SecretString,
    others: Vec<SecretString>,
}

impl Secret {
    fn read(plaintext: &[u8]) -> Option<Self> {
        let mut value: Json = decode(plaintext).ok()?;
        let secret = Self::of(&value);
        wipe(&mut value);
        secret
    }

    fn of(value: &Json) -> Option<Self> {
        let text = |value: &Json| value.as_str().map(SecretString::from);
        if let Some(oauth) = value.get("oauth") {
            let key = text(oauth.get("access")?)?;
            return Some(Self { key, others: oauth.get("refresh").and_then(text).into_iter().collect() });
        }
        let env = value.get("env").and_then(Json::as_object);
        let others = env.into_iter().flat_map(|env| env.values()).filter_map(text).collect();
        Some(Self { key: text(value.get("apiKey")?)?, others })
    }
}

/// The plaintext to seal for the `auth` of a checked request. The request's own copy is wiped.
#[must_use]
pub fn plaintext(auth: &mut Json) -> Zeroizing<Vec<u8>> {
    use nylorun_actors::model::json::{JsonMap, encode};

    let is_key = auth.get("type").and_then(Json::as_str) == Some("api_key");
    let mut sealed = JsonMap::new();
    if let Some(members) = auth.as_object_mut() {
        if is_key {
            for (from, to) in [("key", "apiKey"), ("env", "env")] {
                if let Some(value) = members.remove(from) {
                    sealed.insert(to.to_owned(), value);
                }
            }
        } else {
            members.remove("type");
            sealed.insert("oauth".to_owned(), Json::Object(std::mem::take(members)));
        }
    }
    let mut sealed = Json::Object(sealed);
    let text = Zeroizing::new(encode(&sealed).into_bytes());
    wipe(&mut sealed);
    text
}

/// Overwrites every string of a value. What a parser or an allocator copied on its way is out of reach.
pub fn wipe(value: &mut Json) {
    match value {
        Json::String(text) => text.zeroize(),
        Json::Array(items) => items.iter_mut().for_each(wipe),
        Json::Object(map) => map.values_mut().for_each(wipe),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::Kek;
    use nylorun_actors::model::json::JsonText;
    use nylorun_actors::model::time::Micros;
    use nylorun_actors::rules::models::ModelBinding;
    use secrecy::ExposeSecret as _;
    use serde_json::json;

    fn stored(mut auth: Json, vault: &Vault) -> CredentialRow {
        let binding = ModelBinding {
            provider: "custom".into(),
            model: "m".into(),
            auth_type: "api_key".into(),
            base_url: Some("http://127.0.0.1:9".into()),
            settings: Some(json!({"maxTokens": 7})),
        };
        let sealed = vault.seal(&binding.aad(), &plaintext(&mut auth)).expect("sealed");
        CredentialRow {
            id: "host-model:custom".into(),
            vault_id: "host".into(),
            name: "custom".into(),
            kind: "model".into(),
            binding: JsonText::of(&binding),
            expires_at: None,
            created_at: Micros(0),
            rotated_at: None,
            kek_id: sealed.kek_id,
            nonce: sealed.nonce,
            ciphertext: sealed.ciphertext,
            wrapped_dek: sealed.wrapped_dek,
        }
    }

    #[test]
    fn a_sealed_provider_opens_into_its_configuration() {
        let vault = Vault::new(Kek::from_bytes([1; 32]));
        let row = stored(json!({"type": "api_key", "key": "k-1", "env": {"A": "secret-a"}}), &vault);
        let found = config(&vault, &row).expect("opens");
        assert_eq!((found.provider.as_str(), found.model.as_str()), ("custom", "m"));
        assert_eq!(found.settings.max_tokens, Some(7));
        assert_eq!(found.key.expose_secret(), "k-1");
        assert_eq!(found.other_secrets[0].expose_secret(), "secret-a");
        let row = stored(json!({"type": "oauth", "access": "a", "refresh": "r", "expires": 1}), &vault);
        let found = config(&vault, &row).expect("opens");
        assert_eq!(found.key.expose_secret(), "a");
        assert_eq!(found.other_secrets[0].expose_secret(), "r");
    }

    #[test]
    fn a_row_moved_under_another_binding_does_not_open() {
        let vault = Vault::new(Kek::from_bytes([1; 32]));
        let mut row = stored(json!({"type": "api_key", "key": "k-1"}), &vault);
        let mut binding: ModelBinding = row.binding.decode().expect("a binding");
        binding.model = "other".into();
        row.binding = JsonText::of(&binding);
        assert!(matches!(config(&vault, &row), Err(VaultError::Unreadable)));
    }

    #[test]
    fn the_requests_own_copy_of_a_key_is_wiped() {
        let mut auth = json!({"type": "api_key", "key": "k-1", "env": {"A": "b"}});
        let text = plaintext(&mut auth);
        assert_eq!(text.as_slice(), br#"{"apiKey":"k-1","env":{"A":"b"}}"#);
        assert!(!auth.to_string().contains("k-1"));
    }
}
