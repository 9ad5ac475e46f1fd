//! The reading half of a connection: what a socket brings becomes messages (spec: harness-api, section 4; RFC 6455).
//!
//! The frames are read here and not by the library's codec, which takes a frame into memory before it looks at its
//! length, leaves the parts of a message to its caller, and lets reserved bits and codes pass. Here every bound is
//! looked at when a frame's head is there, memory grows only with what has really arrived, and a large message's memory
//! is gone with the message.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_web::error::PayloadError;
use actix_web::web::Bytes;
use futures_util::Stream;

/// Longest payload of a control frame.
const CONTROL: u64 = 125;

/// What a peer has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A whole message, however many frames it came in.
    Text(String),
    /// Must be answered with the same payload.
    Ping(Bytes),
    /// An answer to a ping.
    Pong,
    /// The peer closes; nothing follows.
    Close(Option<u16>),
}

/// Why the connection must close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Not a WebSocket frame, or not at this place.
    #[error("invalid WebSocket frame: {0}")]
    Protocol(&'static str),
    /// A binary message, or text that is not UTF-8.
    #[error("Harness API frames are JSON text")]
    NotText,
    /// Larger than a message may be.
    #[error("the message is larger than a frame may be")]
    TooLarge,
}

impl Violation {
    /// The code that the connection is closed with.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::Protocol(_) => 1002,
            Self::NotText => 1007,
            Self::TooLarge => 1009,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A part of the message that is being read.
    Text,
    Ping,
    Pong,
    Close,
}

/// A frame whose head was read.
#[derive(Debug)]
struct Frame {
    kind: Kind,
    last: bool,
    /// The mask, turned so that its first byte is the next one's.
    mask: [u8; 4],
    left: u64,
}

/// Reads frames from bytes as they come.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    head: [u8; 14],
    head_len: usize,
    frame: Option<Frame>,
    message: Option<Vec<u8>>,
    control: Vec<u8>,
}

impl Decoder {
    /// A decoder whose messages have at most so many bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, head: [0; 14], head_len: 0, frame: None, message: None, control: Vec::new() }
    }

    /// Takes bytes from `input` until something is complete; `None` when all were taken before that.
    ///
    /// # Errors
    /// [`Violation`]; nothing may be read after it.
    pub fn read(&mut self, input: &mut Bytes) -> Result<Option<Event>, Violation> {
        loop {
            if self.frame.is_none() {
                if !self.read_head(input) {
                    return Ok(None);
                }
                self.frame = Some(self.begin()?);
                self.head_len = 0;
            }
            let Some(frame) = &mut self.frame else { return Ok(None) };
            let size = usize::try_from(frame.left).unwrap_or(usize::MAX).min(input.len());
            let into = match frame.kind {
                Kind::Text => self.message.get_or_insert_default(),
                _ => &mut self.control,
            };
            let from = into.len();
            into.extend_from_slice(&input.split_to(size));
            unmask(&mut into[from..], &mut frame.mask);
            frame.left -= size as u64;
            if frame.left > 0 {
                return Ok(None);
            }
            let (kind, last) = (frame.kind, frame.last);
            self.frame = None;
            if kind == Kind::Text && !last {
                continue;
            }
            return self.complete(kind).map(Some);
        }
    }

    /// Reads the rest of a frame's head; false when there is more to come.
    fn read_head(&mut self, input: &mut Bytes) -> bool {
        loop {
            let wanted = match self.head_len {
                0 | 1 => 2,
                _ => {
                    6 + match self.head[1] & 0x7f {
                        126 => 2,
                        127 => 8,
                        _ => 0,
                    }
                }
            };
            // A frame without a mask has no more than two bytes to look at: it is refused.
            let wanted = if self.head_len >= 2 && self.head[1] & 0x80 == 0 { 2 } else { wanted };
            if self.head_len >= wanted {
                return true;
            }
            if input.is_empty() {
                return false;
            }
            let size = (wanted - self.head_len).min(input.len());
            self.head[self.head_len..self.head_len + size].copy_from_slice(&input.split_to(size));
            self.head_len += size;
        }
    }

    /// Judges a head, before anything is taken for its frame.
    fn begin(&self) -> Result<Frame, Violation> {
        let (first, second) = (self.head[0], self.head[1]);
        let (last, short) = (first & 0x80 != 0, second & 0x7f);
        if first & 0x70 != 0 {
            return Err(Violation::Protocol("a reserved bit is set"));
        }
        if second & 0x80 == 0 {
            return Err(Violation::Protocol("it is not masked"));
        }
        let kind = match (first & 0x0f, self.message.is_some()) {
            (0x0, true) | (0x1, false) => Kind::Text,
            (0x0, false) => return Err(Violation::Protocol("it continues nothing")),
            (0x1 | 0x2, true) => return Err(Violation::Protocol("the message before it has not ended")),
            (0x2, false) => return Err(Violation::NotText),
            (0x8, _) => Kind::Close,
            (0x9, _) => Kind::Ping,
            (0xA, _) => Kind::Pong,
            _ => return Err(Violation::Protocol("its kind is unknown")),
        };
        let number = |range: std::ops::Range<usize>| {
            self.head[range].iter().fold(0_u64, |all, byte| all << 8 | u64::from(*byte))
        };
        let (left, mask_at) = match short {
            126 => (number(2..4), 4),
            127 => (number(2..10), 10),
            short => (u64::from(short), 2),
        };
        if kind == Kind::Text {
            let before = self.message.as_ref().map_or(0, Vec::len) as u64;
            if before.saturating_add(left) > self.limit as u64 {
                return Err(Violation::TooLarge);
            }
        } else if left > CONTROL || !last {
            return Err(Violation::Protocol("a control frame is long or in parts"));
        }
        let mut mask = [0; 4];
        mask.copy_from_slice(&self.head[mask_at..mask_at + 4]);
        Ok(Frame { kind, last, mask, left })
    }

    fn complete(&mut self, kind: Kind) -> Result<Event, Violation> {
        match kind {
            Kind::Text => {
                let message = self.message.take().unwrap_or_default();
                String::from_utf8(message).map(Event::Text).map_err(|_| Violation::NotText)
            }
            Kind::Ping => Ok(Event::Ping(std::mem::take(&mut self.control).into())),
            Kind::Pong => {
                self.control.clear();
                Ok(Event::Pong)
            }
            Kind::Close => close(&std::mem::take(&mut self.control)),
        }
    }
}

