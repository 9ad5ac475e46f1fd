//! What every token that the Tenant signs has in common (spec: security, section 4.1).
//!
//! Before any key is read: size, shape, header. Then the key's row, the signature, `iss`, `exp`. Only then the claims of
//! the kind. Why a token was refused is logged and never answered.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use josekit::jws::{self, JwsHeader, JwsVerifier as _};
use nylorun_actors::limits::TOKEN_TTL_MS;
use nylorun_actors::model::json::{Json, JsonMap, encode, parse};
use nylorun_actors::ports::StoreError;
use nylorun_actors::rules::signing::{ALG, is_key_id};

use super::{IdentityError, SigningKeys};

/// The longest token that is looked at, bytes.
pub const TOKEN_BYTES: usize = 4096;

/// The longest life of a token, seconds.
pub const MAX_TTL_S: u64 = TOKEN_TTL_MS.unsigned_abs() / 1000;

/// How far two clocks may be apart, seconds.
pub const TOLERANCE_S: i64 = 30;

/// Header members that could name another key or change what is signed; their presence is enough.
const FORBIDDEN: [&str; 7] = ["jku", "jwk", "x5u", "x5c", "x5t", "x5t#S256", "crit"];

/// Why a token was refused, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Too long, or not a JWT.
    Malformed,
    /// Another algorithm or type, no kid of ours, or a forbidden member.
    Header,
    /// No key of this Tenant.
    KeyUnknown,
    /// Signed by this Tenant, and too old.
    Expired,
    /// The signature, the issuer, or an instant is wrong.
    Invalid,
    /// Signed by this Tenant with a key that was revoked.
    KeyRevoked,
    /// A claim of this kind of token is missing or wrong.
    Claims,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Malformed,
        Self::Header,
        Self::KeyUnknown,
        Self::Expired,
        Self::Invalid,
        Self::KeyRevoked,
        Self::Claims,
    ];

    /// What follows `<kind>_token_` in the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Header => "header",
            Self::KeyUnknown => "key_unknown",
            Self::Expired => "expired",
            Self::Invalid => "invalid",
            Self::KeyRevoked => "key_revoked",
            Self::Claims => "claims",
        }
    }

    /// Whether its bearer may be told that it is too old: it was really signed by this Tenant.
    #[must_use]
    pub const fn is_too_old(self) -> bool {
        matches!(self, Self::Expired | Self::KeyRevoked)
    }
}

/// Why a token does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// It is not good.
    #[error("the token was refused: {}", .0.as_str())]
    Refused(Reason),
    /// Its key could not be looked up.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A verified token.
#[derive(Clone, Debug)]
pub(super) struct Verified {
    pub kid: String,
    pub claims: JsonMap,
    pub issued_at: i64,
    pub expires_at: i64,
}

/// Whether a bearer has the three segments of a JWT.
#[must_use]
pub fn is_jwt_shaped(bearer: &str) -> bool {
    split(bearer).is_some()
}

/// `typ` of a JWT-shaped bearer, unverified.
#[must_use]
pub fn unverified_typ(bearer: &str) -> Option<String> {
    let [header, ..] = split(bearer)?;
    object(header)?.get("typ")?.as_str().map(str::to_owned)
}

/// `exp` of a token that was signed just now.
pub(super) fn expiry(token: &str) -> Option<i64> {
    let [_, body, _] = split(token)?;
    object(body)?.get("exp")?.as_i64()
}

fn split(token: &str) -> Option<[&str; 3]> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let mut segments = token.split('.');
    let three = [segments.next()?, segments.next()?, segments.next()?];
    let filled = three.iter().all(|segment| !segment.is_empty() && segment.bytes().all(word));
    (filled && segments.next().is_none()).then_some(three)
}

fn object(segment: &str) -> Option<JsonMap> {
    match parse(&URL_SAFE_NO_PAD.decode(segment).ok()?) {
        Ok(Json::Object(map)) => Some(map),
        _ => None,
    }
}

