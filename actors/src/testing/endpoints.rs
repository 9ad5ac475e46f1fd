//! Action endpoints below the port whose every answer a test chooses. They record what reached them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;

use crate::model::Json;
use crate::model::json::{encode, parse};
use crate::ports::action::{ActionTransport, Answered, Delivery, Schemas};

/// What an endpoint does with a delivery: after so many ms it answers.
pub type Reaction = (u64, Answered);

type Plan = dyn Fn(&Seen) -> Reaction + Send + Sync;

/// A delivery that reached an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Where it went.
    pub url: String,
    /// The Action's id, `None` for a ping.
    pub action: Option<String>,
    /// Its generation.
    pub generation: i64,
    /// The body.
    pub body: Json,
    /// How many deliveries were with endpoints when this one came, itself included.
    pub at_once: usize,
}

/// All endpoints of a world.
#[derive(Clone)]
pub struct FakeEndpoints {
    plan: Arc<Plan>,
    seen: Arc<Mutex<Vec<Seen>>>,
    busy: Arc<Mutex<usize>>,
}

impl FakeEndpoints {
    /// Endpoints that answer as planned.
    pub fn new(plan: impl Fn(&Seen) -> Reaction + Send + Sync + 'static) -> Self {
        Self { plan: Arc::new(plan), seen: Arc::default(), busy: Arc::default() }
    }

    /// Endpoints that answer each Action at once with this output, and each ping well.
    #[must_use]
    pub fn answering(output: Json) -> Self {
        Self::new(move |seen| (0, if seen.action.is_some() { ok(&output) } else { pong(seen) }))
    }

    /// What has reached them, in order.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// 200 with a plain body.
#[must_use]
pub fn ok(output: &Json) -> Answered {
    status(200, output)
}

/// 200 with a tagged outcome.
#[must_use]
pub fn tagged(outcome: &Json) -> Answered {
    Answered::Response { status: 200, tagged: true, retry_after: None, body: encode(outcome).into_bytes() }
}

/// Any status with a JSON body.
#[must_use]
pub fn status(status: u16, body: &Json) -> Answered {
    Answered::Response { status, tagged: false, retry_after: None, body: encode(body).into_bytes() }
}

/// A good answer to a ping.
#[must_use]
pub fn pong(seen: &Seen) -> Answered {
    ok(&json!({ "agentId": seen.body["agentId"], "implementationVersion": "served" }))
}

struct Busy(Arc<Mutex<usize>>);

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}

impl ActionTransport for FakeEndpoints {
    fn post(&self, delivery: Delivery) -> BoxFuture<'static, Answered> {
        let at_once = {
            let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            *busy += 1;
            *busy
        };
        let busy = Busy(Arc::clone(&self.busy));
        let seen = Seen {
            url: delivery.url.to_string(),
            action: delivery.action.as_deref().map(str::to_owned),
            generation: delivery.generation,
            body: parse(delivery.body.as_bytes()).unwrap_or_default(),
            at_once,
        };
        let (after, answer) = (self.plan)(&seen);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
        let timeout = delivery.timeout;
        async move {
            let _busy = busy;
            let answering = tokio::time::sleep(Duration::from_millis(after));
            match tokio::time::timeout(timeout, answering).await {
                Ok(()) => answer,
                Err(_) => Answered::Lost { code: "ABORTED", message: "the time was up".to_owned() },
            }
        }
        .boxed()
    }

    fn check_url(&self, _url: &str) -> Result<(), Vec<String>> {
        Ok(())
    }
}

/// Schemas of which only `{"type": "number"}` says no, to what is not one.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberSchemas;

impl Schemas for NumberSchemas {
    fn check(&self, schema: &Json, value: &Json) -> Result<(), String> {
        if schema["type"] == "number" && !value.is_number() {
            return Err("it is not a number".to_owned());
        }
        Ok(())
    }
}
