//! Opening the Tenant behind listeners that are bound already (spec: durability, section 19).
//!
//! A cause of the Tenant's own quarantines it: the Host goes on, is not ready, and the operator's status names the
//! cause. A store that somebody else holds, or that may not be written, refuses to start. A store that may be
//! reachable a moment later is tried again, from 1 s apart to 30 s.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::agent::schema::Outputs;
use nylorun_actors::model::ids::{TenantId, WorkerId};
use nylorun_actors::ports::clock::{SystemClock, SystemEntropy};
use nylorun_actors::ports::store::{PrincipalRow, Reads, Store as _, StoreError, StoreHandle, StoreResult};
use nylorun_actors::ports::{ActionTransport, Blobs, Entropy as _};

use nylorun_actors::rules::models;
use nylorun_actors::tenant::{HarnessMode, Tenant, TenantConfig, TenantPorts};
use secrecy::{ExposeSecret, SecretString};

use super::home::{Home, LOCAL_KEY, key_hash};
use super::sandboxes::{FOLDER, Sandboxes};
use super::settings::Settings;
use super::studio::{STUDIO, studio_key};
use crate::api::Cause;
use crate::blobs::{FileBlobs, S3Blobs};
use crate::cli::fault::{Fault, exit};
use crate::engine::agent::projection::PromptHash;
use crate::engine::model::provider::{ProviderLimits, Providers};
use crate::engine::model::router::{ModelRouter, ProviderSource};
use crate::engine::run::{AgentEngine, EngineConfig, kit};
use crate::gates::HttpTransport;
use crate::harness_api::HarnessListener;
use crate::identity::SigningKeys;
use crate::store::{NewTenant, OpenError, OpenOptions, SqliteStore};
use crate::vault::{SealedProviders, Vault};

/// What stands once the Tenant is open.
pub struct Opened {
    /// The door to the tree.
    pub tenant: Tenant,
    /// Its model providers, with the vault that they are sealed with.
    pub models: Arc<SealedProviders>,
    /// Its signing keys.
    pub signing: Arc<SigningKeys>,
    /// The workspaces of its in-process harness.
    pub sandboxes: Option<Sandboxes>,
    /// Its store, to be closed last.
    pub store: Arc<SqliteStore>,
}

impl Opened {
    /// Stops the tree, then the harnesses' listener, the workspaces, and the store. What was running is resumed by the
    /// next start.
    pub async fn close(self, harnesses: Option<HarnessListener>) {
        self.tenant.stop().await;
        if let Some(harnesses) = harnesses {
            harnesses.stop().await;
        }
        if let Some(sandboxes) = self.sandboxes {
            sandboxes.close().await;
        }
        let store = self.store;
        // It waits for what is queued, which nothing on this thread may do.
        if let Err(error) = tokio::task::spawn_blocking(move || store.close()).await {
            tracing::error!(%error, "the store did not close");
        }
    }
}

/// Why the Tenant is not open.
pub enum OpenFailure {
    /// The process does not start.
    Refuse(Fault),
    /// The Host goes on without a Tenant.
    Quarantine(Cause),
    /// As quarantine, but it is tried again.
    Passing(Cause),
}

/// Opens the Tenant of a home.
#[derive(Clone)]
pub struct Opener {
    /// Settings of this process.
    pub settings: Settings,
    /// Its home.
    pub home: Home,
    /// The local application key and whether it was made just now.
    pub local_key: (SecretString, bool),
    /// The admin key, from which Studio's is derived.
    pub admin_key: SecretString,
}

impl Opener {
    /// One attempt, bounded by the setting `open-timeout-ms`.
    ///
    /// # Errors
    /// [`OpenFailure`].
    pub async fn open(&self) -> Result<Opened, OpenFailure> {
        let limit = Duration::from_millis(self.settings.open_timeout_ms);
        match tokio::time::timeout(limit, self.attempt()).await {
            Ok(result) => result,
            // Whatever the attempt still brings about is dropped, and closed by that.
            Err(_) => Err(OpenFailure::Quarantine(Cause {
                code: "open-timeout",
                message: format!("the Tenant did not open within {} ms", limit.as_millis()),
                repair: "look for a slow disk or a long migration, then start again; `open-timeout-ms` raises the bound"
                    .to_owned(),
            })),
        }
    }

