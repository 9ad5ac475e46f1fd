//! Which model a run gets.

use super::*;

struct Source(Option<ProviderConfig>, Option<Arc<FixtureScript>>);

impl ProviderSource for Source {
    fn active(&self) -> LocalBoxFuture<'static, Result<Option<ProviderConfig>, String>> {
        let config = self.0.clone();
        Box::pin(async move { Ok(config) })
    }

    fn fixture_script(&self) -> Option<Arc<FixtureScript>> {
        self.1.clone()
    }
}

fn router(config: Option<ProviderConfig>, script: Option<Json>) -> ModelRouter {
    let script = script.map(|script| Arc::new(FixtureScript::parse(&script).unwrap()));
    ModelRouter::new(Arc::new(Source(config, script)), Providers::new(quick()))
}

async fn routed(router: &ModelRouter, fixture: bool, manifest: &Json, call: ModelCall) -> Json {
    let script = router.script(fixture, manifest).unwrap();
    router.for_run(fixture, script).call(call, context().cx).await.unwrap().as_ref().clone()
}

#[tokio::test]
async fn the_router_takes_the_fixture_a_script_or_the_provider() {
    let script = |text: &str| json!({"steps": [{"text": text}]});
    let manifest = json!({"metadata": {"nylorun.fixture": script("from the manifest")}});
    let text = |answer: Json| answer["output"][0]["text"].as_str().unwrap_or_default().to_owned();
    let plain = router(None, None);
    assert_eq!(text(routed(&plain, true, &json!({}), hi()).await), "Hello from the fixture model.");
    let scripted = router(None, Some(script("from the settings")));
    assert_eq!(text(routed(&scripted, true, &json!({}), hi()).await), "from the settings");
    assert_eq!(text(routed(&scripted, true, &manifest, hi()).await), "from the manifest");
    // A script is never played where a real model is asked for.
    assert_eq!(failure(&routed(&scripted, false, &manifest, hi()).await).code, FailureCode::Auth);
    let broken = json!({"metadata": {"nylorun.fixture": {"steps": []}}});
    assert!(plain.script(true, &broken).is_err());
    assert_eq!(plain.script(false, &broken), Ok(None));
}

#[tokio::test]
async fn unknown_providers_and_models_are_invalid_requests() {
    let server = ModelServer::start(vec![Reply::stream(&says("x"))]).await;
    for (provider, model) in [("openai", "gpt-0"), ("nobody", "m"), ("custom", "")] {
        let router = router(Some(config(provider, model, &server.url())), None);
        let failure = failure(&routed(&router, false, &json!({}), hi()).await);
        assert_eq!(
            (failure.code, failure.retryable),
            (FailureCode::InvalidRequest, false),
            "{provider} {model}"
        );
    }
    assert!(server.requests().is_empty());
    let router = router(Some(config("openai", "gpt-4.1", &server.url())), None);
    assert_eq!(routed(&router, false, &json!({}), hi()).await["output"][0]["text"], "x");
}

#[test]
fn a_router_may_be_shared_between_threads() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<ModelRouter>();
}
