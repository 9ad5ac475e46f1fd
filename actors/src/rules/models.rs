//! The Tenant's model providers: one sealed credential each, one of them active (spec: security, sections 6 and 12.1;
//! http-api, section 15). What is sealed here was sealed by the caller: this crate knows no cryptography.

use serde::{Deserialize, Serialize};

use super::Refusal;
use super::settings::{ACTIVE_PROVIDER, audit};
use crate::model::canonical::canonical;
use crate::model::json::{Json, JsonMap, JsonText};
use crate::ports::store::{CredentialRow, IdempotencyRow, Reads, StoreResult, Tx};

/// The Tenant's own vault.
pub const HOST_VAULT: &str = "host";
const PREFIX: &str = "host-model:";

/// What a provider's credential is bound to. Not secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelBinding {
    /// Catalogue id, or `custom`.
    pub provider: String,
    /// The model that is used.
    pub model: String,
    /// `api_key` or `oauth`.
    pub auth_type: String,
    /// Only of `custom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Only of `custom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Json>,
}

impl ModelBinding {
    /// The associated data of the sealed credential. Its `credentialId` is the literal `host-model`, as peers have it.
    #[must_use]
    pub fn aad(&self) -> String {
        let mut aad = JsonMap::new();
        for (name, value) in [
            ("scope", "host"),
            ("vaultId", HOST_VAULT),
            ("credentialId", "host-model"),
            ("type", "model"),
            ("provider", &self.provider),
            ("model", &self.model),
        ] {
            aad.insert(name.to_owned(), Json::from(value));
        }
        canonical(&Json::Object(aad))
    }

    /// `{configured: true, …}`.
    #[must_use]
    pub fn view(&self) -> Json {
        let mut view = JsonMap::new();
        view.insert("configured".to_owned(), Json::Bool(true));
        view.insert("provider".to_owned(), Json::from(self.provider.as_str()));
        view.insert("model".to_owned(), Json::from(self.model.as_str()));
        view.insert("authType".to_owned(), Json::from(self.auth_type.as_str()));
        if let Some(url) = &self.base_url {
            view.insert("baseUrl".to_owned(), Json::from(url.as_str()));
        }
        if let Some(settings) = &self.settings {
            view.insert("settings".to_owned(), settings.clone());
        }
        Json::Object(view)
    }
}

/// A sealed secret, as the columns keep it.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Hex SHA-256 of the key that wraps it.
    pub kek_id: String,
    /// 12 bytes.
    pub nonce: Vec<u8>,
    /// Body and tag.
    pub ciphertext: Vec<u8>,
    /// 60 bytes.
    pub wrapped_dek: Vec<u8>,
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealed")
    }
}

impl Sealed {
    /// The sealed columns of a row.
    #[must_use]
    pub fn of(row: &CredentialRow) -> Self {
        Self {
            kek_id: row.kek_id.clone(),
            nonce: row.nonce.clone(),
            ciphertext: row.ciphertext.clone(),
            wrapped_dek: row.wrapped_dek.clone(),
        }
    }
}

/// Who writes under which idempotency key.
#[derive(Clone, Debug)]
pub struct Once {
    /// `host-model:<k>` or `host-model-select:<k>`.
    pub key: String,
    /// A hash of the body without its request id.
    pub body_hash: String,
    /// For the audit: `application:<id>`, `subject:<s>`.
    pub actor: String,
}

impl Once {
    fn replay(&self, tx: &mut dyn Tx) -> Result<Option<JsonText>, Refusal> {
        match tx.idempotency(&self.key)? {
            Some(row) if row.body_hash == self.body_hash => Ok(Some(row.response)),
            Some(_) => Err(Refusal::conflict("The idempotency key was used for another request")),
            None => Ok(None),
        }
    }

    fn keep(&self, tx: &mut dyn Tx, response: &JsonText) -> StoreResult<()> {
        let row = IdempotencyRow { body_hash: self.body_hash.clone(), response: response.clone() };
        tx.put_idempotency(&self.key, &row)
    }
}

/// Providers that are configured, by id.
///
/// # Errors
/// The store's.
pub fn providers(reads: &mut dyn Reads) -> StoreResult<Vec<CredentialRow>> {
    let mut rows = reads.credentials(HOST_VAULT)?;
    rows.retain(|row| row.kind == "model");
    Ok(rows)
}

/// The provider that is used: the one that was chosen, else the first.
///
/// # Errors
/// The store's.
pub fn active(reads: &mut dyn Reads) -> StoreResult<Option<CredentialRow>> {
    if let Some(chosen) = reads.setting(ACTIVE_PROVIDER)?
        && let Some(row) = reads.credential(HOST_VAULT, &row_id(&chosen))?
    {
        return Ok(Some(row));
    }
    Ok(providers(reads)?.into_iter().next())
}