    async fn attempt(&self) -> Result<Opened, OpenFailure> {
        let store = self.store().await?;
        let handle = store.handle();
        let vault = Arc::new(self.vault(&handle).await?);
        self.principals(store.tenant_id(), &handle).await.map_err(store_failure)?;
        let (signing, actions) = self.deliveries(&store, &vault);
        let models = SealedProviders::load(handle, vault).await.map_err(store_failure)?;
        let models = Arc::new(models);
        let sandboxes = self.sandboxes(&store).await?;
        let tenant = self.start(&store, &models, actions, sandboxes.as_ref()).await?;
        Ok(Opened { tenant, models, signing, sandboxes, store })
    }

    async fn store(&self) -> Result<Arc<SqliteStore>, OpenFailure> {
        let settings = self.settings.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let mut options =
                OpenOptions::new(&settings.database, Arc::new(SystemClock), Arc::new(SystemEntropy));
            options.tenant = NewTenant {
                id: settings.tenant_id.as_deref().map(TenantId::from),
                name: settings.tenant_name.clone(),
            };
            SqliteStore::open(options)
        })
        .await;
        match opened {
            Ok(Ok(store)) => Ok(store),
            Ok(Err(error)) => Err(open_failure(&error)),
            Err(error) => {
                Err(quarantine("open-failed", &error.to_string(), "start again; the log says more"))
            }
        }
    }

    /// The vault. Its key is made for a Tenant without sealed rows only: for others it would hide that it is lost.
    async fn vault(&self, store: &StoreHandle) -> Result<Vault, OpenFailure> {
        let path = self.home.path(crate::vault::KEK_FILE);
        let repair = format!("restore {} from the backup of this home, then start again", path.display());
        let missing = |why: String| quarantine("kek-missing", &why, &repair);
        if let Some(vault) = Vault::load(self.home.root()).map_err(|error| missing(error.to_string()))? {
            return Ok(vault);
        }
        let sealed = store
            .read(|reads: &mut dyn Reads| -> StoreResult<bool> {
                Ok(!models::providers(reads)?.is_empty() || !reads.signing_keys()?.is_empty())
            })
            .await
            .map_err(store_failure)?;
        if sealed {
            return Err(missing(format!(
                "the Tenant has sealed credentials or signing keys, and {} is missing",
                path.display()
            )));
        }
        Vault::load_or_create(self.home.root()).map_err(|error| missing(error.to_string()))
    }

    /// The Tenant's signing keys, and the way of its deliveries, which they sign.
    fn deliveries(
        &self,
        store: &Arc<SqliteStore>,
        vault: &Arc<Vault>,
    ) -> (Arc<SigningKeys>, Arc<dyn ActionTransport>) {
        let signing = Arc::new(SigningKeys::new(
            store.handle(),
            Arc::clone(vault),
            store.tenant_id().clone(),
            Arc::new(SystemClock),
            Arc::new(SystemEntropy),
        ));
        let transport = HttpTransport::new(self.settings.outbound, Arc::clone(&signing));
        (signing, Arc::new(transport))
    }

    /// The workspaces of this process. Runs that are executed elsewhere have theirs there.
    async fn sandboxes(&self, store: &Arc<SqliteStore>) -> Result<Option<Sandboxes>, OpenFailure> {
        if self.settings.harness == HarnessMode::Remote {
            return Ok(None);
        }
        let (root, tenant) = (self.home.path(FOLDER), store.tenant_id().clone());
        let (preference, docker) = (self.settings.sandbox, self.settings.docker.clone());
        let handle = store.handle();
        let opened =
            tokio::task::spawn_blocking(move || Sandboxes::open(root, tenant, preference, docker, handle))
                .await;
        opened
            .map(Some)
            .map_err(|error| quarantine("open-failed", &error.to_string(), "start again; the log says more"))
    }

    async fn start(
        &self,
        store: &Arc<SqliteStore>,
        models: &Arc<SealedProviders>,
        actions: Arc<dyn ActionTransport>,
        sandboxes: Option<&Sandboxes>,
    ) -> Result<Tenant, OpenFailure> {
        let providers = Providers::new(ProviderLimits::default());
        let router = ModelRouter::new(Arc::clone(models) as Arc<dyn ProviderSource>, providers);
        let mut config = EngineConfig::new(kit::routed(router));
        config.prompt_hash = match self.settings.harness {
            // Nothing of a run of this process crosses a wire, so a long prompt need not be hashed whole at each step.
            HarnessMode::InProcess => PromptHash::Chained,
            // Harnesses of others hash as the specification says, and a segment may go from one to the other.
            HarnessMode::Remote => PromptHash::Exact,
        };
        let engine = AgentEngine::new(config);
        let blobs = self.blobs(store.tenant_id()).await?;
        let ports = TenantPorts {
            store: store.handle(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            engine: Arc::new(engine),
            blobs,
            actions,
            schemas: Arc::new(Outputs),
            workspaces: sandboxes.map(Sandboxes::manager),
        };
        Tenant::start(tenant_config(&self.settings), ports).await.map_err(store_failure)
    }

    /// Where the bytes of artifacts are.
    async fn blobs(&self, tenant: &TenantId) -> Result<Arc<dyn Blobs>, OpenFailure> {
        let failed = |place: &str, why: &str, repair: &str| {
            OpenFailure::Passing(Cause {
                code: "open-failed",
                message: format!("the bytes of artifacts cannot be kept in {place}: {why}"),
                repair: format!("{repair}; it is tried again by itself"),
            })
        };
        if let Some(settings) = &self.settings.object_store {
            let opened = S3Blobs::open(settings, tenant.as_str()).await;
            let place = format!("the bucket {} at {}", settings.bucket, settings.endpoint);
            let repair = "make the bucket, or correct `object-store-…`";
            let opened = opened.map_err(|error| failed(&place, &error.to_string(), repair))?;
            return Ok(Arc::new(opened));
        }
        let root = self.home.root().to_owned();
        let place = root.display().to_string();
        let repair = "make the home writable for this user";
        match tokio::task::spawn_blocking(move || FileBlobs::open(&root)).await {
            Ok(Ok(opened)) => Ok(Arc::new(opened)),
            Ok(Err(error)) => Err(failed(&place, &error.to_string(), repair)),
            Err(error) => Err(failed(&place, &error.to_string(), repair)),
        }
    }

    /// The operator key of this home is known to the store, unless somebody has deleted or replaced it there; and
    /// Studio's is.
    async fn principals(&self, tenant: &TenantId, store: &StoreHandle) -> StoreResult<()> {
        let studio = key_hash(studio_key(&self.admin_key, tenant.as_str()).expose_secret());
        let (key, fresh) = &self.local_key;
        let (hash, fresh) = (key_hash(key.expose_secret()), *fresh);
        let known = store
            .tx(move |tx| -> StoreResult<bool> {
                let created_at = tx.now();
                let principals = tx.principals()?;
                if !principals.iter().any(|row| row.id == STUDIO) {
                    tx.put_principal(&PrincipalRow {
                        id: STUDIO.to_owned(),
                        role: STUDIO.to_owned(),
                        token_hash: studio,
                        created_at,
                    })?;
                }
                let stored = principals.into_iter().find(|row| row.id == LOCAL_KEY);
                let registered = tx.setting(REGISTERED)?.as_deref() == Some(hash.as_str());
                match stored {
                    Some(row) if row.token_hash == hash => return Ok(true),
                    Some(_) if !fresh => return Ok(false),
                    None if registered => return Ok(false),
                    _ => {}
                }
                tx.put_principal(&PrincipalRow {
                    id: LOCAL_KEY.to_owned(),
                    role: "application".to_owned(),
                    token_hash: hash.clone(),
                    created_at,
                })?;
                tx.put_setting(REGISTERED, &hash)?;
                Ok(true)
            })
            .await?;
        if !known {
            tracing::warn!(
                "the key of credentials.json was deleted or replaced; `nylorun keys put {LOCAL_KEY}` makes a new one"
            );
        }
        Ok(())
    }
}

