//! The harness's end of a frame channel, over any text transport (spec: harness-api, sections 5 and 6).
//!
//! The transport hands every text message to [`Channel::take`] and sends what [`Channel::next`] gives it. Params are
//! built from closed shapes and results are read into closed shapes, so both are checked here. A channel lives on one
//! thread, as the runs that use it do.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use nylorun_actors::harness::frame::{BadFrame, Frame};
use nylorun_actors::harness::methods::{self, Cancel, ResolvedEffect};
use nylorun_actors::limits::{HARNESS_FRAME_BYTES, HARNESS_REQUESTS};
use nylorun_actors::model::Json;
use nylorun_actors::model::json::encode;
use nylorun_actors::ports::engine::{ApiCode, ApiError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, oneshot, watch};

use super::outbox::{Outbox, Outgoing};

/// Bytes of a request's frame around its params: far more than the longest method and number need.
const FRAME_AROUND: usize = 128;

/// Requests in flight at most: what core allows, less room for renewals that are asked for between two looks.
pub(crate) const REQUESTS: usize = HARNESS_REQUESTS - 24;

/// What core tells a harness.
#[derive(Debug)]
pub enum Told {
    /// A run must stop.
    Cancel(Cancel),
    /// A pending effect has its outcome.
    Resolved(ResolvedEffect),
}

/// Why a transport must close.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} ({code})")]
pub struct Fatal {
    /// The close code.
    pub code: u16,
    /// In words.
    pub reason: String,
}

/// Params of a request, written down and known to fit a frame.
#[derive(Debug)]
pub struct Params(String);

impl Params {
    /// Writes params down.
    ///
    /// # Errors
    /// `invalid` when they are larger than a frame may be.
    pub fn of<P: Serialize>(params: &P) -> Result<Self, ApiError> {
        let text = encode(params);
        if text.len() + FRAME_AROUND > HARNESS_FRAME_BYTES {
            let message = format!("the params have {} bytes, more than a frame may have", text.len());
            return Err(ApiError::new(ApiCode::Invalid, message));
        }
        Ok(Self(text))
    }
}

/// Who answers core's requests.
pub trait Serve {
    /// A request of core; it is answered with [`Channel::answer`].
    ///
    /// # Errors
    /// Why it is refused at once.
    fn request(&self, id: u64, method: &str, params: Json) -> Result<(), ApiError>;
    /// Core gave a request up; one that is unknown was answered.
    fn abort(&self, id: u64);
    /// The channel is closed.
    fn closed(&self);
}

type Answer = Result<Json, ApiError>;
type Then = Box<dyn FnOnce(Answer)>;

/// One channel. Cheap to clone.
#[derive(Clone)]
pub struct Channel(Rc<Inner>);

struct Inner {
    last: Cell<u64>,
    pending: RefCell<BTreeMap<u64, Then>>,
    told: Box<dyn Fn(Told)>,
    serves: RefCell<Option<Rc<dyn Serve>>>,
    outbox: Outbox,
    /// Whether core takes what is said of a run in its order.
    ordered: Cell<bool>,
    /// How many more requests may be in flight; leases apart.
    requests: Semaphore,
    /// Why it is closed.
    closed: watch::Sender<Option<String>>,
}

impl Channel {
    /// A channel whose messages from core go to `told` in the order they come.
    pub fn new(told: impl Fn(Told) + 'static) -> Self {
        Self(Rc::new(Inner {
            last: Cell::new(0),
            pending: RefCell::default(),
            told: Box::new(told),
            serves: RefCell::default(),
            outbox: Outbox::new(),
            ordered: Cell::new(false),
            requests: Semaphore::new(REQUESTS),
            closed: watch::channel(None).0,
        }))
    }

    /// Says whether core lets nothing of a run overtake a value of it.
    pub fn set_ordered(&self, ordered: bool) {
        self.0.ordered.set(ordered);
    }

