//! What a model is asked and what it answers (spec: engine, sections 4.3 and 9.1).
//!
//! A prompt item is plain JSON behind an [`Arc`]: the agent loop keeps the projection of a transcript from step to
//! step and hashes it, so an item is built once (see [`super::item`]) and shared. Adapters read items through
//! [`super::item::ItemView`].

use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use nylorun_actors::model::Json;
use nylorun_actors::model::ids::{AgentId, EffectId, SessionId, TurnId};
use nylorun_actors::model::json::JsonMap;
use nylorun_actors::model::turn::Abort;
use nylorun_actors::ports::engine::{AbortSignal, Preview};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::prompt::Prompt;

/// One item of a prompt: `{kind: "instructions" | "message" | "tool-result" | "context", ...}`.
pub type PromptItem = Arc<Json>;

/// The input of a model effect. Its JSON form is what the request hash covers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelCall {
    /// Instructions, then the projected transcript, then runtime context.
    pub prompt: Prompt,
    /// Tools on offer: `{name, description?, inputSchema}` each.
    pub tools: Vec<Arc<Json>>,
    /// The model asked for; the Tenant's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelChoice>,
    /// Schema that the final answer must fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Arc<Json>>,
    /// The engine's execution: the session, or `<session>/<invocationId>` inside a sub-agent.
    pub execution_id: String,
    /// Sampling controls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controls: Option<Controls>,
}

impl ModelCall {
    /// The call as the effect's `input`.
    #[must_use]
    pub fn to_json(&self) -> Json {
        // Every map key in a call is a string, so this cannot fail.
        serde_json::to_value(self).unwrap_or(Json::Null)
    }
}

/// Which model, and its sampling parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelChoice {
    /// Model id; `<provider>/` may stand before it.
    pub id: String,
    /// Extra parameters passed to the provider as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<JsonMap>,
}

/// Sampling controls of one call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Controls {
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Most tokens to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
}

/// Where a call comes from, and how to reach whoever waits for it.
#[derive(Clone)]
pub struct CallContext {
    /// The model effect.
    pub effect_id: EffectId,
    /// The session.
    pub session_id: SessionId,
    /// The session's turn.
    pub turn_id: TurnId,
    /// The root agent.
    pub agent_id: AgentId,
    /// The agent used as a tool that asks; `None` for the root.
    pub child_id: Option<String>,
    /// The engine's invocation, also named in previews.
    pub invocation_id: String,
    /// Ends the call at once when it fires.
    pub abort: AbortSignal,
    /// Takes pieces of the answer while it is written; nobody listens when absent.
    pub preview: Option<Rc<dyn Fn(Preview)>>,
    /// Whether this effect was started before, so that a journaling gate may still know its answer.
    pub rejoin: bool,
}

impl std::fmt::Debug for CallContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallContext")
            .field("effect_id", &self.effect_id)
            .field("invocation_id", &self.invocation_id)
            .field("rejoin", &self.rejoin)
            .finish_non_exhaustive()
    }
}

/// Answers model calls.
///
/// The value is a candidate `{output: [block], finishReason?, usage?, evidence?}` or a failure outcome (see
/// [`Failure`]); both are completed outcomes of the effect. Only an abort is an error.
pub trait ModelAdapter {
    /// Answers one call.
    fn call(&self, call: ModelCall, cx: CallContext) -> LocalBoxFuture<'static, Result<Arc<Json>, Abort>>;
}

/// Why a model call failed; a turn that fails for it fails with `model.<code>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// The prompt does not fit the window.
    ContextOverflow,
    /// Too many requests, or a quota is used up.
    RateLimited,
    /// The provider has no capacity.
    Overloaded,
    /// No answer in time.
    Timeout,
    /// Anything that may pass: a lost connection, an internal error of the provider.
    Transient,
    /// The provider refused the content.
    ContentPolicy,
    /// The key is missing, wrong or not allowed.
    Auth,
    /// The provider does not take this request.
    InvalidRequest,
    /// The answer does not read.
    InvalidOutput,
    /// A spend cap of the model gate.
    BudgetExhausted,
}

