//! Posts deliveries to Action endpoints over HTTP (spec: http-api, section 10.3; security, sections 4.4 and 8).
//!
//! What went wrong is told by one question: can the endpoint have acted? Only when the body was provably never handed
//! over whole is it `NotSent`, which is delivered again; everything in doubt is `Lost`.

use std::collections::HashMap;
use std::error::Error as _;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use nylorun_actors::ports::action::{ActionTransport, Answered, Delivery};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Body, Response};

use super::client::BuiltClient;
use super::outbound::{AddressRefused, Lookup, NameUnknown, OutboundPolicy, system_lookup};
use super::upload::{Hand, Upload};
use crate::api::PROTOCOL_MAX;
use crate::identity::SigningKeys;
use crate::identity::delivery::Grant;

/// The largest answer, bytes.
pub const ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// The longest wait that an endpoint can ask for.
pub const RETRY_AFTER_MOST: Duration = Duration::from_secs(300);

/// Code of an address that the policy refuses.
pub const ADDRESS_REFUSED: &str = "ENDPOINT_ADDRESS_REFUSED";

static SIGNATURE: HeaderName = HeaderName::from_static("nylorun-signature");
static PROTOCOL: HeaderName = HeaderName::from_static("nylorun-protocol");
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
static OUTCOME: HeaderName = HeaderName::from_static("nylorun-outcome");

/// Deliveries over HTTP.
#[derive(Clone)]
pub struct HttpTransport(Arc<Inner>);

struct Inner {
    policy: OutboundPolicy,
    keys: Arc<SigningKeys>,
    /// What every client dials by.
    lookup: Arc<Lookup>,
    /// A client for each thread that posts, so that the runtime that posts is the one that watches the connection.
    clients: Mutex<HashMap<ThreadId, BuiltClient>>,
}

impl HttpTransport {
    /// A transport under this policy that signs with these keys.
    #[must_use]
    pub fn new(policy: OutboundPolicy, keys: Arc<SigningKeys>) -> Self {
        Self::over(policy, keys, Arc::new(system_lookup))
    }

    fn over(policy: OutboundPolicy, keys: Arc<SigningKeys>, lookup: Arc<Lookup>) -> Self {
        Self(Arc::new(Inner { policy, keys, lookup, clients: Mutex::default() }))
    }
}

impl ActionTransport for HttpTransport {
    fn post(&self, delivery: Delivery) -> BoxFuture<'static, Answered> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let hand = Withdraw(Arc::new(Hand::default()));
            let attempt = inner.attempt(&delivery, &hand.0);
            match tokio::time::timeout(delivery.timeout, attempt).await {
                Ok(Ok(answered)) => answered,
                Ok(Err(failure)) => failure.fate(&hand.0),
                Err(_) => Failure::new("ABORTED", out_of_time(delivery.timeout)).fate(&hand.0),
            }
        })
    }

    fn check_url(&self, url: &str) -> Result<(), Vec<String>> {
        self.0.policy.check_url(url)
    }
}

fn out_of_time(limit: Duration) -> String {
    format!("no whole answer within {} ms", limit.as_millis())
}

/// Takes the body back when the delivery is dropped, so that a connection that is still being made sends nothing.
struct Withdraw(Arc<Hand>);

impl Drop for Withdraw {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

/// Why there is no answer.
struct Failure {
    code: &'static str,
    message: String,
}

impl Failure {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Whether the endpoint can have acted.
    fn fate(self, hand: &Hand) -> Answered {
        let Self { code, message } = self;
        if hand.withdraw() { Answered::NotSent { code, message } } else { Answered::Lost { code, message } }
    }
}

impl From<AddressRefused> for Failure {
    fn from(refused: AddressRefused) -> Self {
        Self::new(ADDRESS_REFUSED, refused.to_string())
    }
}

impl From<reqwest::Error> for Failure {
    fn from(error: reqwest::Error) -> Self {
        // The URL may hold a secret in its query.
        let error = error.without_url();
        let mut code = if error.is_connect() { "CONNECT" } else { "RESET" };
        let mut words = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            if let Some(refused) = cause.downcast_ref::<AddressRefused>() {
                return Self::from(*refused);
            }
            if let Some(unknown) = cause.downcast_ref::<NameUnknown>() {
                return Self::new("DNS", unknown.to_string());
            }
            if cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|e| e.kind() == ErrorKind::ConnectionRefused)
            {
                return Self::new("CONNECT", "the connection was refused");
            }
            words = format!("{words}: {cause}");
            source = cause.source();
        }
        // The library's words are all there is to tell the handshake from what was before it.
        let lower = words.to_ascii_lowercase();
        if error.is_connect() && ["certificate", "ssl", "tls"].iter().any(|word| lower.contains(word)) {
            code = "TLS";
        }
        Self::new(code, words)
    }
}

