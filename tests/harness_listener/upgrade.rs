//! Who may connect: every check in its order with its exact answer (spec: harness-api, section 2).

use std::net::SocketAddr;

use nylorun::harness_api::PATH;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::peer::{Got, OLD_TOKEN, PATIENCE, Peer, TOKEN, head, request};
use super::world::{World, listener, state};

/// Sets a header, or takes it out with an empty value.
fn set(headers: &mut Vec<(String, String)>, name: &str, value: &str) {
    headers.retain(|(known, _)| known != name);
    if !value.is_empty() {
        headers.push((name.to_owned(), value.to_owned()));
    }
}

/// The status of an upgrade with these headers set, after a look at what every refusal has.
async fn status(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let head = head(address, path, |all| headers.iter().for_each(|(name, value)| set(all, name, value)));
    answered(address, &head).await
}

async fn answered(address: SocketAddr, head: &str) -> (u16, String) {
    let (answer, mut stream) = request(address, head).await;
    let status: u16 = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let answer = answer.to_ascii_lowercase();
    if status != 101 {
        // With `Upgrade` the header names that, too (RFC 9110, section 7.8).
        let upgrade = answer.contains("\r\nupgrade: ");
        let closes = if upgrade { "close, upgrade" } else { "close" };
        assert!(answer.contains(&format!("\r\nconnection: {closes}\r\n")), "{answer}");
        assert!(answer.contains("\r\ncontent-length: 0\r\n"), "{answer}");
        let mut rest = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("the socket ends").unwrap();
        assert!(rest.is_empty(), "a refusal has no body: {rest:?}");
    }
    (status, answer)
}

#[actix_web::test]
async fn each_check_of_an_upgrade_has_its_answer_and_its_place() {
    let world = World::start().await;
    let at = world.address;
    let wrong = "c".repeat(64);
    let bad_token = format!("Bearer {wrong}");
    let all_wrong = [("Host", "evil.example"), ("Authorization", &*bad_token), ("Nylorun-Harness-Api", "2")];

    for path in
        ["/", "/nylorun/harness/v1/", "/nylorun/harness/v2", "/v1/sessions", "/nylorun/harness/v1/host/join"]
    {
        assert_eq!(status(at, path, &all_wrong).await.0, 404, "the path comes first: {path}");
        assert_eq!(status(at, path, &[]).await.0, 404, "{path}");
    }
    for host in ["evil.example", "127.0.0.1", "127.0.0.1:1"] {
        let (code, _) = status(at, PATH, &[("Host", host), all_wrong[1], all_wrong[2]]).await;
        assert_eq!(code, 421, "the name comes before the credential: {host}");
    }
    // No request at all without a name (RFC 9112, section 3.2).
    assert_eq!(status(at, PATH, &[("Host", "")]).await.0, 400);
    for credential in ["", &bad_token, "Bearer", "Basic abc", TOKEN, &format!("Bearer {TOKEN} x")] {
        let (code, answer) = status(at, PATH, &[("Authorization", credential), all_wrong[2]]).await;
        assert_eq!(code, 401, "the credential comes before the version: {credential}");
        assert!(answer.contains("\r\nwww-authenticate: bearer\r\n"), "{answer}");
    }
    for version in ["", "0", "2", "1.0", "01", "1, 1"] {
        let (code, answer) = status(at, PATH, &[("Nylorun-Harness-Api", version)]).await;
        assert_eq!(code, 426, "{version}");
        assert!(answer.contains("\r\nnylorun-harness-api: 1\r\n"), "{answer}");
    }
    let (code, _) = status(at, PATH, &[("Sec-WebSocket-Key", "")]).await;
    assert_eq!(code, 400, "all is well but the WebSocket itself");
    assert_eq!(world.listener.connections(), 0);
}