impl FailureCode {
    /// Every code.
    pub const ALL: [Self; 10] = [
        Self::ContextOverflow,
        Self::RateLimited,
        Self::Overloaded,
        Self::Timeout,
        Self::Transient,
        Self::ContentPolicy,
        Self::Auth,
        Self::InvalidRequest,
        Self::InvalidOutput,
        Self::BudgetExhausted,
    ];

    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ContextOverflow => "context_overflow",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::Transient => "transient",
            Self::ContentPolicy => "content_policy",
            Self::Auth => "auth",
            Self::InvalidRequest => "invalid_request",
            Self::InvalidOutput => "invalid_output",
            Self::BudgetExhausted => "budget_exhausted",
        }
    }

    /// The code of a wire name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == name)
    }

    /// Whether a failure of this code is worth another attempt, unless something says otherwise (a used-up quota is
    /// `rate_limited` and final).
    #[must_use]
    pub fn retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Overloaded | Self::Timeout | Self::Transient)
    }
}

/// A failure outcome: `{kind: "failed", code, message, retryable, retryAfterMs?}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which of the closed list.
    pub code: FailureCode,
    /// In words, without secrets.
    pub message: String,
    /// Whether another attempt may succeed.
    pub retryable: bool,
    /// How long the provider asks to wait, ms.
    pub retry_after_ms: Option<u64>,
}

impl Failure {
    /// A failure of this code, retryable as the code says.
    #[must_use]
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: code.retryable(), retry_after_ms: None }
    }

    /// The same, never to be tried again.
    #[must_use]
    pub fn fatal(mut self) -> Self {
        self.retryable = false;
        self
    }

    /// The outcome value.
    #[must_use]
    pub fn to_json(&self) -> Arc<Json> {
        let mut value = json!({"kind": "failed", "code": self.code.as_str(), "message": self.message, "retryable": self.retryable});
        if let Some(ms) = self.retry_after_ms {
            value["retryAfterMs"] = json!(ms);
        }
        Arc::new(value)
    }

    /// Reads an outcome value. `None` when it is not a failure outcome: one needs a known code, a string `message`
    /// and a boolean `retryable`.
    #[must_use]
    pub fn read(value: &Json) -> Option<Self> {
        if value.get("kind")?.as_str()? != "failed" {
            return None;
        }
        Some(Self {
            code: FailureCode::from_name(value.get("code")?.as_str()?)?,
            message: value.get("message")?.as_str()?.to_owned(),
            retryable: value.get("retryable")?.as_bool()?,
            retry_after_ms: value.get("retryAfterMs").and_then(Json::as_u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reads_back_as_it_was_written() {
        for code in FailureCode::ALL {
            let failure = Failure { retry_after_ms: Some(1500), ..Failure::new(code, "no") };
            assert_eq!(Failure::read(&failure.to_json()), Some(failure));
        }
    }

    #[test]
    fn a_value_without_code_message_and_retryable_is_no_failure() {
        for value in [
            json!({"kind": "failed", "code": "made_up", "message": "m", "retryable": true}),
            json!({"kind": "failed", "code": "auth", "message": 3, "retryable": true}),
            json!({"kind": "failed", "code": "auth", "message": "m"}),
            json!({"code": "auth", "message": "m", "retryable": true}),
            json!("failed"),
        ] {
            assert_eq!(Failure::read(&value), None, "{value}");
        }
    }

    #[test]
    fn a_call_leaves_out_what_it_does_not_say() {
        let call = ModelCall {
            prompt: Prompt::default(),
            tools: vec![],
            model: None,
            output_schema: None,
            execution_id: "s".into(),
            controls: Some(Controls { temperature: None, max_output_tokens: Some(256) }),
        };
        assert_eq!(
            call.to_json(),
            json!({"prompt": [], "tools": [], "executionId": "s", "controls": {"maxOutputTokens": 256}})
        );
    }
}
