//! A model provider for tests: it answers each request on 127.0.0.1 with the next reply it was given, byte for byte.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens after a reply's last piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The body ends as HTTP wants it.
    Proper,
    /// The connection closes in the middle of the body.
    Cut,
    /// Nothing, until the client leaves.
    Hang,
}

/// One reply.
#[derive(Clone)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    pieces: Vec<Vec<u8>>,
    pause: Duration,
    end: End,
}

impl Reply {
    /// A stream of server-sent events, in one piece.
    pub fn stream(text: &str) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".into(), "text/event-stream".into())],
            pieces: vec![text.as_bytes().to_vec()],
            pause: Duration::ZERO,
            end: End::Proper,
        }
    }

    /// An error with a JSON body.
    pub fn error(status: u16, body: Value) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), "application/json".into())],
            pieces: vec![body.to_string().into_bytes()],
            pause: Duration::ZERO,
            end: End::Proper,
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same bytes, `size` at a time: multi-byte characters and frames are cut anywhere.
    pub fn in_pieces(mut self, size: usize) -> Self {
        self.pieces = self.pieces.concat().chunks(size).map(<[u8]>::to_vec).collect();
        self
    }

    pub fn pause_between(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    pub fn then(mut self, end: End) -> Self {
        self.end = end;
        self
    }
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: String,
    /// The whole head, lowercase names.
    pub head: String,
    pub body: Value,
}

pub struct ModelServer {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    left: watch::Receiver<u32>,
}

impl ModelServer {
    /// Starts a server; a request beyond the replies gets the last one again.
    pub async fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (leaving, left) = watch::channel(0);
        let sink = Arc::clone(&seen);
        tokio::spawn(async move {
            let mut next = 0;
            while let Ok((stream, _)) = listener.accept().await {
                let reply = replies[next.min(replies.len() - 1)].clone();
                next += 1;
                tokio::spawn(serve(stream, reply, Arc::clone(&sink), leaving.clone()));
            }
        });
        Self { address, seen, left }
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub fn requests(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until a client left a reply that hangs.
    pub async fn client_left(&mut self) {
        self.left.wait_for(|count| *count > 0).await.unwrap();
    }
}

async fn serve(mut stream: TcpStream, reply: Reply, seen: Arc<Mutex<Vec<Seen>>>, left: watch::Sender<u32>) {
    let Some(request) = read_request(&mut stream).await else { return };
    seen.lock().unwrap().push(request);
    let mut head =
        format!("HTTP/1.1 {} X\r\nconnection: close\r\ntransfer-encoding: chunked\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let _ = stream.write_all(head.as_bytes()).await;
    for piece in &reply.pieces {
        let _ = stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await;
        let _ = stream.write_all(piece).await;
        let _ = stream.write_all(b"\r\n").await;
        let _ = stream.flush().await;
        if !reply.pause.is_zero() {
            tokio::time::sleep(reply.pause).await;
        }
    }
    match reply.end {
        End::Proper => {
            let _ = stream.write_all(b"0\r\n\r\n").await;
        }
        End::Cut => {}
        End::Hang => {
            let mut rest = [0; 64];
            while !matches!(stream.read(&mut rest).await, Ok(0) | Err(_)) {}
            left.send_modify(|count| *count += 1);
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 8192];
    let (head, body_at) = loop {
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break (String::from_utf8_lossy(&bytes[..at]).into_owned(), at + 4);
        }
    };
    let lower = head.to_ascii_lowercase();
    let length: usize =
        lower.lines().find_map(|line| line.strip_prefix("content-length:"))?.trim().parse().ok()?;
    while bytes.len() < body_at + length {
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
    }
    let path = head.split_whitespace().nth(1)?.to_owned();
    Some(Seen { path, head, body: serde_json::from_slice(&bytes[body_at..body_at + length]).ok()? })
}
