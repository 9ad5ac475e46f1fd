//! Params and results of the Harness API's methods, closed (spec: harness-api, section 7).

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::model::effect::{EffectIntent, Outcome};
use crate::model::ids::{EffectId, RunId};
use crate::model::json::{Json, JsonMap, encode};
use crate::model::transcript::Entry;
use crate::model::turn::{OutputStatus, RunGrant, TurnOutput, TurnStart};
pub use crate::model::workspace::{Claim, ClaimKind, WorkspaceRecord};
use crate::ports::engine::{ApiCode, ApiError, EffectReport, IntentAnswer, OutcomeAnswer};

/// Most characters of an identifier.
const ID_CHARS: usize = 512;

/// Where params have objects of a closed shape inside.
const OBJECTS: [&str; 9] = [
    "/capabilities",
    "/effect",
    "/effect/agent",
    "/effect/hook",
    "/record",
    "/thrown",
    "/session",
    "/list",
    "/bytes",
];

/// Reads params into their closed shape.
///
/// # Errors
/// `invalid` with what is wrong.
pub fn params<T: DeserializeOwned>(params: Json) -> Result<T, ApiError> {
    let given = if params.is_null() { Json::Object(JsonMap::new()) } else { params };
    // serde reads a struct from a list of its members, too; the API does not.
    let edits = given.get("transcript").and_then(Json::as_array).into_iter().flatten();
    let objects = OBJECTS.iter().filter_map(|at| given.pointer(at)).chain(edits);
    if objects.chain([&given]).any(Json::is_array) {
        return Err(ApiError::new(ApiCode::Invalid, "invalid params: an object is needed, not a list"));
    }
    serde_json::from_value(given).map_err(|e| ApiError::new(ApiCode::Invalid, format!("invalid params: {e}")))
}

/// Reads a result into its closed shape.
///
/// # Errors
/// `invalid` with what is wrong.
pub fn result<T: DeserializeOwned>(result: Json) -> Result<T, ApiError> {
    if result.is_array() {
        return Err(ApiError::new(ApiCode::Invalid, "invalid result: an object is needed, not a list"));
    }
    serde_json::from_value(result)
        .map_err(|e| ApiError::new(ApiCode::Invalid, format!("invalid result: {e}")))
}

/// Checks identifiers: 1 to 512 characters each.
///
/// # Errors
/// `invalid` naming the member.
pub fn ids(all: &[(&str, &str)]) -> Result<(), ApiError> {
    for (name, id) in all {
        if id.is_empty() || id.encode_utf16().count() > ID_CHARS {
            return Err(ApiError::new(
                ApiCode::Invalid,
                format!("invalid params: {name} has 1 to 512 characters"),
            ));
        }
    }
    Ok(())
}

/// `hello`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Version of the API.
    pub api: i64,
    /// The harness's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it can do.
    pub capabilities: Capabilities,
}

/// What a harness can do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// Present when it serves workspaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Json>,
}

/// Answer to `hello`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Welcome {
    /// 1.
    pub api: i64,
    /// The Tenant.
    pub tenant_id: String,
    /// The Tenant's sandbox preference.
    pub sandbox: WelcomeSandbox,
    /// Time between two renewals, ms.
    pub renew_every_ms: u64,
}

/// The Tenant's sandbox preference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WelcomeSandbox {
    /// A name or null.
    pub backend: Option<String>,
}

/// `lease`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// Ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<std::num::NonZeroU64>,
}

/// Answer to `lease`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leased {
    /// Whose.
    pub run: RunGrant,
    /// Where it starts.
    pub input: TurnStart,
}

/// `lease.renew` and `transcript.read`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OfRun {
    /// Which run.
    pub run_id: RunId,
}

/// Answer to `lease.renew`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Renewed {
    /// Whether the lease still holds.
    pub ok: bool,
    /// A fresh run token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_expires_at: Option<String>,
}

/// Why a harness gives a run back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReleaseReason {
    /// It stops.
    #[serde(rename = "shutdown")]
    Shutdown,
    /// It was told that the lease is lost.
    #[serde(rename = "ownership.lost")]
    OwnershipLost,
    /// It lost its connection meanwhile.
    #[serde(rename = "connection.lost")]
    ConnectionLost,
}

/// `lease.release`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Release {
    /// Which run.
    pub run_id: RunId,
    /// Why.
    pub reason: ReleaseReason,
}

/// `effect.intent`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Intent {
    /// Which run.
    pub run_id: RunId,
    /// What it is about to do.
    pub effect: EffectIntent,
    /// Lowercase hex SHA-256 of the full request.
    pub request_hash: String,
}

