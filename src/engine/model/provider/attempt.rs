//! One attempt: one request, one stream, previews while it lasts.

use std::sync::Arc;

use futures_util::StreamExt;
use genai::chat::ChatStreamEvent;
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ClientConfig, ModelIden};
use nylorun_actors::model::Json;
use nylorun_actors::ports::engine::Preview;
use secrecy::ExposeSecret;
use serde_json::json;
use tokio::time::Instant;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use super::config::{ProviderConfig, ProviderLimits};
use super::tap::FrameTap;
use super::target::{Protocol, Target};
use super::{answer, failure, request};
use crate::engine::model::call::{CallContext, Failure, FailureCode, ModelCall};

/// What one attempt needs.
pub(super) struct Attempt<'a> {
    pub http: &'a reqwest::Client,
    pub config: &'a ProviderConfig,
    pub target: &'a Target,
    pub limits: &'a ProviderLimits,
    pub call: &'a ModelCall,
    pub cx: &'a CallContext,
    /// Whether the provider is asked to hold the answer to the output schema.
    pub schema: bool,
}

impl Attempt<'_> {
    /// Makes the request and reads the answer.
    pub async fn run(&self) -> Result<Json, Failure> {
        let target = self.target;
        let tap = Arc::new(FrameTap::new(target.protocol == Protocol::OpenAi));
        let conversation = request::conversation(self.call, target)?;
        let options = request::options(
            self.call,
            target,
            self.limits,
            self.cx.session_id.as_str(),
            self.schema,
            Arc::clone(&tap),
        );
        let failed = |error: genai::Error| failure::of_error(&error, target);
        let client = self.client().map_err(failed)?;
        let model = ModelIden::new(target.kind, target.model.as_str());
        // The library logs what providers answer; that is nothing for a log, so it has none while it works.
        let response = client.exec_chat_stream(model, conversation, Some(&options));
        let mut stream = response.with_subscriber(NoSubscriber::new()).await.map_err(failed)?.stream;
        let mut previews = Previews::new(self.cx, self.limits);
        loop {
            let event = tokio::select! {
                event = stream.next().with_subscriber(NoSubscriber::new()) => event,
                () = previews.due() => {
                    previews.flush();
                    continue;
                }
            };
            if tap.bytes() > self.limits.answer_bytes {
                let message = format!("the answer is larger than {} bytes", self.limits.answer_bytes);
                return Err(Failure::new(FailureCode::InvalidOutput, message));
            }
            match event {
                Some(Ok(ChatStreamEvent::Chunk(chunk))) => previews.text(&chunk.content),
                Some(Ok(ChatStreamEvent::ToolCallChunk(chunk))) => {
                    previews.tool_call(&chunk.tool_call.call_id, &chunk.tool_call.fn_name);
                }
                Some(Ok(ChatStreamEvent::End(end))) => {
                    previews.flush();
                    return answer::candidate(end, &tap, target, self.call.output_schema.is_some());
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(failed(error)),
                None => return Err(answer::cut(target)),
            }
        }
    }

    /// A client that knows this provider's key and address, so that the library has no reason to look for others.
    fn client(&self) -> genai::Result<Client> {
        let auth = AuthData::from_single(self.config.key.expose_secret());
        let mut provider = genai::resolver::ProviderConfig::from_auth(auth);
        if let Some(url) = &self.config.base_url {
            // The library joins paths to it, which would replace a last segment without a slash.
            let slash = if url.ends_with('/') { "" } else { "/" };
            provider = provider.with_endpoint(Endpoint::from_owned(format!("{url}{slash}")));
        }
        let config = ClientConfig::default().append_provider_config(self.target.kind, provider);
        Client::builder().with_reqwest(self.http.clone()).with_config(config).build()
    }
}

/// Shows an answer while it is written, at most once per interval.
struct Previews<'a> {
    cx: &'a CallContext,
    limits: &'a ProviderLimits,
    text: String,
    next: Instant,
    calls: Vec<String>,
}

impl<'a> Previews<'a> {
    fn new(cx: &'a CallContext, limits: &'a ProviderLimits) -> Self {
        Self { cx, limits, text: String::new(), next: Instant::now(), calls: Vec::new() }
    }

    fn text(&mut self, text: &str) {
        if self.cx.preview.is_some() {
            self.text.push_str(text);
        }
    }

    /// Resolves when text waits and may be shown.
    async fn due(&self) {
        if self.text.is_empty() {
            return std::future::pending().await;
        }
        tokio::time::sleep_until(self.next).await;
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.next = Instant::now() + self.limits.preview_interval;
            let text = std::mem::take(&mut self.text);
            self.show(Some(text), None);
        }
    }

    /// Shows that a call has begun; once each, after the text before it.
    fn tool_call(&mut self, id: &str, name: &str) {
        if self.cx.preview.is_none() || name.is_empty() || self.calls.iter().any(|known| known == id) {
            return;
        }
        self.flush();
        self.calls.push(id.to_owned());
        self.show(None, Some(json!({"callId": id, "name": name})));
    }

    fn show(&self, text: Option<String>, tool_call: Option<Json>) {
        if let Some(preview) = &self.cx.preview {
            preview(Preview { invocation_id: self.cx.invocation_id.clone(), text, tool_call });
        }
    }
}
