//! The checks of the proxy over real sockets; only names and the last step to an address are the test's.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use futures_util::FutureExt as _;
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinHandle;

use super::*;

/// An address of the internet behind which the test's server stands.
const SERVER: &str = "93.184.216.34";
/// One where nobody answers.
const DEAD: &str = "93.184.216.99";

struct World {
    proxy: SocketAddr,
    dialled: Arc<Mutex<Vec<SocketAddr>>>,
    serving: JoinHandle<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A server that answers each connection with what it was sent first, then echoes.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.into_split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    address
}

async fn world_with(door: impl FnOnce(Allow) -> Arc<dyn Door>) -> World {
    let server = echo().await;
    let names: HashMap<&str, Vec<&str>> = HashMap::from([
        ("good.test", vec![SERVER]),
        ("sub.wild.test", vec![SERVER]),
        ("mixed.test", vec!["10.0.0.1", "169.254.169.254", DEAD, SERVER]),
        ("loop.test", vec!["127.0.0.1", "::1"]),
        ("ten.test", vec!["10.1.2.3"]),
        ("metadata.test", vec!["169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254"]),
        ("dead.test", vec![DEAD]),
        ("empty.test", vec![]),
    ]);
    let allow = Allow::of(names.keys().copied().chain(["*.wild.test", "none.test", "127.0.0.1", "10.0.0.1"]));
    let names: HashMap<String, Vec<IpAddr>> = names
        .into_iter()
        .map(|(name, found)| (name.to_owned(), found.iter().map(|text| text.parse().unwrap()).collect()))
        .collect();
    let lookup = move |name: String| {
        let found = names.get(&name).cloned().ok_or_else(|| io::Error::other("no such name"));
        async move { found }.boxed()
    };
    let dialled = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&dialled);
    let connect = move |address: SocketAddr| {
        seen.lock().unwrap().push(address);
        async move {
            if address.ip().to_string() == SERVER {
                TcpStream::connect(server).await
            } else {
                Err(io::ErrorKind::ConnectionRefused.into())
            }
        }
        .boxed()
    };
    let egress = Egress::over(Network::new(Arc::new(lookup), Arc::new(connect)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let serving = tokio::spawn(egress.serve(listener, door(allow)));
    World { proxy, dialled, serving }
}

async fn world() -> World {
    world_with(|allow| Arc::new(Own(Arc::new(Grant::new("sbx", allow))))).await
}

impl World {
    async fn send(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.proxy).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Everything that is answered to a request that gets no tunnel.
    async fn answer(&self, text: &str) -> String {
        let mut stream = self.send(text).await;
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        said
    }

    async fn tunnel(&self, target: &str) -> TcpStream {
        let mut stream = self.send(&format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")).await;
        expect(&mut stream, "HTTP/1.1 200 Connection Established\r\n\r\n").await;
        stream
    }
}

async fn expect(stream: &mut TcpStream, text: &str) {
    let mut said = vec![0; text.len()];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&said), text);
}

fn connect(target: &str) -> String {
    format!("CONNECT {target} HTTP/1.1\r\n\r\n")
}

#[tokio::test]
async fn a_listed_host_is_tunnelled_byte_for_byte_and_each_end_is_passed_on() {
    let world = world().await;
    for target in ["good.test:443", "GOOD.Test.:80", "sub.wild.test:443"] {
        let mut stream = world.tunnel(target).await;
        stream.write_all(b"\x16\x03\x00not http\r\n\r\n\xff").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).await.unwrap();
        assert_eq!(back, b"\x16\x03\x00not http\r\n\r\n\xff", "{target}");
    }
    // What is sent without waiting for the answer is not lost.
    let mut stream = world.send(&format!("{}early", connect("good.test:443"))).await;
    expect(&mut stream, "HTTP/1.1 200 Connection Established\r\n\r\nearly").await;
    let ports: Vec<u16> = world.dialled.lock().unwrap().iter().map(SocketAddr::port).collect();
    assert_eq!(ports, [443, 80, 443, 443]);
}

