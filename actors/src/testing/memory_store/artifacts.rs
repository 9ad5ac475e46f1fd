//! Artifacts in memory.

use std::collections::BTreeMap;

use super::tx::MemoryTx;
use crate::model::artifact::ArtifactKind;
use crate::model::ids::SessionId;
use crate::ports::store::{
    ArtifactContentRow, ArtifactFilter, ArtifactReads, ArtifactRow, ArtifactTx, ArtifactVersionRow, Page,
    StoreError, StoreResult,
};

impl ArtifactReads for MemoryTx<'_> {
    fn artifact(&mut self, id: &str) -> StoreResult<Option<ArtifactRow>> {
        Ok(self.tables().artifacts.get(id).cloned())
    }

    fn artifacts(&mut self, filter: &ArtifactFilter, page: &Page) -> StoreResult<Vec<ArtifactRow>> {
        let tables = self.tables();
        let of_person = |row: &ArtifactRow| {
            let Some((person, agents)) = &filter.person else { return true };
            row.session_id.as_ref().and_then(|id| tables.sessions.get(id)).is_some_and(|session| {
                session.head.owner_user_id == *person
                    && agents.as_ref().is_none_or(|agents| agents.contains(&session.head.agent_id))
            })
        };
        let rows = tables.artifacts.values().filter(|row| {
            page.after.as_ref().is_none_or(|after| row.id > *after)
                && filter.session.as_ref().is_none_or(|id| row.session_id.as_ref() == Some(id))
                && of_person(row)
        });
        Ok(rows.take(page.limit.unwrap_or(usize::MAX)).cloned().collect())
    }

    fn last_artifact_id(&mut self) -> StoreResult<Option<String>> {
        Ok(self.tables().artifacts.keys().next_back().cloned())
    }

    fn session_folder(&mut self, session: &SessionId, name: &str) -> StoreResult<Option<ArtifactRow>> {
        let found = self.tables().artifacts.values().find(|row| {
            row.kind == ArtifactKind::Folder && row.name == name && row.session_id.as_ref() == Some(session)
        });
        Ok(found.cloned())
    }

    fn artifact_version(&mut self, id: &str, version: i64) -> StoreResult<Option<ArtifactVersionRow>> {
        Ok(self.tables().artifact_versions.get(&(id.to_owned(), version)).cloned())
    }

    fn artifact_versions(&mut self, id: &str) -> StoreResult<Vec<ArtifactVersionRow>> {
        Ok(self.tables().artifact_versions.values().filter(|row| row.artifact_id == id).cloned().collect())
    }

    fn artifact_content(
        &mut self,
        id: &str,
        version: i64,
        sha256: &str,
    ) -> StoreResult<Option<ArtifactContentRow>> {
        let key = (id.to_owned(), version, sha256.to_owned());
        Ok(self.tables().artifact_content.get(&key).cloned())
    }

    fn artifact_contents(&mut self, id: &str, version: i64) -> StoreResult<Vec<ArtifactContentRow>> {
        let rows = self.tables().artifact_content.values();
        Ok(rows.filter(|row| row.artifact_id == id && row.version == version).cloned().collect())
    }

    fn content_of_hash(&mut self, sha256: &str) -> StoreResult<Option<ArtifactContentRow>> {
        Ok(self.tables().artifact_content.values().find(|row| row.sha256 == sha256).cloned())
    }

    fn contents_of_one(&mut self, id: &str) -> StoreResult<Vec<ArtifactContentRow>> {
        let rows = &self.tables().artifact_content;
        let mut own: BTreeMap<&str, &ArtifactContentRow> = BTreeMap::new();
        for row in rows.values().filter(|row| row.artifact_id == id) {
            own.entry(&row.sha256).or_insert(row);
        }
        own.retain(|hash, _| !rows.values().any(|row| row.artifact_id != id && row.sha256 == *hash));
        Ok(own.into_values().cloned().collect())
    }

    fn artifact_bytes(&mut self) -> StoreResult<i64> {
        let tables = self.tables();
        let contents: BTreeMap<&str, i64> =
            tables.artifact_content.values().map(|row| (row.sha256.as_str(), row.size)).collect();
        let versions = tables.artifact_versions.values().map(|row| row.blob_size);
        Ok(versions.chain(contents.into_values()).sum())
    }

    fn unnamed_blobs(&mut self, keys: &[String]) -> StoreResult<Vec<String>> {
        let tables = self.tables();
        let named = |key: &String| {
            tables.artifact_versions.values().any(|row| row.blob_key == *key)
                || tables.artifact_content.values().any(|row| row.blob_key == *key)
        };
        Ok(keys.iter().filter(|key| !named(key)).cloned().collect())
    }
}

impl ArtifactTx for MemoryTx<'_> {
    fn insert_artifact(&mut self, row: &ArtifactRow) -> StoreResult<()> {
        self.insert(|t| &mut t.artifacts, row.id.clone(), row.clone())
    }

    fn put_artifact_latest(&mut self, row: &ArtifactRow) -> StoreResult<()> {
        let Some(stored) = self.tables().artifacts.get(&row.id).cloned() else {
            return Err(StoreError::Missing(format!("artifact {}", row.id)));
        };
        let changed = ArtifactRow {
            latest_version: row.latest_version,
            content_type: row.content_type.clone(),
            updated_at: row.updated_at,
            ..stored
        };
        self.set(|t| &mut t.artifacts, row.id.clone(), Some(changed));
        Ok(())
    }

    fn insert_artifact_version(&mut self, row: &ArtifactVersionRow) -> StoreResult<()> {
        let key = (row.artifact_id.clone(), row.version);
        self.insert(|t| &mut t.artifact_versions, key, row.clone())
    }

    fn insert_artifact_content(&mut self, row: &ArtifactContentRow) -> StoreResult<()> {
        let key = (row.artifact_id.clone(), row.version, row.sha256.clone());
        self.insert(|t| &mut t.artifact_content, key, row.clone())
    }

    fn delete_artifact(&mut self, id: &str) -> StoreResult<()> {
        if self.tables().artifacts.contains_key(id) {
            self.set(|t| &mut t.artifacts, id.to_owned(), None);
            self.remove_where(|t| &mut t.artifact_versions, |(of, _), _| of == id);
            self.remove_where(|t| &mut t.artifact_content, |(of, _, _), _| of == id);
        }
        Ok(())
    }
}

impl MemoryTx<'_> {
    /// Those of one session, or with `None` of all sessions.
    pub(super) fn delete_artifacts_of(&mut self, session: Option<&SessionId>) -> StoreResult<()> {
        let rows = self.tables().artifacts.values();
        let of = rows.filter(|row| match (session, &row.session_id) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(wanted), Some(id)) => wanted == id,
        });
        for id in of.map(|row| row.id.clone()).collect::<Vec<_>>() {
            self.delete_artifact(&id)?;
        }
        Ok(())
    }
}
