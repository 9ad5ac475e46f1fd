//! Real providers, through the `genai` library (spec: engine, section 9.2; security, section 12).
//!
//! A call goes [`target`](target) (which model) → [`request`](request) (what is sent) → [`attempt`](attempt) (one
//! stream, with previews) → [`answer`](answer) (the candidate), or [`failure`](failure) (what went wrong); this file
//! tries again, watches the clock and keeps secrets out of what it says. Nothing here reads the process environment,
//! and redirects are refused, since a key would travel with them.

mod answer;
mod attempt;
pub mod catalog;
mod config;
mod failure;
mod request;
mod tap;
mod target;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use nylorun_actors::model::Json;
use nylorun_actors::model::turn::Abort;
use rand::Rng;
use secrecy::ExposeSecret;
use tokio::time::Instant;

pub use config::{ProviderConfig, ProviderLimits, ProviderSettings};
pub(crate) use failure::MESSAGE_CHARS;
pub(super) use failure::not_configured;

use super::call::{CallContext, Failure, FailureCode, ModelAdapter, ModelCall};
use super::scrub::Scrubber;
use crate::gates::BuiltClient;
use attempt::Attempt;
use target::Target;

/// Calls providers. Cheap to clone; connections are shared.
#[derive(Clone, Debug)]
pub struct Providers {
    http: BuiltClient,
    limits: Arc<ProviderLimits>,
}

impl Providers {
    /// With these limits.
    #[must_use]
    pub fn new(limits: ProviderLimits) -> Self {
        let connect_timeout = limits.connect_timeout;
        let http = BuiltClient::new("model calls", move || {
            reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(connect_timeout)
                .tcp_nodelay(true)
                .pool_max_idle_per_host(8)
                .build()
        });
        Self { http, limits: Arc::new(limits) }
    }

    /// The model of this configuration.
    #[must_use]
    pub fn model(&self, config: ProviderConfig) -> ProviderModel {
        ProviderModel { providers: self.clone(), config: Arc::new(config) }
    }
}

/// A Tenant's model at its provider.
#[derive(Clone, Debug)]
pub struct ProviderModel {
    providers: Providers,
    config: Arc<ProviderConfig>,
}

impl ModelAdapter for ProviderModel {
    fn call(&self, call: ModelCall, cx: CallContext) -> LocalBoxFuture<'static, Result<Arc<Json>, Abort>> {
        let this = self.clone();
        Box::pin(async move {
            tokio::select! {
                biased;
                // Dropping the other branch closes the connection.
                abort = cx.abort.fired() => Err(abort),
                value = this.answer(&call, &cx) => Ok(value),
            }
        })
    }
}

impl ProviderModel {
    async fn answer(&self, call: &ModelCall, cx: &CallContext) -> Arc<Json> {
        match self.candidate(call, cx).await {
            Ok(candidate) => Arc::new(candidate),
            Err(mut failure) => {
                let secrets = self.config.other_secrets.iter().chain([&self.config.key]).cloned();
                failure.message = Scrubber::new(secrets).scrub(&failure.message);
                failure.to_json()
            }
        }
    }

    async fn candidate(&self, call: &ModelCall, cx: &CallContext) -> Result<Json, Failure> {
        if self.config.key.expose_secret().is_empty() {
            return Err(not_configured(&format!("no key for provider {}", self.config.provider)));
        }
        let target = Target::of(&self.config, call)?;
        let http = self.providers.http.get().await;
        let http = http.map_err(|why| Failure::new(FailureCode::Transient, format!("no TLS: {why}")))?;
        let limits = &self.providers.limits;
        let deadline = Instant::now() + limits.request_timeout;
        let mut schema = target.json_schema && call.output_schema.is_some();
        let mut made = 0;
        loop {
            let attempt =
                Attempt { http: &http, config: &self.config, target: &target, limits, call, cx, schema };
            let failure = match tokio::time::timeout_at(deadline, attempt.run()).await {
                Ok(Ok(candidate)) => return Ok(candidate),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    let ms = limits.request_timeout.as_millis();
                    return Err(Failure::new(
                        FailureCode::Timeout,
                        format!("no complete answer within {ms} ms"),
                    ));
                }
            };
            if schema && failure.code == FailureCode::InvalidRequest {
                // Providers take only part of JSON Schema; the prompt asks for the form anyway.
                schema = false;
                continue;
            }
            made += 1;
            if !failure.retryable || made >= limits.attempts {
                return Err(failure);
            }
            let Some(wait) = wait_before_next(limits, made, &failure) else { return Err(failure) };
            if Instant::now() + wait >= deadline {
                return Err(failure);
            }
            tokio::time::sleep(wait).await;
        }
    }
}

/// How long to wait after `made` attempts; `None` when the provider wants more patience than the limits have.
fn wait_before_next(limits: &ProviderLimits, made: u32, failure: &Failure) -> Option<Duration> {
    let doubled =
        limits.base_delay.saturating_mul(1_u32.checked_shl(made.saturating_sub(1)).unwrap_or(u32::MAX));
    let usual = doubled.min(limits.max_delay).mul_f64(rand::rng().random_range(0.5..=1.0));
    match failure.retry_after_ms.map(Duration::from_millis) {
        Some(asked) if asked > limits.max_delay => None,
        Some(asked) => Some(asked.max(usual)),
        None => Some(usual),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_with_jitter_and_honour_what_the_provider_asks() {
        let limits = ProviderLimits::default();
        let failure = Failure::new(FailureCode::Overloaded, "m");
        let asks = |ms| Failure { retry_after_ms: Some(ms), ..failure.clone() };
        for _ in 0..100 {
            let seconds = |made| wait_before_next(&limits, made, &failure).unwrap().as_secs_f64();
            assert!((1.0..=2.0).contains(&seconds(1)));
            assert!((2.0..=4.0).contains(&seconds(2)));
            assert!((30.0..=60.0).contains(&seconds(40)));
        }
        assert_eq!(wait_before_next(&limits, 1, &asks(30_000)), Some(Duration::from_secs(30)));
        assert!(wait_before_next(&limits, 1, &asks(1)).unwrap() >= Duration::from_secs(1));
        assert_eq!(wait_before_next(&limits, 1, &asks(60_001)), None);
    }
}
