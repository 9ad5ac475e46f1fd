//! What hooks after a step or a turn answer: decisions, merged (spec: engine, section 7).

use nylorun_actors::model::Json;
use nylorun_actors::model::json::JsonMap;
use serde_json::json;

use super::answers::{Answer, list, members, text};

/// What the hooks after a step came to. Where one blocks or sends the answer back, what others want is moot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The answer's text is this one.
    pub text: Option<String>,
    /// Calls that are not allowed: call id and reason.
    pub deny: Vec<(String, String)>,
    /// Calls that a person must allow: call id and question.
    pub approve: Vec<(String, String)>,
    /// The answer goes back to the model with this.
    pub retry: Option<String>,
    /// The turn fails with this.
    pub block: Option<String>,
}

impl Verdict {
    /// Why a call is not allowed.
    #[must_use]
    pub fn denial(&self, call_id: &str) -> Option<&str> {
        self.retry.as_deref().or_else(|| find(&self.deny, call_id))
    }

    /// What a person is asked before a call is made.
    #[must_use]
    pub fn question(&self, call_id: &str) -> Option<&str> {
        find(&self.approve, call_id)
    }
}

fn find<'a>(list: &'a [(String, String)], call_id: &str) -> Option<&'a str> {
    list.iter().find(|(id, _)| id == call_id).map(|(_, text)| text.as_str())
}

/// What the hooks after a turn came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnVerdict {
    /// The output is this one: a text, or JSON where there is an output schema.
    pub output: Option<Json>,
    /// The answer goes back to the model with this.
    pub retry: Option<String>,
    /// The turn fails with this.
    pub block: Option<String>,
}

/// Merges the decisions of a step.
///
/// # Errors
/// What is wrong with one, in words.
pub fn merge_step(answers: &[Answer<'_>]) -> Result<Verdict, String> {
    let mut merged = Verdict::default();
    for Answer { capability, value } in answers {
        merged.take(value).map_err(|what| wrong(capability, &what))?;
    }
    Ok(merged)
}

/// Merges the decisions of a turn. `structured`: whether the agent has an output schema.
///
/// # Errors
/// What is wrong with one, in words.
pub fn merge_turn(answers: &[Answer<'_>], structured: bool) -> Result<TurnVerdict, String> {
    let mut merged = TurnVerdict::default();
    for Answer { capability, value } in answers {
        merged.take(value, structured).map_err(|what| wrong(capability, &what))?;
    }
    Ok(merged)
}

fn wrong(capability: &str, what: &str) -> String {
    format!("a hook of capability {capability} answered wrongly: {what}")
}

/// The first reason to block stands; every feedback is passed on.
fn join(feedback: &mut Option<String>, more: Option<String>) {
    let Some(more) = more else { return };
    *feedback = Some(match feedback.take() {
        Some(before) => format!("{before}\n\n{more}"),
        None => more,
    });
}

impl Verdict {
    fn take(&mut self, value: &JsonMap) -> Result<(), String> {
        members(value, &["text", "deny", "approve", "retry", "block"])?;
        self.text = text(value, "text")?.or(self.text.take());
        self.deny.extend(pairs(value, "deny", "reason")?);
        self.approve.extend(pairs(value, "approve", "prompt")?);
        join(&mut self.retry, text(value, "retry")?);
        let block = text(value, "block")?;
        self.block = self.block.take().or(block);
        Ok(())
    }
}

impl TurnVerdict {
    fn take(&mut self, value: &JsonMap, structured: bool) -> Result<(), String> {
        members(value, &["text", "output", "retry", "block"])?;
        let said = text(value, "text")?;
        match (said, value.get("output"), structured) {
            (None, None, _) => {}
            (Some(said), None, false) => self.output = Some(json!(said)),
            (None, Some(output), true) => self.output = Some(output.clone()),
            (_, _, false) => return Err("the agent has no output schema, so it takes a `text`".to_owned()),
            (_, _, true) => return Err("the agent has an output schema, so it takes an `output`".to_owned()),
        }
        join(&mut self.retry, text(value, "retry")?);
        let block = text(value, "block")?;
        self.block = self.block.take().or(block);
        Ok(())
    }
}

/// A list of `{id, <what>}`.
fn pairs(value: &JsonMap, key: &str, what: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |item: &Json| {
        let map = item.as_object().ok_or_else(|| format!("an item of `{key}` is not an object"))?;
        members(map, &["id", what])?;
        match (text(map, "id")?, text(map, what)?) {
            (Some(id), Some(said)) => Ok((id, said)),
            _ => Err(format!("an item of `{key}` has an `id` and a `{what}`")),
        }
    };
    list(value, key)?.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(answers: &[Json]) -> Result<Verdict, String> {
        let maps: Vec<_> = answers.iter().map(|value| value.as_object().cloned().unwrap()).collect();
        merge_step(&maps.iter().map(|value| Answer { capability: "x", value }).collect::<Vec<_>>())
    }

    fn turn(answers: &[Json], structured: bool) -> Result<TurnVerdict, String> {
        let maps: Vec<_> = answers.iter().map(|value| value.as_object().cloned().unwrap()).collect();
        merge_turn(
            &maps.iter().map(|value| Answer { capability: "x", value }).collect::<Vec<_>>(),
            structured,
        )
    }

    #[test]
    fn decisions_add_up_and_a_retry_denies_every_call() {
        let got = step(&[
            json!({"deny": [{"id": "1", "reason": "first"}], "text": "a"}),
            json!({"deny": [{"id": "1", "reason": "second"}], "approve": [{"id": "2", "prompt": "Sure?"}], "text": "b"}),
        ])
        .unwrap();
        assert_eq!(
            (got.denial("1"), got.denial("2"), got.question("2")),
            (Some("first"), None, Some("Sure?"))
        );
        assert_eq!(got.text.as_deref(), Some("b"));
        let got = step(&[
            json!({"retry": "x"}),
            json!({"retry": "y"}),
            json!({"deny": [{"id": "1", "reason": "r"}]}),
        ]);
        let got = got.unwrap();
        assert_eq!((got.denial("1"), got.denial("7")), (Some("x\n\ny"), Some("x\n\ny")));
    }

    #[test]
    fn a_decision_of_another_kind_is_wrong() {
        for bad in [
            json!({"output": 1}),
            json!({"instructions": []}),
            json!({"deny": {}}),
            json!({"deny": [{"id": "1"}]}),
            json!({"approve": [{"id": "1", "prompt": "p", "x": 1}]}),
            json!({"retry": true}),
            json!({"text": 1}),
        ] {
            assert!(step(std::slice::from_ref(&bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_output_needs_a_schema_and_a_text_needs_none() {
        assert_eq!(turn(&[json!({"text": "t"})], false).unwrap().output, Some(json!("t")));
        assert_eq!(turn(&[json!({"output": null})], true).unwrap().output, Some(json!(null)));
        for (bad, structured) in [
            (json!({"text": "t"}), true),
            (json!({"output": 1}), false),
            (json!({"text": "t", "output": 1}), true),
            (json!({"deny": []}), false),
        ] {
            assert!(turn(std::slice::from_ref(&bad), structured).is_err(), "{bad}");
        }
    }
}
