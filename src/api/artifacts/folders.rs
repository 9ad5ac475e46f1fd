//! What is in a folder artifact, one file of it, what changed between two versions, and all of it as an archive
//! (spec: http-api, section 12).

use std::collections::HashMap;

use actix_web::HttpResponse;
use actix_web::body::SizedStream;
use actix_web::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use bytes::Bytes;
use futures_util::stream;
use futures_util::{Stream, StreamExt as _};
use nylorun_actors::artifacts::Artifacts;
use nylorun_actors::model::artifact::{ArtifactKind, VersionAt};
use nylorun_actors::model::folder::diff as compare;
use nylorun_actors::ports::StoreError;
use nylorun_actors::ports::store::{ArtifactRow, ArtifactVersionRow};
use nylorun_actors::rules::Refusal;
use serde_json::json;

use super::super::answer::{self, Answer};
use super::super::call::Call;
use super::super::rejection::Rejection;
use super::content::{File, disposition, harmless};
use super::zip::{Layout, ZipFile};
use super::{must_be, version};

/// `GET …/versions/{v}/tree`.
pub(in crate::api) async fn tree(call: Call) -> Answer {
    let (artifact, version) = version(&call).await?;
    must_be(&artifact, ArtifactKind::Folder)?;
    let manifest = call.tenant().artifacts().manifest(&version).await?;
    Ok(answer::json(
        &json!({"artifactId": artifact.id, "version": version.version, "entries": manifest.entries}),
    ))
}

/// `GET …/versions/{v}/files/{path}`.
pub(in crate::api) async fn file(call: Call) -> Answer {
    let (artifact, version) = version(&call).await?;
    must_be(&artifact, ArtifactKind::Folder)?;
    one(call.tenant().artifacts(), &version, call.param(2), &call).await
}

/// One file of a folder's version.
pub(super) async fn one(
    artifacts: &Artifacts,
    version: &ArtifactVersionRow,
    path: &str,
    call: &Call,
) -> Answer {
    let (entry, content) = artifacts.file(version, path).await?;
    let file = File {
        name: entry.path.rsplit('/').next().unwrap_or(&entry.path),
        content_type: &entry.content_type,
        blob_key: &content.blob_key,
        size: entry.size,
        sha256: &entry.sha256,
    };
    file.answer(artifacts, call.request.headers()).await
}

/// `GET …/versions/{v}/diff`. Without `from` it is the version before.
pub(in crate::api) async fn diff(call: Call) -> Answer {
    let (artifact, to) = version(&call).await?;
    must_be(&artifact, ArtifactKind::Folder)?;
    let reach = call.caller.reach()?;
    let artifacts = call.tenant().artifacts();
    let from = match call.query().get("from") {
        Some(text) => Some(
            VersionAt::read(&text)
                .ok_or_else(|| Rejection::bad("from is a version: a number from 1 on, or latest"))?,
        ),
        None => (to.version > 1).then_some(VersionAt::Number(to.version - 1)),
    };
    let from = match from {
        Some(at) => Some(artifacts.version(&artifact.id, at, &reach).await?.1),
        None => None,
    };
    let before = match &from {
        Some(from) => Some(artifacts.manifest(from).await?),
        None => None,
    };
    let found = compare(before.as_ref(), &artifacts.manifest(&to).await?);
    let mut body = json!({"artifactId": artifact.id});
    if let Some(from) = from {
        body["from"] = json!(from.version);
    }
    body["to"] = json!(to.version);
    body["added"] = json!(found.added);
    body["removed"] = json!(found.removed);
    body["changed"] = json!(found.changed);
    Ok(answer::json(&body))
}

/// `GET …/versions/{v}/zip`.
pub(in crate::api) async fn zip(call: Call) -> Answer {
    let (artifact, version) = version(&call).await?;
    must_be(&artifact, ArtifactKind::Folder)?;
    archive(call.tenant().artifacts(), &artifact, &version).await
}

/// A folder's version as an archive. It is written while it is sent; of its files one piece is in memory at a time.
pub(super) async fn archive(
    artifacts: &Artifacts,
    artifact: &ArtifactRow,
    version: &ArtifactVersionRow,
) -> Answer {
    let manifest = artifacts.manifest(version).await?;
    let rows = artifacts.contents(version).await?;
    let by_hash: HashMap<&str, _> = rows.iter().map(|row| (row.sha256.as_str(), row)).collect();
    let (mut files, mut sources) = (Vec::new(), Vec::new());
    for entry in manifest.entries {
        let row = by_hash
            .get(entry.sha256.as_str())
            .ok_or_else(|| Refusal::from(StoreError::Corrupt(format!("a file of folder {}", artifact.id))))?;
        let size = u64::try_from(entry.size).unwrap_or(0);
        sources.push((row.blob_key.clone(), size));
        files.push(ZipFile { path: entry.path, size, crc32: row.crc32 });
    }
    let layout = Layout::of(files, version.created_at)
        .ok_or_else(|| Rejection::bad("The folder is too large for the zip format: read its files"))?;
    let len = layout.len();
    let name = format!("{}-v{}.zip", artifact.name, version.version);
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_TYPE, "application/zip"));
    response.insert_header((CONTENT_DISPOSITION, disposition("attachment", &name)));
    harmless(&mut response);
    Ok(response.body(SizedStream::new(len, written(artifacts.clone(), layout, sources))))
}

type Failed = Box<dyn std::error::Error>;

fn written(
    artifacts: Artifacts,
    layout: Layout,
    sources: Vec<(String, u64)>,
) -> impl Stream<Item = Result<Bytes, Failed>> + 'static {
    let layout = std::rc::Rc::new(layout);
    let (directory, end) = (layout.clone(), layout.clone());
    let files = stream::iter(sources.into_iter().enumerate()).then(move |(at, (key, size))| {
        let (artifacts, head) = (artifacts.clone(), layout.local(at));
        async move {
            let head = stream::once(async { Ok(Bytes::from(head)) });
            match artifacts.open(&key, 0, size).await {
                Ok(bytes) => head.chain(bytes.map(|piece| piece.map_err(Failed::from))).boxed_local(),
                Err(error) => stream::once(async { Err(Failed::from(error)) }).boxed_local(),
            }
        }
    });
    let lines = stream::iter(0..directory.files()).map(move |at| Ok(Bytes::from(directory.central(at))));
    let last = stream::once(async move { Ok(Bytes::from(end.end())) });
    files.flatten().chain(lines).chain(last)
}
