//! The providers and models that a Tenant can choose (spec: security, section 12.1; http-api, section 15).
//!
//! A modest list, kept by hand: windows are what the providers document. A model that is missing here can be used
//! through `custom`, any endpoint that speaks OpenAI's chat completions.

use genai::adapter::AdapterKind;
use nylorun_actors::model::Json;
use serde_json::json;

/// The provider id of an OpenAI-compatible endpoint of the operator's own.
pub const CUSTOM: &str = "custom";
/// Window of a custom endpoint that does not say, tokens.
pub const CUSTOM_CONTEXT_WINDOW: u64 = 128_000;
/// Most output of a custom endpoint that does not say, tokens.
pub const CUSTOM_MAX_OUTPUT: u64 = 16_384;

/// A provider.
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    /// Its id on the wire.
    pub id: &'static str,
    /// Its name for people.
    pub name: &'static str,
    pub(super) kind: AdapterKind,
    /// Its models.
    pub models: &'static [Model],
}

/// A model.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Its id at the provider.
    pub id: &'static str,
    /// Its name for people.
    pub name: &'static str,
    /// Its window, tokens.
    pub context_window: u64,
    /// The most it writes in one answer, tokens.
    pub max_output: u64,
    /// Whether the provider can hold its answer to a JSON schema.
    pub json_schema: bool,
}

const fn model(
    id: &'static str,
    name: &'static str,
    context_window: u64,
    max_output: u64,
    json_schema: bool,
) -> Model {
    Model { id, name, context_window, max_output, json_schema }
}

const PROVIDERS: &[Provider] = &[
    Provider {
        id: "anthropic",
        name: "Anthropic",
        kind: AdapterKind::Anthropic,
        models: &[
            model("claude-opus-4-5", "Claude Opus 4.5", 200_000, 64_000, true),
            model("claude-sonnet-4-5", "Claude Sonnet 4.5", 200_000, 64_000, true),
            model("claude-haiku-4-5", "Claude Haiku 4.5", 200_000, 64_000, true),
            model("claude-opus-4-1", "Claude Opus 4.1", 200_000, 32_000, true),
            model("claude-sonnet-4-0", "Claude Sonnet 4", 200_000, 64_000, false),
            model("claude-3-5-haiku-latest", "Claude Haiku 3.5", 200_000, 8_192, false),
        ],
    },
    Provider {
        id: "openai",
        name: "OpenAI",
        kind: AdapterKind::OpenAI,
        models: &[
            model("gpt-5.1", "GPT-5.1", 400_000, 128_000, true),
            model("gpt-5", "GPT-5", 400_000, 128_000, true),
            model("gpt-5-mini", "GPT-5 mini", 400_000, 128_000, true),
            model("gpt-5-nano", "GPT-5 nano", 400_000, 128_000, true),
            model("gpt-4.1", "GPT-4.1", 1_047_576, 32_768, true),
            model("gpt-4.1-mini", "GPT-4.1 mini", 1_047_576, 32_768, true),
            model("gpt-4.1-nano", "GPT-4.1 nano", 1_047_576, 32_768, true),
            model("gpt-4o", "GPT-4o", 128_000, 16_384, true),
            model("gpt-4o-mini", "GPT-4o mini", 128_000, 16_384, true),
            model("o3", "o3", 200_000, 100_000, true),
            model("o4-mini", "o4-mini", 200_000, 100_000, true),
        ],
    },
    Provider {
        id: "google",
        name: "Google Gemini",
        kind: AdapterKind::Gemini,
        models: &[
            model("gemini-3-pro-preview", "Gemini 3 Pro (preview)", 1_048_576, 65_536, true),
            model("gemini-2.5-pro", "Gemini 2.5 Pro", 1_048_576, 65_536, true),
            model("gemini-2.5-flash", "Gemini 2.5 Flash", 1_048_576, 65_536, true),
            model("gemini-2.5-flash-lite", "Gemini 2.5 Flash-Lite", 1_048_576, 65_536, true),
            model("gemini-2.0-flash", "Gemini 2.0 Flash", 1_048_576, 8_192, false),
        ],
    },
    Provider {
        id: "groq",
        name: "Groq",
        kind: AdapterKind::Groq,
        models: &[
            model("openai/gpt-oss-120b", "GPT-OSS 120B", 131_072, 65_536, false),
            model("openai/gpt-oss-20b", "GPT-OSS 20B", 131_072, 65_536, false),
            model("llama-3.3-70b-versatile", "Llama 3.3 70B", 131_072, 32_768, false),
            model("llama-3.1-8b-instant", "Llama 3.1 8B", 131_072, 131_072, false),
        ],
    },
    Provider {
        id: "deepseek",
        name: "DeepSeek",
        kind: AdapterKind::DeepSeek,
        models: &[
            model("deepseek-chat", "DeepSeek Chat", 128_000, 8_192, false),
            model("deepseek-reasoner", "DeepSeek Reasoner", 128_000, 64_000, false),
        ],
    },
    Provider {
        id: "xai",
        name: "xAI",
        kind: AdapterKind::Xai,
        models: &[
            model("grok-4", "Grok 4", 256_000, 64_000, true),
            model("grok-4-fast-reasoning", "Grok 4 Fast", 2_000_000, 30_000, true),
            model("grok-code-fast-1", "Grok Code Fast 1", 256_000, 10_000, true),
            model("grok-3", "Grok 3", 131_072, 8_192, true),
            model("grok-3-mini", "Grok 3 mini", 131_072, 8_192, true),
        ],
    },
    Provider {
        id: "mistral",
        name: "Mistral",
        kind: AdapterKind::Mistral,
        models: &[
            model("mistral-large-latest", "Mistral Large", 128_000, 16_384, true),
            model("mistral-medium-latest", "Mistral Medium", 128_000, 16_384, true),
            model("mistral-small-latest", "Mistral Small", 128_000, 16_384, true),
            model("codestral-latest", "Codestral", 256_000, 4_096, true),
        ],
    },
];