    /// Whether a run may say the next thing before its value is answered.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.0.ordered.get()
    }

    /// From now on core's requests go to `serves`; without, they are refused.
    pub fn serve(&self, serves: Rc<dyn Serve>) {
        if !self.is_closed() {
            *self.0.serves.borrow_mut() = Some(serves);
        }
    }

    /// Answers a request of core with the text of its result. It waits for room, like a request.
    pub async fn answer(&self, id: u64, answer: Result<String, ApiError>) {
        let text = match answer {
            Ok(result) if result.len() + FRAME_AROUND > HARNESS_FRAME_BYTES => {
                let message = format!("the result has {} bytes, more than a frame may have", result.len());
                Frame::failure(id, &ApiError::new(ApiCode::Internal, message))
            }
            Ok(result) => format!(r#"{{"t":"res","id":{id},"ok":true,"r":{result}}}"#),
            Err(error) => Frame::failure(id, &error),
        };
        if let Some(room) = self.0.outbox.room().await {
            self.0.outbox.push(text, room);
        }
    }

    /// Makes a request. Dropping the future before it is answered tells core that nobody waits any more.
    ///
    /// # Errors
    /// Core's refusal; `invalid` for params or a result of the wrong shape, `unavailable` when the channel is closed.
    pub async fn request<P: Serialize, R: DeserializeOwned>(
        &self,
        method: &str,
        params: &P,
    ) -> Result<R, ApiError> {
        self.send(method, Params::of(params)?).await
    }

    /// The same with params that are written down already.
    ///
    /// # Errors
    /// As [`Channel::request`].
    pub async fn send<R: DeserializeOwned>(&self, method: &str, params: Params) -> Result<R, ApiError> {
        let _place = self.0.requests.acquire().await.map_err(|_| closed())?;
        self.begin(method, &params).await?.answer().await
    }

    /// Makes two requests, the second right behind the first and before that is answered.
    ///
    /// # Errors
    /// As [`Channel::request`], for each; outside, when the first was not sent.
    pub async fn send_both<R: DeserializeOwned, S: DeserializeOwned>(
        &self,
        first: (&str, Params),
        second: (&str, Params),
    ) -> Result<(Result<R, ApiError>, Result<S, ApiError>), ApiError> {
        // Together: two that wait for each other's place would wait for ever.
        let _places = self.0.requests.acquire_many(2).await.map_err(|_| closed())?;
        let asked = self.begin(first.0, &first.1).await?;
        let then = self.begin(second.0, &second.1).await;
        let answer = asked.answer().await;
        let second = match then {
            Ok(then) => then.answer().await,
            Err(error) => Err(error),
        };
        Ok((answer, second))
    }

    async fn begin(&self, method: &str, params: &Params) -> Result<Asked<'_>, ApiError> {
        let (answered, answer) = oneshot::channel();
        let then = move |result| {
            // Its requester may have gone this very moment.
            let _ = answered.send(result);
        };
        let id = self.ask(method, params, Box::new(then)).await?;
        Ok(Asked { channel: self, id, answer: Some(answer) })
    }

    /// Makes a request whose answer is handed to `then` before any later frame is looked at: a `cancel` may follow the
    /// answer of a lease at once. `then` is called when the channel closes, too.
    ///
    /// # Errors
    /// `unavailable` when the channel is closed; `then` is not called.
    pub async fn request_then(
        &self,
        method: &str,
        params: &Params,
        then: impl FnOnce(Answer) + 'static,
    ) -> Result<u64, ApiError> {
        self.ask(method, params, Box::new(then)).await
    }

    async fn ask(&self, method: &str, params: &Params, then: Then) -> Result<u64, ApiError> {
        let room = self.0.outbox.room().await.ok_or_else(closed)?;
        // Numbered only now: a requester that gives up while it waits for room leaves no gap.
        let id = self.0.last.get() + 1;
        self.0.last.set(id);
        self.0.pending.borrow_mut().insert(id, then);
        let text = format!(r#"{{"t":"req","id":{id},"m":{},"p":{}}}"#, encode(method), params.0);
        self.0.outbox.push(text, room);
        Ok(id)
    }

    /// Tells core that a request is given up. Its answer is still taken if it was on its way.
    pub fn abort(&self, id: u64) {
        if self.0.pending.borrow().contains_key(&id) {
            self.0.outbox.push_abort(Frame::abort(id));
        }
    }

    /// A text message has come.
    ///
    /// # Errors
    /// [`Fatal`]: the channel is closed by it, and the transport must close too.
    pub fn take(&self, text: &str) -> Result<(), Fatal> {
        match Frame::read(text.as_bytes()) {
            Ok(Frame::Response { id, result }) => {
                // Nobody waits for a number that is unknown or was given up.
                let then = self.0.pending.borrow_mut().remove(&id);
                if let Some(then) = then {
                    then(result);
                }
                Ok(())
            }
            Ok(Frame::Message { name, params }) => {
                // What does not read is dropped, as unknown messages are.
                let told = match name.as_str() {
                    "cancel" => serde_json::from_value(params).ok().map(Told::Cancel),
                    "effect.resolved" => serde_json::from_value(params).ok().map(Told::Resolved),
                    _ => None,
                };
                if let Some(told) = told {
                    (self.0.told)(told);
                }
                Ok(())
            }
            Ok(Frame::Request { id, method, params }) => {
                let refused = match self.server() {
                    Some(server) => server.request(id, &method, params).err(),
                    None => Some(refusal(&method, &params)),
                };
                refused.map_or(Ok(()), |error| self.refuse(id, &error))
            }
            Ok(Frame::Abort { id }) => {
                if let Some(server) = self.server() {
                    server.abort(id);
                }
                Ok(())
            }
            Ok(Frame::Ping) => Ok(()),
            Err(BadFrame::Request { id, message }) => {
                self.refuse(id, &ApiError::new(ApiCode::Invalid, message))
            }
            Err(BadFrame::NotJson) => self.fatal(1007, "Harness API frames are JSON text"),
            Err(BadFrame::Other { message }) => self.fatal(1008, &format!("invalid frame: {message}")),
        }
    }

    fn server(&self) -> Option<Rc<dyn Serve>> {
        self.0.serves.borrow().clone()
    }

    fn refuse(&self, id: u64, error: &ApiError) -> Result<(), Fatal> {
        if self.0.outbox.push_refusal(Frame::failure(id, error)) {
            return Ok(());
        }
        self.fatal(1008, "core does not read its answers")
    }

    fn fatal(&self, code: u16, reason: &str) -> Result<(), Fatal> {
        self.close(code, reason);
        Err(Fatal { code, reason: reason.to_owned() })
    }

    /// What the transport does next. Cancel safe.
    pub async fn next(&self) -> Outgoing {
        self.0.outbox.next().await
    }

    /// A further text message, if one waits.
    #[must_use]
    pub fn next_text(&self) -> Option<String> {
        self.0.outbox.next_text()
    }

    /// Closes the channel: every request in flight is rejected `unavailable`. What is queued still goes out.
    pub fn close(&self, code: u16, reason: &str) {
        self.0.outbox.close(code, reason);
        self.0.requests.close();
        let first = self.0.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            if first {
                *closed = Some(reason.to_owned());
            }
            first
        });
        if first {
            let pending = std::mem::take(&mut *self.0.pending.borrow_mut());
            for then in pending.into_values() {
                then(Err(closed()));
            }
            // It holds this channel: taken out, so that neither keeps the other.
            let server = self.0.serves.borrow_mut().take();
            if let Some(server) = server {
                server.closed();
            }
        }
    }

    /// Whether it is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.closed.borrow().is_some()
    }

    /// Waits until it is closed; says why.
    pub async fn closed(&self) -> String {
        let mut closed = self.0.closed.subscribe();
        // The sender lives as long as this channel does.
        match closed.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// Requests that wait for their answer.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.pending.borrow().len()
    }
}

