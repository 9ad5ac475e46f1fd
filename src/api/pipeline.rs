//! The way of every request, in the one order that clients can observe (spec: http-api, section 1.2). The numbers in
//! the comments are that section's.

use std::sync::Arc;
use std::time::Instant;

use actix_web::http::header::{ALLOW, HOST, ORIGIN};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};

use super::answer::Answer;
use super::call::{Call, OperatorCall};
use super::headers::{PROTOCOL, TENANT, only};
use super::path::Path;
use super::rejection::{Code, Rejection};
use super::request_log::{self, Seen};
use super::routes::{Handler, ROUTES, Route, find};
use super::slot::{OpenTenant, TenantState};
use super::state::{Listener, ListenerKind};
use super::{auth, body};

/// Answers one request. It never fails: a refusal is an answer.
pub(super) async fn handle(request: HttpRequest, payload: Payload, listener: Data<Listener>) -> HttpResponse {
    let started = Instant::now();
    let mut seen = Seen::default();
    let answer = serve(&request, payload, &listener, &mut seen).await;
    let mut response = answer.unwrap_or_else(|rejection| {
        seen.code = Some(rejection.code().as_str());
        rejection.into_response()
    });
    request_log::finish(&request, &mut response, &seen, started);
    response
}

async fn serve(request: &HttpRequest, payload: Payload, listener: &Listener, seen: &mut Seen) -> Answer {
    let headers = request.headers();

    // 1: before anything else of the request is looked at.
    if !only(headers, &HOST).is_some_and(|host| listener.names.allow(host)) {
        let message = "The Host header names another server";
        return Err(Rejection::new(StatusCode::MISDIRECTED_REQUEST, Code::HostRejected, message));
    }
    // 2
    let Some(path) = Path::read(request.uri().path()) else {
        return Err(Rejection::new(
            StatusCode::BAD_REQUEST,
            Code::InvalidRequest,
            "The request target is not a path",
        ));
    };
    // 3
    let operator_path = path.is_operator();
    let closed_to_browsers = !path.is_v1() || operator_path || listener.kind == ListenerKind::Operator;
    if closed_to_browsers && headers.contains_key(ORIGIN) {
        return Err(Rejection::new(StatusCode::FORBIDDEN, Code::OriginRejected, "Not for browsers"));
    }
    // 4
    if request.method() == Method::OPTIONS {
        return Ok(HttpResponse::NoContent()
            .insert_header((ALLOW, "GET, POST, PUT, DELETE, OPTIONS"))
            .finish());
    }
    let found = if path.is_malformed() { None } else { find(request.method().as_str(), &path) };
    // 5
    let any_body = found.as_ref().is_some_and(|(route, _)| route.any_body);
    if body::is_announced(headers) && !any_body && !body::is_json(headers) {
        let message = "Bodies must be application/json";
        return Err(Rejection::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::UnsupportedMediaType, message));
    }
    // 6
    if let Some((route, run)) = open_route(request.method(), &path) {
        seen.route = Some(route.path);
        return run(listener.state.clone()).await;
    }
    // 7
    if operator_path && listener.kind == (ListenerKind::Public { operator_elsewhere: true }) {
        return Err(Rejection::opaque());
    }
    // 8
    let unversioned = found.as_ref().is_some_and(|(route, _)| route.unversioned);
    match headers.contains_key(&PROTOCOL) {
        true if only(headers, &PROTOCOL).is_some_and(super::protocol::serves) => {}
        false if unversioned => {}
        _ => return Err(Rejection::protocol()),
    }
    // 9
    if operator_path {
        return operator(request, payload, listener, path.is_malformed(), found, seen).await;
    }
    // 10
    let open = open_tenant(listener)?;
    seen.tenant = Some(open.tenant.id().clone());
    // 11
    if headers.contains_key(&TENANT) && !names_tenant(request, &open) {
        return Err(Rejection::opaque());
    }
    // 12
    if path.is_malformed() {
        return Err(Rejection::bad("The path is not percent-encoded UTF-8"));
    }
    // 13: no route has the method HEAD, and the GET handlers are not for it.
    if request.method() == Method::HEAD {
        return Err(Rejection::opaque());
    }
    // 14
    let anonymous = found.as_ref().is_some_and(|(route, _)| route.is_anonymous());
    let caller = auth::tenant(&listener.state, &open, request, anonymous).await?;
    // 18
    let Some((route, params)) = found else {
        return Err(Rejection::new(StatusCode::NOT_FOUND, Code::RequestRejected, "No such route"));
    };
    seen.route = Some(route.path);
    // 15
    caller.pass(route.gate)?;
    // 16
    caller.fits(route.takes)?;
    // 17
    let Handler::Tenant(run) = route.handler else { return Err(Rejection::opaque()) };
    let (state, request) = (listener.state.clone(), request.clone());
    run(Call { state, open, caller, params, request, payload }).await
}

type OpenHandler = fn(super::state::ApiState) -> super::call::Work;

fn open_route(method: &Method, path: &Path<'_>) -> Option<(&'static Route, OpenHandler)> {
    ROUTES.iter().find_map(|route| {
        let Handler::Open { any_method, run } = route.handler else { return None };
        ((any_method || method == Method::GET) && path.is(route.path)).then_some((route, run))
    })
}

async fn operator(
    request: &HttpRequest,
    payload: Payload,
    listener: &Listener,
    malformed: bool,
    found: Option<(&'static Route, Vec<String>)>,
    seen: &mut Seen,
) -> Answer {
    auth::operator(&listener.state, request).await?;
    if malformed {
        let message = "The path is not percent-encoded UTF-8";
        return Err(Rejection::new(StatusCode::BAD_REQUEST, Code::InvalidRequest, message));
    }
    let Some((route, params)) = found else {
        return Err(Rejection::new(StatusCode::NOT_FOUND, Code::NotFound, "No such operator route"));
    };
    seen.route = Some(route.path);
    let Handler::Operator(run) = route.handler else { return Err(Rejection::opaque()) };
    let (state, request) = (listener.state.clone(), request.clone());
    run(OperatorCall { state, params, request, payload }).await
}

fn open_tenant(listener: &Listener) -> Result<Arc<OpenTenant>, Rejection> {
    match listener.state.slot().state() {
        TenantState::Open(open) => return Ok(open),
        TenantState::Opening => tracing::info!("refused: the Tenant is being opened"),
        TenantState::Failed(cause) => {
            tracing::warn!(
                code = cause.code,
                message = cause.message,
                "refused: the Tenant could not be opened"
            );
        }
        TenantState::Closing => tracing::info!("refused: the Tenant is closing"),
    }
    Err(Rejection::opaque())
}

/// Whether `Nylorun-Tenant` is blank or this Tenant's id.
fn names_tenant(request: &HttpRequest, open: &OpenTenant) -> bool {
    only(request.headers(), &TENANT).is_some_and(|named| {
        let named = named.trim();
        named.is_empty() || named == open.tenant.id().as_str()
    })
}
