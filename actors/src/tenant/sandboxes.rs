//! The door to sandboxes: resources, and the Tenant's configuration of them (spec: sandbox, sections 5 to 7; http-api,
//! sections 11 and 15.4).

use std::sync::Arc;
use std::time::Duration;

use super::{Reach, Tenant};
use crate::limits::SANDBOX_REMOVAL_MS;
use crate::model::json::{Json, JsonMap, JsonText};
use crate::model::sandbox::SandboxConfig;
use crate::ports::store::{Page, Reads};
use crate::rules::sandboxes::PutSandbox;
use crate::rules::{Refusal, sandboxes, settings};
use crate::workspaces;

impl Tenant {
    /// Makes a sandbox or finds it again; answers its view.
    ///
    /// # Errors
    /// As [`sandboxes::put`].
    pub async fn put_sandbox(&self, put: PutSandbox, reach: &Reach) -> Result<Json, Refusal> {
        let reach = reach.clone();
        self.store().tx(move |tx| sandboxes::put(tx, &put, &reach)).await
    }

    /// A sandbox's view.
    ///
    /// # Errors
    /// 404, also when it is out of reach.
    pub async fn sandbox(&self, id: &str, reach: &Reach) -> Result<Json, Refusal> {
        let (id, reach) = (id.to_owned(), reach.clone());
        self.store().read(move |reads| sandboxes::get(reads, &id, &reach)).await
    }

    /// Ids and views of the sandboxes within reach that have all these labels, by id.
    ///
    /// # Errors
    /// The store's.
    pub async fn sandboxes(
        &self,
        labels: Vec<(String, String)>,
        reach: &Reach,
        page: Page,
    ) -> Result<Vec<(String, Json)>, Refusal> {
        let reach = reach.clone();
        let list = move |reads: &mut dyn Reads| sandboxes::list(reads, &labels, &reach, &page);
        Ok(self.store().read(list).await?)
    }

    /// Events of a sandbox from `from` on, as JSON text.
    ///
    /// # Errors
    /// 404 when it is out of reach.
    pub async fn sandbox_events(
        &self,
        id: &str,
        from: i64,
        limit: usize,
        reach: &Reach,
    ) -> Result<Vec<Arc<str>>, Refusal> {
        let (id, reach) = (id.to_owned(), reach.clone());
        self.store().read(move |reads| sandboxes::events(reads, &id, from, limit, &reach)).await
    }

    /// Deletes a sandbox; whether it was there. Its files are removed after what runs in them: this is waited for a
    /// moment, and goes on by itself.
    ///
    /// # Errors
    /// As [`sandboxes::delete`].
    pub async fn delete_sandbox(&self, id: &str, reach: &Reach) -> Result<bool, Refusal> {
        let (of, reach) = (id.to_owned(), reach.clone());
        let deleted = self.store().tx(move |tx| sandboxes::delete(tx, &of, &reach)).await?;
        if deleted {
            let (tree, id) = (Arc::clone(&self.tree), id.to_owned());
            let removal = tokio::spawn(async move {
                if let Err(error) = workspaces::remove_sandbox(&tree, &id).await {
                    tracing::warn!(sandbox = id, %error, "the files of a deleted sandbox are still there");
                }
            });
            // Dropping the handle does not stop it.
            let _ = tokio::time::timeout(Duration::from_millis(SANDBOX_REMOVAL_MS), removal).await;
        }
        Ok(deleted)
    }

    /// Stops or resets a sandbox.
    ///
    /// # Errors
    /// As [`sandboxes::stop_or_reset`].
    pub async fn stop_or_reset_sandbox(&self, id: &str, reach: &Reach) -> Result<Json, Refusal> {
        let (id, reach) = (id.to_owned(), reach.clone());
        self.store().read(move |reads| sandboxes::stop_or_reset(reads, &id, &reach)).await
    }

    /// The report on workspaces with the configuration of sandboxes, every default in force.
    ///
    /// # Errors
    /// The store's.
    pub async fn sandbox_settings(&self) -> Result<Json, Refusal> {
        let config = self.store().read(settings::sandbox_config).await?;
        Ok(self.with_report(&config).await)
    }

    /// Replaces the configuration of sandboxes by `stored`, whose shape was checked.
    ///
    /// # Errors
    /// 400 with every contradiction.
    pub async fn put_sandbox_settings(&self, stored: JsonMap, actor: String) -> Result<Json, Refusal> {
        let stored = Json::Object(stored);
        let config = settings::checked_sandbox_config(&stored)?;
        let text = JsonText::of(&stored);
        let put = self.store().tx(move |tx| -> Result<(), Refusal> {
            tx.put_setting(settings::SANDBOX_CONFIG, text.as_str())?;
            Ok(settings::audit(tx, &actor, "sandbox.config.put", None)?)
        });
        put.await?;
        Ok(self.with_report(&config).await)
    }

    async fn with_report(&self, config: &SandboxConfig) -> Json {
        let report = self.workspaces().report().await;
        let mut view = serde_json::to_value(report).unwrap_or_default();
        view["config"] = config.view();
        // Of a Runtime without sandbox pods.
        view["cluster"] = Json::Null;
        view
    }
}
