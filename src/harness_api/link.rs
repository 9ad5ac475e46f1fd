//! The writing half of a connection: a queue that is bounded in frames and bytes, and the response body that drains it
//! as fast as the peer reads (spec: harness-api, sections 4 and 5).
//!
//! A frame leaves in pieces, so that however large it is, no copy of it is made on its way; control frames pass between
//! two frames.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use actix_web::web::Bytes;
use futures_util::Stream;
use nylorun_actors::harness::wire::{FrameSink, SinkFull};
use tokio::time::Instant;

use super::limits::{CROWDED, PIECE, QUEUE_BYTES, QUEUE_FRAMES, REASON};
use super::registry::Handle;

const TEXT: u8 = 0x1;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xA;

/// What waits to leave on one connection.
pub(super) struct Link {
    handle: Handle,
    out: Mutex<Out>,
}

#[derive(Default)]
struct Out {
    frames: VecDeque<Bytes>,
    /// Rest of the frame that is leaving.
    current: Bytes,
    /// Bytes of `frames` and `current`.
    bytes: usize,
    ping: bool,
    /// The last ping's payload: answering only that is enough.
    pong: Option<Bytes>,
    close: Close,
    /// Since when something waits without any of it leaving.
    stalled: Option<Instant>,
    waker: Option<Waker>,
}

#[derive(Default)]
enum Close {
    /// It is open.
    #[default]
    Not,
    /// A close frame leaves after what waits. `answered`: the peer has closed already, or will not be listened to.
    Waits { code: Option<u16>, reason: String, since: Instant, answered: bool },
    /// Nothing leaves any more; the peer has its time to answer. `flushed`: the close frame is on its way.
    Sent { since: Instant, answered: bool, flushed: bool },
    /// It is over.
    Ended,
}

impl Out {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn drop_frames(&mut self) {
        self.frames.clear();
        self.bytes = self.current.len();
    }
}