#[tokio::test]
async fn each_refusal_has_its_status_and_says_why_in_short_plain_text() {
    let world = world().await;
    for (request, status, says) in [
        (connect("other.test:443"), "403 Forbidden", "may not reach this host"),
        (connect("wild.test:443"), "403 Forbidden", "may not reach this host"),
        (connect("good.test.evil.test:443"), "403 Forbidden", "may not reach this host"),
        (connect("good.test"), "403 Forbidden", "not host:port"),
        (connect("http://good.test/"), "403 Forbidden", "not host:port"),
        (connect("good.test:22"), "403 Forbidden", "ports 443 and 80"),
        (connect("127.0.0.1:22"), "403 Forbidden", "ports 443 and 80"),
        (connect("127.0.0.1:443"), "403 Forbidden", "name of a host"),
        (connect("[::1]:443"), "403 Forbidden", "name of a host"),
        (connect("0x7f.1:443"), "403 Forbidden", "name of a host"),
        (connect("2130706433:443"), "403 Forbidden", "name of a host"),
        (connect("localhost:443"), "403 Forbidden", "name of a host"),
        (connect("*.wild.test:443"), "403 Forbidden", "name of a host"),
        (connect("none.test:443"), "502 Bad Gateway", "does not resolve"),
        (connect("empty.test:443"), "502 Bad Gateway", "does not resolve"),
        (connect("loop.test:443"), "403 Forbidden", "no address that a sandbox may reach"),
        (connect("ten.test:443"), "403 Forbidden", "no address that a sandbox may reach"),
        (connect("metadata.test:80"), "403 Forbidden", "no address that a sandbox may reach"),
        (connect("dead.test:443"), "502 Bad Gateway", "does not answer"),
        ("TRACE http://good.test/ HTTP/1.1\r\n\r\n".into(), "405 Method Not Allowed", "not passed on"),
        ("GET / HTTP/1.1\r\nHost: good.test\r\n\r\n".into(), "403 Forbidden", "not host:port"),
        ("GET https://good.test/ HTTP/1.1\r\n\r\n".into(), "403 Forbidden", "not host:port"),
        ("GET http://good.test:8080/ HTTP/1.1\r\n\r\n".into(), "403 Forbidden", "ports 443 and 80"),
        ("GET http://169.254.169.254/latest HTTP/1.1\r\n\r\n".into(), "403 Forbidden", "name of a host"),
        ("GET http://metadata.test/ HTTP/1.1\r\n\r\n".into(), "403 Forbidden", "no address that"),
        ("\x16\x03\x01\x02\r\n\r\n".into(), "400 Bad Request", "no request"),
        (format!("GET http://good.test/{} HTTP/1.1\r\n\r\n", "x".repeat(20_000)), "431 ", "too large"),
    ] {
        let answer = world.answer(&request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            body.starts_with("egress-gate: ") && body.contains(says) && body.len() < 100,
            "{request}: {body}"
        );
        assert!(head.contains(&format!("Content-Length: {}", body.len())) && head.contains("text/plain"));
        assert_eq!(head.contains("Allow: CONNECT, GET"), status.starts_with("405"), "{head}");
    }
    // Nothing was dialled for any of them but the one that is dead.
    assert_eq!(*world.dialled.lock().unwrap(), [format!("{DEAD}:443").parse().unwrap()]);
}

#[tokio::test]
async fn of_a_names_addresses_only_allowed_ones_are_dialled_in_order_until_one_answers() {
    let world = world().await;
    world.tunnel("mixed.test:443").await;
    let dialled: Vec<String> = world.dialled.lock().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(dialled, [format!("{DEAD}:443"), format!("{SERVER}:443")]);
}

#[tokio::test]
async fn a_plain_request_is_passed_on_to_its_host_alone_and_once_for_a_connection() {
    let world = world().await;
    let request = "POST http://Good.test/a%20b?c=d HTTP/1.1\r\nHost: other.test\r\nProxy-Connection: keep-alive\r\n\
                   Proxy-Authorization: Basic c2VjcmV0\r\nConnection: keep-alive\r\nContent-Length: 4\r\nX-a: \
                   \u{e9}\r\n\r\nbody";
    let mut stream = world.send(request).await;
    stream.shutdown().await.unwrap();
    let mut seen = String::new();
    stream.read_to_string(&mut seen).await.unwrap();
    assert_eq!(
        seen,
        "POST /a%20b?c=d HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\nContent-Length: 4\r\nX-a: \u{e9}\r\n\r\nbody"
    );
    assert_eq!(*world.dialled.lock().unwrap(), [format!("{SERVER}:80").parse().unwrap()]);
}

