//! The tool `save_artifact`, which core carries out itself (spec: sandbox, section 14; harness-api, section 11.3, point 8).
//!
//! The intent stands before anything is done. The artifact and the effect's outcome are one transaction, so there is
//! never one without the other: a crash leaves the effect `invoking` (then `uncertain`) and no artifact.

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::json;

use super::is_unknown;
use crate::model::artifact::{
    ArtifactKind, ArtifactSource, OCTETS, PLAIN_TEXT, UNNAMED, check_name, media_type, media_type_of,
};
use crate::model::effect::{EffectIntent, Outcome};
use crate::model::ids::{AgentId, EffectId};
use crate::model::json::Json;
use crate::model::outcome::EffectFacts;
use crate::model::workspace::{BytesAnswer, BytesOf, ToolOutcome};
use crate::ports::engine::{IntentAnswer, OutcomeAnswer};
use crate::ports::store::{Reads, StoreError};
use crate::ports::{BlobError, WorkspaceError};
use crate::rules::artifacts::{self as rules, NewVersion, NotStored, Stored, Target};
use crate::rules::effects::{self, PreparedIntent, PreparedValue, RunScope};
use crate::rules::workspaces::of_session;
use crate::rules::{Refusal, RunRefusal};
use crate::tenant::Reach;
use crate::tenant::persist::{MaybeStore, persist};
use crate::tenant::tree::Tree;

/// A call of the tool, as it is declared.
#[derive(Clone, Debug)]
pub(crate) struct SaveCall {
    input: Arc<Json>,
    call_id: Option<String>,
}

impl SaveCall {
    /// The call that an intent declares.
    pub fn of(intent: &EffectIntent) -> Self {
        let call_id = intent.context.get("callId").and_then(Json::as_str).map(str::to_owned);
        Self { input: intent.input.clone().unwrap_or_default(), call_id }
    }

    /// The same with the run that makes it.
    pub fn by(self, agent: &AgentId, scope: &RunScope, prepared: &PreparedIntent) -> RunCall {
        RunCall {
            input: self.input,
            call_id: self.call_id,
            agent: Arc::new(agent.clone()),
            scope: Arc::new(scope.clone()),
            effect: prepared.id().clone(),
            facts: prepared.facts(),
        }
    }
}

/// A call that a run makes.
#[derive(Clone, Debug)]
pub(crate) struct RunCall {
    input: Arc<Json>,
    call_id: Option<String>,
    agent: Arc<AgentId>,
    scope: Arc<RunScope>,
    effect: EffectId,
    facts: EffectFacts,
}

/// Why nothing was saved.
enum NotSaved {
    /// The tool's own outcome.
    Failed(ToolOutcome),
    /// The infrastructure's fault: what it came to is unknown.
    Fault(String),
    /// The run may write no more.
    Run(RunRefusal),
    /// The effect has come to something else meanwhile.
    Settled(OutcomeAnswer),
}

impl From<StoreError> for NotSaved {
    fn from(error: StoreError) -> Self {
        Self::Run(error.into())
    }
}

impl From<BlobError> for NotSaved {
    fn from(error: BlobError) -> Self {
        Self::Fault(error.to_string())
    }
}

impl MaybeStore for NotSaved {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Run(refusal) => refusal.store_error(),
            _ => None,
        }
    }
}

fn failed(code: &str, message: impl Into<String>) -> NotSaved {
    NotSaved::Failed(ToolOutcome::failed(code, message))
}

/// After an intent: a call of the tool that is to be carried out now is, and its recorded outcome is the answer.
pub(crate) async fn intended(
    tree: &Arc<Tree>,
    call: Option<RunCall>,
    answer: Result<IntentAnswer, RunRefusal>,
) -> Result<IntentAnswer, RunRefusal> {
    match (call, answer) {
        (Some(call), Ok(IntentAnswer::Execute { .. })) => carry_out(tree, call).await,
        (_, answer) => answer,
    }
}

/// Carries the call out and answers as its effect is recorded.
async fn carry_out(tree: &Arc<Tree>, call: RunCall) -> Result<IntentAnswer, RunRefusal> {
    let store = &tree.ports.store;
    let recorded = match save(tree, &call).await {
        Ok(outcome) => OutcomeAnswer::Completed(outcome),
        Err(NotSaved::Settled(answer)) => answer,
        Err(NotSaved::Run(refusal)) => return Err(refusal),
        Err(NotSaved::Failed(outcome)) => {
            let RunCall { scope, agent, effect, facts, .. } = call;
            let prepared = Arc::new(PreparedValue::new(effect, Arc::new(json!(outcome)), Some(&facts)));
            persist(store, None, move |tx| effects::record_value(tx, &scope, &prepared, &agent)).await?
        }
        Err(NotSaved::Fault(why)) => {
            let RunCall { scope, effect, .. } = call;
            tracing::warn!(session = %scope.session, %effect, why, "an artifact could not be saved");
            let effect = Arc::new(effect);
            let text = "the artifact could not be saved";
            persist(store, None, move |tx| effects::record_error(tx, &scope, &effect, text)).await?
        }
    };
    Ok(match recorded {
        OutcomeAnswer::Completed(outcome) => IntentAnswer::Completed(outcome),
        OutcomeAnswer::Uncertain => IntentAnswer::Uncertain,
    })
}