impl Inner {
    /// This thread's client.
    fn client(&self) -> BuiltClient {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let (policy, lookup) = (self.policy, &self.lookup);
        let built = clients.entry(std::thread::current().id()).or_insert_with(|| {
            let lookup = Arc::clone(lookup);
            BuiltClient::new("deliveries to Action endpoints", move || policy.client(lookup))
        });
        built.clone()
    }

    async fn attempt(&self, delivery: &Delivery, hand: &Arc<Hand>) -> Result<Answered, Failure> {
        let (url, problems) = self.policy.parse(&delivery.url);
        let url = url.filter(|_| problems.is_empty());
        let url = url.ok_or_else(|| Failure::new("URL", problems.join("; ")))?;
        let (url, host) = self.policy.route(url)?;
        let headers = self.headers(delivery, host).await?;
        let client = self.client().get().await.map_err(|why| Failure::new("TLS", why.to_string()))?;
        // What the kernel knows of idle connections is looked at first: one whose end is there already is not used.
        tokio::task::yield_now().await;
        let body = Bytes::from_owner(SharedText(Arc::clone(&delivery.body)));
        let body = Body::wrap_stream(Upload::new(body, Arc::clone(hand)));
        let response = client.post(url).headers(headers).body(body).send().await?;
        read(response).await
    }

    async fn headers(&self, delivery: &Delivery, host: Option<String>) -> Result<HeaderMap, Failure> {
        let grant = Grant {
            audience: &delivery.url,
            action: delivery.action.as_deref(),
            agent: delivery.agent.as_str(),
            generation: delivery.generation,
            body: delivery.body.as_bytes(),
            ttl_s: delivery.token_ttl_s,
        };
        let token = self.keys.mint_delivery(grant).await.map_err(|error| {
            tracing::error!(%error, "a delivery could not be signed");
            Failure::new("KEY", "the delivery could not be signed")
        })?;
        let text = |text: &str| {
            HeaderValue::from_bytes(text.as_bytes())
                .map_err(|_| Failure::new("HEADER", "the Action's id does not fit into a header"))
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(delivery.body.len()));
        headers.insert(&SIGNATURE, text(&token)?);
        headers.insert(&PROTOCOL, HeaderValue::from(PROTOCOL_MAX));
        if let Some(action) = &delivery.action {
            headers.insert(&IDEMPOTENCY_KEY, text(action)?);
        }
        if let Some(host) = host {
            headers.insert(HOST, text(&host)?);
        }
        Ok(headers)
    }
}

/// Reads an answer as far as the limit.
async fn read(mut response: Response) -> Result<Answered, Failure> {
    let status = response.status().as_u16();
    let tagged = response.headers().get(&OUTCOME).is_some_and(|value| value == "1");
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.and_then(|text| wait(text, SystemTime::now()));
    if response.content_length().is_some_and(|length| length > ANSWER_BYTES as u64) {
        return Ok(Answered::TooLarge { status });
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if body.len() + piece.len() > ANSWER_BYTES {
            return Ok(Answered::TooLarge { status });
        }
        body.extend_from_slice(&piece);
    }
    Ok(Answered::Response { status, tagged, retry_after, body })
}

/// `Retry-After` in seconds, with a fraction or without, or as a date; what is not ahead of now does not count.
fn wait(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let wait = if number {
        // Too many digits are a long time, and that is capped.
        text.parse::<f64>().ok().map(|s| Duration::from_secs_f64(s.min(RETRY_AFTER_MOST.as_secs_f64())))
    } else {
        httpdate::parse_http_date(text).ok().and_then(|at| at.duration_since(now).ok())
    };
    wait.map(|wait| wait.min(RETRY_AFTER_MOST)).filter(|wait| !wait.is_zero())
}

/// A body that is sent without being copied.
struct SharedText(Arc<str>);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests;
