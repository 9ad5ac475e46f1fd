//! A world for one test: store, clock, engine, Tenant. The root crate's tests of its harness use it too.
#![allow(dead_code)] // Each of them uses its part.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use actix::System;
use nylorun_actors::model::Json;
use nylorun_actors::model::command::{Command, CommandBody, MessageInput, Receipt};
use nylorun_actors::model::ids::{SessionId, WorkerId};
use nylorun_actors::model::json::parse;
use nylorun_actors::model::session::SessionStatus;
use nylorun_actors::ports::store::{Reads, StoreError, TenantRow};
use nylorun_actors::ports::{Engine, WorkspaceManager};
use nylorun_actors::rules::Refusal;
use nylorun_actors::supervisor::PanicChild;
use nylorun_actors::tenant::{
    HarnessMode, OpenSession, PutAgent, Reach, SessionView, Tenant, TenantConfig, TenantPorts,
};
use nylorun_actors::testing::endpoints::{FakeEndpoints, NumberSchemas};
use nylorun_actors::testing::virtual_time::VirtualClock;
use nylorun_actors::testing::{FakeWorkspaces, MemoryBlobs, MemoryStore, SeededEntropy};
use serde_json::json;

/// Runs a test on one thread whose time jumps only when no actor is busy.
pub fn sim<F: Future<Output = ()> + 'static>(test: impl FnOnce() -> F + 'static) {
    System::with_tokio_rt(|| {
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
    })
    .block_on(async move { test().await });
}

pub struct World {
    pub tenant: Tenant,
    pub store: Arc<MemoryStore>,
    pub clock: Arc<VirtualClock>,
    pub endpoints: FakeEndpoints,
    pub blobs: Arc<MemoryBlobs>,
    pub workspaces: Option<Arc<FakeWorkspaces>>,
    entropy: Arc<SeededEntropy>,
    mode: HarnessMode,
    processes: u32,
}

impl World {
    pub async fn new(engine: Arc<dyn Engine>) -> Self {
        Self::seeded(engine, 7).await
    }

    pub async fn seeded(engine: Arc<dyn Engine>, seed: u64) -> Self {
        Self::in_mode(engine, seed, HarnessMode::InProcess).await
    }

    /// A world whose segments run where `mode` says.
    pub async fn in_mode(engine: Arc<dyn Engine>, seed: u64, mode: HarnessMode) -> Self {
        Self::with(engine, seed, mode, FakeEndpoints::answering(json!("done"))).await
    }

    /// A world with Action endpoints.
    pub async fn with_endpoints(engine: Arc<dyn Engine>, endpoints: FakeEndpoints) -> Self {
        Self::with(engine, 7, HarnessMode::InProcess, endpoints).await
    }

    /// A world whose in-process harness has workspaces.
    pub async fn with_workspaces(engine: Arc<dyn Engine>) -> Self {
        let endpoints = FakeEndpoints::answering(json!("done"));
        Self::serving(engine, 7, HarnessMode::InProcess, endpoints, true).await
    }

    pub async fn with(
        engine: Arc<dyn Engine>,
        seed: u64,
        mode: HarnessMode,
        endpoints: FakeEndpoints,
    ) -> Self {
        Self::serving(engine, seed, mode, endpoints, false).await
    }

    async fn serving(
        engine: Arc<dyn Engine>,
        seed: u64,
        mode: HarnessMode,
        endpoints: FakeEndpoints,
        workspaces: bool,
    ) -> Self {
        let clock = Arc::new(VirtualClock::new());
        let entropy = Arc::new(SeededEntropy::new(seed));
        let store = MemoryStore::new(clock.clone(), entropy.clone());
        let blobs = MemoryBlobs::new();
        let row: Result<TenantRow, StoreError> =
            store.handle().read(|reads: &mut dyn Reads| reads.tenant()).await;
        let row = row.unwrap();
        let workspaces = workspaces.then(|| FakeWorkspaces::of(row.id));
        let ports = ports(&store, &clock, &entropy, engine, &endpoints, &blobs, workspaces.as_ref());
        let tenant = start(ports, mode, "worker-1").await;
        let world = Self { tenant, store, clock, endpoints, blobs, workspaces, entropy, mode, processes: 1 };
        world.register().await;
        world
    }

    /// The process dies: nothing of it is heard again. The next one opens the same store.
    pub async fn crash(&mut self, engine: Arc<dyn Engine>) {
        self.tenant.tree().close();
        self.store.inject(Arc::new(|_| Some(StoreError::Closed)));
        self.store = self.store.reopen();
        self.processes += 1;
        let worker = format!("worker-{}", self.processes);
        let ports = self.ports(engine);
        self.tenant = start(ports, self.mode, &worker).await;
    }

    /// The process stops in order and the next one opens the same store.
    pub async fn restart(&mut self, engine: Arc<dyn Engine>) {
        self.tenant.stop().await;
        self.processes += 1;
        let worker = format!("worker-{}", self.processes);
        let ports = self.ports(engine);
        self.tenant = start(ports, self.mode, &worker).await;
    }

    fn ports(&self, engine: Arc<dyn Engine>) -> TenantPorts {
        let workspaces = self.workspaces.as_ref();
        ports(&self.store, &self.clock, &self.entropy, engine, &self.endpoints, &self.blobs, workspaces)
    }

