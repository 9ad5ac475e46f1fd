//! A Tenant in remote mode behind a listener, in this process.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nylorun::api::{ApiState, HostFacts};
use nylorun::engine::agent::schema::Outputs;
use nylorun::harness_api::{HarnessListener, ListenerConfig};
use nylorun::host::listen::bind;
use nylorun::identity::SigningKeys;
use nylorun::vault::{Kek, SealedProviders, Vault};
use nylorun_actors::model::Json;
use nylorun_actors::model::command::{Command, CommandBody, MessageInput};
use nylorun_actors::model::ids::SessionId;
use nylorun_actors::model::json::parse;
use nylorun_actors::ports::Entropy;
use nylorun_actors::ports::clock::{SystemClock, SystemEntropy};
use nylorun_actors::ports::{ActionTransport, NoTransport};
use nylorun_actors::tenant::{
    HarnessMode, OpenSession, PutAgent, Reach, SessionView, Tenant, TenantConfig, TenantPorts,
};
use nylorun_actors::testing::engine::FakeEngine;
use nylorun_actors::testing::{MemoryBlobs, MemoryStore};
use serde_json::json;

use super::peer::{OLD_TOKEN, PATIENCE, TOKEN};

/// Chance, unless a test has said what comes next.
#[derive(Default)]
pub struct Told(Mutex<Option<u128>>);

impl Told {
    pub fn next_uuid(&self, text: &str) {
        let bits = u128::from_str_radix(&text.replace('-', ""), 16).unwrap();
        *self.0.lock().unwrap() = Some(bits);
    }
}

impl Entropy for Told {
    /// What is told is an id; chance that is drawn for something else does not use it up.
    fn uuid(&self) -> String {
        let bits = self.0.lock().unwrap().take().unwrap_or_else(|| SystemEntropy.bits());
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string()
    }

    fn bits(&self) -> u128 {
        SystemEntropy.bits()
    }
}

pub struct World {
    pub state: ApiState,
    pub tenant: Tenant,
    pub store: Arc<MemoryStore>,
    pub listener: HarnessListener,
    pub address: SocketAddr,
    /// Ids of turns.
    pub turns: Arc<Told>,
    /// Ids of runs.
    pub runs: Arc<Told>,
}

pub fn state() -> ApiState {
    let facts =
        HostFacts { host_id: "host-1".into(), version: "0.17.0".into(), pid: 7, home: "/home".into() };
    ApiState::new(facts, TOKEN, || {})
}

/// A listener over a state, on a port that the system picks.
pub fn listener(state: &ApiState, connections: usize, names: &[String]) -> (HarnessListener, SocketAddr) {
    let bound = bind(&"127.0.0.1:0".parse().unwrap(), false, names).unwrap();
    let address = bound.address;
    let ping_every = state
        .slot()
        .open_tenant()
        .map_or(Duration::from_secs(30), |open| Duration::from_millis(open.tenant.config().harness_ping_ms));
    let tokens = format!("{TOKEN},{OLD_TOKEN}").parse().unwrap();
    let config = ListenerConfig { tokens, connections, ping_every };
    (HarnessListener::start(bound, state.clone(), config).unwrap(), address)
}

impl World {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(edit: impl FnOnce(&mut TenantConfig)) -> Self {
        Self::with_actions(Arc::new(NoTransport), edit).await
    }

    pub async fn with_actions(
        actions: Arc<dyn ActionTransport>,
        edit: impl FnOnce(&mut TenantConfig),
    ) -> Self {
        let (turns, runs) = (Arc::new(Told::default()), Arc::new(Told::default()));
        let store = MemoryStore::new(Arc::new(SystemClock), turns.clone());
        let ports = TenantPorts {
            blobs: MemoryBlobs::new(),
            store: store.handle(),
            clock: Arc::new(SystemClock),
            entropy: runs.clone(),
            engine: FakeEngine::of(Vec::new()),
            actions,
            schemas: Arc::new(Outputs),
            workspaces: None,
        };
        let mut config = TenantConfig::new("worker-test".into());
        config.harness = HarnessMode::Remote;
        config.arbiters = 1;
        edit(&mut config);
        let tenant = Tenant::start(config, ports).await.unwrap();
        let vault = Arc::new(Vault::new(Kek::from_bytes([5; 32])));
        let models = SealedProviders::load(store.handle(), vault.clone()).await.unwrap();
        let signing = SigningKeys::new(
            store.handle(),
            vault,
            tenant.id().clone(),
            Arc::new(SystemClock),
            Arc::new(SystemEntropy),
        );
        let state = state();
        state.slot().open(tenant.clone(), Arc::new(models), Arc::new(signing));
        let (listener, address) = listener(&state, 100, &["core.internal:4200".to_owned()]);
        let world = Self { state, tenant, store, listener, address, turns, runs };
        world.agent("assistant", json!({})).await;
        world
    }