/// Every provider but `custom`.
#[must_use]
pub fn providers() -> &'static [Provider] {
    PROVIDERS
}

/// A provider by id.
#[must_use]
pub fn provider(id: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().find(|provider| provider.id == id)
}

impl Provider {
    /// A model by id.
    #[must_use]
    pub fn model(&self, id: &str) -> Option<&'static Model> {
        self.models.iter().find(|model| model.id == id)
    }
}

/// The list as `GET /v1/tenant/models` shows it: `{providers: [{id, name, models: [{id, name}]}]}`.
#[must_use]
pub fn to_json() -> Json {
    let providers: Vec<Json> = PROVIDERS
        .iter()
        .map(|provider| {
            let models: Vec<Json> =
                provider.models.iter().map(|m| json!({"id": m.id, "name": m.name})).collect();
            json!({"id": provider.id, "name": provider.name, "models": models})
        })
        .collect();
    json!({ "providers": providers })
}

/// Checks a choice of provider and model as `PUT /v1/tenant/model` does: `custom` needs an http(s) `baseUrl` and alone
/// may have `settings`; the others must be in the catalogue and have no `baseUrl`. Empty when all is well.
#[must_use]
pub fn problems(
    provider_id: &str,
    model_id: &str,
    base_url: Option<&str>,
    settings: Option<&Json>,
) -> Vec<String> {
    let mut problems = Vec::new();
    if provider_id == CUSTOM {
        let web = |url: &&str| reqwest::Url::parse(url).is_ok_and(|u| matches!(u.scheme(), "http" | "https"));
        if base_url.filter(web).is_none() {
            problems.push("provider custom needs an http or https baseUrl".to_owned());
        }
        if model_id.is_empty() {
            problems.push("model is empty".to_owned());
        }
        if let Some(settings) = settings {
            problems.extend(super::ProviderSettings::parse(settings).err().unwrap_or_default());
        }
        return problems;
    }
    match provider(provider_id) {
        None => problems.push(format!("provider {provider_id} is not in the catalogue")),
        Some(provider) if provider.model(model_id).is_none() => {
            problems.push(format!("model {model_id} of provider {provider_id} is not in the catalogue"));
        }
        Some(_) => {}
    }
    if base_url.is_some() {
        problems.push("baseUrl is only for provider custom".to_owned());
    }
    if settings.is_some() {
        problems.push("settings are only for provider custom".to_owned());
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_no_model_writes_more_than_its_window() {
        let mut ids: Vec<_> = PROVIDERS.iter().map(|p| p.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), PROVIDERS.len());
        for provider in PROVIDERS {
            for model in provider.models {
                assert!(model.max_output <= model.context_window, "{}", model.id);
                assert_eq!(provider.models.iter().filter(|m| m.id == model.id).count(), 1, "{}", model.id);
            }
        }
    }

    #[test]
    fn only_custom_has_a_base_url_and_settings() {
        let settings = json!({"contextWindow": 4096});
        let url = Some("http://127.0.0.1:1/v1");
        assert!(problems("openai", "gpt-4.1", None, None).is_empty());
        assert!(problems(CUSTOM, "m", url, Some(&settings)).is_empty());
        assert_eq!(problems("openai", "gpt-4.1", url, Some(&settings)).len(), 2);
        assert_eq!(problems("openai", "gpt-0", None, None).len(), 1);
        assert_eq!(problems("nobody", "m", None, None).len(), 1);
        assert_eq!(problems(CUSTOM, "m", None, None).len(), 1);
        assert_eq!(problems(CUSTOM, "m", Some("ftp://127.0.0.1"), None).len(), 1);
        assert_eq!(
            problems(CUSTOM, "m", url, Some(&json!({"contextWindow": 1023, "maxTokens": 0}))).len(),
            2
        );
    }
}