    async fn register(&self) {
        let manifest = json!({
            "manifestSchemaVersion": 4, "id": "assistant",
            "metadata": { "nylorun.fixture": { "tools": { "work": {} } } },
            "capabilities": [{ "id": "agent", "type": "agent", "tools": [
                { "name": "work", "inputSchema": {} },
                { "name": "charge", "inputSchema": { "type": "object" }, "outputSchema": { "type": "number" } },
            ] }, { "id": "nylorun.artifacts", "type": "agent", "tools": [
                { "name": "save_artifact", "inputSchema": { "type": "object" } },
            ] }],
        });
        let put = PutAgent {
            id: "assistant".into(),
            manifest,
            implementation_version: "1".into(),
            plugin_roots: None,
        };
        self.tenant.put_agent(put).await.unwrap();
        let set = |tx: &mut dyn nylorun_actors::ports::Tx| tx.put_setting("model.fixture", "true");
        self.tenant.store().tx(set).await.unwrap();
    }

    pub async fn open(&self, id: &str) -> SessionId {
        let id = SessionId::from(id);
        self.tenant.open_session(opening(&id), &Reach::All).await.unwrap();
        id
    }

    pub async fn say(&self, id: &SessionId, key: &str) -> Result<Receipt, Refusal> {
        self.tenant.command(id, message(key), &Reach::All).await
    }

    pub async fn cancel(&self, id: &SessionId, key: &str) -> Receipt {
        self.tenant.command(id, cancel(key), &Reach::All).await.unwrap()
    }

    pub async fn approve(&self, id: &SessionId, key: &str, approved: bool) -> Result<Receipt, Refusal> {
        let interaction_id =
            self.view(id).await.waits.unwrap()[0]["interaction"]["id"].as_str().unwrap().to_owned();
        let sent = json!({ "type": "approve", "requestId": "r", "idempotencyKey": key,
            "interactionId": interaction_id, "approved": approved });
        let command = command(key, CommandBody::Approve { interaction_id, approved }, &sent);
        self.tenant.command(id, command, &Reach::All).await
    }

    pub async fn view(&self, id: &SessionId) -> SessionView {
        self.tenant.session(id, &Reach::All).await.unwrap()
    }

    /// Waits until the session has one of these statuses.
    pub async fn until(&self, id: &SessionId, statuses: &[SessionStatus]) -> SessionView {
        let mut last = None;
        for _ in 0..20_000 {
            let view = self.view(id).await;
            if statuses.contains(&view.status) {
                return view;
            }
            last = Some(view);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{id} never became {statuses:?}: {last:?}; actors: {:?}", self.tenant.actors().await);
    }

    pub async fn kill_harness(&self) {
        self.kill(PanicChild::Harness(0)).await;
    }

    pub async fn kill_sweeper(&self) {
        self.kill(PanicChild::Sweeper).await;
    }

    async fn kill(&self, child: PanicChild) {
        // A supervisor that is being replaced right now has no child to kill.
        if let Some(supervisor) = self.tenant.tree().supervisor() {
            let _ = supervisor.send(child).await;
        }
    }

    /// Every event of the session, internal ones too.
    pub async fn record(&self, id: &SessionId) -> Vec<Json> {
        let id = id.clone();
        let read = move |r: &mut dyn Reads| r.record(&id, 0, 100_000);
        let rows = self.tenant.store().read(read).await.unwrap();
        rows.iter().map(|row| parse(row.body.as_bytes()).unwrap()).collect()
    }

    pub async fn types(&self, id: &SessionId) -> Vec<String> {
        self.record(id).await.iter().map(|e| e["type"].as_str().unwrap().to_owned()).collect()
    }
}

fn ports(
    store: &Arc<MemoryStore>,
    clock: &Arc<VirtualClock>,
    entropy: &Arc<SeededEntropy>,
    engine: Arc<dyn Engine>,
    endpoints: &FakeEndpoints,
    blobs: &Arc<MemoryBlobs>,
    workspaces: Option<&Arc<FakeWorkspaces>>,
) -> TenantPorts {
    TenantPorts {
        blobs: blobs.clone(),
        store: store.handle(),
        clock: clock.clone(),
        entropy: entropy.clone(),
        engine,
        actions: Arc::new(endpoints.clone()),
        schemas: Arc::new(NumberSchemas),
        workspaces: workspaces.map(|fake| fake.clone() as Arc<dyn WorkspaceManager>),
    }
}

async fn start(ports: TenantPorts, mode: HarnessMode, worker: &str) -> Tenant {
    let mut config = TenantConfig::new(WorkerId::from(worker));
    config.arbiters = 0;
    config.harness = mode;
    Tenant::start(config, ports).await.unwrap()
}

pub fn opening(id: &SessionId) -> OpenSession {
    OpenSession {
        id: id.clone(),
        agent_id: "assistant".into(),
        owner_user_id: "ada".into(),
        info: None,
        vault_ids: Vec::new(),
        credential_selections: Vec::new(),
        sandbox: None,
        creation: r#"{"agentId":"assistant","ownerUserId":"ada"}"#.into(),
    }
}

fn command(key: &str, body: CommandBody, sent: &Json) -> Command {
    Command {
        request_id: "r".into(),
        idempotency_key: key.into(),
        body,
        sent: sent.as_object().unwrap().clone(),
    }
}

pub fn cancel(key: &str) -> Command {
    let sent = json!({ "type": "cancel", "requestId": "r", "idempotencyKey": key });
    command(key, CommandBody::Cancel { reason: Some("enough".into()) }, &sent)
}

pub fn message(key: &str) -> Command {
    let sent = json!({ "type": "message", "requestId": "r", "idempotencyKey": key, "content": "hello" });
    let body = CommandBody::Message { input: MessageInput::Content("hello".into()), manifest: None };
    command(key, body, &sent)
}
