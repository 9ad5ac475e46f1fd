//! The HTTP API: the Tenant's, the operator's, health and the documents (spec: http-api).
//!
//! ```text
//! state      what all listeners share; which names a listener answers to      slot       the Tenant's place
//! pipeline   every check of every request, in the order that clients see      routes     every route, as data
//! auth, caller, key_cache, throttle      who calls and what they may do       rejection  refusals on the wire
//! body, page, path, headers, answer      reading requests, writing answers    shapes     bodies and answers, declared
//! openapi    the documents, made of routes and shapes                          request_log
//! client_gone whether a request's client still waits
//! health me agents sessions sandbox sandboxes sandbox_settings commands items events tenant seed models artifacts
//! signing_keys admin keys fixture                                              handlers
//! ```
//!
//! The host makes one [`ApiState`], one [`Listener`] for each socket it has bound, and gives each server
//! [`configure`]; it swaps the Tenant in and out through [`ApiState::slot`].

mod actions;
mod admin;
mod agents;
mod answer;
mod artifacts;
mod auth;
mod body;
mod call;
mod caller;
mod client_gone;
mod commands;
mod effects;
mod endpoints;
mod events;
mod fixture;
mod headers;
mod health;
mod items;
mod key_cache;
mod keys;
pub mod limits;
mod me;
mod models;
mod openapi;
mod page;
mod path;
mod pipeline;
pub(crate) mod protocol;
mod rejection;
mod request_log;
mod routes;
mod sandbox;
mod sandbox_settings;
mod sandboxes;
mod seed;
mod sessions;
mod shapes;
mod signing_keys;
mod slot;
mod state;
mod tenant;
mod throttle;

use actix_web::web::{Data, ServiceConfig, scope, to};
use tracing_actix_web::TracingLogger;

pub use client_gone::note_socket;
pub use openapi::{operator_document, tenant_document};
pub use protocol::{FEATURES, MAX as PROTOCOL_MAX, MIN as PROTOCOL_MIN};
pub use rejection::Code as ErrorCode;
pub use slot::{CAUSES, Cause, OpenTenant, TenantSlot, TenantState};
pub use state::{ApiState, HostFacts, HostNames, Listener, ListenerKind};

/// The service's name on the wire.
pub const SERVICE: &str = "nylorun-runtime";

/// What `App::configure` takes: everything that arrives on this listener is answered here.
///
/// ```ignore
/// let listener = Listener { state, kind: ListenerKind::Operator, names: HostNames::of_port(port, None) };
/// HttpServer::new(move || App::new().configure(nylorun::api::configure(listener.clone())))
/// ```
pub fn configure(listener: Listener) -> impl FnOnce(&mut ServiceConfig) {
    move |config| {
        let logged = scope("").wrap(TracingLogger::<request_log::RequestSpan>::new());
        config.app_data(Data::new(listener));
        config.service(logged.default_service(to(pipeline::handle)));
        // A target that is no path matches no scope.
        config.default_service(to(pipeline::handle));
    }
}
