//! An endpoint that does with each connection what its script says.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as it came.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// What an endpoint saw.
#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<Request>>,
    connections: AtomicUsize,
}

pub struct Peer {
    pub address: SocketAddr,
    seen: Arc<Seen>,
}

/// One connection, from the endpoint's side.
pub struct Side {
    pub socket: TcpStream,
    seen: Arc<Seen>,
}

impl Side {
    /// The head and the whole body of the next request; `None` when the other side closed.
    pub fn request(&mut self) -> Option<Request> {
        let mut bytes = Vec::new();
        let mut byte = [0];
        while !bytes.ends_with(b"\r\n\r\n") {
            if self.socket.read(&mut byte).ok()? == 0 {
                return None;
            }
            bytes.push(byte[0]);
        }
        let head = String::from_utf8(bytes).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let line = lines.next().unwrap().to_owned();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut request = Request { line, headers, body: Vec::new() };
        let length: usize = request.header("content-length").unwrap().parse().unwrap();
        request.body.resize(length, 0);
        self.socket.read_exact(&mut request.body).ok()?;
        self.seen.requests.lock().unwrap().push(request.clone());
        Some(request)
    }

    pub fn say(&mut self, text: &str) {
        // The other side may have gone.
        let _ = self.socket.write_all(text.as_bytes());
    }

    /// Closes with a reset: there is something unread.
    pub fn reset_unread(self) {
        let mut byte = [0];
        self.socket.peek(&mut byte).unwrap();
    }

    /// Waits until the other side has closed.
    pub fn until_closed(mut self) {
        let mut rest = [0; 4096];
        while matches!(self.socket.read(&mut rest), Ok(n) if n > 0) {}
    }
}

impl Peer {
    /// An endpoint whose every connection is served by `script`, on a thread of its own.
    pub fn new(script: impl Fn(Side) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let socket = socket.unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let side = Side { socket, seen: Arc::clone(&shared) };
                let script = script.clone();
                std::thread::spawn(move || script(side));
            }
        });
        Self { address, seen }
    }

    /// An endpoint that answers every request like this and keeps its connections.
    pub fn answering(answer: &'static str) -> Self {
        Self::new(move |mut side| {
            while side.request().is_some() {
                side.say(answer);
            }
        })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.seen.requests.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }
}