/// A request that somebody waits for; dropped when they stop to.
struct Asked<'a> {
    channel: &'a Channel,
    id: u64,
    /// Taken when it is answered.
    answer: Option<oneshot::Receiver<Answer>>,
}

impl Asked<'_> {
    async fn answer<R: DeserializeOwned>(mut self) -> Result<R, ApiError> {
        let Some(answer) = self.answer.as_mut() else { return Err(closed()) };
        let result = answer.await.unwrap_or_else(|_| Err(closed()));
        self.answer = None;
        methods::result(result?)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.answer.is_none() {
            return;
        }
        self.channel.abort(self.id);
        let forgotten = self.channel.0.pending.borrow_mut().remove(&self.id);
        drop(forgotten);
    }
}

fn closed() -> ApiError {
    ApiError::new(ApiCode::Unavailable, "the connection to core is closed")
}

/// A harness without workspaces declares none, so a core that asks for one anyway has none.
fn refusal(method: &str, params: &Json) -> ApiError {
    const WORKSPACE: [&str; 6] = ["exec", "read", "write", "report", "sweep", "remove"];
    let known = method.strip_prefix("workspace.").is_some_and(|name| WORKSPACE.contains(&name));
    if !known {
        ApiError::new(ApiCode::Invalid, format!("unknown method {method:?}"))
    } else if params.is_object() || params.is_null() {
        ApiError::new(ApiCode::Unavailable, "this harness serves no workspaces")
    } else {
        ApiError::new(ApiCode::Invalid, "invalid params: an object is needed")
    }
}

#[cfg(test)]
mod tests;
