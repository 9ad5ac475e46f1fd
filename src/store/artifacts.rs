//! Artifacts in diesel (spec: durability, section 3.1). Triggers of the schema keep the total of bytes.

use diesel::prelude::*;
use nylorun_actors::model::Micros;
use nylorun_actors::model::artifact::{ArtifactKind, ArtifactSource};
use nylorun_actors::model::ids::{AgentId, SessionId};
use nylorun_actors::model::json::JsonText;
use nylorun_actors::ports::StoreError;
use nylorun_actors::ports::store::{
    ArtifactContentRow, ArtifactFilter, ArtifactReads, ArtifactRow, ArtifactTx, ArtifactVersionRow, Page,
    StoreResult,
};

use super::access::Access;
use super::prepared::{change, prepared};
use super::schema::{artifact_content, artifact_total, artifact_versions, artifacts, sessions};

#[derive(Queryable, Selectable)]
#[diesel(table_name = artifacts)]
struct Row {
    id: String,
    kind: String,
    name: String,
    content_type: String,
    session_id: Option<String>,
    latest_version: i64,
    labels: Option<String>,
    created_at: i64,
    updated_at: i64,
}

impl Row {
    fn row(self) -> StoreResult<ArtifactRow> {
        let kind = ArtifactKind::from_name(&self.kind)
            .ok_or_else(|| StoreError::Corrupt(format!("artifact {} is a {}", self.id, self.kind)))?;
        Ok(ArtifactRow {
            id: self.id,
            kind,
            name: self.name,
            content_type: self.content_type,
            session_id: self.session_id.map(SessionId::from),
            latest_version: self.latest_version,
            labels: self.labels.map(JsonText::from_trusted),
            created_at: Micros(self.created_at),
            updated_at: Micros(self.updated_at),
        })
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = artifact_versions)]
struct Version {
    artifact_id: String,
    version: i64,
    blob_key: String,
    blob_size: i64,
    size: i64,
    sha256: String,
    content_type: String,
    source: String,
    created_at: i64,
}

impl Version {
    fn row(self) -> StoreResult<ArtifactVersionRow> {
        let source = ArtifactSource::from_name(&self.source).ok_or_else(|| {
            StoreError::Corrupt(format!("a version of artifact {} is from {}", self.artifact_id, self.source))
        })?;
        Ok(ArtifactVersionRow {
            artifact_id: self.artifact_id,
            version: self.version,
            blob_key: self.blob_key,
            blob_size: self.blob_size,
            size: self.size,
            sha256: self.sha256,
            content_type: self.content_type,
            source,
            created_at: Micros(self.created_at),
        })
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = artifact_content)]
struct Content {
    artifact_id: String,
    version: i64,
    sha256: String,
    blob_key: String,
    size: i64,
    crc32: i64,
}

impl Content {
    fn row(self) -> StoreResult<ArtifactContentRow> {
        let crc32 = u32::try_from(self.crc32)
            .map_err(|_| StoreError::Corrupt(format!("a checksum of artifact {}", self.artifact_id)))?;
        Ok(ArtifactContentRow {
            artifact_id: self.artifact_id,
            version: self.version,
            sha256: self.sha256,
            blob_key: self.blob_key,
            size: self.size,
            crc32,
        })
    }
}

