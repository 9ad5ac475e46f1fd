//! What events mean, in one line each for a person (spec: http-api, section 8.2; DESIGN.md, section 9).

use std::collections::HashMap;

use nylorun_actors::model::json::{Json, encode};

use super::out::plain;

/// Actions whose names are remembered at most; then all are forgotten, and later events of those have their ids only.
const NAMES: usize = 10_000;
/// Characters of a value that are shown.
const SHOWN: usize = 120;

/// Tells the events of one session. It remembers the names of Actions, since most of their events have only an id.
#[derive(Debug, Default)]
pub struct Words {
    names: HashMap<String, String>,
}

impl Words {
    /// What an event means; `None` for one that speaks for itself.
    #[must_use]
    pub fn tell(&mut self, kind: &str, payload: &Json) -> Option<String> {
        self.words(kind, payload).map(|words| format!("{}{words}", who(payload)))
    }

    fn words(&mut self, kind: &str, payload: &Json) -> Option<String> {
        Some(match kind {
            "action.pending" => {
                let name = self.named(payload);
                format!("… {name} waits for its endpoint")
            }
            "action.delivered" => {
                let (name, generation) = (self.name(&payload["actionId"]), plain(&payload["generation"]));
                format!("… {name} is at its endpoint (delivery {generation})")
            }
            "action.delivery_failed" => {
                let name = self.name(&payload["actionId"]);
                let wait = payload["retryInMs"].as_f64().unwrap_or(0.0) / 1000.0;
                let message = payload["message"].as_str().map(|m| format!(" ({m})")).unwrap_or_default();
                let reason = plain(&payload["reason"]);
                clean(&format!(
                    "! {name} did not reach its endpoint: {reason}{message}; again in {wait:.1} s"
                ))
            }
            "action.completed" => {
                let name = self.named(payload);
                format!("← {name} {}", result(&payload["result"]))
            }
            "action.uncertain" => {
                let name = self.name(&payload["actionId"]);
                format!(
                    "! {name} was delivered and not answered: nobody knows whether it happened, and it is not repeated"
                )
            }
            "effect.uncertain" => {
                let (name, why) = (self.name(&payload["effectId"]), payload["message"].as_str());
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                clean(&format!("! nobody knows whether {name} happened{why}"))
            }
            "effect.reconciled" => {
                let (name, by) = (self.name(&payload["effectId"]), plain(&payload["by"]));
                let words = match payload["resolution"].as_str() {
                    Some("completed") => "happened",
                    Some("failed") => "did not happen",
                    Some("retry") => "is to be tried again",
                    _ => "was decided",
                };
                clean(&format!("· {by} decided: {name} {words}"))
            }
            "sandbox.exec" => ran(payload),
            "sandbox.state" if payload["lost"] == true => {
                "! the files of the sandbox were gone; it starts empty".to_owned()
            }
            "sandbox.state" => {
                let error = payload["error"].as_str()?;
                clean(&format!("! the sandbox is {}: {error}", plain(&payload["state"])))
            }
            _ => return None,
        })
    }

    /// The name that an event brings, remembered for those that follow.
    fn named(&mut self, payload: &Json) -> String {
        let member = ["toolName", "path"].into_iter().find_map(|key| payload[key].as_str());
        let name = match payload["kind"].as_str() {
            Some("hook") => "a hook".to_owned(),
            _ => clean(member.unwrap_or("an Action")),
        };
        if let Some(id) = payload["actionId"].as_str() {
            if self.names.len() >= NAMES {
                self.names.clear();
            }
            self.names.insert(id.to_owned(), name.clone());
        }
        name
    }

    fn name(&self, id: &Json) -> String {
        let id = plain(id);
        self.names.get(&id).cloned().unwrap_or_else(|| clean(&id))
    }
}

