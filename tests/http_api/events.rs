//! Server-sent events over a real socket (spec: http-api, section 8.4).

use futures_util::StreamExt as _;
use nylorun_actors::testing::engine::Step;

use super::support::{Api, Request, message};

/// Reads frames of a stream one after the other.
struct Frames {
    response: reqwest::Response,
    text: String,
}

impl Frames {
    async fn open(request: Request) -> Self {
        let response = request.stream().await;
        assert_eq!(response.status(), 200);
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache"),
            ("x-accel-buffering", "no"),
        ] {
            assert_eq!(response.headers()[name], value);
        }
        Self { response, text: String::new() }
    }

    /// The next frame that is no comment; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.text.find("\n\n") {
                let frame: String = self.text.drain(..at + 2).collect();
                if !frame.starts_with(':') {
                    return Some(frame);
                }
                continue;
            }
            let chunk = self.response.chunk().await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn until(&mut self, kind: &str) -> Vec<(String, String)> {
        let mut seen = Vec::new();
        loop {
            let frame = self.next().await.expect("the stream goes on");
            let mut lines = frame.lines();
            let id = lines.next().unwrap().strip_prefix("id: ").unwrap().to_owned();
            let event = lines.next().unwrap().strip_prefix("event: ").unwrap().to_owned();
            let data = lines.next().unwrap().strip_prefix("data: ").unwrap();
            let data = nylorun_actors::model::json::parse(data.as_bytes()).unwrap();
            assert_eq!((data["cursor"].as_str(), data["type"].as_str()), (Some(&*id), Some(&*event)));
            seen.push((id, event.clone()));
            if event == kind {
                return seen;
            }
        }
    }
}

#[actix_web::test]
async fn replay_and_live_are_one_stream_and_a_cursor_resumes_it() {
    let api = Api::start(vec![Step::Model(0)]).await;
    api.session("s", "ada").await;
    // The head comes at once, before there is anything to say.
    let mut live = Frames::open(api.app("GET", "/v1/sessions/s/events")).await;
    for key in ["k1", "k2"] {
        let answer = api.app("POST", "/v1/sessions/s/commands").json(&message(key, "hi")).send().await;
        assert_eq!(answer.status, 200);
        let seen = live.until("turn.completed").await;
        assert_eq!(seen[0].1, "command.message");
        api.until("s", "completed").await;
    }
    let items = api.app("GET", "/v1/sessions/s/items").send().await.json();
    let all: Vec<&str> =
        items["items"].as_array().unwrap().iter().map(|i| i["cursor"].as_str().unwrap()).collect();
    for at in 0..all.len() - 1 {
        for request in [
            api.app("GET", &format!("/v1/sessions/s/events?cursor={}", all[at])),
            api.app("GET", "/v1/sessions/s/events").header("last-event-id", all[at]),
        ] {
            let mut resumed = Frames::open(request).await;
            let frame = resumed.next().await.unwrap();
            assert!(frame.starts_with(&format!("id: {}\n", all[at + 1])), "{frame}");
        }
    }
    let mut whole =
        Frames::open(api.app("GET", "/v1/sessions/s/events?cursor=").header("last-event-id", all[2])).await;
    assert!(whole.next().await.unwrap().starts_with(&format!("id: {}\n", all[0])));
}

#[actix_web::test]
async fn whatever_is_wrong_is_said_before_the_stream_begins() {
    let api = Api::start(vec![]).await;
    api.session("s", "ada").await;
    let bad = api.app("GET", "/v1/sessions/s/events?cursor=%21").send().await;
    assert_eq!(bad.refusal(), (400, "request_rejected".into()));
    let missing = api.app("GET", "/v1/sessions/none/events").send().await;
    assert_eq!(missing.refusal(), (404, "request_rejected".into()));
    let twice =
        api.app("GET", "/v1/sessions/s/events").header("last-event-id", "a").header("last-event-id", "b");
    assert_eq!(twice.send().await.refusal(), (400, "subject_invalid".into()));
}

#[actix_web::test]
async fn a_stream_ends_without_a_word_when_the_host_stops() {
    let api = Api::start(vec![]).await;
    api.session("s", "ada").await;
    let mut live = Frames::open(api.app("GET", "/v1/sessions/s/events")).await;
    api.state.slot().close();
    assert_eq!(live.next().await, None);
}

#[actix_web::test]
async fn a_client_that_does_not_read_slows_nobody_and_misses_nothing() {
    let api = Api::start(vec![Step::Model(0)]).await;
    api.session("s", "ada").await;
    let slow = api.app("GET", "/v1/sessions/s/events").stream().await;
    let mut turns = 0;
    // More than sockets hold, so the stream must wait for its client.
    let large = "x".repeat(900_000);
    for key in 0..12 {
        let answer =
            api.app("POST", "/v1/sessions/s/commands").json(&message(&key.to_string(), &large)).send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        api.until("s", "completed").await;
        turns += 1;
    }
    let mut completed = 0;
    let mut text = String::new();
    let mut chunks = slow.bytes_stream();
    while completed < turns {
        let chunk = chunks.next().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        while let Some(at) = text.find("\n\n") {
            let frame: String = text.drain(..at + 2).collect();
            completed += usize::from(frame.contains("\nevent: turn.completed\n"));
        }
    }
}