#[tokio::test]
async fn the_65th_tunnel_is_refused_until_one_has_ended() {
    let world = world().await;
    let mut open = Vec::new();
    for _ in 0..TUNNELS {
        open.push(world.tunnel("good.test:443").await);
    }
    let refused = world.answer(&connect("good.test:443")).await;
    assert!(refused.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{refused}");
    drop(open.pop());
    for attempt in 0.. {
        let mut stream = world.send(&connect("good.test:443")).await;
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        if &first == b"HTTP/1.1 200" {
            break;
        }
        assert!(attempt < 500, "a tunnel that has ended leaves room");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_come_is_not_waited_for() {
    let world = world().await;
    let answer = world.answer("CONNECT good.test:443 HTTP/1.1\r\nHost").await;
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
}

#[tokio::test]
async fn a_quiet_tunnel_is_closed_and_one_with_traffic_in_either_direction_is_not() {
    let (a, b) = (pair().await, pair().await);
    let piping = tokio::spawn(pipe::both(a.1, b.1, Duration::from_millis(400)));
    let (mut left, mut right) = (a.0, b.0);
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        right.write_all(b"x").await.unwrap();
        expect(&mut left, "x").await;
    }
    assert!(!piping.is_finished());
    assert_eq!(left.read(&mut [0; 8]).await.unwrap(), 0);
    piping.await.unwrap();
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
    (one.unwrap(), other.unwrap().0)
}

#[tokio::test]
async fn tunnels_end_with_the_one_who_serves_them() {
    let world = world().await;
    let mut stream = world.tunnel("good.test:443").await;
    world.serving.abort();
    // Reset or end: in either case nothing more comes.
    assert!(!matches!(stream.read(&mut [0; 8]).await, Ok(size) if size > 0));
}

/// A door with a lock, as a gate for many sandboxes has one.
struct Locked(Arc<Grant>);

impl Door for Locked {
    fn plain(&self) -> bool {
        false
    }

    fn admit<'a>(&'a self, head: &'a Head) -> BoxFuture<'a, Result<Arc<Grant>, Refusal>> {
        let key =
            head.headers.iter().any(|(name, value)| name == "Proxy-Authorization" && value == b"Bearer key");
        let grant = Arc::clone(&self.0);
        async move { if key { Ok(grant) } else { Err(Refusal::unauthorized("egress_token_missing")) } }
            .boxed()
    }
}

#[tokio::test]
async fn who_is_not_let_in_is_407_before_anything_else_and_without_plain_http_only_connect_is_served() {
    let world = world_with(|allow| Arc::new(Locked(Arc::new(Grant::new("sbx", allow))))).await;
    for target in ["good.test:443", "good.test:22", "nonsense"] {
        let answer = world.answer(&connect(target)).await;
        assert!(answer.starts_with("HTTP/1.1 407 Proxy Authentication Required\r\n"), "{answer}");
        assert!(answer.contains("\r\nProxy-Authenticate: Basic realm=\"nylorun-egress\"\r\n"), "{answer}");
    }
    let answer = world.answer("GET http://good.test/ HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nAllow: CONNECT\r\n"), "{answer}");
    let mut stream =
        world.send("CONNECT good.test:443 HTTP/1.1\r\nProxy-Authorization: Bearer key\r\n\r\n").await;
    expect(&mut stream, "HTTP/1.1 200 Connection Established\r\n\r\n").await;
}

#[tokio::test]
async fn a_refusal_is_logged_with_its_reason_and_target_and_nothing_that_was_sent() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&log);
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || Sink(Arc::clone(&sink)));
    let _log = tracing::subscriber::set_default(subscriber.finish());
    let world = world().await;
    world
        .answer("POST http://other.test/secret-path HTTP/1.1\r\nX-Token: secret-token\r\n\r\nsecret-body")
        .await;
    world.answer("CONNECT secret@x HTTP/1.1\r\n\r\n").await;
    world.tunnel("good.test:443").await.write_all(b"secret").await.unwrap();
    let log = String::from_utf8(log.lock().unwrap().clone()).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(
        lines.iter().all(|line| line.contains("egress_refused") && line.contains("sandbox=\"sbx\"")),
        "{log}"
    );
    for part in ["status=403", "reason=\"host_not_allowed\"", "host=\"other.test\"", "port=80"] {
        assert!(lines[0].contains(part), "{log}");
    }
    assert!(lines[1].contains("target_invalid") && !log.contains("secret"), "{log}");
}

struct Sink(Arc<Mutex<Vec<u8>>>);

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
