//! The checks of an upgrade in their order, and every refusal (spec: harness-api, sections 2.1 to 2.4).
//!
//! Pods that join by a token of their own are not served: their routes answer as those of a core without a host
//! authority.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix_web::http::StatusCode;
use actix_web::http::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderMap, HeaderName, UPGRADE, WWW_AUTHENTICATE,
};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, web};
use actix_web_actors::ws;

use super::link::SocketSink;
use super::registry::Handle;
use super::socket::{Attached, HarnessSocket};
use super::tokens::bearer;
use super::{ORDERED, PATH, Shared};

/// Header that names the API's version.
const VERSION: HeaderName = HeaderName::from_static("nylorun-harness-api");

/// Answers every request of the port.
pub(super) async fn serve(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> HttpResponse {
    match upgrade(&request, payload, &shared.into_inner()).await {
        Ok(response) => response,
        Err(refusal) => refusal.answer(),
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The listener closes, no Tenant is open, or a cap is reached.
    Unavailable,
    /// No upgrade at all.
    Plain,
    Path,
    Host,
    Credential,
    Version,
    /// All is well but the WebSocket part of it.
    Malformed,
}

impl Refusal {
    fn answer(self) -> HttpResponse {
        let status = match self {
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Plain | Self::Version => StatusCode::UPGRADE_REQUIRED,
            Self::Path => StatusCode::NOT_FOUND,
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Credential => StatusCode::UNAUTHORIZED,
            Self::Malformed => StatusCode::BAD_REQUEST,
        };
        let mut response = HttpResponseBuilder::new(status);
        match self {
            Self::Credential => response.insert_header((WWW_AUTHENTICATE, "Bearer")),
            Self::Version => response.insert_header((VERSION, "1")),
            Self::Plain => response.insert_header((UPGRADE, "websocket")),
            _ => &mut response,
        };
        response.force_close().finish()
    }
}

async fn upgrade(
    request: &HttpRequest,
    payload: web::Payload,
    shared: &Arc<Shared>,
) -> Result<HttpResponse, Refusal> {
    if shared.closing.load(Ordering::SeqCst) {
        return Err(Refusal::Unavailable);
    }
    let headers = request.headers();
    if !is_upgrade(headers) {
        return Err(Refusal::Plain);
    }
    if request.path() != PATH {
        return Err(Refusal::Path);
    }
    if !only(headers, HOST).is_some_and(|host| shared.names.allow(host)) {
        return Err(Refusal::Host);
    }
    let token = only(headers, AUTHORIZATION).and_then(bearer);
    if !token.is_some_and(|token| shared.config.tokens.accept(token)) {
        return Err(Refusal::Credential);
    }
    if only(headers, VERSION) != Some("1") {
        return Err(Refusal::Version);
    }
    let open = shared.state.slot().open_tenant().ok_or(Refusal::Unavailable)?;
    let mut response = ws::handshake(request).map_err(|_| Refusal::Malformed)?;
    response.insert_header((ORDERED, "1"));
    let handle = request.conn_data::<Handle>().cloned().ok_or(Refusal::Unavailable)?;
    let place = shared.registry.enter(handle).ok_or(Refusal::Unavailable)?;
    let in_progress = shared.handshakes.try_acquire().map_err(|_| Refusal::Unavailable)?;
    let peer = request.peer_addr().map_or_else(|| "unknown".to_owned(), |address| address.to_string());
    let sink = Box::new(SocketSink::new(Arc::clone(place.link())));
    let harness = open.tenant.attach_harness(sink, format!("harness@{peer}"), None).await;
    let harness = Attached::new(harness.ok_or(Refusal::Unavailable)?);
    drop(in_progress);
    // It may have begun to close in between; whoever closes all sees this one or is seen here.
    if shared.closing.load(Ordering::SeqCst) {
        return Err(Refusal::Unavailable);
    }
    Ok(response.streaming(HarnessSocket::serve(harness, place, payload, shared.config.ping_every)))
}

/// Whether a request asks for another protocol.
fn is_upgrade(headers: &HeaderMap) -> bool {
    let asks = |value: &str| value.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
    headers.contains_key(UPGRADE) && headers.get_all(CONNECTION).any(|value| value.to_str().is_ok_and(asks))
}

/// The text of a header that is there once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name);
    let value = values.next()?;
    if values.next().is_some() { None } else { value.to_str().ok() }
}
