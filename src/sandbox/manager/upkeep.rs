//! What is idle, what nobody knows, what shall go.

use std::sync::Arc;
use std::time::Duration;

use nylorun_actors::model::workspace::{Removal, WorkspaceRecord, WorkspaceState, key_prefix, sandbox_key};
use nylorun_actors::ports::engine::{ApiCode, ApiError};
use nylorun_actors::ports::workspaces::Claims;

use super::live::Live;
use super::{Manager, internal};

impl Manager {
    /// Takes over what another record says of workspaces whose files are here and that the own record does not name: it
    /// may have been lost, and a folder without a record is removed.
    pub async fn adopt(&self, known: Vec<WorkspaceRecord>) {
        let here = self.0.folders.list(&key_prefix(&self.0.tenant)).await;
        for mut record in known {
            if here.contains(&record.key) && self.0.records.get(&record.key).is_none() {
                record.state = WorkspaceState::Stopped;
                self.0.records.put(record);
            }
        }
    }

    pub(super) async fn sweep(
        self,
        now: Option<f64>,
        claims: Arc<dyn Claims>,
    ) -> Result<Vec<WorkspaceRecord>, ApiError> {
        // The caller's clock may be ahead of this one; how much is added to every idle time.
        let ahead = now.map_or(0.0, |now| now - self.0.clock.now().0 as f64 / 1_000.0).max(0.0);
        let ahead = Duration::from_secs_f64((ahead / 1_000.0).min(86_400.0 * 365.0));
        for (key, live) in self.all_live() {
            let idle = |live: &Live| {
                let state = live.state();
                state.open && state.active == 0 && state.used.elapsed() + ahead >= live.idle
            };
            if idle(&live) {
                let _turn = live.queue.lock().await;
                // A call may have come before this one.
                if idle(&live) {
                    self.stop(&key, &live, Some(&claims)).await;
                }
            }
            if !live.state().open {
                self.forget(&key, &live);
            }
        }
        for mut record in self.0.records.list() {
            let open = self.all_live().iter().any(|(key, live)| {
                *key == record.key && {
                    let state = live.state();
                    state.open || state.active > 0
                }
            });
            if !open && record.state != WorkspaceState::Stopped {
                record.state = WorkspaceState::Stopped;
                record.updated_at = self.now();
                self.0.records.put(record);
            }
        }
        self.0.reconciled.get_or_init(|| self.reconcile()).await;
        let prefix = key_prefix(&self.0.tenant);
        Ok(self.0.records.list().into_iter().filter(|record| record.key.starts_with(&prefix)).collect())
    }

    /// Removes folders of this Tenant that no record names: nobody knows whose they are.
    pub(super) async fn reconcile(&self) {
        for key in self.0.folders.list(&key_prefix(&self.0.tenant)).await {
            let unknown =
                self.0.records.get(&key).is_none() && !self.all_live().iter().any(|(live, _)| *live == key);
            if unknown && let Err(error) = self.0.folders.remove(&key).await {
                tracing::warn!(key, %error, "a workspace without a record cannot be removed");
            }
        }
    }

    pub(super) async fn remove(self, what: Removal) -> Result<(), ApiError> {
        let prefix = key_prefix(&self.0.tenant);
        let mut keys: Vec<String> = what.keys.unwrap_or_default();
        keys.extend(what.sandbox_ids.iter().flatten().map(|id| sandbox_key(&self.0.tenant, id)));
        if what.all {
            keys.extend(self.0.folders.list(&prefix).await);
            keys.extend(self.0.records.list().into_iter().map(|record| record.key));
        }
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            if !key.starts_with(&prefix) {
                return Err(ApiError::new(ApiCode::Invalid, "a key is none of this Tenant's"));
            }
            let live = self.all_live().into_iter().find(|(of, _)| *of == key).map(|(_, live)| live);
            let _turn = match &live {
                Some(live) => Some(live.queue.lock().await),
                None => None,
            };
            if let Some(live) = &live {
                live.state().open = false;
            }
            self.let_go(&key).await.map_err(internal)?;
            self.0.folders.remove(&key).await.map_err(|error| internal(error.to_string()))?;
            self.0.records.delete(&key);
        }
        Ok(())
    }
}
