//! Each defect of a delivery token that the sample endpoint refuses, and when it fetches keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use josekit::jwk::KeyPair as _;
use josekit::jwk::alg::ec::EcKeyPair;
use josekit::jws::{ES256, JwsSigner as _};
use nylorun_actors::model::json::encode;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

const BODY: &[u8] = br#"{"type":"ping","agentId":"orders"}"#;
const NOW: i64 = 1_800_000_000;
const KID: &str = "sk_00000000000000000000000001";

/// A Runtime that answers every request with one set of keys.
struct Runtime {
    pair: EcKeyPair,
    keys: Keys,
    fetches: Arc<AtomicUsize>,
}

impl Runtime {
    async fn start() -> Self {
        let pair = ES256.generate_key_pair().unwrap();
        let mut jwk = pair.to_jwk_public_key();
        jwk.set_key_id(KID);
        jwk.set_algorithm("ES256");
        let set = format!(r#"{{"keys":[{{"kty":"oct","kid":"x","k":"AA"}},{jwk}]}}"#);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let fetches = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&fetches);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut head = [0; 4096];
                let read = socket.read(&mut head).await.unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..read]).to_ascii_lowercase();
                assert!(
                    head.starts_with("get /v1/access/jwks ") && head.contains("nylorun-protocol: 7"),
                    "{head}"
                );
                count.fetch_add(1, Ordering::SeqCst);
                let head =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", set.len());
                let _ = socket.write_all(format!("{head}{set}").as_bytes()).await;
            }
        });
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { pair, keys: Keys::of(&url, http), fetches }
    }

    fn sign(&self, header: &Json, claims: &Json) -> String {
        let part = |value: &Json| URL_SAFE_NO_PAD.encode(encode(value));
        let signed = format!("{}.{}", part(header), part(claims));
        let signer = ES256.signer_from_jwk(&self.pair.to_jwk_key_pair()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signer.sign(signed.as_bytes()).unwrap()))
    }

    async fn judge(&self, token: &str) -> Result<Claims, Refused> {
        verify(Some(token), &self.keys, expected()).await
    }
}

fn expected() -> Expected<'static> {
    Expected { issuer: "urn:nylorun:tenant:tn_1", audience: "http://me/actions?x=1", body: BODY, now: NOW }
}

fn header() -> Json {
    json!({ "alg": "ES256", "typ": "nylorun-delivery+jwt", "kid": KID })
}

fn good() -> Json {
    json!({
        "iss": "urn:nylorun:tenant:tn_1", "aud": "http://me/actions?x=1", "sub": "ping", "agt": "orders", "gen": 0,
        "bdy": URL_SAFE_NO_PAD.encode(Sha256::digest(BODY)), "iat": NOW, "exp": NOW + 60, "jti": "j",
    })
}

#[tokio::test]
async fn a_good_token_says_what_it_is_for_and_the_keys_are_fetched_once() {
    let runtime = Runtime::start().await;
    for _ in 0..3 {
        let claims = runtime.judge(&runtime.sign(&header(), &good())).await.unwrap();
        assert_eq!(
            (claims.subject.as_str(), claims.agent.as_str(), claims.generation),
            ("ping", "orders", 0)
        );
    }
    assert_eq!(runtime.fetches.load(Ordering::SeqCst), 1);
    assert_eq!(verify(None, &runtime.keys, expected()).await, Err(Refused::Missing));
}

#[tokio::test]
async fn each_defect_of_a_header_is_refused_before_any_key_is_fetched() {
    let runtime = Runtime::start().await;
    for (name, value) in [
        ("alg", json!("none")),
        ("alg", json!("HS256")),
        ("typ", json!("JWT")),
        ("kid", json!(7)),
        ("jwk", json!({})),
        ("crit", json!([])),
        ("x5t#S256", json!("a")),
        ("cty", json!("a")),
    ] {
        let mut bad = header();
        bad[name] = value;
        assert_eq!(runtime.judge(&runtime.sign(&bad, &good())).await, Err(Refused::Invalid), "{name}");
    }
    for junk in ["", "a", "a.b", "a.b.c", "e30.e30.", &"a.".repeat(3000)] {
        assert_eq!(runtime.judge(junk).await, Err(Refused::Invalid), "{junk}");
    }
    assert_eq!(runtime.fetches.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn each_claim_must_fit_this_endpoint_this_body_and_this_moment() {
    let runtime = Runtime::start().await;
    for (name, value) in [
        ("iss", json!("urn:nylorun:tenant:tn_2")),
        ("aud", json!("http://me/actions")),
        ("bdy", json!(URL_SAFE_NO_PAD.encode(Sha256::digest(b"other")))),
        ("exp", json!(NOW + 900 + 31)),
        ("iat", json!(NOW + 31)),
        ("sub", json!("")),
        ("agt", json!(null)),
        ("gen", json!(-1)),
        ("jti", json!("")),
    ] {
        let mut bad = good();
        bad[name] = value;
        assert_eq!(runtime.judge(&runtime.sign(&header(), &bad)).await, Err(Refused::Invalid), "{name}");
    }
    for (ahead, verdict) in [(-29, Ok(())), (-30, Err(Refused::Expired)), (930, Ok(()))] {
        let mut aged = good();
        aged["exp"] = json!(NOW + ahead);
        assert_eq!(runtime.judge(&runtime.sign(&header(), &aged)).await.map(|_| ()), verdict, "{ahead}");
    }
}

#[tokio::test]
async fn another_signature_is_invalid_and_another_key_is_unknown_with_one_fetch_in_five_seconds() {
    let runtime = Runtime::start().await;
    let mut token = runtime.sign(&header(), &good());
    let last = token.pop().unwrap();
    token.push(if last == 'A' { 'Q' } else { 'A' });
    assert_eq!(runtime.judge(&token).await, Err(Refused::Invalid));
    let mut other = header();
    other["kid"] = json!("sk_00000000000000000000000002");
    let token = runtime.sign(&other, &good());
    let all = (0..20).map(|_| runtime.judge(&token));
    for verdict in futures_util::future::join_all(all).await {
        assert_eq!(verdict, Err(Refused::KeyUnknown));
    }
    assert_eq!(runtime.fetches.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn many_deliveries_at_once_wait_for_one_fetch() {
    let runtime = Runtime::start().await;
    let token = runtime.sign(&header(), &good());
    for verdict in futures_util::future::join_all((0..20).map(|_| runtime.judge(&token))).await {
        assert!(verdict.is_ok());
    }
    assert_eq!(runtime.fetches.load(Ordering::SeqCst), 1);
}
