//! Writes that are offered to the store until it takes them.

use std::time::Duration;

use crate::ports::store::{StoreError, StoreHandle, Tx};
use crate::rules::RunRefusal;

/// An error of a transaction that may be the store's.
pub(crate) trait MaybeStore {
    /// The store's error, if it is one.
    fn store_error(&self) -> Option<&StoreError>;
}

impl MaybeStore for StoreError {
    fn store_error(&self) -> Option<&StoreError> {
        Some(self)
    }
}

impl MaybeStore for RunRefusal {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

/// Runs a transaction; a refusal of the store that may pass is tried again for as long as `patience` (ms) says, for ever
/// without one.
pub(crate) async fn persist<T, E, F>(store: &StoreHandle, patience: Option<u64>, run: F) -> Result<T, E>
where
    F: Fn(&mut dyn Tx) -> Result<T, E> + Send + Sync + Clone + 'static,
    T: Send + 'static,
    E: MaybeStore + From<StoreError> + Send + 'static,
{
    let (mut waited, mut delay) = (0, 25);
    loop {
        let attempt = run.clone();
        let result = store.tx(move |tx| attempt(tx)).await;
        let Err(error) = &result else { return result };
        let passes = error.store_error().is_some_and(|e| e.is_passing() || *e == StoreError::Full);
        if !passes || patience.is_some_and(|limit| waited >= limit) {
            return result;
        }
        if let Some(error) = error.store_error() {
            tracing::warn!(%error, retry_in_ms = delay, "the store refused a write; trying again");
        }
        tokio::time::sleep(Duration::from_millis(delay)).await;
        waited += delay;
        delay = (delay * 2).min(2_000);
    }
}