    /// Registers an agent. Members of `more` are added to its manifest.
    pub async fn agent(&self, id: &str, more: Json) -> String {
        let mut manifest = json!({
            "manifestSchemaVersion": 4, "id": id,
            "capabilities": [{"id": "agent", "type": "agent", "tools": [{"name": "refund", "inputSchema": {}}]}],
        });
        manifest.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let put =
            PutAgent { id: id.into(), manifest, implementation_version: "1".into(), plugin_roots: None };
        self.tenant.put_agent(put).await.unwrap().manifest_hash
    }

    pub async fn open(&self, session: &str, agent: &str) -> SessionId {
        let id = SessionId::from(session);
        let open = OpenSession {
            id: id.clone(),
            agent_id: agent.into(),
            owner_user_id: "ada".into(),
            info: None,
            vault_ids: Vec::new(),
            credential_selections: Vec::new(),
            sandbox: None,
            creation: format!("{{\"agentId\":\"{agent}\",\"ownerUserId\":\"ada\"}}"),
        };
        self.tenant.open_session(open, &Reach::All).await.unwrap();
        id
    }

    /// Sends a message.
    pub async fn say(&self, session: &SessionId, text: &str) {
        let key = SystemEntropy.uuid();
        let sent = json!({"type": "message", "requestId": "r", "idempotencyKey": key, "content": text});
        let body = CommandBody::Message { input: MessageInput::Content(text.into()), manifest: None };
        self.command(session, &key, body, &sent).await;
    }

    /// A new session of the agent `assistant` with a message.
    pub async fn session(&self, session: &str) -> SessionId {
        let id = self.open(session, "assistant").await;
        self.say(&id, "hello").await;
        id
    }

    pub async fn cancel(&self, session: &SessionId) {
        let key = SystemEntropy.uuid();
        let sent = json!({"type": "cancel", "requestId": "r", "idempotencyKey": key});
        self.command(session, &key, CommandBody::Cancel { reason: None }, &sent).await;
    }

    async fn command(&self, session: &SessionId, key: &str, body: CommandBody, sent: &Json) {
        let command = Command {
            request_id: "r".into(),
            idempotency_key: key.into(),
            body,
            sent: sent.as_object().unwrap().clone(),
        };
        self.tenant.command(session, command, &Reach::All).await.unwrap();
    }

    pub async fn view(&self, session: &SessionId) -> SessionView {
        self.tenant.session(session, &Reach::All).await.unwrap()
    }

    /// Waits until a session has this status.
    pub async fn until(&self, session: &SessionId, status: &str) -> SessionView {
        let mut last = None;
        let end = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < end {
            let view = self.view(session).await;
            if view.status.as_str() == status {
                return view;
            }
            last = Some(view);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{session} never became {status}: {last:?}; {:?}", self.tenant.actors().await);
    }

    /// Waits until so many connections are open.
    pub async fn until_connected(&self, count: usize) {
        let end = tokio::time::Instant::now() + PATIENCE;
        while self.listener.connections() != count || self.connected().await != count {
            assert!(
                tokio::time::Instant::now() < end,
                "{} sockets, {} connections, {count} wanted",
                self.listener.connections(),
                self.connected().await
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Harnesses that the tree knows.
    pub async fn connected(&self) -> usize {
        self.tenant.figures().await.unwrap().harnesses_connected
    }

    /// Types and payloads of a session's events.
    pub async fn record(&self, session: &SessionId) -> Vec<(String, Json)> {
        let id = session.clone();
        let read = move |r: &mut dyn nylorun_actors::ports::store::Reads| r.record(&id, 0, 100_000);
        let rows = self.tenant.store().read(read).await.unwrap();
        rows.iter()
            .map(|row| {
                let event = parse(row.body.as_bytes()).unwrap();
                (event["type"].as_str().unwrap().to_owned(), event["payload"].clone())
            })
            .collect()
    }

    pub async fn types(&self, session: &SessionId) -> Vec<String> {
        self.record(session).await.into_iter().map(|(kind, _)| kind).collect()
    }
}
