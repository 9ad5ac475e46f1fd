//! The capability link: whoever has it may read one version of an artifact, or one file of a folder, for a while
//! (spec: security, section 4; http-api, section 12).

use nylorun_actors::model::artifact::is_artifact_id;
use nylorun_actors::model::json::{Json, JsonMap};

use super::tokens::{MAX_TTL_S, Reason, TOKEN_BYTES, TokenRefusal, expiry};
use super::{IdentityError, SigningKeys};

/// `typ` of its header.
pub const LINK_TYP: &str = "nylorun-artifact+jwt";
/// `aud` of its claims.
pub const LINK_AUDIENCE: &str = "nylorun-artifact";

/// What a link lets its holder read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkClaims {
    /// The artifact (`sub`).
    pub artifact_id: String,
    /// Its version (`ver`), at least 1.
    pub version: i64,
    /// One file of a folder (`path`); without it a folder's archive.
    pub path: Option<String>,
}

impl SigningKeys {
    /// Signs a link with the current key; answers it and its `exp`. `None`: it would be longer than a token that is looked
    /// at.
    ///
    /// # Errors
    /// The store's; the key does not open.
    pub async fn mint_link(
        &self,
        link: &LinkClaims,
        ttl_s: u64,
    ) -> Result<Option<(String, i64)>, IdentityError> {
        let mut claims = JsonMap::new();
        claims.insert("aud".to_owned(), Json::from(LINK_AUDIENCE));
        claims.insert("sub".to_owned(), Json::from(link.artifact_id.as_str()));
        claims.insert("ver".to_owned(), Json::from(link.version));
        if let Some(path) = &link.path {
            claims.insert("path".to_owned(), Json::from(path.as_str()));
        }
        let token = self.sign(LINK_TYP, claims, ttl_s).await?;
        let expires = expiry(&token).ok_or(IdentityError::Library("sign a token"))?;
        Ok((token.len() <= TOKEN_BYTES).then_some((token, expires)))
    }

    /// Verifies a link. Whether the artifact is still there is the route's question.
    ///
    /// # Errors
    /// [`TokenRefusal`].
    pub async fn verify_link(&self, token: &str) -> Result<LinkClaims, TokenRefusal> {
        let verified = self.verify(LINK_TYP, token).await?;
        let claims = &verified.claims;
        let text = |name: &str| claims.get(name).and_then(Json::as_str).filter(|text| !text.is_empty());
        let life = verified.expires_at.saturating_sub(verified.issued_at);
        let lives = u64::try_from(life).is_ok_and(|life| (1..=MAX_TTL_S).contains(&life));
        let path = match claims.get("path") {
            None => Some(None),
            Some(_) => text("path").map(|path| Some(path.to_owned())),
        };
        let link = || {
            Some(LinkClaims {
                artifact_id: text("sub").filter(|sub| is_artifact_id(sub))?.to_owned(),
                version: claims.get("ver").and_then(Json::as_i64).filter(|version| *version >= 1)?,
                path: path?,
            })
        };
        match link() {
            Some(link) if lives && text("aud") == Some(LINK_AUDIENCE) && text("jti").is_some() => Ok(link),
            _ => Err(TokenRefusal::Refused(Reason::Claims)),
        }
    }
}
