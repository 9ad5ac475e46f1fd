//! Against real sockets on 127.0.0.1, each served by a script of its own.

mod answers;
mod failures;
mod peer;
mod reuse;

use std::time::Duration;

use nylorun_actors::ports::clock::Clock as _;

use self::peer::Peer;
use super::*;
use crate::identity::delivery::tests::{World, endpoint_accepts};

const TENANT: &str = "tn_00000000000000000000000000";

/// A delivery of `{}`-like size to this URL.
fn delivery(url: &str) -> Delivery {
    Delivery {
        url: url.into(),
        agent: "a".into(),
        action: Some("turn:1:tool".into()),
        generation: 3,
        body: r#"{"type":"action"}"#.into(),
        timeout: Duration::from_secs(20),
        token_ttl_s: 80,
    }
}

fn large(url: &str, bytes: usize) -> Delivery {
    Delivery { body: format!("\"{}\"", "x".repeat(bytes)).into(), ..delivery(url) }
}

fn transport(policy: OutboundPolicy) -> HttpTransport {
    HttpTransport::new(policy, World::new().keys)
}

fn open() -> HttpTransport {
    transport(OutboundPolicy::default())
}

/// `NotSent CONNECT`, `Lost RESET`, `Response 200`, `TooLarge 200`.
fn told(answered: &Answered) -> String {
    match answered {
        Answered::Response { status, .. } => format!("Response {status}"),
        Answered::TooLarge { status } => format!("TooLarge {status}"),
        Answered::NotSent { code, .. } => format!("NotSent {code}"),
        Answered::Lost { code, .. } => format!("Lost {code}"),
    }
}

#[tokio::test]
async fn an_endpoint_gets_the_body_and_exactly_these_headers() {
    let world = World::new();
    let transport = HttpTransport::new(OutboundPolicy::default(), world.keys.clone());
    let peer = Peer::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    let url = peer.url("/act?x=1");
    let sent = delivery(&url);
    assert_eq!(told(&transport.post(sent.clone()).await), "Response 200");
    let ping = Delivery { action: None, generation: 0, body: r#"{"type":"ping"}"#.into(), ..sent.clone() };
    assert_eq!(told(&transport.post(ping.clone()).await), "Response 200");

    let seen = peer.requests();
    let jwks = world.keys.published().await.unwrap();
    let now = world.clock.now().0 / 1_000_000;
    for (request, sent, key) in [(&seen[0], &sent, Some("turn:1:tool")), (&seen[1], &ping, None)] {
        assert_eq!(request.line, "POST /act?x=1 HTTP/1.1");
        assert_eq!(request.body, sent.body.as_bytes());
        let token = request.header("nylorun-signature").unwrap();
        let claims = endpoint_accepts(token, &jwks, (TENANT, &url, now), sent.body.as_bytes()).unwrap();
        assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 80);
        assert_eq!(claims["gen"], sent.generation);
        assert_eq!(request.header("idempotency-key"), key);
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("content-length"), Some(sent.body.len().to_string().as_str()));
        assert_eq!(request.header("nylorun-protocol"), Some("7"));
        assert_eq!(request.header("host"), Some(peer.address.to_string().as_str()));
        let mut names: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        // `accept: */*` says nothing; the HTTP library will not leave it out.
        let mut expected = vec!["accept", "content-length", "content-type", "host"];
        expected.extend(key.map(|_| "idempotency-key"));
        expected.extend(["nylorun-protocol", "nylorun-signature"]);
        assert_eq!(names, expected);
    }
}

#[tokio::test]
async fn a_url_is_judged_by_the_policy_before_it_is_registered() {
    let transport = transport(OutboundPolicy { http: false, ..OutboundPolicy::default() });
    assert_eq!(transport.check_url("https://a.test/x"), Ok(()));
    assert!(transport.check_url("http://a.test/x").is_err());
    assert!(transport.check_url("https://169.254.169.254/").is_err());
    assert_eq!(told(&transport.post(delivery("http://127.0.0.1:1/")).await), "NotSent URL");
}

#[tokio::test]
async fn loopback_in_a_container_is_its_host_and_keeps_its_name() {
    let policy = OutboundPolicy { docker_host: true, ..OutboundPolicy::default() };
    let lookup = |name: String| -> BoxFuture<'static, std::io::Result<Vec<std::net::IpAddr>>> {
        assert_eq!(name, "host.docker.internal");
        Box::pin(async { Ok(vec!["127.0.0.1".parse().unwrap()]) })
    };
    let transport = HttpTransport::over(policy, World::new().keys, Arc::new(lookup));
    let peer = Peer::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let port = peer.address.port();
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        let url = format!("http://{host}:{port}/");
        assert_eq!(told(&transport.post(delivery(&url)).await), "Response 200");
        let seen = peer.requests();
        assert_eq!(seen.last().unwrap().header("host"), Some(format!("{host}:{port}").as_str()));
    }
}
