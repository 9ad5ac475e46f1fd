//! Definitions: registered by id, always replaced, pinned by sessions (spec: http-api, section 5).

use crate::model::ids::AgentId;
use crate::model::json::JsonText;
use crate::ports::store::{DefinitionRow, Page, Reads, StoreError, StoreResult, Tx};

/// Stores a definition and its manifest.
///
/// # Errors
/// The store's.
pub fn put(tx: &mut dyn Tx, row: &DefinitionRow, manifest: &JsonText) -> StoreResult<()> {
    tx.put_manifest(&row.manifest_hash, manifest)?;
    tx.put_definition(row)
}

/// A definition with its manifest's text.
///
/// # Errors
/// The store's; [`StoreError::Corrupt`] when the manifest is missing.
pub fn get(reads: &mut dyn Reads, id: &AgentId) -> StoreResult<Option<(DefinitionRow, JsonText)>> {
    let Some(row) = reads.definition(id)? else { return Ok(None) };
    let manifest = manifest(reads, &row.manifest_hash)?;
    Ok(Some((row, manifest)))
}

/// A page of definitions with their manifests.
///
/// # Errors
/// As [`get`].
pub fn list(reads: &mut dyn Reads, page: &Page) -> StoreResult<Vec<(DefinitionRow, JsonText)>> {
    let rows = reads.definitions(page)?;
    rows.into_iter()
        .map(|row| {
            let text = manifest(reads, &row.manifest_hash)?;
            Ok((row, text))
        })
        .collect()
}

/// The text of a manifest that some row names.
///
/// # Errors
/// [`StoreError::Corrupt`] when it is missing.
pub fn manifest(reads: &mut dyn Reads, hash: &str) -> StoreResult<JsonText> {
    reads.manifest(hash)?.ok_or_else(|| StoreError::Corrupt(format!("manifest {hash} is missing")))
}
