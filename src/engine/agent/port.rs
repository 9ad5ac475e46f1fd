//! What the loop needs from outside: effects resolved, the abort, and how long the run has lasted
//! (spec: engine, sections 3.3 to 3.5).

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use nylorun_actors::model::Json;
use nylorun_actors::model::canonical::{
    Hasher, Sink, request_hash, request_hash_with_input, write_canonical, write_string,
};
use nylorun_actors::model::checkpoint::Checkpoint;
use nylorun_actors::model::effect::{EffectIntent, EffectKind, Outcome};
use nylorun_actors::model::ids::{AgentId, EffectId};
use nylorun_actors::model::json::JsonMap;
use nylorun_actors::model::turn::Abort;
use serde_json::json;

use super::definition::{Definition, Toolset};
use super::errors::PortError;
use super::projection::Projection;
use super::state::SavedCall;
use crate::engine::model::call::ModelCall;

/// An effect as the loop declares it.
#[derive(Clone, Debug)]
pub struct Effect {
    /// What core is told.
    pub intent: EffectIntent,
    /// The hash of the whole request.
    pub request_hash: String,
    /// What a model is asked; `None` for a tool.
    pub call: Option<ModelCall>,
}

/// What an effect came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// Its outcome.
    Completed(Outcome),
    /// Not yet.
    Pending,
    /// Nobody knows.
    Uncertain,
}

/// The world of one run. Requests of one plan run at the same time.
pub trait EffectPort {
    /// Resolves an effect: from the journal, by running it, or by waiting a while.
    fn resolve(&self, effect: Effect) -> LocalBoxFuture<'static, Result<Resolution, PortError>>;

    /// The abort, if it has fired.
    fn aborted(&self) -> Option<Abort>;

    /// Milliseconds since the run began.
    fn elapsed_ms(&self) -> u64;
}

/// The parts that all effects of a segment share.
#[derive(Clone, Debug)]
pub struct EffectMaker {
    session: nylorun_actors::model::ids::SessionId,
    turn: nylorun_actors::model::ids::TurnId,
    segment: u32,
    agent: AgentId,
    manifest_hash: String,
    info: Option<JsonMap>,
}

impl EffectMaker {
    /// For the segment of a checkpoint.
    #[must_use]
    pub fn new(checkpoint: &Checkpoint, definition: &Definition) -> Self {
        Self {
            session: checkpoint.session_id.clone(),
            turn: checkpoint.turn_id.clone(),
            segment: checkpoint.segment,
            agent: AgentId::from(definition.id.as_str()),
            manifest_hash: definition.hash.clone(),
            info: checkpoint.info.clone(),
        }
    }

    /// `<turnId>:<segment>:<identity>`.
    #[must_use]
    pub fn id(&self, identity: &str) -> String {
        format!("{}:{}:{identity}", self.turn, self.segment)
    }

    fn intent(&self, kind: EffectKind, invocation: &str, context: JsonMap) -> EffectIntent {
        EffectIntent {
            effect_id: EffectId::from(self.id(&format!("{}:{invocation}", kind.as_str()))),
            session_id: self.session.clone(),
            turn_id: self.turn.clone(),
            agent_id: self.agent.clone(),
            manifest_hash: self.manifest_hash.clone(),
            kind,
            agent: None,
            capability_id: None,
            tool_name: None,
            hook: None,
            path: None,
            key: None,
            iterations: None,
            input: None,
            context,
        }
    }

    /// A model call over the transcript as it stands.
    #[must_use]
    pub fn model(
        &self,
        invocation: &str,
        definition: &Definition,
        tools: &Toolset,
        view: &Projection,
    ) -> Effect {
        let mut context = JsonMap::new();
        context.insert("invocationId".to_owned(), json!(invocation));
        let intent = self.intent(EffectKind::Model, invocation, context);
        let head = definition.head.as_ref();
        let request_hash = request_hash_with_input(&intent, |hasher: &mut Hasher| {
            // The members of a call in code-unit order.
            hasher.put(r#"{"executionId":"#);
            write_string(self.session.as_str(), hasher);
            if let Some(schema) = &definition.output_schema {
                hasher.put(r#","outputSchema":"#);
                write_canonical(schema, hasher);
            }
            hasher.put(r#","prompt":"#);
            view.hash_prompt(head.map(|head| head.text.as_str()), hasher);
            hasher.put(r#","tools":"#);
            hasher.put(&tools.offers_text);
            hasher.put("}");
        });
        let call = ModelCall {
            prompt: view.prompt(head.map(|head| &head.item)),
            tools: tools.offers.clone(),
            model: None,
            output_schema: definition.output_schema.clone(),
            execution_id: self.session.as_str().to_owned(),
            controls: None,
        };
        Effect { intent, request_hash, call: Some(call) }
    }

    /// The execution of a saved call. `turn` is the engine's; `memory` the session's memory before the plan ran.
    #[must_use]
    pub fn tool(&self, turn: &str, step: &str, call: &SavedCall, memory: &JsonMap) -> Effect {
        let mut context = JsonMap::new();
        let mut put = |key: &str, value: Json| context.insert(key.to_owned(), value);
        put("executionId", json!(self.session.as_str()));
        put("turnId", json!(turn));
        put("stepId", json!(step));
        put("callId", json!(call.call_id));
        put("invocationId", json!(call.invocation_id));
        put("idempotencyKey", json!(call.call_id));
        if let Some(info) = &self.info {
            put("info", Json::Object(info.clone()));
        }
        put("state", Json::Object(memory.clone()));
        if let Some(resume) = &call.resume {
            put("resume", Json::Object(resume.clone()));
        }
        let mut intent = self.intent(EffectKind::Tool, &call.invocation_id, context);
        intent.capability_id = Some(call.reference.capability_id.clone());
        intent.tool_name = Some(call.tool_name.clone());
        intent.input = Some(Arc::clone(&call.args));
        Effect { request_hash: request_hash(&intent), intent, call: None }
    }
}
