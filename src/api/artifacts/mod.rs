//! Artifacts over HTTP (spec: http-api, section 12).
//!
//! | File | Has |
//! |---|---|
//! | this file | uploads, lists, one artifact, its end, the limits |
//! | [`content`] | bytes: whole or a range, and their headers |
//! | [`folders`] | what is in a folder, one file of it, what changed, its archive |
//! | [`links`] | capability links |
//! | [`zip`] | the layout of archives |

pub(super) mod content;
pub(super) mod folders;
pub(super) mod links;
mod zip;

use actix_web::HttpResponse;
use actix_web::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use futures_util::StreamExt as _;
use nylorun_actors::artifacts::Upload;
use nylorun_actors::model::artifact::{ArtifactKind, VersionAt, check_name, read_labels};
use nylorun_actors::model::ids::SessionId;
use nylorun_actors::model::json::{Json, JsonMap, JsonText, encode};
use nylorun_actors::model::shape::issue;
use nylorun_actors::ports::store::{ArtifactRow, ArtifactVersionRow};
use nylorun_actors::rules::artifacts::{Stored, Target, version_view, view};
use serde_json::json;

use super::answer::{self, Answer};
use super::call::Call;
use super::limits::BODY_IDLE;
use super::page::{Paging, Query};
use super::rejection::Rejection;
use super::shapes;

/// `POST /v1/artifacts`.
pub(super) async fn create(call: Call) -> Answer {
    let query = call.query();
    let wrong = |name: &str, why: &str| Rejection::issues(&[issue(&[name], why)]);
    let name = query.get("name").ok_or_else(|| wrong("name", "is needed"))?;
    check_name(&name).map_err(|why| wrong("name", why))?;
    let given = query.all("label");
    let labels = read_labels(given.iter().map(AsRef::as_ref)).map_err(|why| wrong("label", why))?;
    let labels = (!labels.is_empty()).then(|| JsonText::of(&labels));
    let target =
        Target::New { kind: ArtifactKind::File, name: name.into_owned(), session: session(&query)?, labels };
    receive(call, target).await
}

/// `POST /v1/artifacts/{id}/versions`.
pub(super) async fn add_version(call: Call) -> Answer {
    let target = Target::Version { id: call.param(0).to_owned() };
    receive(call, target).await
}

/// `?sessionId=`. An empty one is nobody's.
fn session(query: &Query<'_>) -> Result<Option<SessionId>, Rejection> {
    match query.get("sessionId") {
        None => Ok(None),
        Some(id) if id.is_empty() => Err(Rejection::issues(&[issue(&["sessionId"], "must not be empty")])),
        Some(id) => Ok(Some(SessionId::from(&*id))),
    }
}

/// Takes a body as it comes; what is refused on the way leaves nothing.
async fn receive(call: Call, target: Target) -> Answer {
    let reach = call.caller.reach()?;
    let header = declared_type(call.request.headers())?;
    let length = call.request.headers().get(CONTENT_LENGTH);
    let declared = length.and_then(|value| value.to_str().ok()?.parse().ok());
    let artifacts = call.tenant().artifacts().clone();
    let mut upload = artifacts.upload(target, header.as_deref(), declared, &reach).await?;
    let mut payload = call.payload;
    loop {
        match tokio::time::timeout(BODY_IDLE, payload.next()).await {
            Err(_) => return Err(Rejection::bad("The body did not arrive in time")),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(Rejection::bad("The body could not be read")),
            Ok(Some(Ok(piece))) => upload.write(piece).await?,
        }
    }
    let Stored { artifact, version, .. } = finish(upload).await?;
    let body = encode(&json!({"artifact": view(&artifact, None), "version": version_view(&version)}));
    Ok(HttpResponse::Created().insert_header((CONTENT_TYPE, "application/json")).body(body))
}

/// What is whole is stored to the end, whether or not its client is still there.
async fn finish(upload: Upload) -> Result<Stored, Rejection> {
    match tokio::spawn(upload.finish()).await {
        Ok(stored) => Ok(stored?),
        Err(error) => Err(Rejection::internal(&error)),
    }
}

/// `Content-Type`, if it came. One that is no text is one that cannot be read.
fn declared_type(headers: &HeaderMap) -> Result<Option<String>, Rejection> {
    let mut values = headers.get_all(CONTENT_TYPE);
    let first = values.next();
    if values.next().is_some() {
        return Err(Rejection::bad("Content-Type was sent twice"));
    }
    Ok(first.map(|value| value.to_str().unwrap_or_default().to_owned()))
}

/// `GET /v1/artifacts`.
pub(super) async fn list(call: Call) -> Answer {
    let query = call.query();
    let (paging, session) = (Paging::of(&query)?, session(&query)?);
    let reach = call.caller.reach()?;
    let mut rows = call.tenant().artifacts().list(session, &reach, paging.page()).await?;
    let tail = paging.finish(&mut rows, |row| &row.id);
    let views: Vec<Json> = rows.iter().map(|row| view(row, None)).collect();
    Ok(answer::text(format!(r#"{{"artifacts":{}{tail}}}"#, encode(&views))))
}

/// `GET /v1/artifacts/{id}`.
pub(super) async fn get(call: Call) -> Answer {
    let reach = call.caller.reach()?;
    let (row, versions) = call.tenant().artifacts().get(call.param(0), &reach).await?;
    Ok(answer::json(&view(&row, Some(&versions))))
}

/// `DELETE /v1/artifacts/{id}`.
pub(super) async fn delete(call: Call) -> Answer {
    let reach = call.caller.reach()?;
    let id = call.param(0);
    call.tenant().artifacts().delete(id, &reach).await?;
    Ok(answer::json(&json!({"artifactId": id, "deleted": true})))
}

/// `GET /v1/tenant/artifacts`.
pub(super) async fn settings(call: Call) -> Answer {
    Ok(answer::json(&call.tenant().artifacts().settings().await?))
}

/// `PUT /v1/tenant/artifacts`.
pub(super) async fn put_settings(call: Call) -> Answer {
    let (head, mut body) = call.object(&shapes::PUT_ARTIFACT_SETTINGS).await?;
    let limits = match body.shift_remove("limits") {
        Some(Json::Object(limits)) => limits,
        _ => JsonMap::new(),
    };
    let actor = head.caller.audit_name();
    Ok(answer::json(&head.tenant().artifacts().put_settings(limits, actor).await?))
}

/// The version that the path names, within the caller's reach.
async fn version(call: &Call) -> Result<(ArtifactRow, ArtifactVersionRow), Rejection> {
    let reach = call.caller.reach()?;
    let at = VersionAt::read(call.param(1))
        .ok_or_else(|| Rejection::bad("A version is a number from 1 on, or latest"))?;
    Ok(call.tenant().artifacts().version(call.param(0), at, &reach).await?)
}

/// Whether an artifact is what a route is about.
fn must_be(artifact: &ArtifactRow, kind: ArtifactKind) -> Result<(), Rejection> {
    match (artifact.kind, kind) {
        (ArtifactKind::Folder, ArtifactKind::File) => {
            Err(Rejection::bad("The artifact is a folder: read its tree, a file of it, or its zip"))
        }
        (ArtifactKind::File, ArtifactKind::Folder) => {
            Err(Rejection::bad("The artifact is a file, not a folder"))
        }
        _ => Ok(()),
    }
}
