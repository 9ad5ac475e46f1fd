//! A Runtime on loopback ports, and clients that say exactly what is sent.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpServer};
use nylorun::api::{ApiState, HostFacts, HostNames, Listener, ListenerKind, configure};
use nylorun::blobs::FileBlobs;
use nylorun::engine::agent::schema::Outputs;
use nylorun::gates::{HttpTransport, OutboundPolicy};
use nylorun::identity::SigningKeys;
use nylorun::vault::{Kek, SealedProviders, Vault};
use nylorun_actors::model::canonical::sha256_hex;
use nylorun_actors::model::{Json, Micros};
use nylorun_actors::ports::clock::{SystemClock, SystemEntropy};
use nylorun_actors::ports::store::PrincipalRow;
use nylorun_actors::ports::{ActionTransport, Clock, StoreError, WorkspaceManager};
use nylorun_actors::tenant::{Tenant, TenantConfig, TenantPorts};
use nylorun_actors::testing::endpoints::FakeEndpoints;
use nylorun_actors::testing::engine::{FakeEngine, Step};
use nylorun_actors::testing::{FakeWorkspaces, MemoryStore};
use serde_json::json;

pub const ADMIN: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
pub const KEY: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
pub const WRONG: &str = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";
pub const OPAQUE: &str = r#"{"status":"rejected","code":"not_found","message":"Not found"}"#;

/// A running API. Dropping it stops its servers.
pub struct Api {
    pub state: ApiState,
    pub store: Arc<MemoryStore>,
    pub stops: Arc<AtomicUsize>,
    pub public: SocketAddr,
    pub operator: Option<SocketAddr>,
    client: reqwest::Client,
    servers: Vec<ServerHandle>,
    home: tempfile::TempDir,
}

impl Drop for Api {
    fn drop(&mut self) {
        for server in &self.servers {
            // The stop is sent at once; its future only waits for it.
            drop(server.stop(false));
        }
    }
}

impl Api {
    /// With an open Tenant whose every turn does these steps.
    pub async fn start(steps: Vec<Step>) -> Self {
        let api = Self::opening(false);
        api.open(steps).await;
        api
    }

    /// With an agent `assistant` whose every turn calls the Action tool `charge`, and endpoints that answer as planned.
    pub async fn charging(endpoints: FakeEndpoints) -> Self {
        let api = Self::opening(false);
        api.charge_with(endpoints, None).await;
        api
    }

    /// The same, with workspaces.
    pub async fn charging_serving(endpoints: FakeEndpoints) -> Self {
        let api = Self::opening(false);
        let workspaces = FakeWorkspaces::of(api.tenant_id().await.as_str().into());
        api.charge_with(endpoints, Some(workspaces)).await;
        api
    }

    async fn charge_with(&self, endpoints: FakeEndpoints, workspaces: Option<Arc<FakeWorkspaces>>) {
        let api = self;
        api.open_with(vec![Step::Charge], Some(Arc::new(endpoints)), workspaces).await;
        let put = api.app("PUT", "/v1/agents/assistant").json(&agent_body("assistant")).send().await;
        assert_eq!(put.status, 200, "{}", put.text);
    }

    /// Starts a turn of `assistant` in a session of its own.
    pub async fn charge(&self, id: &str) {
        let body = json!({"requestId": "r", "agentId": "assistant", "ownerUserId": "ada"});
        let put = self.app("PUT", &format!("/v1/sessions/{id}")).json(&body).send().await;
        assert_eq!(put.status, 200, "{}", put.text);
        let path = format!("/v1/sessions/{id}/commands");
        assert_eq!(self.app("POST", &path).json(&message("k", "hi")).send().await.status, 200);
    }

    /// With a Tenant that is still opening; with a listener for the operator or without.
    pub fn opening(operator: bool) -> Self {
        let facts = HostFacts {
            host_id: "host-1".into(),
            version: "0.17.0".into(),
            pid: 7,
            home: "/home/of/tests".into(),
        };
        let stops = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&stops);
        let state = ApiState::new(facts, ADMIN, move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let mut servers = Vec::new();
        let public_kind = ListenerKind::Public { operator_elsewhere: operator };
        let public = serve(&state, public_kind, &mut servers);
        let operator = operator.then(|| serve(&state, ListenerKind::Operator, &mut servers));
        state.set_url(format!("http://{public}"));
        let store = MemoryStore::new(Arc::new(SystemClock), Arc::new(SystemEntropy));
        let client = reqwest::Client::builder().timeout(Duration::from_secs(60)).build().unwrap();
        let home = tempfile::tempdir().unwrap();
        Self { state, store, stops, public, operator, client, servers, home }
    }

