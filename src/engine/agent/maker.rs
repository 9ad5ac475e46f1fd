//! The effects of one agent in one segment, as core is told them (spec: engine, sections 3.3 to 3.5).

use std::sync::Arc;

use nylorun_actors::model::Json;
use nylorun_actors::model::canonical::{
    Hasher, Sink, request_hash, request_hash_with_input, write_canonical, write_string,
};
use nylorun_actors::model::checkpoint::Checkpoint;
use nylorun_actors::model::effect::{AgentRef, EffectHook, EffectIntent, EffectKind};
use nylorun_actors::model::ids::{AgentId, EffectId, SessionId, TurnId};
use nylorun_actors::model::json::JsonMap;
use serde_json::json;

use super::definition::{Definition, Head};
use super::port::Effect;
use super::projection::Projection;
use super::state::SavedCall;
use super::toolset::Toolset;
use crate::engine::model::call::ModelCall;

/// What a model is asked with, beside the transcript.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The instructions.
    pub head: Option<&'a Head>,
    /// The tools on offer.
    pub tools: &'a Toolset,
    /// The schema of the final answer.
    pub output_schema: Option<&'a Arc<Json>>,
}

/// The parts that all effects of an agent in a segment share.
#[derive(Clone, Debug)]
pub struct EffectMaker {
    session: SessionId,
    turn: TurnId,
    segment: u32,
    /// The root agent, whoever acts.
    root: AgentId,
    /// The root's manifest, whoever acts.
    manifest_hash: String,
    info: Option<JsonMap>,
    /// The sub-agent that acts; `None` for the root.
    agent: Option<AgentRef>,
    /// Stands before each identity: empty, or `<delegationId>/`.
    prefix: String,
    /// The session, or `<session>/<delegationId>`.
    execution: String,
    /// The sub-agent's manifest.
    manifest: Option<Arc<Json>>,
}

impl EffectMaker {
    /// For the root agent in the segment of a checkpoint.
    #[must_use]
    pub fn new(checkpoint: &Checkpoint, definition: &Definition) -> Self {
        Self {
            session: checkpoint.session_id.clone(),
            turn: checkpoint.turn_id.clone(),
            segment: checkpoint.segment,
            root: AgentId::from(definition.id.as_str()),
            manifest_hash: definition.hash.clone(),
            info: checkpoint.info.clone(),
            agent: None,
            prefix: String::new(),
            execution: checkpoint.session_id.as_str().to_owned(),
            manifest: None,
        }
    }

    /// For the sub-agent that an invocation of this agent runs; the invocation is its delegation's id.
    #[must_use]
    pub fn child(&self, child: &Definition, delegation: &str) -> Self {
        let above = self.agent.as_ref().map_or_else(|| self.root.as_str(), |agent| &agent.path);
        let agent = AgentRef {
            id: child.id.clone(),
            path: format!("{above}/{}", child.id),
            delegation_id: Some(delegation.to_owned()),
        };
        Self {
            agent: Some(agent),
            prefix: format!("{}{delegation}/", self.prefix),
            execution: format!("{}/{delegation}", self.execution),
            manifest: Some(Arc::clone(&child.manifest)),
            ..self.clone()
        }
    }

    /// Whether a sub-agent acts.
    #[must_use]
    pub fn is_child(&self) -> bool {
        self.agent.is_some()
    }

    /// What the application told the session about itself.
    #[must_use]
    pub fn info(&self) -> Option<&JsonMap> {
        self.info.as_ref()
    }

    /// The session, or `<session>/<delegationId>` in a sub-agent.
    #[must_use]
    pub fn execution(&self) -> &str {
        &self.execution
    }

    /// `<turnId>:<segment>:interaction:<invocationId>`.
    #[must_use]
    pub fn interaction_id(&self, invocation: &str) -> String {
        format!("{}:{}:interaction:{invocation}", self.turn, self.segment)
    }

    fn intent(&self, kind: EffectKind, identity: &str, context: JsonMap) -> EffectIntent {
        let id = format!("{}:{}:{}:{}{identity}", self.turn, self.segment, kind.as_str(), self.prefix);
        EffectIntent {
            effect_id: EffectId::from(id),
            session_id: self.session.clone(),
            turn_id: self.turn.clone(),
            agent_id: self.root.clone(),
            manifest_hash: self.manifest_hash.clone(),
            kind,
            agent: self.agent.clone(),
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

    fn effect(&self, intent: EffectIntent) -> Effect {
        Effect { request_hash: request_hash(&intent), intent, call: None, manifest: self.manifest.clone() }
    }

    /// A model call over the transcript as it stands.
    #[must_use]
    pub fn model(&self, invocation: &str, ask: Ask<'_>, view: &Projection) -> Effect {
        let mut context = JsonMap::new();
        context.insert("invocationId".to_owned(), json!(invocation));
        let intent = self.intent(EffectKind::Model, invocation, context);
        let Ask { head, tools, output_schema } = ask;
        let request_hash = request_hash_with_input(&intent, |hasher: &mut Hasher| {
            // The members of a call in code-unit order.
            hasher.put(r#"{"executionId":"#);
            write_string(&self.execution, hasher);
            if let Some(schema) = output_schema {
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
            output_schema: output_schema.cloned(),
            execution_id: self.execution.clone(),
            controls: None,
        };
        Effect { intent, request_hash, call: Some(call), manifest: None }
    }

    /// The execution of a saved call. `turn` is the engine's; `memory` the session's memory before the plan ran.
    #[must_use]
    pub fn tool(&self, turn: &str, step: &str, call: &SavedCall, memory: &JsonMap) -> Effect {
        let mut context = JsonMap::new();
        let mut put = |key: &str, value: Json| context.insert(key.to_owned(), value);
        put("executionId", json!(self.execution));
        put("turnId", json!(turn));
        put("stepId", json!(step));
        put("callId", json!(call.call_id));
        put("invocationId", json!(call.invocation_id));
        put("idempotencyKey", json!(format!("{}{}", self.prefix, call.call_id)));
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
        self.effect(intent)
    }

    /// The hooks of a point, all capabilities at once. `identity` names the point and, but for the first, its step.
    #[must_use]
    pub fn hook(&self, identity: &str, hook: EffectHook, input: JsonMap) -> Effect {
        let mut context = JsonMap::new();
        if let Some(info) = &self.info {
            context.insert("info".to_owned(), Json::Object(info.clone()));
        }
        let mut intent = self.intent(EffectKind::Hook, identity, context);
        intent.hook = Some(hook);
        intent.input = Some(Arc::new(Json::Object(input)));
        self.effect(intent)
    }

    /// A point in the life of a sub-agent, `started` or `settled`. `call` is the model's call id.
    #[must_use]
    pub fn delegation(&self, child: &Self, delegation: &str, point: &str, call: &str, input: Json) -> Effect {
        let mut context = JsonMap::new();
        context.insert("callId".to_owned(), json!(call));
        let mut intent = self.intent(EffectKind::Delegation, &format!("{delegation}:{point}"), context);
        intent.agent.clone_from(&child.agent);
        intent.input = Some(Arc::new(input));
        self.effect(intent)
    }
}
