//! Sealing a candidate: the final output, or a plan of tool calls (spec: engine, section 4.4).

use std::collections::HashMap;
use std::sync::Arc;

use nylorun_actors::model::Json;
use nylorun_actors::model::json::JsonMap;
use serde_json::json;

use super::definition::Definition;
use super::errors::TurnFailure;
use super::hooks::decision::Verdict;
use super::ids::Ids;
use super::results;
use super::schema::Refusal;
use super::state::{CallStatus, Ordered, Plan, SavedCall};
use super::toolset::Toolset;

/// A call as the model wrote it, with an id and a name of its own.
struct Asked {
    call_id: String,
    name: String,
    args: Arc<Json>,
    /// What is wrong with the id that the model gave.
    bad_id: Option<(&'static str, &'static str)>,
}

/// Where a step stands in its turn.
#[derive(Clone, Copy, Debug)]
pub struct StepAt<'a> {
    /// The engine's turn id.
    pub turn_id: &'a str,
    /// The step's id.
    pub step_id: &'a str,
    /// From 1.
    pub number: u32,
}

/// Whether a candidate calls tools.
#[must_use]
pub fn calls_tools(candidate: &JsonMap) -> bool {
    blocks(candidate).any(|block| block_type(block) == "tool-call")
}

/// The plan of a candidate that calls tools, without those that hooks deny. Ids and names that cannot stand are replaced
/// in the candidate too, so that each call in the transcript has a result.
///
/// # Errors
/// `configuration.invalid` when a tool's schema cannot be used.
pub fn plan(
    candidate: &mut JsonMap,
    tools: &Toolset,
    ids: &mut Ids,
    at: StepAt<'_>,
    verdict: &Verdict,
) -> Result<Plan, TurnFailure> {
    let (mut order, mut immediate, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for Asked { call_id, name, args, bad_id } in asked(candidate, ids) {
        order.push(Ordered { call_id: call_id.clone(), tool_name: name.clone() });
        if let Some((code, message)) = bad_id {
            immediate.push(results::failed(&call_id, &name, code, message, None));
            continue;
        }
        let Some(tool) = tools.get(&name) else {
            let message = format!("there is no tool named {name}");
            immediate.push(results::failed(&call_id, &name, "tool.unknown", &message, None));
            continue;
        };
        match tool.input().check(&args) {
            Ok(()) if let Some(reason) = verdict.denial(&call_id) => {
                immediate.push(results::denied(&call_id, &name, reason));
            }
            Ok(()) => calls.push(SavedCall {
                call_id,
                invocation_id: ids.next("invocation"),
                tool_name: name,
                raw_args: Arc::clone(&args),
                args,
                reference: tool.reference.clone(),
                status: CallStatus::Pending,
                result: None,
                interaction: None,
                interaction_phase: None,
                resume: None,
                token: None,
                wait: None,
            }),
            Err(Refusal::Invalid(issues)) => {
                let details = Some(issues.details("input"));
                immediate.push(results::failed(
                    &call_id,
                    &name,
                    "tool.invalid-arguments",
                    &issues.message,
                    details,
                ));
            }
            Err(Refusal::Unusable(message)) => {
                let message = format!("the input schema of tool {name} cannot be used: {message}");
                return Err(TurnFailure::of_step("configuration.invalid", message));
            }
        }
    }
    Ok(Plan {
        turn_id: at.turn_id.to_owned(),
        step_id: at.step_id.to_owned(),
        step_number: at.number,
        order,
        immediate,
        calls,
    })
}

/// The output of a candidate that calls no tools: its texts joined, or with an output schema its one json block.
///
/// # Errors
/// `output.invalid` when the answer does not fit the output schema.
pub fn output(candidate: &JsonMap, definition: &Definition) -> Result<Json, TurnFailure> {
    let texts = || blocks(candidate).filter(|block| block_type(block) == "text");
    let Some(schema) = definition.output() else {
        let text: String = texts().filter_map(|block| block.get("text")?.as_str()).collect();
        return Ok(Json::String(text));
    };
    let invalid = |message: String| TurnFailure::of_step("output.invalid", message);
    let mut values = blocks(candidate).filter(|block| block_type(block) == "json");
    let (Some(block), None, None) = (values.next(), values.next(), texts().next()) else {
        return Err(invalid("the answer is not exactly one json block".to_owned()));
    };
    let value = block.get("value").cloned().unwrap_or(Json::Null);
    match schema.check(&value) {
        Ok(()) => Ok(value),
        Err(Refusal::Invalid(issues)) => Err(invalid(issues.message)),
        Err(Refusal::Unusable(message)) => {
            let message = format!("the output schema cannot be used: {message}");
            Err(TurnFailure::of_step("configuration.invalid", message))
        }
    }
}

/// The calls in order. Each gets an id and a name that can stand, here and in the candidate.
fn asked(candidate: &mut JsonMap, ids: &mut Ids) -> Vec<Asked> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for block in blocks(candidate).filter(|block| block_type(block) == "tool-call") {
        *seen.entry(member(block, "id").to_owned()).or_default() += 1;
    }
    let Some(list) = candidate.get_mut("output").and_then(Json::as_array_mut) else { return Vec::new() };
    let mut out = Vec::new();
    for block in list.iter_mut().filter(|block| block_type(block) == "tool-call") {
        let given = member(block, "id").to_owned();
        let bad_id = if given.is_empty() {
            Some(("tool.invalid-call-id", "the call has no id"))
        } else if seen.get(&given).is_some_and(|times| *times > 1) {
            Some(("tool.duplicate-call-id", "another call has the same id"))
        } else {
            None
        };
        let call_id = if bad_id.is_some() { ids.next("call") } else { given };
        if bad_id.is_some() {
            block["id"] = json!(call_id);
        }
        if member(block, "name").is_empty() {
            block["name"] = json!("unknown");
        }
        out.push(Asked {
            call_id,
            name: member(block, "name").to_owned(),
            args: Arc::new(block.get("args").cloned().unwrap_or_else(|| json!({}))),
            bad_id,
        });
    }
    out
}

