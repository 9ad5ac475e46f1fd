//! What a delivery token must say, and each defect of one.

use std::collections::BTreeSet;
use std::sync::Arc;

use josekit::jwk::Jwk;
use josekit::jws::{self, ES256, HS256, JwsHeader, JwsSigner};
use nylorun_actors::model::json::{encode, parse};
use nylorun_actors::ports::store::{KeyState, StoreHandle};
use nylorun_actors::rules::Refusal;
use nylorun_actors::testing::{ManualClock, MemoryStore, SeededEntropy};
use serde_json::json;

use super::*;
use crate::identity::tokens::TOKEN_BYTES;
use crate::vault::{Kek, Vault};

const URL: &str = "http://127.0.0.1:9/act?x=1";

/// A Tenant's keys over a store in memory, and a clock that a test moves.
pub(crate) struct World {
    pub clock: Arc<ManualClock>,
    pub store: StoreHandle,
    pub keys: Arc<SigningKeys>,
}

impl World {
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(clock.clone(), Arc::new(SeededEntropy::new(1))).handle();
        let keys = Arc::new(keys(&store, &clock, Kek::from_bytes([5; 32]), TENANT));
        Self { clock, store, keys }
    }

    async fn token(&self) -> String {
        self.keys.mint_delivery(grant()).await.unwrap()
    }

    async fn refused(&self, token: &str) -> &'static str {
        match self.keys.verify_delivery(token).await {
            Err(TokenRefusal::Refused(reason)) => reason.as_str(),
            Err(TokenRefusal::Store(error)) => panic!("{error}"),
            Ok(claims) => panic!("accepted {claims:?}"),
        }
    }

    /// A token with this header and these claims, signed by the current key whatever they say.
    async fn signed(&self, header: Json, claims: Json) -> String {
        let signer = self.keys.signer().await.unwrap();
        sign(&header, &claims, &signer.key)
    }

    async fn kid(&self) -> String {
        self.keys.signer().await.unwrap().kid.clone()
    }

    fn seconds(&self) -> i64 {
        use nylorun_actors::ports::Clock as _;
        self.clock.now().0 / 1_000_000
    }

    /// Claims that are good.
    fn claims(&self) -> Json {
        json!({
            "iss": self.keys.issuer(), "aud": URL, "sub": "action-1", "agt": "a", "gen": 3, "bdy": "x",
            "iat": self.seconds(), "exp": self.seconds() + 60, "jti": "j",
        })
    }
}

const TENANT: &str = "tn_00000000000000000000000000";

fn keys(store: &StoreHandle, clock: &Arc<ManualClock>, kek: Kek, tenant: &str) -> SigningKeys {
    let (vault, entropy) = (Arc::new(Vault::new(kek)), Arc::new(SeededEntropy::new(2)));
    SigningKeys::new(store.clone(), vault, tenant.into(), clock.clone(), entropy)
}

fn grant() -> Grant<'static> {
    Grant { audience: URL, action: Some("action-1"), agent: "a", generation: 3, body: b"{}", ttl_s: 60 }
}

fn part(value: &Json) -> String {
    URL_SAFE_NO_PAD.encode(encode(value))
}

