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
use super::headers::single;
use super::key_cache::{Digest, Known};
use super::rejection::{Code, Rejection};
use super::slot::OpenTenant;
use super::state::ApiState;

/// Why a credential was refused. For the log: the answer is always the same.
#[derive(Clone, Copy, Debug)]
enum Reason {
    MissingBearer,
    TokenUnknownIssuer,
    UnknownToken,
    WrongAdminKey,
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

/// Whether a bearer has the three segments of a JWT.
fn is_jwt_shaped(bearer: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let mut segments = bearer.split('.');
    let three = (&mut segments).take(3).filter(|s| !s.is_empty() && s.bytes().all(word)).count() == 3;
    three && segments.next().is_none()
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
    tracing::info!(?reason, "credential rejected");
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

    #[test]
    fn a_jwt_has_three_filled_segments() {
        assert!(is_jwt_shaped("a.b-_.c"));
        for other in ["a.b", "a.b.c.d", "a..c", "a.b.", ".b.c", "a.b.c=", &"0".repeat(64)] {
            assert!(!is_jwt_shaped(other), "{other}");
        }
    }
}
