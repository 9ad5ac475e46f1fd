//! Work after 202: heartbeats keep its delivery alive, then its outcome is posted (spec: engine, section 10.4).

use std::time::{Duration, SystemTime};

use nylorun_actors::model::json::{Json, encode, parse};
use reqwest::StatusCode;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::book::Book;
use crate::cli::client::{PROTOCOL, segment};

/// When the first heartbeat goes out, and the shortest pause between two.
const BEAT: Duration = Duration::from_secs(1);
/// How often a result is tried.
const TRIES: u32 = 5;
/// Pause after the first try that failed; doubling.
const FIRST: Duration = Duration::from_millis(250);
/// The longest such pause.
const LONGEST: Duration = Duration::from_secs(4);
/// How long one call may take.
const CALL: Duration = Duration::from_secs(10);

/// One Action's work.
pub struct Work {
    /// The Runtime's base URL.
    pub runtime: String,
    /// Speaks to it.
    pub http: reqwest::Client,
    /// Which Action.
    pub action: String,
    /// Tokens of its deliveries, the newest last.
    pub deliveries: watch::Receiver<String>,
    /// How long it takes.
    pub takes: Duration,
    /// What comes of it.
    pub value: Json,
    /// Where it is written down.
    pub book: Book,
}

/// What a heartbeat came to.
enum Beat {
    /// The delivery lives on, with a new token, so long.
    Lives(String, Duration),
    /// Nobody waits for this delivery.
    Over,
    /// The Runtime was not reached, or was not able to say.
    Unknown,
}

impl Work {
    /// Does it to its end, or until nobody waits for it.
    pub async fn run(mut self) {
        let mut delivery = self.deliveries.borrow_and_update().clone();
        let mut token = delivery.clone();
        let done = Instant::now() + self.takes;
        let mut beat = Instant::now() + BEAT;
        while beat < done {
            sleep_until(beat).await;
            if self.deliveries.has_changed().unwrap_or(false) {
                delivery = self.deliveries.borrow_and_update().clone();
                token.clone_from(&delivery);
            }
            beat = Instant::now() + BEAT;
            match self.heartbeat(&token).await {
                Beat::Lives(next, left) => {
                    token = next;
                    beat = Instant::now() + (left / 3).max(BEAT);
                }
                // Stop without a word, before anything was done: the Runtime has decided without this delivery.
                Beat::Over if self.book.give_up(&self.action, &delivery) => return,
                Beat::Over | Beat::Unknown => {}
            }
        }
        sleep_until(done).await;
        // Here the money would move, and the book would be written in the same transaction.
        self.book.finish(&self.action, self.value.clone());
        if self.deliveries.has_changed().unwrap_or(false) {
            token = self.deliveries.borrow_and_update().clone();
        }
        self.post(&token).await;
    }

    fn call(&self, token: &str, what: &str) -> reqwest::RequestBuilder {
        let url = format!("{}/v1/actions/{}/{what}", self.runtime, segment(&self.action));
        self.http.post(url).timeout(CALL).bearer_auth(token).header("nylorun-protocol", PROTOCOL)
    }

    async fn heartbeat(&self, token: &str) -> Beat {
        let Ok(answer) = self.call(token, "heartbeat").send().await else { return Beat::Unknown };
        if answer.status() == StatusCode::CONFLICT {
            return Beat::Over;
        }
        if !answer.status().is_success() {
            return Beat::Unknown;
        }
        let body = answer.bytes().await.ok().and_then(|bytes| parse(&bytes).ok()).unwrap_or(Json::Null);
        let deadline = body["deadlineAt"].as_str().and_then(left);
        match (body["token"].as_str(), deadline) {
            (Some(token), Some(left)) => Beat::Lives(token.to_owned(), left),
            _ => Beat::Unknown,
        }
    }

    /// Posts the outcome: up to five tries, none after a refusal that time does not change.
    async fn post(&self, token: &str) {
        let body = encode(&json!({ "value": self.value }));
        let mut pause = FIRST;
        for left in (0..TRIES).rev() {
            let request = self.call(token, "result").header("content-type", "application/json");
            if let Ok(answer) = request.body(body.clone()).send().await {
                let status = answer.status();
                let final_refusal = status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS;
                if status.is_success() || final_refusal {
                    return;
                }
            }
            if left > 0 {
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST);
            }
        }
    }
}

/// Time until an instant as the Runtime writes it.
fn left(instant: &str) -> Option<Duration> {
    let at = nylorun_actors::model::Micros::from_iso(instant)?;
    let at = SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(at.0).ok()?);
    Some(at.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO))
}