fn sign(header: &Json, claims: &Json, signer: &dyn JwsSigner) -> String {
    let head = format!("{}.{}", part(header), part(claims));
    let signature = signer.sign(head.as_bytes()).unwrap();
    format!("{head}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn decoded(token: &str, at: usize) -> Json {
    parse(&URL_SAFE_NO_PAD.decode(token.split('.').nth(at).unwrap()).unwrap()).unwrap()
}

/// What an unmodified Action endpoint makes of a delivery (spec: engine, section 10.4): the claims, or why not.
pub(crate) fn endpoint_accepts(
    token: &str,
    jwks: &Json,
    (tenant, url, now): (&str, &str, i64),
    body: &[u8],
) -> Result<Json, &'static str> {
    if token.len() > 4096 {
        return Err("too long");
    }
    let header = decoded(token, 0);
    let members: BTreeSet<&str> = header.as_object().unwrap().keys().map(String::as_str).collect();
    if members != BTreeSet::from(["alg", "kid", "typ"]) {
        return Err("header members");
    }
    if header["alg"] != "ES256" || header["typ"] != "nylorun-delivery+jwt" {
        return Err("header");
    }
    let found = jwks["keys"].as_array().unwrap().iter().find(|key| key["kid"] == header["kid"]);
    let key = Jwk::from_map(found.ok_or("key_unknown")?.as_object().unwrap().clone()).unwrap();
    let verifier = ES256.verifier_from_jwk(&key).unwrap();
    let (payload, _) = jws::deserialize_compact(token, &verifier).map_err(|_| "signature")?;
    let claims = parse(&payload).unwrap();
    let (iat, exp) = (claims["iat"].as_i64().ok_or("iat")?, claims["exp"].as_i64().ok_or("exp")?);
    if claims["iss"] != json!(format!("urn:nylorun:tenant:{tenant}")) || claims["aud"] != json!(url) {
        return Err("iss or aud");
    }
    if exp + 30 <= now || iat - 30 > now || exp > now + 930 {
        return Err("time");
    }
    if claims["bdy"] != json!(URL_SAFE_NO_PAD.encode(Sha256::digest(body))) {
        return Err("body");
    }
    if !claims["sub"].is_string() || !claims["agt"].is_string() || !claims["jti"].is_string() {
        return Err("claims");
    }
    claims["gen"].as_i64().ok_or("gen")?;
    Ok(claims)
}

#[tokio::test]
async fn an_endpoint_verifies_what_we_sign_with_the_published_keys() {
    let world = World::new();
    let token = world.token().await;
    let jwks = world.keys.published().await.unwrap();
    let at = (TENANT, URL, world.seconds());
    let claims = endpoint_accepts(&token, &jwks, at, b"{}").unwrap();
    assert_eq!(
        (&claims["sub"], &claims["agt"], &claims["gen"]),
        (&json!("action-1"), &json!("a"), &json!(3))
    );
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 60);
    let names: Vec<&String> = claims.as_object().unwrap().keys().collect();
    assert_eq!(names, ["iss", "aud", "sub", "agt", "gen", "bdy", "iat", "exp", "jti"]);
    assert_eq!(endpoint_accepts(&token, &jwks, at, b"{ }"), Err("body"));
    assert_eq!(endpoint_accepts(&token, &jwks, (TENANT, "http://other", at.2), b"{}"), Err("iss or aud"));
    // Also after the key has retired.
    world.keys.rotate(false, "t").await.unwrap();
    let jwks = world.keys.published().await.unwrap();
    assert!(endpoint_accepts(&token, &jwks, at, b"{}").is_ok());
    assert!(endpoint_accepts(&world.token().await, &jwks, at, b"{}").is_ok());
    assert_ne!(decoded(&token, 0)["kid"], decoded(&world.token().await, 0)["kid"]);
}

#[tokio::test]
async fn the_header_has_exactly_alg_typ_and_kid() {
    let world = World::new();
    let header = decoded(&world.token().await, 0);
    assert_eq!(header, json!({"alg": "ES256", "typ": "nylorun-delivery+jwt", "kid": world.kid().await}));
}

#[tokio::test]
async fn a_ping_has_generation_0_and_is_no_bearer() {
    let world = World::new();
    let token = world.keys.mint_delivery(Grant { action: None, ..grant() }).await.unwrap();
    let claims = decoded(&token, 1);
    assert_eq!((&claims["sub"], &claims["gen"]), (&json!("ping"), &json!(0)));
    assert_eq!(world.refused(&token).await, "claims");
}

#[tokio::test]
async fn a_life_is_cut_to_1_to_900_seconds() {
    let world = World::new();
    for (wish, life) in [(0, 1), (1, 1), (90, 90), (900, 900), (901, 900), (u64::MAX, 900)] {
        let token = world.keys.mint_delivery(Grant { ttl_s: wish, ..grant() }).await.unwrap();
        let claims = decoded(&token, 1);
        assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), life, "{wish}");
    }
}