#[actix_web::test]
async fn a_good_upgrade_is_accepted_without_protocol_or_extension() {
    let world = World::start().await;
    let at = world.address;
    let asks = [("Sec-WebSocket-Extensions", "permessage-deflate"), ("Sec-WebSocket-Protocol", "x")];
    let (code, answer) = status(at, PATH, &asks).await;
    assert_eq!(code, 101);
    // The example of RFC 6455, section 1.3.
    assert!(answer.contains("\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{answer}");
    assert!(answer.contains("\r\nupgrade: websocket\r\n"), "{answer}");
    assert!(!answer.contains("sec-websocket-extensions") && !answer.contains("sec-websocket-protocol"));
    // For harnesses of ours; others do not look for it.
    assert!(answer.contains("\r\nnylorun-harness-ordered: 1\r\n"), "{answer}");

    let upper = format!("LOCALHOST:{}", at.port());
    let loopback6 = format!("[::1]:{}", at.port());
    for good in [
        ("Host", upper.as_str()),
        ("Host", &loopback6),
        ("Host", "core.internal:4200"),
        ("Authorization", &format!("bearer   {TOKEN}  ")),
        ("Connection", "keep-alive, upgrade"),
        ("Upgrade", "WebSocket"),
    ] {
        assert_eq!(status(at, PATH, &[good]).await.0, 101, "{good:?}");
    }
    assert_eq!(status(at, "/nylorun/harness/v1?x=1", &[]).await.0, 101, "the query is ignored");
}

#[actix_web::test]
async fn two_tokens_open_the_listener_while_one_replaces_the_other() {
    let world = World::start().await;
    for token in [TOKEN, OLD_TOKEN] {
        let bearer = format!("Bearer {token}");
        assert_eq!(status(world.address, PATH, &[("Authorization", &bearer)]).await.0, 101);
    }
    let both = format!("Bearer {TOKEN},{OLD_TOKEN}");
    assert_eq!(status(world.address, PATH, &[("Authorization", &both)]).await.0, 401);
}

#[actix_web::test]
async fn plain_http_is_told_to_upgrade() {
    let world = World::start().await;
    for line in [
        "GET /nylorun/harness/v1",
        "GET /",
        "POST /nylorun/harness/v1/host/join",
        "POST /nylorun/harness/v1/host/renew",
        "DELETE /v1/sessions/x",
    ] {
        let head = format!("{line} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        let (code, answer) = answered(world.address, &head).await;
        assert_eq!(code, 426, "{line}");
        assert!(answer.contains("\r\nupgrade: websocket\r\n"), "{answer}");
    }
}

#[actix_web::test]
async fn without_an_open_tenant_there_is_503_after_every_other_check() {
    let state = state();
    let (listener, at) = listener(&state, 10, &[]);
    assert_eq!(status(at, PATH, &[]).await.0, 503);
    assert_eq!(status(at, PATH, &[("Nylorun-Harness-Api", "")]).await.0, 426);
    assert_eq!(status(at, PATH, &[("Authorization", "")]).await.0, 401);
    listener.stop().await;
}

#[actix_web::test]
async fn a_connection_over_the_cap_is_refused_until_a_place_is_free() {
    let world = World::start().await;
    let (small, at) = listener(&world.state, 1, &[]);
    let mut first = Peer::ready(at).await;
    assert_eq!(status(at, PATH, &[]).await.0, 503);
    assert_eq!(status(at, PATH, &[("Authorization", "")]).await.0, 401, "strangers learn nothing of it");
    first.frame(0x88, &1000_u16.to_be_bytes()).await;
    assert_eq!(first.end().await, Some((1000, String::new())));
    while small.connections() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    Peer::ready(at).await;
    small.stop().await;
}

#[actix_web::test]
async fn a_core_that_stops_says_so_and_ends_those_that_do_not_answer() {
    let world = World::start().await;
    let (mut polite, mut rude) = (Peer::ready(world.address).await, Peer::ready(world.address).await);
    let World { listener, address, .. } = world;
    let began = tokio::time::Instant::now();
    let stopped = actix_web::rt::spawn(listener.stop());
    assert_eq!(polite.end().await, Some((1001, "core is stopping".to_owned())));
    assert_eq!(rude.receive().await, Got::Close(1001, "core is stopping".to_owned()));
    assert_eq!(rude.receive().await, Got::Gone, "it never answered the close");
    stopped.await.unwrap();
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nothing listens any more");
}
