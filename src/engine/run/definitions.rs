//! Manifests that were read, checked and hashed before: doing it for every run would cost more than a step.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nylorun_actors::model::Json;

use crate::engine::agent::definition::Definition;

/// Definitions kept at most. When they are that many, all are dropped: a process rarely serves more manifests.
pub(crate) const MOST: usize = 1024;

/// Definitions by the hash that was computed for them here.
#[derive(Debug, Default)]
pub(super) struct Definitions(Mutex<HashMap<String, Arc<Definition>>>);

impl Definitions {
    /// The definition of a manifest that a checkpoint names by `hash`. The document is compared with the one that was
    /// hashed, so a wrong name finds nothing.
    pub(super) fn get(
        &self,
        hash: &str,
        manifest: &Arc<Json>,
        read: impl FnOnce() -> Result<Definition, String>,
    ) -> Result<Arc<Definition>, String> {
        let known = self.lock().get(hash).cloned();
        if let Some(known) = known
            && (Arc::ptr_eq(&known.manifest, manifest) || known.manifest == *manifest)
        {
            return Ok(known);
        }
        let definition = Arc::new(read()?);
        let mut all = self.lock();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(definition.hash.clone(), Arc::clone(&definition));
        Ok(definition)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Definition>>> {
        // A map insert does not stop half way; a poisoned lock holds a whole value.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