    pub async fn open(&self, steps: Vec<Step>) {
        self.open_with(steps, None, None).await;
    }

    /// With workspaces of its in-process harness.
    pub async fn open_serving(&self, steps: Vec<Step>, workspaces: Arc<FakeWorkspaces>) {
        self.open_with(steps, None, Some(workspaces)).await;
    }

    /// Without endpoints of the test's own, deliveries go over HTTP.
    async fn open_with(
        &self,
        steps: Vec<Step>,
        endpoints: Option<Arc<dyn ActionTransport>>,
        workspaces: Option<Arc<FakeWorkspaces>>,
    ) {
        let handle = self.store.handle();
        let put = handle.tx(|tx| {
            tx.put_principal(&PrincipalRow {
                id: "local".into(),
                role: "application".into(),
                token_hash: sha256_hex(KEY.as_bytes()),
                created_at: tx.now(),
            })
        });
        put.await.unwrap();
        let vault = vault();
        let signing = Arc::new(SigningKeys::new(
            handle.clone(),
            vault.clone(),
            self.tenant_id().await.into(),
            Arc::new(SystemClock),
            Arc::new(SystemEntropy),
        ));
        let over_http = || HttpTransport::new(OutboundPolicy::default(), signing.clone());
        let actions = endpoints.unwrap_or_else(|| Arc::new(over_http()));
        let ports = TenantPorts {
            blobs: Arc::new(FileBlobs::open(self.home.path()).unwrap()),
            store: handle.clone(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            engine: FakeEngine::of(steps),
            actions,
            schemas: Arc::new(Outputs),
            workspaces: workspaces.map(|fake| fake as Arc<dyn WorkspaceManager>),
        };
        let config = TenantConfig { arbiters: 1, ..TenantConfig::new("worker-test".into()) };
        let tenant = Tenant::start(config, ports).await.unwrap();
        let models = SealedProviders::load(handle, vault).await.unwrap();
        self.state.slot().open(tenant, Arc::new(models), signing);
    }

    /// The Tenant's signing keys.
    pub fn signing(&self) -> Arc<SigningKeys> {
        self.state.slot().open_tenant().unwrap().signing.clone()
    }

    /// The same keys where the clock stands so many seconds apart.
    pub fn signing_at(&self, seconds: i64) -> SigningKeys {
        let tenant = self.state.slot().open_tenant().unwrap().tenant.id().clone();
        let clock = Arc::new(ShiftedClock(seconds));
        SigningKeys::new(self.store.handle(), vault(), tenant, clock, Arc::new(SystemEntropy))
    }

    /// Files of blobs, half written ones too.
    pub fn blobs(&self) -> Vec<PathBuf> {
        let folders = std::fs::read_dir(self.home.path().join("blobs")).unwrap();
        let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().path()).collect()
    }

