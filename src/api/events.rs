//! `GET /v1/sessions/{sessionId}/events`: replay and live in one stream of server-sent events
//! (spec: http-api, section 8.4).
//!
//! The stream is pulled: the next event is asked for when the client's socket has room for it, so a slow client slows
//! itself alone and nothing piles up. Only recorded events carry an id: a comment or a preview can never move the
//! place where a client resumes.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::body::{BodySize, MessageBody};
use actix_web::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName};
use actix_web::web::Bytes;
use nylorun_actors::model::ids::SessionId;
use nylorun_actors::tenant::{Observed, Observer};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval_at};

use super::answer::Answer;
use super::call::Call;
use super::items::start;
use super::limits::KEEP_ALIVE;

pub(super) async fn get(call: Call) -> Answer {
    let cursor = start(&call)?;
    let previews = call.query().get("preview").as_deref() == Some("1");
    let reach = call.caller.reach()?;
    let id = SessionId::from(call.param(0));
    // Whatever is wrong is said before the stream begins.
    let observer = call.tenant().observe(&id, &reach, cursor.as_deref(), previews).await?;
    let frames = Frames::new(observer, call.state.slot().closing(), KEEP_ALIVE);
    Ok(HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, "text/event-stream"))
        .insert_header((CACHE_CONTROL, "no-cache"))
        .insert_header((CONNECTION, "keep-alive"))
        .insert_header((HeaderName::from_static("x-accel-buffering"), "no"))
        .body(frames))
}

/// A wait for the next event; the source comes back with it.
type Next<S> = Pin<Box<dyn Future<Output = (S, Option<Observed>)>>>;

/// Where events come from.
trait Source: Sized + 'static {
    fn next(self) -> Next<Self>;
}

impl Source for Observer {
    fn next(mut self) -> Next<Self> {
        Box::pin(async move {
            let observed = Self::next(&mut self).await;
            (self, observed)
        })
    }
}

/// The body of a stream.
struct Frames<S> {
    /// Kept across keep-alives: a wait for the next event is never thrown away.
    waiting: Option<Next<S>>,
    closed: Pin<Box<dyn Future<Output = ()>>>,
    keep_alive: Interval,
}

impl<S: Source> Frames<S> {
    fn new(source: S, mut closing: watch::Receiver<bool>, pause: Duration) -> Self {
        let mut keep_alive = interval_at(tokio::time::Instant::now() + pause, pause);
        // A client that did not read for a minute needs one comment, not four.
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let closed = Box::pin(async move {
            // An error means that the state is gone, and with it everything to wait for.
            let _ = closing.wait_for(|closing| *closing).await;
        });
        Self { waiting: Some(source.next()), closed, keep_alive }
    }
}

impl<S: Source> MessageBody for Frames<S> {
    type Error = std::convert::Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        if this.closed.as_mut().poll(cx).is_ready() {
            this.waiting = None;
        }
        let Some(waiting) = &mut this.waiting else { return Poll::Ready(None) };
        if let Poll::Ready((source, observed)) = waiting.as_mut().poll(cx) {
            this.keep_alive.reset();
            this.waiting = observed.is_some().then(|| source.next());
            return Poll::Ready(observed.map(|observed| Ok(frame(&observed))));
        }
        this.keep_alive.poll_tick(cx).map(|_| Some(Ok(Bytes::from_static(b": keepalive\n\n"))))
    }
}

fn frame(observed: &Observed) -> Bytes {
    let mut out = String::new();
    // Writing to a String cannot fail. JSON text of ours has no line breaks.
    let _ = match observed {
        Observed::Event { cursor, kind, body } => {
            out.reserve(body.len() + cursor.len() + kind.len() + 24);
            write!(out, "id: {cursor}\nevent: {kind}\ndata: {body}\n\n")
        }
        Observed::Preview(body) => write!(out, "event: nylorun.preview\ndata: {body}\n\n"),
    };
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::VecDeque;
    use std::rc::Rc;

    struct Script {
        events: VecDeque<Observed>,
        asked: Rc<Cell<usize>>,
        ends: bool,
    }

    impl Source for Script {
        fn next(mut self) -> Next<Self> {
            self.asked.set(self.asked.get() + 1);
            Box::pin(async move {
                let next = self.events.pop_front();
                if next.is_none() && !self.ends {
                    std::future::pending::<()>().await;
                }
                (self, next)
            })
        }
    }

    fn event(n: usize) -> Observed {
        Observed::Event {
            cursor: format!("c{n}"),
            kind: "turn.completed",
            body: format!("{{\"n\":{n}}}").into(),
        }
    }

    async fn next<S: Source>(frames: &mut Frames<S>) -> Option<String> {
        let bytes =
            std::future::poll_fn(|cx| Pin::new(&mut *frames).poll_next(cx)).await?.expect("infallible");
        Some(String::from_utf8(bytes.to_vec()).expect("text"))
    }

    fn stream(events: Vec<Observed>, ends: bool) -> (Frames<Script>, Rc<Cell<usize>>, watch::Sender<bool>) {
        let (closing, receiver) = watch::channel(false);
        let asked = Rc::new(Cell::new(0));
        let script = Script { events: events.into(), asked: Rc::clone(&asked), ends };
        (Frames::new(script, receiver, Duration::from_millis(20)), asked, closing)
    }

    #[actix_web::test]
    async fn events_carry_their_cursor_as_id_and_previews_carry_none() {
        let preview = Observed::Preview(r#"{"text":"h"}"#.into());
        let (mut frames, _, _closing) = stream(vec![event(1), preview], true);
        assert_eq!(
            next(&mut frames).await.as_deref(),
            Some("id: c1\nevent: turn.completed\ndata: {\"n\":1}\n\n")
        );
        assert_eq!(
            next(&mut frames).await.as_deref(),
            Some("event: nylorun.preview\ndata: {\"text\":\"h\"}\n\n")
        );
        assert_eq!(next(&mut frames).await, None);
        assert_eq!(next(&mut frames).await, None, "an ended stream stays ended");
    }

    #[actix_web::test]
    async fn a_quiet_stream_says_that_it_lives_and_then_goes_on() {
        let (mut frames, asked, _closing) = stream(Vec::new(), false);
        for _ in 0..2 {
            assert_eq!(next(&mut frames).await.as_deref(), Some(": keepalive\n\n"));
        }
        assert_eq!(asked.get(), 1, "the wait for the next event survives keep-alives");
    }

    #[actix_web::test]
    async fn nothing_is_read_ahead_of_the_client() {
        let (mut frames, asked, _closing) = stream((0..100).map(event).collect(), true);
        next(&mut frames).await;
        next(&mut frames).await;
        assert!(asked.get() <= 3, "{}", asked.get());
    }

    #[actix_web::test]
    async fn closing_ends_a_waiting_stream() {
        let (mut frames, _, closing) = stream(Vec::new(), false);
        actix_web::rt::spawn(async move { closing.send_replace(true) });
        loop {
            match next(&mut frames).await {
                None => break,
                Some(text) => assert_eq!(text, ": keepalive\n\n"),
            }
        }
    }
}
