//! A provider as it is set up for a Tenant, and the bounds of a call (spec: security, sections 12.1 and 12.2).

use std::time::Duration;

use nylorun_actors::model::Json;
use nylorun_actors::model::json::JsonMap;
use secrecy::SecretString;
use serde::Deserialize;

/// The provider, model and key of a Tenant.
#[derive(Clone, Debug)]
pub struct ProviderConfig {
    /// Provider id of the catalogue, or `custom`.
    pub provider: String,
    /// The model for calls that name none.
    pub model: String,
    /// Where the provider is; its own address when absent. With or without a slash at its end.
    pub base_url: Option<String>,
    /// Settings of a custom endpoint.
    pub settings: ProviderSettings,
    /// The key or access token.
    pub key: SecretString,
    /// Other secrets to keep out of messages: refresh tokens, values of `env`.
    pub other_secrets: Vec<SecretString>,
}

/// Settings of a custom endpoint.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderSettings {
    /// Window, tokens, at least 1024.
    pub context_window: Option<u64>,
    /// Most output, tokens, at least 1.
    pub max_tokens: Option<u32>,
    /// Whether the model reasons.
    pub reasoning: Option<bool>,
    /// Where the endpoint differs from the usual. Read here: `jsonSchema` (it can hold an answer to a schema),
    /// `maxTokensField` (`max_tokens` or `max_completion_tokens`), `supportsUsageInStreaming` (default true).
    pub compat: Option<JsonMap>,
}

impl ProviderSettings {
    /// Reads settings.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(settings: &Json) -> Result<Self, Vec<String>> {
        let parsed = Self::deserialize(settings).map_err(|error| vec![format!("settings: {error}")])?;
        let mut problems = Vec::new();
        if parsed.context_window.is_some_and(|tokens| tokens < 1024) {
            problems.push("settings.contextWindow: less than 1024".to_owned());
        }
        if parsed.max_tokens == Some(0) {
            problems.push("settings.maxTokens: less than 1".to_owned());
        }
        if problems.is_empty() { Ok(parsed) } else { Err(problems) }
    }

    pub(super) fn compat_bool(&self, key: &str) -> Option<bool> {
        self.compat.as_ref()?.get(key)?.as_bool()
    }
}

/// The bounds of a call.
#[derive(Clone, Debug)]
pub struct ProviderLimits {
    /// Attempts, the first one included.
    pub attempts: u32,
    /// Wait before the second attempt; doubles for each further one, with jitter.
    pub base_delay: Duration,
    /// The longest wait. A provider that asks for more gets no further attempt: the failure says when.
    pub max_delay: Duration,
    /// The whole call with its retries; then a `timeout` failure.
    pub request_timeout: Duration,
    /// Silence on a stream, or before it begins; then a retryable `timeout` failure.
    pub idle_timeout: Duration,
    /// Reaching the provider; then a retryable `transient` failure.
    pub connect_timeout: Duration,
    /// Least time between two previews.
    pub preview_interval: Duration,
    /// Bytes of one streamed answer; a larger one is an `invalid_output` failure.
    pub answer_bytes: usize,
}

impl Default for ProviderLimits {
    fn default() -> Self {
        Self {
            attempts: 3,
            base_delay: Duration::from_secs(2),
            max_delay: Duration::from_secs(60),
            request_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(300),
            connect_timeout: Duration::from_secs(30),
            preview_interval: Duration::from_millis(50),
            answer_bytes: 32 * 1024 * 1024,
        }
    }
}
