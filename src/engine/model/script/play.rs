//! Playing a script: which step answers a call, and what a scripted tool gives.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use nylorun_actors::model::Json;
use nylorun_actors::model::json::{JsonMap, encode};
use nylorun_actors::model::turn::Abort;
use nylorun_actors::ports::engine::{AbortSignal, Preview};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::format::{FixtureScript, Step};
use crate::engine::model::call::{CallContext, Failure, FailureCode, ModelAdapter, ModelCall};
use crate::engine::model::item::{ItemView, PartView};

/// A model that plays a script.
#[derive(Clone, Debug)]
pub struct ScriptedModel {
    script: Arc<FixtureScript>,
}

impl ScriptedModel {
    /// A model for this script.
    #[must_use]
    pub fn new(script: Arc<FixtureScript>) -> Self {
        Self { script }
    }
}

impl ModelAdapter for ScriptedModel {
    fn call(&self, call: ModelCall, cx: CallContext) -> LocalBoxFuture<'static, Result<Arc<Json>, Abort>> {
        let script = Arc::clone(&self.script);
        Box::pin(async move { play(&script, &call, &cx).await })
    }
}

/// Where a call stands in its conversation.
#[derive(Debug, PartialEq, Eq)]
struct Position {
    /// Text of the last message of a person.
    said: String,
    /// Assistant messages since.
    answers: usize,
}

/// Read from the end, since a long session's prompt is long too.
fn position(call: &ModelCall) -> Position {
    let mut answers = 0;
    for item in call.prompt.iter().rev() {
        match ItemView::read(item) {
            Some(ItemView::User { content }) => {
                let texts = content.iter().filter_map(|part| match part {
                    PartView::Text { text, .. } => Some(*text),
                    _ => None,
                });
                return Position { said: texts.collect::<Vec<_>>().join(" "), answers };
            }
            Some(ItemView::Assistant { .. }) => answers += 1,
            _ => {}
        }
    }
    Position { said: String::new(), answers }
}

async fn play(script: &FixtureScript, call: &ModelCall, cx: &CallContext) -> Result<Arc<Json>, Abort> {
    let here = position(call);
    let lists = script.lists(cx.child_id.as_deref());
    let case = lists.cases.iter().find(|(when, _)| when.fits(&here.said));
    let steps = case.map_or(&lists.otherwise, |(_, steps)| steps);
    let at = match steps.list.len() {
        0 => here.answers,
        len if steps.repeat => here.answers % len,
        _ => here.answers,
    };
    let Some(step) = steps.list.get(at) else {
        let message = format!("the fixture script has no step {} for this message", here.answers + 1);
        return match cx.abort.get() {
            Some(abort) => Err(abort),
            None => Ok(Failure::new(FailureCode::InvalidRequest, message).to_json()),
        };
    };
    pause(step.delay_ms, &cx.abort).await?;
    if let Some(failure) = &step.failure {
        return Ok(failure.to_failure().to_json());
    }
    let mut output = Vec::new();
    if let Some(reasoning) = &step.reasoning {
        output.push(json!({"type": "reasoning", "text": reasoning}));
    }
    if let Some(value) = &step.json {
        output.push(json!({"type": "json", "value": value}));
    }
    if let Some(text) = say(step, here.said, cx).await? {
        output.push(json!({"type": "text", "text": text}));
    }
    for (index, tool) in step.tool_calls.iter().enumerate() {
        let id = tool.id.clone().unwrap_or_else(|| call_id(call, index));
        show(cx, None, Some(json!({"callId": id, "name": tool.name})));
        output.push(json!({"type": "tool-call", "id": id, "name": tool.name, "args": tool.args}));
    }
    let reason = if step.tool_calls.is_empty() { "stop" } else { "tool-calls" };
    let mut candidate = JsonMap::new();
    candidate.insert("output".into(), Json::Array(output));
    candidate.insert("finishReason".into(), json!(step.finish_reason.as_deref().unwrap_or(reason)));
    if let Some(usage) = &step.usage {
        candidate.insert("usage".into(), json!(usage));
    }
    if let Some(evidence) = &step.evidence {
        candidate.insert("evidence".into(), evidence.to_json());
    }
    Ok(Arc::new(Json::Object(candidate)))
}