#[tokio::test]
async fn a_delivery_token_comes_back_as_one_action_agent_and_generation() {
    let world = World::new();
    let claims = world.keys.verify_delivery(&world.token().await).await.unwrap();
    assert_eq!(
        (claims.action_id.as_str(), claims.agent_id.as_str(), claims.generation),
        ("action-1", "a", 3)
    );
    assert_eq!((claims.expires_at, claims.key_id), (world.seconds() + 60, world.kid().await));
    assert_eq!(claims.token_id.len(), 36);
    // A heartbeat's token has no body and may have no audience.
    let grant = Grant { audience: "", body: b"", ..grant() };
    let token = world.keys.mint_delivery(grant).await.unwrap();
    assert!(world.keys.verify_delivery(&token).await.is_ok());
}

#[tokio::test]
async fn an_expired_token_is_known_as_expired_after_the_tolerance() {
    let world = World::new();
    let token = world.token().await;
    world.clock.advance_ms(89_999);
    assert!(world.keys.verify_delivery(&token).await.is_ok());
    world.clock.advance_ms(1);
    assert_eq!(world.refused(&token).await, "expired");
    // Only a token that was really signed here is told that.
    let forged = format!("{}{}", &token[..token.len() - 4], "AAAA");
    assert_eq!(world.refused(&forged).await, "invalid");
}

#[tokio::test]
async fn a_revoked_key_ends_its_tokens_at_once_and_a_retired_one_does_not() {
    let world = World::new();
    let (token, kid) = (world.token().await, world.kid().await);
    world.keys.rotate(false, "t").await.unwrap();
    assert!(world.keys.verify_delivery(&token).await.is_ok());
    world.keys.revoke(&kid, "t").await.unwrap();
    assert_eq!(world.refused(&token).await, "key_revoked");
    let forged = format!("{}{}", &token[..token.len() - 4], "AAAA");
    assert_eq!(world.refused(&forged).await, "invalid");
    let reasons = [Reason::Expired, Reason::KeyRevoked];
    assert!(Reason::ALL.iter().all(|reason| reason.is_too_old() == reasons.contains(reason)));
}

#[tokio::test]
async fn every_defect_of_a_header_is_refused_before_a_key_is_read() {
    let world = World::new();
    let kid = world.kid().await;
    let good = json!({"alg": "ES256", "typ": DELIVERY_TYP, "kid": kid});
    let with = |name: &str, value: Json| {
        let mut header = good.clone();
        header[name] = value;
        header
    };
    let mut headers = vec![
        with("alg", json!("none")),
        with("alg", json!("HS256")),
        with("alg", json!("es256")),
        with("alg", json!(["ES256"])),
        with("typ", json!("JWT")),
        with("typ", json!("nylorun-run+jwt")),
        with("typ", json!("NYLORUN-DELIVERY+JWT")),
        with("kid", json!("")),
        with("kid", json!(kid.to_uppercase())),
        with("kid", json!(format!("{kid} "))),
        with("kid", json!("../sk_0")),
        with("kid", Json::Null),
        json!({"alg": "ES256", "typ": DELIVERY_TYP}),
    ];
    for name in ["jku", "jwk", "x5u", "x5c", "x5t", "x5t#S256", "crit"] {
        headers.extend([with(name, json!("x")), with(name, Json::Null), with(name, json!([]))]);
    }
    // No key is read: a closed store would say so.
    let tokens: Vec<String> = {
        let mut tokens = Vec::new();
        for header in headers {
            tokens.push(world.signed(header, world.claims()).await);
        }
        tokens
    };
    world.store.store().close();
    for token in tokens {
        assert_eq!(world.refused(&token).await, "header", "{}", decoded(&token, 0));
    }
}

#[tokio::test]
async fn what_is_no_jwt_or_too_long_is_refused_before_a_key_is_read() {
    let world = World::new();
    let good = world.token().await;
    let mut claims = world.claims();
    claims["pad"] = json!("x".repeat(TOKEN_BYTES));
    let long = world.signed(decoded(&good, 0), claims).await;
    assert!(long.len() > TOKEN_BYTES);
    world.store.store().close();
    let (head, _) = good.rsplit_once('.').unwrap();
    let not_an_object = format!("{}.e30.e30", URL_SAFE_NO_PAD.encode("[]"));
    for bad in
        ["", "a.b", "a.b.c.d", "e30=.e30.e30", "!.e30.e30", &long, &not_an_object, &format!("{head}.A")]
    {
        assert_eq!(world.refused(bad).await, "malformed", "{bad}");
    }
    let closed = world.keys.verify_delivery(&good).await;
    assert!(matches!(closed, Err(TokenRefusal::Store(_))), "{closed:?}");
}