/// The row of one provider.
///
/// # Errors
/// The store's.
pub fn provider(reads: &mut dyn Reads, provider: &str) -> StoreResult<Option<CredentialRow>> {
    reads.credential(HOST_VAULT, &row_id(provider))
}

/// `GET /v1/tenant/model`.
///
/// # Errors
/// The store's.
pub fn view(reads: &mut dyn Reads) -> Result<Json, Refusal> {
    let Some(row) = active(reads)? else {
        return Ok(Json::Object(JsonMap::from_iter([("configured".to_owned(), Json::Bool(false))])));
    };
    Ok(binding(&row)?.view())
}

/// What a row is bound to.
///
/// # Errors
/// When the row contradicts itself.
pub fn binding(row: &CredentialRow) -> StoreResult<ModelBinding> {
    row.binding
        .decode()
        .map_err(|error| crate::ports::StoreError::Corrupt(format!("credential {}: {error}", row.id)))
}

/// Stores a provider and makes it the active one.
///
/// # Errors
/// 409 for a key that was used otherwise, or the store's.
pub fn put(
    tx: &mut dyn Tx,
    once: &Once,
    binding: &ModelBinding,
    sealed: Sealed,
) -> Result<JsonText, Refusal> {
    if let Some(response) = once.replay(tx)? {
        return Ok(response);
    }
    write(tx, binding, sealed)?;
    audit(tx, &once.actor, "model.put", Some(&binding.provider))?;
    let response = JsonText::of(&binding.view());
    once.keep(tx, &response)?;
    Ok(response)
}

/// Stores a provider when none is configured; whether it did.
///
/// # Errors
/// The store's.
pub fn seed(tx: &mut dyn Tx, actor: &str, binding: &ModelBinding, sealed: Sealed) -> Result<bool, Refusal> {
    if active(tx)?.is_some() {
        return Ok(false);
    }
    write(tx, binding, sealed)?;
    audit(tx, actor, "model.seed", Some(&binding.provider))?;
    Ok(true)
}

/// Chooses a model of a configured provider; its credential and settings stay. `reseal` is given the stored row and
/// the new binding and seals the same secret under it.
///
/// # Errors
/// 404 when the provider is not configured, 409 for a key that was used otherwise, `reseal`'s, or the store's.
pub fn select(
    tx: &mut dyn Tx,
    once: &Once,
    (provider, model, base_url): (&str, &str, Option<&str>),
    reseal: impl FnOnce(&CredentialRow, &ModelBinding) -> Result<Sealed, Refusal>,
) -> Result<JsonText, Refusal> {
    if let Some(response) = once.replay(tx)? {
        return Ok(response);
    }
    let Some(row) = tx.credential(HOST_VAULT, &row_id(provider))? else {
        return Err(Refusal::NotFound(format!("The provider {provider} is not configured")));
    };
    let mut chosen = binding(&row)?;
    model.clone_into(&mut chosen.model);
    if let Some(url) = base_url {
        chosen.base_url = Some(url.to_owned());
    }
    let sealed = reseal(&row, &chosen)?;
    write(tx, &chosen, sealed)?;
    audit(tx, &once.actor, "model.select", Some(provider))?;
    let response = JsonText::of(&chosen.view());
    once.keep(tx, &response)?;
    Ok(response)
}

fn row_id(provider: &str) -> String {
    format!("{PREFIX}{provider}")
}

fn write(tx: &mut dyn Tx, binding: &ModelBinding, sealed: Sealed) -> StoreResult<()> {
    let id = row_id(&binding.provider);
    let now = tx.now();
    let before = tx.credential(HOST_VAULT, &id)?;
    let row = CredentialRow {
        vault_id: HOST_VAULT.to_owned(),
        name: binding.provider.clone(),
        kind: "model".to_owned(),
        binding: JsonText::of(binding),
        expires_at: None,
        created_at: before.as_ref().map_or(now, |row| row.created_at),
        rotated_at: before.is_some().then_some(now),
        kek_id: sealed.kek_id,
        nonce: sealed.nonce,
        ciphertext: sealed.ciphertext,
        wrapped_dek: sealed.wrapped_dek,
        id,
    };
    tx.put_credential(&row)?;
    tx.put_setting(ACTIVE_PROVIDER, &binding.provider)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_associated_data_is_canonical_and_names_no_row() {
        let binding = ModelBinding {
            provider: "custom".into(),
            model: "m-1".into(),
            auth_type: "api_key".into(),
            base_url: Some("http://127.0.0.1:1".into()),
            settings: None,
        };
        assert_eq!(
            binding.aad(),
            r#"{"credentialId":"host-model","model":"m-1","provider":"custom","scope":"host","type":"model","vaultId":"host"}"#
        );
        assert_eq!(
            binding.view().to_string(),
            r#"{"configured":true,"provider":"custom","model":"m-1","authType":"api_key","baseUrl":"http://127.0.0.1:1"}"#
        );
    }
}
