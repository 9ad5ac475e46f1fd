//! What the six tools are asked: read and checked in this one place (spec: sandbox, section 13 and weak spot 1).
//!
//! Callers may send numbers out of range or with a fraction: they are clamped. What is missing or of another type is a
//! failed outcome, never an error: a model reads it and tries again.

use nylorun_actors::model::json::{Json, JsonMap, well_formed};
use nylorun_actors::model::workspace::{Tool, ToolOutcome};
use serde::{Deserialize, Serialize};

use super::limits::{
    COMMAND_BYTES, COMMAND_SECONDS, COMMAND_SECONDS_MOST, GREP_MATCHES, GREP_MATCHES_MOST, READ_LINES,
    READ_LINES_MOST,
};

/// Code of an input that cannot be used.
pub const INVALID: &str = "tool.invalid-input";

/// A tool with its input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// Runs a command.
    Bash {
        /// For the shell.
        command: String,
        /// Seconds that it has.
        seconds: f64,
    },
    /// Reads a page of a file.
    Read {
        /// Which.
        path: String,
        /// First line, from 1.
        offset: u64,
        /// At most so many lines.
        limit: u64,
    },
    /// Writes a file whole.
    Write {
        /// Which.
        path: String,
        /// What.
        content: String,
    },
    /// Replaces text in a file.
    Edit {
        /// Which.
        path: String,
        /// What stands there.
        old: String,
        /// What shall.
        new: String,
        /// Everywhere, or in the one place.
        all: bool,
    },
    /// Searches in files.
    Grep {
        /// A regular expression.
        pattern: String,
        /// Where.
        path: Option<String>,
        /// Only in files whose name fits.
        glob: Option<String>,
        /// Whether capitals do not count.
        ignore_case: bool,
        /// At most so many matches.
        most: u64,
    },
    /// Finds files by name.
    Glob {
        /// A pattern.
        pattern: String,
        /// Where.
        path: Option<String>,
    },
}

impl Input {
    /// Reads a tool's input.
    ///
    /// # Errors
    /// The failed outcome that says what is wrong.
    pub fn read(tool: Tool, input: &Json) -> Result<Self, ToolOutcome> {
        let nothing = JsonMap::new();
        let map = match input {
            Json::Object(map) => map,
            Json::Null => &nothing,
            _ => return Err(invalid(tool, "an object is needed")),
        };
        let fields = Fields { tool, map };
        Ok(match tool {
            Tool::Bash => Self::Bash {
                command: fields.command()?,
                seconds: fields.number("timeout", COMMAND_SECONDS, 0.1, COMMAND_SECONDS_MOST)?,
            },
            Tool::Read => Self::Read {
                path: fields.filled("path")?,
                offset: fields.count("offset", 1, u64::from(u32::MAX))?,
                limit: fields.count("limit", READ_LINES, READ_LINES_MOST)?,
            },
            Tool::Write => Self::Write { path: fields.filled("path")?, content: fields.text("content")? },
            Tool::Edit => Self::Edit {
                path: fields.filled("path")?,
                old: fields.filled("old_string")?,
                new: fields.text("new_string")?,
                all: fields.flag("replace_all")?,
            },
            Tool::Grep => Self::Grep {
                pattern: fields.filled("pattern")?,
                path: fields.optional("path")?,
                glob: fields.optional("glob")?,
                ignore_case: fields.flag("ignore_case")?,
                most: fields.count("max_results", GREP_MATCHES, GREP_MATCHES_MOST)?,
            },
            Tool::Glob => Self::Glob { pattern: fields.filled("pattern")?, path: fields.optional("path")? },
        })
    }
}

fn invalid(tool: Tool, what: &str) -> ToolOutcome {
    ToolOutcome::failed(INVALID, format!("The input of {} cannot be used: {what}.", tool.as_str()))
}

struct Fields<'a> {
    tool: Tool,
    map: &'a JsonMap,
}

