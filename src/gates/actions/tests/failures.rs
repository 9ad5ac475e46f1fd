//! What cannot have acted is `NotSent`, what may have is `Lost`.

use std::net::{IpAddr, TcpListener};
use std::time::Instant;

use tokio::sync::Notify;

use super::*;

type Found = BoxFuture<'static, std::io::Result<Vec<IpAddr>>>;

fn named(policy: OutboundPolicy, lookup: impl Fn(String) -> Found + Send + Sync + 'static) -> HttpTransport {
    HttpTransport::over(policy, World::new().keys, Arc::new(lookup))
}

#[tokio::test]
async fn a_refused_port_is_not_sent() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let answered = open().post(delivery(&format!("http://{closed}/"))).await;
    assert_eq!(told(&answered), "NotSent CONNECT");
}

#[tokio::test]
async fn a_name_without_an_address_is_not_sent() {
    let transport =
        named(OutboundPolicy::default(), |_| Box::pin(async { Err(std::io::Error::other("none")) }));
    assert_eq!(told(&transport.post(delivery("http://nowhere.test/")).await), "NotSent DNS");
    let transport = named(OutboundPolicy::default(), |_| Box::pin(async { Ok(Vec::new()) }));
    assert_eq!(told(&transport.post(delivery("http://nowhere.test/")).await), "NotSent DNS");
}

#[tokio::test]
async fn a_refused_address_is_not_sent_and_nobody_is_dialled() {
    let peer = Peer::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let closed = OutboundPolicy { private: false, ..OutboundPolicy::default() };
    let local = |_| -> Found { Box::pin(async { Ok(vec!["127.0.0.1".parse().unwrap()]) }) };
    let port = peer.address.port();
    for (transport, url) in [
        (transport(closed), peer.url("/")),
        (transport(closed), format!("http://[::ffff:127.0.0.1]:{port}/")),
        (named(closed, local), format!("http://public.test:{port}/")),
        (open(), "http://169.254.169.254/latest/meta-data".to_owned()),
        (
            named(OutboundPolicy::default(), |_| Box::pin(async { Ok(vec!["fe80::1".parse().unwrap()]) })),
            "http://link.test/".to_owned(),
        ),
    ] {
        assert_eq!(
            told(&transport.post(delivery(&url)).await),
            format!("NotSent {ADDRESS_REFUSED}"),
            "{url}"
        );
    }
    assert_eq!(peer.connections(), 0);
}