/// Says a step's text, piece by piece where it has pieces.
async fn say(step: &Step, said: String, cx: &CallContext) -> Result<Option<String>, Abort> {
    if let Some(chunks) = &step.chunks {
        for chunk in chunks {
            pause(step.chunk_delay_ms, &cx.abort).await?;
            show(cx, Some(chunk.clone()), None);
        }
        return Ok(Some(chunks.concat()));
    }
    let text = step.text.clone().or(step.echo.then_some(said));
    if let Some(text) = &text {
        show(cx, Some(text.clone()), None);
    }
    Ok(text)
}

fn show(cx: &CallContext, text: Option<String>, tool_call: Option<Json>) {
    if let Some(preview) = &cx.preview {
        preview(Preview { invocation_id: cx.invocation_id.clone(), text, tool_call });
    }
}

/// An id that another call of the session does not have: the prompt grows with every step, and where compaction
/// makes it shorter again its end is another.
fn call_id(call: &ModelCall, index: usize) -> String {
    let mut hash = Sha256::new();
    hash.update(call.execution_id.as_bytes());
    hash.update([0]);
    hash.update(call.prompt.last().map(|item| encode(item.as_ref())).unwrap_or_default().as_bytes());
    let hash = hex::encode(&hash.finalize()[..6]);
    format!("call_{hash}_{}_{index}", call.prompt.len())
}

async fn pause(ms: u64, abort: &AbortSignal) -> Result<(), Abort> {
    if let Some(abort) = abort.get() {
        return Err(abort);
    }
    if ms == 0 {
        return Ok(());
    }
    tokio::select! {
        biased;
        abort = abort.fired() => Err(abort),
        () = tokio::time::sleep(Duration::from_millis(ms)) => Ok(()),
    }
}

