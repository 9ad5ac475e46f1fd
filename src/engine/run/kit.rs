//! What one run works with: who answers its model calls, and who runs its scripted tools.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::LocalBoxFuture;
use nylorun_actors::model::Json;
use nylorun_actors::model::turn::{Abort, RunGrant, TurnStart};

use super::tools::{ToolCall, ToolExecutor};
use crate::engine::model::call::{CallContext, Failure, FailureCode, ModelAdapter, ModelCall};
use crate::engine::model::router::ModelRouter;
use crate::engine::model::script::FixtureScript;

/// The models and tools of a run.
pub struct Kit {
    /// Answers model calls.
    pub models: Rc<dyn ModelAdapter>,
    /// Runs tools of this run only; asked before the engine's own executors.
    pub tools: Option<Arc<dyn ToolExecutor>>,
}

/// Gives a run its kit: asked once per run, on the thread that the run stays on.
pub type KitFor = dyn Fn(&RunGrant, &TurnStart) -> Kit + Send + Sync;

/// Kits from a model router: the Tenant's provider, or the fixture with the script of the session's manifest.
#[must_use]
pub fn routed(router: ModelRouter) -> Arc<KitFor> {
    let scripts = Scripts::default();
    Arc::new(move |_, start| {
        let fixture = start.options.fixture_model;
        match scripts.get(&router, fixture, &start.routing.root_manifest) {
            Ok(script) => {
                let tools =
                    script.clone().map(|script| Arc::new(ScriptTools(script)) as Arc<dyn ToolExecutor>);
                Kit { models: router.for_run(fixture, script), tools }
            }
            Err(message) => Kit { models: Rc::new(Unplayable(message)), tools: None },
        }
    })
}

/// Scripts read from manifests kept at most; all are dropped when they are that many.
pub(crate) const MOST: usize = 1024;

/// The scripts of manifests by agent id, so that one is not read again for every run.
#[derive(Default)]
struct Scripts(Mutex<HashMap<String, Known>>);

type Known = (Arc<Json>, Result<Arc<FixtureScript>, String>);

impl Scripts {
    fn get(
        &self,
        router: &ModelRouter,
        fixture: bool,
        root: &Arc<Json>,
    ) -> Result<Option<Arc<FixtureScript>>, String> {
        let read = || router.script(fixture, root).map_err(|errors| errors.join("; "));
        let own = root.pointer("/metadata/nylorun.fixture").is_some();
        // The script of the settings may change at any time, so only a manifest's own is kept.
        if !fixture || !own {
            return read();
        }
        let id = root.get("id").and_then(Json::as_str).unwrap_or("");
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((manifest, script)) = all.get(id)
            && (Arc::ptr_eq(manifest, root) || manifest == root)
        {
            return script.clone().map(Some);
        }
        let script = match read() {
            Ok(Some(script)) => Ok(script),
            Ok(None) => return Ok(None),
            Err(message) => Err(message),
        };
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(id.to_owned(), (Arc::clone(root), script.clone()));
        script.map(Some)
    }
}

/// Runs the tools that a script answers itself.
struct ScriptTools(Arc<FixtureScript>);

impl ToolExecutor for ScriptTools {
    fn can(&self, _: &Json, tool: &str) -> bool {
        self.0.has_tool(tool)
    }

    fn run(&self, call: ToolCall) -> LocalBoxFuture<'static, Result<Arc<Json>, String>> {
        let name = call.intent.tool_name.as_deref().unwrap_or("");
        let ran = self.0.run_tool(name, call.intent.input.clone().unwrap_or_default(), call.abort);
        Box::pin(async move { ran.await.map_err(|abort| abort.message) })
    }
}

/// Stands for a script that does not read: every call fails, and says why.
struct Unplayable(String);

impl ModelAdapter for Unplayable {
    fn call(&self, _: ModelCall, _: CallContext) -> LocalBoxFuture<'static, Result<Arc<Json>, Abort>> {
        let message = format!("the fixture script of the manifest does not read: {}", self.0);
        let failure = Failure::new(FailureCode::InvalidRequest, message).to_json();
        Box::pin(async move { Ok(failure) })
    }
}
