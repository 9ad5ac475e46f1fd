//! How large artifacts may be: the Tenant's limits, what is used, and the room that is left.

use serde_json::json;

use crate::limits::{ARTIFACT_FILE_BYTES, ARTIFACT_TOTAL_BYTES};
use crate::model::json::{Json, JsonMap, JsonText};
use crate::ports::store::{Reads, StoreError, StoreResult, Tx};
use crate::rules::{Refusal, settings};

/// Setting: JSON text of the limits that were set.
const LIMITS: &str = "artifacts.limits";

/// How large artifacts may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArtifactLimits {
    /// Bytes of one file.
    pub file_bytes: i64,
    /// Bytes of all of them.
    pub total_bytes: i64,
}

impl Default for ArtifactLimits {
    fn default() -> Self {
        Self { file_bytes: ARTIFACT_FILE_BYTES, total_bytes: ARTIFACT_TOTAL_BYTES }
    }
}

/// What may be stored, and what is.
///
/// # Errors
/// The store's.
pub fn limits(reads: &mut dyn Reads) -> StoreResult<ArtifactLimits> {
    let mut limits = ArtifactLimits::default();
    if let Some(text) = reads.setting(LIMITS)? {
        let corrupt = |e: serde_json::Error| StoreError::Corrupt(format!("the limits of artifacts: {e}"));
        let set: Json = JsonText::from_trusted(text).decode().map_err(corrupt)?;
        limits.file_bytes = set["fileBytes"].as_i64().unwrap_or(limits.file_bytes);
        limits.total_bytes = set["totalBytes"].as_i64().unwrap_or(limits.total_bytes);
    }
    Ok(limits)
}

/// Replaces the limits: `{fileBytes?, totalBytes?}`, what is absent is the default.
///
/// # Errors
/// The store's.
pub fn put_limits(tx: &mut dyn Tx, limits: &JsonMap, actor: &str) -> StoreResult<Json> {
    tx.put_setting(LIMITS, JsonText::of(limits).as_str())?;
    settings::audit(tx, actor, "artifacts.limits.put", None)?;
    settings_view(tx)
}

/// `GET /v1/tenant/artifacts`.
///
/// # Errors
/// The store's.
pub fn settings_view(reads: &mut dyn Reads) -> StoreResult<Json> {
    let limits = limits(reads)?;
    let used = reads.artifact_bytes()?;
    let limits = json!({"fileBytes": limits.file_bytes, "totalBytes": limits.total_bytes});
    Ok(json!({"limits": limits, "usedBytes": used}))
}

/// The refusal of bytes past a limit.
#[must_use]
pub fn too_large(limit: i64, what: &str) -> Refusal {
    Refusal::TooLarge { message: format!("{what} may have at most {limit} bytes"), limit }
}

/// What a limit of one file says.
pub const ONE_FILE: &str = "One artifact";
/// What the limit of the Tenant says.
pub const ALL_FILES: &str = "All artifacts together";

/// What an upload may write, before it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The limits.
    pub limits: ArtifactLimits,
    /// What is used.
    pub used: i64,
}

impl Room {
    /// Whether a file of so many bytes fits.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`] with the limit that it passes.
    pub fn fits(&self, bytes: i64) -> Result<(), Refusal> {
        if bytes > self.limits.file_bytes {
            return Err(too_large(self.limits.file_bytes, ONE_FILE));
        }
        if bytes > self.limits.total_bytes.saturating_sub(self.used) {
            return Err(too_large(self.limits.total_bytes, ALL_FILES));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_must_fit_its_own_limit_and_the_rest_of_the_total() {
        let room = Room { limits: ArtifactLimits { file_bytes: 10, total_bytes: 15 }, used: 8 };
        let limit = |bytes| match room.fits(bytes) {
            Ok(()) => None,
            Err(Refusal::TooLarge { limit, .. }) => Some(limit),
            Err(other) => panic!("{other}"),
        };
        assert_eq!((limit(7), limit(8), limit(11)), (None, Some(15), Some(10)));
        let full = Room { used: 20, ..room };
        assert!(full.fits(1).is_err() && full.fits(0).is_err());
    }
}