impl Link {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle, out: Mutex::default() }
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        // Nothing panics while it is held.
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self, text: String) -> Result<(), SinkFull> {
        let mut out = self.out();
        let full = out.frames.len() >= QUEUE_FRAMES || out.bytes + text.len() > QUEUE_BYTES;
        if full || !matches!(out.close, Close::Not) {
            return Err(SinkFull);
        }
        out.bytes += text.len();
        out.stalled.get_or_insert_with(Instant::now);
        out.frames.push_back(Bytes::from(text));
        out.wake();
        Ok(())
    }

    /// Whether so much waits that the peer should read before it says more.
    pub(super) fn is_crowded(&self) -> bool {
        let out = self.out();
        out.frames.len() >= CROWDED && matches!(out.close, Close::Not)
    }

    /// Asks the peer for a sign of life.
    pub(super) fn ping(&self) {
        let mut out = self.out();
        out.ping = true;
        out.wake();
    }

    /// Answers a ping.
    pub(super) fn pong(&self, payload: Bytes) {
        let mut out = self.out();
        out.pong = Some(payload);
        out.wake();
    }

    /// Closes in order, after what waits, and waits for the peer's close. The first close counts.
    pub(super) fn close(&self, code: u16, reason: &str) {
        self.begin_close(Some(code), reason, false);
    }

    /// The peer breaks the protocol: it is told, and nothing of it is awaited.
    pub(super) fn fail(&self, code: u16, reason: &str) {
        self.begin_close(Some(code), reason, true);
    }

    /// The peer closes: it reads no further frame, and gets its close back.
    pub(super) fn close_back(&self, code: Option<u16>) {
        self.begin_close(code, "", true);
    }

    fn begin_close(&self, code: Option<u16>, reason: &str, no_answer: bool) {
        let mut out = self.out();
        if no_answer {
            out.drop_frames();
        }
        match &mut out.close {
            close @ Close::Not => {
                let reason = cut(reason, REASON).to_owned();
                *close = Close::Waits { code, reason, since: Instant::now(), answered: no_answer };
            }
            Close::Waits { answered, .. } | Close::Sent { answered, .. } => *answered |= no_answer,
            Close::Ended => {}
        }
        out.wake();
    }

    /// Since when it closes.
    pub(super) fn closing_since(&self) -> Option<Instant> {
        match self.out().close {
            Close::Waits { since, .. } | Close::Sent { since, .. } => Some(since),
            Close::Not | Close::Ended => None,
        }
    }

    /// Ends the connection without a word; everything that waits is dropped.
    pub(super) fn end(&self) {
        self.forget();
        self.handle.end();
    }

    /// Nothing leaves any more.
    pub(super) fn forget(&self) {
        let mut out = self.out();
        out.close = Close::Ended;
        out.drop_frames();
        out.current.clear();
        out.bytes = 0;
        out.stalled = None;
        out.wake();
    }

    /// The next piece for the socket; `None` when nothing will leave any more.
    fn poll_piece(&self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        let mut out = self.out();
        match &mut out.close {
            Close::Ended => return Poll::Ready(None),
            Close::Sent { answered: true, flushed: true, .. } => {
                self.handle.finish();
                return Poll::Ready(None);
            }
            Close::Sent { answered, flushed, .. } => {
                // The close frame is with the socket when this is asked again.
                *flushed = true;
                if *answered {
                    cx.waker().wake_by_ref();
                }
                out.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Close::Not | Close::Waits { .. } => {}
        }
        if !out.current.is_empty() {
            let size = out.current.len().min(PIECE);
            let piece = out.current.split_to(size);
            out.bytes -= size;
            out.stalled = (out.bytes > 0).then(Instant::now);
            return Poll::Ready(Some(piece));
        }
        if let Some(payload) = out.pong.take() {
            return Poll::Ready(Some(control(PONG, &payload)));
        }
        if std::mem::take(&mut out.ping) {
            return Poll::Ready(Some(control(PING, &[])));
        }
        if let Some(frame) = out.frames.pop_front() {
            let head = head(TEXT, frame.len());
            out.current = frame;
            out.stalled = (out.bytes > 0).then(Instant::now);
            return Poll::Ready(Some(head));
        }
        if let Close::Waits { code, reason, since, answered } = &out.close {
            let mut payload = Vec::with_capacity(2 + reason.len());
            if let Some(code) = code {
                payload.extend_from_slice(&code.to_be_bytes());
                payload.extend_from_slice(reason.as_bytes());
            }
            out.close = Close::Sent { since: *since, answered: *answered, flushed: false };
            return Poll::Ready(Some(control(CLOSE, &payload)));
        }
        out.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// The head of a whole, unmasked frame.
fn head(opcode: u8, size: usize) -> Bytes {
    let mut head = Vec::with_capacity(10);
    head.push(0x80 | opcode);
    match (u8::try_from(size), u16::try_from(size)) {
        (Ok(small), _) if small < 126 => head.push(small),
        (_, Ok(medium)) => {
            head.push(126);
            head.extend_from_slice(&medium.to_be_bytes());
        }
        _ => {
            head.push(127);
            head.extend_from_slice(&(size as u64).to_be_bytes());
        }
    }
    head.into()
}

fn control(opcode: u8, payload: &[u8]) -> Bytes {
    let payload = payload.get(..125).unwrap_or(payload);
    [&head(opcode, payload.len()), payload].concat().into()
}

/// At most so many bytes of a text, cut between two characters.
fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The queue as the tree sees it.
pub(super) struct SocketSink(Arc<Link>);

impl SocketSink {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self(link)
    }
}

impl FrameSink for SocketSink {
    fn send(&self, text: String) -> Result<(), SinkFull> {
        self.0.queue(text)
    }

    fn close(&self, code: u16, reason: &str) {
        self.0.close(code, reason);
    }

    fn stalled_since(&self) -> Option<Instant> {
        self.0.out().stalled
    }
}

/// The body of an upgraded response: drives the socket's actor, and is what leaves on the connection. It is asked for a
/// piece only when the peer has read enough of those before.
pub(super) struct Body<A> {
    actor: Option<Pin<Box<A>>>,
    link: Arc<Link>,
}

impl<A> Body<A> {
    pub(super) fn new(actor: A, link: Arc<Link>) -> Self {
        Self { actor: Some(Box::pin(actor)), link }
    }
}

impl<A: Stream<Item = Result<Bytes, actix_web::Error>>> Stream for Body<A> {
    type Item = Result<Bytes, actix_web::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(actor) = &mut self.actor
            && actor.as_mut().poll_next(cx).is_ready()
        {
            // The actor writes nothing itself: this is its end.
            self.actor = None;
            self.link.close(1011, "internal error");
        }
        self.link.poll_piece(cx).map(|piece| piece.map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::task::noop_waker;

    fn link() -> Link {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        Link::new(Handle::new(stream))
    }

    /// Everything that would leave now, and whether that was all for ever.
    fn drain(link: &Link) -> (Vec<u8>, bool) {
        let waker = noop_waker();
        let (mut all, cx) = (Vec::new(), Context::from_waker(&waker));
        loop {
            if matches!(link.out().close, Close::Sent { answered: true, flushed: false, .. }) {
                let first = link.poll_piece(&cx);
                assert!(first.is_pending(), "the socket has its time to take the close");
            }
            match link.poll_piece(&cx) {
                Poll::Ready(Some(piece)) => {
                    assert!(piece.len() <= PIECE);
                    all.extend_from_slice(&piece);
                }
                Poll::Ready(None) => return (all, true),
                Poll::Pending => return (all, false),
            }
        }
    }

    #[test]
    fn frames_leave_whole_and_in_order_with_the_shortest_head() {
        let link = link();
        for size in [0, 1, 125, 126, 65_535, 65_536, 200_000] {
            link.queue("x".repeat(size)).expect("room");
            let (bytes, over) = drain(&link);
            let expected: Vec<u8> = match size {
                0..=125 => vec![0x81, size as u8],
                126..=65_535 => [&[0x81, 126][..], &(size as u16).to_be_bytes()].concat(),
                _ => [&[0x81, 127][..], &(size as u64).to_be_bytes()].concat(),
            };
            assert!(!over && bytes.starts_with(&expected), "{size}");
            assert_eq!(bytes.len(), expected.len() + size);
        }
    }

    #[test]
    fn control_frames_pass_between_frames_and_pings_do_not_pile_up() {
        let link = link();
        link.queue("ab".into()).expect("room");
        link.ping();
        link.ping();
        link.pong(Bytes::from_static(b"1"));
        link.pong(Bytes::from_static(b"2"));
        assert_eq!(drain(&link).0, b"\x8a\x012\x89\x00\x81\x02ab");
    }

    #[test]
    fn the_queue_is_bounded_in_frames_and_in_bytes() {
        let link = link();
        for _ in 0..QUEUE_FRAMES {
            link.queue("x".into()).expect("room");
        }
        assert_eq!(link.queue("x".into()), Err(SinkFull));
        drain(&link);
        let half = QUEUE_BYTES / 2;
        link.queue("x".repeat(half)).expect("room");
        link.queue("x".repeat(half)).expect("room");
        assert_eq!(link.queue("x".into()), Err(SinkFull), "one byte too many");
    }

    #[test]
    fn what_waits_without_leaving_counts_as_stalled_until_a_piece_leaves() {
        let link = link();
        assert!(link.out().stalled.is_none());
        link.queue("x".repeat(PIECE * 2)).expect("room");
        let first = link.out().stalled.expect("it waits");
        let waker = noop_waker();
        let cx = Context::from_waker(&waker);
        assert!(link.poll_piece(&cx).is_ready() && link.poll_piece(&cx).is_ready(), "the head and a piece");
        assert!(link.out().stalled.expect("the rest waits") >= first);
        drain(&link);
        assert!(link.out().stalled.is_none());
    }

    #[test]
    fn a_close_leaves_after_what_waits_and_its_reason_is_cut_between_characters() {
        let link = link();
        link.queue("a".into()).expect("room");
        link.close(1001, &"é".repeat(100));
        link.close(1008, "too late");
        assert_eq!(link.queue("b".into()), Err(SinkFull));
        let (bytes, over) = drain(&link);
        assert!(!over && bytes.starts_with(b"\x81\x01a\x88\x7a\x03\xe9"), "{bytes:?}");
        assert_eq!(&bytes[7..], "é".repeat(60).as_bytes());
        assert!(link.closing_since().is_some());
        link.close_back(Some(1001));
        assert_eq!(drain(&link), (Vec::new(), true), "the peer has answered");
        link.end();
        assert!(link.closing_since().is_none());
    }

    #[test]
    fn the_peers_close_goes_before_frames_that_nobody_reads_any_more() {
        let link = link();
        link.queue("a".into()).expect("room");
        link.close_back(Some(1000));
        assert_eq!(drain(&link), (b"\x88\x02\x03\xe8".to_vec(), true));
    }
}
