//! JSON in memory: a harness's channel joined to a real HarnessActor, with a network between them that a test may
//! delay and cut.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use actix::Addr;
use nylorun::harness::Outgoing;
use nylorun::harness::lease::{Connection, Harness};
use nylorun::harness::socket::pause;
use nylorun_actors::harness::HarnessActor;
use nylorun_actors::harness::wire::{FrameSink, SinkFull};
use nylorun_actors::messages::harness::{Closed, Heard, Incoming};
use nylorun_actors::model::json::parse;
use nylorun_actors::tenant::Tenant;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// Frames on their way to a harness before core gives it up.
const IN_FLIGHT: usize = 512;

/// Pings of the transport; a harness has nothing to say for hours.
const PING: Duration = Duration::from_secs(30);

enum ToHarness {
    Text(String),
    Close(String),
}

struct Sink(mpsc::Sender<(Instant, ToHarness)>);

impl FrameSink for Sink {
    fn send(&self, text: String) -> Result<(), SinkFull> {
        self.0.try_send((Instant::now(), ToHarness::Text(text))).map_err(|_| SinkFull)
    }

    fn close(&self, _: u16, reason: &str) {
        let _ = self.0.try_send((Instant::now(), ToHarness::Close(reason.to_owned())));
    }

    fn stalled_since(&self) -> Option<Instant> {
        None
    }
}

/// What the network between core and a harness does.
#[derive(Default)]
pub struct Network {
    /// The longest delay of a frame, ms; each direction has its own.
    pub delay_ms: Cell<u64>,
    cut: Notify,
    is_cut: Cell<bool>,
    /// Requests of the harness by method.
    pub requests: RefCell<BTreeMap<String, usize>>,
}

impl Network {
    /// Nothing passes any more, in neither direction.
    pub fn cut(&self) {
        self.is_cut.set(true);
        self.cut.notify_waiters();
    }

    async fn is_cut(&self) {
        let cut = self.cut.notified();
        if !self.is_cut.get() {
            cut.await;
        }
    }

    pub fn count(&self, method: &str) -> usize {
        self.requests.borrow().get(method).copied().unwrap_or(0)
    }
}

/// When the two ends learn that the network is cut.
#[derive(Clone, Copy, Debug)]
pub struct Learns {
    /// The harness, ms.
    pub harness_ms: u64,
    /// Core, ms; `None`: only by its own look at silence.
    pub core_ms: Option<u64>,
}

/// A harness that connects again and again.
pub struct Peer {
    pub harness: Harness,
    pub network: Rc<Network>,
    connection: Rc<RefCell<Option<Rc<Connection>>>>,
    learns: Rc<Cell<Learns>>,
    task: JoinHandle<()>,
}

impl Peer {
    /// Connects to the Tenant that the cell holds at each attempt.
    pub fn start(tenant: Rc<RefCell<Tenant>>, harness: Harness, seed: u64, delay_ms: u64) -> Self {
        let network = Rc::new(Network::default());
        network.delay_ms.set(delay_ms);
        let connection = Rc::new(RefCell::new(None));
        let learns = Rc::new(Cell::new(Learns { harness_ms: 0, core_ms: Some(0) }));
        let link = Link {
            tenant,
            harness: harness.clone(),
            network: Rc::clone(&network),
            connection: Rc::clone(&connection),
            learns: Rc::clone(&learns),
        };
        let task = tokio::task::spawn_local(link.connect_again_and_again(SmallRng::seed_from_u64(seed)));
        Self { harness, network, connection, learns, task }
    }

    /// The connection breaks; frames on their way are lost. It connects again.
    pub fn cut(&self, learns: Learns) {
        self.learns.set(learns);
        self.network.cut();
    }

    /// The process dies: its runs stop in the middle of whatever they do. Core learns of it as `learns` says.
    pub fn kill(self, learns: Learns) {
        self.learns.set(learns);
        self.network.cut();
        let connection = self.connection.borrow_mut().take();
        if let Some(connection) = connection {
            connection.kill();
        }
        // The pump goes on: it is the network's end at core's side.
        self.harness.stop();
    }

    /// Stops in order.
    pub async fn stop(self) {
        self.harness.stop();
        self.task.await.unwrap();
    }
}

