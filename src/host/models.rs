//! What the in-process engine works with: the Tenant's models from its sealed store, and tools of fixture scripts
//! (spec: security, section 12.1; engine, section 9).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::LocalBoxFuture;
use nylorun_actors::model::Json;
use nylorun_actors::model::json;
use nylorun_actors::ports::store::{StoreHandle, StoreResult};
use nylorun_actors::rules::models;
use secrecy::SecretString;

use crate::engine::agent::projection::PromptHash;
use crate::engine::model::provider::{ProviderConfig, ProviderLimits, ProviderSettings, Providers};
use crate::engine::model::router::{ModelRouter, ProviderSource};
use crate::engine::model::script::{FixtureScript, SCRIPT_KEY};
use crate::engine::run::tools::{ToolCall, ToolExecutor};
use crate::engine::run::{AgentEngine, EngineConfig};
use crate::vault::Vault;

/// The engine of the in-process harness.
///
/// # Errors
/// When TLS cannot be set up.
pub fn engine(store: StoreHandle, vault: Arc<Vault>) -> Result<AgentEngine, String> {
    let providers = Providers::new(ProviderLimits::default()).map_err(|error| error.to_string())?;
    let router = ModelRouter::new(Arc::new(StoredProvider { store, vault }), providers);
    let scripts = Arc::new(Scripts::default());
    let models = {
        let (router, scripts) = (router, Arc::clone(&scripts));
        Arc::new(move |_: &_, start: &nylorun_actors::model::turn::TurnStart| {
            let fixture = start.options.fixture_model;
            scripts.chosen.store(fixture, Ordering::Relaxed);
            let script = if fixture { scripts.of(&start.manifest) } else { None };
            router.for_run(fixture, script)
        })
    };
    let mut config = EngineConfig::new(models);
    config.prompt_hash = PromptHash::Exact;
    config.executors = vec![scripts];
    Ok(AgentEngine::new(config))
}

/// The Tenant's active provider, read and opened anew for each call.
struct StoredProvider {
    store: StoreHandle,
    vault: Arc<Vault>,
}

impl ProviderSource for StoredProvider {
    fn active(&self) -> LocalBoxFuture<'static, Result<Option<ProviderConfig>, String>> {
        let (store, vault) = (self.store.clone(), Arc::clone(&self.vault));
        Box::pin(async move {
            let row = store
                .read(|reads| -> StoreResult<_> { models::active(reads) })
                .await
                .map_err(|error| error.to_string())?;
            let Some(row) = row else { return Ok(None) };
            let (binding, plaintext) = vault.open_model(&row).map_err(|error| error.to_string())?;
            let secret = json::parse(&plaintext).map_err(|_| "the credential is not JSON".to_owned())?;
            let settings = match &binding.settings {
                Some(settings) => ProviderSettings::parse(settings).map_err(|problems| problems.join("; "))?,
                None => ProviderSettings::default(),
            };
            let text = |value: &Json| value.as_str().map(SecretString::from);
            let key = text(&secret["apiKey"])
                .or_else(|| text(&secret["oauth"]["access"]))
                .ok_or_else(|| "the credential holds no key".to_owned())?;
            let env = secret["env"].as_object().into_iter().flat_map(|env| env.values());
            let other_secrets = env.chain([&secret["oauth"]["refresh"]]).filter_map(text).collect();
            Ok(Some(ProviderConfig {
                provider: binding.provider,
                model: binding.model,
                base_url: binding.base_url,
                settings,
                key,
                other_secrets,
            }))
        })
    }
}

/// Scripts of manifests, read once; and the tools that they play. Nothing of it happens unless the Tenant has chosen
/// the fixture model.
#[derive(Default)]
struct Scripts {
    chosen: AtomicBool,
    read: Mutex<VecDeque<ReadScript>>,
}

type ReadScript = (Arc<Json>, Option<Arc<FixtureScript>>);

/// Scripts kept; the oldest goes first.
const KEPT: usize = 64;

impl Scripts {
    fn of(&self, manifest: &Arc<Json>) -> Option<Arc<FixtureScript>> {
        manifest["metadata"].get(SCRIPT_KEY)?;
        // A poisoned list is still a list of scripts.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, script)) = read.iter().find(|(known, _)| Arc::ptr_eq(known, manifest)) {
            return script.clone();
        }
        let script = match FixtureScript::of_manifest(manifest) {
            Ok(script) => script.map(Arc::new),
            Err(problems) => {
                tracing::warn!(problems = problems.join("; "), "a fixture script is malformed and is not played");
                None
            }
        };
        if read.len() == KEPT {
            read.pop_front();
        }
        read.push_back((Arc::clone(manifest), script.clone()));
        script
    }
}

impl ToolExecutor for Scripts {
    fn can(&self, manifest: &Json, tool: &str) -> bool {
        self.chosen.load(Ordering::Relaxed)
            && manifest["metadata"].get(SCRIPT_KEY).is_some_and(|script| script["tools"].get(tool).is_some())
    }

    fn run(&self, call: ToolCall) -> LocalBoxFuture<'static, Result<Arc<Json>, String>> {
        let script = self.of(&call.manifest);
        Box::pin(async move {
            let script = script.ok_or_else(|| "the fixture script is gone".to_owned())?;
            let name = call.intent.tool_name.clone().unwrap_or_default();
            let input = call.intent.input.clone().unwrap_or_default();
            script.run_tool(&name, input, call.abort).await.map_err(|abort| abort.message)
        })
    }
}