/// Setting: hash of the key that this home has registered, so that a deleted key stays deleted.
const REGISTERED: &str = "host.local-key";

/// The configuration of the tree from the settings.
#[must_use]
pub fn tenant_config(settings: &Settings) -> TenantConfig {
    let mut config = TenantConfig::new(worker_id());
    let set = |target: &mut i64, value: Option<i64>| *target = value.unwrap_or(*target);
    set(&mut config.owner_lease_ms, settings.owner_lease_ms);
    set(&mut config.advance_deadline_ms, settings.advance_deadline_ms);
    set(&mut config.abort_grace_ms, settings.abort_grace_ms);
    if settings.rollover_steps.is_some() {
        config.rollover.steps = settings.rollover_steps.and_then(|n| n.try_into().ok());
    }
    config.rollover.ms = settings.rollover_ms.or(config.rollover.ms);
    config.workspace_max_age_ms = settings.sandbox_retention_ms;
    config.sweep_interval_ms = settings.sweep_interval_ms.unwrap_or(config.sweep_interval_ms);
    config.action_hold_ms = settings.action_hold_ms.unwrap_or(config.action_hold_ms);
    set(&mut config.action_lease_ms, settings.action_lease_ms);
    set(&mut config.delivery_max_age_ms, settings.delivery_max_age_ms);
    config.idle_after_ms = settings.idle_after_ms.unwrap_or(config.idle_after_ms);
    if let Some(arbiters) = settings.arbiters.and_then(|n| usize::try_from(n).ok()) {
        config.arbiters = arbiters;
    }
    config.model_on_crash = settings.model_on_crash;
    config.harness = settings.harness;
    config
}

