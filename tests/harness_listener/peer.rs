//! A harness that says exactly what a test tells it: a WebSocket client at the level of frames.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use nylorun_actors::model::Json;
use nylorun_actors::model::json::parse;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long anything may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const TOKEN: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
pub const OLD_TOKEN: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

/// The head of a good upgrade. `edit` changes header lines, `(name, value)`.
pub fn head(address: SocketAddr, path: &str, edit: impl FnOnce(&mut Vec<(String, String)>)) -> String {
    let mut headers: Vec<(String, String)> = [
        ("Host", address.to_string()),
        ("Upgrade", "websocket".to_owned()),
        ("Connection", "Upgrade".to_owned()),
        ("Sec-WebSocket-Version", "13".to_owned()),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==".to_owned()),
        ("Authorization", format!("Bearer {TOKEN}")),
        ("Nylorun-Harness-Api", "1".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    edit(&mut headers);
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("GET {path} HTTP/1.1\r\n{lines}\r\n")
}

/// Sends a request's head and reads the answer's, which ends with an empty line.
pub async fn request(address: SocketAddr, head: &str) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let byte = timeout(PATIENCE, stream.read_u8()).await.expect("an answer").expect("more of it");
        answer.push(byte);
    }
    (String::from_utf8(answer).unwrap(), stream)
}

/// What a peer receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Got {
    Text(String),
    Ping,
    Pong(Vec<u8>),
    Close(u16, String),
    /// The socket ended.
    Gone,
}

pub struct Peer {
    stream: TcpStream,
    next: u64,
    answers: HashMap<u64, String>,
    /// Messages that nobody has taken yet.
    messages: Vec<String>,
}

impl Peer {
    /// Connects; the listener must accept.
    pub async fn connect(address: SocketAddr) -> Self {
        let head = head(address, nylorun::harness_api::PATH, |_| {});
        let (answer, stream) = request(address, &head).await;
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        Self::over(stream)
    }

    pub fn over(stream: TcpStream) -> Self {
        Self { stream, next: 1, answers: HashMap::new(), messages: Vec::new() }
    }

    /// Connects and says hello.
    pub async fn ready(address: SocketAddr) -> Self {
        let mut peer = Self::connect(address).await;
        let hello = json!({"api": 1, "name": "scripted", "version": "0.17.0", "capabilities": {}});
        peer.call("hello", hello).await.unwrap();
        peer
    }