#[tokio::test]
async fn a_longest_token_is_taken_and_one_byte_more_is_not() {
    let world = World::new();
    let header = json!({"alg": "ES256", "typ": DELIVERY_TYP, "kid": world.kid().await});
    let mut accepted = 0;
    for pad in 0..TOKEN_BYTES {
        let mut claims = world.claims();
        claims["pad"] = json!("x".repeat(pad));
        if part(&claims).len() + part(&header).len() + 2 + 86 < TOKEN_BYTES - 2 {
            continue;
        }
        let token = world.signed(header.clone(), claims).await;
        match world.keys.verify_delivery(&token).await {
            Ok(_) => accepted = token.len(),
            Err(_) => {
                assert!(token.len() > TOKEN_BYTES, "{}", token.len());
                break;
            }
        }
    }
    assert!((TOKEN_BYTES - 2..=TOKEN_BYTES).contains(&accepted), "{accepted}");
}

#[tokio::test]
async fn a_signature_by_anything_but_the_named_key_is_refused() {
    let world = World::new();
    let good = world.token().await;
    let header = decoded(&good, 0);
    let (head, _) = good.rsplit_once('.').unwrap();
    // Signatures that are none, among them those that a library might stumble over.
    for bytes in [vec![0; 64], vec![255; 64], vec![0; 63], vec![1; 65], vec![9]] {
        let token = format!("{head}.{}", URL_SAFE_NO_PAD.encode(&bytes));
        assert_eq!(world.refused(&token).await, "invalid", "{bytes:?}");
    }
    // HMAC keyed by the public key, under the header of an ES256 token and under its own.
    let published = world.keys.published().await.unwrap();
    let secret = encode(&published["keys"][0]);
    let hmac = HS256.signer_from_bytes(secret.as_bytes()).unwrap();
    assert_eq!(world.refused(&sign(&header, &world.claims(), &hmac)).await, "invalid");
    let mut own = header.clone();
    own["alg"] = json!("HS256");
    assert_eq!(world.refused(&sign(&own, &world.claims(), &hmac)).await, "header");
    // Another key of the same kind.
    let other = ES256.generate_key_pair().unwrap();
    let other = ES256.signer_from_jwk(&other.to_jwk_key_pair()).unwrap();
    assert_eq!(world.refused(&sign(&header, &world.claims(), &other)).await, "invalid");
    // Changed claims.
    let mut claims = decoded(&good, 1);
    claims["gen"] = json!(4);
    let signature = good.rsplit('.').next().unwrap();
    assert_eq!(world.refused(&format!("{}.{}.{signature}", part(&header), part(&claims))).await, "invalid");
    // The standby key is ours, and it verifies; the kid must be its own.
    let kids = published["keys"].as_array().unwrap().iter().map(|key| key["kid"].clone());
    let standby = kids.into_iter().find(|kid| *kid != header["kid"]).unwrap();
    let mut own = header;
    own["kid"] = standby;
    assert_eq!(world.refused(&world.signed(own, world.claims()).await).await, "invalid");
}

#[tokio::test]
async fn an_unknown_kid_and_another_tenants_token_are_refused() {
    let world = World::new();
    let header = json!({"alg": "ES256", "typ": DELIVERY_TYP, "kid": format!("sk_{}", "7".repeat(26))});
    assert_eq!(world.refused(&world.signed(header, world.claims()).await).await, "key_unknown");
    // A Tenant with another store, and one that would share ours.
    let other = World::new();
    other.clock.advance_ms(1);
    assert_eq!(world.refused(&other.token().await).await, "key_unknown");
    let header = json!({"alg": "ES256", "typ": DELIVERY_TYP, "kid": world.kid().await});
    for issuer in ["urn:nylorun:tenant:tn_10000000000000000000000000", "", "urn:nylorun:tenant:"] {
        let mut claims = world.claims();
        claims["iss"] = json!(issuer);
        assert_eq!(world.refused(&world.signed(header.clone(), claims).await).await, "invalid");
    }
}