impl ArtifactReads for Access<'_> {
    fn artifact(&mut self, id: &str) -> StoreResult<Option<ArtifactRow>> {
        let found: Option<Row> =
            self.run(|c| artifacts::table.find(id).select(Row::as_select()).get_result(c).optional())?;
        found.map(Row::row).transpose()
    }

    fn artifacts(&mut self, filter: &ArtifactFilter, page: &Page) -> StoreResult<Vec<ArtifactRow>> {
        // What a session's row says of owner and agent never changes, so none is waiting to be written.
        let mut query = artifacts::table.select(Row::as_select()).order(artifacts::id).into_boxed();
        if let Some(session) = &filter.session {
            query = query.filter(artifacts::session_id.eq(session.as_str()));
        }
        if let Some((person, agents)) = &filter.person {
            let mut own =
                sessions::table.select(sessions::id).filter(sessions::owner_user_id.eq(person)).into_boxed();
            if let Some(agents) = agents {
                own = own.filter(sessions::agent_id.eq_any(agents.iter().map(AgentId::as_str)));
            }
            query = query.filter(artifacts::session_id.assume_not_null().eq_any(own));
        }
        if let Some(after) = &page.after {
            query = query.filter(artifacts::id.gt(after));
        }
        if let Some(limit) = page.limit {
            query = query.limit(i64::try_from(limit).unwrap_or(i64::MAX));
        }
        let found: Vec<Row> = self.run(|c| query.load(c))?;
        found.into_iter().map(Row::row).collect()
    }

    fn last_artifact_id(&mut self) -> StoreResult<Option<String>> {
        self.run(|c| artifacts::table.select(diesel::dsl::max(artifacts::id)).get_result(c))
    }

    fn session_folder(&mut self, session: &SessionId, name: &str) -> StoreResult<Option<ArtifactRow>> {
        let found: Option<Row> = self.run(|c| {
            artifacts::table
                .filter(artifacts::session_id.eq(session.as_str()))
                .filter(artifacts::kind.eq(ArtifactKind::Folder.as_str()))
                .filter(artifacts::name.eq(name))
                .order(artifacts::id)
                .select(Row::as_select())
                .first(c)
                .optional()
        })?;
        found.map(Row::row).transpose()
    }

    fn artifact_version(&mut self, id: &str, version: i64) -> StoreResult<Option<ArtifactVersionRow>> {
        let found: Option<Version> = self.run(|c| {
            artifact_versions::table.find((id, version)).select(Version::as_select()).get_result(c).optional()
        })?;
        found.map(Version::row).transpose()
    }

    fn artifact_versions(&mut self, id: &str) -> StoreResult<Vec<ArtifactVersionRow>> {
        let found: Vec<Version> = self.run(|c| {
            artifact_versions::table
                .filter(artifact_versions::artifact_id.eq(id))
                .order(artifact_versions::version)
                .select(Version::as_select())
                .load(c)
        })?;
        found.into_iter().map(Version::row).collect()
    }

    fn artifact_content(
        &mut self,
        id: &str,
        version: i64,
        sha256: &str,
    ) -> StoreResult<Option<ArtifactContentRow>> {
        let found: Option<Content> = self.run(|c| {
            artifact_content::table
                .find((id, version, sha256))
                .select(Content::as_select())
                .get_result(c)
                .optional()
        })?;
        found.map(Content::row).transpose()
    }

    fn artifact_contents(&mut self, id: &str, version: i64) -> StoreResult<Vec<ArtifactContentRow>> {
        let found: Vec<Content> = self.run(|c| {
            artifact_content::table
                .filter(artifact_content::artifact_id.eq(id))
                .filter(artifact_content::version.eq(version))
                .order(artifact_content::sha256)
                .select(Content::as_select())
                .load(c)
        })?;
        found.into_iter().map(Content::row).collect()
    }

    fn content_of_hash(&mut self, sha256: &str) -> StoreResult<Option<ArtifactContentRow>> {
        let found: Option<Content> = self.run(|c| {
            artifact_content::table
                .filter(artifact_content::sha256.eq(sha256))
                .select(Content::as_select())
                .first(c)
                .optional()
        })?;
        found.map(Content::row).transpose()
    }

    fn contents_of_one(&mut self, id: &str) -> StoreResult<Vec<ArtifactContentRow>> {
        let others = diesel::alias!(artifact_content as others);
        let found: Vec<Content> = self.run(|c| {
            let elsewhere = others
                .filter(others.field(artifact_content::sha256).eq(artifact_content::sha256))
                .filter(others.field(artifact_content::artifact_id).ne(id));
            artifact_content::table
                .filter(artifact_content::artifact_id.eq(id))
                .filter(diesel::dsl::not(diesel::dsl::exists(elsewhere)))
                .order((artifact_content::sha256, artifact_content::version))
                .select(Content::as_select())
                .load(c)
        })?;
        let mut rows = found.into_iter().map(Content::row).collect::<StoreResult<Vec<_>>>()?;
        rows.dedup_by(|later, first| later.sha256 == first.sha256);
        Ok(rows)
    }

    fn artifact_bytes(&mut self) -> StoreResult<i64> {
        self.run(|c| artifact_total::table.select(artifact_total::bytes).get_result(c))
    }

    fn unnamed_blobs(&mut self, keys: &[String]) -> StoreResult<Vec<String>> {
        let files: Vec<String> = self.run(|c| {
            artifact_versions::table
                .filter(artifact_versions::blob_key.eq_any(keys))
                .select(artifact_versions::blob_key)
                .load(c)
        })?;
        let contents: Vec<String> = self.run(|c| {
            artifact_content::table
                .filter(artifact_content::blob_key.eq_any(keys))
                .select(artifact_content::blob_key)
                .distinct()
                .load(c)
        })?;
        Ok(keys.iter().filter(|key| !files.contains(key) && !contents.contains(key)).cloned().collect())
    }
}

