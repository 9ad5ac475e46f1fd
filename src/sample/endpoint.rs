//! The HTTP side of the sample endpoint: the checks in their order, and an answer for each outcome
//! (spec: engine, section 10.4).

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use actix_web::dev::ServerHandle;
use actix_web::http::{Method, StatusCode};
use actix_web::web::{self, Bytes, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use nylorun_actors::model::json::{Json, encode, parse};
use serde_json::json;

use super::background::Work;
use super::book::{Book, Found};
use super::keys::Keys;
use super::token::{Claims, Expected, Refused, verify};
use super::tools::{self, Done};

/// The largest delivery that is read, bytes.
pub const BODY_BYTES: usize = 16 * 1024 * 1024;

/// One delivery that was let in, for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The Action's id, or `ping`.
    pub action: String,
    /// Which delivery of it; 0 for a ping.
    pub generation: i64,
    /// The tool; empty for a ping.
    pub tool: String,
    /// What was answered.
    pub status: u16,
}

/// Hears of each delivery that was let in.
pub type OnCall = Arc<dyn Fn(Call) + Send + Sync>;

/// How an endpoint is set up.
#[derive(Clone)]
pub struct Config {
    /// Base URL of the Runtime, for its keys and for callbacks.
    pub runtime: String,
    /// Id of its Tenant.
    pub tenant: String,
    /// The agent that is served.
    pub agent: String,
    /// Version of this code.
    pub implementation_version: String,
    /// Where it listens; port 0 picks a free one.
    pub listen: SocketAddr,
    /// The URL that is registered, when it is not the listener's own.
    pub url: Option<String>,
    /// How long a refund takes.
    pub work: Duration,
    /// Hears of each delivery.
    pub on_call: Option<OnCall>,
}

/// A running endpoint.
pub struct Endpoint {
    url: String,
    handle: ServerHandle,
}

struct State {
    config: Config,
    url: OnceLock<String>,
    issuer: String,
    keys: Keys,
    http: reqwest::Client,
    book: Book,
}

impl Endpoint {
    /// Starts one on the running runtime.
    ///
    /// # Errors
    /// When the port cannot be had, or the system's TLS is unusable.
    pub fn start(config: Config) -> io::Result<Self> {
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(io::Error::other)?;
        let state = Data::new(State {
            issuer: format!("urn:nylorun:tenant:{}", config.tenant),
            url: OnceLock::new(),
            keys: Keys::of(&config.runtime, http.clone()),
            http,
            book: Book::default(),
            config: config.clone(),
        });
        let shared = state.clone();
        let server = HttpServer::new(move || {
            App::new()
                .app_data(shared.clone())
                .app_data(web::PayloadConfig::new(BODY_BYTES))
                .default_service(web::to(handle))
        })
        .workers(1)
        .disable_signals()
        .shutdown_timeout(1)
        .bind(config.listen)?;
        let url = match (config.url, server.addrs().first()) {
            (Some(url), _) => url,
            (None, Some(address)) => format!("http://{address}/actions"),
            (None, None) => return Err(io::Error::other("no address to listen on")),
        };
        // Requests come only after this: the server runs from the next line on.
        let _ = state.url.set(url.clone());
        let server = server.run();
        let handle = server.handle();
        tokio::spawn(server);
        Ok(Self { url, handle })
    }

    /// Its URL, to be registered.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops it. Work in the background ends where it is; its delivery is lost when its lease runs out.
    pub async fn stop(self) {
        self.handle.stop(true).await;
    }
}

/// A refusal: its status decides whether the Runtime tries again.
struct Refusal(StatusCode, &'static str, String);

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: &str) -> Self {
        Self(status, code, message.to_owned())
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let unauthorized = |code, message| Self::new(StatusCode::UNAUTHORIZED, code, message);
        match refused {
            Refused::Missing => unauthorized("signature_missing", "there is no Nylorun-Signature"),
            Refused::Invalid => {
                unauthorized("signature_invalid", "Nylorun-Signature is not for this delivery")
            }
            Refused::Expired => unauthorized("token_expired", "Nylorun-Signature has expired"),
            Refused::KeyUnknown => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "key_unknown",
                "the signing key is not known here yet",
            ),
        }
    }
}

/// What a delivery asks for.
enum Asked {
    Ping { agent: String },
    Action(Json),
}

async fn handle(state: Data<State>, request: HttpRequest, body: Bytes) -> HttpResponse {
    match answer(&state, &request, &body).await {
        Ok(response) => response,
        Err(Refusal(status, code, message)) => {
            let mut response = HttpResponse::build(status);
            if status == StatusCode::METHOD_NOT_ALLOWED {
                response.insert_header(("allow", "POST"));
            }
            json_body(response, &json!({ "code": code, "message": message }))
        }
    }
}

