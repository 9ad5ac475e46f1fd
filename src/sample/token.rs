//! The delivery token in `Nylorun-Signature`, checked as the endpoint's side of the contract says
//! (spec: engine, section 10.4; http-api, section 10.4).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use josekit::jws::JwsVerifier as _;
use nylorun_actors::model::json::{Json, JsonMap, parse};
use sha2::{Digest as _, Sha256};

use super::keys::Keys;

/// The longest token that is looked at, characters.
const CHARS: usize = 4096;
/// The furthest that a token may expire ahead, seconds.
const AHEAD_S: i64 = 900;
/// How far the clocks of Runtime and endpoint may be apart, seconds.
const SKEW_S: i64 = 30;
/// `typ` of its header.
const TYP: &str = "nylorun-delivery+jwt";

/// What a good token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// `sub`: the Action's id, or `ping`.
    pub subject: String,
    /// `agt`.
    pub agent: String,
    /// `gen`: which delivery; 0 for a ping.
    pub generation: i64,
}

/// Why a delivery is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no token.
    Missing,
    /// It is none of this Tenant, or not for this endpoint, or not for this body.
    Invalid,
    /// It was good once.
    Expired,
    /// The Tenant publishes no such key now: it may be new, so the delivery is welcome later.
    KeyUnknown,
}

/// What a token must fit.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// `urn:nylorun:tenant:<id>`.
    pub issuer: &'a str,
    /// The endpoint's URL, exactly as it is registered.
    pub audience: &'a str,
    /// The exact body.
    pub body: &'a [u8],
    /// Seconds since the epoch.
    pub now: i64,
}

/// Checks a token: shape and header before any key, the signature before any claim.
///
/// # Errors
/// [`Refused`].
pub async fn verify(token: Option<&str>, keys: &Keys, expected: Expected<'_>) -> Result<Claims, Refused> {
    let token = token.ok_or(Refused::Missing)?;
    let parts = Parts::of(token).ok_or(Refused::Invalid)?;
    let key = keys.get(&parts.kid).await.ok_or(Refused::KeyUnknown)?;
    key.verify(parts.signed.as_bytes(), &parts.signature).map_err(|_| Refused::Invalid)?;
    claims(&parts.claims, expected)
}

struct Parts<'a> {
    signed: &'a str,
    kid: String,
    claims: JsonMap,
    signature: Vec<u8>,
}

impl<'a> Parts<'a> {
    fn of(token: &'a str) -> Option<Self> {
        if token.len() > CHARS {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header = object(header)?;
        // Exactly these members: any other could name another key, or change what is signed.
        let is = |name: &str, value: &str| header.get(name).and_then(Json::as_str) == Some(value);
        let kid = header.get("kid").and_then(Json::as_str)?.to_owned();
        if header.len() != 3 || !is("alg", "ES256") || !is("typ", TYP) {
            return None;
        }
        Some(Self {
            signed,
            kid,
            claims: object(claims)?,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        })
    }
}

fn object(segment: &str) -> Option<JsonMap> {
    match parse(&URL_SAFE_NO_PAD.decode(segment).ok()?) {
        Ok(Json::Object(map)) => Some(map),
        _ => None,
    }
}

fn claims(claims: &JsonMap, expected: Expected<'_>) -> Result<Claims, Refused> {
    let text = |name: &str| claims.get(name).and_then(Json::as_str).ok_or(Refused::Invalid);
    let number = |name: &str| claims.get(name).and_then(Json::as_i64).ok_or(Refused::Invalid);
    let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(expected.body));
    let ours = text("iss")? == expected.issuer && text("aud")? == expected.audience && text("bdy")? == hash;
    let (expires, issued) = (number("exp")?, number("iat")?);
    let late = expires.saturating_sub(expected.now) > AHEAD_S + SKEW_S;
    if !ours || late || issued.saturating_sub(expected.now) > SKEW_S || text("jti")?.is_empty() {
        return Err(Refused::Invalid);
    }
    if expires.saturating_add(SKEW_S) <= expected.now {
        return Err(Refused::Expired);
    }
    let read = Claims {
        subject: text("sub")?.to_owned(),
        agent: text("agt")?.to_owned(),
        generation: number("gen")?,
    };
    if read.subject.is_empty() || read.agent.is_empty() || read.generation < 0 {
        return Err(Refused::Invalid);
    }
    Ok(read)
}

#[cfg(test)]
mod tests;
