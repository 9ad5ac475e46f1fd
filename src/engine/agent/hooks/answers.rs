//! The value of a hook effect, read member by member (spec: engine, section 7).

use nylorun_actors::model::Json;
use nylorun_actors::model::json::JsonMap;

use crate::engine::agent::input::closed;

/// What one capability's hook answered.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Whose hook it is.
    pub capability: &'a str,
    /// Its patch or decision; empty when it said nothing.
    pub value: &'a JsonMap,
}

/// The answers of `{results: {"<capabilityId>": {...}}}` in the order of `asked`. One that is missing or null is empty.
///
/// # Errors
/// In words, when the value has another shape or answers for a capability that was not asked.
pub fn read<'a>(value: &'a Json, asked: &'a [String], none: &'a JsonMap) -> Result<Vec<Answer<'a>>, String> {
    let results = value.get("results").and_then(Json::as_object);
    let results = results.ok_or("the answer of the hooks has no `results`")?;
    if let Some(odd) = results.keys().find(|id| !asked.contains(id)) {
        return Err(format!("the hooks answer for capability {odd}, which has none here"));
    }
    asked
        .iter()
        .map(|capability| {
            let value = match results.get(capability) {
                None | Some(Json::Null) => none,
                Some(Json::Object(map)) => map,
                Some(_) => return Err(format!("the answer of capability {capability} is not an object")),
            };
            Ok(Answer { capability, value })
        })
        .collect()
}

/// Refuses members that this point does not take.
pub(super) fn members(value: &JsonMap, known: &[&str]) -> Result<(), String> {
    closed(value, known).map_err(|what| format!("{what} at this point"))
}

/// A text, if there is one.
pub(super) fn text(value: &JsonMap, key: &str) -> Result<Option<String>, String> {
    match value.get(key) {
        None => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{key}` is not a text")),
    }
}

/// A list; empty when there is none.
pub(super) fn list<'a>(value: &'a JsonMap, key: &str) -> Result<&'a [Json], String> {
    match value.get(key) {
        None => Ok(&[]),
        Some(Json::Array(list)) => Ok(list),
        Some(_) => Err(format!("`{key}` is not a list")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_come_in_the_order_asked_and_a_missing_one_is_empty() {
        let value = json!({"results": {"b": {"block": "no"}, "c": null}});
        let (asked, none) = (["c", "a", "b"].map(str::to_owned), JsonMap::new());
        let got = read(&value, &asked, &none).unwrap();
        let seen: Vec<_> = got.iter().map(|answer| (answer.capability, answer.value.len())).collect();
        assert_eq!(seen, [("c", 0), ("a", 0), ("b", 1)]);
    }

    #[test]
    fn a_value_of_another_shape_is_wrong() {
        let (asked, none) = (["a".to_owned()], JsonMap::new());
        for bad in [
            json!(null),
            json!({}),
            json!({"results": []}),
            json!({"results": {"b": {}}}),
            json!({"results": {"a": 1}}),
        ] {
            assert!(read(&bad, &asked, &none).is_err(), "{bad}");
        }
    }
}
