//! Artifacts: who reaches which, and what is left when one goes (spec: http-api, section 12; durability, section 3.1).
//!
//! | File | Has |
//! |---|---|
//! | this file | who may write, read, list and delete |
//! | [`limits`] | how large artifacts may be, and what is used |
//! | [`store`](mod@store) | a new version: rows, shared contents, event |
//! | [`views`] | artifacts as clients see them |
//!
//! Bytes are written before the transaction that names them. Each function here locks in the order session, quota,
//! artifact, and says which blobs are nobody's afterwards.

mod limits;
mod store;
mod views;

use serde_json::json;

use super::event::write;
use super::{Refusal, sessions};
use crate::model::artifact::{ArtifactKind, VersionAt};
use crate::model::event::EventKind;
use crate::model::ids::SessionId;
use crate::model::json::JsonMap;
use crate::ports::store::{ArtifactFilter, ArtifactRow, ArtifactVersionRow, Page, Reads, Tx};
use crate::tenant::Reach;

pub use limits::{ALL_FILES, ArtifactLimits, ONE_FILE, Room, limits, put_limits, settings_view, too_large};
pub use store::{NewContent, NewVersion, NotStored, Stored, Target, store};
pub use views::{version_view, view};

/// Whether a caller may write there, the name that the bytes will have, and the room.
///
/// # Errors
/// [`Refusal::NotFound`] out of reach, [`Refusal::Invalid`] for a file into a folder.
pub fn prepare(reads: &mut dyn Reads, target: &Target, reach: &Reach) -> Result<(String, Room), Refusal> {
    let name = match target {
        Target::New { session, name, .. } => {
            owner(reads, session.as_ref(), reach)?;
            name.clone()
        }
        Target::Version { id } => {
            let row = reachable(reads, id, reach)?;
            must_be(&row, ArtifactKind::File)?;
            row.name
        }
    };
    Ok((name, Room { limits: limits(reads)?, used: reads.artifact_bytes()? }))
}

/// A person writes into a session of theirs; whoever else into any, or into none.
fn owner(reads: &mut dyn Reads, session: Option<&SessionId>, reach: &Reach) -> Result<(), Refusal> {
    match (session, reach) {
        (Some(id), _) => sessions::reachable(reads, id, reach).map(|_| ()),
        (None, Reach::All) => Ok(()),
        (None, Reach::Person { .. }) => Err(Refusal::invalid("sessionId is needed when acting for a person")),
    }
}

fn must_be(row: &ArtifactRow, kind: ArtifactKind) -> Result<(), Refusal> {
    if row.kind == kind {
        return Ok(());
    }
    Err(Refusal::invalid(match kind {
        ArtifactKind::File => "The artifact is a folder, which takes no single file",
        ArtifactKind::Folder => "The artifact is a file, not a folder",
    }))
}

/// An artifact within reach: a person's are those of their own sessions.
///
/// # Errors
/// [`Refusal::NotFound`] when it is missing or out of reach.
pub fn reachable(reads: &mut dyn Reads, id: &str, reach: &Reach) -> Result<ArtifactRow, Refusal> {
    let missing = || Refusal::not_found("artifact");
    let row = reads.artifact(id)?.ok_or_else(missing)?;
    if *reach == Reach::All {
        return Ok(row);
    }
    let session = row.session_id.as_ref().ok_or_else(missing)?;
    sessions::reachable(reads, session, reach).map_err(|refusal| match refusal {
        Refusal::NotFound(_) => missing(),
        other => other,
    })?;
    Ok(row)
}

/// A version of an artifact within reach.
///
/// # Errors
/// [`Refusal::NotFound`].
pub fn version(
    reads: &mut dyn Reads,
    id: &str,
    at: VersionAt,
    reach: &Reach,
) -> Result<(ArtifactRow, ArtifactVersionRow), Refusal> {
    let artifact = reachable(reads, id, reach)?;
    let found = reads.artifact_version(id, at.of(artifact.latest_version))?;
    Ok((artifact, found.ok_or_else(|| Refusal::not_found("version"))?))
}

/// Artifacts within reach, oldest first; with a session only its own.
///
/// # Errors
/// [`Refusal::NotFound`] for a session out of reach.
pub fn list(
    reads: &mut dyn Reads,
    session: Option<SessionId>,
    reach: &Reach,
    page: &Page,
) -> Result<Vec<ArtifactRow>, Refusal> {
    if let Some(id) = &session {
        sessions::reachable(reads, id, reach)?;
    }
    let person = match reach {
        Reach::All => None,
        Reach::Person { subject, agents, .. } => Some((subject.clone(), agents.clone())),
    };
    Ok(reads.artifacts(&ArtifactFilter { session, person }, page)?)
}

/// Deletes an artifact. Answers the blobs that nobody names any more.
///
/// # Errors
/// [`Refusal::NotFound`].
pub fn delete(tx: &mut dyn Tx, id: &str, reach: &Reach) -> Result<Vec<String>, Refusal> {
    let known = reachable(tx, id, reach)?;
    let record = match &known.session_id {
        Some(session) => tx.session(session)?.map(|head| head.id),
        None => None,
    };
    tx.artifact_bytes()?;
    let row = reachable(tx, id, reach)?;
    let mut freed: Vec<String> = tx.artifact_versions(id)?.into_iter().map(|row| row.blob_key).collect();
    freed.extend(tx.contents_of_one(id)?.into_iter().map(|row| row.blob_key));
    tx.delete_artifact(id)?;
    if let Some(session) = &record {
        let mut payload = JsonMap::new();
        payload.insert("artifactId".into(), json!(id));
        payload.insert("name".into(), json!(row.name));
        write(tx, session, None, EventKind::ArtifactDeleted, &payload)?;
    }
    Ok(freed)
}