/// The kid of a header that may be looked up.
fn kid(header: &JsonMap, typ: &str) -> Option<String> {
    let is = |name: &str, value: &str| header.get(name).and_then(Json::as_str) == Some(value);
    let kid = header.get("kid").and_then(Json::as_str).filter(|kid| is_key_id(kid))?;
    let clean = FORBIDDEN.iter().all(|name| !header.contains_key(*name));
    (is("alg", ALG) && is("typ", typ) && clean).then(|| kid.to_owned())
}

impl SigningKeys {
    /// Signs claims: `iss`, `iat`, `exp` and `jti` are added. The life is cut to 1 to [`MAX_TTL_S`] seconds.
    pub(super) async fn sign(&self, typ: &str, claims: JsonMap, ttl_s: u64) -> Result<String, IdentityError> {
        let signer = self.signer().await?;
        let now = self.clock().now().0.div_euclid(1_000_000);
        let ttl = i64::try_from(ttl_s.clamp(1, MAX_TTL_S)).unwrap_or(1);
        let mut all = JsonMap::new();
        all.insert("iss".to_owned(), Json::from(self.issuer()));
        all.extend(claims);
        all.insert("iat".to_owned(), Json::from(now));
        all.insert("exp".to_owned(), Json::from(now + ttl));
        all.insert("jti".to_owned(), Json::from(self.entropy().uuid()));
        let mut header = JwsHeader::new();
        header.set_algorithm(ALG);
        header.set_token_type(typ);
        header.set_key_id(&signer.kid);
        jws::serialize_compact(encode(&all).as_bytes(), &header, &signer.key)
            .map_err(|_| IdentityError::Library("sign a token"))
    }

    /// Verifies what is common to all kinds.
    pub(super) async fn verify(&self, typ: &str, token: &str) -> Result<Verified, TokenRefusal> {
        let refuse = |reason| TokenRefusal::Refused(reason);
        if token.len() > TOKEN_BYTES {
            return Err(refuse(Reason::Malformed));
        }
        let [head, body, tail] = split(token).ok_or(refuse(Reason::Malformed))?;
        let header = object(head).ok_or(refuse(Reason::Malformed))?;
        let kid = kid(&header, typ).ok_or(refuse(Reason::Header))?;
        let signature = URL_SAFE_NO_PAD.decode(tail).map_err(|_| refuse(Reason::Malformed))?;
        let known = self.known(&kid).await?.ok_or(refuse(Reason::KeyUnknown))?;
        let signed = &token.as_bytes()[..head.len() + 1 + body.len()];
        known.key.verify(signed, &signature).map_err(|_| refuse(Reason::Invalid))?;
        let claims = object(body).ok_or(refuse(Reason::Invalid))?;
        if claims.get("iss").and_then(Json::as_str) != Some(&self.issuer()) {
            return Err(refuse(Reason::Invalid));
        }
        let instant = |name: &str| claims.get(name).and_then(Json::as_i64);
        let (Some(issued_at), Some(expires_at)) = (instant("iat"), instant("exp")) else {
            return Err(refuse(Reason::Invalid));
        };
        let now = self.clock().now().0.div_euclid(1_000_000);
        let early = |at: i64| at.saturating_sub(TOLERANCE_S) > now;
        if early(issued_at) || claims.contains_key("nbf") && instant("nbf").is_none_or(early) {
            return Err(refuse(Reason::Invalid));
        }
        if expires_at.saturating_add(TOLERANCE_S) <= now {
            return Err(refuse(Reason::Expired));
        }
        if known.revoked {
            return Err(refuse(Reason::KeyRevoked));
        }
        Ok(Verified { kid, claims, issued_at, expires_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jwt_has_three_filled_segments() {
        assert!(is_jwt_shaped("a.b-_.c"));
        for other in ["a.b", "a.b.c.d", "a..c", "a.b.", ".b.c", "a.b.c=", "", &"0".repeat(64)] {
            assert!(!is_jwt_shaped(other), "{other}");
        }
    }

    #[test]
    fn the_type_is_read_without_trusting_it() {
        let of = |header: &str| unverified_typ(&format!("{}.e.s", URL_SAFE_NO_PAD.encode(header)));
        assert_eq!(of(r#"{"typ":"x+jwt"}"#).as_deref(), Some("x+jwt"));
        for other in [r#"{"typ":1}"#, "{}", "[]", "{", r#""typ""#] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(unverified_typ("!.e.s"), None);
    }
}
