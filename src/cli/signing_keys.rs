//! `nylorun signing-keys`: the Tenant's signing keys (spec: http-api, section 14).

use nylorun_actors::model::json::Json;
use serde_json::json;

use super::args;
use super::client::{Client, segment};
use super::fault::Fault;
use super::out::{Out, plain};
use super::resources::{optional, request_id, rows};

/// `signing-keys`.
///
/// # Errors
/// What a person reads.
pub async fn run(client: &Client, out: &Out, command: &args::SigningKeys) -> Result<(), Fault> {
    match command {
        args::SigningKeys::List => {
            let answer = client.get("/v1/access/signing-keys").await?;
            if out.is_json() { out.json(&answer) } else { table(out, &answer) }
        }
        args::SigningKeys::Rotate { force } => {
            let body = json!({ "requestId": request_id(), "force": force });
            let answer = client.post("/v1/access/signing-keys/rotate", &body).await?;
            if out.is_json() { out.json(&answer) } else { table(out, &answer) }
        }
        args::SigningKeys::Revoke { id } => {
            let body = json!({ "requestId": request_id() });
            let path = format!("/v1/access/signing-keys/{}/revoke", segment(id));
            let view = client.post(&path, &body).await?;
            if out.is_json() { out.json(&view) } else { out.line(&format!("revoked {}", plain(&view["id"]))) }
        }
    }
}

fn table(out: &Out, answer: &Json) -> Result<(), Fault> {
    let rows = rows(&answer["keys"], |key| {
        ["id", "state", "createdAt", "activatedAt", "retiredAt", "revokedAt"]
            .map(|field| optional(&key[field]))
            .to_vec()
    });
    out.table(&["KEY", "STATE", "CREATED", "ACTIVATED", "RETIRED", "REVOKED"], &rows)
}
