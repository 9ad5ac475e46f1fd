//! The HTTP client of the commands (spec: http-api, sections 2 and 18; engine, section 10.1), with errors that say
//! what to do.

use std::time::Duration;

use nylorun_actors::model::json::{self, Json};
use reqwest::{Method, StatusCode};
use secrecy::ExposeSecret;

use super::fault::{Fault, exit};
use super::target::{Source, Target};

/// The wire protocol this client speaks.
pub const PROTOCOL: u32 = 7;

/// Speaks to one Runtime.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    target: Target,
}

/// An upload.
pub struct Upload<'a> {
    /// The route with its query.
    pub path: &'a str,
    /// The media type, if it is named.
    pub content_type: Option<&'a str>,
    /// Bytes of the body, if that is known.
    pub length: Option<u64>,
    /// The bytes.
    pub body: reqwest::Body,
}

/// A request that the Runtime refused, or a failed way to it.
#[derive(Debug)]
pub enum CallError {
    /// An answer with an error status.
    Refused {
        /// The status.
        status: u16,
        /// The body, null when it is not JSON.
        body: Json,
    },
    /// No answer.
    Unreachable {
        /// What the transport says.
        why: String,
    },
}

impl CallError {
    fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { body, .. } => body.get("code").and_then(Json::as_str),
            Self::Unreachable { .. } => None,
        }
    }

    /// The status, if there was an answer.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Unreachable { .. } => None,
        }
    }
}

