//! Every route, as data (spec: http-api, section 21). A new route is a row here and a handler; the pipeline, the
//! OpenAPI documents and the route tests follow.

use nylorun_actors::model::command::COMMAND;
use nylorun_actors::model::shape::{OBJECT, Shape};

use super::call::{Call, OperatorCall, Work};
use super::caller::{Gate, Scope};
use super::path::Path;
use super::state::ApiState;
use super::{
    actions, admin, agents, artifacts, commands, effects, endpoints, events, fixture, health, items, keys,
    me, models, openapi, sandbox, sandbox_settings, sandboxes, seed, sessions, shapes, signing_keys, tenant,
};

/// A credential, as the documents name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// None at all.
    Anonymous,
    /// An operator key.
    Application,
    /// An operator key acting for a person.
    Subject,
    /// A trusted issuer's token.
    Token,
    /// The token of an Action's delivery.
    Delivery,
    /// The admin key.
    Admin,
}

use Credential::{Admin, Anonymous, Application, Subject, Token};

impl Credential {
    /// The name in `x-nylorun-credentials`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Anonymous => "anonymous",
            Application => "application",
            Subject => "subject",
            Token => "token",
            Self::Delivery => "delivery",
            Admin => "admin",
        }
    }
}

const N: &[Credential] = &[Anonymous];
/// Open to all, and to whoever sends a credential all the same.
const NAST: &[Credential] = &[Anonymous, Application, Subject, Token];
const A: &[Credential] = &[Application];
const AS: &[Credential] = &[Application, Subject];
const AST: &[Credential] = &[Application, Subject, Token];
const D: &[Credential] = &[Credential::Delivery];
const K: &[Credential] = &[Admin];

const SESSIONS: Gate = Gate::OneOf(&[Scope::SessionsOwn]);
const AGENTS_READ: Gate = Gate::OneOf(&[Scope::AgentsRead, Scope::AgentsWrite]);
const AGENTS_WRITE: Gate = Gate::OneOf(&[Scope::AgentsWrite]);
const SANDBOXES_READ: Gate = Gate::OneOf(&[Scope::SessionsOwn, Scope::SandboxesWrite]);
const SANDBOXES_WRITE: Gate = Gate::OneOf(&[Scope::SandboxesWrite]);
const SETTINGS: Gate = Gate::OneOf(&[Scope::TenantSettings]);
const CATALOGUE: Gate = Gate::OneOf(&[Scope::TenantSettings, Scope::AgentsWrite]);

/// Who answers a route.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// Without protocol, Tenant or credential; `any_method` answers whatever the method is.
    Open { any_method: bool, run: fn(ApiState) -> Work },
    /// The Tenant's API.
    Tenant(fn(Call) -> Work),
    /// The operator's API.
    Operator(fn(OperatorCall) -> Work),
}

