//! The head of a request to the proxy, read within bounds, and what is answered instead of a tunnel.

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::allow::Target;

/// Largest head, bytes.
pub const HEAD_BYTES: usize = 16 * 1024;
/// Most headers.
const HEADERS: usize = 100;

/// Headers between a client and its proxy: they go no further. `host` is written anew.
const OURS: [&str; 5] = ["proxy-connection", "proxy-authorization", "connection", "keep-alive", "host"];

/// The head of a request.
#[derive(Clone, Debug)]
pub struct Head {
    /// As it was written.
    pub method: String,
    /// As it was written.
    pub target: String,
    /// Names as they were written.
    pub headers: Vec<(String, Vec<u8>)>,
    /// What was read beyond it.
    pub rest: BytesMut,
}

impl Head {
    /// Reads a head. `None`: the peer has left before it was complete.
    ///
    /// # Errors
    /// It is no request, or too large a one.
    pub async fn read(stream: &mut TcpStream) -> Result<Option<Self>, Refusal> {
        let mut read = BytesMut::with_capacity(1024);
        loop {
            if let Some(head) = Self::parse(&mut read)? {
                return Ok(Some(head));
            }
            if read.len() >= HEAD_BYTES {
                return Err(Refusal::HEAD_TOO_LARGE);
            }
            // A connection that breaks has ended.
            if !matches!(stream.read_buf(&mut read).await, Ok(size) if size > 0) {
                return Ok(None);
            }
        }
    }

    fn parse(read: &mut BytesMut) -> Result<Option<Self>, Refusal> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let size = match request.parse(read) {
            Ok(httparse::Status::Complete(size)) if size <= HEAD_BYTES => size,
            Ok(httparse::Status::Partial) => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Refusal::HEAD_TOO_LARGE),
            Err(_) => return Err(Refusal::HEAD_INVALID),
        };
        let head = Self {
            method: request.method.unwrap_or_default().to_owned(),
            target: request.path.unwrap_or_default().to_owned(),
            headers: request.headers.iter().map(|h| (h.name.to_owned(), h.value.to_owned())).collect(),
            rest: BytesMut::new(),
        };
        Ok(Some(Self { rest: read.split_off(size), ..head }))
    }

    /// The head as the target's server sees it. One request for each connection, so nothing after it can be meant for
    /// another host.
    #[must_use]
    pub fn forwarded(&self, target: &Target) -> Vec<u8> {
        let mut text =
            format!("{} {} HTTP/1.1\r\nHost: {}\r\n", self.method, target.path, target.host_header());
        text.push_str("Connection: close\r\n");
        let mut head = text.into_bytes();
        for (name, value) in &self.headers {
            if OURS.iter().all(|ours| !name.eq_ignore_ascii_case(ours)) {
                head.extend_from_slice(name.as_bytes());
                head.extend_from_slice(b": ");
                head.extend_from_slice(value);
                head.extend_from_slice(b"\r\n");
            }
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

/// Why there is no way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Of HTTP.
    pub status: u16,
    /// For the log.
    pub reason: &'static str,
    /// For whoever reads the body.
    pub text: &'static str,
    /// A header that belongs to it.
    header: Option<&'static str>,
}

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $status:literal $reason:literal $text:literal $header:expr;)*) => {
        impl Refusal {
            $($(#[$doc])* pub const $name: Self =
                Self { status: $status, reason: $reason, text: $text, header: $header };)*
        }
    };
}

refusals! {
    /// Not HTTP.
    HEAD_INVALID = 400 "head_invalid" "this is no request" None;
    /// Over [`HEAD_BYTES`].
    HEAD_TOO_LARGE = 431 "head_too_large" "the head of the request is too large" None;
    /// Over [`super::HEAD_WAIT`].
    HEAD_TIMEOUT = 408 "head_timeout" "the head of the request took too long" None;
    /// Where plain HTTP is served.
    METHOD = 405 "method_refused" "this method is not passed on"
        Some("Allow: CONNECT, GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS");
    /// Where it is not.
    ONLY_CONNECT = 405 "method_refused" "only CONNECT is served" Some("Allow: CONNECT");
    /// No `host:port`.
    TARGET_INVALID = 403 "target_invalid" "the target is not host:port" None;
    /// Neither 443 nor 80.
    PORT = 403 "port_refused" "only ports 443 and 80 are reached" None;
    /// An address, a pattern, a single label.
    NOT_A_HOST_NAME = 403 "not_a_host_name" "the target must be the name of a host" None;
    /// Not on the list.
    HOST_NOT_ALLOWED = 403 "host_not_allowed" "the sandbox may not reach this host" None;
    /// [`super::TUNNELS`].
    TOO_MANY_TUNNELS = 429 "too_many_tunnels" "the sandbox has too many connections open" None;
    /// No such name, or no answer.
    RESOLVE_FAILED = 502 "resolve_failed" "the host's name does not resolve" None;
    /// Nothing but addresses that are never dialled.
    ADDRESS_REFUSED = 403 "address_refused" "the host has no address that a sandbox may reach" None;
    /// None of the addresses answered.
    CONNECT_FAILED = 502 "connect_failed" "the host does not answer" None;
}

impl Refusal {
    /// Who asks is not known; the reason is for the log alone.
    #[must_use]
    pub const fn unauthorized(reason: &'static str) -> Self {
        let header = Some("Proxy-Authenticate: Basic realm=\"nylorun-egress\"");
        Self { status: 407, reason, text: "the sandbox is not known", header }
    }

    const fn phrase(&self) -> &'static str {
        match self.status {
            400 => "Bad Request",
            403 => "Forbidden",
            405 => "Method Not Allowed",
            407 => "Proxy Authentication Required",
            408 => "Request Timeout",
            429 => "Too Many Requests",
            431 => "Request Header Fields Too Large",
            _ => "Bad Gateway",
        }
    }

    /// Says so and ends the connection.
    pub async fn answer(&self, stream: &mut TcpStream) {
        let body = format!("egress-gate: {}\n", self.text);
        let header = self.header.map_or(String::new(), |header| format!("{header}\r\n"));
        let answer = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n{header}Connection: close\r\n\r\n{body}",
            self.status,
            self.phrase(),
            body.len(),
        );
        // Whoever asked may have left.
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}