impl Client {
    /// A client for a target.
    ///
    /// # Errors
    /// When the system has no usable TLS.
    pub fn new(target: Target) -> Result<Self, Fault> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(10))
            .tcp_nodelay(true);
        let url = reqwest::Url::parse(&target.url).ok();
        let host = url.as_ref().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
        if host == "localhost"
            || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
        {
            // A proxy cannot reach this machine's own loopback.
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| {
            Fault::new(exit::FAILED, "client", format!("cannot make an HTTP client: {error}"))
        })?;
        Ok(Self { http, target })
    }

    /// Whom it speaks to.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.target.url))
            .bearer_auth(self.target.key.expose_secret())
            .header("nylorun-protocol", PROTOCOL)
    }

    /// One request with a JSON answer.
    ///
    /// # Errors
    /// [`CallError`]; [`Client::explain`] turns it into what a person reads.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Json>) -> Result<Json, CallError> {
        self.call_within(method, path, body, Duration::from_secs(60)).await
    }

    /// The same with another time to answer.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn call_within(
        &self,
        method: Method,
        path: &str,
        body: Option<&Json>,
        within: Duration,
    ) -> Result<Json, CallError> {
        let mut request = self.request(method, path).timeout(within);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(json::encode(body));
        }
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(unreachable)?;
        let body = json::parse(&bytes).unwrap_or(Json::Null);
        if status.is_success() { Ok(body) } else { Err(CallError::Refused { status: status.as_u16(), body }) }
    }

    /// `GET` with a told error.
    ///
    /// # Errors
    /// What a person reads.
    pub async fn get(&self, path: &str) -> Result<Json, Fault> {
        self.told(Method::GET, path, None).await
    }

    /// `PUT` with a told error.
    ///
    /// # Errors
    /// What a person reads.
    pub async fn put(&self, path: &str, body: Option<&Json>) -> Result<Json, Fault> {
        self.told(Method::PUT, path, body).await
    }

    /// `POST` with a told error.
    ///
    /// # Errors
    /// What a person reads.
    pub async fn post(&self, path: &str, body: &Json) -> Result<Json, Fault> {
        self.told(Method::POST, path, Some(body)).await
    }

    /// `DELETE` with a told error.
    ///
    /// # Errors
    /// What a person reads.
    pub async fn delete(&self, path: &str) -> Result<Json, Fault> {
        self.told(Method::DELETE, path, None).await
    }

    async fn told(&self, method: Method, path: &str, body: Option<&Json>) -> Result<Json, Fault> {
        match self.call(method, path, body).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explain(error).await),
        }
    }

    /// Opens an answer that is bytes.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn open(&self, path: &str) -> Result<reqwest::Response, CallError> {
        let response = self.request(Method::GET, path).send().await.map_err(unreachable)?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response);
        }
        let bytes = response.bytes().await.map_err(unreachable)?;
        Err(CallError::Refused { status: status.as_u16(), body: json::parse(&bytes).unwrap_or(Json::Null) })
    }

    /// Sends bytes and takes a JSON answer. It may take as long as they need.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn upload(&self, upload: Upload<'_>) -> Result<Json, CallError> {
        let mut request = self.request(Method::POST, upload.path).body(upload.body);
        if let Some(kind) = upload.content_type {
            request = request.header("content-type", kind);
        }
        if let Some(length) = upload.length {
            request = request.header("content-length", length);
        }
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(unreachable)?;
        let body = json::parse(&bytes).unwrap_or(Json::Null);
        if status.is_success() { Ok(body) } else { Err(CallError::Refused { status: status.as_u16(), body }) }
    }

    /// Opens a stream of events of a session from after a cursor.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn events(
        &self,
        session: &str,
        cursor: Option<&str>,
        previews: bool,
    ) -> Result<reqwest::Response, CallError> {
        let mut path =
            format!("/v1/sessions/{}/events?cursor={}", segment(session), segment(cursor.unwrap_or("")));
        if previews {
            path.push_str("&preview=1");
        }
        self.open(&path).await
    }

    /// `/health` and `/ready` need no key: `None` when nobody answers.
    pub async fn probe(&self, path: &str) -> Option<Json> {
        let request = self.http.get(format!("{}{path}", self.target.url)).timeout(Duration::from_secs(5));
        let bytes = request.send().await.ok()?.bytes().await.ok()?;
        json::parse(&bytes).ok()
    }

    /// Says what an error means and what to do. Asks the Runtime who it is when the answer alone does not tell.
    pub async fn explain(&self, error: CallError) -> Fault {
        let url = &self.target.url;
        let code = error.code().unwrap_or("request_rejected").to_owned();
        let (status, body) = match error {
            CallError::Unreachable { why } => return self.nobody(&why),
            CallError::Refused { status, body } => (status, body),
        };
        let message = body.get("message").and_then(Json::as_str).unwrap_or_default();
        match (status, code.as_str()) {
            // The opaque 404: unknown key, Tenant not open, or another Host.
            (404, "not_found") if message == "Not found" => self.opaque().await,
            (426, _) => Fault::new(
                exit::TOO_OLD,
                "protocol_unsupported",
                format!("{url} does not speak protocol {PROTOCOL}: {}", json::encode(&body["protocol"])),
            )
            .fix("use the `nylorun` of the same release as the Runtime"),
            (421, _) => Fault::new(exit::FAILED, &code, format!("{url} does not serve this `Host` name")).fix(
                "use the loopback URL, or add the name to `allowed-hosts` (NYLORUN_ALLOWED_HOSTS) of the Runtime",
            ),
            (_, _) if body.is_null() => Fault::new(
                exit::NO_RUNTIME,
                "incompatible_host",
                format!("{url} answered {status} and is no nylorun Runtime"),
            )
            .fix("check the URL"),
            _ => {
                let mut fault = Fault::new(exit::FAILED, &code, format!("{message} (HTTP {status})"));
                if let Some(issues) = body["details"]["issues"].as_array().filter(|list| !list.is_empty()) {
                    let lines: Vec<String> = issues
                        .iter()
                        .map(|issue| format!("{}: {}", super::out::plain(&issue["path"]), super::out::plain(&issue["message"])))
                        .collect();
                    fault = fault.fix(format!("correct these: {}", lines.join("; ")));
                }
                fault
            }
        }
    }

    fn nobody(&self, why: &str) -> Fault {
        let url = &self.target.url;
        match &self.target.source {
            Source::Link(path) => Fault::new(
                exit::NOT_RUNNING,
                "connection_missing",
                format!("no Runtime runs at {url}, which {} names ({why})", path.display()),
            )
            .fix("start it with `nylorun serve` (or `make run`)"),
            Source::Flags | Source::Environment => {
                Fault::new(exit::NO_RUNTIME, "connection_missing", format!("nobody answers at {url} ({why})"))
                    .fix("check the URL, and that the Runtime runs there")
            }
        }
    }

    async fn opaque(&self) -> Fault {
        let url = &self.target.url;
        let Some(health) =
            self.probe("/health").await.filter(|health| health["service"] == "nylorun-runtime")
        else {
            return Fault::new(exit::NO_RUNTIME, "incompatible_host", format!("{url} is no nylorun Runtime"))
                .fix("check the URL");
        };
        let answers = health["hostId"].as_str();
        if let (Some(wanted), Some(answers)) = (self.target.host_id.as_deref(), answers)
            && wanted != answers
        {
            return Fault::new(
                exit::OTHER_HOST,
                "incompatible_host",
                format!("another Host ({answers}) answers at {url}, not the one of this link ({wanted})"),
            )
            .fix("start this home's Runtime on a free port, or use the other one's home with --home");
        }
        let ready = self.probe("/ready").await;
        if ready.is_some_and(|ready| ready["status"] != "ready") {
            return Fault::new(
                exit::NOT_READY,
                "not_ready",
                format!("the Runtime at {url} runs and is not ready"),
            )
            .fix("wait a moment; when it stays so, `nylorun status` names the cause");
        }
        let whose = match &self.target.source {
            Source::Flags => "--key".to_owned(),
            Source::Environment => "NYLORUN_SERVER_KEY".to_owned(),
            Source::Link(path) => path.join("credentials.json").display().to_string(),
        };
        Fault::new(
            exit::FAILED,
            "not_found",
            format!("the Runtime at {url} does not know the key of {whose}"),
        )
        .fix("make a new one on its machine with `nylorun keys put NAME`")
    }
}

fn unreachable(error: reqwest::Error) -> CallError {
    // reqwest's own text repeats the URL; the innermost cause says what happened.
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    CallError::Unreachable { why: cause.to_string() }
}

/// One percent-encoded path segment or query value.
#[must_use]
pub fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