/// What is asked for.
struct Request<'a> {
    path: Option<&'a str>,
    content: Option<&'a str>,
    name: Option<&'a str>,
    content_type: Option<String>,
    artifact: Option<&'a str>,
}

fn read_input(input: &Json) -> Result<Request<'_>, NotSaved> {
    let invalid = |message: &str| failed("artifact.invalid_input", message);
    let map = input.as_object().ok_or_else(|| invalid("The input must be an object."))?;
    let text = |name: &str, filled: bool| match map.get(name) {
        None => Ok(None),
        Some(Json::String(text)) if !filled || !text.is_empty() => Ok(Some(text.as_str())),
        Some(_) if filled => Err(invalid(&format!("`{name}` must be a string that is not empty."))),
        Some(_) => Err(invalid(&format!("`{name}` must be a string."))),
    };
    let (path, content) = (text("path", true)?, text("content", false)?);
    if path.is_some() == content.is_some() {
        return Err(invalid("Give either `path` or `content`."));
    }
    let content_type = match text("contentType", true)? {
        Some(given) => {
            let read = media_type(given);
            Some(read.ok_or_else(|| invalid("`contentType` is no media type, such as text/csv."))?)
        }
        None => None,
    };
    Ok(Request {
        path,
        content,
        name: text("name", true)?,
        content_type,
        artifact: text("artifactId", true)?,
    })
}

/// The last segment of a path that has any.
fn base_name(path: &str) -> Option<&str> {
    path.split('/').rfind(|segment| !segment.is_empty())
}

async fn save(tree: &Arc<Tree>, call: &RunCall) -> Result<Outcome, NotSaved> {
    let request = read_input(&call.input)?;
    let (artifacts, scope) = (tree.artifacts(), &call.scope);
    let (session, wanted) = (scope.session.clone(), request.artifact.map(str::to_owned));
    let of = session.clone();
    let read = move |reads: &mut dyn Reads| {
        let known = match &wanted {
            Some(id) => reads.artifact(id)?.filter(|row| row.session_id.as_ref() == Some(&of)),
            None => None,
        };
        let workspace = of_session(reads, &of)?.and_then(|of| of.workspace);
        Ok::<_, StoreError>((known, workspace, rules::limits(reads)?))
    };
    let (known, workspace, limits) = tree.ports.store.read(read).await?;
    if request.artifact.is_some() && known.is_none() {
        return Err(failed("artifact.not_found", "This session has no such artifact."));
    }
    let name = match &known {
        Some(row) => row.name.clone(),
        None => request.name.or(request.path.and_then(base_name)).unwrap_or(UNNAMED).to_owned(),
    };
    check_name(&name).map_err(|why| failed("artifact.rejected", format!("The name {why}.")))?;
    let content_type =
        request.content_type.unwrap_or_else(|| match (media_type_of(&name), request.content) {
            (OCTETS, Some(_)) => PLAIN_TEXT.to_owned(),
            (known, _) => known.to_owned(),
        });
    let too_large = |limit: i64| failed("artifact.too_large", format!("It may have at most {limit} bytes."));
    let bytes = match (request.content, request.path) {
        (Some(content), _) => Bytes::copy_from_slice(content.as_bytes()),
        (None, path) => {
            let Some(workspace) = workspace else {
                return Err(failed("artifact.no_sandbox", "The session has no sandbox to read a file from."));
            };
            let max_bytes = u64::try_from(limits.file_bytes).unwrap_or(0);
            let file = BytesOf { path: path.unwrap_or_default().to_owned(), max_bytes };
            read_file(crate::workspaces::of(tree).bytes(workspace, file).await)?
        }
    };
    if i64::try_from(bytes.len()).unwrap_or(i64::MAX) > limits.file_bytes {
        return Err(too_large(limits.file_bytes));
    }
    let blob = artifacts.keep(bytes).await?;
    let target = match &known {
        Some(row) => Target::Version { id: row.id.clone() },
        None => Target::New { kind: ArtifactKind::File, name, session: Some(session), labels: None },
    };
    let new = NewVersion {
        size: blob.size,
        blob: blob.clone(),
        content_type,
        source: ArtifactSource::Engine,
        turn: Some(scope.turn.clone()),
        call_id: call.call_id.clone(),
        file_count: None,
        contents: Vec::new(),
    };
    let all = Arc::new((target, new, call.clone()));
    let outcome = Arc::new(OnceLock::new());
    let told = Arc::clone(&outcome);
    let storing = persist(&tree.ports.store, None, move |tx| {
        let (target, new, call) = all.as_ref();
        let stored = rules::store(tx, target, new, &Reach::All).map_err(refused)?;
        let value = Arc::new(json!(ToolOutcome::Completed { output: output(&stored) }));
        let prepared = PreparedValue::new(call.effect.clone(), Arc::clone(&value), Some(&call.facts));
        match effects::record_value(tx, &call.scope, &prepared, &call.agent).map_err(NotSaved::Run)? {
            OutcomeAnswer::Completed(recorded) if recorded.value == value => {
                let _ = told.set(recorded);
                Ok(stored)
            }
            other => Err(NotSaved::Settled(other)),
        }
    });
    let unknown = |not: &NotSaved| not.store_error().is_some_and(is_unknown);
    let stored = artifacts.name(blob, storing, unknown).await?;
    let recorded = outcome.get().cloned();
    recorded.ok_or_else(|| NotSaved::Fault(format!("artifact {} has no outcome", stored.artifact.id)))
}

