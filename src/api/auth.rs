//! Authentication of Tenant and operator requests, in the order that clients can observe (spec: security, section 1.2;
//! http-api, sections 3 and 17).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{AUTHORIZATION, ORIGIN};
use nylorun_actors::rules::Refusal;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::caller::Caller;
use super::headers::{SCOPES, SUBJECT, single};
use super::key_cache::{Digest, Known};
use super::rejection::{Code, Rejection};
use super::slot::OpenTenant;
use super::state::ApiState;
use crate::identity::delivery::DELIVERY_TYP;
use crate::identity::tokens::{Reason as TokenReason, TokenRefusal, is_jwt_shaped, unverified_typ};

/// Why a credential was refused. For the log: the answer is always the same.
#[derive(Clone, Copy, Debug)]
enum Reason {
    MissingBearer,
    TokenUnknownIssuer,
    UnknownToken,
    WrongAdminKey,
    DeliveryToken(TokenReason),
}

impl Reason {
    /// As the log says it.
    fn text(self) -> String {
        match self {
            Self::MissingBearer => "missing_bearer".to_owned(),
            Self::TokenUnknownIssuer => "token_unknown_issuer".to_owned(),
            Self::UnknownToken => "unknown_token".to_owned(),
            Self::WrongAdminKey => "wrong_admin_key".to_owned(),
            Self::DeliveryToken(reason) => format!("delivery_token_{}", reason.as_str()),
        }
    }
}

/// Finds out who calls the Tenant API. `anonymous`: whether the route is open to callers without a credential.
pub(super) async fn tenant(
    state: &ApiState,
    open: &OpenTenant,
    request: &HttpRequest,
    anonymous: bool,
) -> Result<Caller, Rejection> {
    let headers = request.headers();
    let Some(authorization) = single(headers, &AUTHORIZATION)? else {
        return if anonymous {
            Ok(Caller::Anonymous)
        } else {
            Err(refuse(state, request, Reason::MissingBearer).await)
        };
    };
    let Some(bearer) = bearer(authorization) else {
        return Err(refuse(state, request, Reason::MissingBearer).await);
    };
    if is_jwt_shaped(bearer) {
        if unverified_typ(bearer).as_deref() == Some(DELIVERY_TYP) {
            return delivery(state, open, request, bearer).await;
        }
        return Err(refuse(state, request, Reason::TokenUnknownIssuer).await);
    }
    if headers.contains_key(ORIGIN) {
        let message = "Operator keys are not for browsers";
        return Err(Rejection::new(StatusCode::FORBIDDEN, Code::OriginRejected, message));
    }
    match principal(open, Sha256::digest(bearer.as_bytes()).into()).await? {
        Some(principal) => Caller::of_key(principal, headers),
        None => Err(refuse(state, request, Reason::UnknownToken).await),
    }
}

/// The caller behind a delivery token.
async fn delivery(
    state: &ApiState,
    open: &OpenTenant,
    request: &HttpRequest,
    bearer: &str,
) -> Result<Caller, Rejection> {
    let headers = request.headers();
    if headers.contains_key(ORIGIN) {
        let message = "Delivery tokens are not for browsers";
        return Err(Rejection::new(StatusCode::FORBIDDEN, Code::OriginRejected, message));
    }
    let claims = match open.signing.verify_delivery(bearer).await {
        Ok(claims) => claims,
        Err(TokenRefusal::Store(error)) => return Err(error.into()),
        Err(TokenRefusal::Refused(reason)) if reason.is_too_old() => {
            tracing::info!(reason = format!("delivery_token_{}", reason.as_str()), "credential rejected");
            return Err(Rejection::token_expired());
        }
        Err(TokenRefusal::Refused(reason)) => {
            return Err(refuse(state, request, Reason::DeliveryToken(reason)).await);
        }
    };
    if headers.contains_key(&SUBJECT) || headers.contains_key(&SCOPES) {
        let message = "A delivery token acts for nobody";
        return Err(Rejection::new(StatusCode::FORBIDDEN, Code::RequestRejected, message));
    }
    Ok(Caller::Delivery(Arc::new(claims)))
}

/// Checks the admin key.
pub(super) async fn operator(state: &ApiState, request: &HttpRequest) -> Result<(), Rejection> {
    let mut values = request.headers().get_all(AUTHORIZATION);
    let value = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok().and_then(bearer),
        _ => None,
    };
    let Some(key) = value else { return Err(refuse(state, request, Reason::MissingBearer).await) };
    let digest: Digest = Sha256::digest(key.as_bytes()).into();
    if bool::from(digest.ct_eq(state.admin_key())) {
        Ok(())
    } else {
        Err(refuse(state, request, Reason::WrongAdminKey).await)
    }
}

fn bearer(authorization: &str) -> Option<&str> {
    authorization.strip_prefix("Bearer ").filter(|bearer| !bearer.is_empty())
}

/// The principal of a key.
async fn principal(open: &OpenTenant, key: Digest) -> Result<Option<Arc<str>>, Rejection> {
    let generation = match open.keys.get(&key) {
        Known::Principal(principal) => return Ok(Some(principal)),
        Known::Nobody => return Ok(None),
        Known::Ask(generation) => generation,
    };
    let hash = hex::encode(key);
    let row =
        open.tenant.store().read(move |reads| Ok::<_, Refusal>(reads.principal_by_hash(&hash)?)).await?;
    let principal = row.map(|row| Arc::<str>::from(row.id));
    open.keys.keep(generation, key, principal.as_ref());
    Ok(principal)
}

/// The opaque 404, later when this peer has had many of them.
async fn refuse(state: &ApiState, request: &HttpRequest, reason: Reason) -> Rejection {
    let peer = request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
    tracing::info!(reason = reason.text(), "credential rejected");
    // Who sends none is not guessing.
    if !matches!(reason, Reason::MissingBearer) {
        let delay = state.throttle().refused(peer, Instant::now());
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }
    Rejection::opaque()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_begins_with_exactly_that_word_and_is_not_empty() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        for bad in ["", "Bearer", "Bearer ", "bearer abc", "Basic abc", "Bearerabc", " Bearer abc"] {
            assert_eq!(bearer(bad), None, "{bad}");
        }
    }
}
