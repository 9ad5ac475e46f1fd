//! Where the Tenant stands, seen from the listeners: they are bound before it opens and outlive it
//! (spec: http-api, sections 1.1, 1.2 step 10 and 17).

use std::sync::{Arc, PoisonError, RwLock};

use nylorun_actors::tenant::Tenant;
use tokio::sync::watch;

use super::key_cache::KeyCache;
use crate::identity::SigningKeys;
use crate::vault::SealedProviders;

/// Why the Tenant is not open, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// One of [`CAUSES`].
    pub code: &'static str,
    /// What happened.
    pub message: String,
    /// What to do.
    pub repair: String,
}

/// The codes of a [`Cause`].
pub const CAUSES: [&str; 8] = [
    "kek-missing",
    "corrupt",
    "schema-too-new",
    "migration-failed",
    "envelope-invalid",
    "open-timeout",
    "open-failed",
    "database-layout-old",
];

/// An open Tenant with what only the listeners need of it.
pub struct OpenTenant {
    /// The door to the tree.
    pub tenant: Tenant,
    /// Its model providers and the vault that they are sealed with.
    pub models: Arc<SealedProviders>,
    /// Its signing keys.
    pub signing: Arc<SigningKeys>,
    pub(super) keys: KeyCache,
}

impl OpenTenant {
    /// Forgets which keys are known. To be called after every change of principals that was not made through the API.
    pub fn forget_keys(&self) {
        self.keys.invalidate();
    }
}

/// Where the Tenant stands.
#[derive(Clone)]
pub enum TenantState {
    /// It is being opened.
    Opening,
    /// It serves.
    Open(Arc<OpenTenant>),
    /// It could not be opened.
    Failed(Arc<Cause>),
    /// The Host stops.
    Closing,
}

/// The place that holds the Tenant. The host swaps its content; requests read it.
pub struct TenantSlot {
    state: RwLock<TenantState>,
    closing: watch::Sender<bool>,
}

impl Default for TenantSlot {
    fn default() -> Self {
        Self { state: RwLock::new(TenantState::Opening), closing: watch::Sender::new(false) }
    }
}

impl TenantSlot {
    /// Where the Tenant stands now.
    #[must_use]
    pub fn state(&self) -> TenantState {
        // Nothing panics while the lock is held, and a poisoned value would still be whole.
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The Tenant, when it is open.
    #[must_use]
    pub fn open_tenant(&self) -> Option<Arc<OpenTenant>> {
        match self.state() {
            TenantState::Open(open) => Some(open),
            _ => None,
        }
    }

    /// The Tenant serves from now on.
    pub fn open(
        &self,
        tenant: Tenant,
        models: Arc<SealedProviders>,
        signing: Arc<SigningKeys>,
    ) -> Arc<OpenTenant> {
        let keys = KeyCache::new(tenant.store().store().is_exclusive());
        let open = Arc::new(OpenTenant { tenant, models, signing, keys });
        self.set(TenantState::Open(Arc::clone(&open)));
        open
    }

    /// It could not be opened.
    pub fn fail(&self, cause: Cause) {
        self.set(TenantState::Failed(Arc::new(cause)));
    }

    /// The Host stops: new requests find no Tenant and every open stream ends.
    pub fn close(&self) {
        self.set(TenantState::Closing);
        self.closing.send_replace(true);
    }

    /// Turns `true` when streams must end.
    #[must_use]
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    fn set(&self, state: TenantState) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
    }
}
