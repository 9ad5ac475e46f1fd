//! The delivery token: to the Action endpoint in `Nylorun-Signature`, and back as the bearer of the Action's callbacks
//! (spec: security, section 4.4; http-api, section 10.4).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nylorun_actors::model::json::{Json, JsonMap};
use sha2::{Digest as _, Sha256};

use super::tokens::{MAX_TTL_S, Reason, TokenRefusal};
use super::{IdentityError, SigningKeys};

/// `typ` of its header.
pub const DELIVERY_TYP: &str = "nylorun-delivery+jwt";

/// `sub` of a ping's token.
pub const PING: &str = "ping";

/// The largest integer that every peer reads exactly.
const SAFE_INTEGER: i64 = (1 << 53) - 1;

/// What a delivery token says.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// The endpoint's URL, exactly as registered; empty in a heartbeat's token when none is registered any more.
    pub audience: &'a str,
    /// The Action; `None` is a ping.
    pub action: Option<&'a str>,
    /// The agent.
    pub agent: &'a str,
    /// The delivery's generation; a ping has none.
    pub generation: i64,
    /// The exact request body; empty for a heartbeat's token.
    pub body: &'a [u8],
    /// Life in seconds; cut to 1 to 900.
    pub ttl_s: u64,
}

/// Who a verified delivery token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryClaims {
    /// The Action (`sub`).
    pub action_id: String,
    /// The agent (`agt`).
    pub agent_id: String,
    /// The delivery's generation (`gen`), at least 1.
    pub generation: i64,
    /// `exp`, seconds since the epoch.
    pub expires_at: i64,
    /// `jti`.
    pub token_id: String,
    /// The key that signed it.
    pub key_id: String,
}

impl SigningKeys {
    /// Signs a delivery token with the current key.
    ///
    /// # Errors
    /// The store's; the key does not open.
    pub async fn mint_delivery(&self, grant: Grant<'_>) -> Result<String, IdentityError> {
        let generation = if grant.action.is_some() { grant.generation } else { 0 };
        let mut claims = JsonMap::new();
        claims.insert("aud".to_owned(), Json::from(grant.audience));
        claims.insert("sub".to_owned(), Json::from(grant.action.unwrap_or(PING)));
        claims.insert("agt".to_owned(), Json::from(grant.agent));
        claims.insert("gen".to_owned(), Json::from(generation));
        claims.insert("bdy".to_owned(), Json::from(URL_SAFE_NO_PAD.encode(Sha256::digest(grant.body))));
        self.sign(DELIVERY_TYP, claims, grant.ttl_s).await
    }

    /// Verifies a bearer as the delivery token of a live Action. Whether that delivery is still the live one is the
    /// callback's question.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub async fn verify_delivery(&self, token: &str) -> Result<DeliveryClaims, TokenRefusal> {
        let verified = self.verify(DELIVERY_TYP, token).await?;
        let text = |name: &str| verified.claims.get(name).and_then(Json::as_str);
        let filled = |name: &str| text(name).filter(|text| !text.is_empty());
        let generation = verified.claims.get("gen").and_then(Json::as_i64);
        let life = verified.expires_at.saturating_sub(verified.issued_at);
        let lives = u64::try_from(life).is_ok_and(|life| (1..=MAX_TTL_S).contains(&life));
        let claims = || {
            Some(DeliveryClaims {
                action_id: filled("sub").filter(|sub| *sub != PING)?.to_owned(),
                agent_id: filled("agt")?.to_owned(),
                generation: generation.filter(|n| (1..=SAFE_INTEGER).contains(n))?,
                expires_at: verified.expires_at,
                token_id: filled("jti")?.to_owned(),
                key_id: verified.kid.clone(),
            })
        };
        // The audience is the endpoint, whose URL may have changed since: only its presence is asked for.
        match claims() {
            Some(claims) if lives && text("aud").is_some() => Ok(claims),
            _ => Err(TokenRefusal::Refused(Reason::Claims)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