fn blocks(candidate: &JsonMap) -> impl Iterator<Item = &Json> {
    candidate.get("output").and_then(Json::as_array).into_iter().flatten()
}

fn block_type(block: &Json) -> &str {
    member(block, "type")
}

fn member<'a>(block: &'a Json, key: &str) -> &'a str {
    block.get(key).and_then(Json::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(more: Json) -> Definition {
        let mut manifest = json!({"manifestSchemaVersion": 4, "id": "a", "capabilities": [{"id": "c", "type": "agent", "tools": [
            {"name": "add", "inputSchema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}]}]});
        for (key, value) in more.as_object().cloned().unwrap_or_default() {
            manifest[key] = value;
        }
        Definition::read(Arc::new(manifest), false).unwrap()
    }

    fn candidate(blocks: Json) -> JsonMap {
        json!({"output": blocks}).as_object().cloned().unwrap()
    }

    fn call(id: &str, name: &str, args: Json) -> Json {
        json!({"type": "tool-call", "id": id, "name": name, "args": args})
    }

    fn sealed(blocks: Json) -> (JsonMap, Plan) {
        let mut candidate = candidate(blocks);
        let tools = definition(json!({})).toolset(&[]).unwrap();
        let at = StepAt { turn_id: "turn", step_id: "step", number: 1 };
        let plan = plan(&mut candidate, &tools, &mut Ids::with_seed("S".to_owned()), at, &Verdict::default())
            .unwrap();
        (candidate, plan)
    }

    fn codes(plan: &Plan) -> Vec<(&str, &str)> {
        plan.immediate.iter().map(|r| (results::key(r).0, r["code"].as_str().unwrap_or(""))).collect()
    }

    #[test]
    fn only_valid_calls_get_an_invocation_and_the_order_keeps_all() {
        let (_, plan) = sealed(json!([
            call("1", "nope", json!({})),
            call("2", "add", json!({"n": 1})),
            call("3", "add", json!({"n": "x"})),
            call("4", "add", json!({"n": 2})),
        ]));
        assert_eq!(plan.order.iter().map(|o| o.call_id.as_str()).collect::<Vec<_>>(), ["1", "2", "3", "4"]);
        assert_eq!(codes(&plan), [("1", "tool.unknown"), ("3", "tool.invalid-arguments")]);
        assert_eq!(plan.immediate[1]["details"]["phase"], "input");
        assert!(plan.immediate[1]["message"].as_str().unwrap().starts_with("n: "));
        let invocations: Vec<_> =
            plan.calls.iter().map(|c| (c.call_id.as_str(), c.invocation_id.as_str())).collect();
        assert_eq!(invocations, [("2", "invocation_S_1"), ("4", "invocation_S_2")]);
    }

    #[test]
    fn every_call_that_shares_an_id_fails_under_a_fresh_one_that_the_candidate_carries_too() {
        let (candidate, plan) = sealed(json!([
            call("x", "add", json!({"n": 1})),
            call("x", "add", json!({"n": 2})),
            call("", "add", json!({"n": 3})),
            json!({"type": "tool-call", "args": {}}),
        ]));
        assert_eq!(
            codes(&plan),
            [
                ("call_S_1", "tool.duplicate-call-id"),
                ("call_S_2", "tool.duplicate-call-id"),
                ("call_S_3", "tool.invalid-call-id"),
                ("call_S_4", "tool.invalid-call-id"),
            ]
        );
        assert!(plan.calls.is_empty());
        let ids: Vec<_> = candidate["output"].as_array().unwrap().iter().map(|b| b["id"].clone()).collect();
        assert_eq!(ids, [json!("call_S_1"), json!("call_S_2"), json!("call_S_3"), json!("call_S_4")]);
        assert_eq!(candidate["output"][3]["name"], "unknown");
    }

    #[test]
    fn without_an_output_schema_the_output_is_the_joined_text() {
        let free = definition(json!({}));
        let blocks = json!([{"type": "text", "text": "a"}, {"type": "reasoning", "text": "r"}, {"type": "text", "text": "b"}]);
        assert_eq!(output(&candidate(blocks), &free).unwrap(), json!("ab"));
        assert_eq!(output(&candidate(json!([])), &free).unwrap(), json!(""));
    }

    #[test]
    fn with_an_output_schema_the_answer_is_exactly_one_fitting_json_block() {
        let strict = definition(json!({"outputSchema": {"type": "object", "required": ["ok"]}}));
        let good = json!({"type": "json", "value": {"ok": true}});
        let reasoning = json!({"type": "reasoning", "text": "r"});
        assert_eq!(output(&candidate(json!([reasoning, good])), &strict).unwrap(), json!({"ok": true}));
        for bad in [
            json!([]),
            json!([good, good]),
            json!([good, {"type": "text", "text": ""}]),
            json!([{"type": "json", "value": {}}]),
            json!([{"type": "text", "text": "{\"ok\":true}"}]),
        ] {
            assert_eq!(output(&candidate(bad), &strict).unwrap_err().code, "output.invalid");
        }
    }
}
