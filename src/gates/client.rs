//! HTTP clients that are built beside the start-up: reading the system's certificates takes longer than everything else
//! that a start does.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use reqwest::Client;
use tokio::sync::oneshot;

/// A client that is being built by a thread of its own. Cheap to clone.
#[derive(Clone)]
pub struct BuiltClient(Shared<BoxFuture<'static, Result<Client, Arc<str>>>>);

impl BuiltClient {
    /// Starts to build. `what`: in words, for the log, when the system's TLS is unusable.
    pub fn new(what: &'static str, build: impl FnOnce() -> reqwest::Result<Client> + Send + 'static) -> Self {
        let (done, built) = oneshot::channel();
        let work = move || {
            let result = build().map_err(|error| {
                tracing::error!(%error, what, "no HTTP client: repair the system's TLS, then start again");
                Arc::from(error.to_string())
            });
            // Whoever wanted it may be gone.
            let _ = done.send(result);
        };
        let thread = std::thread::Builder::new().name("http-client".to_owned()).spawn(work);
        let gone = move |_| match &thread {
            Ok(_) => Arc::from("the client's thread died"),
            Err(error) => Arc::from(error.to_string()),
        };
        Self(async move { built.await.unwrap_or_else(|error| Err(gone(error))) }.boxed().shared())
    }

    /// The client, once it is built.
    ///
    /// # Errors
    /// In words: the system's TLS is unusable.
    pub async fn get(&self) -> Result<Client, Arc<str>> {
        self.0.clone().await
    }
}

impl std::fmt::Debug for BuiltClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BuiltClient").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_is_built_once_and_given_to_all() {
        let built = BuiltClient::new("a test", || Client::builder().build());
        let (first, second) = (built.get(), built.clone());
        assert!(first.await.is_ok() && second.get().await.is_ok());
    }

    #[tokio::test]
    async fn a_client_that_cannot_be_built_says_why_each_time() {
        let built = BuiltClient::new("a test", || Client::builder().user_agent("\n").build());
        let why = built.get().await.unwrap_err();
        assert_eq!(built.get().await.unwrap_err(), why);
        assert!(!why.is_empty());
    }
}