impl Fields<'_> {
    /// A member that is there; null is as good as absent.
    fn get(&self, name: &str) -> Option<&Json> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    fn wrong(&self, what: String) -> ToolOutcome {
        invalid(self.tool, &what)
    }

    fn optional_text(&self, name: &str) -> Result<Option<String>, ToolOutcome> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::String(text)) if text.contains('\0') => {
                Err(self.wrong(format!("`{name}` has a NUL character")))
            }
            // Files and programs take UTF-8, which has no lone surrogates.
            Some(Json::String(text)) => Ok(Some(well_formed(text).into_owned())),
            Some(_) => Err(self.wrong(format!("`{name}` must be a string"))),
        }
    }

    /// What is written: it may hold any character, and nothing.
    fn text(&self, name: &str) -> Result<String, ToolOutcome> {
        match self.get(name) {
            Some(Json::String(text)) => Ok(well_formed(text).into_owned()),
            _ => self.optional_text(name)?.ok_or_else(|| self.wrong(format!("`{name}` is missing"))),
        }
    }

    fn command(&self) -> Result<String, ToolOutcome> {
        let command = self.filled("command")?;
        if command.len() > COMMAND_BYTES {
            let what = format!(
                "`command` has {} bytes, and a shell takes {COMMAND_BYTES}: write a long one to a file and run that",
                command.len()
            );
            return Err(self.wrong(what));
        }
        Ok(command)
    }

    fn filled(&self, name: &str) -> Result<String, ToolOutcome> {
        match self.optional_text(name)? {
            Some(text) if text.is_empty() => Err(self.wrong(format!("`{name}` must not be empty"))),
            Some(text) => Ok(text),
            None => Err(self.wrong(format!("`{name}` is missing"))),
        }
    }

    /// Absent and empty are the same.
    fn optional(&self, name: &str) -> Result<Option<String>, ToolOutcome> {
        Ok(self.optional_text(name)?.filter(|text| !text.is_empty()))
    }

    fn flag(&self, name: &str) -> Result<bool, ToolOutcome> {
        match self.get(name) {
            None => Ok(false),
            Some(Json::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.wrong(format!("`{name}` must be true or false"))),
        }
    }

    fn number(&self, name: &str, default: f64, least: f64, most: f64) -> Result<f64, ToolOutcome> {
        match self.get(name) {
            None => Ok(default),
            Some(value) => match value.as_f64() {
                Some(number) if !number.is_nan() => Ok(number.clamp(least, most)),
                _ => Err(self.wrong(format!("`{name}` must be a number"))),
            },
        }
    }

    fn count(&self, name: &str, default: u64, most: u64) -> Result<u64, ToolOutcome> {
        // Both are far below what a double counts exactly.
        Ok(self.number(name, default as f64, 1.0, most as f64)?.floor() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(tool: Tool, input: Json) -> Result<Input, String> {
        Input::read(tool, &input).map_err(|outcome| match outcome {
            ToolOutcome::Failed { code, message } if code == INVALID => message,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn numbers_are_clamped_and_defaults_are_those_of_the_section() {
        let seconds = |input: Json| match read(Tool::Bash, input) {
            Ok(Input::Bash { seconds, .. }) => seconds,
            other => panic!("{other:?}"),
        };
        assert_eq!(seconds(json!({"command": "x"})), 120.0);
        assert_eq!(seconds(json!({"command": "x", "timeout": null})), 120.0);
        assert_eq!(seconds(json!({"command": "x", "timeout": 0.3})), 0.3);
        assert_eq!(seconds(json!({"command": "x", "timeout": -4})), 0.1);
        assert_eq!(seconds(json!({"command": "x", "timeout": 1e300})), 600.0);
        let page = |input: Json| match read(Tool::Read, input) {
            Ok(Input::Read { offset, limit, .. }) => (offset, limit),
            other => panic!("{other:?}"),
        };
        assert_eq!(page(json!({"path": "a"})), (1, 2000));
        assert_eq!(page(json!({"path": "a", "offset": -3, "limit": 99_999})), (1, 5000));
        assert_eq!(page(json!({"path": "a", "offset": 2.9, "limit": 0})), (2, 1));
        let grep = read(Tool::Grep, json!({"pattern": "x", "max_results": 5000, "path": ""})).unwrap();
        let expected =
            Input::Grep { pattern: "x".into(), path: None, glob: None, ignore_case: false, most: 1000 };
        assert_eq!(grep, expected);
    }

    #[test]
    fn what_is_missing_empty_or_of_another_type_is_a_failed_outcome_that_names_it() {
        for (tool, input, member) in [
            (Tool::Bash, json!({}), "command"),
            (Tool::Bash, json!({"command": ""}), "command"),
            (Tool::Bash, json!({"command": 7}), "command"),
            (Tool::Bash, json!({"command": "a\u{0}b"}), "command"),
            (Tool::Bash, json!({"command": "x", "timeout": "5"}), "timeout"),
            (Tool::Read, json!({"path": ["a"]}), "path"),
            (Tool::Read, json!({"path": "a", "limit": true}), "limit"),
            (Tool::Write, json!({"path": "a"}), "content"),
            (Tool::Write, json!({"path": "a", "content": 1}), "content"),
            (Tool::Edit, json!({"path": "a", "old_string": "", "new_string": ""}), "old_string"),
            (Tool::Edit, json!({"path": "a", "old_string": "b"}), "new_string"),
            (
                Tool::Edit,
                json!({"path": "a", "old_string": "b", "new_string": "", "replace_all": 1}),
                "replace_all",
            ),
            (Tool::Grep, json!({"pattern": "x", "glob": 1}), "glob"),
            (Tool::Glob, json!(null), "pattern"),
            (Tool::Glob, json!([]), "object"),
        ] {
            let said = read(tool, input.clone()).unwrap_err();
            assert!(said.contains(member), "{input}: {said}");
        }
        let long = read(Tool::Bash, json!({"command": "x".repeat(COMMAND_BYTES + 1)})).unwrap_err();
        assert!(long.contains("131072 bytes") && long.contains("to a file"), "{long}");
        assert!(read(Tool::Bash, json!({"command": "x".repeat(COMMAND_BYTES)})).is_ok());
        // Content may hold anything, and nothing.
        for content in ["", "a\u{0}b"] {
            assert!(read(Tool::Write, json!({"path": "a", "content": content})).is_ok());
        }
    }

    #[test]
    fn a_lone_surrogate_which_no_file_can_have_is_a_replacement_character() {
        let text = br#"{"path": "a\ud800", "content": "\udfff \ud83e\udd80 \udbff\udffe"}"#;
        let input = nylorun_actors::model::json::parse(text).unwrap();
        let content = "\u{FFFD} \u{1F980} \u{10FFFE}".to_owned();
        assert_eq!(read(Tool::Write, input), Ok(Input::Write { path: "a\u{FFFD}".into(), content }));
    }
}
