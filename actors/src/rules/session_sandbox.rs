//! What sandbox a session gets when it is opened, where its harness may be, and whether its turn may start (spec:
//! sandbox, sections 3, 8 and 9; http-api, sections 6.2 and 7).

use serde_json::json;

use super::event::write;
use super::workspaces::{self, owner};
use super::{Refusal, SandboxRefusal, settings};
use crate::model::canonical::canonical_eq;
use crate::model::event::EventKind;
use crate::model::ids::SessionId;
use crate::model::json::{Json, JsonMap, JsonText};
use crate::model::sandbox::capability::declared;
use crate::model::sandbox::config::HARNESS;
use crate::model::sandbox::resolve::resolve;
use crate::model::sandbox::{HarnessHost, SandboxEventKind, SandboxKind, SandboxRequest};
use crate::model::session::SessionHead;
use crate::ports::store::{StoreResult, Tx};
use crate::tenant::{OpenSession, Reach};

/// What a session gets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    /// The spec to pin.
    pub spec: Option<Json>,
    /// `default`, `inline`, `shared` or `sandbox`.
    pub source: Option<&'static str>,
    /// The session whose workspace it shares.
    pub owner: Option<SessionId>,
    /// The resource that it is attached to.
    pub sandbox_id: Option<String>,
    /// What that is.
    kind: SandboxKind,
}

impl Given {
    fn of(spec: Json, source: &'static str) -> Self {
        Self { spec: Some(spec), source: Some(source), ..Self::default() }
    }
}

/// Decides on a session's sandbox, and whether it may run where it must. `definition` is the registered manifest.
///
/// # Errors
/// As the sections say. Nothing is written then.
pub fn decide(
    tx: &mut dyn Tx,
    open: &OpenSession,
    definition: &Json,
    reach: &Reach,
) -> Result<Given, Refusal> {
    let given = choose(tx, open, definition, reach)?;
    check_place(tx, given.kind)?;
    Ok(given)
}

/// The first case that fits, in the order of section 3.
fn choose(tx: &mut dyn Tx, open: &OpenSession, definition: &Json, reach: &Reach) -> Result<Given, Refusal> {
    let own = declared(definition);
    let choice = open.sandbox.as_ref();
    let named = |name: &str| choice.and_then(|choice| choice.get(name)).and_then(Json::as_str);
    if let Some(id) = named("id") {
        return match own {
            Some(_) => Err(declares("attached to another one")),
            None => attach(tx, id, reach),
        };
    }
    if let Some(target) = named("session") {
        return share(tx, open, &SessionId::from(target), own, reach);
    }
    if own.is_some() {
        // The manifest has it already.
        return if choice.is_some() { Err(declares("chosen")) } else { Ok(Given::default()) };
    }
    match choice {
        Some(Json::Object(_)) if reach.is_person() => {
            Err(Refusal::Forbidden("A sandbox is not defined inline when acting for a person".into()))
        }
        Some(Json::Object(inline)) => {
            let config = settings::sandbox_config(tx)?;
            let spec = resolve(&SandboxRequest::read(inline), SandboxKind::Virtual, &config);
            spec.map(|spec| Given::of(spec.to_json(), "inline")).map_err(|found| Refusal::problems(&found))
        }
        Some(_) => Ok(Given::default()),
        None => {
            let spec =
                settings::sandbox_config(tx)?.default_spec().map_err(|found| Refusal::problems(&found))?;
            Ok(spec.map_or_else(Given::default, |spec| Given::of(spec.to_json(), "default")))
        }
    }
}

fn declares(what: &str) -> Refusal {
    Refusal::invalid(format!("The definition declares a sandbox of its own, so none can be {what}"))
}

fn attach(tx: &mut dyn Tx, id: &str, reach: &Reach) -> Result<Given, Refusal> {
    let found = if reach.grants(id) { tx.sandbox(id)? } else { None };
    let Some(sandbox) = found else { return Err(Refusal::not_found("sandbox")) };
    let given = Given::of(sandbox.spec.pinned().to_json(), "sandbox");
    Ok(Given { sandbox_id: Some(sandbox.id), kind: sandbox.kind, ..given })
}

