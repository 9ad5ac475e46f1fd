//! The fixture model: answers without any provider, by four fixed rules, so that a turn can be tried on a Runtime
//! that has no key (spec: engine, section 9.3).

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use nylorun_actors::model::Json;
use nylorun_actors::model::turn::Abort;
use serde_json::json;

use super::call::{CallContext, ModelAdapter, ModelCall};
use super::item::{ItemView, PartView};

/// The built-in model. A pure function of the call.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixtureModel;

impl ModelAdapter for FixtureModel {
    fn call(&self, call: ModelCall, cx: CallContext) -> LocalBoxFuture<'static, Result<Arc<Json>, Abort>> {
        Box::pin(async move {
            match cx.abort.get() {
                Some(abort) => Err(abort),
                None => Ok(Arc::new(answer(&call))),
            }
        })
    }
}

/// The answer to a call.
#[must_use]
pub fn answer(call: &ModelCall) -> Json {
    if let Some(ItemView::ToolResult { content, .. }) =
        call.prompt.last().and_then(|item| ItemView::read(item))
    {
        let parts: Vec<String> = content.iter().map(PartView::to_text).collect();
        return text(&format!("Order lookup complete: {}", parts.join(" ")));
    }
    let mut said = call.prompt.iter().filter_map(|item| match ItemView::read(item) {
        Some(ItemView::User { content }) => Some(content),
        _ => None,
    });
    if let (Some(first), Some(_)) = (said.next(), said.next()) {
        let parts: Vec<&str> = first
            .iter()
            .map(|part| match part {
                PartView::Text { text, .. } => *text,
                _ => "",
            })
            .collect();
        return text(&format!("I remember: {}", parts.join(" ")));
    }
    if !call.tools.iter().any(|tool| tool["name"] == "lookup_order") {
        return text("Hello from the fixture model.");
    }
    json!({"output": [
        {"type": "tool-call", "id": "fixture_lookup", "name": "lookup_order", "args": {"orderId": "demo-123"}},
    ]})
}

fn text(text: &str) -> Json {
    json!({"output": [{"type": "text", "text": text}]})
}

#[cfg(test)]
mod tests {
    use super::super::item;
    use super::*;

    fn ask(prompt: Vec<Arc<Json>>, tools: &[&str]) -> Json {
        let tools = tools.iter().map(|name| Arc::new(json!({"name": name, "inputSchema": {}}))).collect();
        answer(&ModelCall {
            prompt: prompt.into(),
            tools,
            model: None,
            output_schema: None,
            execution_id: "s".into(),
            controls: None,
        })
    }

    #[test]
    fn a_tool_result_at_the_end_is_read_out_whatever_came_before() {
        let result =
            item::tool_result("fixture_lookup", "lookup_order", "completed", r#"{"status":"shipped"}"#);
        let expected = text(r#"Order lookup complete: {"status":"shipped"}"#);
        assert_eq!(ask(vec![item::user_text("a"), result.clone()], &["lookup_order"]), expected);
        assert_eq!(ask(vec![item::user_text("a"), item::user_text("b"), result], &[]), expected);
    }

    #[test]
    fn parts_of_a_tool_result_are_joined_and_other_parts_shown_as_json() {
        let result = json!({"kind": "tool-result", "toolCallId": "c", "toolName": "t", "status": "failed",
            "content": [{"type": "text", "text": "one"}, {"type": "odd", "n": 2}]});
        assert_eq!(
            ask(vec![Arc::new(result)], &[]),
            text(r#"Order lookup complete: one {"type":"odd","n":2}"#)
        );
    }

    #[test]
    fn a_second_message_of_a_person_brings_back_the_first() {
        let media = json!({"type": "media", "mediaType": "image/png", "reference": "r"});
        let first = item::user_parts(vec![item::text_part("one"), media, item::text_part("two")]);
        assert_eq!(
            ask(vec![first, item::user_text("again")], &["lookup_order"]),
            text("I remember: one  two")
        );
    }

    #[test]
    fn runtime_context_and_instructions_are_no_messages_of_a_person() {
        let prompt = vec![
            item::instructions("be kind"),
            item::user_text("hi"),
            item::context(vec![item::text_part("it rains")]),
        ];
        assert_eq!(ask(prompt, &[]), text("Hello from the fixture model."));
    }

    #[test]
    fn without_the_lookup_tool_it_says_hello() {
        assert_eq!(ask(vec![item::user_text("hi")], &["other"]), text("Hello from the fixture model."));
    }

    #[test]
    fn with_the_lookup_tool_it_calls_it_with_the_same_id_every_time() {
        let expected = json!({"output": [{"type": "tool-call", "id": "fixture_lookup", "name": "lookup_order",
            "args": {"orderId": "demo-123"}}]});
        assert_eq!(ask(vec![item::user_text("hi")], &["lookup_order"]), expected);
        assert_eq!(ask(vec![item::user_text("hi")], &["a", "lookup_order"]), expected);
    }
}
