//! The Tenant's public keys: cached by kid, fetched again at most every five seconds, one fetch in flight
//! (spec: engine, section 10.4; http-api, section 14).

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use josekit::jwk::Jwk;
use josekit::jws::ES256;
use josekit::jws::alg::ecdsa::EcdsaJwsVerifier;
use nylorun_actors::model::json::{Json, parse};

use crate::cli::client::PROTOCOL;

/// The shortest pause between two fetches.
pub const REFETCH: Duration = Duration::from_secs(5);
/// Age from which a set is fetched again although it has the key, so that a revoked key does not count for ever.
pub const STALE: Duration = Duration::from_secs(300);
/// How long one fetch may take.
const FETCH: Duration = Duration::from_secs(10);

/// Verifies with one key.
pub type Key = Arc<EcdsaJwsVerifier>;

/// The keys, wherever they come from.
pub struct Keys {
    url: String,
    http: reqwest::Client,
    known: RwLock<Known>,
    /// Held while a fetch is in flight: who needs a key meanwhile waits for that one.
    fetching: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Known {
    keys: HashMap<String, Key>,
    at: Option<Instant>,
}

impl Keys {
    /// Keys of the Runtime at this base URL. Nothing is fetched before the first token.
    #[must_use]
    pub fn of(runtime: &str, http: reqwest::Client) -> Self {
        Self {
            url: format!("{}/v1/access/jwks", runtime.trim_end_matches('/')),
            http,
            known: RwLock::default(),
            fetching: tokio::sync::Mutex::default(),
        }
    }

    /// The key of this id; `None` when the Tenant does not publish it, or cannot be asked.
    pub async fn get(&self, kid: &str) -> Option<Key> {
        if let (Some(key), true) = self.look(kid) {
            return Some(key);
        }
        let mut last = self.fetching.lock().await;
        let (known, fresh) = self.look(kid);
        let early = last.is_some_and(|at| at.elapsed() < REFETCH);
        if early || (known.is_some() && fresh) {
            return known;
        }
        *last = Some(Instant::now());
        if let Some(keys) = self.fetch().await {
            let mut all = self.known.write().unwrap_or_else(PoisonError::into_inner);
            *all = Known { keys, at: Some(Instant::now()) };
        }
        // A Runtime that is away for a moment does not make its old keys bad.
        self.look(kid).0
    }

    /// A key that is known, and whether its set is young enough.
    fn look(&self, kid: &str) -> (Option<Key>, bool) {
        let all = self.known.read().unwrap_or_else(PoisonError::into_inner);
        (all.keys.get(kid).cloned(), all.at.is_some_and(|at| at.elapsed() < STALE))
    }

    async fn fetch(&self) -> Option<HashMap<String, Key>> {
        // No credential, but the version of the protocol, as with every request to a Runtime.
        let request = self.http.get(&self.url).header("nylorun-protocol", PROTOCOL);
        let answer = request.timeout(FETCH).send().await.ok()?;
        if !answer.status().is_success() {
            return None;
        }
        let set = parse(&answer.bytes().await.ok()?).ok()?;
        Some(set.get("keys")?.as_array()?.iter().filter_map(key).collect())
    }
}

/// One key of a set; what is no ES256 key of a signer is passed over.
fn key(jwk: &Json) -> Option<(String, Key)> {
    let map = jwk.as_object()?;
    let kid = map.get("kid")?.as_str()?.to_owned();
    let verifier = ES256.verifier_from_jwk(&Jwk::from_map(map.clone()).ok()?).ok()?;
    Some((kid, Arc::new(verifier)))
}