/// `worker-<hostname>-<pid>-<8 hex>`.
fn worker_id() -> WorkerId {
    let name = nix::sys::utsname::uname()
        .ok()
        .and_then(|system| system.nodename().to_str().map(str::to_owned))
        .unwrap_or_else(|| "host".to_owned());
    let random = SystemEntropy.bits() & 0xffff_ffff;
    WorkerId::from(format!("worker-{name}-{}-{random:08x}", std::process::id()))
}

fn quarantine(code: &'static str, message: &str, repair: &str) -> OpenFailure {
    OpenFailure::Quarantine(Cause { code, message: message.to_owned(), repair: repair.to_owned() })
}

fn open_failure(error: &OpenError) -> OpenFailure {
    let message = error.to_string();
    let refuse = |code: &str, fix: String| {
        OpenFailure::Refuse(Fault::new(exit::FAILED, code, message.clone()).fix(fix))
    };
    let restore = "move the file away and restore it from a backup, then start again";
    match error {
        OpenError::InUse { pid, .. } => refuse(
            "database-in-use",
            pid.map_or_else(
                || "stop the process that uses it first, or choose another --database-url".to_owned(),
                |pid| format!("stop process {pid} first, or choose another --database-url"),
            ),
        ),
        OpenError::ReadOnly { .. } => refuse(
            "database-read-only",
            "make the file and its directory writable for this user, or choose another --database-url"
                .to_owned(),
        ),
        OpenError::Corrupt { .. } | OpenError::NotADatabase { .. } => {
            quarantine("corrupt", &message, restore)
        }
        OpenError::SchemaTooNew { .. } => quarantine(
            "schema-too-new",
            &message,
            "start the newer nylorun that wrote it, or restore a backup",
        ),
        OpenError::MigrationFailed(_) => quarantine(
            "migration-failed",
            &message,
            "nothing was changed; start the nylorun that wrote it and report this",
        ),
        OpenError::Full { .. } | OpenError::Io { .. } => OpenFailure::Passing(Cause {
            code: "open-failed",
            message: message.clone(),
            repair: "make room or repair the disk; it is tried again by itself".to_owned(),
        }),
    }
}

fn store_failure(error: StoreError) -> OpenFailure {
    let message = error.to_string();
    match error {
        StoreError::Corrupt(_) => {
            quarantine("corrupt", &message, "restore the database from a backup, then start again")
        }
        _ => OpenFailure::Passing(Cause {
            code: "open-failed",
            message,
            repair: "make room or repair the disk; it is tried again by itself".to_owned(),
        }),
    }
}