struct Link {
    tenant: Rc<RefCell<Tenant>>,
    harness: Harness,
    network: Rc<Network>,
    connection: Rc<RefCell<Option<Rc<Connection>>>>,
    learns: Rc<Cell<Learns>>,
}

impl Link {
    async fn connect_again_and_again(self, mut rng: SmallRng) {
        while !self.harness.is_stopping() {
            let tenant = self.tenant.borrow().clone();
            let (sink, frames) = mpsc::channel(IN_FLIGHT);
            if let Some(core) = tenant.attach_harness(Box::new(Sink(sink)), "peer".into(), None).await {
                self.network.is_cut.set(false);
                let connection = Rc::new(self.harness.connect());
                // Cores that say that they keep a run's order, and cores that do not.
                connection.channel().set_ordered(rng.random());
                *self.connection.borrow_mut() = Some(Rc::clone(&connection));
                let (up, down) =
                    (SmallRng::seed_from_u64(rng.random()), SmallRng::seed_from_u64(rng.random()));
                tokio::join!(connection.serve(), self.pump(&connection, core, frames, up, down),);
            }
            tokio::select! {
                biased;
                () = self.harness.stopped() => {}
                () = sleep(pause(0, rng.random())) => {}
            }
        }
    }

    async fn pump(
        &self,
        connection: &Connection,
        core: Addr<HarnessActor>,
        mut frames: mpsc::Receiver<(Instant, ToHarness)>,
        mut up: SmallRng,
        mut down: SmallRng,
    ) {
        let channel = connection.channel();
        let to_core = async {
            loop {
                let Ok(next) = timeout(PING, channel.next()).await else {
                    let _ = core.send(Heard).await;
                    continue;
                };
                self.delay(&mut up).await;
                match next {
                    Outgoing::Text(text) => {
                        let mut texts = vec![text];
                        // What was said in one breath comes in one read, or does not.
                        while up.random()
                            && let Some(text) = channel.next_text()
                        {
                            texts.push(text);
                        }
                        let last = texts.len() - 1;
                        for (at, text) in texts.into_iter().enumerate() {
                            self.note(&text);
                            if core.send(Incoming { text, more: at < last }).await.is_err() {
                                return "core's actor is gone".to_owned();
                            }
                        }
                    }
                    Outgoing::Close { code, reason } => {
                        core.do_send(Closed { code, reason });
                        return "closed".to_owned();
                    }
                }
            }
        };
        let to_harness = async {
            while let Some((sent, frame)) = frames.recv().await {
                // Each frame takes its time from when it was sent, and none overtakes another.
                tokio::time::sleep_until(sent + Duration::from_millis(self.random_delay(&mut down))).await;
                match frame {
                    ToHarness::Text(text) => channel.take(&text).unwrap(),
                    ToHarness::Close(reason) => return format!("core closed: {reason}"),
                }
            }
            "core is gone".to_owned()
        };
        let cut = async {
            self.network.is_cut().await;
            "cut".to_owned()
        };
        let why = tokio::select! {
            biased;
            why = cut => why,
            why = to_core => why,
            why = to_harness => why,
        };
        if why != "cut" {
            core.do_send(Closed { code: 1006, reason: why.clone() });
            channel.close(1006, &why);
            return;
        }
        let learns = self.learns.get();
        if let Some(ms) = learns.core_ms {
            tokio::task::spawn_local(async move {
                sleep(Duration::from_millis(ms)).await;
                core.do_send(Closed { code: 1006, reason: "cut".into() });
                drop(frames);
            });
        } else {
            // Nobody tells core: its frames go nowhere until it looks.
            tokio::task::spawn_local(async move { while frames.recv().await.is_some() {} });
        }
        sleep(Duration::from_millis(learns.harness_ms)).await;
        channel.close(1006, "cut");
    }

    fn random_delay(&self, rng: &mut SmallRng) -> u64 {
        match self.network.delay_ms.get() {
            0 => 0,
            most => rng.random_range(0..=most),
        }
    }

    async fn delay(&self, rng: &mut SmallRng) {
        match self.random_delay(rng) {
            0 => {}
            ms => sleep(Duration::from_millis(ms)).await,
        }
    }

    fn note(&self, text: &str) {
        let frame = parse(text.as_bytes()).unwrap();
        if let Some(method) = frame["m"].as_str() {
            *self.network.requests.borrow_mut().entry(method.to_owned()).or_default() += 1;
        }
    }
}