/// What a successful answer is.
#[derive(Clone, Copy)]
pub(super) enum Content {
    Json(&'static Shape),
    /// 201.
    Created(&'static Shape),
    /// A file, whole or in part.
    Bytes,
    Zip,
    Events,
    Document,
}

/// One route.
pub(super) struct Route {
    pub method: &'static str,
    pub path: &'static str,
    pub takes: &'static [Credential],
    pub gate: Gate,
    /// Whether `Nylorun-Protocol` may be left out; when it is sent it is still checked.
    pub unversioned: bool,
    /// Whether the body is bytes of any media type.
    pub any_body: bool,
    pub handler: Handler,
    /// `operationId` of the documents.
    pub id: &'static str,
    pub summary: &'static str,
    /// Query parameters: name and what it does.
    pub query: &'static [(&'static str, &'static str)],
    pub body: Option<&'static Shape>,
    pub ok: Content,
}

impl Route {
    /// Whether a request without a credential is let in.
    pub fn is_anonymous(&self) -> bool {
        self.takes.contains(&Anonymous)
    }

    pub fn is_operator(&self) -> bool {
        matches!(self.handler, Handler::Operator(_))
    }
}

/// The route of a request, with the values of its path.
pub(super) fn find(method: &str, path: &Path<'_>) -> Option<(&'static Route, Vec<String>)> {
    ROUTES
        .iter()
        .filter(|route| route.method == method)
        .find_map(|route| Some((route, path.matches(route.path)?)))
}

const PAGE: [(&str, &str); 2] = [
    ("limit", "Rows of a page, 1 to 200; then the answer has nextCursor"),
    ("cursor", "Where the page starts"),
];
const PAGED: &[(&str, &str)] = &PAGE;

macro_rules! row {
    ($method:literal $path:literal, $takes:expr, $gate:expr, $handler:expr, $id:literal, $summary:literal,
     query $query:expr, body $body:expr, ok $ok:expr) => {
        Route {
            method: $method,
            path: $path,
            takes: $takes,
            gate: $gate,
            unversioned: false,
            any_body: false,
            handler: $handler,
            id: $id,
            summary: $summary,
            query: $query,
            body: $body,
            ok: $ok,
        }
    };
}

macro_rules! tenant {
    ($handler:path) => {
        Handler::Tenant(|call| Box::pin($handler(call)))
    };
}

macro_rules! operator {
    ($handler:path) => {
        Handler::Operator(|call| Box::pin($handler(call)))
    };
}

/// All of them.
#[rustfmt::skip]
pub(super) static ROUTES: &[Route] = &[
    row!("GET" "/health", N, Gate::Any, Handler::Open { any_method: true, run: |state| Box::pin(health::health(state)) },
        "health", "Whether the process lives, and which protocols it speaks", query &[], body None, ok Content::Json(&shapes::HEALTH)),
    row!("GET" "/ready", N, Gate::Any, Handler::Open { any_method: true, run: |state| Box::pin(health::ready(state)) },
        "ready", "Whether the Runtime can serve: 200, else 503", query &[], body None, ok Content::Json(&shapes::READY)),
    row!("GET" "/openapi.json", N, Gate::Any, Handler::Open { any_method: false, run: |_| Box::pin(openapi::tenant()) },
        "openapi", "This document", query &[], body None, ok Content::Document),
    row!("GET" "/v1/me", AST, Gate::Any, tenant!(me::me),
        "me", "Who the caller is to the Runtime", query &[], body None, ok Content::Json(&shapes::ME)),
    row!("GET" "/v1/agents", AST, AGENTS_READ, tenant!(agents::list),
        "listAgents", "Registered definitions", query PAGED, body None, ok Content::Json(&shapes::AGENTS)),
    row!("PUT" "/v1/agents/{agentId}", AS, AGENTS_WRITE, tenant!(agents::put),
        "putAgent", "Registers or replaces a definition", query &[], body Some(&shapes::PUT_AGENT), ok Content::Json(&shapes::AGENT_PUT)),
    row!("GET" "/v1/sessions", AST, SESSIONS, tenant!(sessions::list),
        "listSessions", "Sessions that the caller reaches", query &[("agentId", "Only of this definition"), PAGE[0], PAGE[1]],
        body None, ok Content::Json(&shapes::SESSIONS)),
    row!("PUT" "/v1/sessions/{sessionId}", AST, SESSIONS, tenant!(sessions::put),
        "putSession", "Opens a session or re-attaches to it", query &[], body Some(&shapes::PUT_SESSION), ok Content::Json(&shapes::SESSION)),
    row!("GET" "/v1/sessions/{sessionId}", AST, SESSIONS, tenant!(sessions::get),
        "getSession", "A session", query &[], body None, ok Content::Json(&shapes::SESSION)),
    row!("POST" "/v1/sessions/{sessionId}/commands", AST, SESSIONS, tenant!(commands::post),
        "postCommand", "Gives a session a command", query &[], body Some(&COMMAND), ok Content::Json(&shapes::RECEIPT)),
    row!("GET" "/v1/sessions/{sessionId}/items", AST, SESSIONS, tenant!(items::get),
        "listItems", "A session's history",
        query &[("cursor", "Read after this event"), ("agent", "Only work of this path or delegation"),
            ("limit", "At most so many items, 1 to 200; then the answer has nextCursor")],
        body None, ok Content::Json(&shapes::ITEMS)),
    row!("GET" "/v1/sessions/{sessionId}/events", AST, SESSIONS, tenant!(events::get),
        "streamEvents", "A session's history and what comes after it, as server-sent events",
        query &[("cursor", "Start after this event; empty: from the beginning"),
            ("preview", "1: also nylorun.preview frames while a model talks, without ids")],
        body None, ok Content::Events),
    row!("GET" "/v1/sessions/{sessionId}/effects", A, Gate::Never, tenant!(effects::list),
        "listOpenEffects", "Effects of a session that wait for an endpoint or for a decision",
        query &[("status", "Only uncertain, pending or dead ones"), PAGE[0], PAGE[1]],
        body None, ok Content::Json(&shapes::OPEN_EFFECTS)),
    row!("POST" "/v1/sessions/{sessionId}/effects/{effectId}/resolve", A, Gate::Never, tenant!(effects::resolve),
        "resolveEffect", "Decides on an effect whose fate is unknown, or whose deliveries were given up",
        query &[], body Some(&shapes::RESOLVE), ok Content::Json(&shapes::RECEIPT)),
    row!("GET" "/v1/endpoints", A, Gate::Never, tenant!(endpoints::list),
        "listEndpoints", "Registered Action endpoints", query PAGED, body None, ok Content::Json(&shapes::ENDPOINTS)),
    row!("PUT" "/v1/endpoints", A, Gate::Never, tenant!(endpoints::put),
        "putEndpoints", "Registers Action endpoints; waiting Actions are sent at once",
        query &[], body Some(&shapes::PUT_ENDPOINTS), ok Content::Json(&shapes::ENDPOINTS)),
    row!("DELETE" "/v1/endpoints/{agentId}", A, Gate::Never, tenant!(endpoints::delete),
        "deleteEndpoint", "Takes an endpoint out; its Actions wait for the next registration",
        query &[], body None, ok Content::Json(&shapes::ENDPOINT_DELETED)),
    row!("POST" "/v1/endpoints/{agentId}/ping", A, Gate::Never, tenant!(endpoints::ping),
        "pingEndpoint", "Asks an endpoint whether it serves its agent", query &[], body None, ok Content::Json(&shapes::PONG)),
    row!("POST" "/v1/actions/{actionId}/heartbeat", D, Gate::Never, tenant!(actions::heartbeat),
        "heartbeatAction", "A background delivery lives on for one more lease", query &[], body None, ok Content::Json(&shapes::HEARTBEAT)),
    row!("POST" "/v1/actions/{actionId}/result", D, Gate::Never, tenant!(actions::result),
        "postActionResult", "A background delivery's outcome", query &[], body Some(&shapes::OUTCOME), ok Content::Json(&shapes::ACTION_RECEIPT)),
    row!("POST" "/v1/actions/{actionId}/sandbox/{tool}", D, Gate::Never, tenant!(sandbox::of_action),
        "runActionSandboxTool", "Runs one of bash, read, write, edit, grep and glob in the sandbox of the Action's session",
        query &[], body Some(&OBJECT), ok Content::Json(&shapes::TOOL_OUTCOME)),
    row!("POST" "/v1/sessions/{sessionId}/sandbox/{tool}", A, Gate::Never, tenant!(sandbox::of_session),
        "runSandboxTool", "Runs one of bash, read, write, edit, grep and glob in a session's sandbox, between its turns",
        query &[], body Some(&OBJECT), ok Content::Json(&shapes::TOOL_OUTCOME)),
    Route { any_body: true, ..row!("POST" "/v1/artifacts", AST, SESSIONS, tenant!(artifacts::create),
        "createArtifact", "Keeps a file as a new artifact; the body is its bytes",
        query &[("name", "What it is called, 1 to 255 characters"), ("sessionId", "Whose it is; needed when acting for a person"),
            ("label", "key=value, up to 32 times")],
        body None, ok Content::Created(&shapes::ARTIFACT_UPLOADED)) },
    row!("GET" "/v1/artifacts", AST, SESSIONS, tenant!(artifacts::list),
        "listArtifacts", "Artifacts that the caller reaches, oldest first",
        query &[("sessionId", "Only of this session"), PAGE[0], PAGE[1]], body None, ok Content::Json(&shapes::ARTIFACTS)),
    row!("GET" "/v1/artifacts/{artifactId}", AST, SESSIONS, tenant!(artifacts::get),
        "getArtifact", "An artifact and its versions", query &[], body None, ok Content::Json(&shapes::ARTIFACT)),
    Route { any_body: true, ..row!("POST" "/v1/artifacts/{artifactId}/versions", AST, SESSIONS, tenant!(artifacts::add_version),
        "addArtifactVersion", "Keeps a file as the next version of an artifact; the body is its bytes",
        query &[], body None, ok Content::Created(&shapes::ARTIFACT_UPLOADED)) },
    row!("GET" "/v1/artifacts/{artifactId}/versions/{version}/content", AST, SESSIONS, tenant!(artifacts::content::get),
        "getArtifactContent", "The bytes of a file, or one range of them", query &[], body None, ok Content::Bytes),
    row!("GET" "/v1/artifacts/{artifactId}/versions/{version}/tree", AST, SESSIONS, tenant!(artifacts::folders::tree),
        "getArtifactTree", "The files of a folder", query &[], body None, ok Content::Json(&shapes::ARTIFACT_TREE)),
    row!("GET" "/v1/artifacts/{artifactId}/versions/{version}/files/{path}", AST, SESSIONS, tenant!(artifacts::folders::file),
        "getArtifactFile", "The bytes of a folder's file, or one range of them", query &[], body None, ok Content::Bytes),
    row!("GET" "/v1/artifacts/{artifactId}/versions/{version}/diff", AST, SESSIONS, tenant!(artifacts::folders::diff),
        "getArtifactDiff", "What changed in a folder since an earlier version",
        query &[("from", "That version; without it the one before")], body None, ok Content::Json(&shapes::ARTIFACT_DIFF)),
    row!("GET" "/v1/artifacts/{artifactId}/versions/{version}/zip", AST, SESSIONS, tenant!(artifacts::folders::zip),
        "getArtifactZip", "A folder as an archive", query &[], body None, ok Content::Zip),
    row!("POST" "/v1/artifacts/{artifactId}/links", AST, SESSIONS, tenant!(artifacts::links::create),
        "createArtifactLink", "A link that lets whoever has it read one version for a while",
        query &[], body Some(&shapes::ARTIFACT_LINK), ok Content::Json(&shapes::ARTIFACT_LINKED)),
    row!("DELETE" "/v1/artifacts/{artifactId}", AST, SESSIONS, tenant!(artifacts::delete),
        "deleteArtifact", "Deletes an artifact with its versions and bytes", query &[], body None, ok Content::Json(&shapes::ARTIFACT_DELETED)),
    // Followed by browsers and viewers, which know nothing of our protocol.
    Route { unversioned: true, ..row!("GET" "/v1/artifact-links/{token}", NAST, Gate::Any, tenant!(artifacts::links::follow),
        "followArtifactLink", "The file that a link is for, or a folder's archive", query &[], body None, ok Content::Bytes) },
    row!("GET" "/v1/tenant/artifacts", AS, SETTINGS, tenant!(artifacts::settings),
        "getArtifactLimits", "How large artifacts may be, and how large they are", query &[], body None, ok Content::Json(&shapes::ARTIFACT_SETTINGS)),
    row!("PUT" "/v1/tenant/artifacts", AS, SETTINGS, tenant!(artifacts::put_settings),
        "putArtifactLimits", "Replaces the limits of artifacts; what is left out is the default",
        query &[], body Some(&shapes::PUT_ARTIFACT_SETTINGS), ok Content::Json(&shapes::ARTIFACT_SETTINGS)),
    row!("GET" "/v1/sandboxes", AST, SANDBOXES_READ, tenant!(sandboxes::list),
        "listSandboxes", "Sandboxes that the caller reaches",
        query &[("label", "Only those with this label, as key=value; may be repeated"), PAGE[0], PAGE[1]],
        body None, ok Content::Json(&shapes::SANDBOXES)),
    row!("PUT" "/v1/sandboxes/{sandboxId}", AST, SANDBOXES_WRITE, tenant!(sandboxes::put),
        "putSandbox", "Makes a sandbox or finds the one that there is", query &[], body Some(&shapes::PUT_SANDBOX), ok Content::Json(&shapes::SANDBOX)),
    row!("GET" "/v1/sandboxes/{sandboxId}", AST, SANDBOXES_READ, tenant!(sandboxes::get),
        "getSandbox", "A sandbox", query &[], body None, ok Content::Json(&shapes::SANDBOX)),
    row!("GET" "/v1/sandboxes/{sandboxId}/events", AST, SANDBOXES_READ, tenant!(sandboxes::events),
        "listSandboxEvents", "What happened to a sandbox; a deleted one keeps its events",
        query &[("from", "Read from this seq on"), ("limit", "At most so many, 1 to 200; 10,000 unless said")],
        body None, ok Content::Json(&shapes::SANDBOX_EVENTS)),
    row!("POST" "/v1/sandboxes/{sandboxId}/stop", AST, SANDBOXES_WRITE, tenant!(sandboxes::stop_or_reset),
        "stopSandbox", "Stops a pod sandbox; its files stay", query &[], body None, ok Content::Json(&shapes::SANDBOX)),
    row!("POST" "/v1/sandboxes/{sandboxId}/reset", AST, SANDBOXES_WRITE, tenant!(sandboxes::stop_or_reset),
        "resetSandbox", "Gives a pod sandbox an empty volume", query &[], body None, ok Content::Json(&shapes::SANDBOX)),
    row!("DELETE" "/v1/sandboxes/{sandboxId}", AST, SANDBOXES_WRITE, tenant!(sandboxes::delete),
        "deleteSandbox", "Deletes a sandbox with its files", query &[], body None, ok Content::Json(&shapes::SANDBOX_DELETED)),
    row!("GET" "/v1/tenant/sandbox", AS, SETTINGS, tenant!(sandbox_settings::get),
        "getSandboxSettings", "Which backend serves sandboxes, and what the Tenant allows",
        query &[], body None, ok Content::Json(&shapes::SANDBOX_SETTINGS)),
    row!("PUT" "/v1/tenant/sandbox", AS, SETTINGS, tenant!(sandbox_settings::put),
        "putSandboxSettings", "Replaces what the Tenant allows of sandboxes",
        query &[], body Some(&shapes::PUT_SANDBOX_SETTINGS), ok Content::Json(&shapes::SANDBOX_SETTINGS)),
    row!("GET" "/v1/tenant", AS, SETTINGS, tenant!(tenant::status),
        "tenantStatus", "The Tenant's status", query &[], body None, ok Content::Json(&shapes::TENANT)),
    row!("PUT" "/v1/tenant/config/seed", A, Gate::Never, tenant!(seed::put),
        "seedTenant", "Sets what is not set yet", query &[], body Some(&shapes::SEED), ok Content::Json(&shapes::SEED_ANSWER)),
    row!("GET" "/v1/tenant/models", AS, CATALOGUE, tenant!(models::catalogue),
        "listModels", "Models that can be chosen", query &[], body None, ok Content::Json(&shapes::MODELS)),
    row!("GET" "/v1/tenant/providers", AS, CATALOGUE, tenant!(models::providers),
        "listProviders", "Configured providers", query &[], body None, ok Content::Json(&shapes::PROVIDERS)),
    row!("GET" "/v1/tenant/model", AS, SETTINGS, tenant!(models::get),
        "getModel", "The model that is used", query &[], body None, ok Content::Json(&shapes::MODEL)),
    row!("PUT" "/v1/tenant/model", AS, SETTINGS, tenant!(models::put),
        "putModel", "Stores a provider and uses it", query &[], body Some(&shapes::PUT_MODEL), ok Content::Json(&shapes::MODEL)),
    row!("PUT" "/v1/tenant/model/selection", AS, SETTINGS, tenant!(models::select),
        "selectModel", "Chooses a model of a configured provider", query &[], body Some(&shapes::SELECT_MODEL), ok Content::Json(&shapes::MODEL)),
    // Any JOSE library fetches keys, and none of them knows our protocol.
    Route { unversioned: true, ..row!("GET" "/v1/access/jwks", NAST, Gate::Any, tenant!(signing_keys::jwks),
        "jwks", "Public keys that verify what the Tenant signs", query &[], body None, ok Content::Json(&shapes::JWKS)) },
    row!("GET" "/v1/access/signing-keys", A, Gate::Never, tenant!(signing_keys::list),
        "listSigningKeys", "Signing keys, revoked ones too", query PAGED, body None, ok Content::Json(&shapes::SIGNING_KEYS)),
    row!("POST" "/v1/access/signing-keys/rotate", A, Gate::Never, tenant!(signing_keys::rotate),
        "rotateSigningKeys", "The standby key signs from now on", query &[], body Some(&shapes::ROTATE), ok Content::Json(&shapes::SIGNING_KEYS)),
    row!("POST" "/v1/access/signing-keys/{kid}/revoke", A, Gate::Never, tenant!(signing_keys::revoke),
        "revokeSigningKey", "Nothing that a key signed verifies any more", query &[], body Some(&shapes::REVOKE), ok Content::Json(&shapes::SIGNING_KEY)),
    row!("GET" "/v1/admin/status", K, Gate::Any, operator!(admin::status),
        "adminStatus", "The Host's status", query &[], body None, ok Content::Json(&shapes::ADMIN_STATUS)),
    row!("GET" "/v1/admin/host", K, Gate::Any, operator!(admin::status),
        "adminHost", "The Host's status", query &[], body None, ok Content::Json(&shapes::ADMIN_STATUS)),
    row!("POST" "/v1/admin/host/shutdown", K, Gate::Any, operator!(admin::shutdown),
        "shutdown", "Stops the Host once this is answered", query &[], body None, ok Content::Json(&shapes::SHUTDOWN)),
    row!("GET" "/v1/admin/actors", K, Gate::Any, operator!(admin::actors),
        "listActors", "The observable state of every actor", query &[], body None, ok Content::Json(&shapes::ACTORS)),
    row!("GET" "/v1/admin/fixture", K, Gate::Any, operator!(fixture::get),
        "getFixture", "The fixture model and its script", query &[], body None, ok Content::Json(&shapes::FIXTURE)),
    row!("PUT" "/v1/admin/fixture", K, Gate::Any, operator!(fixture::put),
        "putFixture", "Answers every model call by this script; null: by the provider again",
        query &[], body Some(&shapes::PUT_FIXTURE), ok Content::Json(&shapes::FIXTURE)),
    row!("GET" "/v1/admin/keys", K, Gate::Any, operator!(keys::list),
        "listKeys", "Operator keys, never the keys themselves", query PAGED, body None, ok Content::Json(&shapes::KEYS)),
    row!("PUT" "/v1/admin/keys/{id}", K, Gate::Any, operator!(keys::put),
        "putKey", "Creates or rotates a key; it is shown this once", query &[], body None, ok Content::Json(&shapes::KEY_PUT)),
    row!("DELETE" "/v1/admin/keys/{id}", K, Gate::Any, operator!(keys::delete),
        "deleteKey", "Deletes a key; its next request is refused", query &[], body None, ok Content::Json(&shapes::KEY_DELETED)),
    row!("GET" "/v1/admin/openapi.json", K, Gate::Any, operator!(openapi::operator),
        "adminOpenapi", "This document", query &[], body None, ok Content::Document),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn operator_routes_are_exactly_those_below_the_operators_path() {
        for route in ROUTES {
            let below = Path::read(route.path).is_some_and(|path| path.is_operator());
            assert_eq!(route.is_operator(), below, "{}", route.path);
            assert_eq!(route.takes == K, below, "{}", route.path);
        }
    }

    #[test]
    fn no_two_routes_share_a_request_or_a_name() {
        let requests: HashSet<_> = ROUTES.iter().map(|r| (r.method, r.path)).collect();
        let names: HashSet<_> = ROUTES.iter().map(|r| r.id).collect();
        assert_eq!((requests.len(), names.len()), (ROUTES.len(), ROUTES.len()));
    }

    #[test]
    fn a_route_is_found_by_its_method_and_its_path() {
        let path = Path::read("/v1/sessions/a%2Fb/commands").expect("a path");
        let (route, params) = find("POST", &path).expect("a route");
        assert_eq!((route.id, params), ("postCommand", vec!["a/b".to_owned()]));
        assert!(find("GET", &path).is_none());
    }

    #[test]
    fn persons_are_named_where_a_gate_can_let_them_in() {
        for route in ROUTES.iter().filter(|r| !r.is_operator() && !r.is_anonymous()) {
            assert_eq!(route.takes.contains(&Subject), route.gate != Gate::Never, "{}", route.path);
        }
    }
}
