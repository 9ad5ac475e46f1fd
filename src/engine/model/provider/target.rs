//! What one call is sent to: provider, model, and what both can do.

use genai::adapter::AdapterKind;
use nylorun_actors::model::Json;
use serde_json::json;

use super::catalog::{self, CUSTOM, CUSTOM_CONTEXT_WINDOW, CUSTOM_MAX_OUTPUT};
use super::config::{ProviderConfig, ProviderSettings};
use crate::engine::model::call::{Failure, FailureCode, ModelCall};

/// How a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// OpenAI's chat completions, and everything compatible with them.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// Google's generateContent.
    Google,
}

impl Protocol {
    fn api(self) -> &'static str {
        match self {
            Self::OpenAi => "openai-completions",
            Self::Anthropic => "anthropic-messages",
            Self::Google => "google-generative-ai",
        }
    }
}

/// The provider and model of a call.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub kind: AdapterKind,
    pub protocol: Protocol,
    pub provider: String,
    pub model: String,
    pub settings: ProviderSettings,
    pub context_window: u64,
    pub max_output: u64,
    pub json_schema: bool,
}

impl Target {
    /// The target of a call; `invalid_request` when there is no such provider or model.
    pub fn of(config: &ProviderConfig, call: &ModelCall) -> Result<Self, Failure> {
        let provider = config.provider.as_str();
        let asked = call.model.as_ref().map_or(config.model.as_str(), |choice| choice.id.as_str());
        let model = asked.strip_prefix(provider).and_then(|rest| rest.strip_prefix('/')).unwrap_or(asked);
        let unknown = |what: String| Err(Failure::new(FailureCode::InvalidRequest, what));
        if provider == CUSTOM {
            if config.base_url.is_none() || model.is_empty() {
                return unknown("a custom provider needs a baseUrl and a model".to_owned());
            }
            return Ok(Self {
                kind: AdapterKind::OpenAI,
                protocol: Protocol::OpenAi,
                provider: provider.to_owned(),
                model: model.to_owned(),
                context_window: config.settings.context_window.unwrap_or(CUSTOM_CONTEXT_WINDOW),
                max_output: config.settings.max_tokens.map_or(CUSTOM_MAX_OUTPUT, u64::from),
                json_schema: config.settings.compat_bool("jsonSchema").unwrap_or(false),
                settings: config.settings.clone(),
            });
        }
        let Some(known) = catalog::provider(provider) else {
            return unknown(format!("unknown provider {provider}"));
        };
        let Some(found) = known.model(model) else {
            return unknown(format!("unknown model {model} of provider {provider}"));
        };
        let protocol = match known.kind {
            AdapterKind::Anthropic => Protocol::Anthropic,
            AdapterKind::Gemini => Protocol::Google,
            _ => Protocol::OpenAi,
        };
        Ok(Self {
            kind: known.kind,
            protocol,
            provider: provider.to_owned(),
            model: model.to_owned(),
            settings: ProviderSettings::default(),
            context_window: found.context_window,
            max_output: found.max_output,
            json_schema: found.json_schema,
        })
    }

    /// `{provider, api, model}` of candidates.
    pub fn producer(&self) -> Json {
        json!({"provider": self.provider, "api": self.protocol.api(), "model": self.model})
    }

    /// Whether provider metadata was written by this provider and model, so that it may go back to them.
    pub fn wrote(&self, metadata: &Json) -> bool {
        metadata["provider"] == self.provider.as_str() && metadata["model"] == self.model.as_str()
    }
}