    pub async fn bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Bytes that the peer may refuse to take to their end.
    pub async fn push(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    pub async fn frame(&mut self, first: u8, payload: &[u8]) {
        self.push(&frame(first, payload)).await;
    }

    pub async fn text(&mut self, text: &str) {
        self.frame(0x81, text.as_bytes()).await;
    }

    /// The next frame, whatever it is.
    pub async fn receive(&mut self) -> Got {
        timeout(PATIENCE, self.read()).await.expect("a frame in time").unwrap_or(Got::Gone)
    }

    async fn read(&mut self) -> std::io::Result<Got> {
        let (first, second) = (self.stream.read_u8().await?, self.stream.read_u8().await?);
        assert_eq!((first & 0x70, second & 0x80), (0, 0), "no extension, no mask from a server");
        let size = match second {
            126 => usize::from(self.stream.read_u16().await?),
            127 => usize::try_from(self.stream.read_u64().await?).unwrap(),
            small => usize::from(small),
        };
        let mut payload = vec![0; size];
        self.stream.read_exact(&mut payload).await?;
        Ok(match first {
            0x81 => Got::Text(String::from_utf8(payload).unwrap()),
            0x88 if size == 0 => Got::Close(1005, String::new()),
            0x88 => {
                let reason = String::from_utf8(payload[2..].to_vec()).unwrap();
                Got::Close(u16::from_be_bytes([payload[0], payload[1]]), reason)
            }
            0x89 => Got::Ping,
            0x8A => Got::Pong(payload),
            other => panic!("a frame of kind {other:#x}"),
        })
    }

    /// The next text; pings are answered.
    pub async fn next_text(&mut self) -> String {
        loop {
            match self.receive().await {
                Got::Text(text) => return text,
                Got::Ping => self.frame(0x8A, b"").await,
                Got::Pong(_) => {}
                other => panic!("{other:?} instead of a text"),
            }
        }
    }

    /// Reads until the connection is over: the close's code and reason, if one came.
    pub async fn end(&mut self) -> Option<(u16, String)> {
        let mut close = None;
        loop {
            match self.receive().await {
                Got::Gone => return close,
                Got::Close(code, reason) => {
                    let payload = [&code.to_be_bytes()[..], reason.as_bytes()].concat();
                    self.frame(0x88, &payload).await;
                    close = Some((code, reason));
                }
                _ => {}
            }
        }
    }

    /// Asks, and says under which number.
    pub async fn ask(&mut self, method: &str, params: Json) -> u64 {
        let id = self.next;
        self.next += 1;
        self.text(&json!({"t": "req", "id": id, "m": method, "p": params}).to_string()).await;
        id
    }

    /// The text of an answer; other answers and messages are kept for later.
    pub async fn answer_text(&mut self, id: u64) -> String {
        loop {
            if let Some(text) = self.answers.remove(&id) {
                return text;
            }
            self.take_one().await;
        }
    }

    async fn take_one(&mut self) {
        let text = self.next_text().await;
        let value = parse(text.as_bytes()).unwrap();
        match value["t"].as_str() {
            Some("res") => {
                let id = value["id"].as_u64().unwrap();
                assert!(self.answers.insert(id, text).is_none(), "two answers to {id}");
            }
            Some("msg") => self.messages.push(text),
            // What core asks is not answered by itself: a test that cares reads texts.
            Some("req" | "abort") => {}
            other => panic!("core sends {other:?}: {text}"),
        }
    }

    /// The result of an answer, or its error's code.
    pub async fn answer(&mut self, id: u64) -> Result<Json, String> {
        let value = parse(self.answer_text(id).await.as_bytes()).unwrap();
        if value["ok"] == true {
            return Ok(value["r"].clone());
        }
        assert!(value["e"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{value}");
        Err(value["e"]["code"].as_str().unwrap().to_owned())
    }

    pub async fn call(&mut self, method: &str, params: Json) -> Result<Json, String> {
        let id = self.ask(method, params).await;
        self.answer(id).await
    }

    /// The next message of core.
    pub async fn message(&mut self) -> Json {
        while self.messages.is_empty() {
            self.take_one().await;
        }
        parse(self.messages.remove(0).as_bytes()).unwrap()
    }

    /// Leases a run.
    pub async fn lease(&mut self) -> Run {
        let leased = self.call("lease", json!({})).await.unwrap();
        Run::of(&leased)
    }
}

/// A run that was leased.
#[derive(Clone, Debug)]
pub struct Run {
    pub id: String,
    pub session: String,
    pub turn: String,
    pub epoch: i64,
    pub input: Json,
}

impl Run {
    pub fn of(leased: &Json) -> Self {
        let text = |key: &str| leased["run"][key].as_str().unwrap().to_owned();
        Self {
            id: text("runId"),
            session: text("sessionId"),
            turn: text("turnId"),
            epoch: leased["run"]["epoch"].as_i64().unwrap(),
            input: leased["input"].clone(),
        }
    }

    /// The intent of a model call.
    pub fn model(&self, name: &str) -> Json {
        self.intent(&json!({"kind": "model", "context": {"invocationId": name}}), name)
    }

    /// The intent of a tool call, which is an Action unless the harness has that tool.
    pub fn tool(&self, tool: &str, name: &str, input: Json) -> Json {
        let effect = json!({"kind": "tool", "capabilityId": "agent", "toolName": tool, "input": input,
            "context": {"invocationId": name, "callId": name}});
        self.intent(&effect, name)
    }

    fn intent(&self, part: &Json, name: &str) -> Json {
        let kind = part["kind"].as_str().unwrap();
        let mut effect = json!({
            "effectId": format!("{}:{}:{kind}:{name}", self.turn, self.input["checkpoint"]["segment"]),
            "sessionId": self.session, "turnId": self.turn, "agentId": "assistant",
            "manifestHash": self.input["checkpoint"]["manifestHash"],
        });
        effect.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        let typed = serde_json::from_value(effect.clone()).unwrap();
        let hash = nylorun_actors::model::canonical::request_hash(&typed);
        json!({"runId": self.id, "requestHash": hash, "effect": effect})
    }

    pub fn effect_id(intent: &Json) -> String {
        intent["effect"]["effectId"].as_str().unwrap().to_owned()
    }

    pub fn value(&self, intent: &Json, value: &Json) -> Json {
        json!({"runId": self.id, "effectId": Self::effect_id(intent), "value": value})
    }

    /// A completed turn that keeps these new transcript entries after `keep` others.
    pub fn completed(&self, keep: usize, entries: &[Json]) -> Json {
        json!({"runId": self.id, "status": "completed", "output": "done",
            "state": {"agentId": "assistant", "executionId": self.session, "transcript": [],
                "manifestHash": self.input["checkpoint"]["manifestHash"]},
            "transcript": [{"keep": keep, "entries": entries, "length": keep + entries.len()}]})
    }
}

/// A client's frame.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        size @ 0..=125 => bytes.push(0x80 | u8::try_from(size).unwrap()),
        size @ 126..=65_535 => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&u16::try_from(size).unwrap().to_be_bytes());
        }
        size => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&(size as u64).to_be_bytes());
        }
    }
    // The mask of nothing: large payloads would take long to mask in a test's build.
    let mask = if payload.len() > 65_535 { [0; 4] } else { [0x11, 0xA2, 0x33, 0xF4] };
    bytes.extend_from_slice(&mask);
    bytes.extend_from_slice(payload);
    if mask != [0; 4] {
        let from = bytes.len() - payload.len();
        for (byte, key) in bytes[from..].iter_mut().zip(mask.iter().cycle()) {
            *byte ^= key;
        }
    }
    bytes
}