fn share(
    tx: &mut dyn Tx,
    open: &OpenSession,
    target: &SessionId,
    own: Option<&Json>,
    reach: &Reach,
) -> Result<Given, Refusal> {
    let head = tx.session(target)?.filter(|head| {
        // For who acts for a person, what is another's is as good as missing.
        !reach.is_person() || reach.includes(&head.owner_user_id, &head.agent_id)
    });
    let Some(head) = head else { return Err(Refusal::not_found("session to share the sandbox of")) };
    if let Some(id) = &head.sandbox_id {
        let way = json!({ "id": id });
        return Err(Refusal::invalid(format!(
            "The session {target} is attached to a sandbox: open this one with sandbox {way}"
        )));
    }
    if head.owner_user_id != open.owner_user_id {
        return Err(Refusal::Forbidden("A sandbox is shared between sessions of one owner only".into()));
    }
    let Some(spec) = workspaces::spec_of(tx, &head)? else {
        return Err(Refusal::invalid(format!("The session {target} has no sandbox to share")));
    };
    let given = Given { owner: Some(owner(tx, target)?.0), ..Given::default() };
    match own {
        None => Ok(Given { spec: Some(spec), source: Some("shared"), ..given }),
        Some(own) if canonical_eq(own, &spec) => Ok(given),
        Some(_) => Err(Refusal::conflict(format!(
            "The definition declares another sandbox than that of the session {target}"
        ))),
    }
}

/// Whether the Tenant lets the harness be where this session's must be. Without pods no session's may be in one.
fn check_place(tx: &mut dyn Tx, kind: SandboxKind) -> Result<(), Refusal> {
    let config = settings::sandbox_config(tx)?;
    let host = match kind {
        SandboxKind::Virtual => HarnessHost::HarnessContainer,
        SandboxKind::Pod => HarnessHost::Sandbox,
    };
    let allowed = config.hosts_of(HARNESS);
    if !allowed.contains(&host) {
        let allowed: Vec<&str> = allowed.iter().map(|host| host.as_str()).collect();
        return Err(Refusal::Placement {
            message: format!(
                "The Tenant does not let the harness be in the {}; it may be in: {}",
                host.as_str(),
                allowed.join(", ")
            ),
            details: json!({"harness": HARNESS, "host": host.as_str(), "allowed": allowed}),
        });
    }
    require_pods(kind)
}

/// Whether this Runtime can have a sandbox of this kind.
///
/// # Errors
/// 409 `sandbox_unavailable` for a pod: this Runtime has no sandbox pods.
pub fn require_pods(kind: SandboxKind) -> Result<(), Refusal> {
    match kind {
        SandboxKind::Virtual => Ok(()),
        SandboxKind::Pod => {
            Err(Refusal::sandbox(SandboxRefusal::Unavailable, "This Runtime has no sandbox pods"))
        }
    }
}

/// Records that a session was attached, on its own stream and on the sandbox's.
///
/// # Errors
/// The store's.
pub fn attached(tx: &mut dyn Tx, session: &SessionId, sandbox: &str) -> StoreResult<()> {
    let mut payload = JsonMap::new();
    payload.insert("sandboxId".into(), json!(sandbox));
    write(tx, session, None, EventKind::SandboxAttached, &payload)?;
    let payload = JsonText::of(&json!({"sessionId": session.as_str()}));
    tx.sandbox_event(sandbox, SandboxEventKind::Attached, payload.as_str())?;
    Ok(())
}

/// Whether a session's turn may start, as far as its sandbox resource is concerned.
///
/// # Errors
/// The first reason why not, in the order of section 9.
pub fn check_turn(tx: &mut dyn Tx, head: &SessionHead, reach: &Reach) -> Result<(), Refusal> {
    let Some(id) = &head.sandbox_id else { return Ok(()) };
    if !reach.grants(id) {
        let message = "The sandbox of this session is not granted to the caller (any more)";
        return Err(Refusal::sandbox(SandboxRefusal::NotGranted, message));
    }
    let Some(sandbox) = tx.sandbox(id)? else {
        let message = format!("The sandbox {id} of this session does not exist (any more)");
        return Err(Refusal::sandbox(SandboxRefusal::Unavailable, message));
    };
    if tx.busy_on_sandbox(id)?.iter().any(|other| *other != head.id) {
        let message = format!("Another session has a turn in the sandbox {id}");
        return Err(Refusal::sandbox_for_now(SandboxRefusal::Busy, message));
    }
    require_pods(sandbox.kind)
}

#[cfg(test)]
#[path = "session_sandbox_tests.rs"]
mod tests;
