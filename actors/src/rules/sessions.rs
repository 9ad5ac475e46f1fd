//! Opening, viewing and listing sessions (spec: http-api, sections 6.1 to 6.4).

use serde_json::json;

use super::actions;
use super::{Refusal, definitions, session_sandbox};
use crate::model::canonical::manifest_hash;
use crate::model::effect::EffectStatus;
use crate::model::ids::{AgentId, SessionId};
use crate::model::json::{Json, JsonText};
use crate::model::sandbox::capability::with_sandbox;
use crate::model::session::{SessionDoc, SessionHead, SessionPin, SessionStatus};
use crate::ports::store::{EffectRow, Page, Reads, StoreError, StoreResult, Tx};
use crate::tenant::{OpenSession, Reach, SessionSummary, SessionView};

/// Opens a session or re-attaches to one: steps 5 to 13 of section 6.1, in its order.
///
/// # Errors
/// As the section says. Nothing is written then.
pub fn open(tx: &mut dyn Tx, open: &OpenSession, reach: &Reach) -> Result<SessionView, Refusal> {
    let existing = tx.session(&open.id)?;
    if let Some(head) = &existing {
        let fits = reach.includes(&head.owner_user_id, &head.agent_id) && head.agent_id == open.agent_id;
        if matches!(reach, Reach::Person { .. }) && !fits {
            return Err(Refusal::not_found("session"));
        }
    }
    check_attachments(open)?;
    if let Some(head) = existing {
        return reattach(tx, head, open);
    }
    let Some((definition, manifest)) = definitions::get(tx, &open.agent_id)? else {
        return Err(Refusal::not_found("agent"));
    };
    let corrupt = |e: serde_json::Error| StoreError::Corrupt(e.to_string());
    let document: Json = manifest.decode().map_err(corrupt)?;
    let given = session_sandbox::decide(tx, open, &document, reach)?;
    if document["kind"] == "workflow" {
        return Err(Refusal::invalid(
            "This Runtime runs agents; it has no flow engine for a workflow's session",
        ));
    }
    let manifest_hash = match &given.spec {
        // The definition with the sandbox's tools is a manifest of its own.
        Some(spec) => {
            let pinned = with_sandbox(&document, spec).map_err(|found| Refusal::problems(&found))?;
            let hash = manifest_hash(&pinned);
            tx.put_manifest(&hash, &JsonText::of(&pinned))?;
            hash
        }
        None => definition.manifest_hash,
    };
    let head = SessionHead {
        id: open.id.clone(),
        agent_id: open.agent_id.clone(),
        owner_user_id: open.owner_user_id.clone(),
        sandbox_id: given.sandbox_id.clone(),
        manifest_hash,
        status: SessionStatus::Idle,
        active_turn_id: None,
        last_turn_id: None,
        owner: None,
        epoch: 0,
        owner_expires_at: None,
    };
    let pin = SessionPin {
        implementation_version: definition.implementation_version,
        plugin_roots: definition.plugin_roots,
        info: open.info.as_ref().map(JsonText::of),
        creation: open.creation.clone(),
        sandbox_owner_id: given.owner,
        sandbox: given.spec.as_ref().map(JsonText::of),
        sandbox_source: given.source.map(str::to_owned),
        created_at: tx.now(),
        ..SessionPin::default()
    };
    let doc = SessionDoc::default();
    tx.insert_session(&head, &pin, &doc)?;
    if let Some(sandbox) = &given.sandbox_id {
        session_sandbox::attached(tx, &open.id, sandbox)?;
    }
    view_of(tx, head, pin, &doc)
}

/// Vaults and selections: nothing to attach exists before there are vaults, so every id is unknown.
fn check_attachments(open: &OpenSession) -> Result<(), Refusal> {
    let twice = |mut items: Vec<&str>| {
        items.sort_unstable();
        items.windows(2).any(|w| w[0] == w[1])
    };
    if twice(open.vault_ids.iter().map(String::as_str).collect()) {
        return Err(Refusal::invalid("vaultIds names a vault twice"));
    }
    let servers = open.credential_selections.iter().filter_map(|s| s["serverName"].as_str()).collect();
    if twice(servers) {
        return Err(Refusal::invalid("credentialSelections names a server twice"));
    }
    if !open.vault_ids.is_empty() {
        return Err(Refusal::not_found("vault"));
    }
    if !open.credential_selections.is_empty() {
        return Err(Refusal::invalid("credentialSelections names a credential of no attached vault"));
    }
    Ok(())
}

fn reattach(tx: &mut dyn Tx, head: SessionHead, open: &OpenSession) -> Result<SessionView, Refusal> {
    let mut pin = tx.session_pin(&head.id)?.unwrap_or_default();
    if pin.creation != open.creation {
        return Err(Refusal::Conflict {
            message: "The session exists and was opened differently".into(),
            active_turn: head.active_turn_id,
            details: None,
        });
    }
    if pin.vault_ids.is_some() || pin.credential_selections.is_some() {
        pin.vault_ids = None;
        pin.credential_selections = None;
        tx.put_session_pin(&head.id, &pin)?;
    }
    let doc = tx.session_doc(&head.id)?.unwrap_or_default();
    view_of(tx, head, pin, &doc)
}