#[tokio::test]
async fn every_claim_is_required_and_has_its_kind() {
    let world = World::new();
    let header = json!({"alg": "ES256", "typ": DELIVERY_TYP, "kid": world.kid().await});
    let now = world.seconds();
    assert!(world.keys.verify_delivery(&world.signed(header.clone(), world.claims()).await).await.is_ok());
    let cases = [
        ("sub", json!("ping"), "claims"),
        ("sub", json!(""), "claims"),
        ("sub", json!(1), "claims"),
        ("agt", json!(""), "claims"),
        ("agt", json!(["a"]), "claims"),
        ("gen", json!(0), "claims"),
        ("gen", json!(-1), "claims"),
        ("gen", json!(1.5), "claims"),
        ("gen", json!("1"), "claims"),
        ("gen", json!(1_i64 << 53), "claims"),
        ("jti", json!(""), "claims"),
        ("aud", json!(1), "claims"),
        ("exp", json!(now + 901), "claims"),
        ("exp", json!(now), "claims"),
        ("exp", json!(now - 29), "claims"),
        ("exp", json!(f64::from(2_000_000_000)), "invalid"),
        ("iat", json!("now"), "invalid"),
        ("iat", json!(now + 31), "invalid"),
        ("nbf", json!(now + 31), "invalid"),
        ("nbf", json!("x"), "invalid"),
    ];
    for (name, value, reason) in cases {
        let mut claims = world.claims();
        claims[name] = value.clone();
        let token = world.signed(header.clone(), claims).await;
        assert_eq!(world.refused(&token).await, reason, "{name}: {value}");
    }
    for name in ["iss", "aud", "sub", "agt", "gen", "iat", "exp", "jti"] {
        let mut claims = world.claims();
        claims.as_object_mut().unwrap().shift_remove(name);
        let reason = world.refused(&world.signed(header.clone(), claims).await).await;
        assert!(reason == "claims" || reason == "invalid", "{name}: {reason}");
    }
}

#[tokio::test]
async fn a_private_half_opens_only_under_the_key_and_for_the_tenant_that_sealed_it() {
    let world = World::new();
    world.token().await;
    for foreign in [
        keys(&world.store, &world.clock, Kek::from_bytes([6; 32]), TENANT),
        keys(&world.store, &world.clock, Kek::from_bytes([5; 32]), "tn_10000000000000000000000000"),
    ] {
        let error = foreign.mint_delivery(grant()).await.unwrap_err();
        assert!(matches!(error, IdentityError::Sealed(_)), "{error}");
    }
    // Nothing of it is readable in its row.
    let rows: Result<_, Refusal> = world.store.read(|r| Ok(r.signing_keys()?)).await;
    for row in rows.unwrap() {
        assert!(!String::from_utf8_lossy(&row.ciphertext).contains("PRIVATE KEY"));
        assert!(!row.public_jwk.as_str().contains(r#""d""#));
    }
}

#[tokio::test]
async fn a_rotation_signs_with_the_new_key_at_once_also_in_another_process() {
    let world = World::new();
    let other = keys(&world.store, &world.clock, Kek::from_bytes([5; 32]), TENANT);
    assert_eq!(decoded(&other.mint_delivery(grant()).await.unwrap(), 0)["kid"], json!(world.kid().await));
    let rows = world.keys.rotate(false, "t").await.unwrap();
    let current = rows.iter().find(|row| row.state == KeyState::Current).unwrap();
    for keys in [&*world.keys, &other] {
        let token = keys.mint_delivery(grant()).await.unwrap();
        assert_eq!(decoded(&token, 0)["kid"], json!(current.id));
        assert!(keys.verify_delivery(&token).await.is_ok());
    }
}

/// Keeps the type of a header's builder in sight: nothing of ours depends on what the library adds by itself.
#[test]
fn the_library_adds_nothing_to_a_header() {
    let mut header = JwsHeader::new();
    header.set_token_type("x");
    assert_eq!(header.claims_set().len(), 1);
}
