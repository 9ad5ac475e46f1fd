//! Action endpoints beside a real server: the sample one, and one that answers as it is told or dies.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use nylorun::sample;
use nylorun::sample::endpoint::{Call, Config, Endpoint};
use nylorun_actors::model::json::{self, Json};
use serde_json::json;

use super::common::Server;

/// The sample endpoint on a thread of its own.
pub struct Sample {
    pub url: String,
    calls: Arc<Mutex<Vec<Call>>>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Sample {
    /// Starts it, with agent and endpoint registered. A refund takes so long.
    pub fn start(server: &Server, work: Duration) -> Self {
        let path = server.home().join("orders.json");
        std::fs::write(&path, json::encode(&sample::manifest())).expect("written");
        server.json(&["agents", "put", &path.display().to_string()]);
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let heard = Arc::clone(&calls);
        let config = Config {
            runtime: server.url.clone(),
            tenant: server.json(&["status"])["tenant"]["tenant"]["id"].as_str().expect("an id").to_owned(),
            agent: sample::AGENT.to_owned(),
            implementation_version: "test".to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            url: None,
            work,
            on_call: Some(Arc::new(move |call| heard.lock().expect("calls").push(call))),
        };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (ready, url) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async move {
                let endpoint = Endpoint::start(config).expect("an endpoint");
                ready.send(endpoint.url().to_owned()).expect("told");
                let _ = stopped.await;
                endpoint.stop().await;
            });
        });
        let url = url.recv().expect("it runs");
        let sample = Self { url, calls, stop: Some(stop), thread: Some(thread) };
        server.json(&["endpoints", "put", sample::AGENT, &sample.url, "--timeout-ms", "2000"]);
        sample
    }

    /// Deliveries that were let in so far, pings not counted.
    pub fn calls(&self) -> Vec<Call> {
        let calls = self.calls.lock().expect("calls");
        calls.iter().filter(|call| call.action != "ping").cloned().collect()
    }

    /// No delivery came twice.
    pub fn assert_each_delivery_once(&self) {
        let mut seen = std::collections::HashSet::new();
        for call in self.calls() {
            assert!(seen.insert((call.action.clone(), call.generation)), "{call:?} came twice");
        }
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What a [`Told`] endpoint does with a delivery.
#[derive(Clone, Debug)]
pub enum Does {
    /// Answers with this value, as an outcome.
    Answers(Json),
    /// Answers with this status and no body.
    Status(u16),
    /// Dies in the middle of its answer.
    Dies,
}

/// An endpoint that does one thing after the other, and checks no signature.
pub struct Told {
    pub url: String,
    script: Arc<Mutex<VecDeque<Does>>>,
    actions: Arc<Mutex<Vec<Json>>>,
}

impl Told {
    pub fn start(script: impl IntoIterator<Item = Does>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/told", listener.local_addr().expect("an address"));
        let script = Arc::new(Mutex::new(script.into_iter().collect::<VecDeque<_>>()));
        let actions: Arc<Mutex<Vec<Json>>> = Arc::default();
        let told = Self { url, script: Arc::clone(&script), actions: Arc::clone(&actions) };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                serve(stream, &script, &actions);
            }
        });
        told
    }

    /// What comes next, after what is left of before.
    pub fn then(&self, does: Does) {
        self.script.lock().expect("a script").push_back(does);
    }

    /// Forgets what was left to come.
    pub fn clear(&self) {
        self.script.lock().expect("a script").clear();
    }

    /// The Actions of its deliveries, in order.
    pub fn actions(&self) -> Vec<Json> {
        self.actions.lock().expect("actions").clone()
    }
}

/// One request of a connection; then it is closed.
fn serve(mut stream: TcpStream, script: &Mutex<VecDeque<Does>>, actions: &Mutex<Vec<Json>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().expect("a length");
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let sent = json::parse(&body).expect("JSON");
    let answer = |status: u16, head: &str, body: &str| {
        format!(
            "HTTP/1.1 {status} X\r\nconnection: close\r\n{head}content-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    if sent["type"] == "ping" {
        let pong = json!({ "agentId": sent["agentId"], "implementationVersion": "told" });
        let _ = stream.write_all(answer(200, "", &json::encode(&pong)).as_bytes());
        return;
    }
    actions.lock().expect("actions").push(sent["action"].clone());
    let text = match script.lock().expect("a script").pop_front() {
        Some(Does::Answers(value)) => {
            answer(200, "nylorun-outcome: 1\r\n", &json::encode(&json!({ "value": value })))
        }
        Some(Does::Status(status)) => answer(status, "", ""),
        Some(Does::Dies) => "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_owned(),
        None => answer(503, "", ""),
    };
    let _ = stream.write_all(text.as_bytes());
}
