//! What a handler is given: a request that has passed every check that does not need its body.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::web::Payload;
use nylorun_actors::model::json::{Json, JsonMap};
use nylorun_actors::model::shape::Shape;
use nylorun_actors::tenant::Tenant;

use super::answer::Answer;
use super::body;
use super::caller::Caller;
use super::page::Query;
use super::rejection::Rejection;
use super::slot::OpenTenant;
use super::state::ApiState;

/// A handler's work. It stays on its thread.
pub(super) type Work = Pin<Box<dyn Future<Output = Answer>>>;

/// A request to the Tenant API.
pub(super) struct Call {
    pub state: ApiState,
    pub open: Arc<OpenTenant>,
    pub caller: Caller,
    pub params: Vec<String>,
    pub request: HttpRequest,
    pub payload: Payload,
}

impl Call {
    pub fn tenant(&self) -> &Tenant {
        &self.open.tenant
    }

    /// A value of the path; the routes' table says how many there are.
    pub fn param(&self, at: usize) -> &str {
        self.params.get(at).map_or("", String::as_str)
    }

    pub fn query(&self) -> Query<'_> {
        Query::of(self.request.query_string())
    }

    pub async fn json(self) -> Result<(CallHead, Json), Rejection> {
        let (head, request, payload) = self.split();
        let body = body::json(&request, payload).await?;
        Ok((head, body))
    }

    pub async fn object(self, shape: &Shape) -> Result<(CallHead, JsonMap), Rejection> {
        let (head, request, payload) = self.split();
        let body = body::object(&request, payload, shape).await?;
        Ok((head, body))
    }

    /// The body as an object; without a body an empty one.
    pub async fn object_or_nothing(self) -> Result<(CallHead, JsonMap), Rejection> {
        let (head, request, payload) = self.split();
        let body = body::object_or_nothing(&request, payload).await?;
        Ok((head, body))
    }

    fn split(self) -> (CallHead, HttpRequest, Payload) {
        let head = CallHead { open: self.open, caller: self.caller, params: self.params };
        (head, self.request, self.payload)
    }
}

/// What is left of a [`Call`] once its body has been read.
pub(super) struct CallHead {
    pub open: Arc<OpenTenant>,
    pub caller: Caller,
    pub params: Vec<String>,
}

impl CallHead {
    pub fn tenant(&self) -> &Tenant {
        &self.open.tenant
    }

    pub fn param(&self, at: usize) -> &str {
        self.params.get(at).map_or("", String::as_str)
    }
}

/// A request to the operator API, with the admin key.
pub(super) struct OperatorCall {
    pub state: ApiState,
    pub params: Vec<String>,
    pub request: HttpRequest,
    pub payload: Payload,
}

impl OperatorCall {
    pub fn param(&self, at: usize) -> &str {
        self.params.get(at).map_or("", String::as_str)
    }

    pub fn query(&self) -> Query<'_> {
        Query::of(self.request.query_string())
    }

    /// The Tenant, or 503.
    pub fn open(&self) -> Result<Arc<OpenTenant>, Rejection> {
        self.state.slot().open_tenant().ok_or_else(|| super::rejection::unavailable("The Tenant is not open"))
    }
}
