//! Runs of the fixture model: scripts, scripted tools, a session that grows long.

use super::*;
use crate::engine::agent::projection::CHAIN_ABOVE_BYTES;
use crate::engine::model::provider::{ProviderConfig, ProviderLimits, Providers};
use crate::engine::model::router::{ModelRouter, ProviderSource};

struct Nobody;

impl ProviderSource for Nobody {
    fn active(&self) -> LocalBoxFuture<'static, Result<Option<ProviderConfig>, String>> {
        ready(Ok(None)).boxed_local()
    }
}

fn fixture_engine(prompt_hash: PromptHash) -> AgentEngine {
    let router = ModelRouter::new(Arc::new(Nobody), Providers::new(ProviderLimits::default()));
    AgentEngine::new(EngineConfig { prompt_hash, ..EngineConfig::new(kit::routed(router)) })
}

fn scripted_start(script: Json) -> TurnStart {
    let mut start = start();
    let mut manifest = start.manifest.as_ref().clone();
    manifest["metadata"] = json!({"nylorun.fixture": script});
    start.checkpoint.manifest_hash = manifest_hash(&manifest);
    start.manifest = Arc::new(manifest);
    start.routing.root_manifest = Arc::clone(&start.manifest);
    start.options.fixture_model = true;
    start
}

#[tokio::test]
async fn a_manifests_script_answers_for_the_model_and_for_its_tools() {
    let start = scripted_start(json!({
        "steps": [{"toolCalls": [{"name": "act", "args": {"x": 1}}]}, {"text": "done"}],
        "tools": {"act": {"echo": true}},
    }));
    let engine = fixture_engine(PromptHash::Exact);
    for run in ["r1", "r2"] {
        let link = Link::new();
        *link.tool.borrow_mut() = Ok(IntentAnswer::Execute { rejoin: false });
        let output = output(engine.run(grant(run), start.clone(), link).await);
        assert_eq!(output.output.as_deref(), Some(&json!("done")));
        assert_eq!(output.transcript.unwrap()[0].entries[2]["results"][0]["output"], json!({"x": 1}));
    }
}

#[tokio::test]
async fn a_script_that_does_not_read_fails_the_turn_and_says_so() {
    let start = scripted_start(json!({"steps": "none"}));
    let output = output(fixture_engine(PromptHash::Exact).run(grant("r"), start, Link::new()).await);
    assert_eq!(output.error.unwrap()["code"], "model.invalid_request");
}

#[tokio::test]
async fn without_the_fixture_the_provider_is_asked() {
    let mut start = scripted_start(json!({"steps": [{"text": "scripted"}]}));
    start.options.fixture_model = false;
    let output = output(fixture_engine(PromptHash::Exact).run(grant("r"), start, Link::new()).await);
    assert_eq!(output.error.unwrap()["code"], "model.auth");
}

/// A chained hash must not depend on whether the transcript was kept or read again.
#[tokio::test]
async fn a_long_session_declares_the_same_hash_from_the_cache_and_from_core() {
    let text = "x".repeat(CHAIN_ABOVE_BYTES / 4);
    let mut start = scripted_start(json!({"steps": [{"text": text}]}));
    let (kept, read) = (fixture_engine(PromptHash::Chained), fixture_engine(PromptHash::Chained));
    let (link, fresh) = (Link::new(), Link::new());
    for n in 0..8 {
        start.checkpoint.turn_id = TurnId::from(format!("T{n}"));
        start.transcript.cursor = n - 1;
        *fresh.entries.borrow_mut() = link.entries.borrow().clone();
        let grant = grant(&format!("r{n}"));
        let here = output(kept.run(grant.clone(), start.clone(), link.clone()).await);
        let there = output(read.run(grant.clone(), start.clone(), fresh.clone()).await);
        kept.settled(&grant, Some(n));
        read.settled(&grant, None);
        assert_eq!(here, there);
        fold(&link, &here);
        start.checkpoint.state = here.state.clone();
    }
    assert_eq!((link.reads.get(), fresh.reads.get()), (0, 7));
    assert_eq!(*link.hashes.borrow(), *fresh.hashes.borrow());
}