#[tokio::test]
async fn a_failed_handshake_is_not_sent() {
    // Not TLS at all, and a peer that closes in the middle of it.
    let plain = Peer::new(|mut side| {
        side.say("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        side.until_closed();
    });
    let closing = Peer::new(|side| side.reset_unread());
    for (peer, code) in [(&plain, "TLS"), (&closing, "")] {
        let answered = open().post(delivery(&format!("https://{}/", peer.address))).await;
        let told = told(&answered);
        assert!(told.starts_with("NotSent ") && told.ends_with(code), "{answered:?}");
    }
}

/// A certificate for 127.0.0.1 that nobody has signed but itself.
fn self_signed() -> (openssl::x509::X509, openssl::pkey::PKey<openssl::pkey::Private>) {
    use openssl::{asn1, bn, hash, pkey, rsa, x509};
    let key = pkey::PKey::from_rsa(rsa::Rsa::generate(2048).unwrap()).unwrap();
    let mut name = x509::X509NameBuilder::new().unwrap();
    name.append_entry_by_text("CN", "127.0.0.1").unwrap();
    let name = name.build();
    let mut cert = x509::X509::builder().unwrap();
    cert.set_version(2).unwrap();
    cert.set_serial_number(&bn::BigNum::from_u32(1).unwrap().to_asn1_integer().unwrap()).unwrap();
    cert.set_subject_name(&name).unwrap();
    cert.set_issuer_name(&name).unwrap();
    cert.set_pubkey(&key).unwrap();
    cert.set_not_before(&asn1::Asn1Time::days_from_now(0).unwrap()).unwrap();
    cert.set_not_after(&asn1::Asn1Time::days_from_now(2).unwrap()).unwrap();
    let mut names = x509::extension::SubjectAlternativeName::new();
    let names = names.ip("127.0.0.1").build(&cert.x509v3_context(None, None)).unwrap();
    cert.append_extension(names).unwrap();
    cert.sign(&key, hash::MessageDigest::sha256()).unwrap();
    (cert.build(), key)
}

#[tokio::test]
async fn a_certificate_that_nobody_trusts_is_not_sent_and_says_so() {
    let (cert, key) = self_signed();
    let mut acceptor =
        openssl::ssl::SslAcceptor::mozilla_intermediate_v5(openssl::ssl::SslMethod::tls_server()).unwrap();
    acceptor.set_private_key(&key).unwrap();
    acceptor.set_certificate(&cert).unwrap();
    let acceptor = acceptor.build();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // What of a request gets through the handshake.
    let served = std::thread::spawn(move || {
        use std::io::Read as _;
        let socket = listener.accept().unwrap().0;
        match acceptor.accept(socket) {
            Ok(mut stream) => {
                let mut bytes = Vec::new();
                // A refusal of the certificate may come as an alert after our end of the handshake.
                let _ = stream.read_to_end(&mut bytes);
                bytes
            }
            Err(_) => Vec::new(),
        }
    });
    let answered = open().post(delivery(&format!("https://{address}/"))).await;
    assert_eq!(told(&answered), "NotSent TLS", "{answered:?}");
    let Answered::NotSent { message, .. } = answered else { panic!("it was sent") };
    assert!(message.contains("certificate"), "{message}");
    assert_eq!(served.join().unwrap(), Vec::<u8>::new(), "no byte of the request left");
}

#[tokio::test]
async fn a_handshake_that_hangs_is_not_sent_when_the_time_is_up() {
    let peer = Peer::new(|side| side.until_closed());
    let started = Instant::now();
    let short =
        Delivery { timeout: Duration::from_millis(300), ..delivery(&format!("https://{}/", peer.address)) };
    assert_eq!(told(&open().post(short).await), "NotSent ABORTED");
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn a_key_that_does_not_sign_is_not_sent() {
    let world = World::new();
    let transport = HttpTransport::new(OutboundPolicy::default(), world.keys.clone());
    world.store.store().close();
    let peer = Peer::answering("");
    assert_eq!(told(&transport.post(delivery(&peer.url("/"))).await), "NotSent KEY");
    assert_eq!(peer.connections(), 0);
}

#[tokio::test]
async fn a_large_body_whose_end_was_never_taken_is_not_sent() {
    // More than every buffer on the way holds.
    let peer = Peer::new(|side| side.reset_unread());
    let answered = open().post(large(&peer.url("/"), 64 * 1024 * 1024)).await;
    assert!(told(&answered).starts_with("NotSent "), "{answered:?}");
    let hanging = Peer::new(|side| {
        std::thread::sleep(Duration::from_secs(5));
        drop(side);
    });
    let slow = Delivery { timeout: Duration::from_millis(500), ..large(&hanging.url("/"), 64 * 1024 * 1024) };
    assert_eq!(told(&open().post(slow).await), "NotSent ABORTED");
}

#[tokio::test]
async fn a_reset_before_the_body_was_read_is_in_doubt_and_so_lost() {
    // The body was on its way: nobody can say who has read it.
    let peer = Peer::new(|side| side.reset_unread());
    let answered = open().post(delivery(&peer.url("/"))).await;
    assert_eq!(told(&answered), "Lost RESET", "{answered:?}");
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn an_end_after_the_body_was_read_is_lost_and_the_endpoint_saw_it_once() {
    let peer = Peer::new(|mut side| {
        side.request();
    });
    assert_eq!(told(&open().post(delivery(&peer.url("/"))).await), "Lost RESET");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!((peer.requests().len(), peer.connections()), (1, 1));
}

#[tokio::test]
async fn an_end_in_the_middle_of_the_answer_is_lost() {
    for partial in [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\ncontent-le",
        "garbage\r\n\r\n",
    ] {
        let peer = Peer::new(move |mut side| {
            side.request();
            side.say(partial);
        });
        assert_eq!(told(&open().post(delivery(&peer.url("/"))).await), "Lost RESET", "{partial:?}");
        assert_eq!(peer.requests().len(), 1);
    }
}

#[tokio::test]
async fn no_answer_until_the_time_is_up_is_lost() {
    let silent = Peer::new(|mut side| {
        side.request();
        side.until_closed();
    });
    let half = Peer::new(|mut side| {
        side.request();
        side.say("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{");
        side.until_closed();
    });
    for peer in [&silent, &half] {
        let started = Instant::now();
        let short = Delivery { timeout: Duration::from_millis(300), ..delivery(&peer.url("/")) };
        assert_eq!(told(&open().post(short).await), "Lost ABORTED");
        assert!(started.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn a_slow_drip_is_an_answer_while_the_time_lasts_and_no_longer() {
    let peer = Peer::new(|mut side| {
        side.request();
        side.say("HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n");
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(30));
            side.say("x");
        }
        side.until_closed();
    });
    let Answered::Response { body, .. } = open().post(delivery(&peer.url("/"))).await else {
        panic!("an answer")
    };
    assert_eq!(body, [b'x'; 20]);
    let short = Delivery { timeout: Duration::from_millis(250), ..delivery(&peer.url("/")) };
    assert_eq!(told(&open().post(short).await), "Lost ABORTED");
}

#[tokio::test]
async fn what_was_given_up_before_it_was_sent_is_never_sent_later() {
    let peer = Peer::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let release = Arc::new(Notify::new());
    let gate = Arc::clone(&release);
    let transport = named(OutboundPolicy::default(), move |_| {
        let gate = Arc::clone(&gate);
        Box::pin(async move {
            gate.notified().await;
            Ok(vec!["127.0.0.1".parse().unwrap()])
        })
    });
    let url = format!("http://slow.test:{}/", peer.address.port());
    let short = Delivery { timeout: Duration::from_millis(100), ..delivery(&url) };
    assert_eq!(told(&transport.post(short).await), "NotSent ABORTED");
    // Dropped by its caller: the same.
    let dropped = tokio::time::timeout(Duration::from_millis(100), transport.post(delivery(&url))).await;
    assert!(dropped.is_err());
    for _ in 0..10 {
        release.notify_waiters();
        release.notify_one();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(peer.requests().len(), 0);
    release.notify_one();
    assert_eq!(told(&transport.post(delivery(&url)).await), "Response 200");
    assert_eq!(peer.requests().len(), 1);
}
