//! HarnessSocket: the thin actor between a connection's socket and its [`HarnessActor`] (DESIGN.md, section 4).
//!
//! It lives in the response's body, so it is driven only while the socket takes bytes: it freezes, timers and all, while
//! its peer does not read. Whatever must not freeze is the HarnessActor's, which ends the connection through its sink.
//! While the HarnessActor is busy the socket is not read, and the peer is slowed down by TCP.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use actix_web::web::{Bytes, Payload};
use actix_web_actors::HttpContext;
use futures_util::Stream;
use nylorun_actors::harness::HarnessActor;
use nylorun_actors::limits::HARNESS_FRAME_BYTES;
use nylorun_actors::messages::harness::{Closed, Heard, Incoming};

use super::limits::LARGE;
use super::link::{Body, Link};
use super::messages::{Arrived, Event, Messages, Violation};
use super::registry::Place;

/// The hold of a connection on its HarnessActor: whichever way the connection ends, the actor is told.
pub(super) struct Attached(Addr<HarnessActor>);

impl Attached {
    pub(super) fn new(harness: Addr<HarnessActor>) -> Self {
        Self(harness)
    }

    fn closed(&self, code: u16, reason: impl Into<String>) {
        // Once or twice for each connection, and the first one ends the actor.
        self.0.do_send(Closed { code, reason: reason.into() });
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.closed(1001, "the connection was lost");
    }
}

/// The actor of one socket.
pub(super) struct HarnessSocket {
    harness: Attached,
    place: Place,
    ping_every: Duration,
    payload: Option<Payload>,
    reading: Option<SpawnHandle>,
}

impl HarnessSocket {
    /// The body of the upgraded response of a connection.
    pub(super) fn serve(
        harness: Attached,
        place: Place,
        payload: Payload,
        ping_every: Duration,
    ) -> impl Stream<Item = Result<Bytes, actix_web::Error>> + use<> {
        let link = Arc::clone(place.link());
        let socket = Self { harness, place, ping_every, payload: Some(payload), reading: None };
        Body::new(HttpContext::create(socket), link)
    }

    fn link(&self) -> &Link {
        self.place.link()
    }

    /// Gives the HarnessActor a message. A small one goes on its way when there is room for it; the socket waits for
    /// room, and for a large one to be taken.
    fn hand_over(&mut self, text: String, more: bool, ctx: &mut HttpContext<Self>) {
        if self.link().is_crowded() {
            let link = Arc::clone(self.place.link());
            // It is asked again whenever a piece leaves: what drains the link drives this actor.
            let room = poll_fn(move |_| if link.is_crowded() { Poll::Pending } else { Poll::Ready(()) });
            ctx.wait(wrap_future::<_, Self>(room));
        }
        let message = Incoming { text, more };
        let message = if message.text.len() >= LARGE {
            message
        } else {
            match self.harness.0.try_send(message) {
                Ok(()) => return,
                Err(SendError::Full(message)) => message,
                Err(SendError::Closed(_)) => return self.link().close(1011, "internal error"),
            }
        };
        let taken = self.harness.0.send(message);
        ctx.wait(wrap_future::<_, Self>(taken).map(|taken, act, _| {
            if taken.is_err() {
                act.link().close(1011, "internal error");
            }
        }));
    }

    fn heard(&self) {
        // When there is no room its messages are signs of life enough.
        let _ = self.harness.0.try_send(Heard);
    }

    fn stop_reading(&mut self, ctx: &mut HttpContext<Self>) {
        if let Some(reading) = self.reading.take() {
            ctx.cancel_future(reading);
        }
    }
}

impl Actor for HarnessSocket {
    type Context = HttpContext<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if let Some(payload) = self.payload.take() {
            self.reading = Some(Self::add_stream(Messages::new(payload, HARNESS_FRAME_BYTES), ctx));
        }
        ctx.run_interval(self.ping_every, |act, _| act.link().ping());
    }
}

impl StreamHandler<Result<Arrived, Violation>> for HarnessSocket {
    fn handle(&mut self, arrived: Result<Arrived, Violation>, ctx: &mut Self::Context) {
        let (event, more) = match arrived {
            Ok(Arrived { event, more }) => (Ok(event), more),
            Err(violation) => (Err(violation), false),
        };
        match event {
            Ok(Event::Text(text)) => self.hand_over(text, more, ctx),
            Ok(Event::Ping(payload)) => {
                self.link().pong(payload);
                self.heard();
            }
            Ok(Event::Pong) => self.heard(),
            Ok(Event::Close(code)) => {
                self.link().close_back(code);
                self.harness.closed(code.unwrap_or(1000), "closed by the harness");
                self.stop_reading(ctx);
            }
            Err(violation) => {
                self.link().fail(violation.code(), &violation.to_string());
                self.harness.closed(violation.code(), violation.to_string());
                self.stop_reading(ctx);
            }
        }
    }

    /// The socket is gone, or all was read.
    fn finished(&mut self, _ctx: &mut Self::Context) {
        if self.link().closing_since().is_none() {
            self.link().end();
            self.harness.closed(1001, "the connection was lost");
        }
    }
}
