//! Which models a remote harness asks. It holds no provider's key: the fixture and scripts answer here, everything
//! else fails as `auth` and says why (spec: harness-api, section 16).

use std::rc::Rc;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use nylorun_actors::model::Json;
use nylorun_actors::model::turn::Abort;

use crate::engine::model::call::{CallContext, Failure, FailureCode, ModelAdapter, ModelCall};
use crate::engine::model::provider::{ProviderConfig, ProviderLimits, Providers};
use crate::engine::model::router::{ModelRouter, ProviderSource};
use crate::engine::run::kit::{Kit, KitFor, routed};

/// Kits without a provider.
#[must_use]
pub fn keyless() -> Arc<KitFor> {
    let providers = Providers::new(ProviderLimits::default());
    let fixtures = routed(ModelRouter::new(Arc::new(NoProvider), providers));
    Arc::new(move |grant, start| {
        if start.options.fixture_model {
            fixtures(grant, start)
        } else {
            Kit { models: Rc::new(NoModel), tools: None }
        }
    })
}

struct NoProvider;

impl ProviderSource for NoProvider {
    fn active(&self) -> LocalBoxFuture<'static, Result<Option<ProviderConfig>, String>> {
        ready(Ok(None)).boxed_local()
    }
}

/// Stands where a provider would be asked.
struct NoModel;

impl ModelAdapter for NoModel {
    fn call(&self, _: ModelCall, _: CallContext) -> LocalBoxFuture<'static, Result<Arc<Json>, Abort>> {
        let message = "a harness on another machine holds no provider keys, and this version has no model gate to \
                       ask instead: run core with its own harness (NYLORUN_HARNESS=in-process), or choose the \
                       fixture model";
        ready(Ok(Failure::new(FailureCode::Auth, message).to_json())).boxed_local()
    }
}
