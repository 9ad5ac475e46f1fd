//! Model providers over real sockets: what is sent, what comes back, and what happens when it does not.

// Helpers of a test may stop at the first surprise too.
#![allow(clippy::unwrap_used)]

#[path = "common/model_server.rs"]
mod model_server;

#[path = "model_providers/answers.rs"]
mod answers;
#[path = "model_providers/failures.rs"]
mod failures;
#[path = "model_providers/routing.rs"]
mod routing;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use model_server::{End, ModelServer, Reply};
use nylorun::engine::model::call::{
    CallContext, Controls, Failure, FailureCode, ModelAdapter, ModelCall, ModelChoice,
};
use nylorun::engine::model::item;
use nylorun::engine::model::provider::{ProviderConfig, ProviderLimits, ProviderSettings, Providers};
use nylorun::engine::model::router::{ModelRouter, ProviderSource};
use nylorun::engine::model::script::FixtureScript;
use nylorun_actors::model::Json;
use nylorun_actors::model::turn::{Abort, AbortKind};
use nylorun_actors::ports::engine::{AbortSignal, Preview};
use serde_json::json;
use tokio::sync::watch;

const KEY: &str = "test-key-0123456789";

fn config(provider: &str, model: &str, url: &str) -> ProviderConfig {
    ProviderConfig {
        provider: provider.into(),
        model: model.into(),
        base_url: Some(url.into()),
        settings: ProviderSettings::default(),
        key: KEY.into(),
        other_secrets: vec!["another-secret-value".into()],
    }
}

fn quick() -> ProviderLimits {
    ProviderLimits {
        base_delay: Duration::from_millis(2),
        idle_timeout: Duration::from_secs(20),
        request_timeout: Duration::from_secs(40),
        ..ProviderLimits::default()
    }
}

fn call(prompt: Vec<Arc<Json>>) -> ModelCall {
    ModelCall {
        prompt: prompt.into(),
        tools: vec![],
        model: None,
        output_schema: None,
        execution_id: "session-1".into(),
        controls: None,
    }
}

fn hi() -> ModelCall {
    call(vec![item::user_text("hi")])
}

struct Context {
    cx: CallContext,
    abort: watch::Sender<Option<Abort>>,
    previews: Rc<RefCell<Vec<Preview>>>,
}

fn context() -> Context {
    let (abort, signal) = AbortSignal::channel();
    let previews = Rc::new(RefCell::new(Vec::new()));
    let sink = Rc::clone(&previews);
    let cx = CallContext {
        effect_id: "t:0:model:i".into(),
        session_id: "session-1".into(),
        turn_id: "t".into(),
        agent_id: "a".into(),
        child_id: None,
        invocation_id: "invocation-1".into(),
        abort: signal,
        preview: Some(Rc::new(move |preview| sink.borrow_mut().push(preview))),
        rejoin: false,
    };
    Context { cx, abort, previews }
}

async fn ask_with(limits: ProviderLimits, config: ProviderConfig, call: ModelCall) -> Json {
    let model = Providers::new(limits).model(config);
    model.call(call, context().cx).await.unwrap().as_ref().clone()
}

async fn ask(config: ProviderConfig, call: ModelCall) -> Json {
    ask_with(quick(), config, call).await
}

fn failure(value: &Json) -> Failure {
    Failure::read(value).unwrap_or_else(|| panic!("not a failure: {value}"))
}

fn frames(frames: &[Json]) -> String {
    frames.iter().map(|frame| format!("data: {frame}\n\n")).collect()
}

/// An OpenAI stream: deltas, a finish reason, usage, the closing mark.
fn openai(deltas: &[Json], finish: &str) -> String {
    let chunk = |choices: Json| json!({"id": "c", "object": "chat.completion.chunk", "model": "gpt-4.1-2025", "choices": choices});
    let mut all: Vec<Json> =
        deltas.iter().map(|d| chunk(json!([{"index": 0, "delta": d, "finish_reason": null}]))).collect();
    all.push(chunk(json!([{"index": 0, "delta": {}, "finish_reason": finish}])));
    let mut usage = chunk(json!([]));
    usage["usage"] = json!({
        "prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29,
        "prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens_details": {"reasoning_tokens": 0},
    });
    all.push(usage);
    frames(&all) + "data: [DONE]\n\n"
}

/// An Anthropic stream from its events.
fn anthropic(events: &[Json]) -> String {
    events.iter().map(|e| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap())).collect()
}

fn anthropic_answer(blocks: &[Vec<Json>], stop: &str) -> String {
    let usage = json!({"input_tokens": 10, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 6, "output_tokens": 1});
    let mut events =
        vec![json!({"type": "message_start", "message": {"id": "m", "model": "claude-x", "usage": usage}})];
    for (index, block) in blocks.iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block[0]}));
        events.push(json!({"type": "ping"}));
        events.extend(
            block[1..].iter().map(|d| json!({"type": "content_block_delta", "index": index, "delta": d})),
        );
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(
        json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 15}}),
    );
    events.push(json!({"type": "message_stop"}));
    anthropic(&events)
}

fn says(text: &str) -> String {
    openai(&[json!({"role": "assistant", "content": ""}), json!({"content": text})], "stop")
}