fn json_body(mut response: actix_web::HttpResponseBuilder, body: &Json) -> HttpResponse {
    response.content_type("application/json").body(encode(body))
}

/// Method, token, shape, token against body, agent; then the work.
async fn answer(state: &State, request: &HttpRequest, body: &Bytes) -> Result<HttpResponse, Refusal> {
    if request.method() != Method::POST {
        return Err(Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "deliveries are POSTed",
        ));
    }
    let token = request.headers().get("nylorun-signature").and_then(|value| value.to_str().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let expected = Expected {
        issuer: &state.issuer,
        audience: state.url.get().map_or("", String::as_str),
        body,
        now: i64::try_from(now).unwrap_or(i64::MAX),
    };
    let claims = verify(token, &state.keys, expected).await?;
    let asked = read(body)
        .ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, "invalid_delivery", "this is no delivery"))?;
    if !fits(&claims, &asked) {
        return Err(Refused::Invalid.into());
    }
    if claims.agent != state.config.agent {
        let message = format!("agent {} is not served here", claims.agent);
        return Err(Refusal::new(StatusCode::NOT_FOUND, "agent_not_served", &message));
    }
    let tool = match &asked {
        Asked::Ping { .. } => String::new(),
        Asked::Action(action) => action["toolName"].as_str().unwrap_or_default().to_owned(),
    };
    let answered = match &asked {
        Asked::Ping { agent } => Ok(json_body(
            HttpResponse::Ok(),
            &json!({ "agentId": agent, "implementationVersion": state.config.implementation_version }),
        )),
        Asked::Action(action) => run(state, &tool, action, token.unwrap_or_default()),
    };
    if let Some(on_call) = &state.config.on_call {
        let status = answered.as_ref().map_or_else(|refusal| refusal.0, HttpResponse::status).as_u16();
        on_call(Call { action: claims.subject, generation: claims.generation, tool, status });
    }
    answered
}

fn read(body: &[u8]) -> Option<Asked> {
    let sent = parse(body).ok()?;
    let text = |of: &Json, name: &str| of.get(name)?.as_str().map(str::to_owned);
    match sent.get("type")?.as_str()? {
        "ping" => Some(Asked::Ping { agent: text(&sent, "agentId")? }),
        "action" => {
            sent.get("sandbox")?.as_bool()?;
            let action = sent.get("action")?;
            for name in ["actionId", "sessionId", "turnId", "agentId", "kind"] {
                text(action, name)?;
            }
            action.get("generation")?.as_i64()?;
            Some(Asked::Action(action.clone()))
        }
        _ => None,
    }
}

/// A token is for one Action, one delivery of it, and one agent: the body must say the same.
fn fits(claims: &Claims, asked: &Asked) -> bool {
    match asked {
        Asked::Ping { agent } => claims.subject == "ping" && claims.generation == 0 && claims.agent == *agent,
        Asked::Action(action) => {
            action["actionId"] == claims.subject.as_str()
                && action["generation"] == claims.generation
                && claims.generation >= 1
                && action["agentId"] == claims.agent.as_str()
        }
    }
}

/// Runs an Action, or says what became of it.
fn run(state: &State, tool: &str, action: &Json, token: &str) -> Result<HttpResponse, Refusal> {
    let resume = action["context"].get("resume");
    let done = match action["kind"].as_str() {
        Some("tool") => tools::run(tool, &action["input"], resume, state.config.work),
        // Hooks, functions and verifiers are Actions too; this endpoint has none.
        _ => Done::Unknown,
    };
    let (takes, value) = match done {
        Done::Unknown => {
            let message = format!("there is no tool {tool:?} here");
            return Err(Refusal::new(StatusCode::NOT_FOUND, "action_not_served", &message));
        }
        Done::Now(value) => return Ok(outcome(&value)),
        Done::Later(takes, value) => (takes, value),
    };
    let id = action["actionId"].as_str().unwrap_or_default().to_owned();
    match state.book.begin(&id, token) {
        Found::Done(value) => Ok(outcome(&value)),
        Found::Working => Ok(HttpResponse::Accepted().finish()),
        Found::New(deliveries) => {
            let work = Work {
                runtime: state.config.runtime.trim_end_matches('/').to_owned(),
                http: state.http.clone(),
                action: id,
                deliveries,
                takes,
                value,
                book: state.book.clone(),
            };
            tokio::spawn(work.run());
            Ok(HttpResponse::Accepted().finish())
        }
    }
}

/// 200 with a whole outcome: what kind of value it is stays with the Runtime.
fn outcome(value: &Json) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response.insert_header(("nylorun-outcome", "1"));
    json_body(response, &json!({ "value": value }))
}