impl Intent {
    /// What its types do not say; both ends look.
    ///
    /// # Errors
    /// `invalid`: an id that is none, or a hash of another form.
    pub fn check(&self) -> Result<(), ApiError> {
        let effect = &self.effect;
        ids(&[
            ("runId", self.run_id.as_str()),
            ("effectId", effect.effect_id.as_str()),
            ("sessionId", effect.session_id.as_str()),
            ("turnId", effect.turn_id.as_str()),
            ("agentId", effect.agent_id.as_str()),
        ])?;
        if is_hash(&self.request_hash) {
            return Ok(());
        }
        let message = "invalid params: requestHash is 64 lowercase hex characters";
        Err(ApiError::new(ApiCode::Invalid, message))
    }
}

/// Whether a text is 64 lowercase hex characters.
#[must_use]
pub fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Answers to `effect.intent` and `effect.outcome`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase", deny_unknown_fields)]
pub enum EffectAnswer {
    /// Use this outcome.
    Completed {
        /// It.
        outcome: Outcome,
    },
    /// Somebody else does it.
    Pending {},
    /// Its fate is unknown.
    Uncertain {},
    /// Run it.
    Execute {
        /// It was started before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rejoin: Option<bool>,
    },
}

impl From<IntentAnswer> for EffectAnswer {
    fn from(answer: IntentAnswer) -> Self {
        match answer {
            IntentAnswer::Completed(outcome) => Self::Completed { outcome },
            IntentAnswer::Pending => Self::Pending {},
            IntentAnswer::Uncertain => Self::Uncertain {},
            IntentAnswer::Execute { rejoin } => Self::Execute { rejoin: rejoin.then_some(true) },
        }
    }
}

impl From<OutcomeAnswer> for EffectAnswer {
    fn from(answer: OutcomeAnswer) -> Self {
        match answer {
            OutcomeAnswer::Completed(outcome) => Self::Completed { outcome },
            OutcomeAnswer::Uncertain => Self::Uncertain {},
        }
    }
}

impl EffectAnswer {
    /// As the answer to an intent.
    #[must_use]
    pub fn into_intent(self) -> IntentAnswer {
        match self {
            Self::Completed { outcome } => IntentAnswer::Completed(outcome),
            Self::Pending {} => IntentAnswer::Pending,
            Self::Uncertain {} => IntentAnswer::Uncertain,
            Self::Execute { rejoin } => IntentAnswer::Execute { rejoin: rejoin == Some(true) },
        }
    }

    /// As the answer to an outcome; `None` for what cannot be one.
    #[must_use]
    pub fn into_outcome(self) -> Option<OutcomeAnswer> {
        match self {
            Self::Completed { outcome } => Some(OutcomeAnswer::Completed(outcome)),
            Self::Uncertain {} => Some(OutcomeAnswer::Uncertain),
            Self::Pending {} | Self::Execute { .. } => None,
        }
    }
}

/// `effect.outcome` as read: which run, which effect, what it came to.
///
/// # Errors
/// `invalid` unless it has exactly one of `value` and `error`.
pub fn outcome(params: Json) -> Result<(RunId, EffectId, EffectReport), ApiError> {
    let bad = |text: &str| ApiError::new(ApiCode::Invalid, format!("invalid params: {text}"));
    let Json::Object(mut map) = params else { return Err(bad("an object is needed")) };
    if map.keys().any(|k| !["runId", "effectId", "value", "error"].contains(&k.as_str())) {
        return Err(bad("unknown member"));
    }
    let text = |map: &JsonMap, key: &str| map.get(key).and_then(Json::as_str).map(str::to_owned);
    let (Some(run), Some(effect)) = (text(&map, "runId"), text(&map, "effectId")) else {
        return Err(bad("runId and effectId are strings"));
    };
    ids(&[("runId", &run), ("effectId", &effect)])?;
    let report = match (map.get_mut("value").map(Json::take), map.get("error")) {
        (Some(value), None) => EffectReport::Value(value.into()),
        (None, Some(Json::String(error))) => EffectReport::Error(error.clone()),
        // JSON has no undefined: a value that is missing is null to a JavaScript peer.
        (None, None) => EffectReport::Value(Json::Null.into()),
        _ => return Err(bad("either value or a text in error")),
    };
    Ok((run.into(), effect.into(), report))
}

/// `effect.outcome` as sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reported {
    /// Which run.
    pub run_id: RunId,
    /// Which effect.
    pub effect_id: EffectId,
    /// What it came to; null is a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Arc<Json>>,
    /// Or why it came to nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Reported {
    /// A report of an effect of a run.
    #[must_use]
    pub fn new(run_id: RunId, effect_id: EffectId, report: EffectReport) -> Self {
        let (value, error) = match report {
            EffectReport::Value(value) => (Some(value), None),
            EffectReport::Error(error) => (None, Some(error)),
        };
        Self { run_id, effect_id, value, error }
    }
}

/// Answer to `transcript.read` as read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transcript {
    /// Where it stands.
    pub cursor: i64,
    /// All of it.
    pub entries: Vec<Entry>,
}