fn close(payload: &[u8]) -> Result<Event, Violation> {
    let Some((code, reason)) = payload.split_at_checked(2) else {
        return if payload.is_empty() {
            Ok(Event::Close(None))
        } else {
            Err(Violation::Protocol("a close has half a code"))
        };
    };
    let code = u16::from(code[0]) << 8 | u16::from(code[1]);
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(Violation::Protocol("a close has a code that nobody sends"));
    }
    if std::str::from_utf8(reason).is_err() {
        return Err(Violation::NotText);
    }
    Ok(Event::Close(Some(code)))
}

/// Takes the mask off, and turns it by as many bytes.
fn unmask(bytes: &mut [u8], mask: &mut [u8; 4]) {
    let word = u64::from_ne_bytes([mask[0], mask[1], mask[2], mask[3], mask[0], mask[1], mask[2], mask[3]]);
    let turn = bytes.len() % 4;
    let mut words = bytes.chunks_exact_mut(8);
    for chunk in &mut words {
        let mut eight = [0; 8];
        eight.copy_from_slice(chunk);
        chunk.copy_from_slice(&(u64::from_ne_bytes(eight) ^ word).to_ne_bytes());
    }
    for (byte, key) in words.into_remainder().iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
    mask.rotate_left(turn);
}

/// The messages of a connection, read when they are asked for: whoever does not ask slows the peer down.
pub struct Messages<S> {
    payload: S,
    chunk: Bytes,
    decoder: Decoder,
    over: bool,
}

impl<S> Messages<S> {
    /// The messages of a request's payload.
    #[must_use]
    pub fn new(payload: S, limit: usize) -> Self {
        Self { payload, chunk: Bytes::new(), decoder: Decoder::new(limit), over: false }
    }
}

/// What has come, and whether a whole message behind it has come, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// What has come.
    pub event: Event,
    /// Whether the next thing of this stream is there, and is a message. It may say no where there is one.
    pub more: bool,
}

/// Whether bytes begin with a whole message in one frame.
fn begin_with_message(bytes: &[u8]) -> bool {
    let [0x81, second, rest @ ..] = bytes else { return false };
    let (size, rest) = match (second & 0x7f, rest) {
        (126, [a, b, rest @ ..]) => (usize::from(*a) << 8 | usize::from(*b), rest),
        // Large ones come in reads of their own.
        (126 | 127, _) => return false,
        (size, rest) => (usize::from(size), rest),
    };
    // The mask comes before the payload.
    second & 0x80 != 0 && rest.len() >= size + 4
}

impl<S: Stream<Item = Result<Bytes, PayloadError>> + Unpin> Stream for Messages<S> {
    type Item = Result<Arrived, Violation>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if this.over {
                return Poll::Ready(None);
            }
            let read = this.decoder.read(&mut this.chunk);
            this.over = matches!(read, Err(_) | Ok(Some(Event::Close(_))));
            if let Some(item) = read.transpose() {
                let more = begin_with_message(&this.chunk);
                return Poll::Ready(Some(item.map(|event| Arrived { event, more })));
            }
            match ready!(Pin::new(&mut this.payload).poll_next(cx)) {
                Some(Ok(chunk)) => this.chunk = chunk,
                // The connection is gone, orderly or not: there is nobody to tell the difference.
                Some(Err(_)) | None => this.over = true,
            }
        }
    }
}

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
