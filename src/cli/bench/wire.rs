//! A client as cheap as one can be, since it shares the machine with what it measures: requests are bytes that were
//! written once, answers are read up to their length, and a stream is only looked at for the names of its events.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cli::fault::{Fault, exit};

/// One kept-alive connection.
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
}

/// What every request carries.
#[derive(Clone, Debug)]
pub struct Head {
    /// `host:port` to connect to and to name.
    pub host: String,
    /// The bearer's text.
    pub key: String,
}

impl Head {
    /// A request as bytes.
    #[must_use]
    pub fn request(&self, method: &str, path: &str, body: Option<&str>) -> Vec<u8> {
        let Self { host, key } = self;
        let protocol = crate::cli::client::PROTOCOL;
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\nnylorun-protocol: {protocol}\r\n"
        );
        if let Some(body) = body {
            text.push_str(&format!(
                "content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ));
        } else {
            text.push_str("\r\n");
        }
        text.into_bytes()
    }
}

impl Wire {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub async fn connect(host: &str) -> Result<Self, Fault> {
        let stream = TcpStream::connect(host).await.map_err(|error| lost(&error.to_string()))?;
        stream.set_nodelay(true).map_err(|error| lost(&error.to_string()))?;
        Ok(Self { stream, buffer: Vec::with_capacity(16 * 1024), start: 0 })
    }

    /// Sends a request and reads its whole answer: status and body.
    ///
    /// # Errors
    /// When the connection breaks or the answer has no length.
    pub async fn call(&mut self, request: &[u8]) -> Result<(u16, Vec<u8>), Fault> {
        self.send(request).await?;
        let head = self.head().await?;
        let length = head.length.ok_or_else(|| lost("the answer has no content-length"))?;
        while self.buffer.len() - self.start < length {
            self.fill().await?;
        }
        let body = self.buffer[self.start..self.start + length].to_vec();
        self.take(length);
        Ok((head.status, body))
    }

    /// Sends a request whose answer is a stream; [`Wire::piece`] reads it.
    ///
    /// # Errors
    /// When the connection breaks or the answer is not 200.
    pub async fn open(&mut self, request: &[u8]) -> Result<(), Fault> {
        self.send(request).await?;
        let head = self.head().await?;
        if head.status == 200 { Ok(()) } else { Err(lost(&format!("the stream answered {}", head.status))) }
    }

    /// Gives the next chunk of a stream to `see`.
    ///
    /// # Errors
    /// When the stream ends.
    pub async fn piece(&mut self, see: &mut impl FnMut(&[u8])) -> Result<(), Fault> {
        let size = loop {
            let rest = &self.buffer[self.start..];
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = std::str::from_utf8(&rest[..end]).unwrap_or_default();
                let size = usize::from_str_radix(line.trim(), 16).map_err(|_| lost("a malformed chunk"))?;
                self.take(end + 1);
                break size;
            }
            self.fill().await?;
        };
        if size == 0 {
            return Err(lost("the stream ended"));
        }
        while self.buffer.len() - self.start < size + 2 {
            self.fill().await?;
        }
        see(&self.buffer[self.start..self.start + size]);
        self.take(size + 2);
        Ok(())
    }

    async fn send(&mut self, request: &[u8]) -> Result<(), Fault> {
        self.stream.write_all(request).await.map_err(|error| lost(&error.to_string()))
    }

    async fn head(&mut self) -> Result<AnswerHead, Fault> {
        loop {
            let rest = &self.buffer[self.start..];
            if let Some(end) = rest.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = AnswerHead::read(&rest[..end]).ok_or_else(|| lost("a malformed answer"))?;
                self.take(end + 4);
                return Ok(head);
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Fault> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let read = self.stream.read_buf(&mut self.buffer).await.map_err(|error| lost(&error.to_string()))?;
        if read == 0 { Err(lost("the connection was closed")) } else { Ok(()) }
    }

    fn take(&mut self, count: usize) {
        self.start += count;
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
    }
}

struct AnswerHead {
    status: u16,
    length: Option<usize>,
}

impl AnswerHead {
    fn read(head: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(head).ok()?;
        let mut lines = text.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let length = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            if name.eq_ignore_ascii_case("content-length") { value.trim().parse().ok() } else { None }
        });
        Some(Self { status, length })
    }
}

fn lost(why: &str) -> Fault {
    Fault::new(exit::FAILED, "bench", format!("the Runtime went away: {why}"))
}

/// Counts events of a stream and notices how turns end, without reading what they carry.
#[derive(Debug, Default)]
pub struct Scan {
    line: Vec<u8>,
    /// Recorded events seen.
    pub events: u64,
    /// Turns that completed.
    pub completed: u64,
    /// Turns that ended otherwise.
    pub others: u64,
}

/// Longer than every line that counts; of longer ones only the start is kept.
const KEPT: usize = 40;

impl Scan {
    /// Looks at a piece.
    pub fn see(&mut self, mut piece: &[u8]) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            self.keep(&piece[..end]);
            piece = &piece[end + 1..];
            self.end_line();
        }
        self.keep(piece);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = KEPT - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self) {
        match self.line.trim_ascii_end() {
            b"event: turn.completed" => self.completed += 1,
            b"event: turn.failed" | b"event: turn.cancelled" | b"event: turn.paused" => self.others += 1,
            line if line.starts_with(b"id:") => self.events += 1,
            _ => {}
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_turns_are_noticed_in_any_pieces() {
        let text = b"id: a\nevent: turn.completed\ndata: {\"x\":\"event: turn.completed\"}\n\nid: b\nevent: turn.failed\ndata: {}\n\n: keepalive\n";
        for size in 1..text.len() {
            let mut scan = Scan::default();
            text.chunks(size).for_each(|piece| scan.see(piece));
            assert_eq!((scan.events, scan.completed, scan.others), (2, 1, 1), "pieces of {size}");
        }
    }
}