    /// Waits until there are so many.
    pub async fn until_blobs(&self, count: usize) {
        for _ in 0..400 {
            if self.blobs().len() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("there are {} blobs and not {count}", self.blobs().len());
    }

    /// The client, for requests without a credential or a protocol.
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    pub fn request(&self, method: &str, path: &str) -> Request {
        let method = method.parse().unwrap();
        let request = self.client.request(method, format!("http://{}{path}", self.public));
        Request(request.header("nylorun-protocol", "7"))
    }

    pub fn app(&self, method: &str, path: &str) -> Request {
        self.request(method, path).bearer(KEY)
    }

    pub fn admin(&self, method: &str, path: &str) -> Request {
        self.request(method, path).bearer(ADMIN)
    }

    pub async fn tenant_id(&self) -> String {
        let handle = self.store.handle();
        handle.read(|r| Ok::<_, StoreError>(r.tenant()?.id.to_string())).await.unwrap()
    }

    /// Registers the agent `a` and opens a session for it.
    pub async fn session(&self, id: &str, owner: &str) {
        let put = self.app("PUT", "/v1/agents/a").json(&agent_body("a")).send().await;
        assert_eq!(put.status, 200, "{}", put.text);
        let body = json!({"requestId": "r", "agentId": "a", "ownerUserId": owner});
        let put = self.app("PUT", &format!("/v1/sessions/{id}")).json(&body).send().await;
        assert_eq!(put.status, 200, "{}", put.text);
    }

    /// Waits until a session has this status.
    pub async fn until(&self, id: &str, status: &str) -> Json {
        for _ in 0..600 {
            let view = self.app("GET", &format!("/v1/sessions/{id}")).send().await.json();
            if view["status"] == status {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the session {id} never became {status}");
    }
}

fn vault() -> Arc<Vault> {
    Arc::new(Vault::new(Kek::from_bytes([5; 32])))
}

/// The system's clock, so many seconds off.
struct ShiftedClock(i64);

impl Clock for ShiftedClock {
    fn now(&self) -> Micros {
        Micros(SystemClock.now().0 + self.0 * 1_000_000)
    }
}

fn serve(state: &ApiState, kind: ListenerKind, servers: &mut Vec<ServerHandle>) -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let names = HostNames::of_port(address.port(), None);
    let listener = Listener { state: state.clone(), kind, names };
    let server = HttpServer::new(move || App::new().configure(configure(listener.clone())))
        .on_connect(nylorun::api::note_socket)
        .workers(1)
        .disable_signals()
        .listen(socket)
        .unwrap()
        .run();
    servers.push(server.handle());
    actix_web::rt::spawn(server);
    address
}

pub fn agent_body(id: &str) -> Json {
    json!({"requestId": "r", "implementationVersion": "1", "manifest": agent(id)})
}

pub fn agent(id: &str) -> Json {
    json!({"manifestSchemaVersion": 4, "id": id, "capabilities": []})
}

pub fn message(key: &str, content: &str) -> Json {
    json!({"requestId": "r", "idempotencyKey": key, "type": "message", "content": content})
}

pub struct Request(reqwest::RequestBuilder);

impl Request {
    pub fn bearer(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    pub fn subject(self, subject: &str, scopes: &str) -> Self {
        self.header("nylorun-subject", subject).header("nylorun-scopes", scopes)
    }

    pub fn header(self, name: &str, value: &str) -> Self {
        Self(self.0.header(name, value))
    }

    pub fn bytes(self, body: &[u8]) -> Self {
        Self(self.0.body(body.to_vec()))
    }

    pub fn json(self, body: &Json) -> Self {
        self.text(&body.to_string())
    }

    pub fn text(self, body: &str) -> Self {
        Self(self.0.header("content-type", "application/json").body(body.to_owned()))
    }

    pub async fn stream(self) -> reqwest::Response {
        self.0.send().await.unwrap()
    }

    pub async fn send(self) -> Answer {
        Answer::of(self.0.send().await.unwrap()).await
    }
}

pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Answer {
    pub async fn of(response: reqwest::Response) -> Self {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let text = response.text().await.unwrap();
        assert!(headers.contains_key("x-request-id"));
        assert!(!headers.keys().any(|name| name.as_str().starts_with("access-control")));
        Answer { status, headers, text }
    }

    pub fn json(&self) -> Json {
        nylorun_actors::model::json::parse(self.text.as_bytes()).unwrap()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Status and code of a refusal.
    pub fn refusal(&self) -> (u16, String) {
        (self.status, self.json()["code"].as_str().unwrap_or_default().to_owned())
    }

    /// An answer that its document describes.
    pub fn ok(&self, method: &str, path: &str) -> Json {
        self.documented(200, method, path)
    }

    /// The same where something was made.
    pub fn created(&self, method: &str, path: &str) -> Json {
        self.documented(201, method, path)
    }

    fn documented(&self, status: u16, method: &str, path: &str) -> Json {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.header("content-type"), "application/json");
        assert_eq!(self.header("content-length"), self.text.len().to_string());
        let value = self.json();
        let documents = [nylorun::api::tenant_document(), nylorun::api::operator_document()];
        let operation = documents
            .iter()
            .find_map(|d| d["paths"].get(path)?.get(method.to_ascii_lowercase()))
            .unwrap_or_else(|| panic!("{method} {path} is not documented"));
        let schema = &operation["responses"][status.to_string()]["content"]["application/json"]["schema"];
        let validator = jsonschema::validator_for(schema).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?} in {value}");
        value
    }
}

/// Sends bytes as they are and reads until the server closes or has been silent for a moment after its answer.
pub async fn raw(address: SocketAddr, bytes: impl Into<Vec<u8>>) -> String {
    let bytes = bytes.into();
    let exchange = move || {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The server may answer and close before it has read everything.
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    tokio::task::spawn_blocking(exchange).await.unwrap()
}

pub fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/http_api").join(name);
    if std::env::var_os("NYLORUN_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "{name} is not what the Runtime answers: run with NYLORUN_UPDATE_GOLDEN=1");
}
