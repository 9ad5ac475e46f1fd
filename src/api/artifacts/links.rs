//! Capability links: made for a caller who reaches the artifact, followed by whoever has one
//! (spec: http-api, section 12; security, section 4).

use actix_web::http::StatusCode;
use nylorun_actors::model::Micros;
use nylorun_actors::model::artifact::{ArtifactKind, VersionAt};
use nylorun_actors::model::json::Json;
use nylorun_actors::rules::Refusal;
use nylorun_actors::tenant::Reach;
use serde_json::json;

use super::super::answer::{self, Answer};
use super::super::call::Call;
use super::super::rejection::{Code, Rejection};
use super::super::shapes;
use super::content::File;
use super::folders;
use crate::identity::artifact_link::LinkClaims;
use crate::identity::tokens::TokenRefusal;

/// What stands before the token.
const PATH: &str = "/v1/artifact-links/";
/// Life of a link, seconds, unless it is asked for another.
const LIFE_S: u64 = 300;

/// `POST /v1/artifacts/{id}/links`.
pub(in crate::api) async fn create(call: Call) -> Answer {
    let (head, body) = call.object(&shapes::ARTIFACT_LINK).await?;
    let reach = head.caller.reach()?;
    let number = |name: &str| body.get(name).and_then(Json::as_i64);
    let at = number("version").map_or(VersionAt::Latest, VersionAt::Number);
    let life = number("expiresIn").and_then(|n| u64::try_from(n).ok()).unwrap_or(LIFE_S);
    let file = body.get("file").and_then(Json::as_str);
    let artifacts = head.tenant().artifacts();
    let (artifact, version) = artifacts.version(head.param(0), at, &reach).await?;
    if let Some(path) = file {
        if artifact.kind != ArtifactKind::Folder {
            return Err(Rejection::bad("file names a file of a folder, and the artifact is none"));
        }
        artifacts.file(&version, path).await?;
    }
    let link =
        LinkClaims { artifact_id: artifact.id, version: version.version, path: file.map(str::to_owned) };
    let minted = head.open.signing.mint_link(&link, life).await?;
    let (token, expires) = minted.ok_or_else(|| Rejection::bad("file is too long for a link"))?;
    let mut answer = json!({
        "path": format!("{PATH}{token}"), "artifactId": link.artifact_id, "version": link.version,
    });
    if let Some(path) = link.path {
        answer["file"] = json!(path);
    }
    answer["expiresAt"] = json!(Micros(expires.saturating_mul(1_000_000)).to_iso());
    Ok(answer::json(&answer))
}

/// `GET /v1/artifact-links/{token}`. The token is the grant, whoever calls.
pub(in crate::api) async fn follow(call: Call) -> Answer {
    let link = match call.open.signing.verify_link(call.param(0)).await {
        Ok(link) => link,
        Err(TokenRefusal::Store(error)) => return Err(error.into()),
        Err(TokenRefusal::Refused(reason)) => {
            tracing::info!(reason = format!("artifact_token_{}", reason.as_str()), "link refused");
            return Err(if reason.is_too_old() { expired() } else { Rejection::opaque() });
        }
    };
    let artifacts = call.tenant().artifacts();
    let at = VersionAt::Number(link.version);
    let (artifact, version) = artifacts.version(&link.artifact_id, at, &Reach::All).await.map_err(gone)?;
    match (artifact.kind, &link.path) {
        (ArtifactKind::File, None) => {
            File::of_version(&artifact.name, &version).answer(artifacts, call.request.headers()).await
        }
        (ArtifactKind::Folder, None) => folders::archive(artifacts, &artifact, &version).await,
        (ArtifactKind::Folder, Some(path)) => folders::one(artifacts, &version, path, &call).await,
        (ArtifactKind::File, Some(_)) => Err(Rejection::opaque()),
    }
}

/// 401 without a challenge: nothing that its holder could send would help.
fn expired() -> Rejection {
    Rejection::new(
        StatusCode::UNAUTHORIZED,
        Code::TokenExpired,
        "The link has expired or its key was revoked",
    )
}

/// A link to what is gone says no more than one that never was.
fn gone(refusal: Refusal) -> Rejection {
    match refusal {
        Refusal::NotFound(_) => Rejection::opaque(),
        other => other.into(),
    }
}