impl FixtureScript {
    /// Runs a tool of the script. The value is a tool outcome: `{kind: "completed", output}` or
    /// `{kind: "failed", code, message, retryable?}`; a tool that the script does not have fails with `tool.unknown`.
    ///
    /// # Errors
    /// The abort, when it fires during the tool's delay.
    pub fn run_tool(
        &self,
        name: &str,
        input: Arc<Json>,
        abort: AbortSignal,
    ) -> LocalBoxFuture<'static, Result<Arc<Json>, Abort>> {
        let tool = self.tools.get(name).cloned();
        let name = name.to_owned();
        Box::pin(async move {
            let Some(tool) = tool else {
                let message = format!("the fixture script has no tool {name}");
                return Ok(Arc::new(json!({"kind": "failed", "code": "tool.unknown", "message": message})));
            };
            pause(tool.delay_ms, &abort).await?;
            if let Some(failed) = tool.failed {
                let mut value = json!({"kind": "failed", "code": failed.code, "message": failed.message});
                if let Some(retryable) = failed.retryable {
                    value["retryable"] = json!(retryable);
                }
                return Ok(Arc::new(value));
            }
            let output = tool.output.unwrap_or_else(|| input.as_ref().clone());
            Ok(Arc::new(json!({"kind": "completed", "output": output})))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use nylorun_actors::model::turn::AbortKind;
    use tokio::sync::watch;

    use super::*;
    use crate::engine::model::item;

    fn script(script: Json) -> FixtureScript {
        FixtureScript::parse(&script).unwrap()
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

    type Shown = Rc<RefCell<Vec<Preview>>>;

    fn context() -> (watch::Sender<Option<Abort>>, CallContext, Shown) {
        let (sender, abort) = AbortSignal::channel();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&seen);
        let cx = CallContext {
            effect_id: "t:0:model:i".into(),
            session_id: "session-1".into(),
            turn_id: "t".into(),
            agent_id: "a".into(),
            child_id: None,
            invocation_id: "i".into(),
            abort,
            preview: Some(Rc::new(move |preview| sink.borrow_mut().push(preview))),
            rejoin: false,
        };
        (sender, cx, seen)
    }

    async fn ask(of: &FixtureScript, prompt: Vec<Arc<Json>>) -> Json {
        let (_sender, cx, _) = context();
        play(of, &call(prompt), &cx).await.unwrap().as_ref().clone()
    }

    fn said(text: &str) -> Arc<Json> {
        item::assistant(vec![item::text_part(text)], None)
    }

    #[tokio::test]
    async fn the_step_is_the_number_of_answers_since_the_last_message() {
        let script = script(json!({"steps": [{"text": "one"}, {"text": "two"}]}));
        let text = |answer: Json| answer["output"][0]["text"].as_str().map(str::to_owned);
        let hi = || item::user_text("hi");
        assert_eq!(text(ask(&script, vec![hi()]).await).as_deref(), Some("one"));
        assert_eq!(text(ask(&script, vec![hi(), said("x")]).await).as_deref(), Some("two"));
        assert_eq!(text(ask(&script, vec![hi(), said("x"), said("y"), hi()]).await).as_deref(), Some("one"));
        let over = ask(&script, vec![hi(), said("x"), said("y")]).await;
        assert_eq!(Failure::read(&over).unwrap().code, FailureCode::InvalidRequest);
    }

    #[tokio::test]
    async fn repeated_steps_start_again_and_a_case_goes_before_them() {
        let script = script(json!({"steps": [{"text": "a"}, {"text": "b"}], "repeat": true, "cases": [
            {"when": {"contains": "never"}, "steps": [{"text": "c"}]},
            {"when": {"equals": "hi"}, "steps": [{"echo": true}]},
        ]}));
        let answers = ask(&script, vec![item::user_text("hello"), said("x"), said("y")]).await;
        assert_eq!(answers, json!({"output": [{"type": "text", "text": "a"}], "finishReason": "stop"}));
        assert_eq!(ask(&script, vec![item::user_text("hi")]).await["output"][0]["text"], "hi");
    }

    #[tokio::test]
    async fn an_agent_used_as_a_tool_has_lists_of_its_own_or_those_of_the_script() {
        let script = script(json!({"steps": [{"text": "root"}], "agents": {"finder": {
            "steps": [{"text": "found"}], "cases": [{"when": {"contains": "hard"}, "steps": [{"text": "sought"}]}]}}}));
        let ask = async |child: Option<&str>, task: &str| {
            let (_sender, mut cx, _) = context();
            cx.child_id = child.map(str::to_owned);
            play(&script, &call(vec![item::user_text(task)]), &cx).await.unwrap()["output"][0]["text"].clone()
        };
        assert_eq!(ask(Some("finder"), "easy").await, "found");
        assert_eq!(ask(Some("finder"), "a hard one").await, "sought");
        assert_eq!(
            (ask(None, "hard").await, ask(Some("writer"), "hard").await),
            (json!("root"), json!("root"))
        );
    }

    #[tokio::test]
    async fn a_step_says_everything_that_a_candidate_can_hold() {
        let script = script(json!({"steps": [{
            "reasoning": "r", "text": "t", "toolCalls": [{"id": "x", "name": "n", "args": {"a": 1}}, {"name": "m"}],
            "usage": {"inputTokens": 1, "costUsd": 0.5}, "evidence": {"contextWindow": 4000, "resolvedModel": "m"},
        }, {"json": null, "finishReason": "length"}]}));
        let answer = ask(&script, vec![item::user_text("hi")]).await;
        assert_eq!(answer["output"][0], json!({"type": "reasoning", "text": "r"}));
        assert_eq!(answer["output"][1], json!({"type": "text", "text": "t"}));
        assert_eq!(
            answer["output"][2],
            json!({"type": "tool-call", "id": "x", "name": "n", "args": {"a": 1}})
        );
        assert_eq!(answer["output"][3]["args"], json!({}));
        assert_eq!(answer["finishReason"], "tool-calls");
        assert_eq!(answer["usage"], json!({"inputTokens": 1, "costUsd": 0.5}));
        assert_eq!(answer["evidence"], json!({"resolvedModel": "m", "extras": {"contextWindow": 4000}}));
        let second = ask(&script, vec![item::user_text("hi"), said("t")]).await;
        assert_eq!(second, json!({"output": [{"type": "json", "value": null}], "finishReason": "length"}));
    }

    #[tokio::test]
    async fn calls_without_an_id_get_one_that_no_other_call_has() {
        let script =
            script(json!({"steps": [{"toolCalls": [{"name": "n"}, {"name": "n"}]}], "repeat": true}));
        let hi = || item::user_text("hi");
        let mut ids = Vec::new();
        for prompt in
            [vec![hi()], vec![hi(), said("x")], vec![hi(), said("x"), hi()], vec![item::user_text("ho")]]
        {
            let answer = ask(&script, prompt.clone()).await;
            assert_eq!(answer, ask(&script, prompt).await, "the same call gives the same ids");
            ids.extend(
                answer["output"].as_array().unwrap().iter().map(|b| b["id"].as_str().unwrap().to_owned()),
            );
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn chunks_are_shown_one_by_one_after_their_delays() {
        let script = script(json!({"steps": [
            {"chunks": ["a", "b"], "chunkDelayMs": 100, "delayMs": 1000, "toolCalls": [{"id": "x", "name": "n"}]},
        ]}));
        let (_sender, cx, seen) = context();
        let start = tokio::time::Instant::now();
        let answer = play(&script, &call(vec![item::user_text("hi")]), &cx).await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_millis(1200));
        assert_eq!(answer["output"][0]["text"], "ab");
        let texts: Vec<_> = seen.borrow().iter().map(|p| p.text.clone()).collect();
        assert_eq!(texts, [Some("a".to_owned()), Some("b".to_owned()), None]);
        assert_eq!(seen.borrow()[2].tool_call, Some(json!({"callId": "x", "name": "n"})));
    }

    #[tokio::test(start_paused = true)]
    async fn an_abort_ends_a_delay_at_once() {
        let script = script(
            json!({"steps": [{"text": "late", "delayMs": 60_000}], "tools": {"t": {"echo": true, "delayMs": 60_000}}}),
        );
        let (sender, cx, _) = context();
        let start = tokio::time::Instant::now();
        let fire = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            sender.send(Some(Abort { kind: AbortKind::Cancel, message: "stop".into() })).unwrap();
        };
        let call = call(vec![item::user_text("hi")]);
        let (answer, tool, ()) = tokio::join!(
            play(&script, &call, &cx),
            script.run_tool("t", Arc::new(json!(1)), cx.abort.clone()),
            fire
        );
        assert_eq!(answer.unwrap_err().kind, AbortKind::Cancel);
        assert_eq!(tool.unwrap_err().kind, AbortKind::Cancel);
        assert_eq!(start.elapsed(), Duration::from_millis(5));
    }

    #[tokio::test]
    async fn tools_of_a_script_complete_echo_or_fail() {
        let script = script(json!({"steps": [{"text": "x"}], "tools": {
            "null": {"output": null}, "echo": {"echo": true}, "bad": {"failed": {"code": "x.y", "message": "m", "retryable": true}},
        }}));
        let run = async |name: &str| {
            let (_sender, cx, _) = context();
            script.run_tool(name, Arc::new(json!({"in": 1})), cx.abort).await.unwrap().as_ref().clone()
        };
        assert_eq!(run("null").await, json!({"kind": "completed", "output": null}));
        assert_eq!(run("echo").await, json!({"kind": "completed", "output": {"in": 1}}));
        assert_eq!(
            run("bad").await,
            json!({"kind": "failed", "code": "x.y", "message": "m", "retryable": true})
        );
        assert_eq!(run("none").await["code"], "tool.unknown");
    }

    #[tokio::test]
    async fn a_failure_is_retryable_as_its_code_says_unless_the_script_says_otherwise() {
        let script = script(json!({"steps": [
            {"failure": {"code": "overloaded", "message": "m"}},
            {"failure": {"code": "overloaded", "message": "m", "retryable": false, "retryAfterMs": 7}},
        ]}));
        let first = ask(&script, vec![item::user_text("hi")]).await;
        assert_eq!(first, json!({"kind": "failed", "code": "overloaded", "message": "m", "retryable": true}));
        let second = ask(&script, vec![item::user_text("hi"), said("x")]).await;
        assert_eq!(Failure::read(&second).unwrap().retry_after_ms, Some(7));
        assert_eq!(second["retryable"], false);
    }
}
