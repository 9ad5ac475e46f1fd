//! Artifacts and versions as clients see them.

use serde_json::json;

use crate::model::json::{Json, JsonMap};
use crate::ports::store::{ArtifactRow, ArtifactVersionRow};

/// An artifact as clients see it; with versions when they are asked for.
#[must_use]
pub fn view(row: &ArtifactRow, versions: Option<&[ArtifactVersionRow]>) -> Json {
    let mut view = JsonMap::new();
    view.insert("artifactId".into(), json!(row.id));
    view.insert("kind".into(), json!(row.kind.as_str()));
    view.insert("name".into(), json!(row.name));
    view.insert("contentType".into(), json!(row.content_type));
    if let Some(session) = &row.session_id {
        view.insert("sessionId".into(), json!(session.as_str()));
    }
    view.insert("latestVersion".into(), json!(row.latest_version));
    if let Some(labels) = row.labels.as_ref().and_then(|labels| labels.decode::<Json>().ok()) {
        view.insert("labels".into(), labels);
    }
    view.insert("createdAt".into(), json!(row.created_at.to_iso()));
    view.insert("updatedAt".into(), json!(row.updated_at.to_iso()));
    if let Some(versions) = versions {
        view.insert("versions".into(), versions.iter().map(version_view).collect());
    }
    Json::Object(view)
}

/// A version as clients see it.
#[must_use]
pub fn version_view(row: &ArtifactVersionRow) -> Json {
    json!({
        "version": row.version,
        "size": row.size,
        "sha256": row.sha256,
        "contentType": row.content_type,
        "source": row.source.as_str(),
        "createdAt": row.created_at.to_iso(),
    })
}