fn read_file(answer: Result<BytesAnswer, WorkspaceError>) -> Result<Bytes, NotSaved> {
    match answer {
        Ok(BytesAnswer::Read { base64, .. }) => match STANDARD.decode(base64) {
            Ok(bytes) => Ok(bytes.into()),
            Err(_) => Err(NotSaved::Fault("a file came in no base64".to_owned())),
        },
        Ok(BytesAnswer::Missing { path }) => {
            Err(failed("artifact.not_found", format!("There is no file {path}.")))
        }
        Ok(BytesAnswer::Failed { code, message }) => Err(failed(&code, message)),
        // Nothing was read and nothing will be stored: that is known.
        Err(WorkspaceError::Unavailable(why)) => Err(failed("sandbox.unavailable", why)),
        Err(error @ WorkspaceError::PodAway) => Err(failed("sandbox.unavailable", error.to_string())),
        Err(WorkspaceError::Store(error)) => Err(error.into()),
        Err(WorkspaceError::Failed(error)) => Err(NotSaved::Fault(error.to_string())),
    }
}

fn refused(not: NotStored) -> NotSaved {
    match not {
        NotStored::Refused(Refusal::TooLarge { message, .. }) => failed("artifact.too_large", message),
        NotStored::Refused(Refusal::NotFound(message)) => failed("artifact.not_found", message),
        NotStored::Refused(Refusal::Store(error)) => error.into(),
        NotStored::Refused(other) => failed("artifact.rejected", other.to_string()),
        NotStored::Stale => NotSaved::Fault("a file without bytes".to_owned()),
    }
}

fn output(stored: &Stored) -> Json {
    json!({
        "artifactId": stored.artifact.id,
        "version": stored.version.version,
        "name": stored.artifact.name,
        "contentType": stored.version.content_type,
        "size": stored.version.size,
        "sha256": stored.version.sha256,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(input: Json) -> String {
        match read_input(&input) {
            Err(NotSaved::Failed(ToolOutcome::Failed { code, .. })) => code,
            Ok(_) => "ok".to_owned(),
            Err(_) => "other".to_owned(),
        }
    }

    #[test]
    fn exactly_one_of_path_and_content_is_given_and_each_member_is_a_string() {
        for good in [
            json!({"path": "a"}),
            json!({"content": ""}),
            json!({"content": "x", "name": "n", "contentType": "text/csv", "artifactId": "af_1"}),
        ] {
            assert_eq!(code(good), "ok");
        }
        for bad in [
            json!({}),
            json!({"path": "a", "content": "b"}),
            json!({"path": ""}),
            json!({"path": 1}),
            json!({"content": 1}),
            json!({"content": "x", "name": ""}),
            json!({"content": "x", "contentType": "nonsense"}),
            json!({"content": "x", "artifactId": null}),
            json!([]),
            json!("x"),
        ] {
            assert_eq!(code(bad.clone()), "artifact.invalid_input", "{bad}");
        }
    }

    #[test]
    fn a_paths_last_segment_is_its_name() {
        assert_eq!(base_name("/workspace/a/b.txt"), Some("b.txt"));
        assert_eq!(base_name("a/b/"), Some("b"));
        assert_eq!(base_name("//"), None);
    }
}