impl ArtifactTx for Access<'_> {
    fn insert_artifact(&mut self, row: &ArtifactRow) -> StoreResult<()> {
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(artifacts::table).values((
                    artifacts::id.eq(&row.id),
                    artifacts::kind.eq(row.kind.as_str()),
                    artifacts::name.eq(&row.name),
                    artifacts::content_type.eq(&row.content_type),
                    artifacts::session_id.eq(row.session_id.as_ref().map(SessionId::as_str)),
                    artifacts::latest_version.eq(row.latest_version),
                    artifacts::labels.eq(row.labels.as_ref().map(JsonText::as_str)),
                    artifacts::created_at.eq(row.created_at.0),
                    artifacts::updated_at.eq(row.updated_at.0),
                ))
            )
        })?;
        Ok(())
    }

    fn put_artifact_latest(&mut self, row: &ArtifactRow) -> StoreResult<()> {
        let changed = self.write(|c| {
            change!(
                c,
                artifacts::table,
                artifacts::id.eq(&row.id),
                (
                    artifacts::latest_version.eq(row.latest_version),
                    artifacts::content_type.eq(&row.content_type),
                    artifacts::updated_at.eq(row.updated_at.0),
                )
            )
        })?;
        if changed == 0 {
            return Err(StoreError::Missing(format!("artifact {}", row.id)));
        }
        Ok(())
    }

    fn insert_artifact_version(&mut self, row: &ArtifactVersionRow) -> StoreResult<()> {
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(artifact_versions::table).values((
                    artifact_versions::artifact_id.eq(&row.artifact_id),
                    artifact_versions::version.eq(row.version),
                    artifact_versions::blob_key.eq(&row.blob_key),
                    artifact_versions::blob_size.eq(row.blob_size),
                    artifact_versions::size.eq(row.size),
                    artifact_versions::sha256.eq(&row.sha256),
                    artifact_versions::content_type.eq(&row.content_type),
                    artifact_versions::source.eq(row.source.as_str()),
                    artifact_versions::created_at.eq(row.created_at.0),
                ))
            )
        })?;
        Ok(())
    }

    fn insert_artifact_content(&mut self, row: &ArtifactContentRow) -> StoreResult<()> {
        self.write(|c| {
            prepared!(
                c,
                diesel::insert_into(artifact_content::table).values((
                    artifact_content::artifact_id.eq(&row.artifact_id),
                    artifact_content::version.eq(row.version),
                    artifact_content::sha256.eq(&row.sha256),
                    artifact_content::blob_key.eq(&row.blob_key),
                    artifact_content::size.eq(row.size),
                    artifact_content::crc32.eq(i64::from(row.crc32)),
                ))
            )
        })?;
        Ok(())
    }

    fn delete_artifact(&mut self, id: &str) -> StoreResult<()> {
        // Versions and contents go with it.
        self.write(|c| prepared!(c, diesel::delete(artifacts::table.filter(artifacts::id.eq(id)))))?;
        Ok(())
    }
}

impl Access<'_> {
    /// A session's artifacts go with it.
    pub(super) fn delete_artifacts_of_session(&mut self, id: &SessionId) -> StoreResult<()> {
        self.write(|c| {
            prepared!(c, diesel::delete(artifacts::table.filter(artifacts::session_id.eq(id.as_str()))))
        })?;
        Ok(())
    }

    /// Those of all sessions; the Tenant's own stay.
    pub(super) fn delete_artifacts_of_sessions(&mut self) -> StoreResult<()> {
        self.write(|c| {
            prepared!(c, diesel::delete(artifacts::table.filter(artifacts::session_id.is_not_null())))
        })?;
        Ok(())
    }
}