/// One session, if it is within reach.
///
/// # Errors
/// [`Refusal::NotFound`] when it is missing or not the caller's.
pub fn view(reads: &mut dyn Reads, id: &SessionId, reach: &Reach) -> Result<SessionView, Refusal> {
    let head = reachable(reads, id, reach)?;
    let pin = reads.session_pin(id)?.unwrap_or_default();
    let doc = reads.session_doc(id)?.unwrap_or_default();
    view_of(reads, head, pin, &doc)
}

/// The head of a session within reach.
///
/// # Errors
/// [`Refusal::NotFound`] when it is missing or not the caller's.
pub fn reachable(reads: &mut dyn Reads, id: &SessionId, reach: &Reach) -> Result<SessionHead, Refusal> {
    match reads.session(id)? {
        Some(head) if reach.includes(&head.owner_user_id, &head.agent_id) => Ok(head),
        _ => Err(Refusal::not_found("session")),
    }
}

/// Sessions within reach, by id.
///
/// # Errors
/// The store's.
pub fn list(
    reads: &mut dyn Reads,
    agent: Option<&AgentId>,
    reach: &Reach,
    page: &Page,
) -> StoreResult<Vec<SessionSummary>> {
    let owner = match reach {
        Reach::All => None,
        Reach::Person { subject, .. } => Some(subject.as_str()),
    };
    let summary = |head: SessionHead| SessionSummary {
        id: head.id,
        agent_id: head.agent_id,
        owner_user_id: head.owner_user_id,
        status: head.status,
        active_turn_id: head.active_turn_id.map(|t| t.to_string()),
    };
    // An allowlist filters after the page is read, so pages are read until one is full.
    let mut out = Vec::new();
    let mut page = page.clone();
    loop {
        let heads = reads.sessions(agent, owner, &page)?;
        let (read, last) = (heads.len(), heads.last().map(|h| h.id.to_string()));
        out.extend(heads.into_iter().filter(|h| reach.includes(&h.owner_user_id, &h.agent_id)).map(summary));
        match page.limit {
            Some(limit) if read == limit && out.len() < limit => page.after = last,
            Some(limit) => {
                out.truncate(limit);
                return Ok(out);
            }
            None => return Ok(out),
        }
    }
}

fn view_of(
    reads: &mut dyn Reads,
    head: SessionHead,
    pin: SessionPin,
    doc: &SessionDoc,
) -> Result<SessionView, Refusal> {
    let open = reads.open_effects(&head.id, &[EffectStatus::Pending, EffectStatus::Uncertain])?;
    let json = |text: &Option<JsonText>, missing: Json| {
        text.as_ref().and_then(|t| t.decode::<Json>().ok()).unwrap_or(missing)
    };
    let actions = actions_of(reads, &head.id, &open)?;
    let uncertain_effects = open
        .iter()
        .filter(|e| e.status == EffectStatus::Uncertain)
        .map(|e| {
            json!({ "effectId": e.id.as_str(), "turnId": e.turn_id.as_str(), "kind": e.kind.as_str(),
                "error": e.error.as_deref().unwrap_or_default() })
        })
        .collect();
    Ok(SessionView {
        id: head.id,
        agent_id: head.agent_id,
        owner_user_id: head.owner_user_id,
        manifest_hash: head.manifest_hash,
        implementation_version: pin.implementation_version,
        status: head.status,
        active_turn_id: head.active_turn_id.map(|t| t.to_string()),
        vault_ids: json(&pin.vault_ids, json!([])),
        credential_selections: json(&pin.credential_selections, json!([])),
        sandbox_owner_id: pin.sandbox_owner_id,
        sandbox_id: head.sandbox_id,
        sandbox: json(&pin.sandbox, Json::Null),
        sandbox_source: pin.sandbox_source,
        mcp_snapshot: json(&pin.mcp_snapshot, Json::Null),
        mcp_diagnostics: json(&pin.mcp_diagnostics, json!([])),
        waits: doc.waits.as_ref().and_then(|t| t.decode().ok()),
        error: doc.error.clone(),
        actions,
        uncertain_effects,
    })
}

/// Actions that are pending, delivering or uncertain (spec: http-api, section 10.1), by creation.
fn actions_of(reads: &mut dyn Reads, session: &SessionId, open: &[EffectRow]) -> Result<Vec<Json>, Refusal> {
    if open.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = reads.open_actions(session)?;
    for effect in open.iter().filter(|e| e.status == EffectStatus::Uncertain) {
        rows.extend(reads.action(&effect.id)?);
    }
    let views: Result<Vec<Json>, _> = rows.iter().map(actions::wire).collect();
    Ok(views?)
}