/// What a tool of a sandbox did.
fn ran(payload: &Json) -> String {
    let what = match payload["command"].as_str() {
        Some(command) => format!("$ {command}"),
        None => format!("{} {}", plain(&payload["tool"]), payload["path"].as_str().unwrap_or_default()),
    };
    let end = match (payload["exitCode"].as_i64(), payload["code"].as_str()) {
        _ if payload["killed"] == true => "killed, ".to_owned(),
        (Some(0), _) => String::new(),
        (Some(code), _) => format!("exit {code}, "),
        (None, Some(code)) => format!("{code}, "),
        (None, None) => String::new(),
    };
    format!("· {} ({end}{} ms)", cut(what.trim_end(), SHOWN), plain(&payload["durationMs"]))
}

/// Which sub-agent an event is of, as a prefix; nothing for the root's.
#[must_use]
pub fn who(payload: &Json) -> String {
    payload["agent"]["id"].as_str().map(|id| format!("{}: ", clean(id))).unwrap_or_default()
}

/// What became of a call.
fn result(value: &Json) -> String {
    match value["kind"].as_str() {
        Some("completed") => format!("answered {}", cut(&encode(&value["output"]), SHOWN)),
        Some("failed") => {
            cut(&format!("failed: {} ({})", plain(&value["message"]), plain(&value["code"])), SHOWN)
        }
        Some("denied") => cut(&format!("was denied: {}", plain(&value["reason"])), SHOWN),
        Some("interaction-required") => "asks a person first".to_owned(),
        Some("deferred") => "goes on later".to_owned(),
        _ => format!("answered {}", cut(&encode(value), SHOWN)),
    }
}

/// The beginning of a text, on one line, without anything that a terminal would obey.
#[must_use]
pub fn cut(text: &str, chars: usize) -> String {
    let mut short: String = text.chars().take(chars).collect();
    if text.chars().nth(chars).is_some() {
        short.push('…');
    }
    clean(&short)
}

/// A text of somebody else for a terminal: control characters could move the cursor and write over what a person is
/// asked, and so could marks that turn the direction of text.
#[must_use]
pub fn clean(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => ' ',
            c if c.is_control() || turns(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_event_of_an_action_says_what_it_means_with_the_name_of_its_tool() {
        let mut words = Words::default();
        let mut tell = |kind: &str, payload: Json| words.tell(kind, &payload).unwrap_or_default();
        let id = json!("t:0:tool:1");
        assert!(
            tell("action.pending", json!({ "actionId": id, "kind": "tool", "toolName": "refund" }))
                .contains("refund waits")
        );
        assert!(
            tell("action.delivered", json!({ "actionId": id, "generation": 2 }))
                .contains("refund is at its endpoint (delivery 2)")
        );
        let failed = tell(
            "action.delivery_failed",
            json!({ "actionId": id, "generation": 2, "reason": "endpoint.busy", "message": "HTTP 429", "retryInMs": 250 }),
        );
        assert!(
            failed.contains("refund")
                && failed.contains("endpoint.busy (HTTP 429)")
                && failed.contains("0.2 s"),
            "{failed}"
        );
        assert!(tell("action.uncertain", json!({ "actionId": id })).contains("nobody knows"));
        let decided = tell(
            "effect.reconciled",
            json!({ "effectId": id, "resolution": "retry", "by": "application:local" }),
        );
        assert_eq!(decided, "· application:local decided: refund is to be tried again");
        let done = json!({ "actionId": id, "kind": "tool", "toolName": "refund", "result": { "kind": "completed", "output": 7 } });
        assert_eq!(tell("action.completed", done), "← refund answered 7");
        let unknown = tell("action.delivered", json!({ "actionId": "t:0:tool:2", "generation": 1 }));
        assert!(unknown.contains("t:0:tool:2"), "{unknown}");
        let hook =
            json!({ "actionId": "h", "kind": "hook", "agent": { "id": "child", "path": "orders/child" } });
        assert_eq!(
            words.tell("action.pending", &hook).as_deref(),
            Some("child: … a hook waits for its endpoint")
        );
        assert_eq!(words.tell("turn.completed", &json!({})), None);
    }

    #[test]
    fn what_a_tool_says_cannot_steer_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\rc\u{202e}d\ne"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d e");
        assert_eq!(cut("abcdef", 3), "abc…");
        assert_eq!(cut("abc", 3), "abc");
    }
}
