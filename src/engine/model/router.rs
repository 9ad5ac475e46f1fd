//! Which model answers a run's calls: the fixture, a script, or the Tenant's provider.

use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use nylorun_actors::model::Json;
use nylorun_actors::model::turn::Abort;

use super::call::{CallContext, Failure, FailureCode, ModelAdapter, ModelCall};
use super::fixture::FixtureModel;
use super::provider::{ProviderConfig, Providers, not_configured};
use super::script::{FixtureScript, ScriptedModel};

/// Knows the Tenant's model settings. The host reads them from its sealed store, anew for each call, so that a changed
/// key works at once.
pub trait ProviderSource: Send + Sync {
    /// The active provider with its key; `None` when none is set up.
    ///
    /// # Errors
    /// Why the settings cannot be read. The text is logged, not shown.
    fn active(&self) -> LocalBoxFuture<'static, Result<Option<ProviderConfig>, String>>;

    /// The script of the model settings, for runs whose manifest has none of its own.
    fn fixture_script(&self) -> Option<Arc<FixtureScript>> {
        None
    }
}

/// Chooses models. Cheap to clone.
#[derive(Clone)]
pub struct ModelRouter {
    source: Arc<dyn ProviderSource>,
    providers: Providers,
}

impl ModelRouter {
    /// A router over a Tenant's settings.
    #[must_use]
    pub fn new(source: Arc<dyn ProviderSource>, providers: Providers) -> Self {
        Self { source, providers }
    }

    /// The script that a run plays: only where the fixture model is chosen; the manifest's before the settings'.
    ///
    /// # Errors
    /// What is wrong with the manifest's script.
    pub fn script(
        &self,
        fixture_model: bool,
        manifest: &Json,
    ) -> Result<Option<Arc<FixtureScript>>, Vec<String>> {
        if !fixture_model {
            return Ok(None);
        }
        Ok(FixtureScript::of_manifest(manifest)?.map(Arc::new).or_else(|| self.source.fixture_script()))
    }

    /// The model of a run: with the option `fixtureModel` the script if there is one, else the fixture; without it
    /// the Tenant's provider.
    #[must_use]
    pub fn for_run(&self, fixture_model: bool, script: Option<Arc<FixtureScript>>) -> Rc<dyn ModelAdapter> {
        match (fixture_model, script) {
            (true, Some(script)) => Rc::new(ScriptedModel::new(script)),
            (true, None) => Rc::new(FixtureModel),
            (false, _) => Rc::new(TenantModel(self.clone())),
        }
    }
}

/// Asks for the Tenant's provider when a call comes.
struct TenantModel(ModelRouter);

impl ModelAdapter for TenantModel {
    fn call(&self, call: ModelCall, cx: CallContext) -> LocalBoxFuture<'static, Result<Arc<Json>, Abort>> {
        let ModelRouter { source, providers } = self.0.clone();
        Box::pin(async move {
            let active = tokio::select! {
                biased;
                abort = cx.abort.fired() => return Err(abort),
                active = source.active() => active,
            };
            match active {
                Ok(Some(config)) => providers.model(config).call(call, cx).await,
                Ok(None) => Ok(not_configured("no model provider is configured").to_json()),
                Err(error) => {
                    tracing::warn!(%error, "the model settings cannot be read");
                    Ok(Failure::new(FailureCode::Transient, "the model settings cannot be read").to_json())
                }
            }
        })
    }
}