/// Answer of a method that has nothing to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// The method that an output is sent with (spec: harness-api, section 13.1).
#[must_use]
pub fn output_method(output: &TurnOutput) -> &'static str {
    match output.status {
        Some(OutputStatus::Completed) => "turn.completed",
        Some(OutputStatus::Paused) => "turn.paused",
        Some(OutputStatus::Yielded) => "checkpoint",
        Some(OutputStatus::Waiting | OutputStatus::Uncertain) => "turn.waiting",
        Some(OutputStatus::Failed | OutputStatus::Cancelled) | None => "turn.failed",
    }
}

/// `transcript.read`'s answer as text, without copying the entries into one value.
#[must_use]
pub fn transcript_text(cursor: i64, entries: &[Entry]) -> String {
    let mut out = format!(r#"{{"cursor":{cursor},"entries":["#);
    for (n, entry) in entries.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        out.push_str(&encode(entry.as_ref()));
    }
    out.push_str("]}");
    out
}

/// `session.mcp`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionMcp {
    /// Which run.
    pub run_id: RunId,
    /// What was discovered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Json>,
    /// What discovery said.
    pub diagnostics: Vec<Json>,
}

/// `cancel`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cancel {
    /// Which run.
    pub run_id: RunId,
    /// Why.
    pub reason: crate::model::turn::AbortKind,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// `effect.resolved`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolvedEffect {
    /// Which run.
    pub run_id: RunId,
    /// Which effect.
    pub effect_id: EffectId,
    /// Its outcome.
    pub outcome: Outcome,
}

/// Answer to an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputCursor {
    /// Where the transcript stands now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_have_exactly_the_members_of_the_spec() {
        let text = |a: EffectAnswer| encode(&a);
        assert_eq!(text(IntentAnswer::Execute { rejoin: false }.into()), r#"{"status":"execute"}"#);
        assert_eq!(
            text(IntentAnswer::Execute { rejoin: true }.into()),
            r#"{"status":"execute","rejoin":true}"#
        );
        assert_eq!(text(IntentAnswer::Pending.into()), r#"{"status":"pending"}"#);
        assert_eq!(text(IntentAnswer::Uncertain.into()), r#"{"status":"uncertain"}"#);
        let outcome = Outcome { value: json!(1).into(), state_patch: None };
        assert_eq!(
            text(OutcomeAnswer::Completed(outcome).into()),
            r#"{"status":"completed","outcome":{"value":1}}"#
        );
        assert_eq!(encode(&OutputCursor { cursor: Some(6) }), r#"{"cursor":6}"#);
        assert_eq!(encode(&OutputCursor { cursor: None }), "{}");
    }

    #[test]
    fn an_unknown_member_or_a_wrong_type_is_invalid() {
        let code = |p: Json| params::<Hello>(p).unwrap_err().code;
        let good = json!({"api": 1, "name": "h", "version": "1", "capabilities": {}});
        assert!(params::<Hello>(good.clone()).is_ok());
        for (key, bad) in [("extra", json!(1)), ("api", json!("1")), ("capabilities", json!({"x": 1}))] {
            let mut value = good.clone();
            value[key] = bad;
            assert_eq!(code(value), ApiCode::Invalid, "{key}");
        }
        for list in
            [json!([1, "h", "1", {}]), json!({"api": 1, "name": "h", "version": "1", "capabilities": []})]
        {
            assert_eq!(code(list), ApiCode::Invalid, "a list is no object");
        }
        assert!(params::<TurnOutput>(json!({"runId": "r", "transcript": [[0, [], 0]]})).is_err());
        assert!(params::<Lease>(Json::Null).is_ok());
        assert!(params::<Lease>(json!({"slots": 0})).is_err());
    }

    #[test]
    fn what_a_harness_reports_is_read_as_it_was_meant() {
        for report in [
            EffectReport::Value(json!(null).into()),
            EffectReport::Value(json!({"a": 1}).into()),
            EffectReport::Error("cut off".into()),
        ] {
            let sent = encode(&Reported::new("r".into(), "e".into(), report.clone()));
            let read = crate::model::json::parse(sent.as_bytes()).unwrap();
            assert_eq!(outcome(read), Ok(("r".into(), "e".into(), report)));
        }
    }

    #[test]
    fn an_outcome_is_a_value_or_an_error() {
        let read = |p: Json| outcome(p).map(|(_, _, r)| r);
        let value = |v: Json| EffectReport::Value(v.into());
        assert_eq!(read(json!({"runId": "r", "effectId": "e", "value": null})), Ok(value(Json::Null)));
        assert_eq!(read(json!({"runId": "r", "effectId": "e"})), Ok(value(Json::Null)));
        assert_eq!(
            read(json!({"runId": "r", "effectId": "e", "error": "x"})),
            Ok(EffectReport::Error("x".into()))
        );
        for bad in [
            json!({"runId": "r", "effectId": "e", "value": 1, "error": "x"}),
            json!({"runId": "r", "effectId": "e", "error": 1}),
            json!({"runId": "", "effectId": "e"}),
            json!({"runId": "r", "effectId": "e", "x": 1}),
            json!(null),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }
}
