//! JSON Schema checks of tool inputs, tool outputs and final answers (spec: engine, sections 3.7 and 4.4).

use jsonschema::Validator;
use nylorun_actors::model::Json;
use nylorun_actors::ports::Schemas;
use serde_json::json;

/// A schema, compiled once.
#[derive(Debug)]
pub struct Schema(Result<Validator, String>);

/// Why a value is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// It breaks the schema.
    Invalid(Issues),
    /// The schema itself does not work.
    Unusable(String),
}

/// Everything a value breaks.
#[derive(Clone, Debug, PartialEq)]
pub struct Issues {
    /// `path: text` items joined by `; `; an empty path prints as `(root)`.
    pub message: String,
    /// `{path: [name or index], code, message}` each.
    pub list: Vec<Json>,
}

impl Issues {
    /// The `details` of a failed tool result; `phase` is `input` or `output`.
    #[must_use]
    pub fn details(&self, phase: &str) -> Json {
        json!({"phase": phase, "issues": self.list})
    }
}

impl Schema {
    /// Compiles a schema. One that names an unknown dialect is read as the newest.
    #[must_use]
    pub fn compile(schema: &Json) -> Self {
        Self(jsonschema::validator_for(schema).or_else(|error| {
            let mut bare = schema.clone();
            match bare.as_object_mut().and_then(|object| object.remove("$schema")) {
                Some(_) => jsonschema::validator_for(&bare).map_err(|error| error.to_string()),
                None => Err(error.to_string()),
            }
        }))
    }

    /// Checks a value.
    ///
    /// # Errors
    /// With what the value breaks, or why the schema cannot be used.
    pub fn check(&self, value: &Json) -> Result<(), Refusal> {
        let validator = self.0.as_ref().map_err(|message| Refusal::Unusable(message.clone()))?;
        if validator.is_valid(value) {
            return Ok(());
        }
        let (mut texts, mut list) = (Vec::new(), Vec::new());
        for error in validator.iter_errors(value) {
            let path = path_of(value, error.instance_path().as_str());
            let shown = if path.is_empty() {
                "(root)".to_owned()
            } else {
                let names: Vec<_> =
                    path.iter().map(|s| s.as_str().map_or_else(|| s.to_string(), str::to_owned)).collect();
                names.join(".")
            };
            let message = error.to_string();
            texts.push(format!("{shown}: {message}"));
            list.push(json!({"path": path, "code": error.kind().keyword(), "message": message}));
        }
        Err(Refusal::Invalid(Issues { message: texts.join("; "), list }))
    }
}

/// The segments of a JSON pointer into `value`: indices as numbers, names as text.
fn path_of(value: &Json, pointer: &str) -> Vec<Json> {
    let mut at = Some(value);
    let mut path = Vec::new();
    for segment in pointer.split('/').skip(1) {
        let name = segment.replace("~1", "/").replace("~0", "~");
        match (at, name.parse::<usize>()) {
            (Some(Json::Array(items)), Ok(index)) => {
                at = items.get(index);
                path.push(json!(index));
            }
            _ => {
                at = at.and_then(|value| value.get(&name));
                path.push(Json::String(name));
            }
        }
    }
    path
}

/// Checks of Actions' outputs: compiled for each, since an Action is checked once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outputs;

impl Schemas for Outputs {
    fn check(&self, schema: &Json, value: &Json) -> Result<(), String> {
        Schema::compile(schema).check(value).map_err(|refusal| match refusal {
            Refusal::Invalid(issues) => issues.message,
            Refusal::Unusable(message) => format!("the output schema cannot be evaluated: {message}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issues(schema: &Json, value: &Json) -> Issues {
        match Schema::compile(schema).check(value) {
            Err(Refusal::Invalid(issues)) => issues,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn issues_carry_path_code_and_message_and_an_empty_path_prints_as_root() {
        let schema = json!({"type": "object", "required": ["id"], "properties": {
            "list": {"type": "array", "items": {"type": "object", "properties": {"a/b": {"type": "integer"}}}}}});
        let found = issues(&schema, &json!({"list": [{}, {"a/b": "x"}]}));
        let mut paths: Vec<_> = found.list.iter().map(|i| (i["path"].clone(), i["code"].clone())).collect();
        paths.sort_by_key(|(path, _)| path.to_string());
        assert_eq!(paths, [(json!(["list", 1, "a/b"]), json!("type")), (json!([]), json!("required"))]);
        assert!(found.message.contains("(root): "), "{}", found.message);
        assert!(found.message.contains("list.1.a/b: "), "{}", found.message);
        assert!(found.message.contains("; "), "{}", found.message);
        assert_eq!(found.details("input")["phase"], "input");
    }

    #[test]
    fn a_schema_of_an_unknown_dialect_still_checks_and_a_broken_one_is_unusable() {
        assert_eq!(Schema::compile(&json!({"$schema": "x", "type": "object"})).check(&json!({})), Ok(()));
        let broken = Schema::compile(&json!({"type": 5}));
        assert!(matches!(broken.check(&json!({})), Err(Refusal::Unusable(_))));
    }

    #[test]
    fn a_digit_named_property_of_an_object_stays_a_name() {
        let found = issues(&json!({"properties": {"0": {"type": "string"}}}), &json!({"0": 1}));
        assert_eq!(found.list[0]["path"], json!(["0"]));
    }
}
